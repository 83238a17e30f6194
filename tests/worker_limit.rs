//! The largest value that fits, with the real worker on the modelled GPU.
#![cfg(feature = "worker")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod support;

use std::path::Path;

use support::{Done, Folder};

fn limit(folder: &Folder, experiment: &str, more: &[&str]) -> Done {
    let experiment = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments").join(experiment);
    let args = ["limit", experiment.to_str().unwrap(), "--device", "cpu", "--format", "json"];
    let args: Vec<&str> = args.into_iter().chain(more.iter().copied()).collect();
    folder.with_real_worker(&args)
}

/// The rows of the values that were tried, by value.
fn rows(done: &Done) -> Vec<(u64, serde_json::Value)> {
    let rows: Vec<serde_json::Value> = serde_json::from_str(&done.stdout).unwrap();
    rows.into_iter().map(|row| (row["batch_size"].as_u64().unwrap(), row)).collect()
}

/// The largest value that fits, where the next one was refused.
fn found(rows: &[(u64, serde_json::Value)]) -> u64 {
    let (fits, _) = rows.iter().rfind(|(_, row)| row["outcome"] == "ok").unwrap();
    assert!(rows.iter().any(|(value, row)| *value == fits + 1 && row["outcome"] == "oom"), "{rows:?}");
    *fits
}

#[test]
fn the_limit_recorded_on_an_h200_is_found() {
    let folder = Folder::new();
    let done = limit(&folder, "alpha_batch.toml", &["--axis", "batch_size", "--capacity", "1GiB"]).expect(0);
    let rows = rows(&done);
    assert_eq!(found(&rows), 32);
    let (_, row) = rows.iter().find(|(value, _)| *value == 32).unwrap();
    assert!(row["margin_mib"].as_f64().unwrap() >= 0.0 && row["compute"] == "false", "{row}");
}

#[test]
fn a_model_far_larger_than_this_machine_is_asked_about() {
    let folder = Folder::new();
    let done = limit(&folder, "forecast_7b.toml", &["--axis", "batch_size"]).expect(0);
    let rows = rows(&done);
    let fits = found(&rows);
    let (_, row) = rows.iter().find(|(value, _)| *value == fits).unwrap();
    // More than any machine that runs this test is likely to have free.
    assert!(row["maximum_peak_allocated_mib"].as_f64().unwrap() > 40_000.0, "{row}");
    assert!(row["reserved_mib"].as_f64().unwrap() <= 80.0 * 1024.0, "{row}");
    assert!(row["gpu_name"].as_str().unwrap().ends_with("(modelled)"), "{row}");
}
