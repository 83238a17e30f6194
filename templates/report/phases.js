// Memory over the phases: every run as a line, in panels, coloured by an axis.
const phases = { sameScale: null, shown: new Set(["allocated"]), panels: null, colour: null, hidden: new Set(), rank: "first", charts: [], pinned: null };

function startPhases() {
  if (!measured.length) return;
  section("phases").hidden = false;
  const several = data.axes.filter((key) => new Set(runs.map((run) => cell(key, run))).size > 1);
  const labelled = runs.length > 1 && runs.length <= 40 && runs.filter((run) => cell("label", run)).length > 1;
  const keys = [...several, ...(labelled ? ["label"] : [])];
  const few = (key) => new Set(runs.map((run) => cell(key, run))).size <= 12;
  phases.panels = several.includes("case") && runs.length > 3 ? "case" : "none";
  const rest = several.filter((key) => key !== phases.panels);
  phases.colour = labelled ? "label" : rest.find((key) => new Set(runs.map((run) => cell(key, run))).size > 1) ?? keys[0] ?? null;
  if (runs.length === 1) phases.shown = new Set(QUANTITIES);
  phases.sameScale = comparable();
  const mark = (at) => { const svg = el("svg", { width: 18, height: 8, "aria-hidden": true }); svg.append(el("line", { x1: 0, x2: 18, y1: 4, y2: 4, stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": DASHES[at].join(" ") })); return svg; };
  part("phases", "controls").append(toggles("Quantities", QUANTITIES.map((name, at) => [name, name, mark(at)]), (name) => phases.shown.has(name), (name) => {
    if (phases.shown.has(name)) { if (phases.shown.size > 1) phases.shown.delete(name); } else phases.shown.add(name);
    drawPhases();
  }));
  if (keys.length) {
    part("phases", "controls").append(
      select("Panels by", [["none", "one panel"], ...keys.filter(few).map((key) => [key, axisWord(key)])], phases.panels, (key) => { phases.panels = key; drawPhases(); }),
      select("Colour by", keys.map((key) => [key, axisWord(key)]), phases.colour, (key) => { phases.colour = key; phases.hidden.clear(); drawPhases(); }),
    );
  }
  if (keys.length) {
    part("phases", "controls").append(toggles("Scale", [["same", "same scale"]], () => phases.sameScale, () => { phases.sameScale = !phases.sameScale; drawPhases(); }));
  }
  if (data.ranks.length) {
    part("phases", "controls").append(select("Ranks", [["first", "rank 0"], ["all", "every rank"]], phases.rank, (which) => { phases.rank = which; drawPhases(); }));
  }
  redraws.push(drawPhases);
  whenNear(section("phases"), drawPhases);
}

// Whether the panels can share a scale without the smallest becoming a line at the bottom.
function comparable() {
  const highest = new Map();
  for (const { run, values } of measured) { const key = cell(phases.panels === "none" ? "case" : phases.panels, run); highest.set(key, Math.max(highest.get(key) ?? 0, ...values[0])); }
  return Math.min(...highest.values()) * 3 > Math.max(...highest.values());
}

// Bands for the steps behind the lines, with their numbers below.
function stepBands(u) {
  const { ctx, bbox } = u, { min, max } = u.scales.x;
  ctx.save();
  ctx.fillStyle = css("--shade");
  for (let step = 0; step <= stepAt(max) + 1; step += 1) {
    if (step % 2) continue;
    const from = BEFORE - 0.5 + step * PER_STEP, to = from + PER_STEP;
    const left = Math.max(bbox.left, u.valToPos(Math.max(min, from), "x", true)), right = Math.min(bbox.left + bbox.width, u.valToPos(Math.min(max, to), "x", true));
    if (right > left) ctx.fillRect(left, bbox.top, right - left, bbox.height);
  }
  ctx.restore();
}
const phaseAxis = {
  range: null,
  axis: {
    splits: (u, _, min, max) => {
      const width = u.bbox.width / devicePixelRatio;
      if ((max - min) * 44 < width) return Array.from({ length: Math.floor(max) - Math.ceil(min) + 1 }, (_, at) => Math.ceil(min) + at);
      const first = Math.max(0, stepAt(Math.max(BEFORE, min))), last = stepAt(max), every = Math.max(1, Math.ceil((last - first + 1) * 22 / width));
      const splits = min < BEFORE - 1 ? [1] : [];
      for (let step = first; step <= last; step += 1) {
        const middle = BEFORE + step * PER_STEP + 1.5;
        if (step % every === 0 && middle >= min && middle <= max) splits.push(middle);
      }
      return splits;
    },
    values: (u, splits) => splits.map((place) => Number.isInteger(place) && splits[1] - splits[0] === 1
      ? `${SHORT_PHASES[phaseAt(place)]}\n${place >= BEFORE && phaseAt(place) === BEFORE ? `step ${stepAt(place)}` : ""}`
      : place < BEFORE ? "start" : (splits.length < 14 && u.bbox.width / devicePixelRatio / splits.length > 52 ? `step ${stepAt(place)}` : String(stepAt(place)))),
    size: 40,
  },
};

function drawPhases() {
  for (const entry of phases.charts) { sizes.unobserve(entry.holder); dispose(entry); }
  phases.charts = [];
  const holder = part("phases", "panels");
  holder.replaceChildren();
  const colours = phases.colour && palette(phases.colour);
  legend(part("phases", "legend"), colours, (value) => !phases.hidden.has(value), (value) => {
    if (phases.hidden.has(value)) phases.hidden.delete(value); else phases.hidden.add(value);
    drawPhases();
  });
  const groups = new Map();
  for (const sample of measured) {
    if (phases.rank === "first" && sample.rank !== 0) continue;
    if (colours && phases.hidden.has(cell(phases.colour, sample.run))) continue;
    const key = phases.panels === "none" ? null : cell(phases.panels, sample.run);
    (groups.get(key) ?? groups.set(key, []).get(key)).push(sample);
  }
  holder.classList.toggle("one", groups.size <= 1);
  const ends = layouts.filter((layout) => layout.length), last = Math.max(...ends.map((layout) => layout.at(-1)));
  const low = Math.min(...ends.map((layout) => layout[0])), range = [low - 0.5, last + 0.5];
  let syncing = false;
  const most = (samples) => samples.reduce((most, sample) => QUANTITIES.reduce((most, name, at) => phases.shown.has(name) ? sample.values[at].reduce((most, value) => Math.max(most, value), most) : most, most), 0);
  const overall = most([...groups.values()].flat());
  for (const [key, samples] of groups) {
    const single = samples.length === 1, highest = phases.sameScale ? overall : most(samples);
    const lines = samples.flatMap((sample) => QUANTITIES.map((name, at) => ({ name, at })).filter(({ name }) => phases.shown.has(name)).map(({ name, at }) => ({
      x: sample.x, y: sample.values[at], sample, quantity: name, label: `${runName(sample.run)} ${name}`, dash: single || phases.shown.size > 1 ? DASHES[at] : [],
      colour: single && !colours ? QUANTITY_COLOURS[mode()][at] : colours ? colours.of(sample.run) : QUANTITY_COLOURS[mode()][at],
      width: table.selected.has(sample.run) ? 3.2 : samples.length > 60 ? 1 : 1.7,
      alpha: table.selected.size ? (table.selected.has(sample.run) ? 1 : 0.3) : samples.length > 200 ? 0.5 : 1,
    })));
    const place = el("div", { class: "chart" });
    holder.append(el("div", { class: "panel" }, el("h3", {}, key === null ? "" : phases.panels === "label" ? axisValue("label", key ?? "the base") : `${axisWord(phases.panels)} ${axisValue(phases.panels, key)} `,
      el("span", { class: "unit" }, "MiB")), place));
    const entry = chart(place, {
      lines, height: groups.size <= 1 ? 380 : 270, x: { ...phaseAxis, range }, y: { range: () => [0, highest * 1.05 || 1] }, bands: stepBands, sync: "phases",
      label: `Memory over the phases${key === null ? "" : `, ${phases.panels} ${key}`}: ${lines.length} lines`,
      describe: describeSample,
      onzoom: (u) => {
        if (syncing) return;
        syncing = true;
        for (const other of phases.charts) if (other.chart !== u) other.chart.setScale("x", { min: u.scales.x.min, max: u.scales.x.max });
        syncing = false;
      },
    });
    phases.charts.push(entry);
    sizes.observe(place);
  }
}
function describeSample(line, place) {
  const { sample } = line, index = sample.x.indexOf(place), step = stepAt(place);
  const name = runName(sample.run), settings = data.axes.length ? settingWords(sample.run) : "";
  return [el("strong", {}, name), settings && name !== settings ? el("span", { class: "soft" }, settings) : null,
    el("span", { class: "soft" }, `${step < 0 ? "before training" : `step ${step}`}, after ${PHASE_WORDS[phaseAt(place)]}${byRun.get(sample.run).length > 1 ? `, rank ${sample.rank}` : ""}`),
    el("table", {}, ...QUANTITIES.map((quantity, at) => el("tr", { class: quantity === line.quantity ? "on" : null }, el("td", {}, quantity), el("td", {}, `${exact(sample.values[at][index])} MiB`))))].filter(Boolean);
}
