//! `memlab run`, `reproduce` and `doctor` as a user meets them, with the stand-in for the worker.

mod support;

use support::{Done, Folder, snapshot};

#[test]
fn a_run_leaves_its_report_and_shows_it() {
    let folder = Folder::new();
    let done = folder.with_worker(&["run", "--case", "alpha", "--batch-size-per-device", "4", "--output", "a.json"]);
    let done = done.expect(0);
    snapshot!(done.stdout);
    let report: serde_json::Value = serde_json::from_str(&folder.read("a.json")).unwrap();
    assert_eq!(report["spec"]["batch_size"], 4);
    assert_eq!(report["provenance"]["command"][1], "run");
}

#[test]
fn without_a_name_the_report_is_named_after_the_run() {
    let folder = Folder::new();
    let done = folder.with_worker(&["run", "--case", "beta", "--preset", "medium"]).expect(0);
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let name = names[0].to_str().unwrap();
    assert!(name.starts_with("beta-medium-b2-s6-fp32") && done.stderr.contains(name), "{name}: {}", done.stderr);
}

#[test]
fn an_output_that_exists_is_replaced_only_when_told() {
    let folder = Folder::new();
    folder.write("a.json", "precious");
    let refused = folder.with_worker(&["run", "--case", "alpha", "--output", "a.json"]).expect(2);
    snapshot!(refused.stderr);
    assert_eq!(folder.read("a.json"), "precious");
    folder.with_worker(&["run", "--case", "alpha", "--output", "a.json", "--overwrite-output"]).expect(0);
    assert!(folder.read("a.json").contains("alpha"));
}

#[test]
fn an_old_report_is_not_taken_for_that_of_a_run_that_left_none() {
    let folder = Folder::new();
    let seed = |seed| ["run", "--case", "alpha", "--seed", seed, "--output", "a.json", "--overwrite-output"];
    folder.with_worker(&seed("1")).expect(0);
    let done = folder.with_worker(&seed("106")).expect(4);
    snapshot!(done.stderr);
    assert_eq!(done.stdout, "");
}

#[test]
fn what_is_in_the_way_is_found_before_the_run() {
    let folder = Folder::new();
    folder.write("folder/file", "");
    for (output, said) in [
        ("folder", "folder is a folder"),
        ("no-such/a.json", "cannot write into no-such"),
        ("folder/file/a.json", "cannot write into folder/file"),
    ] {
        let done = folder.with_worker(&["run", "--case", "alpha", "--output", output]).expect(2);
        assert!(done.stderr.contains(said), "{}", done.stderr);
    }
    folder.write("s-rank0.pickle", "");
    let done = folder.with_worker(&["run", "--case", "alpha", "--snapshot", "s.pickle"]).expect(2);
    assert!(done.stderr.contains("s-rank0.pickle exists"), "{}", done.stderr);
    assert!(done.stderr.contains("--overwrite-snapshot"), "{}", done.stderr);
}

#[test]
fn out_of_memory_has_its_own_exit_code_and_a_failure_another() {
    let folder = Folder::new();
    let oom = folder.with_worker(&["run", "--case", "alpha", "--seed", "107", "--output", "oom.json"]).expect(3);
    assert!(oom.stdout.contains("oom"), "what was measured is shown: {}", oom.stdout);
    assert!(oom.stderr.contains("out of device memory"), "{}", oom.stderr);
    assert!(oom.stderr.contains("tried to allocate 20.00 MiB"), "{}", oom.stderr);
    let failed = folder.with_worker(&["run", "--case", "alpha", "--seed", "101"]).expect(4);
    snapshot!(failed.stderr);
}

#[test]
fn every_option_is_checked_and_says_what_it_takes() {
    let folder = Folder::new();
    let mut said = Vec::new();
    for options in [
        &["--case", "delta"][..],
        &["--case", "alpha", "--batch-size", "0"],
        &["--case", "alpha", "--steps", "many"],
        &["--case", "alpha", "--preset", "smal"],
        &["--case", "alpha", "--capacity", "80 parsecs"],
        &["--case", "alpha", "--device-model", "h2000"],
        &["--case", "alpha", "--device", "cuda", "--no-compute"],
        &["--case", "alpha", "--snapshot-max-entries", "5"],
        &["--preset", "small"],
    ] {
        let done = folder.with_worker(&[&["run"], options].concat()).expect(2);
        said.push(format!("$ memlab run {}\n{}", options.join(" "), done.stderr));
    }
    snapshot!(said.join("\n"));
}

