//! The set-up as a user meets it: `.ci/libtorch` and `.ci/need` on machines of every kind, with small wheels in place of
//! `PyTorch`'s and a package index that is a folder.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

#[path = "../support/mod.rs"]
mod support;

use std::env::consts::ARCH;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{Done, Folder};

const TORCH: &str = "cache/memlab/libtorch-2.11.0-x86_64-cpu/torch";
const TORCH_WITH_CUDA: &str = "cache/memlab/libtorch-2.11.0-x86_64-cuda/torch";

/// A machine with a Python of its own that has neither `PyTorch` nor pip, and an empty home.
struct Machine {
    folder: Folder,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { folder: Folder::new() };
        machine.done("python3", &["-m", "venv", "--without-pip", "python"]);
        machine.done("c++", &["-shared", "-x", "c++", "/dev/null", "-o", "library.so"]);
        fs::create_dir(machine.path("wheels")).unwrap();
        let tools = [project("tests/setup/wheels.py"), project(".ci/libtorch")].map(|path| path.display().to_string());
        machine.done("python3", &[&tools[0], &tools[1], "library.so", "wheels"]);
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command with nothing of the caller's environment but PATH, behind this machine's own programs.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{}:{path}", self.path("programs").display(), self.path("python/bin").display());
        command.current_dir(self.folder.path()).env_clear().env("PATH", path).stdin(Stdio::null());
        command.env("HOME", self.folder.path()).env("XDG_CACHE_HOME", self.path("cache")).env("MEMLAB_CUDA", "no");
        command
    }

    /// Runs a step that prepares the machine.
    fn done(&self, program: &str, args: &[&str]) {
        Done::of(self.command(program).args(args).output().unwrap()).expect(0);
    }

    /// `.ci/libtorch` with pip and a package index in reach.
    fn libtorch(&self) -> Command {
        let mut command = self.libtorch_without_pip();
        command.env("PYTHONPATH", project("tests/setup")).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("INDEX", self.path("wheels")).env("PIP_LOG", self.path("pip.log"));
        command
    }

    fn libtorch_without_pip(&self) -> Command {
        self.command(project(".ci/libtorch"))
    }

    /// The projects that pip fetched, in order.
    fn fetched(&self) -> Vec<String> {
        fs::read_to_string(self.path("pip.log")).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// A program of this machine that does nothing.
    fn program(&self, name: &str) {
        let path = self.folder.write(&format!("programs/{name}"), "#!/bin/sh\n");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A libtorch folder that was not made by memlab.
    fn foreign(&self, folder: &str, version: &str) -> PathBuf {
        self.folder.write(&format!("{folder}/version.py"), &format!("__version__ = '{version}'\n"));
        self.folder.write(&format!("{folder}/__init__.py"), "raise SystemExit('torch must not be imported')\n");
        self.folder.write(&format!("{folder}/include/torch/csrc/api/include/torch/torch.h"), "");
        fs::create_dir(self.path(folder).join("lib")).unwrap();
        fs::copy(self.path("library.so"), self.path(folder).join("lib/libtorch_cpu.so")).unwrap();
        self.path(folder)
    }

    /// The outcome, with the paths of this machine replaced and as if it were an x86-64 one.
    fn run(&self, command: &mut Command) -> Done {
        let mut done = Done::of(command.output().unwrap());
        for text in [&mut done.stdout, &mut done.stderr] {
            *text = text
                .replace(&self.folder.path().canonicalize().unwrap().display().to_string(), "~")
                .replace(ARCH, "x86_64");
        }
        done
    }

    fn leftovers(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path("cache/memlab")) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "lock")
            .collect();
        names.sort();
        names
    }
}

