//! The modelled GPU against reports measured on an H200: those of the exercise's reference script (`tests/data/reference`) and
//! those of memlab's own CUDA runs (`tests/data/h200`), which add presets, batches and precisions that nothing was fitted to.
//!
//! Every report becomes one run of a single allocation-only sweep.
#![cfg(feature = "worker")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use memlab::protocol::{ModelConfig, PlanFile, Report};
use support::Folder;

/// The reports in a folder of tests/data with one rank, by name.
fn recorded(folder: &str) -> BTreeMap<String, Report> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(folder);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let reports = files.map(|path| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, serde_json::from_slice::<Report>(&std::fs::read(path).unwrap()).unwrap())
    });
    reports.filter(|(_, report)| report.world_size == 1).collect()
}

/// Runs what the reports were made with on the modelled GPU, in order.
fn modelled(recorded: &BTreeMap<String, Report>, compute: bool) -> BTreeMap<String, Report> {
    let mut presets: Vec<&ModelConfig> = Vec::new();
    let mut text =
        format!("name = \"h200\"\n[base]\ncase = \"alpha\"\nsteps = 1\ndevice = \"cpu\"\ncompute = {compute}\n");
    for (name, report) in recorded {
        let preset = presets.iter().position(|config| **config == report.model_config).unwrap_or_else(|| {
            presets.push(&report.model_config);
            presets.len() - 1
        });
        writeln!(
            text,
            "[[perturbation]]\nlabel = \"{name}\"\ncase = \"{}\"\npreset = \"p{preset}\"\nbatch_size = {}\nsteps = {}\n\
             precision = \"{}\"\nseed = {}",
            report.case, report.batch_size_per_device, report.steps, report.precision, report.seed
        )
        .unwrap();
        // The reference's reports do not state the limit; their names do.
        if name.contains("limit1024") {
            text.push_str("capacity = \"1GiB\"\n");
        }
    }
    for (index, config) in presets.iter().enumerate() {
        writeln!(text, "[presets.p{index}]\n{}", toml::to_string(config).unwrap()).unwrap();
    }
    let folder = Folder::new();
    folder.write("h200.toml", &text);
    let done = folder.with_real_worker(&["sweep", "h200.toml"]);
    let results = folder.path().join("runs/h200");
    assert!(results.join("plan.json").exists(), "{}", done.stderr);
    let plan: PlanFile = serde_json::from_slice(&std::fs::read(results.join("plan.json")).unwrap()).unwrap();
    let by_label = plan.runs.iter().filter_map(|run| {
        let path: PathBuf = results.join(&run.run_id).join("report.json");
        let report = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        Some((run.label.as_deref()?.to_owned(), report))
    });
    by_label.collect()
}

/// How many samples differ in any of the three quantities of the allocator, by name.
fn differing_samples(
    recorded: &BTreeMap<String, Report>,
    modelled: &BTreeMap<String, Report>,
) -> BTreeMap<String, usize> {
    let counts = recorded.iter().map(|(name, expected)| {
        let (expected, found) = (&expected.rank_reports[0].samples, &modelled[name].rank_reports[0].samples);
        assert_eq!(expected.len(), found.len(), "{name}: number of samples");
        let differ = expected.iter().zip(found).filter(|(e, f)| {
            [e.allocated_mib, e.reserved_mib, e.peak_allocated_mib].map(f64::to_bits)
                != [f.allocated_mib, f.reserved_mib, f.peak_allocated_mib].map(f64::to_bits)
        });
        (name.clone(), differ.count())
    });
    counts.filter(|(_, count)| *count > 0).collect()
}

/// The relative difference of each indicator and of the final reserved memory, largest first.
fn largest_difference(expected: &Report, found: &Report) -> f64 {
    let numbers = |report: &Report| {
        let rank = &report.rank_reports[0];
        let i = &rank.indicators;
        [
            i.between_step_growth_mib,
            i.first_step_persistent_change_mib,
            i.largest_forward_increase_mib,
            i.maximum_peak_allocated_mib,
            rank.samples.last().map(|sample| sample.reserved_mib),
        ]
    };
    let pairs = numbers(expected).into_iter().zip(numbers(found));
    let differences = pairs.filter_map(|(e, f)| Some(((e? - f?).abs(), e?.abs())));
    // Half a MiB is nothing, whatever it is relative to.
    differences.filter(|(difference, _)| *difference > 0.5).map(|(d, e)| d / e.max(0.5)).fold(0.0, f64::max)
}

#[test]
fn every_sample_of_the_reference_is_equal_to_the_byte() {
    let recorded = recorded("reference");
    assert!(recorded.len() >= 16, "reports are missing");
    let modelled = modelled(&recorded, false);
    assert_eq!(differing_samples(&recorded, &modelled), BTreeMap::new());
}

#[test]
fn unseen_presets_batches_and_precisions_are_held_to_the_same_bounds() {
    let recorded = recorded("h200");
    assert!(recorded.len() >= 180, "reports are missing");
    let modelled = modelled(&recorded, false);
    let differing = differing_samples(&recorded, &modelled);
    assert!(
        differing.len() * 50 <= recorded.len(),
        "more than one report in 50 has a sample that differs: {differing:?}"
    );
    for (name, expected) in &recorded {
        let difference = largest_difference(expected, &modelled[name]);
        let bound = if name.contains("bf16") { 0.01 } else { 0.002 };
        assert!(difference <= bound, "{name}: an indicator differs by {difference}");
    }
}

#[test]
fn a_computing_run_has_the_same_samples_and_the_gpus_loss() {
    let mut recorded = recorded("reference");
    recorded.retain(|name, _| matches!(name.as_str(), "alpha-small-b1-s6-fp32" | "gamma-small-b2-s3-fp32"));
    assert_eq!(recorded.len(), 2);
    let modelled = modelled(&recorded, true);
    assert_eq!(differing_samples(&recorded, &modelled), BTreeMap::new());
    for (name, expected) in &recorded {
        let (expected, found) = (expected.final_loss_rank_zero.unwrap(), modelled[name].final_loss_rank_zero.unwrap());
        assert!((expected - found).abs() <= 1e-5 * expected, "{name}: the loss is {found}, on the GPU {expected}");
    }
}
