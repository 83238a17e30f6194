// The table of runs, sortable and filterable, and the responses to perturbations.
const table = { sort: null, descending: false, filter: "", selected: new Set() };
const ROWS = 120;
const SETTINGS = new Set(["case", "preset", "batch_size", "steps", "precision"]);
const BAD = new Set(["error", "killed", "timeout", "host_oom", "node_fail", "preempted", "cancelled"]), WARN = new Set(["oom", "missing", "running"]);

function header(column, numeric, sort) {
  const title = [el("span", { class: "title" }, column.title), column.unit ? el("span", { class: "unit" }, column.unit) : null];
  return el("th", { scope: "col", class: numeric ? "number" : null, "data-key": column.key }, sort ? el("button", { type: "button", onclick: () => sort(column) }, ...title) : el("span", {}, ...title.filter(Boolean)));
}
function shown(column, value) {
  if (value === null) return el("span", { class: "none" }, "–");
  if (column.key === "capacity_bytes") return axisValue(column.key, value);
  return typeof value === "number" ? (Number.isInteger(value) && column.unit !== "MiB" ? String(value) : number(value, column.decimals)) : String(value);
}
const isNumeric = (column) => column.cells.every((value) => value === null || typeof value === "number") && column.cells.some((value) => value !== null);

function startTable() {
  // What is the same in every run is said once, above the table.
  const all = data.shown.map((key) => results.column(key)).filter(Boolean);
  const constant = all.filter((column) => runs.length > 1 && SETTINGS.has(column.key) && column.cells.every((value) => value === column.cells[0]));
  const columns = all.filter((column) => !constant.includes(column));
  const numeric = new Map(columns.map((column) => [column, isNumeric(column)]));
  const order = [...runs];
  const body = el("tbody"), head = el("tr", {}, ...columns.flatMap((column, at) => {
    const cells = [header(column, numeric.get(column), (column) => sortBy(column))];
    if (at === 0) cells.push(el("th", { scope: "col" }, el("span", { class: "title" }, "allocated")));
    return cells;
  }));
  const made = new Map();
  const rowOf = (run) => made.get(run) ?? made.set(run, makeRow(run)).get(run);
  function makeRow(run) {
    const row = el("tr", { "data-run": run, "aria-selected": "false" });
    columns.forEach((column, at) => {
      const value = column.cells[run];
      if (at === 0) {
        row.append(el("td", { class: "run" }, el("button", { type: "button", title: "Mark this run", onclick: () => mark(run) }, shown(column, value))), el("td", {}, spark(run)));
        return;
      }
      const state = column.key === "outcome" ? (BAD.has(value) ? "bad" : WARN.has(value) ? "warn" : null) : null;
      row.append(el("td", { class: numeric.get(column) ? "number" : state, title: state ? cell("message", run) : null }, shown(column, value)));
    });
    return row;
  }
  const count = el("span", { class: "end" });
  const words = runs.map((run) => columns.map((column) => column.cells[run]).join(" ").toLowerCase());
  // Rows are made as they come into view; on paper all of them are.
  let waiting = [];
  function more(rows) {
    body.append(...waiting.slice(0, rows).map(rowOf));
    waiting = waiting.slice(rows);
  }
  const holder = part("results", "scroll");
  holder.addEventListener("scroll", () => { if (holder.scrollTop + 2 * holder.clientHeight > holder.scrollHeight) more(ROWS); });
  addEventListener("beforeprint", () => more(waiting.length));
  function fill() {
    const wanted = table.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const visible = order.filter((run) => wanted.every((word) => words[run].includes(word)));
    waiting = visible;
    body.replaceChildren();
    more(ROWS);
    count.textContent = visible.length === runs.length ? "" : `${visible.length} of ${runs.length}`;
  }
  function sortBy(column) {
    table.descending = table.sort === column ? !table.descending : false;
    table.sort = column;
    const compare = (left, right) => {
      const [a, b] = [column.cells[left], column.cells[right]];
      // What is not known comes last, in both directions.
      if (a === null || b === null) return (a === null) - (b === null) || left - right;
      const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
      return (table.descending ? -order : order) || left - right;
    };
    order.sort(compare);
    for (const th of head.children) th.removeAttribute("aria-sort");
    head.querySelector(`[data-key="${column.key}"]`).setAttribute("aria-sort", table.descending ? "descending" : "ascending");
    fill();
  }
  function mark(run) {
    if (table.selected.has(run)) table.selected.delete(run); else table.selected.add(run);
    rowOf(run).setAttribute("aria-selected", String(table.selected.has(run)));
    drawPhases();
  }
  const filter = el("input", { type: "search", placeholder: "Filter: gamma bf16 …", "aria-label": "Filter the runs", oninput: () => { table.filter = filter.value; fill(); } });
  part("results", "controls").append(filter, el("span", {}, constant.length ? `All with ${constant.map((column) => `${axisWord(column.key)} ${column.cells[0]}`).join(", ")}.` : ""), count);
  holder.append(el("table", { class: "data", id: "runs" }, el("thead", {}, head), body));
  fill();
  if (data.unplanned.length) section("results").append(el("p", { class: "note" }, `Not in the plan any more, and not in this table: ${data.unplanned.join(", ")}`));
}

