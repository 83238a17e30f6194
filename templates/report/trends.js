// Each indicator along each axis: points for the runs that differ in that axis only, and the line through them.
const trends = { charts: [] };
const indicatorTitle = (at) => INDICATORS[at].title;
function startTrends() {
  if (!data.along.length) return;
  section("trends").hidden = false;
  redraws.push(drawTrends);
  whenNear(section("trends"), drawTrends);
}
// What tells the groups along an axis apart.
function groupAxes(along) {
  const firsts = along.groups.map((group) => group.runs[0]);
  return data.axes.filter((key) => key !== along.axis && new Set(firsts.map((run) => cell(key, run))).size > 1);
}
function drawTrends() {
  for (const entry of trends.charts) { sizes.unobserve(entry.holder); dispose(entry); }
  trends.charts = [];
  const body = part("trends", "body");
  body.replaceChildren();
  for (const along of data.along) {
    const apart = groupAxes(along), key = apart.includes("case") ? "case" : apart[0] ?? null, colours = key && palette(key);
    const values = [...new Set(along.groups.flatMap((group) => group.runs.map((run) => cell(along.axis, run))))];
    const numeric = values.every((value) => typeof value === "number");
    if (numeric) values.sort((left, right) => left - right);
    const place = (run) => numeric ? cell(along.axis, run) : values.indexOf(cell(along.axis, run));
    const low = numeric ? values[0] : 0, high = numeric ? values.at(-1) : values.length - 1, room = (high - low) * 0.07 || 0.5;
    const holder = el("div", { class: "quarter" }), keys = el("div", { class: "legend" });
    body.append(el("div", { class: "along" }, el("h3", {}, `Along ${axisWord(along.axis)}`), keys, holder));
    if (colours) legend(keys, { ...colours, values: colours.values.filter((value) => along.groups.some((group) => cell(key, group.runs[0]) === value)) }, null);
    INDICATORS.forEach((column, at) => {
      const lines = along.groups.flatMap((group) => {
        const colour = colours ? colours.of(group.runs[0]) : NAMED[mode()][0];
        const known = group.runs.filter((run) => column.cells[run] !== null);
        if (!known.length) return [];
        const x = known.map(place), y = known.map((run) => column.cells[run]), line = numeric && group.lines[at];
        const points = { x, y, colour, points: "only", label: "", group, runs: known };
        if (!line) return [{ x, y, colour, width: 1, alpha: 0.55, label: "" }, points];
        const ends = [x[0], x.at(-1)];
        return [{ x: ends, y: ends.map((place) => line[1] + line[0] * place), colour, width: 1.4, alpha: along.groups.length > 12 ? 0.4 : 0.85, dash: [5, 3], label: "" }, points];
      });
      const holderOfChart = el("div", { class: "chart" });
      const panel = el("div", { class: "panel" }, el("h4", {}, indicatorTitle(at), " ", el("span", { class: "unit" }, "MiB")), holderOfChart, fitWords(along, at, apart, colours, numeric));
      holder.append(panel);
      const entry = chart(holderOfChart, {
        lines, height: 170, padding: [8, numeric ? 14 : 26, 0, 0], label: `${indicatorTitle(at)} along ${axisWord(along.axis)}`, focusable: (line) => line.points === "only",
        x: { range: [low - room, high + room], axis: { size: 28, splits: numeric ? () => spread(values) : () => values.map((_, index) => index), values: (_, splits) => splits.map((split) => numeric ? number(split, 0) : short(values[split])) } },
        describe: (line, x) => {
          const run = line.runs[line.x.indexOf(x)];
          return [el("strong", {}, runName(run)), el("span", { class: "soft" }, settingWords(run)),
            el("table", {}, ...INDICATORS.map((column, other) => el("tr", { class: other === at ? "on" : null }, el("td", {}, column.title), el("td", {}, `${exact(column.cells[run])} MiB`))))];
        },
      });
      trends.charts.push(entry);
      sizes.observe(holderOfChart);
    });
  }
}
const UNITS = { batch_size: "sample", steps: "step", world_size: "rank", rank_zero_extra_samples: "extra sample", capacity_bytes: "byte" };
const short = (value) => { const text = axisValue("", value); return text.length > 12 ? `${text.slice(0, 11)}…` : text; };
// Measured values as ticks, as many as have room.
function spread(values) {
  const least = (values.at(-1) - values[0]) / 7, kept = [];
  for (const value of values) if (!kept.length || value - kept.at(-1) >= least) kept.push(value);
  return kept;
}
// The lines in words; groups with the same line share one.
const MOST_LINES = 6;
function fitWords(along, at, apart, colours, numeric) {
  const list = el("ul", { class: "lines" });
  if (!numeric) return list;
  const said = new Map();
  for (const group of along.groups) {
    const line = group.lines[at];
    if (!line) continue;
    const [slope, intercept, deviation] = line, places = group.runs.map((run) => cell(along.axis, run)), unit = UNITS[along.axis] ?? `unit of ${axisWord(along.axis)}`;
    const flat = Math.abs(slope) * (places.at(-1) - places[0]) < 0.005 && deviation < 0.005;
    const words = flat ? "the same everywhere" : `${signed(slope)} per ${unit}`;
    const rest = flat ? "" : `, ${number(intercept)} at zero${new Set(places).size > 2 ? `, points up to ${number(deviation)} off` : ""}`;
    const colour = colours ? colours.of(group.runs[0]) : NAMED[mode()][0], key = `${colour}${words}${rest}`;
    (said.get(key) ?? said.set(key, { colour, words, rest, groups: [] }).get(key)).groups.push(group);
  }
  const lines = [...said.values()].map(({ colour, words, rest, groups }) => el("li", { "--chip": colour }, el("i"), el("span", {}, el("b", {}, words), rest,
    apart.length > 1 && groups.length === 1 && along.groups.length > 1 ? ` (${settingWords(groups[0].runs[0], apart.filter((key) => key !== colours?.key))})` : "")));
  list.append(...lines.slice(0, MOST_LINES));
  if (lines.length > MOST_LINES) list.append(el("li", {}, el("details", {}, el("summary", {}, `and ${lines.length - MOST_LINES} more`), ...lines.slice(MOST_LINES))));
  return list;
}
