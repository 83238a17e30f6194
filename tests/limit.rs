//! `memlab limit`, as a user sees it: the boundary, what proves it, and everything that is no boundary.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use support::{Folder, snapshot};

/// The stand-in for the worker takes 100 MiB and 10 MiB a sample, and refuses what is beyond the capacity.
fn folder(base: &str, rest: &str) -> Folder {
    let folder = Folder::new();
    folder.write("demo.toml", &format!("name = \"demo\"\n[base]\ncase = \"alpha\"\nsteps = 2\n{base}\n{rest}\n"));
    folder
}

/// The outcome of every value that was tried.
fn outcomes(csv: &str) -> BTreeMap<u64, String> {
    let rows = csv.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    rows.map(|row| (row[0].parse().unwrap(), row[1].to_owned())).collect()
}

const LIMIT: [&str; 7] = ["limit", "demo.toml", "--axis", "batch_size", "--jobs", "2", "--quiet"];

fn limit<'a>(more: &[&'a str]) -> Vec<&'a str> {
    LIMIT.into_iter().chain(more.iter().copied()).collect()
}

#[test]
fn the_boundary_is_proved_from_both_sides() {
    let folder = folder("", "");
    let done = folder.with_worker(&limit(&["--capacity", "512MiB"])).expect(0);
    snapshot!(done.stdout);
}

#[test]
fn every_format_holds_what_was_tried() {
    let folder = folder("", "");
    let csv = folder.with_worker(&limit(&["--capacity", "1GiB", "--format", "csv"])).expect(0).stdout;
    let tried = outcomes(&csv);
    assert_eq!((tried[&92].as_str(), tried[&93].as_str()), ("ok", "oom"), "{csv}");
    assert_eq!(tried.range(93..).filter(|(_, outcome)| *outcome == "ok").count(), 0);
    assert_eq!(
        csv.lines().nth(1).unwrap().matches(",cpu,false,runs/demo-limit/").count(),
        1,
        "nothing is computed: {csv}"
    );

    let json = folder.with_worker(&limit(&["--capacity", "1GiB", "--format", "json"])).expect(0).stdout;
    let rows: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    assert_eq!(rows.len(), tried.len());
    let row = rows.iter().find(|row| row["batch_size"] == 93).unwrap();
    assert_eq!((row["oom_during"].as_str(), row["oom_requested_mib"].as_f64()), (Some("forward"), Some(20.0)));
    assert!(folder.path().join(row["folder"].as_str().unwrap()).join("report.json").exists());

    let markdown = folder.with_worker(&limit(&["--capacity", "1GiB", "--format", "markdown"])).expect(0).stdout;
    assert!(markdown.contains("| 92 | ok |"), "{markdown}");
}

#[test]
fn another_search_takes_what_is_finished() {
    let folder = folder("", "");
    let first = folder.with_worker(&limit(&["--capacity", "512MiB"])).expect(0);
    let again = ["limit", "demo.toml", "--axis", "batch_size", "--jobs", "2", "--capacity", "512MiB"];
    let again = folder.with_worker(&again).expect(0);
    assert_eq!(again.stdout, first.stdout);
    let rounds: Vec<&str> = again.stderr.lines().filter(|line| line.contains("finished before")).collect();
    let none_ran = |line: &&str| line.split_whitespace().nth(1) == line.split_whitespace().nth(3);
    assert!(!rounds.is_empty() && rounds.iter().all(none_ran), "{}", again.stderr);
    let status = folder.memlab(&["status", "runs/demo-limit"]).expect(0);
    assert!(status.stdout.contains("oom"), "{}", status.stdout);
}

#[test]
fn any_whole_number_can_be_searched() {
    let folder = folder("batch_size = 3", "[sweep]\nrank_zero_extra_samples = [0, 1]");
    // The stand-in's memory does not depend on it.
    let args = ["limit", "demo.toml", "--axis", "rank_zero_extra_samples", "--capacity", "1GiB", "--within", "0..9"];
    let done = folder.with_worker(&args).expect(5);
    assert!(done.stderr.contains("rank_zero_extra_samples = 9, the highest of the range, fits"), "{}", done.stderr);
    assert!(done.stdout.contains("Every rank_zero_extra_samples that was tried fits"), "{}", done.stdout);
}

#[test]
fn where_nothing_or_everything_fits_there_is_no_limit() {
    let folder = folder("", "");
    let nothing = folder.with_worker(&limit(&["--capacity", "105MiB"])).expect(5);
    assert!(nothing.stderr.contains("not even batch_size = 1 fits"), "{}", nothing.stderr);
    assert!(nothing.stdout.contains("- 1 does not: 20.00 MiB refused in step 0 during forward"), "{}", nothing.stdout);
    let everything = folder.with_worker(&limit(&["--within", "1..9"])).expect(5);
    assert!(everything.stderr.contains("batch_size = 9, the highest of the range, fits"), "{}", everything.stderr);
}

#[test]
fn a_larger_value_that_fits_is_reported_with_the_smaller_that_does_not() {
    let folder = folder("seed = 118", "");
    let args = ["limit", "demo.toml", "--axis", "batch_size", "--jobs", "2", "--capacity", "512MiB"];
    let done = folder.with_worker(&args).expect(0);
    assert!(done.stdout.starts_with("batch_size = 41 fits into 512 MiB, 42 does not."), "{}", done.stdout);
    assert!(done.stderr.contains("batch_size = 4 does not fit although a larger value does"), "{}", done.stderr);
}

#[test]
fn a_run_that_fails_is_no_evidence() {
    let folder = folder("seed = 101", "");
    let done = folder.with_worker(&limit(&["--capacity", "512MiB"])).expect(4);
    assert!(done.stderr.contains("the run with batch_size = 1 ended with error"), "{}", done.stderr);
    assert!(done.stderr.contains("worker.log"), "{}", done.stderr);
}

#[test]
fn on_cuda_the_runs_are_real() {
    let folder = folder("", "");
    let mut command = folder.command_with_worker(&limit(&["--capacity", "512MiB", "--format", "csv"]));
    let done = support::Done::of(command.env("STAND_IN_GPUS", "1").output().unwrap()).expect(0);
    assert!(done.stdout.lines().skip(1).all(|line| line.contains(",cuda,true,")), "{}", done.stdout);
    // The stand-in's GPU takes 24 MiB more.
    let tried = outcomes(&done.stdout);
    assert_eq!((tried[&38].as_str(), tried[&39].as_str()), ("ok", "oom"), "{}", done.stdout);
}

#[test]
fn what_cannot_be_searched_is_said_before_anything_runs() {
    let folder = folder("", "[sweep]\nseed = [1, 2]");
    let mut said = String::new();
    for more in [
        &["--axis", "batch_size"][..],
        &["--axis", "preset"],
        &["--axis", "batchsize"],
        &["--axis", "world_size", "--set", "seed=1"],
        &["--axis", "batch_size", "--within", "0..8"],
        &["--axis", "batch_size", "--within", "8..2"],
        &["--axis", "batch_size", "--within", "few"],
        &["--axis", "batch_size", "--capacity", "much"],
        &["--axis", "batch_size", "--set", "seed=1", "--set", "device_model=none"],
    ] {
        let args: Vec<&str> = ["limit", "demo.toml"].into_iter().chain(more.iter().copied()).collect();
        let done = folder.with_worker(&args).expect(2);
        assert_eq!(done.stdout, "");
        writeln!(said, "$ memlab {}\n{}", args.join(" "), done.stderr).unwrap();
    }
    assert!(!folder.path().join("runs").exists());
    snapshot!(said);
}
