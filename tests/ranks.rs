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
        folder.with_real_worker(&["sweep", "demo.toml", "--set", "steps=1"]).expect(0);
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

    /// A rank that meets the others in a file.
    fn start(&self, rank: u64) -> Rank {
        let store = self.folder.path().join("store");
        self.start_with(rank, &[("MEMLAB_RENDEZVOUS", store.to_str().unwrap()), ("GLOO_SOCKET_IFNAME", "lo")])
    }

    /// A rank that meets the others at an address, as launchers of PyTorch announce it; rank zero is the server.
    fn start_at(&self, port: u16, rank: u64) -> Rank {
        let port = port.to_string();
        let address = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port), ("GLOO_SOCKET_IFNAME", "lo")];
        self.start_with(rank, &address)
    }

    fn start_with(&self, rank: u64, variables: &[(&str, &str)]) -> Rank {
        let mut command = Command::new(WORKER);
        command.arg("run").env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
        command.env("WORLD_SIZE", self.size.to_string()).envs(variables.iter().copied());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // To wait for a process is to close its standard input, which would end it.
        let mut lifeline = process.stdin.take().unwrap();
        writeln!(lifeline, "{}", self.request).unwrap();
        Rank { process, _lifeline: lifeline }
    }

    fn start_all(&self) -> Vec<Rank> {
        (0..self.size).map(|rank| self.start(rank)).collect()
    }

    fn report(&self) -> Value {
        read(&self.folder.path().join("report.json"))
    }
}

