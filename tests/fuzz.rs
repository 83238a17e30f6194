//! Fuzz targets that stable Rust runs: the snapshot reader with whatever is replayed from it, and the allocator model.
//!
//! A target takes bytes and may do anything but panic or break an invariant. As tests they get a few hundred inputs, the same
//! ones every time; `MEMLAB_FUZZ_ROUNDS=1000000 cargo nextest run --no-default-features --release --test fuzz` goes on for longer,
//! and `MEMLAB_FUZZ_SEED` elsewhere. An input that fails is kept in the folder that the message names.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use memlab::allocator::{BlockState, CachingAllocator, PoolId, PoolOptions, Settings, Stats, VirtualDevice};
use memlab::snapshot::replay::{recorded, what_if};
use memlab::snapshot::summary::summarise;
use memlab::snapshot::{Limits, read, write};

const MIB: u64 = 1 << 20;

/// Reads, sums up, replays and writes: any bytes are either refused or handled.
fn reader(bytes: &[u8]) {
    let Ok((snapshot, format)) = read(bytes, Limits { bytes: 1 << 22, depth: 100 }) else { return };
    let _ = summarise(&snapshot, format);
    let settings = snapshot.settings.as_ref().map_or_else(Settings::default, |recorded| recorded.settings.clone());
    for device in 0..snapshot.traces.len() {
        if let Ok(replay) = recorded(&snapshot, device, &settings, None) {
            what_if(&replay, Settings { expandable_segments: true, ..Settings::default() }, Some(100 * MIB));
        }
    }
    let mut written = Vec::new();
    write(&snapshot, &mut written).expect("memory takes it");
    let (again, _) = read(written.as_slice(), Limits::default()).expect("what was written is a snapshot");
    assert_eq!(again.segments.len(), snapshot.segments.len());
    assert_eq!(again.traces.concat().len(), snapshot.traces.concat().len());
}

/// Any sequence of calls leaves blocks that tile their segments and counters that add up.
fn model(bytes: &[u8]) {
    const SETTINGS: [&str; 8] = [
        "",
        "expandable_segments:True",
        "max_split_size_mb:20",
        "max_split_size_mb:40,max_non_split_rounding_mb:32",
        "garbage_collection_threshold:0.3",
        "expandable_segments:True,max_split_size_mb:32,garbage_collection_threshold:0.7",
        "roundup_power2_divisions:[1:4,64:8,>:2]",
        "large_segment_size_mb:60,expandable_segments:True",
    ];
    let mut bytes = bytes.iter().map(|byte| u64::from(*byte));
    let mut next = || bytes.next();
    let Some(first) = next() else { return };
    let settings = Settings::parse(SETTINGS[usize::try_from(first % 8).unwrap_or(0)]).expect("the list is right");
    let limit = (first >= 128).then(|| (first - 127) * 4 * MIB);
    let device = 64 * MIB + 8 * MIB * next().unwrap_or(0);
    let mut allocator = CachingAllocator::new(settings, limit, VirtualDevice::new(device, 0));
    let pools = [PoolId::DEFAULT, allocator.create_pool(PoolOptions { use_on_oom: true, ..PoolOptions::default() })];
    let mut held: BTreeMap<u64, u64> = BTreeMap::new();
    while let (Some(what), Some(detail)) = (next(), next()) {
        let address = held.keys().nth(usize::try_from(detail).unwrap_or(0) % held.len().max(1)).copied();
        match what % 16 {
            0..=6 => {
                let shift = (what >> 4) * 26 / 16;
                let size = (detail << shift) + next().unwrap_or(0);
                let pool = pools[usize::from(what % 16 == 6)];
                if let Ok(address) = allocator.malloc_in(pool, size, detail % 3)
                    && address != 0
                {
                    assert_eq!(held.insert(address, size), None, "an address was handed out twice");
                }
            }
            7..=12 => {
                if let Some(address) = address {
                    held.remove(&address);
                    allocator.free(address).expect("it is held");
                }
            }
            13 => {
                if let Some(address) = address {
                    allocator.record_stream(address, what >> 4).expect("it is held");
                }
            }
            14 => {
                let waiting: Option<u64> = allocator.pending().next();
                if let Some(address) = waiting {
                    allocator.complete_free(address).expect("it waits");
                }
            }
            _ if what < 128 => allocator.empty_cache(),
            _ => allocator.set_capturing(detail >= 128),
        }
    }
    check(&allocator, &held);
    allocator.set_capturing(false);
    for address in held.into_keys() {
        allocator.free(address).expect("it is held");
    }
    allocator.retire_pool(pools[1]);
    allocator.empty_cache();
    assert_eq!(allocator.segments(), []);
    assert_eq!(allocator.stats().reserved_bytes.all.current, 0);
}

