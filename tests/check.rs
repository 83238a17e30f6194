//! `memlab check` as a CI job meets it: baselines, exit codes, and what every format says.
//!
//! The stand-in for the worker measures a peak of 100 MiB and 10 more per sample. A regression is put into the reports it left.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod support;

use std::path::PathBuf;

use serde_json::Value;
use support::{Done, Folder, snapshot};

const HEAD: &str = "name = \"demo\"\n[base]\ncase = \"alpha\"\nsteps = 2\ndevice = \"cpu\"\ncompute = false\n";
const BATCHES: &str = "[sweep]\nbatch_size = [1, 2, 4]\n";
const FILE: &str = "baselines/demo-cpu-h200.json";

/// An experiment whose baseline is saved.
fn saved(rest: &str) -> Folder {
    let folder = Folder::new();
    folder.write("demo.toml", &format!("{HEAD}{rest}"));
    folder.with_worker(&["check", "--save-baseline", "demo.toml"]).expect(0);
    folder
}

fn check(folder: &Folder, args: &[&str]) -> Done {
    folder.with_worker(&[&["check", "--reuse"], args, &["demo.toml"]].concat())
}

/// The folder of the run with so many samples.
fn run(folder: &Folder, batch: u64) -> PathBuf {
    let start = format!("alpha-small-b{batch}-");
    let mut runs = std::fs::read_dir(folder.path().join("runs/demo")).unwrap().map(|entry| entry.unwrap().path());
    runs.find(|path| path.file_name().unwrap().to_string_lossy().starts_with(&start)).unwrap()
}

/// Changes an indicator in the report of a run.
fn change(folder: &Folder, batch: u64, indicator: &str, by: f64) {
    let path = run(folder, batch).join("report.json");
    let mut report: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let value = &mut report["rank_reports"][0]["indicators"][indicator];
    *value = (value.as_f64().unwrap() + by).into();
    std::fs::write(&path, report.to_string()).unwrap();
}

#[test]
fn a_baseline_is_saved_in_a_form_that_can_be_reviewed_and_met_again() {
    let folder = saved(&format!("{BATCHES}[baseline]\ntolerance = 0\n"));
    snapshot!(folder.read(FILE));
    let done = folder.with_worker(&["check", "demo.toml"]).expect(0);
    assert!(done.stdout.starts_with("demo: supported\n"), "{}", done.stdout);
    assert!(done.stdout.contains("baseline: supported, 16 numbers compared, none changed"), "{}", done.stdout);
    let again = folder.with_worker(&["check", "--save-baseline", "demo.toml"]).expect(0);
    assert!(again.stderr.contains("demo: baseline unchanged: baselines/demo-cpu-h200.json"), "{}", again.stderr);
}

#[test]
fn everything_is_run_again_unless_told_otherwise() {
    let folder = saved(BATCHES);
    let done = folder.with_worker(&["check", "demo.toml"]).expect(0);
    assert!(done.stderr.contains("demo: 3 runs, 0 of them finished before"), "{}", done.stderr);
    let done = check(&folder, &[]).expect(0);
    assert!(done.stderr.contains("demo: 3 runs, 3 of them finished before"), "{}", done.stderr);
}

#[test]
fn a_mebibyte_more_is_caught_and_named() {
    let folder = saved(&format!("{BATCHES}[baseline]\ntolerance = 0\n"));
    let one = 1.0 / f64::from(1 << 20);
    change(&folder, 2, "first_step_persistent_change_mib", 1.0);
    change(&folder, 4, "maximum_peak_allocated_mib", -one);
    let done = check(&folder, &[]).expect(1);
    snapshot!(done.stdout);
    // Beyond the tolerance, and within it.
    folder.write("demo.toml", &folder.read("demo.toml").replace("tolerance = 0", "tolerance = 0.5\nslope = 1"));
    let done = check(&folder, &[]).expect(1);
    assert!(done.stdout.contains("16 numbers compared, 1 changed"), "{}", done.stdout);
    folder.write("demo.toml", &folder.read("demo.toml").replace("tolerance = 0.5", "tolerance = \"10%\""));
    check(&folder, &[]).expect(0);
}

#[test]
fn less_is_a_change_too_and_called_better() {
    let folder = saved("");
    change(&folder, 2, "maximum_peak_allocated_mib", -5.0);
    let done = check(&folder, &[]).expect(1);
    assert!(done.stdout.contains("  better "), "{}", done.stdout);
    assert!(done.stdout.contains("120 -> 115 MiB (-5, -4.17 %; allowed 0.6)"), "{}", done.stdout);
}

