//! Who imports whom: reads the `use` lines and paths of every module and holds them to the table in the design.
#![expect(clippy::unwrap_used, reason = "a source that cannot be read fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What every module may import.
const COMMON: [&str; 4] = ["units", "diag", "exit", "parallel"];

/// What else each module may import. `cli` and `main` may import all; nothing imports them.
const ALLOWED: [(&str, &[&str]); 16] = [
    ("units", &[]),
    ("diag", &[]),
    ("exit", &[]),
    ("parallel", &[]),
    ("allocator", &[]),
    ("protocol", &["allocator"]),
    ("indicator", &["allocator", "protocol"]),
    ("snapshot", &["allocator"]),
    ("experiment", &["protocol"]),
    ("plan", &["protocol", "experiment"]),
    ("store", &["protocol"]),
    ("exec", &["protocol", "plan", "store"]),
    ("collate", &["protocol", "indicator", "store"]),
    ("check", &["protocol", "indicator", "collate"]),
    ("render", &["protocol", "indicator", "collate", "snapshot"]),
    ("limit", &["protocol", "indicator", "plan", "exec", "collate", "check"]),
];

/// What the worker may import of the library, beside [`COMMON`] and `tch`: of `store`, how files are written.
const WORKER: [&str; 5] = ["protocol", "indicator", "allocator", "snapshot", "store"];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The modules of this crate that a text names behind `prefix::`, alone or in braces. Comments do not count.
fn named(text: &str, prefix: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n");
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices(&format!("{prefix}::")) {
        if code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == '$') {
            continue;
        }
        let rest = &code[at + prefix.len() + 2..];
        let names = match rest.strip_prefix('{') {
            Some(list) => {
                let mut depth = 1;
                let end = list.find(|c| {
                    depth += i32::from(c == '{') - i32::from(c == '}');
                    depth == 0
                });
                top_level(&list[..end.unwrap()])
            }
            None => vec![rest],
        };
        for name in names {
            let word: String = name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            found.insert(word);
        }
    }
    found
}

/// The parts of a list between the commas that are not in inner braces.
fn top_level(list: &str) -> Vec<&str> {
    let mut depth = 0;
    list.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth == 0 && c == ','
    })
    .collect()
}

#[test]
fn imports_follow_the_design() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let allowed: BTreeMap<&str, BTreeSet<&str>> = ALLOWED
        .iter()
        .map(|(module, may)| (*module, may.iter().chain(&COMMON).chain([module]).copied().collect()))
        .collect();
    let modules: BTreeSet<&str> = allowed.keys().copied().chain(["cli"]).collect();
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for path in sources(&root) {
        let inside = path.strip_prefix(&root).unwrap();
        let top = inside.iter().next().unwrap().to_string_lossy();
        let module = top.trim_end_matches(".rs").to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        if module == "bin" {
            for name in named(&text, "memlab") {
                let may = WORKER.iter().chain(&COMMON).any(|allowed| *allowed == name);
                if modules.contains(name.as_str()) && !may {
                    problems.push(format!("{} imports {name}", inside.display()));
                }
            }
        } else if let Some(may) = allowed.get(module.as_str()) {
            seen.insert(module.clone());
            for name in named(&text, "crate") {
                if modules.contains(name.as_str()) && !may.contains(name.as_str()) {
                    problems.push(format!("{} imports {name}", inside.display()));
                }
            }
        } else {
            assert!(["cli", "main", "lib", "build"].contains(&module.as_str()), "{module} is not in the table");
        }
    }
    assert_eq!(seen.len(), ALLOWED.len(), "every module of the table has a source: {seen:?}");
    assert!(problems.is_empty(), "against the import table:\n{}", problems.join("\n"));
}

#[test]
fn the_reading_of_use_lines_finds_what_it_must() {
    let text = "// crate::cli::x\nuse crate::{diag::{A, B}, store, exec::{self, C}};\nlet x = crate::plan::expand();\n$crate::no";
    assert_eq!(named(text, "crate").into_iter().collect::<Vec<_>>(), ["diag", "exec", "plan", "store"]);
}
