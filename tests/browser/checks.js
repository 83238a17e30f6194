// What must hold of a page of memlab's, checked from inside it. `expected` comes from the test.
addEventListener("load", () => setTimeout(() => {
  const wrong = [];
  const same = (what, found, wanted) => { if (found !== wanted) wrong.push(`${what}: ${JSON.stringify(found)?.slice(0, 300)} is not ${JSON.stringify(wanted)?.slice(0, 300)}`); };
  const holds = (what, is) => { if (!is) wrong.push(what); };
  const press = (element, key) => element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const { data, charts, measured, results } = memlab, part = (id, name) => document.querySelector(`#${id} .${name}`);
  memlab.drawPending();
  same("the heading", document.querySelector("h1").textContent, expected.title);
  if (expected.claim) same("the claim", document.querySelector(".verdicts li span:nth-child(2)").textContent, expected.claim);
  same("results.csv", memlab.resultsCsv(), expected.results);
  same("samples.csv", memlab.samplesCsv(), expected.samples);
  holds("everything is JSON", JSON.parse(memlab.everything()).runs.length === expected.runs);

  // Every line of the first picture has the numbers of its run in samples.csv.
  const rows = expected.samples.trim().split("\n").slice(1).map((line) => line.split(","));
  const lines = charts.filter((entry) => entry.holder.closest("#phases")).flatMap((entry) => entry.lines);
  holds("the phases have lines", lines.length > 0);
  for (const line of lines) {
    const id = results.column("run_id").cells[line.sample.run];
    const wanted = rows.filter((row) => row[0] === id && Number(row[1]) === line.sample.rank).map((row) => Number(row[4]));
    same(`the line of ${id}`, JSON.stringify(line.y), JSON.stringify(wanted));
  }
  // Every point along an axis is an indicator of results.csv.
  const columns = expected.results.split("\n")[0].split(","), known = new Set(expected.results.trim().split("\n").slice(1).flatMap((line) => line.split(",")));
  for (const entry of charts.filter((entry) => entry.holder.closest("#trends"))) for (const line of entry.lines.filter((line) => line.points === "only")) for (const value of line.y) holds(`${value} is in results.csv`, known.has(String(value)));
  holds("results.csv has its columns", columns.includes("maximum_peak_allocated_mib"));

  // Sorting, both ways, and the filter.
  const table = document.getElementById("runs"), order = () => [...table.querySelectorAll("tbody tr")].map((row) => Number(row.dataset.run));
  const peaks = results.column("maximum_peak_allocated_mib").cells, heading = table.querySelector('[data-key="maximum_peak_allocated_mib"]');
  same("all runs are in the table", order().length, expected.runs);
  heading.querySelector("button").click();
  same("it says how it is sorted", heading.getAttribute("aria-sort"), "ascending");
  holds("ascending", order().every((run, at, list) => at === 0 || peaks[list[at - 1]] <= peaks[run]));
  heading.querySelector("button").click();
  holds("descending", order().every((run, at, list) => at === 0 || peaks[list[at - 1]] >= peaks[run]));
  const filter = document.querySelector("#results input");
  filter.value = "gamma"; filter.dispatchEvent(new Event("input"));
  holds("the filter", order().length > 0 && order().length < expected.runs && order().every((run) => results.column("case").cells[run] === "gamma"));
  filter.value = ""; filter.dispatchEvent(new Event("input"));

  // A second quantity doubles the lines, a value of the legend takes its runs away; the theme turns.
  const pictures = () => charts.filter((entry) => entry.holder.closest("#phases")), count = () => pictures().reduce((sum, entry) => sum + entry.lines.length, 0), before = count();
  document.querySelector('#phases [data-key="reserved"]').click();
  same("with reserved", count(), 2 * before);
  document.querySelector('#phases [data-key="reserved"]').click();
  const chip = () => document.querySelector("#phases .legend button.chip");
  chip()?.click();
  holds("a value less", !chip() || (count() < before && chip().getAttribute("aria-pressed") === "false"));
  chip()?.click();
  same("all values again", count(), before);
  const dark = () => document.documentElement.dataset.theme === "dark", was = dark();
  document.getElementById("theme").click();
  holds("the theme turns", dark() !== was);

  // Paper is light, and has everything on it: every picture, and every row.
  if (!dark()) document.getElementById("theme").click();
  dispatchEvent(new Event("beforeprint"));
  holds("paper is light", !dark());
  same("every row is on paper", order().length, expected.runs);
  for (const shown of document.querySelectorAll("main > section:not([hidden]) .chart")) holds("every picture is on paper", shown.querySelector("canvas"));
  dispatchEvent(new Event("afterprint"));
  holds("the screen is as before", dark());

  // Everything that can be clicked can be reached with the keyboard, and says what it is.
  for (const element of document.querySelectorAll("button, select, input, .chart, .canvas")) {
    if (element.closest("[hidden]")) continue;
    holds(`${element.outerHTML.slice(0, 80)} can be reached`, element.tabIndex === 0);
    holds(`${element.outerHTML.slice(0, 80)} has a name`, element.textContent.trim() || element.getAttribute("aria-label") || element.closest("label")?.textContent.trim());
  }

  // Keyboard and mouse zoom, and show everything again. uPlot settles what is asked of it after the script.
  const entry = pictures()[0], { holder } = entry, scale = () => entry.chart.scales.x, span = () => scale().max - scale().min, tip = document.getElementById("tip");
  const over = () => entry.chart.over.getBoundingClientRect();
  const mouse = (type, target, part, more = {}) => target.dispatchEvent(new MouseEvent(type, { bubbles: true, clientX: over().left + over().width * part, clientY: over().top + over().height / 2, movementX: 1, ...more }));
  let whole = null;
  const steps = [
    () => { whole = span(); holds("there is something to zoom", whole > 0); holder.focus(); press(holder, "ArrowRight"); },
    () => {
      // What is shown beside the cursor is the exact number.
      const said = tip.querySelector("tr.on td + td"), values = entry.lines.flatMap((line) => line.y);
      holds("the cursor has a number", said && !tip.hidden);
      const exactly = Number(said?.textContent.replace(" MiB", "").replaceAll(",", ""));
      holds(`${exactly} is a sample`, values.some((value) => Math.abs(value - exactly) < 1e-9));
      press(holder, "+");
    },
    () => { holds("the keyboard zooms in", span() < whole); press(holder, "0"); },
    () => { same("and out", span(), whole); entry.chart.over.scrollIntoView(); },
    () => { mouse("mousedown", entry.chart.over, 0.25); mouse("mousemove", entry.chart.over, 0.5); mouse("mouseup", document, 0.5); },
    () => { holds(`the mouse zooms in: ${span() / whole}`, Math.abs(span() / whole - 0.25) < 0.02); for (const other of pictures()) same("and all pictures with it", other.chart.scales.x.max, scale().max); mouse("dblclick", entry.chart.over, 0.5); },
    () => { same("and out again", span(), whole); if (expected.changes) recorded(); },
    () => {
      same("nothing is loaded", performance.getEntriesByType("resource").filter(({ name }) => !name.startsWith("data:")).length, 0);
      same("no error", window.errors.join(), "");
      document.body.append(Object.assign(document.createElement("pre"), { id: "checked", textContent: wrong.length ? wrong.join("\n") : "all as expected" }));
    },
  ];
  steps.forEach((step, at) => setTimeout(step, 100 * (at + 1)));

  // The recorded allocations: all of them, in several colours, zoomed with mouse and keyboard down to single ones.
  function recorded() {
    const { recordings } = memlab, { canvas } = recordings, recording = data.recordings[recordings.at], all = recording.bytes.length, view = () => recordings.view[1] - recordings.view[0];
    holds(`${all} changes are ${expected.changes}`, all >= expected.changes);
    same("all of them are shown", view(), all);
    const by = [...document.querySelectorAll("#recordings select")].at(-1);
    by.value = "origin"; by.dispatchEvent(new Event("change"));
    const { width, height } = canvas, pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, width, height).data.buffer);
    const colours = new Map();
    for (const pixel of pixels) colours.set(pixel, (colours.get(pixel) ?? 0) + 1);
    const large = [...colours.values()].filter((area) => area > pixels.length / 100).length;
    holds(`areas of ${large} colours`, large > 3);
    same("every area has a name", part("recordings", "legend").children.length, recording.names.length + 1);
    // A made-up pointer cannot be captured.
    canvas.setPointerCapture = () => {};
    const box = canvas.getBoundingClientRect(), plot = { left: 62, width: box.width - 72 };
    const pointer = (type, share) => canvas.dispatchEvent(new PointerEvent(type, { bubbles: true, button: 0, clientX: box.left + plot.left + plot.width * share, clientY: box.top + 60 }));
    const drag = (from, to) => { pointer("pointerdown", from); pointer("pointermove", to); pointer("pointerup", to); };
    drag(0.25, 0.5);
    holds(`a quarter is shown: ${view() / all}`, Math.abs(view() / all - 0.25) < 0.01 && Math.abs(recordings.view[0] / all - 0.25) < 0.01);
    while (view() > 40) { const last = view(); drag(0.4, 0.6); if (view() >= last) break; }
    holds(`down to ${view()} changes`, view() <= 40);
    pointer("pointermove", 0.5);
    holds(`a single one is told: ${tip.textContent}`, /(allocated|released) [0-9,]+ B by /.test(tip.textContent));
    canvas.dispatchEvent(new MouseEvent("dblclick"));
    same("everything again", view(), all);
    press(canvas, "+");
    same("the keyboard zooms in", view(), all / 2);
    press(canvas, "-");
    same("and out", view(), all);
    press(canvas, "+"); press(canvas, "0");
    same("and shows everything", view(), all);
    if (expected.origin) holds("where it was asked for is only text", recording.origins.includes(expected.origin));
  }
}, 200));
