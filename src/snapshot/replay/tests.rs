//! Whatever a program does with the model, its history is explained: replaying it gives the same counters.

use proptest::prelude::*;

use super::*;
use crate::allocator::{CachingAllocator, History, Settings, Stats, VirtualDevice};
use crate::snapshot::model::{NoteId, Snapshot, StackId};

const MIB: u64 = 1 << 20;

#[derive(Debug, Clone)]
enum Step {
    /// Some streams turn out to have finished, and then memory is asked for.
    Malloc {
        finished: usize,
        size: u64,
        stream: u64,
    },
    Free {
        at: usize,
        used_by: Option<u64>,
    },
    EmptyCache,
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    // Half of the programs use one stream only.
    let one = prop::collection::vec(step(Just(None)), 1..most);
    let several = prop::collection::vec(step(prop::option::weighted(0.3, 5_u64..7)), 1..most);
    prop_oneof![one, several]
}

fn step(used_by: impl Strategy<Value = Option<u64>>) -> impl Strategy<Value = Step> {
    let size = prop_oneof![1_u64..4096, 1_u64..2 * MIB, 1_u64..64 * MIB];
    prop_oneof![
        6 => (0_usize..4, size, 0_u64..3).prop_map(|(finished, size, stream)| Step::Malloc { finished, size, stream }),
        5 => (any::<usize>(), used_by).prop_map(|(at, used_by)| Step::Free { at, used_by }),
        1 => Just(Step::EmptyCache),
    ]
}

fn settings() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        "expandable_segments:True",
        "max_split_size_mb:24",
        "garbage_collection_threshold:0.6",
        "roundup_power2_divisions:4",
        "garbage_collection_threshold:0.3,max_split_size_mb:32",
        "expandable_segments:True,roundup_power2_divisions:8",
    ])
}

/// Runs a program, and gives its snapshot with the counters at its end.
fn run(settings: &Settings, limit: Option<u64>, steps: Vec<Step>, entries: usize) -> (Snapshot, Stats) {
    let mut allocator = CachingAllocator::new(settings.clone(), limit, VirtualDevice::new(1 << 40, 0));
    allocator.set_history(Some(History::new(entries, || 0)));
    let mut held = Vec::new();
    for step in steps {
        match step {
            Step::Malloc { finished, size, stream } => {
                let waiting: Vec<u64> = allocator.pending().take(finished).collect();
                for address in waiting {
                    allocator.complete_free(address).unwrap();
                }
                held.extend(allocator.malloc(size, stream));
            }
            Step::Free { at, used_by } if !held.is_empty() => {
                let address = held.swap_remove(at % held.len());
                if let Some(stream) = used_by {
                    allocator.record_stream(address, stream).unwrap();
                }
                allocator.free(address).unwrap();
            }
            // Emptied right before a request, it looks as if the request had needed it: a free comes in between.
            Step::EmptyCache if !held.is_empty() => {
                allocator.empty_cache();
                allocator.free(held.swap_remove(0)).unwrap();
            }
            Step::Free { .. } | Step::EmptyCache => {}
        }
    }
    let mut snapshot = Snapshot::new("", settings.clone());
    snapshot.add_device(0, &allocator, |_| (StackId::default(), NoteId::default()));
    (snapshot, *allocator.stats())
}

/// What a history can tell. A cache that was emptied without anything to release or to wait for leaves no trace. With
/// streams, a block whose free completes right after it was requested may have been free, or the request after it may
/// have waited for it: where memory was released in between, both can explain the same entries.
fn told(stats: &Stats, streams: bool) -> Stats {
    Stats { num_sync_all_streams: 0, num_alloc_retries: if streams { 0 } else { stats.num_alloc_retries }, ..*stats }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_history_is_explained(
        settings in settings(),
        limit in 80 * MIB..400 * MIB,
        steps in steps(250),
    ) {
        let settings = Settings::parse(settings).unwrap();
        let streams = steps.iter().any(|step| matches!(step, Step::Free { used_by: Some(_), .. }));
        let (snapshot, stats) = run(&settings, Some(limit), steps, usize::MAX);
        let replay = recorded(&snapshot, 0, &settings, Some(limit)).unwrap();
        prop_assert!(replay.initial.is_empty());
        prop_assert_eq!(replay.mismatches, 0, "{:?}", replay.described);
        prop_assert_eq!(told(&replay.stats, streams), told(&stats, streams));
        // The same program under the same settings does the same, whatever was inferred.
        let again = what_if(&replay, settings, Some(limit));
        prop_assert_eq!(again.stats.reserved_bytes.all, stats.reserved_bytes.all);
        prop_assert_eq!((again.newly_granted, again.newly_refused), (0, 0));
    }

    #[test]
    fn a_limit_is_inferred_from_refusals(
        settings in prop::sample::select(vec!["", "expandable_segments:True", "max_split_size_mb:24"]),
        limit in 80 * MIB..400 * MIB,
        steps in steps(250),
    ) {
        let settings = Settings::parse(settings).unwrap();
        let (snapshot, stats) = run(&settings, Some(limit), steps, usize::MAX);
        let replay = recorded(&snapshot, 0, &settings, None).unwrap();
        if let Some(inferred) = replay.inferred_limit {
            prop_assert!((inferred.at_least..=inferred.at_most).contains(&limit), "{inferred:?} has not {limit}");
            prop_assert_eq!(replay.stats.num_ooms, stats.num_ooms);
        } else {
            prop_assert_eq!(stats.num_ooms, 0);
        }
    }

    #[test]
    fn a_history_that_lost_its_beginning_has_an_initial_state(
        settings in prop::sample::select(vec!["", "expandable_segments:True", "max_split_size_mb:24"]),
        steps in steps(250),
        entries in 20_usize..200,
    ) {
        let settings = Settings::parse(settings).unwrap();
        let (whole, _) = run(&settings, None, steps.clone(), usize::MAX);
        let (snapshot, stats) = run(&settings, None, steps, entries);
        let replay = recorded(&snapshot, 0, &settings, None).unwrap();
        prop_assert_eq!(replay.initial.is_empty(), whole.traces[0].len() == snapshot.traces[0].len());
        // What is there at the end does not depend on when recording began.
        if replay.mismatches == 0 && replay.initial.assumed_sizes == 0 {
            prop_assert_eq!(replay.stats.reserved_bytes.all.current, stats.reserved_bytes.all.current);
            prop_assert_eq!(replay.stats.active_bytes.all.current, stats.active_bytes.all.current);
        }
    }
}