fn check(allocator: &CachingAllocator<VirtualDevice>, held: &BTreeMap<u64, u64>) {
    let mut counted = [0; 5];
    for segment in allocator.segments() {
        let mut at = segment.address;
        counted[0] += segment.total_size;
        for block in &segment.blocks {
            assert_eq!(block.address, at, "the blocks tile the segment");
            at += block.size;
            match block.state {
                BlockState::ActiveAllocated => {
                    assert_eq!(held.get(&block.address), Some(&block.requested_size));
                    counted[1] += block.size;
                    counted[4] += 1;
                }
                BlockState::Inactive if segment.blocks.len() > 1 && !segment.is_expandable => counted[3] += block.size,
                BlockState::ActivePendingFree | BlockState::Inactive => {}
            }
            counted[2] += if block.state == BlockState::Inactive { 0 } else { block.size };
        }
        assert_eq!(at, segment.address + segment.total_size);
    }
    let Stats { reserved_bytes, allocated_bytes, active_bytes, inactive_split_bytes, allocation, .. } =
        allocator.stats();
    let stats = [reserved_bytes, allocated_bytes, active_bytes, inactive_split_bytes, allocation];
    assert_eq!(counted, stats.map(|stat| stat.all.current));
}

/// A small generator: the same inputs on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap_or(0)
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("MEMLAB_FUZZ_... has to be a number"))
}

fn fuzz(target: fn(&[u8]), seeds: &[Vec<u8>]) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ number("MEMLAB_FUZZ_SEED", 0));
    for _ in 0..number("MEMLAB_FUZZ_ROUNDS", 300) {
        let seed = &seeds[random.below(seeds.len())];
        // Mostly a seed with a few changes, sometimes noise alone.
        let mut input = if random.below(4) == 0 { Vec::new() } else { seed.clone() };
        for _ in 0..=random.below(8) {
            let at = random.below(input.len() + 1);
            let length = random.below(24);
            match random.below(4) {
                0 => drop(input.drain(at..(at + length).min(input.len()))),
                1 => {
                    let noise: Vec<u8> = (0..length * 8).map(|_| random.next().to_le_bytes()[3]).collect();
                    input.splice(at..at, noise);
                }
                2 => {
                    let from = random.below(input.len() + 1);
                    let copy = input[from..(from + length).min(input.len())].to_vec();
                    input.splice(at..at, copy);
                }
                _ => {
                    if let Some(byte) = input.get_mut(at) {
                        *byte = random.next().to_le_bytes()[5];
                    }
                }
            }
        }
        if catch_unwind(AssertUnwindSafe(|| target(&input))).is_err() {
            let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
            let kept = folder.join(format!("failed-{:016x}", random.next()));
            std::fs::write(&kept, &input).expect("the folder takes it");
            panic!("the input in {} fails", kept.display());
        }
    }
}

/// A short snapshot of everything that one can hold.
fn small_snapshot() -> Vec<u8> {
    use memlab::allocator::History;
    use memlab::snapshot::{Frame, Snapshot};
    let settings = Settings::parse("expandable_segments:True").expect("it is right");
    let mut snapshot = Snapshot::new("expandable_segments:True", settings.clone());
    let frame = snapshot.contexts.frame(Frame { name: "f".to_owned(), filename: "a.py".to_owned(), line: 3 });
    let (stack, note) = (snapshot.contexts.stack(&[frame]), snapshot.contexts.note("forward"));
    for (device, settings) in [Settings::default(), settings].into_iter().enumerate() {
        let mut allocator = CachingAllocator::new(settings, Some(50 * MIB), VirtualDevice::new(1 << 30, 0));
        allocator.set_history(Some(History::new(60, || 7)));
        let blocks: Vec<_> = (1..30).map(|size| allocator.malloc(size << 17, size % 2)).collect();
        for (index, block) in blocks.into_iter().flatten().enumerate().skip(3) {
            if index % 3 == 0 {
                allocator.record_stream(block, 9).expect("it is held");
            }
            allocator.free(block).expect("it is held");
        }
        allocator.empty_cache();
        snapshot.add_device(device, &allocator, |_| (stack, note));
    }
    let mut bytes = Vec::new();
    write(&snapshot, &mut bytes).expect("memory takes it");
    bytes
}

#[test]
fn the_reader_takes_any_bytes() {
    let json =
        br#" {"segments": [{"address": 512, "total_size": 2097152, "blocks": [{"size": 512, "state": "inactive"}]}],
        "device_traces": [[{"action": "alloc", "addr": 1, "size": 2, "frames": [{"name": "f", "line": 1.5}]}]]}"#;
    fuzz(
        reader,
        &[
            small_snapshot(),
            json.to_vec(),
            b"\x80\x04]q\x00(K\x01J\xff\xff\xff\xff\x8a\x01\x7f}X\x01\x00\x00\x00a]s\x85e.".to_vec(),
        ],
    );
}

#[test]
fn the_model_takes_any_calls() {
    let mut random = Random(1);
    let seeds: Vec<Vec<u8>> = (0..8).map(|_| (0..1200).map(|_| random.next().to_le_bytes()[2]).collect()).collect();
    fuzz(model, &seeds);
}