/// A file of this project.
fn project(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[test]
fn without_a_gpu_three_wheels_are_fetched_once_and_a_second_checkout_fetches_nothing() {
    let machine = Machine::new();
    let first = machine.run(&mut machine.libtorch()).expect(0);
    assert_eq!(first.stdout, format!("~/{TORCH}\n"));
    insta::assert_snapshot!(first.stderr);
    assert_eq!(machine.fetched(), ["torch", "nvidia-cuda-runtime", "nvidia-cuda-cupti"]);
    assert!(machine.path("cache/memlab/libtorch-2.11.0-x86_64-cpu/nvidia/cu13/lib/libnvidia-cuda-cupti.so").exists());
    assert!(!machine.path(TORCH).join("nn").exists(), "Python code is unpacked");

    let second = machine.run(&mut machine.libtorch_without_pip()).expect(0);
    assert_eq!((second.stdout.as_str(), second.stderr.as_str()), (first.stdout.as_str(), ""));
    assert_eq!(machine.leftovers(), ["libtorch-2.11.0-x86_64-cpu"]);
}

#[test]
fn a_command_gets_the_folder_as_libtorch() {
    let machine = Machine::new();
    let done = machine.run(machine.libtorch().args(["sh", "-c", "echo $LIBTORCH; exit 7"])).expect(7);
    assert_eq!(done.stdout, format!("~/{TORCH}\n"));
}

#[test]
fn with_a_gpu_the_cuda_wheels_are_fetched_and_what_is_kept_is_not_fetched_again() {
    let machine = Machine::new();
    machine.run(&mut machine.libtorch()).expect(0);
    fs::remove_file(machine.path("pip.log")).unwrap();
    machine.program("nvidia-smi");
    let done = machine.run(machine.libtorch().env_remove("MEMLAB_CUDA")).expect(0);
    assert_eq!(done.stdout, format!("~/{TORCH_WITH_CUDA}\n"));
    insta::assert_snapshot!(done.stderr);
    let fetched = machine.fetched();
    assert_eq!(fetched.len(), 13);
    assert!(!fetched.contains(&"torch".to_owned()));
    assert!(machine.path(TORCH_WITH_CUDA).join("lib/libtorch_cpu.so").exists());
    // A machine of the same home without a GPU, as a login node is, uses the same one.
    let login = machine.run(&mut machine.libtorch_without_pip()).expect(0);
    assert_eq!(login.stdout, done.stdout);
}

#[test]
fn a_folder_of_wheels_needs_neither_pip_nor_a_network() {
    let machine = Machine::new();
    let done = machine.run(machine.libtorch_without_pip().env("MEMLAB_WHEELS", machine.path("wheels"))).expect(0);
    assert_eq!(done.stdout, format!("~/{TORCH}\n"));
    insta::assert_snapshot!(done.stderr);
}

#[test]
fn a_wheel_that_the_folder_lacks_is_named_with_the_way_to_get_it() {
    let machine = Machine::new();
    fs::create_dir(machine.path("empty")).unwrap();
    let done = machine.run(machine.libtorch().env("MEMLAB_WHEELS", machine.path("empty"))).expect(1);
    insta::assert_snapshot!(done.stderr);
    assert_eq!(machine.leftovers(), [""; 0]);
}

#[test]
fn a_damaged_wheel_is_named_and_leaves_nothing() {
    let machine = Machine::new();
    let wheel = machine.path("wheels/torch-2.11.0-py3-none-manylinux_2_28_x86_64.whl");
    let whole = fs::read(&wheel).unwrap();
    let mut flipped = whole.clone();
    let middle = whole.windows(9).position(|window| window == b"__version").unwrap();
    flipped[middle] ^= 1;
    for damaged in [&whole[..whole.len() / 2], &flipped[..]] {
        fs::write(&wheel, damaged).unwrap();
        let done = machine.run(machine.libtorch().env("MEMLAB_WHEELS", machine.path("wheels"))).expect(1);
        assert!(done.stderr.contains("torch-2.11.0-py3-none-manylinux_2_28_x86_64.whl is damaged"), "{}", done.stderr);
        assert_eq!(machine.leftovers(), [""; 0]);
    }
}

#[test]
fn a_broken_off_download_leaves_no_libtorch_and_goes_on_where_it_stopped() {
    let machine = Machine::new();
    let network = "WARNING: Retrying after connection broken by 'NewConnectionError': name resolution failed";
    let done = machine.run(machine.libtorch().env("PIP_FAILS", "nvidia-cuda-cupti").env("PIP_SAYS", network)).expect(1);
    insta::assert_snapshot!(done.stderr);
    assert_eq!(machine.leftovers(), ["wheels"]);
    machine.run(&mut machine.libtorch()).expect(0);
    assert_eq!(machine.fetched(), ["torch", "nvidia-cuda-runtime", "nvidia-cuda-cupti"], "one is fetched twice");
    assert_eq!(machine.leftovers(), ["libtorch-2.11.0-x86_64-cpu"]);
}

#[test]
fn what_a_killed_set_up_left_is_not_used_and_goes_away() {
    let machine = Machine::new();
    machine.folder.write("cache/memlab/making-abc/result/torch/version.py", "");
    machine.run(&mut machine.libtorch()).expect(0);
    assert_eq!(machine.leftovers(), ["libtorch-2.11.0-x86_64-cpu"]);
}

#[test]
fn a_full_disk_and_a_machine_without_a_wheel_are_told_apart() {
    let machine = Machine::new();
    for (says, reason) in [
        ("ERROR: [Errno 28] No space left on device", "the disk of ~/cache/memlab is full"),
        ("ERROR: No matching distribution found for torch==2.11.0", "there is none for this machine (Linux"),
    ] {
        let done = machine.run(machine.libtorch().env("PIP_FAILS", "torch").env("PIP_SAYS", says)).expect(1);
        let expected = format!("libtorch: error: cannot fetch torch 2.11.0: {reason}");
        assert!(done.stderr.contains(&expected), "{}", done.stderr);
    }
}

#[test]
fn two_set_ups_at_once_fetch_once() {
    let machine = Machine::new();
    let running: Vec<_> =
        (0..3).map(|_| machine.libtorch().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()).collect();
    for child in running {
        let done = Done::of(child.wait_with_output().unwrap()).expect(0);
        assert!(done.stdout.ends_with(&format!("{TORCH}\n")), "{}", done.stdout);
    }
    assert_eq!(machine.fetched(), ["torch", "nvidia-cuda-runtime", "nvidia-cuda-cupti"]);
    assert_eq!(machine.leftovers(), ["libtorch-2.11.0-x86_64-cpu"]);
}

#[test]
fn libtorch_is_used_when_it_fits_and_an_error_when_not() {
    let machine = Machine::new();
    let fits = machine.foreign("fits", "2.11.1+cu128");
    let done = machine.run(machine.libtorch().env("LIBTORCH", &fits)).expect(0);
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("~/fits\n", ""));

    let old = machine.foreign("old", "2.9.1");
    let bare = machine.foreign("bare", "2.11.0");
    fs::remove_dir_all(bare.join("include")).unwrap();
    let foreign = machine.foreign("other_machine", "2.11.0");
    fs::write(foreign.join("lib/libtorch_cpu.so"), "not for this machine").unwrap();
    let no_cuda = machine.foreign("no_cuda", "2.11.0+cpu");
    let mut messages = String::new();
    for folder in [&old, &bare, &foreign, &machine.path("nowhere")] {
        messages += &machine.run(machine.libtorch().env("LIBTORCH", folder)).expect(1).stderr;
    }
    messages += &machine.run(machine.libtorch().env("LIBTORCH", no_cuda).env("MEMLAB_CUDA", "yes")).expect(1).stderr;
    insta::assert_snapshot!(messages);
    assert_eq!(machine.fetched(), [""; 0]);
}

