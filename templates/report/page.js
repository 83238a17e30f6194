// Puts the sections together: verdicts, provenance, downloads, navigation.
const MARKS = { supported: "✓", refuted: "✗", "known failure": "✗" };
function startVerdicts() {
  const entry = (verdict, claim, details) => el("li", { class: verdict.replace(" ", "_") }, el("span", { class: "word" }, `${MARKS[verdict] ?? "–"} ${verdict}`), el("span", {}, claim),
    el("span", { class: "detail" }, details.filter(Boolean).join("\n")));
  const list = part("verdicts", "verdicts");
  for (const { verdict, claim, expected, found, remarks } of data.verdicts) list.append(entry(verdict, claim, [expected && `Expected: ${expected}`, found && `Found: ${found}`, ...remarks]));
  if (data.baseline) {
    const { verdict, file, compared, problem, changes } = data.baseline;
    list.append(entry(verdict, `The numbers are those of the baseline ${file}`, [`${compared} numbers compared, ${changes.length || "none"} changed`, problem, ...changes]));
  }
  section("verdicts").hidden = !list.children.length;
}
const CODE = new Set(["command", "experiment", "worker build", "revision of the experiment"]), MANY_FACTS = 8;
function startProvenance() {
  const list = el("dl"), groups = new Map();
  for (const fact of data.provenance) groups.set(fact.what, [...(groups.get(fact.what) ?? []), fact]);
  const total = byRun.size;
  for (const [what, facts] of groups) {
    const code = CODE.has(what) ? "code" : null;
    const line = ({ value, runs }) => el("dd", { class: code }, value, runs !== total ? el("span", { class: "soft" }, ` (${runs} ${runs === 1 ? "run" : "runs"})`) : null);
    list.append(el("dt", {}, what), ...facts.slice(0, MANY_FACTS).map(line));
    if (facts.length > MANY_FACTS) list.append(el("dd", {}, el("details", {}, el("summary", {}, `and ${facts.length - MANY_FACTS} more`), ...facts.slice(MANY_FACTS).map(line))));
  }
  part("provenance", "body").append(groups.size ? list : el("p", { class: "note" }, "Nothing was measured yet."));
  const devices = (groups.get("device") ?? []).map(({ value }) => value);
  document.getElementById("devices").textContent = devices.length > 3 ? `${devices.length} devices` : devices.join("; ");
}

// The same text as memlab's own files.
function csv(columns, rows) {
  const field = (value) => { const text = value === null ? "" : String(value); return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text; };
  const lines = [columns.map((column) => field(column.key)).join(",")];
  for (let row = 0; row < rows; row += 1) lines.push(columns.map((column) => field(column.cells[row])).join(","));
  return `${lines.join("\n")}\n`;
}
const resultsCsv = () => csv(results.columns, results.rows);
function samplesCsv() {
  const lines = ["run_id,rank,step,phase,allocated_mib,reserved_mib,peak_allocated_mib,device_used_mib"];
  for (const sample of measured) sample.places.forEach(([step, phase], at) => lines.push([cell("run_id", sample.run), sample.rank, step, data.phases[phase], ...sample.values.map((list) => list[at])].join(",")));
  return `${lines.join("\n")}\n`;
}
function everything() {
  const objects = (table) => Array.from({ length: table.rows }, (_, row) => Object.fromEntries(table.columns.map((column) => [column.key, column.cells[row]])));
  const samples = measured.map((sample) => ({ run_id: cell("run_id", sample.run), rank: sample.rank, samples: sample.places.map(([step, phase], at) => ({ step, phase: data.phases[phase], ...Object.fromEntries(data.quantities.map((key, quantity) => [key, sample.values[quantity][at]])) })) }));
  const lines = data.along.map(({ axis, groups }) => ({ axis, groups: groups.map((group) => ({ runs: group.runs.map((run) => cell("run_id", run)), lines: Object.fromEntries(data.indicators.map((key, at) => [key, group.lines[at] && { slope: group.lines[at][0], intercept: group.lines[at][1], largest_deviation: group.lines[at][2] }])) })) }));
  const perRank = data.ranks.map((rank) => ({ run_id: cell("run_id", rank.run), rank: rank.rank, samples: rank.samples, ...Object.fromEntries(data.indicators.map((key, at) => [key, rank.indicators[at]])) }));
  return JSON.stringify({ name: data.name, title: data.title, verdicts: data.verdicts, baseline: data.baseline, runs: objects(results), ranks: perRank, responses: responses && objects(responses), lines, samples, provenance: data.provenance }, null, 1);
}
function save(name, type, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
function startDownloads() {
  const files = [["results.csv", "text/csv", resultsCsv, "one line per run"], ["samples.csv", "text/csv", samplesCsv, "memory at every phase"], [`${data.name}.json`, "application/json", everything, "all of it"]];
  if (responses?.rows) files.splice(2, 0, ["responses.csv", "text/csv", () => csv(responses.columns, responses.rows), "responses to each change"]);
  part("downloads", "body").append(el("div", { class: "downloads" }, ...files.map(([name, type, text, what]) => el("button", { type: "button", "data-file": name, onclick: () => save(name, type, text()) }, `${name}: ${what}`))));
}
function startNavigation() {
  const visible = [...document.querySelectorAll("main > section")].filter((section) => !section.hidden);
  document.getElementById("sections").append(...visible.map((section) => el("a", { href: `#${section.id}` }, section.dataset.title)));
}
startVerdicts();
startPhases();
startTrends();
startResponses();
startRanks();
startRecordings();
startTable();
startProvenance();
startDownloads();
startNavigation();
// For whoever looks at the page from the console, and for its tests.
window.memlab = { data, results, measured, charts, recordings, drawPending, resultsCsv, samplesCsv, everything };
