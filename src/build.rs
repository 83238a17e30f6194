//! The build script: says which revision is built and, with the `worker` feature, builds the worker's C++ part.
//!
//! Without the feature nothing of libtorch is touched. With it, libtorch is the one that torch-sys found (`LIBTORCH`;
//! `.ci/libtorch` prints the folder), and only `memlab-worker` and its tests are linked to it.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src");
    if let Some(revision) = git_revision() {
        println!("cargo::rustc-env=MEMLAB_GIT_REVISION={revision}");
    }
    #[cfg(feature = "worker")]
    worker::build();
}

/// The commit, with `-dirty` when what is built differs from it; none outside a repository.
fn git_revision() -> Option<String> {
    // HEAD's log changes with every commit, check-out and rebase, on whatever branch.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists()) {
        println!("cargo::rerun-if-changed={log}");
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let clean = git(&["status", "--porcelain", "--", "src", "templates", "Cargo.toml", "Cargo.lock"])?.is_empty();
    Some(if clean { commit } else { commit + "-dirty" })
}

/// What git prints; none where it fails or is missing, as in an unpacked archive.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

#[cfg(feature = "worker")]
mod worker {
    use std::path::{Path, PathBuf};
    use std::{env, fs};

    const NATIVE: &str = "src/bin/memlab-worker/native";
    /// The modules that decide what a worker measures, beside its own sources and its dependencies: a report made by other
    /// sources is not reused.
    const MODULES: [&str; 5] = ["allocator", "indicator", "protocol", "snapshot", "units"];

    pub(super) fn build() {
        println!("cargo::rerun-if-changed=Cargo.lock");
        let mut sources = vec![PathBuf::from("src/bin/memlab-worker"), PathBuf::from("Cargo.lock")];
        sources.extend(
            MODULES.iter().flat_map(|module| [format!("src/{module}"), format!("src/{module}.rs")]).map(PathBuf::from),
        );
        println!("cargo::rustc-env=MEMLAB_WORKER_BUILD={:016x}", hash_of(&sources));
        let libraries = PathBuf::from(env::var_os("DEP_TCH_LIBTORCH_LIB").expect("torch-sys names libtorch's folder"));
        let archive = compile(&libraries);
        for argument in [
            archive.display().to_string(),
            format!("-L{}", libraries.display()),
            "-ltorch_cpu".to_owned(),
            "-lc10".to_owned(),
            // Where `make install BUNDLE=yes` puts the libraries, so that the installed folder can be moved.
            "-Wl,-rpath,$ORIGIN/../lib/memlab/torch/lib".to_owned(),
            // Where it was found. libtorch finds the CUDA libraries beside it by itself.
            format!("-Wl,-rpath,{}", libraries.display()),
        ] {
            println!("cargo::rustc-link-arg-bin=memlab-worker={argument}");
        }
    }

    /// Compiles the C++ part into one archive. libtorch's headers make each file slow to compile, and this script runs
    /// again whenever a source changes, so an object made from the same sources in the same way is kept.
    fn compile(libraries: &Path) -> PathBuf {
        for variable in ["CXX", "CXXFLAGS", "MEMLAB_CXX_WARNINGS"] {
            println!("cargo::rerun-if-env-changed={variable}");
        }
        let include = libraries.with_file_name("include");
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").define("_GLIBCXX_USE_CXX11_ABI", "1").extra_warnings(true).cargo_metadata(false);
        // Debug information more than doubles the time.
        build.debug(false);
        // CI turns warnings into errors; elsewhere a compiler newer than these sources may warn of something new.
        build.warnings_into_errors(env::var_os("MEMLAB_CXX_WARNINGS").is_some_and(|value| value == "deny"));
        // The last for gloo's headers, which libtorch's include and its wheel lacks.
        for folder in [include.clone(), include.join("torch/csrc/api/include"), PathBuf::from(NATIVE)] {
            // As system headers: their warnings are not ours.
            build.flag("-isystem").flag(folder);
        }

        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        let named = |source: &Path, extension: &str| {
            out.join(source.file_name().expect("a source has a name")).with_extension(extension)
        };
        let (sources, headers): (Vec<PathBuf>, Vec<PathBuf>) = files_below(Path::new(NATIVE))
            .into_iter()
            .filter(|file| file.extension().is_some_and(|e| e == "cpp" || e == "h"))
            .partition(|file| file.extension().is_some_and(|e| e == "cpp"));
        let compiler = build.get_compiler();
        let made_from = |source: &PathBuf| {
            let hash = hash_of(&[&headers[..], std::slice::from_ref(source)].concat());
            format!("{hash:016x} {} {:?}", compiler.path().display(), compiler.args())
        };
        let stale: Vec<&PathBuf> = sources
            .iter()
            .filter(|source| {
                let stamp = fs::read_to_string(named(source, "stamp")).unwrap_or_default();
                stamp != made_from(source) || !named(source, "o").exists()
            })
            .collect();
        let objects = build.clone().files(&stale).compile_intermediates();
        for (source, object) in stale.into_iter().zip(objects) {
            fs::rename(object, named(source, "o")).expect("OUT_DIR is writable");
            fs::write(named(source, "stamp"), made_from(source)).expect("OUT_DIR is writable");
        }
        build.objects(sources.iter().map(|source| named(source, "o"))).compile("memlab_native");
        out.join("libmemlab_native.a")
    }

    /// FNV-1a over the names and contents of files and of all files below folders: the same on every machine.
    fn hash_of(paths: &[PathBuf]) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |bytes: &[u8]| {
            for part in [&(bytes.len() as u64).to_le_bytes()[..], bytes] {
                for byte in part {
                    hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
                }
            }
        };
        for file in paths.iter().flat_map(|path| files_below(path)) {
            add(file.as_os_str().as_encoded_bytes());
            add(&fs::read(&file).unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display())));
        }
        hash
    }

    /// A file itself, or all files below a folder, in the order of their names; none where there is neither.
    fn files_below(path: &Path) -> Vec<PathBuf> {
        if path.is_file() {
            return vec![path.to_owned()];
        }
        let entries = fs::read_dir(path).into_iter().flatten();
        let mut entries: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        entries.sort();
        entries.iter().flat_map(|entry| files_below(entry)).collect()
    }
}
