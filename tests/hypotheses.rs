//! Hypotheses as their author meets them: below the table of a sweep, in `verdicts.json`, and in the exit code.
//!
//! The stand-in for the worker measures a peak of 100 MiB and 10 more per sample, whatever else is set.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod support;

use serde_json::Value;
use support::{Done, Folder, snapshot};

const HEAD: &str = "name = \"demo\"\n[base]\ncase = \"alpha\"\nsteps = 2\ncompute = false\ndevice = \"cpu\"\n";

/// An experiment with this grid, or these perturbations, and hypotheses.
fn folder(rest: &str) -> Folder {
    let folder = Folder::new();
    folder.write("demo.toml", &format!("{HEAD}{rest}"));
    folder
}

fn verdicts(folder: &Folder) -> Value {
    serde_json::from_str(&folder.read("runs/demo/verdicts.json")).unwrap()
}

/// The verdict on the only hypothesis, and what was found.
fn only(folder: &Folder) -> (String, String) {
    let document = verdicts(folder);
    let all = document["experiments"][0]["hypotheses"].as_array().unwrap();
    assert_eq!(all.len(), 1);
    (all[0]["judgement"].as_str().unwrap().to_owned(), all[0]["found"].as_str().unwrap().to_owned())
}

fn hypothesis(rest: &str) -> String {
    format!("[[hypothesis]]\nclaim = \"the claim\"\n{rest}\n")
}

/// Sweeps an experiment with one hypothesis: the exit code, the verdict, what was found.
fn judge(grid: &str, rest: &str) -> (i32, String, String) {
    let folder = folder(&format!("{grid}\n{}", hypothesis(rest)));
    let done = folder.with_worker(&["sweep", "demo.toml"]);
    let (judgement, found) = only(&folder);
    (done.code, judgement, found)
}

#[track_caller]
fn expect(grid: &str, rest: &str, code: i32, judgement: &str, found: &str) {
    assert_eq!(judge(grid, rest), (code, judgement.to_owned(), found.to_owned()), "{rest}");
}

const BATCHES: &str = "[sweep]\nbatch_size = [1, 2, 4]";
const PEAK: &str = "indicator = \"maximum_peak_allocated_mib\"";

#[test]
fn trends() {
    let along = |trend: &str| format!("{PEAK}\nalong = \"batch_size\"\ntrend = {trend}");
    let values = "increasing: 110.00, 120.00, 140.00 MiB";
    expect(BATCHES, &along("\"increasing\""), 0, "supported", values);
    expect(BATCHES, &along("\"decreasing\""), 1, "refuted", values);
    expect(BATCHES, &along("\"flat\""), 1, "refuted", values);
    expect(BATCHES, &along("\"flat\"\ntolerance = 30"), 0, "supported", values);
    // Numbers are in their own order, however they are listed.
    expect("[sweep]\nbatch_size = [4, 1, 2]", &along("\"increasing\""), 0, "supported", values);
    let line = "slope 10.00 MiB per batch_size, intercept 100.00 MiB, residual 0.00, at most 0.00 off the line";
    expect(BATCHES, &along("\"linear\""), 0, "supported", line);
    expect(BATCHES, &along("\"linear\"\nslope = { min = 9.9, max = 10.1 }"), 0, "supported", line);
    expect(BATCHES, &along("\"linear\"\nslope = { equals = 10.3, tolerance = \"1%\" }"), 1, "refuted", line);
    expect(BATCHES, &along("\"linear\"\nintercept = { max = 99 }"), 1, "refuted", line);
    let seeds = "[sweep]\nseed = [3, 1, 2]";
    expect(seeds, &along("\"flat\"").replace("batch_size", "seed"), 0, "supported", "flat: 120.00 MiB");
    expect(
        seeds,
        "quantity = \"allocated_mib\"\nphase = \"after_clear_gradients\"\nalong = \"seed\"\ntrend = \"flat\"",
        0,
        "supported",
        "flat: 110.50 MiB",
    );
}

#[test]
fn a_trend_holds_in_every_series() {
    let grid = "[sweep]\nprecision = [\"fp32\", \"bf16\"]\nbatch_size = [1, 2, 4]";
    let trend = |trend: &str| format!("{PEAK}\nalong = \"batch_size\"\ntrend = \"{trend}\"");
    let found = "precision = fp32: increasing: 110.00, 120.00, 140.00 MiB; and 1 more like it";
    expect(grid, &trend("increasing"), 0, "supported", found);
    expect(grid, &trend("flat"), 1, "refuted", found);
    let one = format!("{}\nwhere = {{ precision = \"bf16\" }}", trend("increasing"));
    expect(grid, &one, 0, "supported", "increasing: 110.00, 120.00, 140.00 MiB");
}