// The curve of allocated memory, small.
function spark(run) {
  const sample = byRun.get(run)?.[0];
  if (!sample || !sample.x.length) return el("span", { class: "none" }, "–");
  const y = sample.values[0], high = Math.max(...y) || 1, width = sample.x.at(-1) - sample.x[0] || 1;
  const svg = el("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": true });
  svg.append(el("path", { d: sample.x.map((place, at) => `${at ? "L" : "M"}${(((place - sample.x[0]) / width) * 100).toFixed(1)} ${(23 - (y[at] / high) * 22).toFixed(1)}`).join("") }));
  return svg;
}

function startResponses() {
  if (!responses || !responses.rows) return;
  section("responses").hidden = false;
  // Outcomes are worth a column where one is not ok; which response is strongest is in bold.
  const firsts = responses.columns.slice(0, 3).filter((column) => column.key !== "outcome" || column.cells.some((outcome) => outcome !== "ok"));
  const pairs = data.indicators.map((key) => [responses.column(`${key}_by`), responses.column(`${key.replace(/_mib$/, "")}_percent`)]);
  const body = Array.from({ length: responses.rows }, (_, row) => {
    const most = Math.max(0, ...pairs.map(([change]) => Math.abs(change.cells[row] ?? 0)));
    return el("tr", {}, ...firsts.map((column) => el("td", { class: column.key === "outcome" && BAD.has(column.cells[row]) ? "bad" : null }, shown(column, column.cells[row]))), ...pairs.map(([change, percent]) => {
      const value = change.cells[row];
      if (value === null) return el("td", { class: "number" }, shown(change, null));
      const share = most ? (Math.abs(value) / most) * 50 : 0;
      return el("td", { class: "number" }, el("div", { class: `response${most > 0 && Math.abs(value) === most ? " most" : ""}` }, el("span", { class: "value" }, signed(value)),
        el("span", { class: "percent" }, percent.cells[row] === null ? "" : `${signed(percent.cells[row], 1)} %`),
        el("span", { class: "meter", "aria-hidden": true }, bar(value < 0 ? 50 - share : 50, share))));
    }));
  });
  const heads = [...firsts.map((column) => header(column, false)), ...pairs.map(([change]) => header({ ...change, unit: "MiB, and part of before" }, true))];
  part("responses", "body").append(el("div", { class: "scroll" }, el("table", { class: "data" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...body))));
}
function bar(left, width) {
  const bar = el("i");
  bar.style.left = `${left}%`;
  bar.style.width = `${width}%`;
  return bar;
}