/// A port that is free, below those that the system gives to whoever asks for any: nobody takes it in between.
fn port() -> u16 {
    let first = 20_000 + u16::try_from(std::process::id() % 12_000).unwrap();
    (first..32_768).find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
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

/// Allocated, reserved and peak at every sample of a rank.
fn samples(report: &Value, rank: usize) -> Vec<Value> {
    let keys = ["step", "phase", "allocated_mib", "reserved_mib", "peak_allocated_mib"];
    let of = |sample: &Value| keys.map(|key| sample[key].clone()).into_iter().collect();
    report["rank_reports"][rank]["samples"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn two_ranks_have_the_memory_and_the_loss_of_the_reference() {
    let folder = Folder::new();
    for (extra, computes) in [("0", false), ("2", false), ("2", true)] {
        let output = format!("x{extra}-{computes}.json");
        let args = ["run", "--case", "alpha", "--batch-size", "2", "--world-size", "2", "--device", "cpu", "--output"];
        let mut args = [&args[..], &[&output, "--rank-zero-extra-samples", extra]].concat();
        if !computes {
            args.push("--no-compute");
        }
        folder.with_real_worker(&args).expect(0);
        let measured = read(&folder.path().join(&output));
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/reference");
        let reference = read(&PathBuf::from(data).join(format!("ddp2-gloo-alpha-small-b2-x{extra}.json")));
        for rank in 0..2 {
            assert_eq!(samples(&measured, rank), samples(&reference, rank), "rank {rank} with {extra} extra samples");
        }
        if computes {
            let loss = |report: &Value| report["final_loss_rank_zero"].as_f64().unwrap();
            let (measured, reference) = (loss(&measured), loss(&reference));
            assert!((measured - reference).abs() <= 1e-5 * reference, "{measured} and {reference}");
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
        folder.with_real_worker(&["sweep", "demo.toml", "--out", compute, "--set", &set]).expect(0);
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
    folder.write("demo.toml", TINY);
    let small = ["preset=small", "compute=false"];
    for (name, fields) in [("tiny", &[][..]), ("small", &small)] {
        let mut args = vec!["sweep", "demo.toml", "--out", name, "--set", "world_size=8"];
        args.extend(fields.iter().flat_map(|field| ["--set", *field]));
        folder.with_real_worker(&args).expect(0);
        let samples = folder.read(&format!("{name}/samples.csv"));
        // Without run id and rank.
        let of_rank = |rank: u64| -> Vec<&str> {
            let rows = samples.lines().filter_map(|line| line.split_once(',')?.1.split_once(','));
            rows.filter(|(of, _)| *of == rank.to_string()).map(|(_, rest)| rest).collect()
        };
        assert_eq!(of_rank(0).len(), 3 + 6 * 4);
        for rank in 1..8 {
            assert_eq!(of_rank(rank), of_rank(0), "rank {rank}, {name}");
        }
    }
}

#[test]
fn runs_that_go_on_at_the_same_time_do_not_meet() {
    let folder = Folder::new();
    folder.write("demo.toml", &format!("{TINY}[sweep]\nseed = [1, 2]\nrank_zero_extra_samples = [0, 3]"));
    let sweep = |out: &str, jobs: &str| {
        let mut command = folder.command_with_real_worker(&["sweep", "demo.toml", "--out", out, "--jobs", jobs]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let at_once = [sweep("first", "4"), sweep("second", "4")];
    for child in at_once {
        Done::of(child.wait_with_output().unwrap()).expect(0);
    }
    Done::of(sweep("alone", "1").wait_with_output().unwrap()).expect(0);
    let [first, second, alone] = ["first", "second", "alone"].map(|out| folder.read(&format!("{out}/samples.csv")));
    assert_eq!(alone.lines().count(), 1 + 4 * 2 * (3 + 6 * 4));
    assert_eq!((&first, &second), (&alone, &alone));
}

#[test]
fn a_single_rank_with_a_backend_has_the_memory_of_one_among_others() {
    let [one, two] = [1, 2].map(|size| {
        let ranks = Ranks::new(&json!({ "world_size": size, "backend": "gloo" }));
        for mut rank in ranks.start_all() {
            assert_eq!(rank.exit_code(), Some(0));
        }
        ranks.report()
    });
    assert_eq!(samples(&one, 0), samples(&two, 0));
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
        let report = ranks.report();
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
    let report = ranks.report();
    assert_eq!((&report["outcome"], &report["failure"]["rank"]), (&json!("timeout"), &json!(1)));
    let message = report["failure"]["message"].as_str().unwrap();
    assert!(message.starts_with("the time limit of 5 s was reached: rank 1 on "), "{message}");
    assert!(report["rank_reports"][0]["samples"].as_array().unwrap().len() > 7);
}

/// Rank zero is the server where the ranks meet, so that nothing can be asked any more.
#[test]
fn the_loss_of_the_rank_that_is_the_server_ends_the_others() {
    for (signal, outcome) in [(Signal::SIGKILL, "error"), (Signal::SIGSTOP, "timeout")] {
        let mut ranks = Ranks::new(&endless());
        if signal == Signal::SIGSTOP {
            ranks.request["time_limit_seconds"] = json!(8);
        }
        let port = port();
        let mut processes = [ranks.start_at(port, 0), ranks.start_at(port, 1)];
        processes[1].has_trained();
        processes[0].signal(signal);
        assert_eq!(processes[1].exit_code(), Some(4));
        processes[0].signal(Signal::SIGKILL);
        assert_eq!(processes[0].exit_code(), None);
        let report = ranks.report();
        assert_eq!((&report["outcome"], &report["failure"]["rank"]), (&json!(outcome), &json!(0)), "{signal}");
        assert_eq!(report["rank_reports"][0]["rank"], 1);
        assert!(report["rank_reports"][0]["samples"].as_array().unwrap().len() > 7);
    }
}

#[test]
fn a_rank_that_cannot_reach_the_others_is_named_with_its_reason() {
    let ranks = Ranks::new(&endless());
    let store = ranks.folder.path().join("store");
    let variables = [("MEMLAB_RENDEZVOUS", store.to_str().unwrap()), ("GLOO_SOCKET_IFNAME", "none0")];
    for mut rank in [ranks.start(0), ranks.start_with(1, &variables)] {
        assert_eq!(rank.exit_code(), Some(4));
    }
    let failure = &ranks.report()["failure"];
    assert_eq!(failure["rank"], 1);
    let message = failure["message"].as_str().unwrap();
    assert!(message.starts_with("rank 1: the other ranks cannot be reached: "), "{message}");
}

#[test]
fn a_rank_that_runs_out_of_memory_ends_the_others_and_keeps_their_samples() {
    let folder = Folder::new();
    let args = ["run", "--case", "alpha", "--batch-size", "2", "--world-size", "2", "--rank-zero-extra-samples", "2"];
    let rest = ["--device", "cpu", "--no-compute", "--capacity", "215MiB", "--output", "out.json"];
    folder.with_real_worker(&[&args[..], &rest].concat()).expect(3);
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
    let message = "the time limit of 3 s was reached: rank 1 never came to where the ranks meet";
    assert_eq!(ranks.report()["failure"]["message"], message);
}

#[test]
fn ranks_meet_at_an_address() {
    let ranks = Ranks::new(&json!({ "steps": 2 }));
    // Whichever rank ends first gathers, and finds the server until it is done.
    for _ in 0..4 {
        let port = port();
        for mut rank in [ranks.start_at(port, 0), ranks.start_at(port, 1)] {
            assert_eq!(rank.exit_code(), Some(0));
        }
        assert_eq!(ranks.report()["rank_reports"].as_array().unwrap().len(), 2);
        std::fs::remove_file(ranks.folder.path().join("report.json")).unwrap();
    }
}

/// In place of `srun`, an experiment may name another launcher: one that says who each rank is, as torchrun does, or one that
/// leaves it to Slurm's variables.
#[test]
fn ranks_start_behind_a_launcher() {
    let folder = Folder::new();
    folder.write("demo.toml", TINY);
    folder.with_real_worker(&["sweep", "demo.toml", "--slurm", "--set", "steps=2"]).expect(0);
    let mut submissions = std::fs::read_dir(folder.path().join("runs/demo/slurm")).unwrap();
    let list = submissions.next().unwrap().unwrap().path().join("array-0.jsonl");
    let run = |launcher: &str| {
        let script = folder.write("launcher", launcher);
        let mut command = folder.command_with_real_worker(&["slurm-task", list.to_str().unwrap(), "0", "--", "sh"]);
        // What a launcher around memlab says is about other processes.
        command.arg(&script).env("RANK", "7").env("GLOO_SOCKET_IFNAME", "lo");
        Done::of(command.output().unwrap()).expect(0);
        let entries = std::fs::read_dir(folder.path().join("runs/demo")).unwrap().map(|entry| entry.unwrap().path());
        let run = entries.into_iter().find(|path| path.join("report.json").exists()).unwrap();
        let report = read(&run.join("report.json"));
        std::fs::remove_dir_all(run).unwrap();
        [samples(&report, 0), samples(&report, 1)]
    };
    let torchrun = run("for r in 0 1; do RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 \"$@\" & done; wait");
    let srun = run("for r in 0 1; do SLURM_PROCID=$r SLURM_LOCALID=$r SLURM_NTASKS=2 \"$@\" & done; wait");
    assert_eq!(torchrun, srun);
    assert_eq!(torchrun[0].len(), 3 + 2 * 4);
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
    assert!(said(&[("LOCAL_RANK", "0")]).contains("RANK and WORLD_SIZE are not set"));
    assert!(said(&of("x", "2")).contains("RANK is `x`"));
    assert!(said(&of("0", "3")).contains("WORLD_SIZE is 3, and the run has 2 ranks"));
    assert!(said(&of("2", "2")).contains("RANK is 2, and there are 2 ranks"));
    assert!(said(&of("1", "2")).contains("set MEMLAB_RENDEZVOUS"));
}

#[test]
fn ranks_end_with_the_runner_that_started_them() {
    let folder = Folder::new();
    folder.write("demo.toml", &TINY.replace("world_size", "compute = false\nsteps = 1000000\nworld_size"));
    let mut command = folder.command_with_real_worker(&["sweep", "demo.toml"]);
    let mut runner = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
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
