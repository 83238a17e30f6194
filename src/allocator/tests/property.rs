//! The invariants after any sequence of operations.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

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
        "max_split_size_mb:32,large_segment_size_mb:64",
    ])
}

fn pool_options() -> impl Strategy<Value = PoolOptions> {
    any::<[bool; 3]>().prop_map(|[no_split, own_allocator, use_on_oom]| PoolOptions {
        no_split,
        own_allocator,
        use_on_oom,
    })
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
        options in pool_options(),
        operations in prop::collection::vec(operation(), 0..300),
    ) {
        let mut allocator =
            CachingAllocator::new(Settings::parse(settings).unwrap(), limit, VirtualDevice::new(device, 0));
        let private = allocator.create_pool(options);
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