#[test]
fn the_pytorch_of_the_active_python_is_used_when_it_fits() {
    let machine = Machine::new();
    let packages = machine.path("site");
    machine.foreign("site/torch", "2.11.0+cpu");
    let done = machine.run(machine.libtorch_without_pip().env("PYTHONPATH", &packages)).expect(0);
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("~/site/torch\n", ""));

    machine.program("nvidia-smi");
    let done =
        machine.run(machine.libtorch_without_pip().env("PYTHONPATH", &packages).env_remove("MEMLAB_CUDA")).expect(0);
    assert_eq!(done.stdout, "~/site/torch\n");
    insta::assert_snapshot!(done.stderr);
}

#[test]
fn a_pytorch_of_another_version_is_named_and_passed_over() {
    let machine = Machine::new();
    machine.foreign("site/torch", "2.9.1+cu128");
    let mut command = machine.libtorch();
    command.env("PYTHONPATH", format!("{}:{}", machine.path("site").display(), project("tests/setup").display()));
    let done = machine.run(&mut command).expect(0);
    assert_eq!(done.stdout, format!("~/{TORCH}\n"));
    let expected =
        "not using the PyTorch of ~/python/bin/python3: ~/site/torch is version 2.9.1+cu128, and memlab needs 2.11";
    assert!(done.stderr.contains(expected), "{}", done.stderr);
}