#[test]
fn too_few_points_decide_nothing() {
    let two = "[sweep]\nbatch_size = [1, 2]";
    let linear = format!("{PEAK}\nalong = \"batch_size\"\ntrend = \"linear\"");
    expect(two, &linear, 5, "undecided", "2 runs differ in batch_size alone, and 3 are needed");
    let zipped = "zip = [[\"batch_size\", \"seed\"]]\n".to_owned() + HEAD;
    let folder = Folder::new();
    let flat = hypothesis(&format!("{PEAK}\nalong = \"batch_size\"\ntrend = \"flat\""));
    folder.write("demo.toml", &format!("{zipped}[sweep]\nbatch_size = [1, 2]\nseed = [1, 2]\n{flat}"));
    folder.with_worker(&["sweep", "demo.toml"]).expect(5);
    assert_eq!(only(&folder).1, "no two runs differ in batch_size alone");
}

#[test]
fn bounds_comparisons_and_ratios() {
    let value = |bounds: &str| format!("{PEAK}\nvalue = {{ {bounds} }}");
    expect(BATCHES, &value("min = 110, max = 140"), 0, "supported", "110.00 to 140.00 MiB in 3 runs");
    let (code, judgement, found) = judge(BATCHES, &value("max = 139.5"));
    assert_eq!((code, judgement.as_str()), (1, "refuted"));
    assert!(found.starts_with("140.00 MiB in alpha-small-b4-"), "{found}");
    let one = format!("{}\nwhere = {{ batch_size = 2 }}", value("equals = 120.4, tolerance = 0.5"));
    expect(BATCHES, &one, 0, "supported", "120.00 MiB");
    let greater = |own: u64, other: u64| {
        format!("{PEAK}\nwhere = {{ batch_size = {own} }}\ngreater_than = {{ batch_size = {other} }}")
    };
    expect(BATCHES, &greater(2, 1), 0, "supported", "120.00 MiB against 110.00 MiB");
    expect(BATCHES, &greater(1, 4), 1, "refuted", "110.00 MiB against 140.00 MiB");
    // All runs but those compared with.
    let rest = format!("{PEAK}\ngreater_than = {{ batch_size = 1 }}");
    expect(BATCHES, &rest, 0, "supported", "120.00 to 140.00 MiB in 2 runs against 110.00 MiB");
    let ratio = |bounds: &str| {
        format!("{PEAK}\nwhere = {{ batch_size = 4 }}\nratio = {{ to = {{ batch_size = 2 }}, {bounds} }}")
    };
    let found = "1.166667 = 140.00 / 120.00 MiB";
    expect(BATCHES, &ratio("min = 1.1, max = 1.2"), 0, "supported", found);
    expect(BATCHES, &ratio("equals = 2, tolerance = \"10%\""), 1, "refuted", found);
    let zero = ratio("min = 1").replace("maximum_peak_allocated_mib", "between_step_growth_mib");
    let (code, judgement, found) = judge(BATCHES, &zero);
    assert_eq!((code, judgement.as_str()), (5, "undecided"));
    assert!(found.contains("divided by the zero of alpha-small-b2-"), "{found}");
    // With another axis in the grid, each run has its own partner.
    let grid = "[sweep]\nseed = [1, 2]\nbatch_size = [2, 4]";
    expect(grid, &ratio("min = 1.1, max = 1.2"), 0, "supported", "1.166667 = 140.00 / 120.00 MiB; and 1 more like it");
}

#[test]
fn the_strongest_response() {
    let change = "[[perturbation]]\nlabel = \"more\"\nbatch_size = 4";
    let responds =
        |indicator: &str| format!("indicator = \"{indicator}\"\nresponds_most = {{ perturbation = \"more\" }}");
    // Two answer with 20 MiB each: neither is the one that changes most.
    let found = "largest_forward_increase +20.00 MiB, then maximum_peak_allocated +20.00 MiB";
    expect(change, &responds("maximum_peak_allocated_mib"), 1, "refuted", found);
    expect(change, &responds("between_step_growth_mib"), 1, "refuted", found);
}

#[test]
fn what_is_not_measured_decides_nothing() {
    let seeds = |seeds: &str| format!("[sweep]\nseed = {seeds}");
    let flat = format!("{PEAK}\nalong = \"seed\"\ntrend = \"flat\"");
    for (seed, code, why) in [
        (101, 4, "error: the worker ended with exit code 1: cannot do this"),
        (104, 4, "killed: "),
        (105, 5, "damaged report: the file ends too early"),
        (107, 5, "out of memory"),
        (114, 5, "damaged report: not a finite number"),
    ] {
        let (found_code, judgement, found) = judge(&seeds(&format!("[1, 2, {seed}]")), &flat);
        assert_eq!((found_code, judgement.as_str()), (code, "undecided"), "{seed}: {found}");
        assert!(found.contains("not measured: ") && found.contains(why), "{seed}: {found}");
    }
    // What it does not speak of is not in its way.
    let one = format!("{PEAK}\nvalue = {{ equals = 120 }}\nwhere = {{ seed = 1 }}");
    expect(&seeds("[1, 107]"), &one, 0, "supported", "120.00 MiB");
}

