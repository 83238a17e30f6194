//! The grid of an experiment: how many points it has, and what each one's values are.

use crate::experiment::{Experiment, Located, Origin, Swept};
use crate::protocol::{Axis, Value};

/// Dimensions, the slowest first. Axes that advance together are one dimension, at the place of the first of them.
#[derive(Debug)]
pub(super) struct Grid<'a> {
    dimensions: Vec<Vec<&'a Swept>>,
}

impl<'a> Grid<'a> {
    /// The grid of an experiment whose zipped axes are of equal length, as reading it ensures.
    pub(super) fn new(experiment: &'a Experiment) -> Self {
        let mut dimensions: Vec<Vec<&Swept>> = Vec::new();
        for swept in &experiment.sweep {
            let group = experiment.zips.iter().find(|group| group.iter().any(|zipped| zipped.value == swept.axis));
            let together =
                |other: &&Swept| group.is_some_and(|group| group.iter().any(|zipped| zipped.value == other.axis));
            match dimensions.iter_mut().find(|dimension| dimension.first().is_some_and(together)) {
                Some(dimension) => dimension.push(swept),
                None => dimensions.push(vec![swept]),
            }
        }
        Self { dimensions }
    }

    /// How many points; null beyond 64 bits. One without a `[sweep]`, which is the base.
    pub(super) fn size(&self) -> Option<u64> {
        self.dimensions.iter().try_fold(1_u64, |size, dimension| size.checked_mul(length(dimension)))
    }

    /// Writes the values of a point over those of the base.
    pub(super) fn put(&self, point: u64, values: &mut [Value; Axis::COUNT]) {
        for (swept, value) in self.at(point) {
            values[swept.axis as usize].clone_from(&value.value);
        }
    }

    /// The point in words.
    pub(super) fn describe(&self, point: u64) -> String {
        let mut values: Vec<(&Swept, &Located<Value>)> = self.at(point).collect();
        values.reverse();
        super::in_words(values.into_iter().map(|(swept, value)| (swept.axis, &value.value)))
    }

    /// Where the value of an axis at a point is written; null if the grid does not vary it.
    pub(super) fn origin(&self, point: u64, axis: Axis) -> Option<Origin> {
        let (swept, value) = self.at(point).find(|(swept, _)| swept.axis == axis)?;
        Some(match &swept.typed {
            Some(source) => Origin::CommandLine(source.clone(), value.span.clone()),
            None => Origin::File(value.span.clone()),
        })
    }

    /// The axes with their values at a point, the fastest first.
    fn at(&self, point: u64) -> impl Iterator<Item = (&'a Swept, &'a Located<Value>)> + '_ {
        let mut rest = point;
        self.dimensions.iter().rev().flat_map(move |dimension| {
            let digit = rest % length(dimension);
            rest /= length(dimension);
            let digit = usize::try_from(digit).unwrap_or(usize::MAX);
            dimension.iter().rev().filter_map(move |swept| Some((*swept, swept.values.get(digit)?)))
        })
    }
}

/// At least one: reading refuses an axis without values.
fn length(dimension: &[&Swept]) -> u64 {
    dimension.first().map_or(1, |swept| swept.values.len() as u64).max(1)
}
