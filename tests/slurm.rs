//! Sweeps on a real cluster (tests/slurm/cluster), which every test starts for itself. The stand-in for the worker does what a run's
//! seed tells it to.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod support;

/// The tests need Slurm, and are left out unless asked for.
mod needs_slurm {
    use std::collections::BTreeSet;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use crate::support::{Done, Folder};

    /// A cluster, ended with the test.
    struct Cluster {
        dir: tempfile::TempDir,
    }

    impl Cluster {
        fn start() -> Self {
            Self::with(1, &[])
        }

        /// With more nodes, or other settings, than most tests need.
        fn with(nodes: u32, settings: &[&str]) -> Self {
            let dir = tempfile::Builder::new().prefix("slurm").tempdir_in("/tmp").unwrap();
            let cluster = Self { dir };
            Self::finish(cluster.action("start").args(settings).env("NODES", nodes.to_string()));
            cluster
        }

        fn call(&self, action: &str) {
            Self::finish(&mut self.action(action));
        }

        fn action(&self, action: &str) -> Command {
            let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slurm/cluster"));
            command.arg(action).arg(self.dir.path());
            command
        }

        fn finish(action: &mut Command) {
            let output = action.stdin(Stdio::null()).output().unwrap();
            assert!(output.status.success(), "{action:?}: {}", String::from_utf8_lossy(&output.stderr));
        }

        /// A program of Slurm's, which succeeds; what it prints.
        fn slurm(&self, program: &str, args: &[&str]) -> String {
            let output = Command::new(program).args(args).env("SLURM_CONF", self.conf()).output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program} {args:?}: {said}{complaint}");
            said
        }

        /// Checks that scripts are such for the shell, for Slurm, and for whoever reads them.
        fn check(&self, scripts: &[PathBuf]) {
            assert!(!scripts.is_empty());
            for script in scripts.iter().map(|script| script.to_str().unwrap()) {
                self.slurm("bash", &["-n", script]);
                // Below a warning it would have `$(...)` in a value expand, and follow a user's own files.
                self.slurm("shellcheck", &["--severity=warning", script]);
                self.slurm("sbatch", &["--test-only", script]);
            }
        }

        fn conf(&self) -> PathBuf {
            self.dir.path().join("slurm.conf")
        }

        /// `memlab` on this cluster, in the folder.
        fn command(&self, folder: &Folder, args: &[&str]) -> Command {
            let mut command = folder.command_with_worker(args);
            command.env("SLURM_CONF", self.conf());
            command
        }

        fn memlab(&self, folder: &Folder, args: &[&str]) -> Done {
            Done::of(self.command(folder, args).output().unwrap())
        }

        /// The same, going on beside the test.
        fn start_memlab(&self, folder: &Folder, args: &[&str]) -> Child {
            self.command(folder, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        }

        /// Every job the controller still knows, as `name|array job|task|state`.
        fn jobs(&self) -> Vec<String> {
            let said = self.slurm("squeue", &["-h", "-r", "-t", "all", "-o", "%j|%F|%K|%T"]);
            said.lines().map(str::to_owned).collect()
        }
    }

    impl Drop for Cluster {
        fn drop(&mut self) {
            let _ = self.action("stop").output();
        }
    }

    const SWEEP: [&str; 6] = ["sweep", "--slurm", "--submit", "--poll", "1", "demo.toml"];

    /// An experiment with runs of these seeds.
    fn experiment(seeds: &str, rest: &str) -> String {
        format!(
            "name = \"demo\"\n[base]\ncase = \"alpha\"\ndevice = \"cpu\"\ncompute = false\n[sweep]\nseed = {seeds}\n{rest}\n"
        )
    }

    fn folder(seeds: &str, rest: &str) -> Folder {
        let folder = Folder::new();
        folder.write("demo.toml", &experiment(seeds, rest));
        folder
    }

    /// The folder of the run with this seed.
    fn run(folder: &Folder, seed: u64) -> PathBuf {
        let entries = std::fs::read_dir(folder.path().join("runs/demo")).unwrap().map(|entry| entry.unwrap().path());
        let part = format!("-seed{seed}-");
        let named = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().contains(&part);
        let found: Vec<PathBuf> = entries.filter(named).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().unwrap()
    }

