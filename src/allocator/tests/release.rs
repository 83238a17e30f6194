//! What is collected, released and unmapped, in which order, and where expandable segments grow.

use super::*;

/// Segment entries since the history began: what happened, and to how many MiB.
fn segment_entries(allocator: &CachingAllocator<VirtualDevice>) -> Vec<(&'static str, u64)> {
    let entries = allocator.history().unwrap().entries().filter(|entry| entry.action.is_of_segment());
    entries.map(|entry| (entry.action.name(), entry.size / MIB)).collect()
}

fn recording(settings: &str, limit: Option<u64>) -> CachingAllocator<VirtualDevice> {
    let mut allocator = allocator(settings, limit);
    allocator.set_history(Some(History::new(1000, || 0)));
    allocator
}

/// `garbage_collect_cached_blocks`: whole large blocks at least as old as the mean are released, pass by pass, until
/// what is above the threshold is back. The clock of a block's age is the number of searches of its pool.
#[test]
fn garbage_is_collected_by_age() {
    let mut allocator = recording("garbage_collection_threshold:0.5", Some(200 * MIB));
    let [older, younger, _] = [10, 12, 30].map(|size| allocator.malloc(size * MIB, 0).unwrap());
    allocator.free(older).unwrap();
    allocator.malloc(14 * MIB, 0).unwrap();
    allocator.free(younger).unwrap();
    allocator.malloc(16 * MIB, 0).unwrap();
    allocator.malloc(26 * MIB, 0).unwrap();
    assert_eq!(allocator.stats().num_device_free, 0, "the threshold was not passed before this request");
    // 108 MiB of 100: the ages are 4 and 3, and what is older than 3.5 is enough.
    allocator.malloc(18 * MIB, 0).unwrap();
    assert_eq!(segment_entries(&allocator)[6..], [("segment_free", 10), ("segment_alloc", 18)]);
    // 116 MiB of 100: the one that is left is as old as the mean, and after it there is none.
    allocator.malloc(20 * MIB, 0).unwrap();
    assert_eq!(segment_entries(&allocator)[8..], [("segment_free", 12), ("segment_alloc", 20)]);
    assert_eq!((allocator.stats().num_alloc_retries, allocator.stats().num_sync_all_streams), (0, 0));
}

/// A request of the small pool collects too; its searches do not age the blocks of the large pool.
#[test]
fn any_request_that_finds_nothing_collects() {
    let mut allocator = recording("garbage_collection_threshold:0.5", Some(100 * MIB));
    let [block, _] = [22, 30].map(|size| allocator.malloc(size * MIB, 0).unwrap());
    allocator.free(block).unwrap();
    allocator.malloc(100, 0).unwrap();
    assert_eq!(segment_entries(&allocator)[2..], [("segment_free", 22), ("segment_alloc", 2)]);
}

/// `release_available_cached_blocks` takes the largest blocks that may not be split, until they are as much as wanted.
#[test]
fn oversize_blocks_are_released_from_the_largest_down() {
    let mut allocator = recording("max_split_size_mb:20", Some(100 * MIB));
    for block in [24, 26, 30].map(|size| allocator.malloc(size * MIB, 0).unwrap()) {
        allocator.free(block).unwrap();
    }
    allocator.malloc(54 * MIB, 0).unwrap();
    assert_eq!(
        segment_entries(&allocator)[3..],
        [("segment_free", 30), ("segment_free", 26), ("segment_alloc", 54)],
        "30 and 26 MiB are enough"
    );
    assert_eq!(allocator.stats().num_alloc_retries, 0);
    assert_eq!((allocator.stats().oversize_segments.current, allocator.stats().oversize_allocations.current), (2, 1));
}

