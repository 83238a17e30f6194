//! The allocator model against every history recorded on a real GPU.
//!
//! The recordings are too large for this repository: `MEMLAB_REFERENCE` names the folder that has `h200/traces`. These
//! tests are left out of `make test` by the name of their module.
//! `MEMLAB_REFERENCE=... make test-reference` runs them.
#![expect(clippy::unwrap_used, reason = "a recording that cannot be read fails the test")]

mod needs_reference {

    use std::fs::File;
    use std::path::PathBuf;

    use memlab::allocator::{Action, OutOfMemory, Settings, Stats};
    use memlab::snapshot::replay::{recorded, what_if};
    use memlab::snapshot::{Limits, Snapshot, read};
    use serde_json::Value;

    fn traces() -> PathBuf {
        let folder = std::env::var_os("MEMLAB_REFERENCE").expect(
            "MEMLAB_REFERENCE has to name the folder of the reference measurements, the one with h200/traces in it",
        );
        PathBuf::from(folder).join("h200/traces")
    }

    fn open(name: &str) -> (Snapshot, Value) {
        let file = File::open(traces().join(format!("{name}.pickle"))).unwrap();
        let (snapshot, _) = read(file, Limits::default()).unwrap();
        let stats = File::open(traces().join(format!("{name}.stats.json"))).unwrap();
        (snapshot, serde_json::from_reader(stats).unwrap())
    }

    /// The fraction times the device's memory, cut to whole bytes.
    fn limit(stats: &Value) -> Option<u64> {
        let fraction = stats["fraction"].as_f64().unwrap();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as PyTorch cuts it")]
        let bytes = (fraction * stats["device_total"].as_f64().unwrap()) as u64;
        (fraction > 0.0).then_some(bytes)
    }

