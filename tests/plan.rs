//! `memlab plan` as a user meets it.

mod support;

use support::{Done, Folder, data};

/// A folder with one experiment in it.
fn planned(text: &str, options: &[&str]) -> Done {
    let folder = Folder::new();
    folder.write("x.toml", text);
    folder.memlab(&[&["plan", "x.toml"], options].concat())
}

const SMALL: &str = "\
name = \"small\"
title = \"What does the batch size change?\"
[base]
case = \"alpha\"
device = \"cpu\"
[sweep]
batch_size = [1, 2]
seed = [7, 8]
";

#[test]
fn every_part_of_the_language_is_shown() {
    let folder = Folder::new();
    folder.write("whole.toml", &folder.read(data("whole_language.toml").to_str().unwrap()));
    insta::assert_snapshot!(folder.memlab(&["plan", "whole.toml"]).expect(0).stdout);
}

#[test]
fn the_readme_s_experiment_is_one_and_its_runs_are_those_of_alpha_batch() {
    let readme = include_str!("../README.md");
    let example = readme.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(planned(example.expect("an experiment"), &["--device", "cpu"]).expect(0).stderr, "");
    let experiment = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/alpha_batch.toml");
    let done = Folder::new().memlab(&["plan", experiment, "--device", "cpu", "--format", "csv"]).expect(0);
    let ids: Vec<&str> = done.stdout.lines().skip(1).filter_map(|line| line.split(',').nth(1)).collect();
    assert!(ids.len() >= 3 && ids.iter().all(|id| readme.contains(&format!("\n{id}  alpha"))), "{ids:?}");
}

#[test]
fn the_first_axis_varies_slowest_in_every_format() {
    for format in ["table", "csv", "json", "markdown"] {
        insta::assert_snapshot!(format, planned(SMALL, &["--format", format]).expect(0).stdout);
    }
}

#[test]
fn the_command_line_goes_before_the_file() {
    let done = planned(SMALL, &["--set", "batch_size=16", "--set", "seed=[3, 4]", "--set", "capacity=1.5GiB"]);
    insta::assert_snapshot!(done.expect(0).stdout);
}

#[test]
fn a_device_left_open_is_said_to_be() {
    let done = planned(&SMALL.replace("device = \"cpu\"\n", ""), &[]).expect(0);
    assert!(done.stdout.contains("default (auto)"), "{}", done.stdout);
}

#[test]
fn a_part_can_be_taken() {
    let lines = |done: Done| done.stdout.lines().count() - 1;
    assert_eq!(lines(planned(SMALL, &["--format", "csv", "--first", "3"]).expect(0)), 3);
    let sample = || planned(SMALL, &["--format", "csv", "--sample", "2", "--sample-seed", "1"]).expect(0);
    assert_eq!(sample().stdout, sample().stdout);
    assert_eq!(lines(sample()), 2);
    assert_eq!(lines(planned(SMALL, &["--format", "csv", "--sample", "99"]).expect(0)), 4);
    let done = planned(SMALL, &["--first", "0"]).expect(2);
    insta::assert_snapshot!(done.stderr);
}

#[test]
fn many_runs_are_asked_about() {
    let many = SMALL.replace("seed = [7, 8]", "seed = { from = 1, to = 5001, step = 1 }");
    let done = planned(&many, &["--format", "csv"]).expect(2);
    assert_eq!(done.stdout, "");
    insta::assert_snapshot!(done.stderr);
    assert_eq!(planned(&many, &["--format", "csv", "--yes"]).expect(0).stdout.lines().count(), 10_003);
    planned(&many, &["--first", "5"]).expect(0);
}

#[test]
fn several_assignments_that_are_wrong_are_explained() {
    for (name, assignment) in [
        ("set_nothing", "steps"),
        ("set_unknown_key", "batchsize=4"),
        ("set_wrong_value", "steps=many"),
        ("set_zero", "batch_size=0"),
        ("set_list_without_brackets", "batch_size=1, 2"),
        ("set_slurm_time", "slurm.time=10"),
        ("set_conflict", "capacity=200GiB"),
    ] {
        insta::assert_snapshot!(name, planned(SMALL, &["--set", assignment]).expect(2).stderr);
    }
}

#[test]
fn nothing_else_is_on_standard_output() {
    let warned = format!("{SMALL}[[exclude]]\nbatch_size = 64\nreason = \"too large\"\n");
    let done = planned(&warned, &["--format", "json"]).expect(0);
    serde_json::from_str::<serde_json::Value>(&done.stdout).unwrap();
    insta::assert_snapshot!(done.stderr);
}

