//! Settings: what is read, what is refused, what does nothing.

use super::{KIB, MIB};
use crate::allocator::Settings;

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
    // parseRoundUpPower2Divisions fills from `last_index + 1`, and `last_index` is 0 where no boundary came before.
    let settings = Settings::parse("roundup_power2_divisions:[>:4]").unwrap();
    assert_eq!(settings.roundup_power2_divisions[0], 0);
    assert_eq!(settings.roundup_power2_divisions[1..], [4; 15]);
    // The last interval is 32 GiB and above; a boundary beyond it means it too.
    let settings = Settings::parse("roundup_power2_divisions:[65536:2,>:8]").unwrap();
    assert_eq!(settings.roundup_power2_divisions, [2; 16]);
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
            "pinned_num_register_threads:256",
            "pinned_reserve_segment_size_mb:0",
            "graph_capture_record_stream_reuse:1",
        ]
        .map(error)
        .join("\n"),
        @r"
        CachingAllocator option max_split_size_mb too small, must be >= 20 at `19`
        expected a whole number for max_split_size_mb but got 'many' at `many`
        expected ':' but the text ends at ``
        unrecognized key 'max_split_size' in CUDA allocator config at `max_split_size` (did you mean `max_split_size_mb`?)
        CachingAllocator option large_segment_size_mb must be > 10 MB at `10`
        CachingAllocator option max_split_size_mb too small, must be >= 32 at `31`
        garbage_collect_threshold is invalid, set it in (0.0, 1.0) at `1.0`
        garbage_collect_threshold is invalid, set it in (0.0, 1.0) at `-0.5`
        for roundups, the divisions has to be power of 2 at `3`
        for roundups, the intervals have to be power of 2 at `3`
        for roundups, the divisions has to be power of 2 or 0 to disable roundup at `3`
        expected ',' but the text ends at ``
        expected ',' but got '8' at `8`
        expected 'True' or 'False' for expandable_segments but got 'true' at `true`
        expected 'True' or 'False' for expandable_segments but got 'True;max_split_size_mb' at `True;max_split_size_mb`
        backend cudaMallocAsync is the driver's own allocator, which is not modelled at `cudaMallocAsync` (leave it out, or set backend:native)
        unknown allocator backend, options are native and cudaMallocAsync at `other`
        per_process_memory_fraction is invalid, set it in [0.0, 1.0] at `1.5`
        number of register threads has to be power of 2, got 3 at `3`
        number of register threads should be less than or equal to 128, got 256 at `256`
        pinned reserve segment size has to be greater than 0 at `0`
        expected 'True' or 'False' for graph_capture_record_stream_reuse but got '1' at `1`
        "
    );
}

#[test]
fn white_space_and_neutral_keys_are_read() {
    let settings = Settings::parse(
        " max_split_size_mb : 64 , expandable_segments:True, backend:native, pinned_use_cuda_host_register:True,\
         release_lock_on_cudamalloc:False, pinned_num_register_threads:8,pinned_reserve_segment_size_mb:64,\
         pinned_use_background_threads:True,graph_capture_record_stream_reuse:True,per_process_memory_fraction:0.5,\
         release_lock_on_hipmalloc:True,pinned_use_hip_host_register:False,large_segment_size_mb:32,",
    )
    .unwrap();
    assert_eq!((settings.max_split_size, settings.large_segment_size), (64 * MIB, 32 * MIB));
    assert!(settings.expandable_segments);
    assert_eq!(Settings::parse("").unwrap(), Settings::default());
}

#[test]
fn settings_that_do_nothing_are_named() {
    let count = |text: &str, limited| Settings::parse(text).unwrap().without_effect(limited).len();
    assert_eq!(count("garbage_collection_threshold:0.5", false), 1);
    assert_eq!(count("garbage_collection_threshold:0.5", true), 0);
    assert_eq!(count("garbage_collection_threshold:0.5,expandable_segments:True", true), 1);
    assert_eq!(count("roundup_power2_divisions:1", true), 1);
    assert_eq!(count("max_non_split_rounding_mb:64", true), 1);
    assert_eq!(count("max_non_split_rounding_mb:64,max_split_size_mb:64", true), 0);
}