#[test]
fn help_lists_the_exercise_s_options_and_no_cause() {
    let done = Folder::new().memlab(&["run", "--help"]).expect(0);
    snapshot!(done.stdout);
}

#[test]
fn a_reproduction_says_what_differs() {
    let folder = Folder::new();
    folder.with_worker(&["run", "--case", "alpha", "--output", "a.json"]).expect(0);
    let same = folder.with_worker(&["reproduce", "a.json"]).expect(0);
    assert_eq!(same.stdout, "");
    assert!(same.stderr.contains("every sample, the outcome and the final loss are equal"), "{}", same.stderr);
    let changed = folder.read("a.json").replacen("\"allocated_mib\":120,", "\"allocated_mib\":120.25,", 1);
    folder.write("b.json", &changed.replace("\"stand-in\",\n", "\"older\",\n"));
    let differs = folder.with_worker(&["reproduce", "b.json"]).expect(1);
    snapshot!(format!("{}{}", differs.stdout, differs.stderr));
}

#[test]
fn a_report_of_the_reference_script_cannot_be_reproduced() {
    let folder = Folder::new();
    let report = support::data("reports/alpha-small-b1-s6-fp32.json");
    let done = folder.with_worker(&["reproduce", report.to_str().unwrap()]).expect(2);
    assert!(done.stderr.contains("does not hold the run's configuration"), "{}", done.stderr);
}

#[test]
fn the_doctor_says_what_is_there_and_what_to_do() {
    let folder = Folder::new();
    let done = folder.with_worker(&["doctor", "--format", "json"]).expect(0);
    let findings: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    let found =
        |what: &str| findings.as_array().unwrap().iter().find(|finding| finding["what"] == what).unwrap().clone();
    assert_eq!(found("libtorch")["found"], "2.11.0+cpu, worker build stand-in");
    assert_eq!(found("gpu")["state"], "absent");
    assert_eq!(found("gpu")["found"], "a stand-in has no GPU");
    let mut command = folder.command(&["doctor"]);
    let missing = Done::of(command.env("MEMLAB_WORKER", "/no/such/worker").output().unwrap()).expect(2);
    assert!(missing.stdout.contains("the worker is not at /no/such/worker"), "{}", missing.stdout);
    let mut command = folder.command_with_worker(&["doctor", "--format", "csv"]);
    let gpus = Done::of(command.env("STAND_IN_GPUS", "2").output().unwrap()).expect(0);
    assert!(gpus.stdout.contains("\"1: Stand-in, 1024.00 MiB, compute capability 9.0\""), "{}", gpus.stdout);
}

#[test]
fn the_doctor_describes_the_gpu_at_hand() {
    let folder = Folder::new();
    let mut command = folder.command_with_worker(&["doctor", "--device-model"]);
    let done = Done::of(command.env("STAND_IN_GPUS", "1").output().unwrap()).expect(0);
    // 32 MiB are what the compute capability implies, 24 more are what the stand-in's GPU takes.
    assert!(done.stdout.contains(&format!("blas_workspace_bytes = {}\n", 56 << 20)), "{}", done.stdout);
    assert!(done.stdout.contains(&format!("context_bytes = {}\n", 400 << 20)), "{}", done.stdout);
    // Nothing about the stand-in depends on the attention kernel.
    assert!(done.stdout.contains("unmeasured = [\"bf16_attention\"]\n"), "{}", done.stdout);
    // It is an experiment's table as it stands.
    folder.write(
        "x.toml",
        &format!(
            "name = \"x\"\n[base]\ncase = \"alpha\"\ndevice = \"cpu\"\ndevice_model = \"measured-stand-in\"\n{}",
            done.stdout
        ),
    );
    let plan = folder.with_worker(&["plan", "--format", "csv", "x.toml"]).expect(0);
    assert!(plan.stdout.contains("stand-in"), "{}", plan.stdout);
    let none = folder.with_worker(&["doctor", "--device-model"]).expect(2);
    assert!(none.stderr.contains("there is no GPU to describe: a stand-in has no GPU"), "{}", none.stderr);
}