#[test]
fn a_slope_that_changes_by_three_percent_is_caught() {
    // The numbers themselves are allowed to change by much more.
    let folder = saved(&format!("{BATCHES}[baseline]\ntolerance = 10\n"));
    for batch in [1, 2, 4] {
        change(&folder, batch, "maximum_peak_allocated_mib", 0.3 * f64::from(u32::try_from(batch).unwrap()));
    }
    let done = check(&folder, &[]).expect(1);
    assert!(done.stdout.contains("1 changed"), "{}", done.stdout);
    assert!(done.stdout.contains("slope of maximum_peak_allocated_mib along batch_size: 10"), "{}", done.stdout);
    assert!(done.stdout.contains("+3.00 %"), "{}", done.stdout);
    folder.write("demo.toml", &folder.read("demo.toml").replace("= 10\n", "= 10\nslope = \"5%\"\n"));
    check(&folder, &[]).expect(0);
}

#[test]
fn what_cannot_be_compared_is_undecided() {
    let folder = saved(BATCHES);
    let undecided = |folder: &Folder, said: &str| {
        let done = check(folder, &[]).expect(5);
        assert!(done.stdout.contains(said), "{}", done.stdout);
    };
    let baseline = folder.read(FILE);
    folder.write(FILE, &baseline.replace("2.11.0", "2.10.0"));
    undecided(&folder, "it was made with libtorch 2.10.0, and this is 2.11.0: not compared");
    folder.write(FILE, &baseline.replace("cpu-h200", "cpu-l40s"));
    undecided(&folder, "it is of cpu-l40s, and this is cpu-h200: not compared");
    folder.write(FILE, &baseline[..200]);
    undecided(&folder, "baselines/demo-cpu-h200.json is no readable baseline: EOF");
    folder.write("baselines/demo-cpu-l40s.json", &baseline);
    std::fs::remove_file(folder.path().join(FILE)).unwrap();
    undecided(&folder, "there is none of this device, only of cpu-l40s; save one with --save-baseline");
    // A run more, and a run less.
    folder.write(FILE, &baseline);
    folder.write("demo.toml", &format!("{HEAD}{}", BATCHES.replace('1', "8")));
    let done = check(&folder, &[]).expect(5);
    for said in
        ["new         alpha-small-b8-", "gone        alpha-small-b1-", "once the results are right, --save-baseline"]
    {
        assert!(done.stdout.contains(said), "{said}: {}", done.stdout);
    }
}

#[test]
fn a_run_that_says_nothing_is_neither_a_pass_nor_a_regression() {
    let folder = saved(BATCHES);
    let report = |edit: fn(&mut Value)| {
        let path = run(&folder, 2).join("report.json");
        let text = std::fs::read_to_string(&path).unwrap();
        let mut report: Value = serde_json::from_str(&text).unwrap();
        edit(&mut report);
        std::fs::write(&path, report.to_string()).unwrap();
        let done = check(&folder, &[]).expect(5);
        assert!(!done.stdout.contains("worse") && !done.stdout.contains("better"), "{}", done.stdout);
        std::fs::write(&path, text).unwrap();
        done.stdout
    };
    let said = report(|report| report["rank_reports"][0]["samples"] = Value::Array(Vec::new()));
    assert!(said.contains("0 of 2 steps measured on rank 0"), "{said}");
    let said = report(|report| report["rank_reports"] = Value::Array(Vec::new()));
    assert!(said.contains("0 of 1 ranks in its report"), "{said}");
    let said = report(|report| report["rank_reports"][0]["indicators"]["maximum_peak_allocated_mib"] = Value::Null);
    assert!(said.contains("no maximum_peak_allocated_mib in its report"), "{said}");
    check(&folder, &[]).expect(0);
}

#[test]
fn a_report_that_cannot_be_read_is_undecided() {
    // Half a report, and one with a NaN.
    for (seed, why) in [(105, "the file ends too early"), (114, "not a finite number")] {
        let folder = Folder::new();
        folder.write("demo.toml", &format!("{HEAD}[sweep]\nseed = [1, {seed}]\n"));
        let done = folder.with_worker(&["check", "demo.toml"]).expect(5);
        assert!(done.stdout.contains(&format!("error: damaged report: {why}")), "{}", done.stdout);
        let done = folder.with_worker(&["check", "--save-baseline", "demo.toml"]).expect(5);
        assert!(done.stderr.contains("demo: no baseline is saved"), "{}", done.stderr);
        // A run that failed comes first.
        folder.write("demo.toml", &format!("{HEAD}[sweep]\nseed = [1, 101, {seed}]\n"));
        folder.with_worker(&["check", "demo.toml"]).expect(4);
    }
}

