//! `memlab sweep` as a user meets it: what is run, what is kept, and what every kind of fault looks like.
//!
//! A stand-in for the worker does what a run's seed tells it to; the real worker has its own tests.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{Done, Folder, snapshot};

/// An experiment that sweeps these seeds.
fn seeds(seeds: &str) -> String {
    format!("name = \"demo\"\n[base]\ncase = \"alpha\"\n[run]\ntimeout = \"60s\"\n[sweep]\nseed = {seeds}\n")
}

fn folder(experiment: &str) -> Folder {
    let folder = Folder::new();
    folder.write("demo.toml", experiment);
    folder
}

/// The values of a column of results.csv by seed.
fn column(folder: &Folder, name: &str) -> BTreeMap<u64, String> {
    let text = folder.read("runs/demo/results.csv");
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    let at = |name: &str| header.iter().position(|column| column == name).unwrap();
    let (seed, value) = (at("seed"), at(name));
    reader.records().map(|row| row.unwrap()).map(|row| (row[seed].parse().unwrap(), row[value].to_owned())).collect()
}

fn outcomes(folder: &Folder) -> Vec<String> {
    column(folder, "outcome").into_values().collect()
}

/// The folder of the run with this seed.
fn run_folder(folder: &Folder, seed: u64) -> PathBuf {
    let id = column(folder, "run_id").remove(&seed).unwrap();
    folder.path().join("runs/demo").join(id)
}

fn status(folder: &Folder, seed: u64) -> serde_json::Value {
    serde_json::from_str(&std::fs::read_to_string(run_folder(folder, seed).join("status.json")).unwrap()).unwrap()
}

