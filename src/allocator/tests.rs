//! Rules of the algorithm one by one, and the invariants after any sequence of operations.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn allocator(settings: &str, limit: Option<u64>) -> CachingAllocator<VirtualDevice> {
    CachingAllocator::new(Settings::parse(settings).unwrap(), limit, VirtualDevice::new(80 << 30, 0))
}

#[test]
fn sizes_round_to_512_bytes() {
    let settings = Settings::default();
    for (size, rounded) in [(1, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512)] {
        assert_eq!(settings.round(size), rounded);
    }
}

#[test]
fn segments_follow_the_size() {
    let settings = Settings::default();
    for (size, segment) in
        [(512, 2), (MIB, 2), (MIB + 512, 20), (10 * MIB - 512, 20), (10 * MIB, 10), (10 * MIB + 512, 12)]
    {
        assert_eq!(settings.segment_size(size), segment * MIB);
    }
}

#[test]
fn divisions_round_up_within_a_power_of_two() {
    let settings = Settings::parse("roundup_power2_divisions:4").unwrap();
    for (size, rounded) in [(1200 * KIB, 1280 * KIB), (MIB, MIB), (MIB + 1, 1280 * KIB), (2048, 2048), (1025, 1536)] {
        assert_eq!(settings.round(size), rounded, "{size}");
    }
    let settings = Settings::parse("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]").unwrap();
    let divisions = settings.roundup_power2_divisions;
    assert_eq!(divisions[..9], [1; 9]);
    assert_eq!((divisions[9], divisions[10]), (2, 4));
    assert_eq!(divisions[11..], [8; 5]);
}

#[test]
fn wrong_settings_say_what_and_where() {
    let error = |text: &str| {
        let error = Settings::parse(text).unwrap_err();
        let help = error.help.map_or(String::new(), |help| format!(" ({help})"));
        format!("{} at `{}`{help}", error.message, &text[error.span])
    };
    insta::assert_snapshot!(
        [
            "max_split_size_mb:19",
            "max_split_size_mb:many",
            "max_split_size_mb",
            "max_split_size:32",
            "large_segment_size_mb:10",
            "large_segment_size_mb:32,max_split_size_mb:31",
            "garbage_collection_threshold:1.0",
            "garbage_collection_threshold:-0.5",
            "roundup_power2_divisions:3",
            "roundup_power2_divisions:[3:4]",
            "roundup_power2_divisions:[4:3]",
            "roundup_power2_divisions:[4:4",
            "roundup_power2_divisions:[4:4 8:4]",
            "expandable_segments:true",
            "expandable_segments:True;max_split_size_mb:32",
            "backend:cudaMallocAsync",
            "backend:other",
            "per_process_memory_fraction:1.5",
            "pinned_num_register_threads:3",
        ]
        .map(error)
        .join("\n"),
        @r"
        option max_split_size_mb too small, must be >= 20 at `19`
        expected a whole number for max_split_size_mb but got 'many' at `many`
        expected ':' but the text ends at ``
        unrecognized key 'max_split_size' in the allocator settings at `max_split_size` (did you mean `max_split_size_mb`?)
        option large_segment_size_mb must be > 10 MB at `10`
        option max_split_size_mb too small, must be >= 32 at `31`
        garbage_collection_threshold is invalid, set it in (0.0, 1.0) at `1.0`
        garbage_collection_threshold is invalid, set it in (0.0, 1.0) at `-0.5`
        for roundups, the divisions have to be a power of 2 at `3`
        for roundups, the intervals have to be a power of 2 at `3`
        for roundups, the divisions have to be a power of 2, or 0 to disable roundup at `3`
        expected ',' but the text ends at ``
        expected ',' but got '8' at `8`
        expected 'True' or 'False' for expandable_segments but got 'true' at `true`
        expected 'True' or 'False' for expandable_segments but got 'True;max_split_size_mb' at `True;max_split_size_mb`
        backend cudaMallocAsync is the driver's own allocator, which is not modelled at `cudaMallocAsync` (leave it out, or set backend:native)
        unknown allocator backend, options are native and cudaMallocAsync at `other`
        per_process_memory_fraction is invalid, set it in [0.0, 1.0] at `1.5`
        pinned_num_register_threads has to be a power of 2 of at most 128 at `3`
        "
    );
}

#[test]
fn white_space_and_neutral_keys_are_read() {
    let settings = Settings::parse(
        " max_split_size_mb : 64 , expandable_segments:True, backend:native, pinned_use_cuda_host_register:True,\
         release_lock_on_cudamalloc:False, pinned_num_register_threads:8",
    )
    .unwrap();
    assert_eq!(settings.max_split_size, 64 * MIB);
    assert!(settings.expandable_segments);
    assert_eq!(Settings::parse("").unwrap(), Settings::default());
}

