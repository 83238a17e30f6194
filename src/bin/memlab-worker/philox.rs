//! The integers that CUDA's generator draws, without CUDA: a CPU run trains on the batch that the GPU would have.
//!
//! Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), addressed as `PyTorch` 2.11 does in
//! `aten/src/ATen/native/cuda/DistributionTemplates.h` (`calc_execution_policy`, `random_from_to`): thread `i` is
//! subsequence `i`, draws four words at a time, and fills elements `i`, `i + threads`, `i + 2 threads`, `i + 3 threads`.

/// A CUDA generator seeded like `torch.Generator(device="cuda").manual_seed(seed)`.
#[derive(Debug, Clone)]
pub(crate) struct CudaGenerator {
    seed: u64,
    /// Words that each thread has drawn so far.
    offset: u64,
    /// Threads that the GPU runs at once, which bounds the grid.
    resident_threads: u64,
}

const BLOCK: u64 = 256;
const WORDS: u64 = 4;

impl CudaGenerator {
    /// A generator on a GPU with that many multiprocessors of that many threads.
    pub(crate) fn new(seed: u64, multiprocessors: u64, threads_per_multiprocessor: u64) -> Self {
        let resident_threads = multiprocessors * (threads_per_multiprocessor / BLOCK) * BLOCK;
        Self { seed, offset: 0, resident_threads }
    }

    /// `count` integers of `0..high`, as `torch.randint(high, ...)` gives them. `high` is below 2^32: from there on the generator draws two words a number.
    pub(crate) fn integers(&mut self, high: u64, count: usize) -> Vec<i64> {
        let mut values = vec![0; count];
        if count == 0 {
            return values;
        }
        let threads = (count as u64).div_ceil(BLOCK).saturating_mul(BLOCK).min(self.resident_threads);
        let rounds = (count as u64).div_ceil(threads * WORDS);
        for round in 0..rounds {
            for thread in 0..threads {
                let words = philox([self.offset / WORDS + round, thread], self.seed);
                for (word, value) in words.into_iter().enumerate() {
                    let element = thread + threads * (word as u64 + WORDS * round);
                    let place = usize::try_from(element).ok().and_then(|element| values.get_mut(element));
                    if let Some(place) = place {
                        *place = i64::try_from(u64::from(value) % high).unwrap_or(i64::MAX);
                    }
                }
            }
        }
        self.offset += rounds * WORDS;
        values
    }
}

/// Ten rounds over the counter `[low, high]`, each of 64 bits.
fn philox(counter: [u64; 2], key: u64) -> [u32; 4] {
    const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let [mut c0, mut c1] = halves(counter[0]);
    let [mut c2, mut c3] = halves(counter[1]);
    let [mut k0, mut k1] = halves(key);
    for _ in 0..10 {
        let [low0, high0] = halves(u64::from(MULTIPLIERS[0]) * u64::from(c0));
        let [low1, high1] = halves(u64::from(MULTIPLIERS[1]) * u64::from(c2));
        [c0, c1, c2, c3] = [high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0];
        k0 = k0.wrapping_add(WEYL[0]);
        k1 = k1.wrapping_add(WEYL[1]);
    }
    [c0, c1, c2, c3]
}

/// Low and high 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "the truncation is the point")]
fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of the reference implementation (Random123, `kat_vectors`, philox4x32 with 10 rounds).
    #[test]
    fn known_answers() {
        assert_eq!(philox([0, 0], 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u64::MAX; 2], u64::MAX), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }

    #[test]
    fn a_second_draw_goes_on_where_the_first_ended() {
        let mut generator = CudaGenerator::new(7, 132, 2048);
        let first = generator.integers(16, 5);
        let second = generator.integers(16, 5);
        assert_ne!(first, second);
        assert!(first.iter().chain(&second).all(|value| (0..16).contains(value)));
    }

    #[test]
    fn more_elements_than_threads() {
        let mut generator = CudaGenerator::new(7, 1, 256);
        let values = generator.integers(1 << 32, 3000);
        let distinct: std::collections::BTreeSet<_> = values.iter().collect();
        assert_eq!(distinct.len(), 3000, "2^32 values: a repeat among 3000 would be a wrong index");
    }
}
