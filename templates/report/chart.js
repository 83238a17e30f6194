// One picture: uPlot with axes in the page's colours, an overlay for the line in focus, and the keyboard.
const FONT = "11.5px system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif";
const charts = [];
const tick = (value) => number(value, Math.abs(value) >= 10 || Number.isInteger(value) ? 0 : Math.abs(value) >= 1 ? 1 : 2);

// Memory starts at zero, so that heights compare; only what goes below zero moves the lower end.
const fromZero = (_, low, high) => {
  if (low === null) return [0, 1];
  if (low === 0 && high === 0) return [0, 1];
  const room = (Math.max(high, 0) - Math.min(low, 0)) * 0.06;
  return [low < 0 ? low - room : 0, high > 0 ? high + room : 0];
};

// lines: { x, y, label, colour, dash, width, points, info }. `x` lists are merged into one.
function chart(holder, { lines, label, height = 240, x = {}, y = {}, bands = null, describe, sync = null, focusable = () => true, onzoom = null, padding = [8, 12, 0, 0] }) {
  const places = [...new Set(lines.flatMap((line) => line.x))].sort((left, right) => left - right);
  const at = new Map(places.map((place, index) => [place, index]));
  const columns = lines.map((line) => {
    const column = new Array(places.length).fill(null);
    line.x.forEach((place, index) => { column[at.get(place)] = line.y[index]; });
    return column;
  });
  const axis = { stroke: css("--soft"), font: FONT, ticks: { show: false }, grid: { stroke: css("--faint"), width: 1 } };
  const full = x.range ?? [places[0] ?? 0, places.at(-1) ?? 1];
  let focus = null, pinnedIndex = null;
  const overlay = el("canvas", { class: "overlay" });
  const chart = new uPlot({
    width: Math.max(160, holder.clientWidth), height, legend: { show: false }, padding,
    cursor: { points: { show: false }, y: false, drag: { x: true, y: false, setScale: true }, sync: sync ? { key: sync, setSeries: false } : undefined },
    scales: { x: { time: false, range: (_, low, high) => (low === null ? full : [low, high]) }, y: { range: y.range ?? fromZero } },
    axes: [{ ...axis, size: 34, gap: 6, grid: { show: x.grid ?? false, stroke: css("--faint"), width: 1 }, ...x.axis },
           { ...axis, size: (_, values) => Math.max(38, 14 + 6.6 * Math.max(0, ...(values ?? []).map((value) => value.length))), gap: 6, space: 34, values: (_, splits) => splits.map(tick), ...y.axis }],
    series: [{}, ...lines.map((line) => ({
      label: line.label, stroke: line.colour, width: line.width ?? 1.5, dash: line.dash ?? [], spanGaps: true,
      points: { show: Boolean(line.points), size: 7.5, fill: line.colour, stroke: css("--paper"), width: 1 }, paths: line.points === "only" ? () => null : undefined, alpha: line.alpha ?? 1,
    }))],
    hooks: {
      init: [(u) => u.over.append(overlay)],
      drawClear: bands ? [(u) => bands(u)] : [],
      setCursor: [(u) => hover(u)],
      setScale: [(u, key) => { if (key === "x") { drawFocus(); onzoom?.(u); } }],
      setSize: [() => drawFocus()],
    },
  }, [places, ...columns], holder);
  function nearest(u) {
    const index = u.cursor.idx;
    if (index === null || index === undefined) return null;
    let best = null, distance = Infinity;
    lines.forEach((line, series) => {
      if (!focusable(line)) return;
      // A line without a sample here is known between its samples.
      const value = columns[series][index];
      if (value === null) return;
      const far = pinnedIndex !== null ? (series === pinnedIndex ? 0 : Infinity) : Math.abs(u.valToPos(value, "y") - u.cursor.top);
      if (far < distance) { distance = far; best = series; }
    });
    return best;
  }
  function hover(u) {
    const { left, top, idx } = u.cursor;
    const own = u.over.matches(":hover") || holder === document.activeElement;
    const next = left < 0 || !own ? null : nearest(u);
    if (next !== focus) { focus = next; drawFocus(); }
    if (!own) return;
    if (focus === null) { hideTip(); return; }
    const box = u.over.getBoundingClientRect();
    showTip(box.left + left, box.top + (top < 0 ? 0 : top), ...describe(lines[focus], places[idx], columns[focus][idx]));
    drawFocus();
  }
  function drawFocus() {
    if (!chart) return;
    const ratio = devicePixelRatio, { width, height } = chart.bbox;
    overlay.width = width; overlay.height = height;
    overlay.style.width = `${width / ratio}px`; overlay.style.height = `${height / ratio}px`;
    if (focus === null) return;
    const context = overlay.getContext("2d"), line = lines[focus];
    context.scale(ratio, ratio);
    context.lineJoin = "round";
    for (const [colour, wide] of [[css("--paper"), 6], [line.colour, 2.6]]) {
      context.strokeStyle = colour; context.lineWidth = wide;
      context.setLineDash(wide > 4 ? [] : line.dash ?? []);
      context.beginPath();
      if (line.points !== "only") line.x.forEach((place, index) => { if (line.y[index] !== null) context.lineTo(chart.valToPos(place, "x"), chart.valToPos(line.y[index], "y")); });
      context.stroke();
    }
    const index = chart.cursor.idx, value = index === null || index === undefined ? null : columns[focus][index];
    if (value !== null) {
      context.setLineDash([]); context.fillStyle = line.colour; context.strokeStyle = css("--paper"); context.lineWidth = 2;
      context.beginPath(); context.arc(chart.valToPos(places[index], "x"), chart.valToPos(value, "y"), 4.5, 0, 7); context.fill(); context.stroke();
    }
  }
  const zoom = (low, high) => chart.setScale("x", { min: Math.max(full[0], low), max: Math.min(full[1], high) });
  const all = () => chart.setScale("x", { min: full[0], max: full[1] });
  all();
  // uPlot's own double-click leaves the range to the data; here it is the whole axis.
  chart.over.addEventListener("dblclick", all);
  chart.over.addEventListener("mouseleave", () => { focus = null; hideTip(); drawFocus(); });
  holder.tabIndex = 0;
  holder.setAttribute("role", "application");
  holder.setAttribute("aria-roledescription", "chart");
  holder.setAttribute("aria-label", label);
  holder.addEventListener("keydown", (event) => {
    const { min, max } = chart.scales.x, middle = chart.cursor.idx == null ? (min + max) / 2 : places[chart.cursor.idx], span = max - min;
    const point = (index) => {
      const inside = places.map((place, at) => at).filter((at) => places[at] >= min && places[at] <= max);
      const next = Math.min(inside.at(-1), Math.max(inside[0], index));
      const series = pinnedIndex ?? lines.findIndex(focusable);
      const value = columns[series]?.[next];
      chart.setCursor({ left: chart.valToPos(places[next], "x"), top: value === null || value === undefined ? 1 : chart.valToPos(value, "y") });
    };
    const along = (step) => {
      const able = lines.map((line, at) => at).filter((at) => focusable(lines[at]));
      pinnedIndex = able[(able.indexOf(pinnedIndex ?? able[0]) + step + able.length) % able.length];
      point(chart.cursor.idx ?? 0);
    };
    const keys = {
      ArrowRight: () => point((chart.cursor.idx ?? -1) + 1), ArrowLeft: () => point((chart.cursor.idx ?? 1) - 1),
      ArrowUp: () => along(1), ArrowDown: () => along(-1),
      "+": () => zoom(middle - span / 4, middle + span / 4), "=": () => zoom(middle - span / 4, middle + span / 4),
      "-": () => zoom(middle - span, middle + span), "0": all, Escape: () => { pinnedIndex = null; hideTip(); all(); },
    };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  holder.addEventListener("blur", () => { pinnedIndex = null; focus = null; hideTip(); drawFocus(); });
  const entry = { chart, holder, lines, places, columns };
  charts.push(entry);
  return entry;
}
function dispose(entry) {
  entry.chart.destroy();
  charts.splice(charts.indexOf(entry), 1);
}
const sizes = new ResizeObserver((changes) => {
  for (const { target } of changes) {
    const entry = charts.find(({ holder }) => holder === target);
    if (entry && Math.abs(entry.chart.width - target.clientWidth) > 1) entry.chart.setSize({ width: target.clientWidth, height: entry.chart.height });
  }
});