/// Starts a sweep, and gives its standard error line by line.
fn start(folder: &Folder, args: &[&str]) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut command = folder.command_with_worker(args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    (child, lines)
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

/// Whether a process still does something: gone and not yet reaped does not count.
fn is_alive(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z') && !rest.is_empty())
}

/// Waits, as long as it takes, until a condition holds.
fn wait_for(mut condition: impl FnMut() -> bool) {
    while !condition() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_sweep_runs_tabulates_and_keeps_the_plan_s_order() {
    let folder = folder(
        "name = \"demo\"\ntitle = \"What does the batch size change?\"\n[base]\ncase = \"alpha\"\n[sweep]\nbatch_size = [4, 1, 2]\n",
    );
    let done = folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    snapshot!(done.stdout);
    assert!(done.stderr.contains("3 runs: 3 ok\n"), "{}", done.stderr);
    snapshot!(folder.read("runs/demo/comparison.md"));
    snapshot!(folder.read("runs/demo/results.csv"));
    let samples = folder.read("runs/demo/samples.csv");
    assert!(samples.starts_with(
        "run_id,rank,step,phase,allocated_mib,reserved_mib,peak_allocated_mib,device_used_mib\nalpha-small-b4-"
    ));
    assert_eq!(samples.lines().count(), 1 + 3 * (3 + 6 * 4));
}

#[test]
fn nothing_but_the_csv_is_on_stdout() {
    let folder = folder(&seeds("[1, 101]"));
    let done = folder.with_worker(&["sweep", "demo.toml", "--format", "csv"]).expect(4);
    assert_eq!(done.stdout, folder.read("runs/demo/results.csv"));
}

#[test]
fn what_is_finished_is_not_run_again() {
    let folder = folder(&seeds("[1, 107, 101]"));
    let first = folder.with_worker(&["sweep", "demo.toml"]).expect(4);
    assert!(first.stderr.contains("demo: 3 runs, 0 of them finished before"), "{}", first.stderr);
    // Out of memory is evidence, and finished; what failed is run again.
    let second = folder.with_worker(&["sweep", "demo.toml"]).expect(4);
    assert!(second.stderr.contains("demo: 3 runs, 2 of them finished before"), "{}", second.stderr);
    assert_eq!([1, 107, 101].map(|seed| status(&folder, seed)["attempt"].as_u64().unwrap()), [1, 1, 2]);
    // Another worker measures anew.
    let other = folder.command_with_worker(&["sweep", "demo.toml"]).env("STAND_IN_BUILD", "other").output().unwrap();
    Done::of(other).expect(4);
    assert_eq!([1, 107, 101].map(|seed| status(&folder, seed)["attempt"].as_u64().unwrap()), [2, 2, 3]);
}

#[test]
fn every_attempt_keeps_its_files() {
    let folder = folder(&seeds("[1, 101]"));
    folder.with_worker(&["sweep", "demo.toml"]).expect(4);
    folder.with_worker(&["sweep", "--fresh", "demo.toml"]).expect(4);
    let attempts = run_folder(&folder, 1).join("attempts/1");
    for name in ["report.json", "status.json", "worker.log"] {
        assert!(attempts.join(name).exists(), "{name}");
    }
    let log = |name: &str| std::fs::read_to_string(run_folder(&folder, 101).join(name)).unwrap();
    assert_eq!(log("attempts/1/worker.log"), "cannot do this\n");
    assert_eq!(log("worker.log"), "cannot do this\n");
}

#[test]
fn only_the_named_outcomes_are_retried() {
    let folder = folder(&seeds("[1, 101, 104, 107]"));
    folder.with_worker(&["sweep", "demo.toml"]).expect(4);
    folder.with_worker(&["sweep", "--retry", "killed,oom", "demo.toml"]).expect(4);
    let attempts = [1, 101, 104, 107].map(|seed| status(&folder, seed)["attempt"].as_u64().unwrap());
    assert_eq!(attempts, [1, 1, 2, 2]);
    let wrong = folder.with_worker(&["sweep", "--retry", "sometimes", "demo.toml"]).expect(2);
    assert!(wrong.stderr.contains("sometimes") && wrong.stderr.contains("timeout"), "{}", wrong.stderr);
}

#[test]
fn one_bad_run_never_ends_the_sweep_and_its_row_says_why() {
    let folder = folder(&seeds("[101, 104, 105, 106, 107, 110, 111, 114, 1]"));
    let done = folder.with_worker(&["sweep", "demo.toml"]).expect(4);
    let outcomes = column(&folder, "outcome");
    let messages = column(&folder, "message");
    let said: Vec<String> =
        outcomes.iter().map(|(seed, outcome)| format!("{seed} {outcome}: {}", messages[seed])).collect();
    snapshot!(said.join("\n"));
    assert!(done.stderr.contains("9 runs: 1 ok, 5 error, 2 killed, 1 oom"), "{}", done.stderr);
    // Empty is not zero.
    assert_eq!(column(&folder, "largest_forward_increase_mib")[&101], "");
    assert_eq!(column(&folder, "between_step_growth_mib")[&1], "0");
}

#[test]
fn the_time_limit_ends_a_run_that_ignores_everything() {
    let folder = folder(&seeds("[102, 103, 1]").replace("60s", "1s"));
    folder.with_worker(&["sweep", "demo.toml", "--jobs", "3"]).expect(4);
    assert_eq!(outcomes(&folder), ["ok", "timeout", "timeout"]);
    assert_eq!(column(&folder, "message")[&103], "the time limit of 1s was reached");
}

#[test]
fn ctrl_c_ends_the_workers_and_keeps_what_is_finished() {
    let folder = folder(&seeds("[1, 102, 2]"));
    let (mut child, mut lines) = start(&folder, &["sweep", "--jobs", "1", "demo.toml"]);
    lines.find(|line| line.contains("[1/3] ok"));
    let running = folder.path().join("runs/demo");
    let worker = || {
        let runs = std::fs::read_dir(&running).unwrap().filter_map(|entry| {
            let text = std::fs::read_to_string(entry.ok()?.path().join("status.json")).ok()?;
            let status: serde_json::Value = serde_json::from_str(&text).ok()?;
            (status["outcome"].is_null()).then_some(())
        });
        runs.count() == 1
    };
    wait_for(worker);
    signal(&child, Signal::SIGINT);
    assert!(lines.any(|line| line.contains("interrupted")));
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert_eq!(outcomes(&folder), ["ok", "missing", "cancelled"]);
    let pid = status(&folder, 102)["pid"].as_u64().unwrap();
    assert!(!is_alive(pid), "the worker is gone");
    // The next sweep goes on from there.
    folder.write("demo.toml", &seeds("[1, 2]"));
    let done = folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    assert!(done.stderr.contains("2 runs, 1 of them finished before"), "{}", done.stderr);
    assert!(done.stderr.contains("not in the plan any more"), "{}", done.stderr);
}

#[test]
fn a_second_ctrl_c_kills_what_does_not_end() {
    let folder = folder(&seeds("[103]"));
    let (mut child, mut lines) = start(&folder, &["sweep", "demo.toml"]);
    let log = || {
        let found = std::fs::read_dir(folder.path().join("runs/demo")).into_iter().flatten();
        found.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("status.json")).ok()).count() == 1
    };
    wait_for(log);
    signal(&child, Signal::SIGTERM);
    assert!(lines.any(|line| line.contains("interrupted")));
    signal(&child, Signal::SIGTERM);
    let _ = lines.count();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(column(&folder, "outcome")[&103], "cancelled");
}

