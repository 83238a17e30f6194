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
        insta::with_settings!({ filters => vec![(r"\d{8}T\d{6}Z-[0-9a-f]{8}", "SUBMISSION")] }, {
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
fn with_slurm(folder: &Folder, sbatch: &str, squeue: &str, args: &[&str]) -> Done {
    let config = "echo 'MaxArraySize = 1001'; echo 'MaxJobCount = 10000'";
    for (name, text) in [("sbatch", sbatch), ("squeue", squeue), ("scontrol", config), ("sacct", "exit 1")] {
        let text = format!("#!/bin/sh\necho \"{name} $*\" >> {}/calls\n{text}\n", folder.path().display());
        let path = folder.write(&format!("bin/{name}"), &text);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = folder.command_with_worker(args);
    let path = format!("{}:{}", folder.path().join("bin").display(), std::env::var("PATH").unwrap());
    command.env("PATH", path).env("SBATCH_PARTITION", "leaks").env("SLURM_CPU_BIND", "leaks");
    Done::of(command.output().unwrap())
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
    let sizes: Vec<usize> = scripts(&folder)
        .iter()
        .map(|script| std::fs::read_to_string(script.with_extension("jsonl")).unwrap().lines().count())
        .collect();
    assert_eq!(sizes, [1001, 1001, 498]);
}