/// One block that is large enough is released alone: the smallest of them, which was too large to serve.
#[test]
fn one_oversize_block_is_released_where_it_is_enough() {
    let mut allocator = recording("max_split_size_mb:20", Some(130 * MIB));
    for block in [52, 60].map(|size| allocator.malloc(size * MIB, 0).unwrap()) {
        allocator.free(block).unwrap();
    }
    // get_free_block: a block of at least request + max_non_split_rounding is too large.
    allocator.malloc(32 * MIB, 0).unwrap();
    assert_eq!(segment_entries(&allocator)[2..], [("segment_free", 52), ("segment_alloc", 32)]);
    allocator.malloc(41 * MIB, 0).unwrap();
    assert_eq!(allocator.stats().segment.all.current, 2, "60 MiB serve 41");
}

/// `release_cached_blocks`: the large pool before the small one, each by stream, size and address, and the retry counts.
#[test]
fn everything_cached_is_released_in_order() {
    let mut allocator = recording("", Some(70 * MIB));
    let blocks = [(100, 0), (12 * MIB, 7), (10 * MIB, 7), (14 * MIB, 0)];
    for block in blocks.map(|(size, stream)| allocator.malloc(size, stream).unwrap()) {
        allocator.free(block).unwrap();
    }
    allocator.malloc(64 * MIB, 0).unwrap();
    assert_eq!(
        segment_entries(&allocator)[4..],
        [("segment_free", 14), ("segment_free", 10), ("segment_free", 12), ("segment_free", 2), ("segment_alloc", 64)]
    );
    let stats = allocator.stats();
    assert_eq!((stats.num_alloc_retries, stats.num_sync_all_streams, stats.num_device_free), (1, 1, 4));
}

/// `try_allocate_expandable_block` maps what is missing, in whole pages; `unmap_block` takes whole pages only.
#[test]
fn ranges_grow_and_shrink_by_pages() {
    let mut allocator = recording("expandable_segments:True", None);
    let first = allocator.malloc(8 * MIB, 0).unwrap();
    let second = allocator.malloc(40 * MIB, 0).unwrap();
    assert_eq!(second, first + 8 * MIB, "12 MiB were mapped behind the first block, and 28 were missing");
    assert_eq!(segment_entries(&allocator), [("segment_map", 20), ("segment_map", 40)]);
    allocator.free(second).unwrap();
    allocator.empty_cache();
    assert_eq!(segment_entries(&allocator)[2..], [("segment_unmap", 40)], "12 MiB share a page with the first block");
    let stats = allocator.stats();
    assert_eq!((stats.reserved_bytes.all.current, stats.segment.all.peak), (20 * MIB, 0));
    assert_eq!((stats.num_device_alloc, stats.num_device_free, stats.inactive_split.all.allocated), (2, 1, 0));
    let small = allocator.malloc(MIB, 0).unwrap();
    assert!(small.abs_diff(first) > 1 << 30, "the small pool has a range of its own");
    assert_eq!(segment_entries(&allocator)[3..], [("segment_map", 2)]);
}

/// `get_free_block`: of expandable blocks the one that can grow least, although another fits better.
#[test]
fn blocks_that_cannot_grow_are_used_first() {
    let mut allocator = recording("expandable_segments:True", None);
    let first = allocator.malloc(8 * MIB, 0).unwrap();
    allocator.malloc(10 * MIB, 0).unwrap();
    allocator.free(first).unwrap();
    // 2 MiB are free before what is not mapped, and 8 MiB at the start.
    assert_eq!(allocator.malloc(3 * MIB / 2, 0), Ok(first));
}

/// `alloc_block` compares the limit with the size of a segment, whatever has to be mapped.
#[test]
fn the_limit_of_a_range_is_checked_with_a_segment() {
    let mut allocator = recording("expandable_segments:True", Some(34 * MIB));
    allocator.malloc(8 * MIB, 0).unwrap();
    let refused = allocator.malloc(15 * MIB, 0).unwrap_err();
    assert_eq!((refused.segment, refused.allocated, refused.reserved), (16 * MIB, 8 * MIB, 20 * MIB));
    allocator.malloc(13 * MIB, 0).unwrap();
    assert_eq!(allocator.stats().reserved_bytes.all.current, 40 * MIB, "one page more, and beyond the limit");
}