#[test]
fn settings_that_do_nothing_are_named() {
    let count = |text: &str, limited| Settings::parse(text).unwrap().without_effect(limited).len();
    assert_eq!(count("garbage_collection_threshold:0.5", false), 1);
    assert_eq!(count("garbage_collection_threshold:0.5", true), 0);
    assert_eq!(count("roundup_power2_divisions:1", true), 1);
    assert_eq!(count("max_non_split_rounding_mb:64", true), 1);
    assert_eq!(count("max_non_split_rounding_mb:64,max_split_size_mb:64", true), 0);
}

#[test]
fn a_large_block_keeps_up_to_one_mebibyte_of_slack() {
    let mut allocator = allocator("", None);
    let whole = allocator.malloc(19 * MIB, 0).unwrap();
    assert_eq!(allocator.block_size(whole), Some(20 * MIB), "a rest of 1 MiB is not worth keeping");
    let split = allocator.malloc(19 * MIB - 512, 0).unwrap();
    assert_eq!(allocator.block_size(split), Some(19 * MIB - 512), "a larger one is");
    let shared = allocator.malloc(9 * MIB, 0).unwrap();
    assert_eq!(allocator.block_size(shared), Some(9 * MIB));
}

#[test]
fn zero_bytes_are_no_block() {
    let mut allocator = allocator("", None);
    assert_eq!(allocator.malloc(0, 0), Ok(0));
    assert_eq!(allocator.free(0), Ok(()));
    assert_eq!(allocator.stats(), &Stats::default());
}

#[test]
fn a_block_is_given_back_once() {
    let mut allocator = allocator("", None);
    let block = allocator.malloc(100, 0).unwrap();
    assert_eq!(allocator.free(block), Ok(()));
    assert_eq!(allocator.free(block), Err(UnknownBlock(block)));
    assert_eq!(allocator.record_stream(block, 1), Err(UnknownBlock(block)));
    assert_eq!(allocator.complete_free(block), Err(UnknownBlock(block)));
}

#[test]
fn streams_do_not_share_free_blocks() {
    let mut allocator = allocator("", None);
    let first = allocator.malloc(100, 1).unwrap();
    allocator.free(first).unwrap();
    assert_ne!(allocator.malloc(100, 2).unwrap(), first);
    assert_eq!(allocator.malloc(100, 1).unwrap(), first);
}

#[test]
fn a_block_waits_for_the_streams_that_use_it() {
    let mut allocator = allocator("", None);
    let block = allocator.malloc(100, 0).unwrap();
    allocator.record_stream(block, 0).unwrap();
    allocator.record_stream(block, 7).unwrap();
    allocator.free(block).unwrap();
    assert_eq!(allocator.pending().collect::<Vec<_>>(), [block]);
    assert_eq!(allocator.stats().allocated_bytes.all.current, 0);
    assert_eq!(allocator.stats().active_bytes.all.current, 512);
    assert_ne!(allocator.malloc(100, 0).unwrap(), block);
    allocator.complete_free(block).unwrap();
    assert_eq!(allocator.malloc(100, 0).unwrap(), block);
}

#[test]
fn waiting_blocks_do_not_serve_the_request_that_waited_for_them() {
    let mut allocator = allocator("", Some(20 * MIB));
    let block = allocator.malloc(9 * MIB, 0).unwrap();
    let rest = allocator.malloc(9 * MIB, 0).unwrap();
    allocator.record_stream(block, 7).unwrap();
    allocator.free(block).unwrap();
    let refused = allocator.malloc(9 * MIB, 0).unwrap_err();
    assert_eq!((refused.segment, refused.allocated, refused.reserved), (20 * MIB, 9 * MIB, 20 * MIB));
    assert_eq!(allocator.stats().num_sync_all_streams, 1);
    assert_eq!(allocator.malloc(9 * MIB, 0), Ok(block));
    allocator.free(rest).unwrap();
}

#[test]
fn the_limit_is_checked_with_the_segment() {
    let mut allocator = allocator("", Some(30 * MIB));
    let first = allocator.malloc(12 * MIB, 0).unwrap();
    let refused = allocator.malloc(2 * MIB, 0).unwrap_err();
    assert_eq!(refused.segment, 20 * MIB);
    assert_eq!(allocator.stats().num_ooms, 1);
    assert_eq!(allocator.stats().num_alloc_retries, 1);
    allocator.free(first).unwrap();
    allocator.malloc(2 * MIB, 0).unwrap();
    assert_eq!(allocator.stats().num_device_free, 0, "the free block serves it");
    allocator.malloc(19 * MIB, 0).unwrap_err();
}

