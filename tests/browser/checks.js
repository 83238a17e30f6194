// What must hold of a page of memlab's, checked from inside it. `expected` comes from the test.
addEventListener("load", () => setTimeout(() => {
  const wrong = [];
  const same = (what, found, wanted) => { if (found !== wanted) wrong.push(`${what}: ${JSON.stringify(found)?.slice(0, 300)} is not ${JSON.stringify(wanted)?.slice(0, 300)}`); };
  const holds = (what, is) => { if (!is) wrong.push(what); };
  const press = (element, key) => element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const { data, charts, measured, results } = memlab;
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

  // A second quantity doubles the lines; the theme turns.
  const count = () => charts.filter((entry) => entry.holder.closest("#phases")).reduce((sum, entry) => sum + entry.lines.length, 0), before = count();
  document.querySelector('#phases [data-key="reserved"]').click();
  same("with reserved", count(), 2 * before);
  const theme = document.documentElement.dataset.theme;
  document.getElementById("theme").click();
  holds("the theme turns", document.documentElement.dataset.theme !== theme);

  // The keyboard zooms, and shows everything again. uPlot settles what is asked of it after the script.
  const entry = charts.find((entry) => entry.holder.closest("#phases")), span = () => entry.chart.scales.x.max - entry.chart.scales.x.min;
  let whole = null;
  const steps = [
    () => { whole = span(); holds("there is something to zoom", whole > 0); press(entry.holder, "ArrowRight"); press(entry.holder, "+"); },
    () => { holds("zoomed in", span() < whole); press(entry.holder, "0"); },
    () => {
      same("everything again", span(), whole);
      same("nothing is loaded", performance.getEntriesByType("resource").filter(({ name }) => !name.startsWith("data:")).length, 0);
      same("no error", window.errors.join(), "");
      document.body.append(Object.assign(document.createElement("pre"), { id: "checked", textContent: wrong.length ? wrong.join("\n") : "all as expected" }));
    },
  ];
  steps.forEach((step, at) => setTimeout(step, 100 * (at + 1)));
}, 200));