#[test]
fn kill_9_at_any_moment_loses_at_most_the_runs_in_flight() {
    let folder = folder(&seeds("[1, 2, 3, 4, 5, 6, 7, 8]"));
    // Killed after the first, the third, ... word of it, and at once.
    for words in [0, 2, 4, 6] {
        let (mut child, lines) = start(&folder, &["sweep", "--jobs", "2", "demo.toml"]);
        let said: Vec<String> = lines.take(words).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        let finished = said.iter().filter(|line| line.contains("] ok")).count();
        let reports = std::fs::read_dir(folder.path().join("runs/demo")).into_iter().flatten().filter_map(|entry| {
            let text = std::fs::read_to_string(entry.ok()?.path().join("report.json")).ok()?;
            Some(serde_json::from_str::<serde_json::Value>(&text).expect("every report that is there is whole"))
        });
        assert!(reports.count() >= finished, "{said:?}");
    }
    let done = folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    assert!(done.stderr.contains("8 runs: 8 ok"), "{}", done.stderr);
    let left = std::fs::read_dir(folder.path().join("runs/demo")).unwrap();
    let names: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(
        names.len(),
        8 + ["plan.json", "results.csv", "samples.csv", "comparison.md", "report.html", "figures", ".lock"].len(),
        "{names:?}"
    );
}

#[test]
fn workers_end_with_a_runner_that_is_killed() {
    let folder = folder(&seeds("[102]"));
    let (mut child, _lines) = start(&folder, &["sweep", "demo.toml"]);
    // The stand-in has no children of its own that could outlive it: what reads its standard input is in its group.
    let group = || {
        let place = folder.path().display().to_string();
        let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let path = entry.ok()?.path();
            let here = std::fs::read_link(path.join("cwd")).ok()?;
            let program = std::fs::read_to_string(path.join("cmdline")).ok()?;
            (here.display().to_string() == place && program.contains("worker.sh")).then_some(())
        });
        pids.count()
    };
    wait_for(|| group() > 0);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for(|| group() == 0);
    // Nobody was left to write the status: the process is gone, and that says it.
    folder.with_worker(&["collate", "runs/demo"]).expect(4);
    assert_eq!(column(&folder, "outcome")[&102], "killed");
}

#[test]
fn a_folder_in_use_is_refused() {
    let folder = folder(&seeds("[102]"));
    let (mut child, mut lines) = start(&folder, &["sweep", "demo.toml"]);
    lines.find(|line| line.contains("demo: 1 runs"));
    let done = folder.with_worker(&["sweep", "demo.toml"]).expect(2);
    assert!(done.stderr.contains("runs/demo is in use by process"), "{}", done.stderr);
    // Reading never takes the lock.
    folder.with_worker(&["status", "runs/demo"]).expect(0);
    // And `cancel` is a Ctrl-C from elsewhere.
    let cancelled = folder.with_worker(&["cancel", "runs/demo"]).expect(0);
    assert!(cancelled.stderr.contains(&format!("process {} was asked to end", child.id())), "{}", cancelled.stderr);
    let _ = lines.count();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let nothing = folder.with_worker(&["cancel", "runs/demo"]).expect(0);
    assert!(nothing.stderr.contains("nothing is running"), "{}", nothing.stderr);
}