    /// Every counter of the recording that the model does not have the same.
    fn differences(stats: &Stats, recorded: &Value) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |name: String, model: u64| {
            let value = recorded[&name].as_u64().unwrap_or_else(|| panic!("the recording has no {name}"));
            if value != model {
                found.push(format!("{name}: {value} recorded, {model} in the model"));
            }
        };
        let mut compare_stat = |name: &str, stat: &memlab::allocator::Stat| {
            compare(format!("{name}.current"), stat.current);
            compare(format!("{name}.peak"), stat.peak);
            compare(format!("{name}.allocated"), stat.allocated);
            compare(format!("{name}.freed"), stat.freed());
        };
        for (name, stat) in stats.pool_stats() {
            compare_stat(&format!("{name}.all"), &stat.all);
            compare_stat(&format!("{name}.small_pool"), &stat.small_pool);
            compare_stat(&format!("{name}.large_pool"), &stat.large_pool);
        }
        compare_stat("oversize_allocations", &stats.oversize_allocations);
        compare_stat("oversize_segments", &stats.oversize_segments);
        compare("num_alloc_retries".to_owned(), stats.num_alloc_retries);
        compare("num_ooms".to_owned(), stats.num_ooms);
        compare("num_sync_all_streams".to_owned(), stats.num_sync_all_streams);
        compare("num_device_alloc".to_owned(), stats.num_device_alloc);
        compare("num_device_free".to_owned(), stats.num_device_free);
        found
    }

    #[test]
    fn every_history_is_reproduced_with_every_counter() {
        let mut names: Vec<String> = std::fs::read_dir(traces())
            .unwrap()
            .filter_map(|file| Some(file.ok()?.file_name().to_str()?.strip_suffix(".pickle")?.to_owned()))
            .collect();
        names.sort();
        assert!(names.len() >= 10, "the reference has ten histories");
        let mut faults = Vec::new();
        for name in names {
            let (snapshot, stats) = open(&name);
            let settings = snapshot.settings.as_ref().unwrap().settings.clone();
            let replay = recorded(&snapshot, 0, &settings, limit(&stats)).unwrap();
            assert!(replay.initial.is_empty(), "{name} begins at process start");
            let differences = differences(&replay.stats, &stats["stats"]);
            if replay.mismatches > 0 || !differences.is_empty() {
                faults
                    .push(format!("{name}: {} mismatches {:#?} {differences:#?}", replay.mismatches, replay.described));
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    const REFUSED: [&str; 3] =
        ["frag-s1-f0.006", "frag-s2-f0.006-expandable_segments_True", "frag-s4-f0.006-max_split_size_mb_24"];

    /// The first messages are written down. What the device has free and who uses it, only the device knows.
    #[test]
    fn refusals_are_put_into_the_same_words_and_numbers() {
        for name in REFUSED {
            let (snapshot, stats) = open(name);
            let settings = snapshot.settings.as_ref().unwrap().settings.clone();
            let refusals = recorded(&snapshot, 0, &settings, limit(&stats)).unwrap().refusals;
            let device_total = stats["device_total"].as_u64().unwrap();
            let recorded = snapshot.traces[0].iter().filter(|entry| entry.action == Action::Oom);
            let messages = stats["oom_messages"].as_array().unwrap();
            assert_eq!(messages.len(), 3, "{name}");
            for ((refused, entry), message) in refusals.iter().zip(recorded).zip(messages) {
                let message = message.as_str().unwrap();
                let users = message.split_once("is free. ").unwrap().1.split_once("858.94 MiB allowed").unwrap().0;
                let refused = OutOfMemory { device_total, device_free: entry.address, ..refused.clone() };
                let said = refused.message(0, users);
                assert!(said.starts_with(message), "{name}: {message}\n{said}");
            }
        }
    }

    #[test]
    fn a_limit_is_inferred_where_requests_were_refused() {
        for name in REFUSED {
            let (snapshot, stats) = open(name);
            let settings = snapshot.settings.as_ref().unwrap().settings.clone();
            let replay = recorded(&snapshot, 0, &settings, None).unwrap();
            let (inferred, limit) = (replay.inferred_limit.unwrap(), limit(&stats).unwrap());
            assert!((inferred.at_least..=inferred.at_most).contains(&limit), "{name}: {inferred:?} has not {limit}");
            assert_eq!(replay.mismatches, 0, "{name}");
            assert_eq!(differences(&replay.stats, &stats["stats"]), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn what_if_is_exact_where_the_same_requests_were_made_under_other_settings() {
        let (snapshot, stats) = open("frag");
        let replay = recorded(&snapshot, 0, &snapshot.settings.as_ref().unwrap().settings, limit(&stats)).unwrap();
        for name in [
            "frag",
            "frag-expandable_segments_True",
            "frag-roundup_power2_divisions_4",
            "frag-max_split_size_mb_32-frac",
            "frag-garbage_collection_threshold_0.6-frac",
        ] {
            let (_, other) = open(name);
            let settings = Settings::parse(other["conf"].as_str().unwrap()).unwrap();
            let answer = what_if(&replay, settings, limit(&other));
            assert_eq!(differences(&answer.stats, &other["stats"]), Vec::<String>::new(), "{name}");
        }
    }

    /// `torch/cuda/_memory_viz.py` runs without `PyTorch`: it is one file of the wheel.
    #[test]
    fn the_official_reader_opens_what_is_written() {
        let script = std::env::var_os("MEMLAB_MEMORY_VIZ").map(PathBuf::from).or_else(|| {
            let beside_libtorch = PathBuf::from(std::env::var_os("LIBTORCH")?).join("cuda/_memory_viz.py");
            beside_libtorch.exists().then_some(beside_libtorch)
        });
        let script = script.expect(
            "MEMLAB_MEMORY_VIZ has to name torch/cuda/_memory_viz.py of a PyTorch 2.11 wheel, or LIBTORCH its torch folder",
        );
        let folder = tempfile::tempdir().unwrap();
        for name in ["frag-s2-f0.006-expandable_segments_True"] {
            let original = traces().join(format!("{name}.pickle"));
            let written = folder.path().join(format!("{name}.pickle"));
            memlab::snapshot::write(&open(name).0, File::create(&written).unwrap()).unwrap();
            let say = |command: &str, file: &PathBuf| {
                let output = folder.path().join("output");
                let mut python = std::process::Command::new("python3");
                python.arg(&script).arg(command).arg(file);
                if command.ends_with("plot") {
                    python.arg("-o").arg(&output);
                }
                let done = python.output().unwrap();
                let errors = String::from_utf8_lossy(&done.stderr).into_owned();
                assert!(done.status.success(), "{command} of {name}: {errors}");
                if command.ends_with("plot") { std::fs::read(output).unwrap() } else { done.stdout }
            };
            for command in ["stats", "trace"] {
                assert_eq!(say(command, &written), say(command, &original), "{command} of {name}");
            }
            for command in ["trace_plot", "segment_plot"] {
                assert!(!say(command, &written).is_empty(), "{command} of {name}");
            }
        }
    }
}