#[test]
fn a_module_s_libtorch_is_found_on_the_prefix_path() {
    let machine = Machine::new();
    let module = machine.foreign("module", "2.11.0");
    let done = machine.run(machine.libtorch().env("CMAKE_PREFIX_PATH", format!("/usr:{}", module.display()))).expect(0);
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("~/module\n", ""));
}

#[test]
fn missing_pip_is_named_with_the_command_that_installs_it() {
    let machine = Machine::new();
    machine.program("apt-get");
    let done = machine.run(&mut machine.libtorch_without_pip()).expect(1);
    assert!(
        done.stderr.contains("memlab needs pip for ~/python/bin/python3, to fetch libtorch with\n"),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("apt-get install python3-pip\n"), "{}", done.stderr);
}

#[test]
fn a_cache_that_cannot_be_written_is_named() {
    let machine = Machine::new();
    machine.folder.write("file", "");
    let done = machine.run(machine.libtorch().env("XDG_CACHE_HOME", machine.path("file"))).expect(1);
    insta::assert_snapshot!(done.stderr);
}

/// A machine on which only what the script itself needs is installed.
fn bare_path(machine: &Machine, manager: &str) -> PathBuf {
    let folder = machine.path("bare");
    fs::create_dir(&folder).unwrap();
    for tool in ["sh", "dirname", "sed", "sort", "head", "cut", "uname"] {
        let found =
            std::env::split_paths(&std::env::var_os("PATH").unwrap()).map(|p| p.join(tool)).find(|p| p.exists());
        symlink(found.unwrap(), folder.join(tool)).unwrap();
    }
    for (name, text) in [(manager, "#!/bin/sh\n"), ("id", "#!/bin/sh\necho 1000\n")] {
        let path = machine.folder.write(&format!("bare/{name}"), text);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

#[test]
fn each_missing_prerequisite_is_named_with_the_command_that_installs_it() {
    for manager in ["apt-get", "dnf", "pacman"] {
        let machine = Machine::new();
        let path = bare_path(&machine, manager);
        let need = |tools: &[&str]| {
            let mut command = machine.command(project(".ci/need"));
            machine.run(command.args(tools).env("PATH", &path))
        };
        insta::assert_snapshot!(manager, need(&["rust", "c++", "python3"]).expect(1).stderr);
    }
}

#[test]
fn a_rust_that_is_too_old_is_named() {
    let machine = Machine::new();
    let path = bare_path(&machine, "apt-get");
    for (name, text) in [("cargo", "#!/bin/sh\n"), ("rustc", "#!/bin/sh\necho 'rustc 1.63.0 (debian)'\n")] {
        let file = machine.folder.write(&format!("bare/{name}"), text);
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let done = machine.run(machine.command(project(".ci/need")).arg("rust").env("PATH", &path)).expect(1);
    insta::assert_snapshot!(done.stderr);
}

#[test]
fn a_machine_with_everything_is_told_nothing() {
    let machine = Machine::new();
    let mut command = machine.command(project(".ci/need"));
    command.args(["rust", "c++", "python3"]).env("HOME", std::env::var_os("HOME").unwrap_or_default());
    let done = machine.run(&mut command).expect(0);
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("", ""));
}