#[test]
fn an_enormous_request_is_refused_untried() {
    let mut allocator = allocator("", None);
    let refused = allocator.malloc(u64::MAX, 0).unwrap_err();
    assert_eq!(refused.to_string(), "CUDA out of memory. Tried to allocate more than 1EB memory.");
    assert_eq!(allocator.stats(), &Stats::default());
}

#[test]
fn private_pools_keep_to_themselves_until_they_are_retired() {
    let mut allocator = allocator("", None);
    let pool = allocator.create_pool(PoolOptions::default());
    let block = allocator.malloc_in(pool, 100, 0).unwrap();
    allocator.free(block).unwrap();
    assert_ne!(allocator.malloc(100, 0).unwrap(), block);
    allocator.empty_cache();
    assert_eq!(allocator.stats().segment.all.current, 2);
    allocator.retire_pool(pool);
    allocator.empty_cache();
    assert_eq!(allocator.stats().segment.all.current, 1);
}

#[test]
fn a_private_pool_can_help_out() {
    let mut allocator = allocator("", Some(4 * MIB));
    let pool = allocator.create_pool(PoolOptions { use_on_oom: true, no_split: true, ..PoolOptions::default() });
    let spare = allocator.malloc_in(pool, 100, 0).unwrap();
    assert_eq!(allocator.block_size(spare), Some(2 * MIB), "no split");
    allocator.free(spare).unwrap();
    assert_ne!(allocator.malloc(MIB, 0).unwrap(), spare);
    allocator.malloc(MIB, 0).unwrap();
    assert_eq!(allocator.malloc(MIB, 0).unwrap(), spare);
}

#[test]
fn the_history_is_bounded_and_tagged() {
    let mut allocator = allocator("", None);
    allocator.set_history(Some(History::new(2, || 7)));
    allocator.set_tag(3);
    let block = allocator.malloc(100, 0).unwrap();
    allocator.free(block).unwrap();
    let history = allocator.history().unwrap();
    assert_eq!(history.dropped(), 2);
    assert_eq!(
        history.entries().map(|entry| (entry.action, entry.size, entry.time_us, entry.tag)).collect::<Vec<_>>(),
        [(Action::FreeRequested, 100, 7, 3), (Action::FreeCompleted, 100, 7, 3)]
    );
}

/// What a program may do.
#[derive(Debug, Clone)]
enum Operation {
    Malloc { size: u64, stream: u64, private: bool },
    Free(usize),
    RecordStream(usize, u64),
    Complete(usize),
    EmptyCache,
    Capture(bool),
}

fn operation() -> impl Strategy<Value = Operation> {
    let size = prop_oneof![1_u64..4096, 1_u64..2 * MIB, 1_u64..64 * MIB, Just(0)];
    prop_oneof![
        10 => (size, 0_u64..3, prop::bool::weighted(0.1))
            .prop_map(|(size, stream, private)| Operation::Malloc { size, stream, private }),
        10 => any::<usize>().prop_map(Operation::Free),
        2 => (any::<usize>(), 0_u64..3).prop_map(|(at, stream)| Operation::RecordStream(at, stream)),
        2 => any::<usize>().prop_map(Operation::Complete),
        1 => Just(Operation::EmptyCache),
        1 => any::<bool>().prop_map(Operation::Capture),
    ]
}

fn settings() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        "expandable_segments:True",
        "max_split_size_mb:20",
        "max_split_size_mb:32,max_non_split_rounding_mb:24",
        "garbage_collection_threshold:0.5",
        "garbage_collection_threshold:0.1,expandable_segments:True,max_split_size_mb:24",
        "roundup_power2_divisions:8",
        "large_segment_size_mb:48,roundup_power2_divisions:[1:2,8:4,>:16]",
    ])
}

