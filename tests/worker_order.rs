//! The modelled GPU against the allocator histories of the reference script on an H200: not only how much is allocated, but what,
//! in which order, and when it is freed.
#![cfg(feature = "worker")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod support;

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use memlab::allocator::Action;
use memlab::snapshot::{self, Limits};
use support::Folder;

/// What the program does: the requested size of each allocation and, of each free, which allocation it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Allocates(u64),
    Frees(Option<usize>),
}

fn program(path: &Path) -> Vec<Step> {
    let (snapshot, _) = snapshot::read(File::open(path).unwrap(), Limits::default()).unwrap();
    let mut live = HashMap::new();
    let mut allocations = 0;
    let steps = snapshot.traces[0].iter().filter_map(|entry| match entry.action {
        Action::Alloc => {
            live.insert(entry.address, allocations);
            allocations += 1;
            Some(Step::Allocates(entry.size))
        }
        Action::FreeRequested => Some(Step::Frees(live.remove(&entry.address))),
        _ => None,
    });
    steps.collect()
}

fn compare_with_reference(case: &str, recording: &str) {
    let folder = Folder::new();
    let arguments =
        ["run", "--case", case, "--steps", "3", "--device", "cpu", "--no-compute", "--snapshot", "history.pickle"];
    let done = folder.with_real_worker(&arguments);
    let ours = folder.path().join("history-rank0.pickle");
    assert!(ours.exists(), "{}", done.stderr);
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/snapshots").join(recording);
    let (ours, reference) = (program(&ours), program(&recording));
    assert!(reference.len() > 1000, "the recording is not whole");
    let first = ours.iter().zip(&reference).position(|(ours, reference)| ours != reference);
    assert_eq!(first.map(|at| (at, ours[at], reference[at])), None, "the first step that differs");
    assert_eq!(ours.len(), reference.len());
}

#[test]
fn alpha_allocates_and_frees_what_the_reference_does_in_its_order() {
    compare_with_reference("alpha", "alpha-snap-rank0.pickle");
}

#[test]
fn gamma_allocates_and_frees_what_the_reference_does_in_its_order() {
    compare_with_reference("gamma", "gamma-snap-rank0.pickle");
}
