// The page's data, decoded: columns by key, and the memory of each rank as lists over the phases.
const data = JSON.parse(document.getElementById("data").textContent);
const MIB = 1048576;

function decodeTable(columns, rows) {
  for (const column of columns) column.cells = column.values ?? new Array(rows).fill(column.all ?? null);
  const byKey = new Map(columns.map((column) => [column.key, column]));
  return { columns, rows, column: (key) => byKey.get(key) };
}
const results = decodeTable(data.results, data.runs);
const responses = data.responses && decodeTable(data.responses, data.response_rows);
const runs = Array.from({ length: results.rows }, (_, run) => run);
const cell = (key, run) => results.column(key)?.cells[run] ?? null;

// Phases before training come first, then four for each step: one place on the x axis for each, in every run the same.
const BEFORE = 3, PER_STEP = 4;
const placeOf = ([step, phase]) => (step < 0 ? phase : BEFORE + step * PER_STEP + (phase - BEFORE));
const PHASE_WORDS = ["model", "optimizer created", "input", "forward", "backward", "optimizer step", "gradients cleared"];
const SHORT_PHASES = ["model", "optim.", "input", "fwd", "bwd", "step", "clear"];
const phaseAt = (place) => (place < BEFORE ? place : BEFORE + ((place - BEFORE) % PER_STEP));
const stepAt = (place) => (place < BEFORE ? -1 : Math.floor((place - BEFORE) / PER_STEP));

const decoded = data.series.map((series) => {
  if (series.plain) return series.plain.map((bytes) => bytes / MIB);
  let sum = 0;
  return series.steps.map((step) => (sum += step) / MIB);
});
const layouts = data.places.map((places) => places.map(placeOf));
// What each rank measured: where on the x axis, and the four quantities in MiB.
const measured = data.samples.map((sample) => ({
  run: sample.run, rank: sample.rank, x: layouts[sample.places], places: data.places[sample.places],
  values: sample.series.map((at) => decoded[at]),
}));
const byRun = new Map();
for (const sample of measured) (byRun.get(sample.run) ?? byRun.set(sample.run, []).get(sample.run)).push(sample);

const QUANTITIES = ["allocated", "reserved", "peak", "device"];
const INDICATORS = data.indicators.map((key) => results.column(key));

// What tells runs apart: the label that the experiment gives, and the values in which they differ.
const AXIS_WORDS = { batch_size: "batch size", world_size: "ranks", rank_zero_extra_samples: "extra samples on rank 0", device_model: "device model", label: "run", capacity_bytes: "capacity" };
const axisWord = (key) => AXIS_WORDS[key] ?? key.replaceAll("_", " ");
function axisValue(key, value) {
  if (value === null) return key === "label" ? "the base" : "none";
  if (key === "capacity_bytes") return `${number(value / MIB, 0)} MiB`;
  return String(value);
}
const settingWords = (run, axes = data.axes) => axes.map((key) => `${axisWord(key)} ${axisValue(key, cell(key, run))}`).join(", ");
const runName = (run) => cell("label", run) ?? cell("run_id", run);