    fn status(folder: &Folder, seed: u64) -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(run(folder, seed).join("status.json")).unwrap()).unwrap()
    }

    /// Waits until something holds, for at most a minute and a half.
    #[track_caller]
    fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
        let started = Instant::now();
        while !holds() {
            assert!(started.elapsed() < Duration::from_secs(90), "{what}: does not happen");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The scripts of all submissions.
    fn scripts(place: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for submission in std::fs::read_dir(place.join("runs/demo/slurm")).unwrap() {
            let submission = submission.unwrap().path();
            if submission.is_dir() {
                let files = std::fs::read_dir(submission).unwrap().map(|entry| entry.unwrap().path());
                found.extend(files.filter(|path| path.extension().is_some_and(|extension| extension == "sh")));
            }
        }
        found.sort();
        found
    }

    #[test]
    fn twelve_runs_go_in_arrays_of_five_from_an_odd_folder() {
        let cluster = Cluster::start();
        let folder = Folder::new();
        let place = "my runs (ü)/it's $(touch x) 100%";
        folder.write(
            &format!("{place}/demo.toml"),
            &experiment(
                "{ from = 1, to = 12, step = 1 }",
                "[slurm]\nthrottle = 2\nenvironment = { WORDS = \"it's $(x)\" }",
            ),
        );
        let done = Done::of(cluster.command(&folder, &SWEEP).current_dir(folder.path().join(place)).output().unwrap());
        let done = done.expect(0);
        assert!(done.stderr.contains("12 runs: 12 ok"), "{}", done.stderr);
        let results = folder.read(&format!("{place}/runs/demo/results.csv"));
        assert_eq!(results.lines().count(), 13);
        assert!(!folder.path().join(place).join("x").exists(), "nothing of the path was executed");

        let jobs = cluster.jobs();
        let arrays: BTreeSet<&str> = jobs.iter().map(|job| job.split('|').nth(1).unwrap()).collect();
        assert_eq!((jobs.len(), arrays.len()), (12, 3), "{jobs:?}");
        let scripts = scripts(&folder.path().join(place));
        assert_eq!(scripts.len(), 3);
        cluster.check(&scripts);
        let submission = scripts[0].parent().unwrap();
        assert!(submission.join("array-0-4.log").is_file(), "each task has its own log");

        // What is finished is not submitted again.
        let done = Done::of(cluster.command(&folder, &SWEEP).current_dir(folder.path().join(place)).output().unwrap());
        let done = done.expect(0);
        assert!(done.stderr.contains("nothing to submit"), "{}", done.stderr);
        assert_eq!(std::fs::read_dir(submission.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn runs_of_one_task_follow_one_another() {
        let cluster = Cluster::start();
        let folder = folder("[1, 101, 2, 3, 4]", "[slurm]\nruns_per_task = 3");
        let done = cluster.memlab(&folder, &SWEEP).expect(4);
        assert!(done.stderr.contains("4 ok, 1 error"), "{}", done.stderr);
        assert_eq!(cluster.jobs().len(), 2);
    }

    #[test]
    fn every_way_to_fail_has_its_outcome_and_can_be_tried_again() {
        let cluster = Cluster::start();
        let needs = "[run]\ntimeout = \"15s\"\n[slurm]\nmem = \"100MiB\"\n[[slurm.override]]\nwhere = { seed = 3 }\nmem = \"200MiB\"";
        let folder = folder("[3, 101, 103, 104, 107, 115]", needs);
        let done = cluster.memlab(&folder, &SWEEP).expect(4);
        let outcome = |seed| status(&folder, seed)["outcome"].as_str().unwrap().to_owned();
        let outcomes = [3, 101, 103, 104].map(outcome);
        assert_eq!(outcomes, ["ok", "error", "timeout", "killed"], "{}", done.stderr);
        // The device's memory is the run's own matter, the host's is Slurm's.
        assert_eq!(outcome(107), "oom", "{}", done.stderr);
        assert_eq!(outcome(115), "host_oom", "{}", done.stderr);
        assert!(status(&folder, 115)["message"].as_str().unwrap().contains("memory limit"), "{}", done.stderr);
        assert_eq!(scripts(folder.path()).len(), 2, "an array for each need");

        // Only what is asked for is sent again, with more of what it lacked; the first attempt is kept.
        let again = ["sweep", "--slurm", "--submit", "--poll", "1", "--retry", "host_oom"];
        let args = [&again[..], &["--set", "slurm.mem=3GiB", "demo.toml"]].concat();
        cluster.memlab(&folder, &args).expect(4);
        assert_eq!(outcome(115), "timeout", "it sleeps for a minute once it has its memory");
        assert_eq!(status(&folder, 115)["attempt"], 2);
        assert!(run(&folder, 115).join("attempts/1/status.json").is_file());
        assert_eq!(status(&folder, 101)["attempt"], 1);
        let last = scripts(folder.path()).pop().unwrap();
        assert!(std::fs::read_to_string(last).unwrap().contains("#SBATCH --mem=3072M"));
    }

    #[test]
    fn a_job_beyond_its_time_is_a_timeout() {
        let cluster = Cluster::start();
        let folder = folder("[1]", "[slurm]\ntime = \"00:01:00\"");
        let template = folder.memlab(&["slurm-template"]).expect(0).stdout;
        let sleeping = template.replace("exec {{ memlab | sh }} slurm-task", "echo asleep; sleep 300; : ");
        assert_ne!(sleeping, template);
        folder.write("mine.sh", &sleeping);
        let args = [&SWEEP[..], &["--template", "mine.sh"]].concat();
        cluster.memlab(&folder, &args).expect(4);
        let status = status(&folder, 1);
        assert_eq!(status["outcome"], "timeout");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains("TIMEOUT") && message.contains("array-0-0.log ends with: asleep"), "{message}");
    }

    #[test]
    fn what_is_cancelled_is_cancelled_running_or_not() {
        let cluster = Cluster::start();
        let folder = folder("[102, 1]", "[slurm]\nthrottle = 1");
        let follower = cluster.start_memlab(&folder, &SWEEP);
        wait_until("the first run starts", || {
            cluster.jobs().iter().any(|job| job.ends_with("|0|RUNNING"))
                && run_exists(&folder, 102)
                && status(&folder, 102)["slurm_job_id"].is_string()
        });
        let job = cluster.jobs()[0].split('|').nth(1).unwrap().to_owned();
        cluster.slurm("scancel", &[&format!("{job}_1")]);
        cluster.slurm("scancel", &[&format!("{job}_0")]);
        let done = Done::of(follower.wait_with_output().unwrap()).expect(4);
        assert!(done.stderr.contains("2 runs: 2 cancelled"), "{}", done.stderr);
    }

    fn run_exists(folder: &Folder, seed: u64) -> bool {
        let part = format!("-seed{seed}-");
        let entries = std::fs::read_dir(folder.path().join("runs/demo")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).any(|path| {
            path.file_name().unwrap().to_string_lossy().contains(&part) && path.join("status.json").is_file()
        })
    }

    #[test]
    fn a_submission_that_is_killed_is_gone_on_with_and_nothing_is_sent_twice() {
        let cluster = Cluster::start();
        let folder = folder("{ from = 1, to = 12, step = 1 }", "");
        // Accepts the second array, and takes memlab away before it hears of it.
        let real = cluster_program("sbatch");
        let wrapper = folder.write(
            "bin/sbatch",
            &format!(
                "#!/bin/sh\necho x >> calls\n{real} \"$@\" > answer\n[ \"$(wc -l < calls)\" = 2 ] && kill -KILL $PPID\ncat answer\n"
            ),
        );
        std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", folder.path().join("bin").display(), std::env::var("PATH").unwrap());
        let output = cluster.command(&folder, &SWEEP).env("PATH", path).output().unwrap();
        assert_eq!(output.status.code(), None, "killed");
        let done = cluster.memlab(&folder, &SWEEP).expect(0);
        assert!(done.stderr.contains("12 runs: 12 ok"), "{}", done.stderr);
        for seed in 1..=12 {
            assert_eq!(status(&folder, seed)["attempt"], 1, "seed {seed} ran once");
        }
    }

    fn cluster_program(name: &str) -> String {
        let path = std::env::var_os("PATH").unwrap();
        let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
        found.unwrap().display().to_string()
    }

    #[test]
    fn a_requeued_run_is_tried_again() {
        let cluster = Cluster::start();
        let folder = folder("[116]", "");
        let follower = cluster.start_memlab(&folder, &SWEEP);
        wait_until("the run starts", || run_exists(&folder, 116) && status(&folder, 116)["slurm_job_id"].is_string());
        let job = status(&folder, 116)["slurm_job_id"].as_str().unwrap().to_owned();
        cluster.slurm("scontrol", &["requeue", &job]);
        // Slurm holds a requeued job back for two minutes.
        wait_until("it waits again", || cluster.jobs().iter().any(|job| job.ends_with("|0|PENDING")));
        cluster.slurm("scontrol", &["update", &format!("jobid={job}"), "starttime=now"]);
        let done = Done::of(follower.wait_with_output().unwrap()).expect(0);
        assert!(done.stderr.contains("1 runs: 1 ok"), "{}", done.stderr);
        assert_eq!(status(&folder, 116)["attempt"], 2);
        assert!(run(&folder, 116).join("attempts/1/worker.log").is_file());
    }

    #[test]
    fn a_controller_that_is_away_is_waited_for() {
        let cluster = Cluster::start();
        let folder = folder("[117, 1, 2]", "[slurm]\nthrottle = 1");
        let said = std::fs::File::create(folder.path().join("said")).unwrap();
        let mut follower = cluster.command(&folder, &SWEEP).stdout(Stdio::null()).stderr(said).spawn().unwrap();
        wait_until("the first run starts", || run_exists(&folder, 117));
        cluster.call("stop-controller");
        // squeue has patience of its own.
        wait_until("memlab notices", || folder.read("said").contains("does not answer"));
        cluster.call("start-controller");
        assert!(follower.wait().unwrap().success(), "{}", folder.read("said"));
        let said = folder.read("said");
        assert!(said.contains("answers again") && said.contains("3 runs: 3 ok"), "{said}");
    }

    #[test]
    fn results_appear_without_anyone_watching() {
        let cluster = Cluster::start();
        let folder = folder("[1, 2, 101]", "");
        let args = [&SWEEP[..], &["--detach"]].concat();
        let done = cluster.memlab(&folder, &args).expect(0);
        assert_eq!(done.stdout, "", "there is nothing to tabulate yet");
        let results = folder.path().join("runs/demo/results.csv");
        wait_until("the tables are written", || results.is_file());
        cluster.check(&[folder.path().join("runs/demo/slurm/collate.sh")]);
        let results = std::fs::read_to_string(results).unwrap();
        assert_eq!(results.matches(",ok,").count(), 2, "{results}");
        assert_eq!(results.matches(",error,").count(), 1, "{results}");
    }

    #[test]
    fn an_interruption_leaves_the_jobs_and_cancel_ends_them() {
        let cluster = Cluster::start();
        let folder = folder("[102, 1]", "[slurm]\nthrottle = 1");
        let follower = cluster.start_memlab(&folder, &SWEEP);
        wait_until("the first run starts", || run_exists(&folder, 102));
        kill(Pid::from_raw(i32::try_from(follower.id()).unwrap()), Signal::SIGINT).unwrap();
        let done = Done::of(follower.wait_with_output().unwrap()).expect(130);
        assert!(done.stderr.contains("memlab cancel"), "{}", done.stderr);
        assert!(cluster.jobs().iter().any(|job| job.ends_with("|RUNNING")));

        let done = cluster.memlab(&folder, &["status", "--format", "json", "runs/demo"]).expect(0);
        let rows: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!([&rows[0]["state"], &rows[1]["state"]], ["running", "queued"], "{rows}");
        assert!(rows[1]["message"].as_str().unwrap().contains("PENDING"), "{rows}");

        // What is in the queue is not run here as well.
        let done = cluster.memlab(&folder, &["sweep", "demo.toml"]).expect(2);
        assert!(done.stderr.contains("runs of runs/demo are in the queue of a cluster"), "{}", done.stderr);

        cluster.memlab(&folder, &["cancel", "runs/demo"]).expect(0);
        let done = cluster.memlab(&folder, &["collate", "runs/demo"]).expect(4);
        assert!(done.stderr.contains("2 cancelled"), "{}", done.stderr);
    }

    #[test]
    fn an_array_that_never_started_is_cancelled_as_a_whole() {
        let cluster = Cluster::start();
        let folder = folder("[1, 2, 3]", "[slurm]\ndirectives = [\"--hold\"]");
        cluster.memlab(&folder, &[&SWEEP[..], &["--detach"]].concat()).expect(0);
        cluster.memlab(&folder, &["cancel", "runs/demo"]).expect(0);
        let done = cluster.memlab(&folder, &["collate", "runs/demo"]).expect(4);
        assert!(done.stderr.contains("3 cancelled"), "{}", done.stderr);
    }

    #[test]
    fn two_ranks_on_two_gpus_start_through_srun() {
        let cluster = Cluster::start();
        let folder = folder("[113]", "world_size = [2]\n[slurm]\ngpus_per_node = 2");
        cluster.memlab(&folder, &SWEEP).expect(0);
        let log = std::fs::read_to_string(run(&folder, 113).join("worker.log")).unwrap();
        let lines: BTreeSet<&str> = log.lines().collect();
        assert_eq!(lines, BTreeSet::from(["0,1 0 0 2 store", "0,1 1 1 2 store"]));
    }

    #[test]
    fn ranks_on_two_nodes_start_through_srun() {
        let cluster = Cluster::with(2, &[]);
        let folder = folder("[113]", "world_size = [2]\n[slurm]\nnodes = 2\ngpus_per_node = 1");
        cluster.memlab(&folder, &SWEEP).expect(0);
        let log = std::fs::read_to_string(run(&folder, 113).join("worker.log")).unwrap();
        let lines: BTreeSet<&str> = log.lines().collect();
        assert_eq!(lines, BTreeSet::from(["0 0 0 2 store", "0 1 0 2 store"]));
        cluster.check(&scripts(folder.path()));
    }

    #[cfg(feature = "worker")]
    #[test]
    fn ranks_that_srun_starts_report_what_each_measured() {
        let cluster = Cluster::with(2, &[]);
        let needs = "world_size = [2]\n[slurm]\ngpus_per_node = 2
            [[slurm.override]]\nwhere = { seed = 2 }\nnodes = 2\ngpus_per_node = 1";
        let folder = folder("[1, 2]", needs);
        let mut command = folder.command_with_real_worker(&SWEEP);
        Done::of(command.env("SLURM_CONF", cluster.conf()).output().unwrap()).expect(0);
        for (seed, local_ranks) in [(1, [0, 1]), (2, [0, 0])] {
            let report = std::fs::read_to_string(run(&folder, seed).join("report.json")).unwrap();
            let report: serde_json::Value = serde_json::from_str(&report).unwrap();
            let ranks = report["rank_reports"].as_array().unwrap();
            let of = |key: &str| ranks.iter().map(|rank| rank[key].as_u64().unwrap()).collect::<Vec<_>>();
            assert_eq!((of("rank"), of("local_rank")), (vec![0, 1], local_ranks.to_vec()), "seed {seed}");
            assert_eq!(ranks[0]["samples"], ranks[1]["samples"], "seed {seed}");
            assert_eq!(ranks[0]["samples"].as_array().unwrap().len(), 3 + 6 * 4, "seed {seed}");
            assert_eq!(report["slurm_job_id"], status(&folder, seed)["slurm_job_id"]);
        }
    }

    #[test]
    fn more_runs_than_the_cluster_takes_go_in_waves() {
        let cluster = Cluster::with(1, &["MaxJobCount=8"]);
        let folder = folder("{ from = 1, to = 12, step = 1 }", "");
        let done = cluster.memlab(&folder, &SWEEP).expect(0);
        assert!(done.stderr.contains("12 runs: 12 ok"), "{}", done.stderr);
        let at = |text: &str| done.stderr.find(text).unwrap_or_else(|| panic!("{text}: {}", done.stderr));
        let first_end = at("[ 1/12] ok");
        assert!(at("submitted 5 runs") < first_end && first_end < at("submitted 2 runs"), "{}", done.stderr);
    }

    #[test]
    fn every_key_is_taken_by_slurm() {
        let cluster = Cluster::with(2, &[]);
        let keys = r#"world_size = [2]
            [slurm]
            partition = "main"
            account = "project 7"
            qos = "high"
            constraint = "paper"
            time = "00:20:00"
            mem = "2GiB"
            cpus_per_task = 2
            gpus_per_node = 1
            gres = "gpu:1"
            nodes = 2
            throttle = 1
            runs_per_task = 2
            setup = ["export PLACE='over there'", "umask 022"]
            directives = ["--exclusive", "--mail-type=NONE"]
            environment = { WORDS = "it's \"quoted\" $(not run)\nsecond line" }
        "#;
        let folder = folder("[1, 2, 3]", keys);
        cluster.memlab(&folder, &SWEEP).expect(0);
        cluster.check(&scripts(folder.path()));
    }

    #[test]
    fn a_launcher_of_ones_own_starts_the_workers() {
        let cluster = Cluster::start();
        let place = Folder::new();
        let launcher = place.write("its place/enter", "#!/bin/sh\necho \"entering $1\" >&2\nshift\nexec \"$@\"\n");
        std::fs::set_permissions(&launcher, std::fs::Permissions::from_mode(0o755)).unwrap();
        let folder = folder("[1]", &format!("[slurm]\nlauncher = \"'{}' 'image one'\"", launcher.display()));
        cluster.memlab(&folder, &SWEEP).expect(0);
        let log = std::fs::read_to_string(run(&folder, 1).join("worker.log")).unwrap();
        assert_eq!(log, "entering image one\n");
        cluster.check(&scripts(folder.path()));
    }

    /// `srun --container-image` is an extension that a cluster has or has not; this one has it not.
    #[test]
    fn a_container_where_srun_knows_none_is_an_error_in_its_words() {
        let cluster = Cluster::start();
        let folder = folder("[1]", "[slurm]\ncontainer = \"image one\"");
        cluster.memlab(&folder, &SWEEP).expect(4);
        let status = status(&folder, 1);
        assert_eq!(status["outcome"], "error");
        assert!(status["message"].as_str().unwrap().contains("--container-image"), "{status}");
    }

    #[test]
    fn a_node_on_which_everything_fails_is_named() {
        let cluster = Cluster::with(2, &[]);
        let folder = folder("[119]", "steps = [1, 2, 3, 4, 5]\n[slurm]\ndirectives = [\"--exclusive\"]");
        let done = cluster.memlab(&folder, &SWEEP).expect(4);
        assert!(done.stderr.contains("runs failed, all of them on node2, where none finished"), "{}", done.stderr);
        assert!(done.stderr.contains("--exclude=node2"), "{}", done.stderr);
    }

    #[test]
    fn what_slurm_refuses_is_said_at_once() {
        let cluster = Cluster::start();
        for (rest, why) in [
            ("mem = \"1GiB\"\nmem_per_cpu = \"1GiB\"", "mutually exclusive"),
            ("directives = [\"--no-such-option\"]", "unrecognized option"),
            ("directives = [\"--begin=whenever\"]", "Invalid"),
            ("partition = \"nowhere\"", "Invalid partition name specified"),
            ("gpus_per_node = 7", "Requested node configuration is not available"),
        ] {
            let folder = folder("[1]", &format!("[slurm]\n{rest}"));
            let done = cluster.memlab(&folder, &SWEEP).expect(2);
            assert!(done.stderr.contains("Slurm refuses the job: ") && done.stderr.contains(why), "{}", done.stderr);
        }
    }
}