#[test]
fn results_that_are_there_tell_how_long_it_takes() {
    let folder = Folder::new();
    folder.write("x.toml", SMALL);
    let planned = folder.memlab(&["plan", "x.toml", "--format", "json"]).expect(0);
    let runs: serde_json::Value = serde_json::from_str(&planned.stdout).unwrap();
    let file = folder.read(data("reports/alpha-small-b1-s6-fp32.json").to_str().unwrap());
    let mut report: serde_json::Value = serde_json::from_str(&file).unwrap();
    let run_id = runs[0]["run_id"].as_str().unwrap().to_owned();
    report["run_id"] = run_id.clone().into();
    report["spec"] = spec_of_first_run();
    report["wall_seconds"] = 2.5.into();
    report["outcome"] = "ok".into();
    folder.write(&format!("runs/small/{run_id}/report.json"), &report.to_string());
    insta::assert_snapshot!(folder.memlab(&["plan", "x.toml"]).expect(0).stdout);
}

/// The first run of [`SMALL`], as its report holds it.
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
fn spec_of_first_run() -> serde_json::Value {
    let experiment = memlab::experiment::parse("x.toml".as_ref(), SMALL).unwrap();
    let host = memlab::plan::Host { device: memlab::protocol::DeviceKind::Cpu, gpus: 0 };
    let plan = memlab::plan::expand(&experiment, &host).unwrap();
    serde_json::to_value(&plan.runs[0].spec).unwrap()
}

#[test]
fn the_command_line_may_take_away_what_a_hypothesis_speaks_of() {
    let text = format!(
        "{SMALL}[[hypothesis]]\nclaim = \"It grows\"\nindicator = \"maximum_peak_allocated_mib\"\n\
         along = \"batch_size\"\ntrend = \"increasing\"\n"
    );
    planned(&text, &["--set", "batch_size=4"]).expect(0);
}

#[test]
fn labels_with_commas_quotes_and_lines_read_back_equal() {
    let label = "a, \"b\"\nand; c";
    let text = format!("{SMALL}[[perturbation]]\nlabel = {label:?}\nsteps = 9\n");
    let done = planned(&text, &["--format", "csv"]).expect(0);
    let mut reader = csv::Reader::from_reader(done.stdout.as_bytes());
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert!(rows.iter().any(|row| &row[2] == label), "{}", done.stdout);
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
}

#[test]
fn a_file_from_windows_is_read() {
    let text = format!("\u{feff}{}", SMALL.replace('\n', "\r\n"));
    assert_eq!(planned(&text, &["--format", "csv"]).expect(0).stdout.lines().count(), 5);
    let wrong = text.replace("alpha", "alfa");
    insta::assert_snapshot!(planned(&wrong, &[]).expect(2).stderr);
}

#[test]
fn a_perturbation_that_is_the_base_is_pointed_out() {
    let text =
        "name = \"x\"\n[base]\ncase = \"beta\"\ndevice = \"cpu\"\n[[perturbation]]\nlabel = \"six steps\"\nsteps = 6\n";
    let done = planned(text, &[]).expect(0);
    assert!(done.stdout.contains("1 the same as another"), "{}", done.stdout);
    insta::assert_snapshot!(done.stderr);
}

#[test]
fn the_modelled_gpu_tells_what_no_result_does() {
    let folder = Folder::new();
    // The stand-in is out of memory for seed 107, and has no model: what is shown is what it reports.
    folder.write("x.toml", &SMALL.replace("seed = [7, 8]", "seed = [107]"));
    let done = folder.with_worker(&["plan", "x.toml", "--estimate"]).expect(0);
    insta::assert_snapshot!(done.stdout);
    assert!(!folder.path().join("runs").exists(), "planning leaves nothing behind");
    let done = folder.with_worker(&["plan", "x.toml", "--estimate", "--set", "seed=[1, 2]", "--quiet"]).expect(0);
    let peaks = done.stdout.matches("the modelled GPU").count();
    assert_eq!((peaks, done.stderr.as_str()), (4, ""), "{}", done.stdout);
    let mut without_worker = folder.command(&["plan", "x.toml", "--estimate"]);
    Done::of(without_worker.env("MEMLAB_WORKER", "missing").output().unwrap()).expect(2);
}