#[test]
fn the_results_of_another_experiment_are_not_overwritten() {
    let folder = folder(&seeds("[1]"));
    folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    folder.write("other.toml", &seeds("[2]"));
    let done = folder.with_worker(&["sweep", "other.toml"]).expect(2);
    assert!(done.stderr.contains("holds the results of another experiment"), "{}", done.stderr);
    assert!(done.stderr.contains("other.toml") && done.stderr.contains("--out"), "{}", done.stderr);
    folder.with_worker(&["sweep", "--out", "elsewhere", "other.toml"]).expect(0);
    assert!(folder.path().join("elsewhere/results.csv").exists());
}

#[test]
fn runs_that_the_plan_no_longer_has_are_listed_and_not_tabulated() {
    let folder = folder(&seeds("[1, 2]"));
    folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    let gone = column(&folder, "run_id")[&2].clone();
    folder.write("demo.toml", &seeds("[1]"));
    let done = folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    assert!(!done.stdout.contains(&gone));
    assert!(done.stderr.contains(&format!("not tabulated: {gone}")), "{}", done.stderr);
    assert!(folder.read("runs/demo/comparison.md").contains(&format!("- `{gone}`")));
    assert_eq!(column(&folder, "run_id").len(), 1);
}

#[test]
fn samples_are_the_same_with_any_number_of_jobs() {
    let folder = folder(&seeds("[1, 2, 3, 4]"));
    folder.with_worker(&["sweep", "--jobs", "1", "demo.toml", "--out", "one"]).expect(0);
    folder.with_worker(&["sweep", "--jobs", "4", "demo.toml", "--out", "four"]).expect(0);
    assert_eq!(folder.read("one/samples.csv"), folder.read("four/samples.csv"));
}

#[test]
fn labels_with_commas_line_breaks_and_umlauts_survive_csv_and_tables() {
    let label = "a, \\\"b\\\"\\nü | c";
    let folder = folder(&format!(
        "name = \"demo\"\n[base]\ncase = \"alpha\"\n[[perturbation]]\nlabel = \"{label}\"\nseed = 5\n"
    ));
    let done = folder.with_worker(&["sweep", "demo.toml", "--format", "markdown"]).expect(0);
    assert_eq!(column(&folder, "label")[&5], "a, \"b\"\nü | c");
    assert!(done.stdout.contains("a, \"b\" ü \\| c"), "{}", done.stdout);
    let widths: Vec<usize> =
        done.stdout.lines().take(4).map(|line| line.replace("\\|", "").matches('|').count()).collect();
    assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "every line has all columns: {widths:?}");
}

#[test]
fn perturbations_are_followed_by_the_response_to_each() {
    let folder = folder(
        "name = \"demo\"\n[base]\ncase = \"alpha\"\n[[perturbation]]\nlabel = \"twice the batch\"\nbatch_size = 4\n\
         [[perturbation]]\nlabel = \"another seed\"\nseed = 7\n[[perturbation]]\nlabel = \"fails\"\nseed = 101\n",
    );
    let done = folder.with_worker(&["sweep", "demo.toml"]).expect(4);
    snapshot!(done.stdout);
}

#[test]
fn gpus_have_one_run_each() {
    let folder = folder(&seeds("[113]").replace("seed =", "batch_size = [1, 2, 3, 4]\nseed ="));
    let mut command = folder.command_with_worker(&["sweep", "demo.toml"]);
    Done::of(command.env("STAND_IN_GPUS", "2").env("CUDA_VISIBLE_DEVICES", "4,7").output().unwrap()).expect(0);
    let runs = std::fs::read_dir(folder.path().join("runs/demo")).unwrap();
    let mut used: Vec<String> = runs
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("worker.log")).ok())
        .map(|log| log.split(' ').next().unwrap().to_owned())
        .collect();
    used.sort();
    assert_eq!(used.len(), 4);
    used.dedup();
    assert_eq!(used, ["4", "7"]);
    let header = column(&folder, "device");
    assert_eq!(header[&113], "cuda");
}

