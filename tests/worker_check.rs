//! The repository's own check, with the real worker: the reference hypotheses hold, and the committed baselines are met to the byte.
#![cfg(feature = "worker")]

mod support;

use std::path::Path;

use support::Folder;

#[test]
fn the_reference_hypotheses_hold_and_the_baselines_are_met() {
    let solution = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/solution");
    let found = std::fs::read_dir(solution).unwrap().map(|entry| entry.unwrap().path());
    let experiments = found.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let mut paths: Vec<String> = experiments.map(|path| path.display().to_string()).collect();
    paths.sort();
    assert!(paths.len() >= 5, "{paths:?}");
    let folder = Folder::new();
    let args: Vec<&str> = ["check"].into_iter().chain(paths.iter().map(String::as_str)).collect();
    let done = folder.with_real_worker(&args).expect(0);
    assert_eq!(done.stdout.matches("baseline: supported").count(), paths.len(), "{}", done.stdout);
}
