//! Rules of the algorithm one by one.

use super::*;

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
    assert_eq!(
        allocator.malloc(1 << 60, 0).unwrap_err().to_string(),
        refused.to_string(),
        "NativeCachingAllocator::allocate"
    );
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

/// `try_mempool_fallback` returns at once for a request of any private pool.
#[test]
fn private_pools_do_not_help_each_other_out() {
    let mut allocator = allocator("", Some(2 * MIB));
    let spare = allocator.create_pool(PoolOptions { use_on_oom: true, ..PoolOptions::default() });
    let other = allocator.create_pool(PoolOptions::default());
    let block = allocator.malloc_in(spare, 100, 0).unwrap();
    allocator.free(block).unwrap();
    assert!(allocator.malloc_in(other, 100, 0).is_err());
    assert_eq!(allocator.malloc(100, 0), Ok(block));
}

/// `is_expandable_segments_active` is false for a pool with an allocator of its own: its large blocks are split as if
/// there were no expandable segments (`should_split`), and so are blocks that another pool lends (`try_mempool_fallback`).
#[test]
fn pools_with_an_allocator_of_their_own_split_as_ordinary_segments_do() {
    let mut allocator = allocator("expandable_segments:True", Some(40 * MIB));
    let own = PoolOptions { own_allocator: true, use_on_oom: true, ..PoolOptions::default() };
    let pool = allocator.create_pool(own);
    let block = allocator.malloc_in(pool, 19 * MIB, 0).unwrap();
    assert_eq!(allocator.block_size(block), Some(20 * MIB), "a rest of 1 MiB is not worth keeping");
    assert_eq!(allocator.stats().segment.all.current, 1);
    allocator.free(block).unwrap();
    let expandable = allocator.malloc(20 * MIB, 0).unwrap();
    assert_eq!(allocator.stats().segment.all.current, 1, "a range is no segment");
    let lent = allocator.malloc(19 * MIB, 0).unwrap();
    assert_eq!((lent, allocator.block_size(lent)), (block, Some(20 * MIB)));
    let rest = allocator.malloc(512, 0);
    assert!(rest.is_err(), "no small segment fits any more");
    allocator.free(expandable).unwrap();
}

/// A bound on splitting below the size of the segments that small requests share: `PyTorch` accepts it in this order.
#[test]
fn parts_of_a_segment_are_never_given_back() {
    let mut allocator = allocator("max_split_size_mb:32,large_segment_size_mb:64", Some(100 * MIB));
    let part = allocator.malloc(2 * MIB, 0).unwrap();
    assert!(allocator.malloc(40 * MIB, 0).is_err(), "62 MiB are free, of which nothing can be given back");
    assert_eq!(allocator.stats().num_device_free, 0);
    allocator.free(part).unwrap();
    allocator.malloc(40 * MIB, 0).unwrap();
    assert_eq!(allocator.stats().num_device_free, 1);
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
