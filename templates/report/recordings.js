// The allocator's histories: live bytes after every allocation and release, stacked by when or where they were asked for.
const STACKED = 10;
const recordings = { at: 0, by: "phase", canvas: null, view: [0, 1], cursor: null };
function startRecordings() {
  if (!data.recordings.length) return;
  section("recordings").hidden = false;
  const shown = data.recordings.map((recording, at) => [String(at), recording]).filter(([, recording]) => !recording.missing);
  for (const { file, missing } of data.recordings) if (missing) section("recordings").append(el("p", { class: "note" }, `${file}: ${missing}`));
  if (!shown.length) return;
  recordings.at = Number(shown[0][0]);
  const run = (recording) => runs.find((run) => cell("run_id", run) === recording.run);
  const name = (recording) => `${runName(run(recording) ?? 0)}, ${recording.file.split("/").at(-1)}`;
  const noted = data.recordings.some((recording) => recording.words.length > 1);
  if (!noted) recordings.by = "origin";
  const controls = part("recordings", "controls");
  controls.append(select("Recording", shown.map(([at, recording]) => [at, name(recording)]), String(recordings.at), (at) => { recordings.at = Number(at); prepareRecording(); }));
  controls.append(select("Stacked by", [...(noted ? [["phase", "the phase that asked"], ["step", "the step that asked"]] : []), ["origin", "the function that asked"]], recordings.by, (by) => { recordings.by = by; prepareRecording(false); }));
  controls.append(el("span", { class: "end", id: "recording-range" }));
  recordings.canvas = el("canvas", { class: "canvas", tabindex: 0, role: "application", "aria-roledescription": "chart", "aria-label": "Live memory after every allocation" });
  part("recordings", "body").append(recordings.canvas);
  listen(recordings.canvas);
  redraws.push(() => prepareRecording(false));
  new ResizeObserver(() => drawRecording()).observe(recordings.canvas);
  whenNear(section("recordings"), () => prepareRecording());
}
const STEP_WORD = /^step (\d+) (.*)$/;
function groupWord(recording, change) {
  const word = recording.words[recording.note[change]];
  if (recording.by === "origin") return recording.origins[recording.origin[change]];
  const step = STEP_WORD.exec(word);
  if (recordings.by === "phase") return step ? step[2].replaceAll("_", " ") : word || "before the recording";
  return step ? `step ${step[1]}` : "before training";
}
// Groups by size: the largest have a place and a colour of their own, the others share one.
function prepareRecording(fresh = true) {
  const recording = data.recordings[recordings.at], count = recording.bytes.length;
  recording.by = recordings.by;
  const keys = recordings.by === "origin" ? recording.origin : recording.note, words = new Map(), most = new Map(), now = new Map();
  const wordOf = (at) => { const key = keys[at]; if (!words.has(key)) words.set(key, groupWord(recording, at)); return words.get(key); };
  const order = [];
  for (let at = 0; at < count; at += 1) {
    const word = wordOf(at), size = (now.get(word) ?? 0) + recording.bytes[at];
    if (!now.has(word)) order.push(word);
    now.set(word, size);
    if (size > (most.get(word) ?? 0)) most.set(word, size);
  }
  const kept = new Set([...most].sort((left, right) => right[1] - left[1]).slice(0, STACKED).map(([word]) => word));
  const names = order.filter((word) => kept.has(word));
  if (order.length > names.length) names.push("everything else");
  if (recording.before) names.unshift("before the recording");
  const place = new Map(names.map((word, at) => [word, at]));
  const other = names.length - 1;
  recording.group = Uint8Array.from({ length: count }, (_, at) => place.get(wordOf(at)) ?? other);
  recording.names = names;
  const steps = recordings.by === "step" && names.length > 3;
  recording.colours = names.map((_, at) => steps ? ramp(at / (names.length - 1)) : NAMED[mode()][at % NAMED.light.length]);
  let total = recording.before, top = total;
  for (const bytes of recording.bytes) { total += bytes; if (total > top) top = total; }
  recording.top = Math.max(top, ...recording.reserved.map(([, bytes]) => bytes));
  if (fresh) recordings.view = [0, count];
  part("recordings", "legend").replaceChildren(...names.map((word, at) => el("span", { class: "chip", "--chip": recording.colours[at] }, el("i"), word)), el("span", { class: "chip", "--chip": css("--soft") }, el("i"), "reserved (line)"));
  drawRecording();
}
const PLOT = { left: 62, right: 10, top: 8, bottom: 40 };
function drawRecording() {
  const { canvas } = recordings, recording = data.recordings[recordings.at];
  if (!recording.group || !canvas.clientWidth) return;
  const ratio = devicePixelRatio, width = canvas.clientWidth, height = canvas.clientHeight, plot = { width: width - PLOT.left - PLOT.right, height: height - PLOT.top - PLOT.bottom };
  canvas.width = width * ratio; canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.font = FONT;
  const [from, to] = recordings.view, count = recording.bytes.length, columns = Math.max(1, Math.floor(plot.width)), groups = recording.names.length;
  // In each column of pixels the moment at which most was alive, so that no peak is lost however far out one is.
  const stacks = new Float64Array(columns * groups), totals = new Float64Array(columns).fill(-1), live = new Float64Array(groups);
  live[0] = recording.before;
  let total = recording.before;
  const keep = (column) => { if (total > totals[column]) { totals[column] = total; stacks.set(live, column * groups); } };
  const columnOf = (at) => Math.floor(((at - from) / (to - from)) * columns);
  let filled = -1;
  for (let at = 0; at < count && at < to; at += 1) {
    total += recording.bytes[at];
    live[recording.group[at]] += recording.bytes[at];
    if (at + 1 < from) continue;
    const column = Math.min(columns - 1, Math.max(0, columnOf(at)));
    // Zoomed in, a change fills all columns up to the next one.
    while (filled < column - 1) { filled += 1; if (totals[filled] < 0 && filled > 0) { totals[filled] = totals[filled - 1]; stacks.copyWithin(filled * groups, (filled - 1) * groups, filled * groups); } }
    keep(column);
    filled = Math.max(filled, column);
  }
  for (let column = 1; column < columns; column += 1) if (totals[column] < 0) { totals[column] = totals[column - 1]; stacks.copyWithin(column * groups, (column - 1) * groups, column * groups); }
  let highest = 0;
  for (let column = 0; column < columns; column += 1) highest = Math.max(highest, totals[column]);
  const reservedAt = (at) => { let value = 0; for (const [place, bytes] of recording.reserved) { if (place > at) break; value = bytes; } return value; };
  const top = Math.max(highest, reservedAt(from), reservedAt(to), ...recording.reserved.filter(([at]) => at >= from && at <= to).map(([, bytes]) => bytes)) * 1.04 || 1;
  recordings.scale = { top, columns, groups, stacks, totals, plot };
  const y = (bytes) => PLOT.top + plot.height * (1 - bytes / top);
  context.strokeStyle = css("--faint"); context.fillStyle = css("--soft"); context.textAlign = "right"; context.textBaseline = "middle";
  for (const value of niceTicks(top / MIB, 6)) {
    context.beginPath(); context.moveTo(PLOT.left, y(value * MIB)); context.lineTo(PLOT.left + plot.width, y(value * MIB)); context.stroke();
    context.fillText(`${number(value, value % 1 ? 1 : 0)} MiB`, PLOT.left - 6, y(value * MIB));
  }
  const base = new Float64Array(columns);
  for (let group = 0; group < groups; group += 1) {
    context.fillStyle = recording.colours[group];
    context.beginPath();
    context.moveTo(PLOT.left, y(base[0]));
    for (let column = 0; column < columns; column += 1) { const at = y(base[column] + stacks[column * groups + group]); context.lineTo(PLOT.left + column, at); context.lineTo(PLOT.left + column + 1, at); }
    for (let column = columns - 1; column >= 0; column -= 1) { context.lineTo(PLOT.left + column + 1, y(base[column])); context.lineTo(PLOT.left + column, y(base[column])); base[column] += stacks[column * groups + group]; }
    context.fill();
  }
  context.strokeStyle = css("--soft"); context.lineWidth = 1.5;
  context.beginPath();
  const x = (at) => PLOT.left + ((at - from) / (to - from)) * plot.width;
  context.moveTo(PLOT.left, y(reservedAt(from)));
  for (const [at, bytes] of recording.reserved) { if (at < from || at > to) continue; context.lineTo(x(at), y(reservedAt(at - 1))); context.lineTo(x(at), y(bytes)); }
  context.lineTo(PLOT.left + plot.width, y(reservedAt(to)));
  context.stroke();
  // What was going on: the steps, or where there is room the phases.
  context.fillStyle = css("--soft"); context.strokeStyle = css("--line"); context.lineWidth = 1; context.textAlign = "center"; context.textBaseline = "top";
  let last = -Infinity;
  recording.notes.forEach(([start, note], index) => {
    const end = recording.notes[index + 1]?.[0] ?? count, word = recording.words[note];
    if (end < from || start > to || !word) return;
    const left = Math.max(PLOT.left, x(start)), right = Math.min(PLOT.left + plot.width, x(end));
    context.beginPath(); context.moveTo(left, PLOT.top + plot.height); context.lineTo(left, PLOT.top + plot.height + (right - left > 30 ? 7 : 4)); context.stroke();
    const step = STEP_WORD.exec(word), lines = step ? [step[2].replaceAll("_", " "), `step ${step[1]}`] : [word.replaceAll("_", " ")];
    const wide = Math.max(...lines.map((line) => context.measureText(line).width)), middle = (left + right) / 2;
    if (wide + 4 < right - left && middle - wide / 2 > last) { lines.forEach((line, row) => context.fillText(line, middle, PLOT.top + plot.height + 9 + row * 14)); last = middle + wide / 2; }
  });
  document.getElementById("recording-range").textContent = `${number(Math.round(from), 0)} to ${number(Math.round(to), 0)} of ${number(count, 0)} changes`;
  if (recordings.drag) { context.fillStyle = css("--accent"); context.globalAlpha = 0.16; context.fillRect(Math.min(...recordings.drag), PLOT.top, Math.abs(recordings.drag[1] - recordings.drag[0]), plot.height); context.globalAlpha = 1; }
  if (recordings.cursor !== null) { context.strokeStyle = css("--text"); context.beginPath(); context.moveTo(recordings.cursor, PLOT.top); context.lineTo(recordings.cursor, PLOT.top + plot.height); context.stroke(); }
}
function niceTicks(top, count) {
  const rough = top / count, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map((part) => part * power).find((step) => step >= rough);
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, at) => at * step);
}
function viewRecording(from, to) {
  const count = data.recordings[recordings.at].bytes.length;
  const span = Math.min(count, Math.max(4, to - from)), start = Math.max(0, Math.min(count - span, from));
  recordings.view = [start, start + span];
  drawRecording();
}
function pointRecording(place, x, y) {
  const { scale } = recordings, recording = data.recordings[recordings.at], column = Math.round(place - PLOT.left);
  if (!scale || column < 0 || column >= scale.columns) { recordings.cursor = null; hideTip(); drawRecording(); return; }
  recordings.cursor = place;
  const [from, to] = recordings.view, at = Math.min(recording.bytes.length - 1, Math.floor(from + (column / scale.columns) * (to - from)));
  const note = recording.notes.findLast(([start]) => start <= at), parts = recording.names.map((word, group) => [word, scale.stacks[column * scale.groups + group]]).filter(([, bytes]) => bytes > 0).reverse();
  const exactly = to - from <= scale.columns ? `${recording.bytes[at] < 0 ? "released" : "allocated"} ${number(Math.abs(recording.bytes[at]), 0)} B by ${recording.origins[recording.origin[at]]}` : null;
  showTip(x, y, ...[el("strong", {}, note && recording.words[note[1]] ? recording.words[note[1]].replaceAll("_", " ") : `change ${at}`), el("span", { class: "soft" }, `change ${number(at, 0)}`), exactly ? el("span", { class: "soft" }, exactly) : null,
    el("table", {}, ...[["alive", scale.totals[column]], ...parts].map(([word, bytes], row) => el("tr", { class: row ? null : "on" }, el("td", {}, word), el("td", {}, `${number(bytes / MIB)} MiB`))))].filter(Boolean));
  drawRecording();
}
function listen(canvas) {
  const place = (event) => event.clientX - canvas.getBoundingClientRect().left;
  canvas.addEventListener("pointermove", (event) => {
    if (recordings.drag) recordings.drag[1] = Math.max(PLOT.left, Math.min(canvas.clientWidth - PLOT.right, place(event)));
    pointRecording(place(event), event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerdown", (event) => { if (event.button === 0) { recordings.drag = [place(event), place(event)]; canvas.setPointerCapture(event.pointerId); } });
  canvas.addEventListener("pointerup", () => {
    const drag = recordings.drag;
    recordings.drag = null;
    if (!drag || Math.abs(drag[1] - drag[0]) < 4) { drawRecording(); return; }
    const [from, to] = recordings.view, at = (x) => from + ((x - PLOT.left) / recordings.scale.plot.width) * (to - from);
    viewRecording(at(Math.min(...drag)), at(Math.max(...drag)));
  });
  canvas.addEventListener("pointerleave", () => { recordings.cursor = null; hideTip(); drawRecording(); });
  canvas.addEventListener("dblclick", () => viewRecording(0, Infinity));
  canvas.addEventListener("blur", () => { recordings.cursor = null; hideTip(); drawRecording(); });
  canvas.addEventListener("keydown", (event) => {
    const [from, to] = recordings.view, span = to - from, middle = recordings.cursor === null || !recordings.scale ? (from + to) / 2 : from + ((recordings.cursor - PLOT.left) / recordings.scale.plot.width) * span;
    const move = (by) => {
      const next = (recordings.cursor ?? PLOT.left + recordings.scale.plot.width / 2) + by, box = canvas.getBoundingClientRect();
      if (next < PLOT.left) viewRecording(from - span / 4, to - span / 4);
      else if (next > PLOT.left + recordings.scale.plot.width) viewRecording(from + span / 4, to + span / 4);
      else pointRecording(next, box.left + next, box.top + PLOT.top);
    };
    const keys = { ArrowRight: () => move(8), ArrowLeft: () => move(-8), "+": () => viewRecording(middle - span / 4, middle + span / 4), "=": () => viewRecording(middle - span / 4, middle + span / 4),
      "-": () => viewRecording(middle - span, middle + span), "0": () => viewRecording(0, Infinity), Escape: () => viewRecording(0, Infinity) };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
}
