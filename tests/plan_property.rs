//! The plan of any experiment is what a simple reference makes of it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use memlab::experiment;
use memlab::plan::{Host, expand};
use memlab::protocol::{Axis, DeviceKind, Value};
use proptest::prelude::*;

const AXES: [&str; 4] = ["seed", "steps", "batch_size", "rank_zero_extra_samples"];

/// Values by axis, as an index into [`AXES`].
type Point = BTreeMap<usize, u64>;

/// An experiment over [`AXES`].
#[derive(Debug, Clone)]
struct Model {
    base: Point,
    /// Dimensions: the axes that advance together, and their values.
    grid: Vec<(Vec<usize>, Vec<Vec<u64>>)>,
    excludes: Vec<Point>,
    cumulative: bool,
    perturbations: Vec<Point>,
}

/// The reference: everything that the language means, and nothing that is quick.
fn reference(model: &Model) -> Vec<Point> {
    let over = |point: &Point, change: &Point| -> Point {
        point.iter().chain(change).map(|(axis, value)| (*axis, *value)).collect()
    };
    let mut points = if model.grid.is_empty() { Vec::new() } else { vec![model.base.clone()] };
    for (axes, rows) in &model.grid {
        let change = |row: &Vec<u64>| -> Point { axes.iter().copied().zip(row.iter().copied()).collect() };
        points = points
            .iter()
            .flat_map(|point| rows.iter().map(|row| over(point, &change(row))).collect::<Vec<_>>())
            .collect();
    }
    if model.grid.is_empty() || !model.perturbations.is_empty() {
        points.push(model.base.clone());
    }
    let mut before = model.base.clone();
    for change in &model.perturbations {
        before = over(if model.cumulative { &before } else { &model.base }, change);
        points.push(before.clone());
    }
    points.retain(|point| !model.excludes.iter().any(|rule| rule.iter().all(|(axis, value)| point[axis] == *value)));
    let mut seen = std::collections::BTreeSet::new();
    points.retain(|point| seen.insert(point.clone()));
    points
}

/// The same experiment as a user writes it.
fn text(model: &Model) -> String {
    let settings = |point: &Point| {
        let lines: Vec<String> = point.iter().map(|(axis, value)| format!("{} = {value}\n", AXES[*axis])).collect();
        lines.concat()
    };
    let zips = model.grid.iter().filter(|(axes, _)| axes.len() > 1);
    let zips: Vec<Vec<&str>> = zips.map(|(axes, _)| axes.iter().map(|axis| AXES[*axis]).collect()).collect();
    let perturb = if model.cumulative { "cumulative" } else { "one_at_a_time" };
    let mut text = format!(
        "name = \"any\"\nzip = {zips:?}\nperturb = \"{perturb}\"\n[base]\ncase = \"beta\"\n{}[sweep]\n",
        settings(&model.base)
    );
    for (axes, rows) in &model.grid {
        for (at, axis) in axes.iter().enumerate() {
            let values: Vec<u64> = rows.iter().map(|row| row[at]).collect();
            writeln!(text, "{} = {values:?}", AXES[*axis]).ok();
        }
    }
    for rule in &model.excludes {
        write!(text, "[[exclude]]\nreason = \"any\"\n{}", settings(rule)).ok();
    }
    for (at, change) in model.perturbations.iter().enumerate() {
        write!(text, "[[perturbation]]\nlabel = \"{at}\"\n{}", settings(change)).ok();
    }
    text
}

fn change() -> impl Strategy<Value = Point> {
    proptest::collection::btree_map(0..AXES.len(), 1_u64..4, 1..3)
}

/// Dimensions over axes in any order, some of them together.
fn grid() -> impl Strategy<Value = Vec<(Vec<usize>, Vec<Vec<u64>>)>> {
    let order = Just(vec![0, 1, 2, 3]).prop_shuffle();
    (order, proptest::collection::vec(1_usize..3, 0..3)).prop_flat_map(|(order, widths)| {
        let mut rest = order.into_iter();
        let dimensions: Vec<_> = widths
            .into_iter()
            .map(|width| {
                let axes: Vec<usize> = rest.by_ref().take(width).collect();
                // One axis has no value twice; several together may have.
                let rows = match axes.len() {
                    1 => proptest::sample::subsequence(vec![1, 2, 3, 4, 5], 1..5)
                        .prop_shuffle()
                        .prop_map(|values| values.into_iter().map(|value| vec![value]).collect())
                        .boxed(),
                    width => proptest::collection::vec(proptest::collection::vec(1_u64..5, width), 1..5).boxed(),
                };
                (Just(axes), rows)
            })
            .collect();
        dimensions
    })
}

fn model() -> impl Strategy<Value = Model> {
    let base =
        proptest::collection::vec(1_u64..4, AXES.len()).prop_map(|values| values.into_iter().enumerate().collect());
    let changes = || proptest::collection::vec(change(), 0..4);
    (base, grid(), changes(), any::<bool>(), changes()).prop_map(|(base, grid, excludes, cumulative, perturbations)| {
        Model {
            base,
            grid: grid.into_iter().filter(|(axes, _)| !axes.is_empty()).collect(),
            excludes,
            cumulative,
            perturbations,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn a_plan_is_what_the_reference_makes_of_it(model in model()) {
        let text = text(&model);
        let experiment = experiment::parse(Path::new("any.toml"), &text).map_err(|problems| {
            TestCaseError::fail(format!("{text}\n{}", problems.iter().map(memlab::render::diagnostic).collect::<String>()))
        })?;
        let planned = expand(&experiment, &Host { device: DeviceKind::Cpu, gpus: 0 });
        let expected = reference(&model);
        let Ok(plan) = planned else {
            prop_assert!(expected.is_empty(), "refused:\n{text}");
            return Ok(());
        };
        let value = |spec, axis: usize| match Axis::named(AXES[axis]).map(|axis| axis.of(spec)) {
            Some(Value::Whole(value)) => value,
            other => panic!("{other:?}"),
        };
        let found: Vec<Point> =
            plan.runs.iter().map(|run| (0..AXES.len()).map(|axis| (axis, value(&run.spec, axis))).collect()).collect();
        prop_assert_eq!(&found, &expected, "{}", text);

        // What an id stands for, and what varies, follow from the runs.
        let ids: std::collections::BTreeSet<&str> = plan.runs.iter().map(|run| run.run_id.as_str()).collect();
        prop_assert_eq!(ids.len(), plan.runs.len());
        for (axis, name) in AXES.iter().enumerate() {
            let differs = found.iter().any(|point| point[&axis] != found[0][&axis]);
            prop_assert_eq!(plan.varied.iter().any(|varied| varied.name() == *name), differs, "{}", name);
        }
    }
}
