//! Runs of several ranks with the real worker on this machine's CPU: what they measure, and how they end.
#![cfg(feature = "worker")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use support::{Done, Folder};

const WORKER: &str = env!("CARGO_BIN_EXE_memlab-worker");

/// A model that is computed in milliseconds, over two ranks.
const TINY: &str = "name = \"demo\"
[base]
case = \"alpha\"
preset = \"tiny\"
device = \"cpu\"
world_size = 2
[presets.tiny]
attention_heads = 2
classes = 4
feedforward_size = 64
hidden_size = 32
layers = 2
sequence_length = 16
vocabulary_size = 64
";

fn memlab(folder: &Folder, args: &[&str]) -> Done {
    let mut command = folder.command(args);
    command.env("MEMLAB_WORKER", WORKER);
    if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
        command.env("LD_LIBRARY_PATH", path);
    }
    Done::of(command.output().unwrap())
}

fn read(path: &std::path::Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// What ranks that a test starts by itself are asked to do: the tiny model, with these fields of the run.
struct Ranks {
    folder: Folder,
    request: Value,
    size: u64,
}

impl Ranks {
    fn new(fields: &Value) -> Self {
        let folder = Folder::new();
        folder.write("demo.toml", TINY);
        memlab(&folder, &["sweep", "demo.toml", "--set", "steps=1"]).expect(0);
        let runs = std::fs::read_dir(folder.path().join("runs/demo")).unwrap().map(|entry| entry.unwrap().path());
        let report =
            read(&runs.into_iter().find(|path| path.join("status.json").exists()).unwrap().join("report.json"));
        let mut spec = report["spec"].clone();
        for (name, value) in fields.as_object().unwrap() {
            spec[name] = value.clone();
        }
        let size = spec["world_size"].as_u64().unwrap();
        let request = json!({
            "schema_version": 1, "run_id": "demo", "spec": spec, "report": folder.path().join("report.json"), "status": null,
            "snapshot": null, "overwrite": [false, false], "time_limit_seconds": null, "provenance": report["provenance"],
        });
        Self { folder, request, size }
    }

    fn start(&self, rank: u64) -> Rank {
        let mut command = Command::new(WORKER);
        command.arg("run").env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
        command.env("WORLD_SIZE", self.size.to_string()).env("MEMLAB_RENDEZVOUS", self.folder.path().join("store"));
        command.env("GLOO_SOCKET_IFNAME", "lo").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        // To wait for a process is to close its standard input, which would end it.
        let mut lifeline = process.stdin.take().unwrap();
        writeln!(lifeline, "{}", self.request).unwrap();
        Rank { process, _lifeline: lifeline }
    }

    fn start_all(&self) -> Vec<Rank> {
        (0..self.size).map(|rank| self.start(rank)).collect()
    }

    fn report(&self) -> PathBuf {
        self.folder.path().join("report.json")
    }
}

struct Rank {
    process: Child,
    _lifeline: ChildStdin,
}

impl Rank {
    /// Waits until it has trained for two steps.
    fn has_trained(&mut self) {
        let lines = BufReader::new(self.process.stdout.as_mut().unwrap()).lines().map_while(Result::ok);
        let trained = |line: &String| line.contains("\"step\":1") && line.contains("after_optimizer_step");
        assert!(lines.into_iter().any(|line| trained(&line)), "the rank ended before");
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.process.id()).unwrap()), signal).unwrap();
    }

    fn exit_code(&mut self) -> Option<i32> {
        self.process.wait().unwrap().code()
    }
}

/// A run that only a failure ends.
fn endless() -> Value {
    json!({ "steps": 1_000_000_000, "compute": false })
}