/// Blocks tile their segments, and the counters are those of a walk over them.
fn check<D: Device>(allocator: &CachingAllocator<D>, held: &BTreeMap<Address, u64>) {
    let mut counted = Stats::default();
    let segments = allocator.segments();
    let mut seen = 0;
    for segment in &segments {
        let mut at = segment.address;
        let split = segment.blocks.len() > 1;
        for pair in segment.blocks.windows(2) {
            let both_free = pair.iter().all(|block| block.state == BlockState::Inactive);
            assert!(!both_free, "two free neighbours");
        }
        for block in &segment.blocks {
            assert_eq!(block.address, at);
            assert!(block.size > 0 && block.size % MIN_BLOCK_SIZE == 0);
            at += block.size;
            match block.state {
                BlockState::ActiveAllocated => {
                    counted.allocation.increase(segment.is_small, 1);
                    counted.allocated_bytes.increase(segment.is_small, block.size);
                    if block.size >= allocator.settings.max_split_size {
                        counted.oversize_allocations.increase(1);
                    }
                    assert_eq!(held.get(&block.address), Some(&block.requested_size));
                    seen += 1;
                }
                BlockState::Inactive if split && !segment.is_expandable => {
                    counted.inactive_split.increase(segment.is_small, 1);
                    counted.inactive_split_bytes.increase(segment.is_small, block.size);
                }
                _ => {}
            }
            if block.state != BlockState::Inactive {
                counted.active.increase(segment.is_small, 1);
                counted.active_bytes.increase(segment.is_small, block.size);
                counted.requested_bytes.increase(segment.is_small, block.requested_size);
            }
        }
        assert_eq!(at, segment.address + segment.total_size);
        counted.reserved_bytes.increase(segment.is_small, segment.total_size);
        if !segment.is_expandable {
            counted.segment.increase(segment.is_small, 1);
            if segment.total_size >= allocator.settings.max_split_size {
                counted.oversize_segments.increase(1);
            }
        }
    }
    assert_eq!(seen, held.len());
    for pair in segments.windows(2) {
        assert!(pair[0].address + pair[0].total_size <= pair[1].address, "segments overlap");
    }
    for ((name, stat), (_, counted)) in allocator.stats().pool_stats().into_iter().zip(counted.pool_stats()) {
        for (stat, counted) in
            [(stat.all, counted.all), (stat.small_pool, counted.small_pool), (stat.large_pool, counted.large_pool)]
        {
            assert_eq!(stat.current, counted.current, "{name}");
            assert!(stat.peak >= stat.current, "{name}");
        }
    }
    assert_eq!(allocator.stats().oversize_allocations.current, counted.oversize_allocations.current);
    assert_eq!(allocator.stats().oversize_segments.current, counted.oversize_segments.current);
    assert_eq!(allocator.reserved, counted.reserved_bytes.all.current);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn blocks_tile_segments_and_counters_add_up(
        settings in settings(),
        limit in prop::option::of(64 * MIB..512 * MIB),
        device in 128 * MIB..1024 * MIB,
        operations in prop::collection::vec(operation(), 0..300),
    ) {
        let mut allocator =
            CachingAllocator::new(Settings::parse(settings).unwrap(), limit, VirtualDevice::new(device, 0));
        let private = allocator.create_pool(PoolOptions::default());
        let mut held = BTreeMap::new();
        let pick = |held: &BTreeMap<Address, u64>, at: usize| held.keys().nth(at % held.len().max(1)).copied();
        for operation in operations {
            match operation {
                Operation::Malloc { size, stream, private: from_private } => {
                    let pool = if from_private { private } else { PoolId::DEFAULT };
                    if let Ok(address) = allocator.malloc_in(pool, size, stream)
                        && address != 0
                    {
                        prop_assert_eq!(held.insert(address, size), None);
                    }
                }
                Operation::Free(at) => {
                    if let Some(address) = pick(&held, at) {
                        held.remove(&address);
                        allocator.free(address).unwrap();
                    }
                }
                Operation::RecordStream(at, stream) => {
                    if let Some(address) = pick(&held, at) {
                        allocator.record_stream(address, stream).unwrap();
                    }
                }
                Operation::Complete(at) => {
                    let count = allocator.pending().len().max(1);
                    let waiting = allocator.pending().nth(at % count);
                    if let Some(address) = waiting {
                        allocator.complete_free(address).unwrap();
                    }
                }
                Operation::EmptyCache => allocator.empty_cache(),
                Operation::Capture(capturing) => allocator.set_capturing(capturing),
            }
            check(&allocator, &held);
            prop_assert!(allocator.stats().reserved_bytes.all.current <= device);
        }
        allocator.set_capturing(false);
        for address in std::mem::take(&mut held).into_keys() {
            allocator.free(address).unwrap();
        }
        allocator.retire_pool(private);
        allocator.empty_cache();
        check(&allocator, &held);
        prop_assert_eq!(allocator.segments(), []);
        prop_assert_eq!(allocator.stats().reserved_bytes.all.current, 0);
        prop_assert_eq!(allocator.device().free_bytes(), device);
    }
}
