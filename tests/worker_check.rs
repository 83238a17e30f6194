//! The repository's own check, with the real worker: the reference hypotheses hold, the committed baselines are met to the byte, and a
//! worker that measures something else is found out.
#![cfg(feature = "worker")]

mod support;

use std::path::{Path, PathBuf};

use support::{Done, Folder};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn solution() -> PathBuf {
    Path::new(ROOT).join("experiments/solution")
}

#[test]
fn the_reference_hypotheses_hold_and_the_baselines_are_met() {
    let found = std::fs::read_dir(solution()).unwrap().map(|entry| entry.unwrap().path());
    let experiments = found.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let mut paths: Vec<String> = experiments.map(|path| path.display().to_string()).collect();
    paths.sort();
    assert!(paths.len() >= 6, "{paths:?}");
    let args: Vec<&str> = ["check"].into_iter().chain(paths.iter().map(String::as_str)).collect();
    let done = Folder::new().with_real_worker(&args).expect(0);
    assert_eq!(done.stdout.matches("baseline: supported").count(), paths.len(), "{}", done.stdout);
}

#[test]
fn a_worker_that_measures_something_else_is_found_out() {
    // Each request is changed on its way to the worker, as if another model were built into it.
    let changed = |change: &str| {
        let folder = Folder::new();
        let mut command = folder.command_with_real_worker(&["check"]);
        command
            .arg(solution().join("alpha_batch.toml"))
            .env("MEMLAB_WORKER", format!("{ROOT}/tests/support/changed_worker.sh"));
        command
            .env("REAL_WORKER", env!("CARGO_BIN_EXE_memlab-worker"))
            .env("CHANGE", change)
            .env("TMPDIR", folder.path());
        Done::of(command.output().unwrap()).expect(1).stdout
    };
    // A mebibyte more that each of the two threads keeps; the one that is left of its segment is too small to be split off.
    let said = changed("s/\"blas_workspace_bytes\":33554432/\"blas_workspace_bytes\":34603008/");
    assert!(said.contains("  worse       alpha-small-b1-s6-fp32-alloc-"), "{said}");
    assert!(said.contains("first_step_persistent_change_mib: 64.00146484375 -> 68.00146484375 MiB (+4, "), "{said}");
    // Sequences that are 3 % longer: slopes are 3 % steeper.
    let said = changed("s/\"sequence_length\":256/\"sequence_length\":264/");
    assert!(said.contains("all runs  slope of maximum_peak_allocated_mib along batch_size: "), "{said}");
}