#[test]
fn two_ranks_have_the_memory_of_the_reference() {
    let folder = Folder::new();
    for extra in ["0", "2"] {
        let output = format!("x{extra}.json");
        let args =
            ["run", "--case", "alpha", "--batch-size", "2", "--world-size", "2", "--device", "cpu", "--no-compute"];
        memlab(&folder, &[&args[..], &["--rank-zero-extra-samples", extra, "--output", &output]].concat()).expect(0);
        let measured = read(&folder.path().join(&output));
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/reference");
        let reference = read(&PathBuf::from(data).join(format!("ddp2-gloo-alpha-small-b2-x{extra}.json")));
        for rank in 0..2 {
            let samples = |report: &Value| -> Vec<Value> {
                let keys = ["step", "phase", "allocated_mib", "reserved_mib", "peak_allocated_mib"];
                let of = |sample: &Value| keys.map(|key| sample[key].clone()).into_iter().collect();
                report["rank_reports"][rank]["samples"].as_array().unwrap().iter().map(of).collect()
            };
            assert_eq!(samples(&measured), samples(&reference), "rank {rank} with {extra} extra samples");
        }
    }
}

#[test]
fn ranks_that_only_allocate_have_the_samples_of_those_that_compute() {
    let folder = Folder::new();
    folder.write(
        "demo.toml",
        &format!("{TINY}[sweep]\nrank_zero_extra_samples = [0, 3]\nprecision = [\"fp32\", \"bf16\"]"),
    );
    let samples = ["true", "false"].map(|compute| {
        let set = format!("compute={compute}");
        memlab(&folder, &["sweep", "demo.toml", "--out", compute, "--set", &set]).expect(0);
        let samples = folder.read(&format!("{compute}/samples.csv"));
        // Without run ids, which tell the two apart.
        samples.lines().filter_map(|line| Some(line.split_once(',')?.1.to_owned())).collect::<Vec<_>>()
    });
    assert_eq!(samples[0].len(), 1 + 4 * 2 * (3 + 6 * 4));
    assert_eq!(samples[0], samples[1]);
}

#[test]
fn eight_ranks_agree() {
    let folder = Folder::new();
    folder.write("demo.toml", &TINY.replace("world_size = 2", "world_size = 8"));
    memlab(&folder, &["sweep", "demo.toml"]).expect(0);
    let samples = folder.read("runs/demo/samples.csv");
    // Without run id and rank.
    let of_rank = |rank: u64| -> Vec<&str> {
        let rows = samples.lines().filter_map(|line| line.split_once(',')?.1.split_once(','));
        rows.filter(|(of, _)| *of == rank.to_string()).map(|(_, rest)| rest).collect()
    };
    assert_eq!(of_rank(0).len(), 3 + 6 * 4);
    for rank in 1..8 {
        assert_eq!(of_rank(rank), of_rank(0), "rank {rank}");
    }
}

#[test]
fn a_rank_that_is_killed_is_named_by_the_other() {
    for victim in 0..2_usize {
        let ranks = Ranks::new(&endless());
        let mut processes = ranks.start_all();
        processes[victim].has_trained();
        processes[victim].signal(Signal::SIGKILL);
        assert_eq!(processes[1 - victim].exit_code(), Some(4));
        assert_eq!(processes[victim].exit_code(), None);
        let report = read(&ranks.report());
        assert_eq!((&report["outcome"], &report["failure"]["rank"]), (&json!("killed"), &json!(victim)));
        assert!(report["failure"]["step"].as_u64().unwrap() >= 1, "{}", report["failure"]);
        assert_eq!(report["rank_reports"][0]["rank"], 1 - victim);
        assert!(report["rank_reports"][0]["samples"].as_array().unwrap().len() > 7);
    }
}

#[test]
fn a_rank_that_hangs_is_named_when_time_is_over() {
    let mut ranks = Ranks::new(&endless());
    ranks.request["time_limit_seconds"] = json!(5);
    let mut processes = ranks.start_all();
    processes[1].has_trained();
    processes[1].signal(Signal::SIGSTOP);
    assert_eq!(processes[0].exit_code(), Some(4));
    processes[1].signal(Signal::SIGKILL);
    assert_eq!(processes[1].exit_code(), None);
    let report = read(&ranks.report());
    assert_eq!((&report["outcome"], &report["failure"]["rank"]), (&json!("timeout"), &json!(1)));
    assert!(report["rank_reports"][0]["samples"].as_array().unwrap().len() > 7);
}

