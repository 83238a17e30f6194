//! The scripts for a Slurm cluster, and what memlab makes of a scheduler's answers. No cluster is needed: programs of the same names
//! stand in for Slurm's.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use support::{Done, Folder};

const BASE: &str = "name = \"demo\"\n[base]\ncase = \"alpha\"\ndevice = \"cpu\"\ncompute = false\n";

fn folder(rest: &str) -> Folder {
    let folder = Folder::new();
    folder.write("demo.toml", &format!("{BASE}{rest}\n"));
    folder
}

/// The scripts of the only submission, in order.
fn scripts(folder: &Folder) -> Vec<PathBuf> {
    let submissions = std::fs::read_dir(folder.path().join("runs/demo/slurm")).unwrap();
    let submission = submissions.map(|entry| entry.unwrap().path()).find(|path| path.is_dir()).unwrap();
    let files = std::fs::read_dir(submission).unwrap().map(|entry| entry.unwrap().path());
    let mut scripts: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|name| name == "sh")).collect();
    scripts.sort();
    scripts
}

fn check_syntax(script: &PathBuf) {
    let output = Command::new("bash").arg("-n").arg(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Checks the whole text of the only script; what differs between machines and times is replaced.
macro_rules! script_snapshot {
    ($folder:expr) => {{
        let scripts = scripts(&$folder);
        assert_eq!(scripts.len(), 1);
        check_syntax(&scripts[0]);
        let text = std::fs::read_to_string(&scripts[0]).unwrap();
        let place = $folder.path().to_str().unwrap();
        let text = text.replace(place, "PLACE").replace(env!("CARGO_BIN_EXE_memlab"), "BIN/memlab");
        let text = text.replace(env!("CARGO_MANIFEST_DIR"), "SOURCE");
        insta::with_settings!({ filters => vec![(r"\d{8}T\d{6}\.\d{3}Z-[0-9a-f]{8}", "SUBMISSION")] }, {
            insta::assert_snapshot!(text)
        });
    }};
}

#[test]
fn the_smallest_script() {
    let folder = folder("");
    folder.with_worker(&["sweep", "--slurm", "demo.toml"]).expect(0);
    script_snapshot!(folder);
}

#[test]
fn a_script_with_everything() {
    let folder = folder(
        r#"
[sweep]
seed = [1, 2, 3, 4, 5]
world_size = [4]
[run]
timeout = "20m"
[slurm]
partition = "gpu"
account = "project 7"
qos = "high"
constraint = "h100&nvme"
time = "01:30:00"
mem = "80GiB"
cpus_per_task = 4
gpus_per_node = 2
gres = "nvme:1"
nodes = 2
throttle = 3
runs_per_task = 2
setup = ["module load pytorch", "source 'my env'/bin/activate"]
directives = ["--exclusive", "--mail-type=END"]
environment = { WORDS = "it's \"quoted\" $(not run)\nsecond line", ÜBER = "" }
container = "image one"
"#
        .replace(", ÜBER = \"\"", "")
        .as_str(),
    );
    folder.with_worker(&["sweep", "--slurm", "demo.toml"]).expect(0);
    script_snapshot!(folder);
}

#[test]
fn runs_with_other_needs_go_into_other_arrays() {
    let folder = folder(
        "[sweep]\nseed = [1, 2, 3, 4]\n[slurm]\ntime = \"10m\"\n[[slurm.override]]\nwhere = { seed = 3 }\ntime = \"2h\"",
    );
    let done = folder.with_worker(&["sweep", "--slurm", "demo.toml"]).expect(0);
    assert!(done.stdout.contains("array-0.sh  # 3 tasks, 3 runs"), "{}", done.stdout);
    assert!(done.stdout.contains("array-1.sh  # 1 tasks, 1 runs"), "{}", done.stdout);
    let texts: Vec<String> = scripts(&folder).iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    assert!(texts[0].contains("--array=0-2\n") && texts[0].contains("--time=00:10:00\n"), "{}", texts[0]);
    assert!(texts[1].contains("--array=0\n") && texts[1].contains("--time=02:00:00\n"), "{}", texts[1]);
}

#[test]
fn what_cannot_be_asked_of_slurm_is_refused_with_the_reason() {
    for (rest, words) in [
        ("[slurm]\naccount = \"two\\nlines\"", "cannot be expressed for a directive"),
        ("[slurm]\ndirectives = [\"exclusive\"]", "is no directive"),
        ("[slurm]\nenvironment = { \"NOT-A-NAME\" = \"x\" }", "cannot name a variable"),
        ("[slurm]\nlauncher = \"'half\"", "cannot be taken apart"),
    ] {
        let folder = folder(rest);
        let done = folder.with_worker(&["sweep", "--slurm", "demo.toml"]).expect(2);
        assert!(done.stderr.contains(words), "{rest}: {}", done.stderr);
        assert!(!folder.path().join("runs/demo/slurm").exists(), "nothing is written: {rest}");
    }
}

#[test]
fn a_template_of_ones_own_is_strict() {
    let folder = folder("");
    folder.write("mine.sh", "#!/bin/bash\n#SBATCH --array={{ array }}\n#SBATCH --time={{ tiem }}\n");
    let done = folder.with_worker(&["sweep", "--slurm", "--template", "mine.sh", "demo.toml"]).expect(2);
    assert!(done.stderr.contains("mine.sh:3"), "{}", done.stderr);
    assert!(done.stderr.contains("tiem"), "{}", done.stderr);
    let template = folder.memlab(&["slurm-template"]).expect(0).stdout;
    folder.write("mine.sh", &template);
    folder.with_worker(&["sweep", "--slurm", "--template", "mine.sh", "demo.toml"]).expect(0);
}

/// Programs in the place of Slurm's: what they do is the test's, what they were asked is in `calls`.
struct Cluster {
    sbatch: String,
    squeue: String,
    scontrol: String,
    sacctmgr: String,
}

impl Cluster {
    /// One without accounting that takes large arrays.
    fn new(sbatch: &str, squeue: &str) -> Self {
        let config = "echo 'MaxArraySize = 1001'; echo 'MaxJobCount = 10000'";
        Self { sbatch: sbatch.into(), squeue: squeue.into(), scontrol: config.into(), sacctmgr: "exit 1".into() }
    }

    fn memlab(&self, folder: &Folder, args: &[&str]) -> Done {
        self.put_into(folder);
        Done::of(Self::command(folder, args).output().unwrap())
    }

    /// Writes the programs.
    fn put_into(&self, folder: &Folder) {
        let Self { sbatch, squeue, scontrol, sacctmgr } = self;
        let sacct = "exit 1".to_owned();
        for (name, text) in
            [("sbatch", sbatch), ("squeue", squeue), ("scontrol", scontrol), ("sacct", &sacct), ("sacctmgr", sacctmgr)]
        {
            let text = format!("#!/bin/sh\necho \"{name} $*\" >> {}/calls\n{text}\n", folder.path().display());
            let path = folder.write(&format!("bin/{name}"), &text);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// `memlab` with the programs that were written.
    fn command(folder: &Folder, args: &[&str]) -> Command {
        let mut command = folder.command_with_worker(args);
        let path = format!("{}:{}", folder.path().join("bin").display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("SBATCH_PARTITION", "leaks").env("SLURM_CPU_BIND", "leaks");
        command.env("MEMLAB", env!("CARGO_BIN_EXE_memlab"));
        command
    }
}

fn with_slurm(folder: &Folder, sbatch: &str, squeue: &str, args: &[&str]) -> Done {
    Cluster::new(sbatch, squeue).memlab(folder, args)
}

const DETACHED: [&str; 5] = ["sweep", "--slurm", "--submit", "--detach", "demo.toml"];

#[test]
fn an_answer_is_read_among_a_sites_words() {
    let folder = folder("");
    let sbatch = "env >> environment; echo 'sbatch: temporarily unable to accept job, sleeping and retrying' >&2
        echo 'Welcome to Blue: 4000 GPUs'; echo '77;blue'";
    let done = with_slurm(&folder, sbatch, "exit 1", &DETACHED).expect(0);
    assert!(done.stderr.contains("job 77;blue"), "{}", done.stderr);
    let calls = folder.read("calls");
    assert!(calls.contains("--dependency=afterany:77 --clusters=blue"), "{calls}");
    let environment = folder.read("environment");
    assert!(!environment.contains("leaks"), "{environment}");
}

#[test]
fn a_lost_answer_is_looked_for_before_anything_is_sent_again() {
    let folder = folder("");
    let sbatch = "case $* in *collate*) echo 78; exit ;; esac
        sed -n 's/^#SBATCH --job-name=//p' \"$2\" > name
        echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1";
    let done = with_slurm(&folder, sbatch, "echo \"$(cat name)|76|0|PENDING||Priority\"", &DETACHED).expect(0);
    assert!(done.stderr.contains("job 76"), "{}", done.stderr);
    let calls = folder.read("calls");
    assert_eq!(calls.matches("sbatch --parsable /").count(), 1, "{calls}");
}

#[test]
fn a_refusal_says_why_and_sends_nothing_else() {
    let folder = folder("[sweep]\nseed = [1, 2]\n[[slurm.override]]\nwhere = { seed = 2 }\nqos = \"other\"");
    let sbatch = "echo 'sbatch: error: Batch job submission failed: Invalid account' >&2; exit 1";
    let done = with_slurm(&folder, sbatch, "exit 1", &DETACHED).expect(2);
    assert!(done.stderr.contains("Invalid account"), "{}", done.stderr);
    assert_eq!(folder.read("calls").matches("sbatch --parsable").count(), 1);
}

#[test]
fn a_thousand_runs_are_few_arrays_of_the_size_the_cluster_takes() {
    let folder = folder("[sweep]\nseed = { from = 1, to = 2500, step = 1 }");
    let done = with_slurm(&folder, "echo 5", "exit 0", &DETACHED).expect(0);
    assert_eq!(done.stderr.matches("submitted 1001 runs").count(), 2, "{}", done.stderr);
    assert!(done.stderr.contains("submitted 498 runs"), "{}", done.stderr);
    assert_eq!(sizes(&folder), [1001, 1001, 498]);
}

/// How many tasks each array has, in order.
fn sizes(folder: &Folder) -> Vec<usize> {
    let list = |script: &PathBuf| std::fs::read_to_string(script.with_extension("jsonl")).unwrap();
    scripts(folder).iter().map(|script| list(script).lines().count()).collect()
}

#[test]
fn arrays_fit_the_users_own_limit_and_the_rest_waits() {
    let folder = folder("[sweep]\nseed = { from = 1, to = 25, step = 1 }");
    let mut cluster = Cluster::new("echo 5", "exit 0");
    // Of several accounts the smallest limit counts; most have none.
    cluster.sacctmgr = "printf '\\n40\\n10\\n'".to_owned();
    let done = cluster.memlab(&folder, &DETACHED).expect(0);
    assert_eq!(sizes(&folder), [10, 10, 5]);
    assert_eq!(done.stderr.matches("submitted 10 runs").count(), 1, "{}", done.stderr);
    assert!(done.stderr.contains("15 runs have to wait until there is room"), "{}", done.stderr);
    let calls = folder.read("calls");
    assert_eq!(calls.matches("sbatch --parsable /").count(), 1, "{calls}");
}

#[test]
fn a_limit_that_is_only_told_by_refusing_makes_arrays_smaller() {
    let folder = folder("[sweep]\nseed = { from = 1, to = 40, step = 1 }");
    // A limit of ten jobs that stands in no configuration, such as that of a QOS; squeue has what was accepted.
    let sbatch = "case $* in *collate*) echo 9; exit ;; esac
        list=${2%.sh}.jsonl
        [ -e accepted ] || [ $(wc -l < \"$list\") -gt 10 ] && {
            echo 'sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user'\\''s size and/or time limits)' >&2
            exit 1; }
        echo x > accepted; echo 5";
    let squeue = "case $* in *--user=*) [ -e accepted ] && echo 5_0 ;; esac; exit 0";
    let done = with_slurm(&folder, sbatch, squeue, &DETACHED).expect(0);
    assert!(done.stderr.contains("submitted 10 runs"), "{}", done.stderr);
    assert!(done.stderr.contains("30 runs have to wait until there is room"), "{}", done.stderr);
    assert_eq!(done.stderr.matches("Slurm takes no more jobs for now").count(), 1, "{}", done.stderr);

    // Where not even one job is taken, it is no matter of waiting.
    let folder = self::folder("");
    let sbatch = "echo 'sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user'\\''s size and/or time limits)' >&2; exit 1";
    let done = with_slurm(&folder, sbatch, "exit 0", &DETACHED).expect(2);
    assert!(done.stderr.contains("Slurm refuses the job: "), "{}", done.stderr);
}

#[test]
fn a_refusal_in_the_middle_says_what_goes_on() {
    let folder = folder("[sweep]\nseed = [1, 2]\n[[slurm.override]]\nwhere = { seed = 2 }\nqos = \"other\"");
    let sbatch = "case $* in *array-0*) echo 5; exit ;; esac
        echo 'sbatch: error: Batch job submission failed: Invalid qos specification' >&2; exit 1";
    let done = with_slurm(&folder, sbatch, "exit 1", &DETACHED).expect(2);
    assert!(done.stderr.contains("Invalid qos specification"), "{}", done.stderr);
    assert!(done.stderr.contains("1 tasks are in the queue and go on: `memlab status runs/demo`"), "{}", done.stderr);
}

#[test]
fn what_cannot_be_read_is_refused_when_the_queue_does_not_have_it() {
    let folder = folder("");
    let done = with_slurm(&folder, "echo 'our wrapper: no budget left' >&2; exit 3", "exit 0", &DETACHED).expect(2);
    assert!(done.stderr.contains("Slurm refuses the job: our wrapper: no budget left"), "{}", done.stderr);
    assert_eq!(folder.read("calls").matches("sbatch --parsable").count(), 1);
}

/// A cluster that has accepted the only array, as job 5, and executes its task when it is asked for the queue the second time.
fn that_executes_when_asked(and_then: &str) -> Cluster {
    let squeue = format!(
        "script=$(ls runs/demo/slurm/*/array-0.sh | tail -n 1)
        name=$(sed -n 's/^#SBATCH --job-name=//p' $script)
        n=$(($(cat asked 2>/dev/null || echo 0) + 1)); echo $n > asked
        [ $n = 1 ] && {{ echo \"$name|5|0|PENDING||None\"; exit; }}
        {and_then}
        echo \"$name|5|0|COMPLETED|n1|None\""
    );
    Cluster::new("case $* in *collate*) echo 6 ;; *) echo 5 ;; esac", &squeue)
}

const TASK: &str =
    "SLURM_ARRAY_JOB_ID=5 SLURM_ARRAY_TASK_ID=0 SLURM_JOB_NAME=$name $MEMLAB slurm-task ${script%.sh}.jsonl 0";

#[test]
fn a_run_that_ends_while_the_queue_is_asked_is_not_sent_again() {
    let folder = folder("");
    let cluster = that_executes_when_asked(&format!("{TASK} > task.log 2>&1"));
    cluster.memlab(&folder, &DETACHED).expect(0);
    cluster.memlab(&folder, &["status", "runs/demo"]).expect(0);
    let done = cluster.memlab(&folder, &["sweep", "--slurm", "--submit", "demo.toml"]).expect(0);
    assert!(done.stderr.contains("nothing to submit: every run is finished"), "{}", done.stderr);
    assert_eq!(folder.read("calls").matches("sbatch --parsable /").count(), 1);
}

#[test]
fn a_report_that_comes_late_is_waited_for() {
    let folder = folder("");
    // The job is over at once, its files are seen only after the next question.
    let late = format!("[ $n = 2 ] || [ -e task.log ] || {TASK} > task.log 2>&1");
    let cluster = that_executes_when_asked(&late);
    cluster.memlab(&folder, &DETACHED).expect(0);
    cluster.memlab(&folder, &["status", "runs/demo"]).expect(0);
    let done = cluster.memlab(&folder, &["collate", "runs/demo"]).expect(0);
    assert!(done.stderr.contains("runs/demo: 1 ok"), "{}", done.stderr);
}

#[test]
fn a_number_that_slurm_gave_before_is_another_job() {
    let folder = folder("");
    let cluster = that_executes_when_asked(&format!("{TASK} > task.log 2>&1"));
    for attempt in 1..=2 {
        let _ = std::fs::remove_file(folder.path().join("asked"));
        cluster.memlab(&folder, &[&DETACHED[..], &["--fresh"]].concat()).expect(0);
        let status = cluster.memlab(&folder, &["status", "--format", "json", "runs/demo"]).expect(0);
        let rows: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
        assert_eq!(rows[0]["state"], if attempt == 1 { "queued" } else { "ok" }, "{rows}");
        let status = cluster.memlab(&folder, &["status", "--format", "json", "runs/demo"]).expect(0);
        let rows: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
        assert_eq!(rows[0]["attempt"], attempt, "{rows}");
    }
}

#[test]
fn a_sweep_here_does_not_touch_what_is_in_a_queue() {
    let folder = folder("");
    let name = "name=$(sed -n 's/^#SBATCH --job-name=//p' runs/demo/slurm/*/array-0.sh)";
    let cluster = Cluster::new("echo 5", &format!("{name}; echo \"$name|5|0|PENDING||Priority\""));
    cluster.memlab(&folder, &DETACHED).expect(0);
    for command in ["sweep", "check"] {
        let done = cluster.memlab(&folder, &[command, "demo.toml"]).expect(2);
        assert!(done.stderr.contains("runs of runs/demo are in the queue of a cluster"), "{}", done.stderr);
        assert!(done.stderr.contains("--slurm --submit") && done.stderr.contains("memlab cancel"), "{}", done.stderr);
    }
}

#[test]
fn the_job_that_collates_is_there_also_after_a_kill_before_it() {
    let folder = folder("");
    let name = "name=$(sed -n 's/^#SBATCH --job-name=//p' runs/demo/slurm/*/array-0.sh)";
    let queue = format!("{name}; echo \"$name|5|0|PENDING||Priority\"");
    let killed = Cluster::new("case $* in *collate*) kill -KILL $PPID ;; *) echo 5 ;; esac", &queue);
    killed.memlab(&folder, &DETACHED).expect(-1);
    let cluster = Cluster::new("case $* in *collate*) echo 6 ;; esac", &queue);
    let done = cluster.memlab(&folder, &DETACHED).expect(0);
    assert!(done.stderr.contains("1 runs are in the queue already"), "{}", done.stderr);
    assert!(done.stderr.contains("job 6 writes the tables"), "{}", done.stderr);
    assert!(folder.read("calls").contains("--dependency=afterany:5"), "{}", folder.read("calls"));
}

#[test]
fn two_that_write_down_the_same_ends_do_not_meet() {
    let folder = folder("[sweep]\nseed = { from = 1, to = 300, step = 1 }");
    let name = "name=$(sed -n 's/^#SBATCH --job-name=//p' runs/demo/slurm/*/array-0.sh)";
    let cluster = Cluster::new("echo 5", &format!("{name}; echo \"$name|5|N/A|CANCELLED||None\""));
    cluster.memlab(&folder, &DETACHED).expect(0);
    let both = std::thread::scope(|scope| {
        let collate = || Cluster::command(&folder, &["collate", "runs/demo"]).output().unwrap();
        let other = scope.spawn(collate);
        [Done::of(collate()), Done::of(other.join().unwrap())]
    });
    for done in both {
        let done = done.expect(4);
        assert!(done.stderr.contains("runs/demo: 300 cancelled"), "{}", done.stderr);
        assert!(!done.stderr.contains("error"), "{}", done.stderr);
    }
    let status = cluster.memlab(&folder, &["status", "--format", "json", "runs/demo"]).expect(0);
    let rows: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
    assert!(rows.as_array().unwrap().iter().all(|row| row["attempt"] == 1), "{rows}");
}
