//! Sweeps with the real worker on this machine's CPU.
#![cfg(feature = "worker")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{Done, Folder};

/// A model that is computed in milliseconds.
const TINY: &str = "
[presets.tiny]
attention_heads = 2
classes = 4
feedforward_size = 64
hidden_size = 32
layers = 2
sequence_length = 16
vocabulary_size = 64
";

fn folder(base: &str, rest: &str) -> Folder {
    let folder = Folder::new();
    let text = format!(
        "name = \"demo\"\n[base]\ncase = \"alpha\"\npreset = \"tiny\"\ndevice = \"cpu\"\n{base}\n{rest}\n{TINY}"
    );
    folder.write("demo.toml", &text);
    folder
}

/// The only run's folder.
fn run_folder(folder: &Folder) -> std::path::PathBuf {
    let mut entries = std::fs::read_dir(folder.path().join("runs/demo")).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| path.join("status.json").exists()).unwrap()
}

fn json(path: &std::path::Path) -> serde_json::Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn samples_are_the_same_with_any_number_of_jobs_and_any_instruction_set() {
    let folder = folder("", "[sweep]\nbatch_size = [1, 2, 5]\nsteps = [2, 3]");
    folder.with_real_worker(&["sweep", "--jobs", "1", "--out", "one", "demo.toml"]).expect(0);
    folder.with_real_worker(&["sweep", "--jobs", "4", "--out", "four", "demo.toml"]).expect(0);
    let mut plain = folder.command_with_real_worker(&["sweep", "--out", "plain", "demo.toml"]);
    plain.env("ONEDNN_MAX_CPU_ISA", "AVX2").env("ATEN_CPU_CAPABILITY", "default");
    Done::of(plain.output().unwrap()).expect(0);
    let samples = ["one", "four", "plain"].map(|place| folder.read(&format!("{place}/samples.csv")));
    assert_eq!(samples[0].lines().count(), 1 + 3 * (2 * 3 + (2 + 3) * 4));
    assert_eq!(samples[0], samples[1]);
    assert_eq!(samples[0], samples[2]);
}

#[test]
fn a_run_that_does_not_fit_is_evidence() {
    let folder = folder("capacity = \"40MiB\"", "[sweep]\nbatch_size = [1, 512]");
    let done = folder.with_real_worker(&["sweep", "demo.toml", "--format", "json"]).expect(0);
    let rows: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(rows[1]["outcome"], "oom", "{rows}");
    assert!(rows[1]["oom_requested_mib"].as_f64().unwrap() > 0.0);
    assert!(rows[1]["oom_during"].is_string());
}

#[test]
fn a_run_can_be_reproduced_and_resumed() {
    let folder = folder("", "");
    folder.with_real_worker(&["sweep", "demo.toml"]).expect(0);
    let run = run_folder(&folder);
    let same = folder.with_real_worker(&["reproduce", run.to_str().unwrap()]).expect(0);
    assert_eq!(same.stdout, "");
    let again = folder.with_real_worker(&["sweep", "demo.toml"]).expect(0);
    assert!(again.stderr.contains("1 runs, 1 of them finished before"), "{}", again.stderr);
    assert_eq!(json(&run.join("status.json"))["attempt"], 1);
}

#[test]
fn ctrl_c_leaves_what_was_measured_until_then() {
    let folder = folder("steps = 1000000", "");
    let mut child = folder.command_with_real_worker(&["sweep", "demo.toml"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    lines.find(|line| line.contains("1 runs"));
    let log = || std::fs::read_dir(folder.path().join("runs/demo")).unwrap().count() > 2;
    while !log() || !run_folder(&folder).join("worker.log").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let _ = lines.count();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(json(&run_folder(&folder).join("status.json"))["outcome"], "cancelled");
}

#[test]
fn a_worker_ends_with_the_runner_that_started_it() {
    let folder = folder("steps = 1000000", "");
    let mut child = folder.command_with_real_worker(&["sweep", "demo.toml"]).stderr(Stdio::null()).spawn().unwrap();
    let pid = loop {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let started = folder.path().join("runs/demo/plan.json").exists()
            && std::fs::read_dir(folder.path().join("runs/demo")).unwrap().any(|entry| entry.unwrap().path().is_dir());
        if !started {
            continue;
        }
        let text = std::fs::read_to_string(run_folder(&folder).join("status.json")).unwrap_or_default();
        let status: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        // First it is the runner's own number, until the worker says its own.
        match status["pid"].as_u64() {
            Some(pid) if pid != u64::from(child.id()) => break pid,
            _ => {}
        }
    };
    // It was forked from the worker that had answered what this machine can do, and that one ends as well.
    let forkserver = children(child.id()).into_iter().find(|other| u64::from(*other) != pid).unwrap();
    assert_eq!(command_line(u32::try_from(pid).unwrap()), command_line(forkserver));
    child.kill().unwrap();
    child.wait().unwrap();
    while std::fs::exists(format!("/proc/{forkserver}")).unwrap() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    while std::fs::exists(format!("/proc/{pid}")).unwrap() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(json(&run_folder(&folder).join("status.json"))["outcome"], "cancelled");
}

/// The processes whose parent is `parent`.
fn children(parent: u32) -> Vec<u32> {
    let numbers =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let is_child = |number: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
        status.lines().any(|line| line.strip_prefix("PPid:").is_some_and(|rest| rest.trim() == parent.to_string()))
    };
    numbers.filter(is_child).collect()
}

fn command_line(process: u32) -> String {
    std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap()
}

#[test]
fn runs_go_on_when_the_forkserver_is_gone() {
    let folder = folder("compute = false", "[sweep]\nseed = { from = 1, to = 30, step = 1 }");
    let mut child = folder.command_with_real_worker(&["sweep", "demo.toml"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let is_ok = |line: &String| line.starts_with('[') && line.contains("] ok ");
    lines.find(is_ok);
    for process in children(child.id()) {
        let _ = kill(Pid::from_raw(i32::try_from(process).unwrap()), Signal::SIGKILL);
    }
    let rest: Vec<String> = lines.collect();
    // What ran in that moment was killed with it.
    let ok = 1 + rest.iter().filter(|line| is_ok(line)).count();
    assert!(ok >= 30 - 3, "{rest:#?}");
    assert_eq!(child.wait().unwrap().code(), Some(if ok == 30 { 0 } else { 4 }));
}

#[test]
fn the_time_limit_leaves_a_report_of_what_was_measured() {
    let folder = folder("steps = 1000000", "[run]\ntimeout = \"10s\"");
    folder.with_real_worker(&["sweep", "demo.toml"]).expect(4);
    let status = json(&run_folder(&folder).join("status.json"));
    assert_eq!(status["outcome"], "timeout");
    assert!(status["message"].as_str().unwrap().starts_with("the time limit of 10"), "{status}");
    assert_eq!(json(&run_folder(&folder).join("report.json"))["outcome"], "timeout");
}
