//! A random part of a list, the same for the same seed on every machine.

/// Which of `total` to keep so that `count` are kept: every choice is equally likely.
pub(super) fn choose(total: usize, count: usize, seed: u64) -> Vec<bool> {
    let mut state = seed;
    let mut open = count.min(total);
    (0..total)
        .map(|at| {
            // Knuth's algorithm S: each is kept with the chance that the rest still has to provide.
            let left = (total - at) as u64;
            let keep = below(&mut state, left) < open as u64;
            open -= usize::from(keep);
            keep
        })
        .collect()
}

/// A number below a bound, by the high half of a product: the bias is below `bound / 2^64`.
fn below(state: &mut u64, bound: u64) -> u64 {
    let product = u128::from(next(state)) * u128::from(bound);
    u64::try_from(product >> 64).unwrap_or(0)
}

/// The generator `SplitMix64`.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keeps_as_many_as_asked(total in 0_usize..500, count in 0_usize..600, seed: u64) {
            let kept = choose(total, count, seed);
            prop_assert_eq!(kept.len(), total);
            prop_assert_eq!(kept.iter().filter(|keep| **keep).count(), count.min(total));
            prop_assert_eq!(kept, choose(total, count, seed));
        }
    }

    #[test]
    fn every_place_is_drawn_about_as_often() {
        let mut drawn = [0_u32; 10];
        for seed in 0..2_000 {
            for (count, keep) in drawn.iter_mut().zip(choose(10, 3, seed)) {
                *count += u32::from(keep);
            }
        }
        assert!(drawn.iter().all(|count| (500..700).contains(count)), "{drawn:?}");
    }
}