#[test]
fn out_of_memory_is_undecided_unless_it_is_expected() {
    let folder = Folder::new();
    folder.write("demo.toml", &format!("{HEAD}[sweep]\nseed = [1, 107]\n"));
    let done = folder.with_worker(&["check", "demo.toml"]).expect(5);
    assert!(done.stdout.contains("out of memory"), "{}", done.stdout);
    // Expected by a hypothesis.
    let expected = "[[hypothesis]]\nclaim = \"it does not fit\"\noutcome = \"oom\"\nwhere = { seed = 107 }\n";
    folder.write("demo.toml", &format!("{HEAD}[sweep]\nseed = [1, 107]\n{expected}"));
    folder.with_worker(&["check", "demo.toml"]).expect(0);
    // Or by the baseline.
    folder.write("demo.toml", &format!("{HEAD}[sweep]\nseed = [1, 107]\n"));
    folder.with_worker(&["check", "--save-baseline", "demo.toml"]).expect(0);
    folder.with_worker(&["check", "demo.toml"]).expect(0);
    // A run that fitted before and does not now is no regression, and no pass.
    let baseline = folder.read(FILE).replace("\"outcome\": \"oom\"", "\"outcome\": \"ok\"");
    folder.write(FILE, &baseline);
    let done = check(&folder, &[]).expect(5);
    assert!(done.stdout.contains("unmeasured  alpha-small-b2-s2-fp32-seed107-"), "{}", done.stdout);
}

#[test]
fn a_run_that_fails_has_an_exit_code_of_its_own_and_no_baseline() {
    let folder = Folder::new();
    folder.write("demo.toml", &format!("{HEAD}[sweep]\nseed = [1, 101]\n"));
    let done = folder.with_worker(&["check", "--save-baseline", "demo.toml"]).expect(4);
    assert!(done.stderr.contains("demo: no baseline is saved"), "{}", done.stderr);
    assert!(!folder.path().join("baselines").exists());
}

#[test]
fn baselines_are_beside_the_experiment_or_above_it() {
    let folder = Folder::new();
    folder.write("all/own/demo.toml", HEAD);
    folder.with_worker(&["check", "--save-baseline", "all/own/demo.toml"]).expect(0);
    assert!(folder.path().join("all/own").join(FILE).exists());
    std::fs::rename(folder.path().join("all/own/baselines"), folder.path().join("all/baselines")).unwrap();
    folder.with_worker(&["check", "all/own/demo.toml"]).expect(0);
    folder.with_worker(&["check", "--save-baseline", "--baselines", "mine", "all/own/demo.toml"]).expect(0);
    assert!(folder.path().join("mine/demo-cpu-h200.json").exists());
}

/// A refuted, an accepted and an undecided hypothesis, and a regression.
fn everything() -> Folder {
    let peak = "indicator = \"maximum_peak_allocated_mib\"";
    let folder = Folder::new();
    folder.write(
        "demo.toml",
        &format!(
            "{HEAD}{BATCHES}[baseline]\ntolerance = 0\n\
             [[hypothesis]]\nclaim = \"it grows\"\n{peak}\nalong = \"batch_size\"\ntrend = \"increasing\"\n\
             [[hypothesis]]\nclaim = \"it is <small> & 100 %, \\\"really\\\"\"\n{peak}\nvalue = {{ max = 1 }}\n\
             [[hypothesis]]\nclaim = \"known\"\n{peak}\nvalue = {{ max = 1 }}\nknown_failure = {{ reason = \"not yet\" }}\n\
             [[hypothesis]]\nclaim = \"open\"\n{peak}\nwhere = {{ batch_size = 2 }}\nratio = {{ to = {{ batch_size = 2 }}, min = 1 }}\n"
        ),
    );
    folder.with_worker(&["check", "--save-baseline", "demo.toml"]).expect(1);
    change(&folder, 2, "first_step_persistent_change_mib", 1.0);
    folder
}

#[test]
fn every_format_says_the_same() {
    let folder = everything();
    snapshot!(check(&folder, &["--format", "markdown"]).expect(1).stdout);
    snapshot!(check(&folder, &["--format", "csv", "--junit", "junit.xml"]).expect(1).stdout);
    snapshot!(folder.read("junit.xml"));
    let document = check(&folder, &["--format", "json"]).expect(1).stdout;
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["judgement"], "refuted");
    assert_eq!(document["experiments"][0]["baseline"]["changes"][0]["difference"], 1.0);
}

#[test]
fn a_comment_stays_short_whatever_changed() {
    let folder = saved("[sweep]\nbatch_size = { from = 1, to = 100, step = 1 }\n");
    let baseline = folder.read(FILE).replace("10.5,", "9.0,");
    folder.write(FILE, &baseline);
    let said = check(&folder, &["--format", "markdown"]).expect(1).stdout;
    assert!(said.contains("| worse | alpha-small-b60-"), "{said}");
    assert!(said.contains("and 40 more, which verdicts.json in the results folder has."), "{said}");
    assert!(said.len() < 65_536, "{}", said.len());
}

#[test]
fn a_github_job_gets_annotations() {
    let folder = everything();
    let mut command = folder.command_with_worker(&["check", "--reuse", "--quiet", "demo.toml"]);
    let done = Done::of(command.env("GITHUB_ACTIONS", "true").output().unwrap()).expect(1);
    snapshot!(done.stderr);
    assert!(!check(&folder, &["--quiet"]).expect(1).stderr.contains("::error"));
}
