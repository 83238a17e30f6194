//! Samples to indicators: four numbers, in MiB, that say what kind of change a run shows.
//!
//! The baseline before training is the sample `after_input`; the baseline before step `n > 0` is the preceding step's
//! `after_clear_gradients`.

use crate::protocol::{Indicators, Phase, Sample};

/// Derives what the samples allow; an indicator whose samples are missing, or not finite, is null.
pub fn derive(samples: &[Sample]) -> Indicators {
    let at = |step: i64, phase: Phase| {
        samples
            .iter()
            .find(|sample| sample.step == step && sample.phase == phase)
            .map(|sample| sample.allocated_mib)
            .filter(|value| value.is_finite())
    };
    let difference = |later: Option<f64>, earlier: Option<f64>| Some(later? - earlier?);
    let before_training = at(-1, Phase::AfterInput);
    let last =
        samples.iter().filter(|sample| sample.phase == Phase::AfterClearGradients).map(|sample| sample.step).max();
    let forward_increases = samples.iter().filter(|sample| sample.phase == Phase::AfterForward).map(|sample| {
        let baseline = match sample.step {
            0 => before_training,
            step => at(step - 1, Phase::AfterClearGradients),
        };
        difference(at(sample.step, Phase::AfterForward), baseline)
    });
    Indicators {
        between_step_growth_mib: last
            .and_then(|last| difference(at(last, Phase::AfterClearGradients), at(0, Phase::AfterClearGradients))),
        first_step_persistent_change_mib: difference(at(0, Phase::AfterClearGradients), before_training),
        largest_forward_increase_mib: largest(forward_increases),
        maximum_peak_allocated_mib: largest(
            samples.iter().map(|sample| Some(sample.peak_allocated_mib).filter(|value| value.is_finite())),
        ),
    }
}

/// The largest of the values; null if there are none, or if one of them is missing or not finite.
fn largest(mut values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let first = values.next()??;
    values.try_fold(first, |largest, value| Some(largest.max(value?))).filter(|value| value.is_finite())
}