#[test]
fn every_rank_is_a_process_that_knows_its_place() {
    let folder = folder(&seeds("[113]").replace("case =", "world_size = 2\ndevice = \"cpu\"\ncase ="));
    let mut command = folder.command_with_worker(&["sweep", "demo.toml"]);
    // What a launcher around memlab set is about other processes.
    Done::of(command.env("RANK", "7").env("WORLD_SIZE", "9").output().unwrap()).expect(0);
    let log = |name: &str| std::fs::read_to_string(run_folder(&folder, 113).join(name)).unwrap();
    assert_eq!(log("worker.log"), " 0 0 2 store\n");
    assert_eq!(log("worker-rank1.log"), " 1 1 2 store\n");
}

#[test]
fn a_rank_that_fails_ends_the_others() {
    let folder = folder(&seeds("[112]").replace("case =", "world_size = 2\ndevice = \"cpu\"\ncase ="));
    folder.with_worker(&["sweep", "demo.toml"]).expect(4);
    assert_eq!(column(&folder, "outcome")[&112], "error");
    assert_eq!(column(&folder, "message")[&112], "the worker of rank 1 ended with exit code 1: rank 1 fails");
}

#[test]
fn cuda_asked_for_where_none_is_is_refused_before_anything_runs() {
    let folder = folder(&seeds("[1]"));
    let done = folder.with_worker(&["sweep", "--device", "cuda", "demo.toml"]).expect(2);
    snapshot!(done.stderr);
    assert!(!folder.path().join("runs").exists());
}

#[test]
fn a_worker_that_is_not_there_is_named_with_what_to_do() {
    let folder = folder(&seeds("[1]"));
    let mut command = folder.command(&["sweep", "demo.toml"]);
    let done = Done::of(command.env("MEMLAB_WORKER", "/no/such/memlab-worker").output().unwrap()).expect(2);
    snapshot!(done.stderr);
}

#[test]
fn a_worker_that_cannot_start_is_told_apart() {
    let folder = folder(&seeds("[1]"));
    let broken =
        folder.write("broken", "#!/bin/sh\necho 'libtorch_cpu.so: cannot open shared object file' >&2\nexit 127\n");
    std::process::Command::new("chmod").arg("+x").arg(&broken).status().unwrap();
    for (text, said) in [
        (None, "libtorch_cpu.so: cannot open shared object file"),
        (Some("#!/bin/sh\necho hello\n"), "its answer cannot be read"),
        (
            Some(
                "#!/bin/sh\necho '{\"schema_version\":99,\"worker_build\":\"x\",\"libtorch_version\":\"2\",\"cuda_version\":null,\"gpus\":[],\"cuda_unavailable\":null}'\n",
            ),
            "of another version",
        ),
    ] {
        if let Some(text) = text {
            std::fs::write(&broken, text).unwrap();
        }
        let mut command = folder.command(&["sweep", "demo.toml"]);
        let done = Done::of(command.env("MEMLAB_WORKER", &broken).output().unwrap()).expect(2);
        assert!(done.stderr.contains(said), "{}", done.stderr);
    }
}

#[test]
fn a_results_folder_that_cannot_be_made_is_named() {
    let folder = folder(&seeds("[1]"));
    folder.write("runs", "a file in the way");
    let done = folder.with_worker(&["sweep", "demo.toml"]).expect(2);
    assert!(done.stderr.contains("cannot make the folder runs/demo"), "{}", done.stderr);
    // Not even root makes a folder among the kernel's own.
    let done = folder.with_worker(&["sweep", "--out", "/sys/demo", "demo.toml"]).expect(2);
    assert!(done.stderr.contains("cannot make the folder /sys/demo"), "{}", done.stderr);
    assert!(done.stderr.contains("help: "), "{}", done.stderr);
}