#[test]
fn out_of_memory_can_be_what_is_expected() {
    let grid = "[sweep]\nseed = [1, 2, 107]";
    let oom = "outcome = \"oom\"\nwhere = { seed = 107 }";
    expect(grid, oom, 0, "supported", "oom in 1 run");
    let (code, judgement, found) = judge(grid, &oom.replace("107", "1"));
    assert_eq!((code, judgement.as_str()), (1, "refuted"));
    assert!(found.starts_with("ok in alpha-small-b2-s2-"), "{found}");
    // The others then speak of the runs that fit.
    let folder = folder(&format!(
        "{grid}\n{}{}",
        hypothesis(oom),
        hypothesis(&format!("{PEAK}\nalong = \"seed\"\ntrend = \"flat\""))
    ));
    let done = folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    assert!(done.stderr.contains("hypotheses: 2 supported"), "{}", done.stderr);
}

#[test]
fn a_known_failure_does_not_count_until_its_day() {
    let wrong = |until: &str| {
        format!("{PEAK}\nvalue = {{ max = 1 }}\nknown_failure = {{ reason = \"to be found out\"{until} }}")
    };
    for (until, code, said) in [
        ("", 0, "known failure: to be found out"),
        (", until = \"9999-12-31\"", 0, "known failure: to be found out, until 9999-12-31"),
        (", until = \"2020-02-29\"", 1, "no longer accepted as a known failure: to be found out, until 2020-02-29"),
    ] {
        let folder = folder(&hypothesis(&wrong(until)));
        let done = folder.with_worker(&["sweep", "demo.toml"]).expect(code);
        assert!(done.stdout.contains(said), "{}", done.stdout);
        assert_eq!(only(&folder).0, "refuted");
    }
    let folder = folder(&hypothesis(&wrong("").replace("max = 1", "max = 1000")));
    let done = folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    assert!(done.stdout.contains("no failure any more"), "{}", done.stdout);
}

#[test]
fn verdicts_stand_below_the_table_and_in_the_results() {
    let rest = [
        BATCHES.to_owned(),
        hypothesis(&format!("{PEAK}\nalong = \"batch_size\"\ntrend = \"linear\"")),
        hypothesis(&format!("{PEAK}\nvalue = {{ max = 1 }}")),
        hypothesis(&format!("{PEAK}\nvalue = {{ max = 1 }}\nknown_failure = {{ reason = \"why | not\" }}")),
        hypothesis(&format!("{PEAK}\nalong = \"batch_size\"\ntrend = \"flat\"\nwhere = {{ steps = 2 }}")),
    ];
    let folder = folder(&rest.join("\n"));
    let done = folder.with_worker(&["sweep", "demo.toml"]).expect(1);
    snapshot!(done.stdout);
    assert!(done.stderr.contains("hypotheses: 1 supported, 2 refuted, 1 known failure"), "{}", done.stderr);
    let page = folder.read("runs/demo/comparison.md");
    snapshot!(&page[page.find("## Hypotheses").unwrap()..]);
    // The results on stdout stay what a program reads.
    let csv = folder.with_worker(&["sweep", "demo.toml", "--format", "csv"]).expect(1);
    assert_eq!(csv.stdout, folder.read("runs/demo/results.csv"));
    // Collating judges too; and verdicts on hypotheses that are gone are no verdicts.
    folder.with_worker(&["collate", "runs/demo"]).expect(1);
    folder.write("demo.toml", &format!("{HEAD}{BATCHES}"));
    folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    assert!(!folder.path().join("runs/demo/verdicts.json").exists());
}

#[test]
fn a_prediction_is_told_from_what_was_written_afterwards() {
    let folder = folder(&format!("{BATCHES}\n{}", hypothesis(&format!("{PEAK}\nvalue = {{ min = 1 }}"))));
    let done = folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    assert!(done.stdout.contains("written before the first result"), "{}", done.stdout);
    // Results of another day.
    let runs = std::fs::read_dir(folder.path().join("runs/demo")).unwrap().map(|entry| entry.unwrap().path());
    for run in runs.filter(|path| path.join("status.json").exists()) {
        let path = run.join("status.json");
        let mut status: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        status["ended_at"] = "2020-01-01T00:00:00Z".into();
        std::fs::write(&path, status.to_string()).unwrap();
    }
    let after = |done: Done| assert!(done.stdout.contains("written after the first result"), "{}", done.stdout);
    after(folder.with_worker(&["sweep", "demo.toml"]).expect(0));
    // Measuring again does not make it a prediction, and neither does another word in it.
    after(folder.with_worker(&["sweep", "--fresh", "demo.toml"]).expect(0));
    folder.write("demo.toml", &folder.read("demo.toml").replace("min = 1", "min = 2"));
    after(folder.with_worker(&["sweep", "demo.toml"]).expect(0));
    let first = &verdicts(&folder)["experiments"][0]["hypotheses"][0];
    assert_eq!(first["first_result_at"], "2020-01-01T00:00:00Z");
    assert!(first["text"].as_str().unwrap().contains("min = 2"));
}