#[test]
fn a_rank_that_runs_out_of_memory_ends_the_others_and_keeps_their_samples() {
    let folder = Folder::new();
    let args = ["run", "--case", "alpha", "--batch-size", "2", "--world-size", "2", "--rank-zero-extra-samples", "2"];
    let rest = ["--device", "cpu", "--no-compute", "--capacity", "215MiB", "--output", "out.json"];
    memlab(&folder, &[&args[..], &rest].concat()).expect(3);
    let report = read(&folder.path().join("out.json"));
    assert_eq!((&report["outcome"], &report["oom"]["rank"]), (&json!("oom"), &json!(0)));
    assert_eq!(report["rank_reports"].as_array().unwrap().len(), 2);
    assert!(report["rank_reports"][1]["samples"].as_array().unwrap().len() >= 3);
}

#[test]
fn a_rank_that_never_comes_is_named_when_time_is_over() {
    let mut ranks = Ranks::new(&endless());
    ranks.request["time_limit_seconds"] = json!(3);
    assert_eq!(ranks.start(0).exit_code(), Some(4));
    let failure = &read(&ranks.report())["failure"];
    assert_eq!(failure["message"], "rank 1 never came to where the ranks meet");
}

#[test]
fn ranks_meet_at_an_address_as_under_torchrun() {
    let ranks = Ranks::new(&json!({ "steps": 2 }));
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let request = ranks.folder.write("request.json", &ranks.request.to_string());
    let start = |rank: u64| {
        let mut command = Command::new(WORKER);
        command
            .args(["run", "--request"])
            .arg(&request)
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", rank.to_string());
        command.env("WORLD_SIZE", "2").env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.env("GLOO_SOCKET_IFNAME", "lo").stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    for mut child in [start(0), start(1)] {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    assert_eq!(read(&ranks.report())["rank_reports"].as_array().unwrap().len(), 2);
}

#[test]
fn a_launcher_that_says_half_is_refused() {
    let ranks = Ranks::new(&json!({ "steps": 1 }));
    let said = |variables: &[(&str, &str)]| -> String {
        let mut command = Command::new(WORKER);
        command.arg("run").envs(variables.iter().copied()).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "{}", ranks.request).unwrap();
        let done = Done::of(child.wait_with_output().unwrap());
        assert_eq!(done.code, 2, "{}", done.stderr);
        done.stderr
    };
    let of = |rank, size| vec![("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", size)];
    assert!(said(&[]).contains("start it with `memlab run`"));
    assert!(said(&[("RANK", "0"), ("WORLD_SIZE", "2")]).contains("LOCAL_RANK is not set"));
    assert!(said(&of("x", "2")).contains("RANK is `x`"));
    assert!(said(&of("0", "3")).contains("WORLD_SIZE is 3, and the run has 2 ranks"));
    assert!(said(&of("2", "2")).contains("RANK is 2, and there are 2 ranks"));
    assert!(said(&of("1", "2")).contains("set MEMLAB_RENDEZVOUS"));
}

#[test]
fn ranks_end_with_the_runner_that_started_them() {
    let folder = Folder::new();
    folder.write("demo.toml", &TINY.replace("world_size", "compute = false\nsteps = 1000000\nworld_size"));
    let mut command = folder.command(&["sweep", "demo.toml"]);
    command.env("MEMLAB_WORKER", WORKER).stderr(Stdio::null()).stdout(Stdio::null());
    if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
        command.env("LD_LIBRARY_PATH", path);
    }
    let mut runner = command.spawn().unwrap();
    let children = || -> Vec<String> {
        let list = format!("/proc/{0}/task/{0}/children", runner.id());
        std::fs::read_to_string(list).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    };
    while children().len() < 2 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let ranks = children();
    runner.kill().unwrap();
    runner.wait().unwrap();
    while ranks.iter().any(|rank| std::fs::exists(format!("/proc/{rank}")).unwrap()) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
