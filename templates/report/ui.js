// Small things that every section needs: elements, numbers, colours, the tooltip, light and dark.
function el(name, attributes = {}, ...children) {
  const element = name === "svg" || name === "path" || name === "line" ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.startsWith("--")) element.style.setProperty(key, value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  // Text from experiments and reports is only ever text: nothing here is parsed as HTML.
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
const section = (id) => document.getElementById(id);
const part = (id, name) => section(id).querySelector(`.${name}`);
const formats = new Map();
function number(value, decimals = 2) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!formats.has(decimals)) formats.set(decimals, new Intl.NumberFormat("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }));
  const text = formats.get(decimals).format(value);
  return (/^-[0.,]*$/.test(text) ? text.slice(1) : text).replace("-", "−");
}
const signed = (value, decimals = 2) => (value > 0 ? "+" : "") + number(value, decimals);
const exact = (value) => (value === null ? "–" : number(value, Number.isInteger(value) ? 0 : Math.min(10, (String(value).split(".")[1] ?? "").length || 2)));

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isDark = () => document.documentElement.dataset.theme === "dark";

// Okabe and Ito's colours, told apart with any colour vision; the yellow one comes last and darker on paper.
const NAMED = { light: ["#0072b2", "#d55e00", "#009e73", "#b5518f", "#56a0d3", "#c28a00", "#4d4d4d", "#8a6d3b"],
                dark: ["#56b4e9", "#f0803c", "#2fc79a", "#e08cc0", "#9fc6f5", "#f0c546", "#b9bec5", "#c7a46b"] };
const QUANTITY_COLOURS = { light: ["#0072b2", "#7a7f87", "#d55e00", "#009e73"], dark: ["#56b4e9", "#8d95a0", "#f0803c", "#2fc79a"] };
const DASHES = [[], [6, 4], [2, 3], [10, 3, 2, 3]];
// Viridis without its ends: an order that grey and colour-blind readers see too.
const RAMP = { light: ["#482878", "#31688e", "#1f9e89", "#5fb743", "#a8b11c"], dark: ["#7b6fd0", "#4a9cc4", "#35b79a", "#7fd15a", "#e5e04a"] };
const mode = () => (isDark() ? "dark" : "light");
function ramp(part) {
  const stops = RAMP[mode()], place = part * (stops.length - 1), at = Math.min(stops.length - 2, Math.floor(place)), rest = place - at;
  const channel = (text, index) => parseInt(text.slice(1 + 2 * index, 3 + 2 * index), 16);
  return `rgb(${[0, 1, 2].map((index) => Math.round(channel(stops[at], index) * (1 - rest) + channel(stops[at + 1], index) * rest)).join(",")})`;
}
// A colour for each value of an axis: names get named colours, numbers an ordered ramp.
function palette(key) {
  const values = [...new Set(runs.map((run) => cell(key, run)))];
  const ordered = values.every((value) => typeof value === "number");
  if (ordered) values.sort((left, right) => left - right);
  const places = new Map(values.map((value, at) => [value, at]));
  const colour = (value) => {
    const at = places.get(value);
    return ordered && values.length > 2 ? ramp(at / (values.length - 1)) : NAMED[mode()][at % NAMED.light.length];
  };
  return { key, values, ordered: ordered && values.length > 8, colour, of: (run) => colour(cell(key, run)) };
}
// Chips that switch groups of runs on and off; for many ordered values a ramp.
function legend(holder, palette, isOn, toggle = null) {
  holder.replaceChildren();
  if (!palette) return;
  holder.append(el("span", { class: "what" }, axisWord(palette.key)));
  if (palette.ordered || palette.values.length > 24) {
    const stops = Array.from({ length: 9 }, (_, at) => palette.colour(palette.values[Math.round((at / 8) * (palette.values.length - 1))]));
    holder.append(el("span", { class: "ramp", "--ramp": `linear-gradient(90deg, ${stops.join(",")})` }, axisValue(palette.key, palette.values[0]), el("i"),
      axisValue(palette.key, palette.values.at(-1))));
    return;
  }
  for (const value of palette.values) {
    if (!toggle) {
      holder.append(el("span", { class: "chip", "--chip": palette.colour(value) }, el("i"), axisValue(palette.key, value)));
      continue;
    }
    const chip = el("button", { type: "button", class: "chip", "aria-pressed": String(isOn(value)), "--chip": palette.colour(value), onclick: () => {
      toggle(value);
      chip.setAttribute("aria-pressed", String(isOn(value)));
    } }, el("i"), axisValue(palette.key, value));
    holder.append(chip);
  }
}
function select(label, options, value, change) {
  const box = el("select", { onchange: () => change(box.value) }, ...options.map(([key, word]) => el("option", { value: key, selected: key === value }, word)));
  return el("label", {}, label, box);
}
function toggles(label, options, isOn, change) {
  return el("span", { class: "group", role: "group", "aria-label": label }, ...options.map(([key, word, mark]) => {
    const button = el("button", { type: "button", "data-key": key, "aria-pressed": String(isOn(key)), onclick: () => {
      change(key);
      for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(isOn(other.dataset.key)));
    } }, mark ?? null, word);
    return button;
  }));
}

const tip = document.getElementById("tip");
function showTip(x, y, ...children) {
  tip.replaceChildren(...children);
  tip.hidden = false;
  const box = tip.getBoundingClientRect(), left = x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, Math.min(innerHeight - box.height - 4, y + 14))}px`;
}
const hideTip = () => { tip.hidden = true; };

// Sections register how they redraw themselves: after a change of theme or size of paper.
const redraws = [];
const redrawAll = () => { for (const redraw of redraws) redraw(); };
const theme = {
  remembered() { try { return localStorage.getItem("memlab-theme"); } catch { return null; } },
  set(name) {
    document.documentElement.dataset.theme = name;
    const button = document.getElementById("theme");
    button.textContent = name === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", name === "dark" ? "Use light colours" : "Use dark colours");
  },
  start() {
    const system = matchMedia("(prefers-color-scheme: dark)");
    theme.set(theme.remembered() ?? (system.matches ? "dark" : "light"));
    system.addEventListener("change", () => { if (!theme.remembered()) { theme.set(system.matches ? "dark" : "light"); redrawAll(); } });
    document.getElementById("theme").addEventListener("click", () => {
      const name = isDark() ? "light" : "dark";
      theme.set(name);
      try { localStorage.setItem("memlab-theme", name); } catch { /* not every place lets a page remember */ }
      redrawAll();
    });
    // Paper is light.
    let before = null;
    addEventListener("beforeprint", () => { before = document.documentElement.dataset.theme; drawPending(); theme.set("light"); redrawAll(); });
    addEventListener("afterprint", () => { if (before) { theme.set(before); redrawAll(); } });
  },
};
theme.start();
// What is far down the page is drawn when it comes near, or is printed.
const pending = new Map();
const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) if (isIntersecting) drawNow(target);
}, { rootMargin: "600px" });
function drawNow(element) {
  const draw = pending.get(element);
  pending.delete(element);
  near.unobserve(element);
  draw?.();
}
const drawPending = () => { for (const element of [...pending.keys()]) drawNow(element); };
function whenNear(element, draw) { pending.set(element, draw); near.observe(element); }