#[test]
fn a_disk_that_takes_no_more_costs_nothing_that_is_finished() {
    let folder = folder(&seeds("[1]"));
    let sweep = folder.command_with_worker(&["sweep", "demo.toml"]);
    // A bound of 20 KiB on every file stands in for a full disk: what a run leaves has room, the page has not.
    let mut bounded = std::process::Command::new("sh");
    bounded.args(["-c", "trap '' XFSZ; ulimit -f 40; exec \"$@\"", "sh"]).arg(sweep.get_program());
    bounded.args(sweep.get_args()).current_dir(folder.path()).env_clear();
    bounded.envs(sweep.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = Done::of(bounded.output().unwrap()).expect(2);
    assert!(done.stderr.contains("cannot write runs/demo/report.html: File too large"), "{}", done.stderr);
    assert!(!folder.path().join("runs/demo/report.html").exists());
    assert_eq!(outcomes(&folder), ["ok"]);
    let again = folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    assert!(again.stderr.contains("1 runs, 1 of them finished before"), "{}", again.stderr);
}

#[test]
fn out_of_memory_is_evidence_unless_told_otherwise() {
    let folder = folder(&seeds("[107]"));
    folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    folder.with_worker(&["sweep", "--fail-on-oom", "demo.toml"]).expect(3);
    assert_eq!(column(&folder, "oom_during")[&107], "forward");
}

#[test]
fn what_a_library_prints_is_kept_in_the_log() {
    let folder = folder(&seeds("[109]"));
    folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    let log = std::fs::read_to_string(run_folder(&folder, 109).join("worker.log")).unwrap();
    assert_eq!(log, "a library that prints\n");
}

#[test]
fn a_report_says_where_its_run_came_from() {
    let folder = folder(&seeds("[1]"));
    folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    let report = std::fs::read_to_string(run_folder(&folder, 1).join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let command: Vec<&str> =
        report["provenance"]["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(command[1..], ["sweep", "demo.toml"]);
    assert_eq!(report["provenance"]["experiment"], folder.path().join("demo.toml").to_str().unwrap());
}

#[test]
fn two_experiments_of_one_name_are_an_error() {
    let folder = folder(&seeds("[1]"));
    folder.write("again.toml", &seeds("[2]"));
    let done = folder.with_worker(&["sweep", "demo.toml", "again.toml"]).expect(2);
    assert!(done.stderr.contains("two of the experiments are called demo"), "{}", done.stderr);
}

#[test]
fn folders_with_spaces_quotes_and_umlauts_work() {
    let folder = Folder::new();
    let place = "my runs (ü)/it's $HOME & more";
    folder.write(&format!("{place}/demo.toml"), &seeds("[1]"));
    let mut command = folder.command_with_worker(&["sweep", "demo.toml"]);
    let done = Done::of(command.current_dir(folder.path().join(place)).output().unwrap()).expect(0);
    assert!(done.stderr.contains("1 runs: 1 ok"), "{}", done.stderr);
    folder.memlab(&["collate", &format!("{place}/runs/demo")]).expect(0);
}

#[test]
fn several_experiments_are_one_csv_and_share_no_folder() {
    let folder = folder(&seeds("[1, 2]"));
    folder.write("second.toml", &seeds("[3]").replace("demo", "second"));
    let done = folder.with_worker(&["sweep", "--format", "csv", "demo.toml", "second.toml"]).expect(0);
    assert_eq!(done.stdout.lines().count(), 1 + 3, "{}", done.stdout);
    assert!(folder.path().join("runs/second/results.csv").exists());
    let refused = folder.with_worker(&["sweep", "--out", "one", "demo.toml", "second.toml"]).expect(2);
    assert!(refused.stderr.contains("--out names one folder"), "{}", refused.stderr);
    // A mistake in the second file is found before the first is run.
    folder.write("second.toml", "name = \"second\"\n");
    folder.with_worker(&["sweep", "--fresh", "demo.toml", "second.toml"]).expect(2);
    assert_eq!(status(&folder, 1)["attempt"], 1);
}

#[test]
fn a_part_of_the_plan_can_be_taken() {
    let folder = folder(&seeds("[1, 2, 3, 4]"));
    folder.with_worker(&["sweep", "--first", "1", "demo.toml"]).expect(0);
    assert_eq!(column(&folder, "seed").len(), 1);
    let all = folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    assert!(all.stderr.contains("4 runs, 1 of them finished before"), "{}", all.stderr);
}

#[test]
fn a_table_is_written_while_nobody_reads_the_progress() {
    let folder = folder(&seeds("[1, 2]"));
    let mut command = folder.command_with_worker(&["sweep", "demo.toml"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    let done = Done::of(child.wait_with_output().unwrap()).expect(0);
    assert_eq!(done.stdout.lines().count(), 4 + 2, "{}", done.stdout);
}
