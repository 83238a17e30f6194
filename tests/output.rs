//! How every command treats its output streams, its help and its exit code.

mod support;

use std::fs::OpenOptions;
use std::process::Stdio;

use support::{Done, Folder, data};

fn reports() -> String {
    data("reports").to_string_lossy().into_owned()
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = Folder::new();
    let mut child = folder
        .command(&["compare", "--show-phases", &reports()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let done = Done::of(child.wait_with_output().unwrap()).expect(0);
    assert_eq!(done.stderr, "");
}

#[test]
fn a_full_disk_behind_stdout_is_an_error() {
    let folder = Folder::new();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let child = folder.command(&["compare", &reports()]).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let done = Done::of(child.wait_with_output().unwrap()).expect(2);
    assert!(done.stderr.contains("cannot write to standard output"), "{}", done.stderr);
}

#[test]
fn colour_is_for_terminals_and_for_those_who_ask() {
    let folder = Folder::new();
    let plain = folder.memlab(&["compare", "no-such.json"]).expect(2);
    assert!(!plain.stderr.contains('\u{1b}'), "{}", plain.stderr);
    let coloured = folder.memlab(&["--color", "always", "compare", "no-such.json"]).expect(2);
    assert!(coloured.stderr.contains('\u{1b}'), "{}", coloured.stderr);
    let output = folder.command(&["compare", "no-such.json"]).env("NO_COLOR", "1").output().unwrap();
    assert!(!Done::of(output).stderr.contains('\u{1b}'));
}

/// The lines that a terminal shows at the end of a command, without those that were drawn over.
fn lines(shown: &str) -> Vec<&str> {
    shown.lines().map(|line| line.trim_end_matches('\r')).collect()
}

#[test]
fn tables_fit_the_terminal() {
    let folder = Folder::new();
    let whole = folder.memlab(&["compare", &reports()]).expect(0).stdout;
    // Words with hyphens may be broken there.
    let words =
        |text: &str| text.split([' ', '\n', '\r', '-']).map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    let phases: &[&str] = &["--show-phases"];
    for (width, more) in [(40, &[][..]), (80, phases), (120, phases), (250, phases)] {
        let shown = folder.in_terminal(width, &[&["compare"], more, &[&reports()]].concat()).expect(0).stdout;
        let widest = lines(&shown).into_iter().map(|line| line.chars().count()).max();
        assert!(widest <= Some(usize::from(width)), "{width}: {widest:?}\n{shown}");
        // Nothing is left out.
        assert!(words(&whole).is_subset(&words(&shown)), "{width}:\n{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
    let shown = folder.in_terminal(250, &["compare", &reports()]).expect(0).stdout;
    assert_eq!(lines(&shown), lines(&whole), "a table that fits stays in one piece");
}

#[test]
fn a_terminal_shows_run_phase_step_elapsed_and_remaining() {
    let folder = Folder::new();
    // Each run takes a moment.
    folder.write(
        "demo.toml",
        "name = \"demo\"\n[base]\ncase = \"alpha\"\ndevice = \"cpu\"\nseed = 108\n[sweep]\nbatch_size = [1, 2, 4]\n",
    );
    let shown = folder.in_terminal(120, &["sweep", "--jobs", "1", "demo.toml"]).expect(0).stdout;
    for said in ["alpha-small-b2-s6-fp32-seed108-", "after_model", "[1/3]", "about ", " left"] {
        assert!(shown.contains(said), "{said}: {shown}");
    }
    assert!(
        shown.contains("results.csv, samples.csv, comparison.md, report.html and figures are in runs/demo"),
        "{shown}"
    );
}

#[test]
fn quiet_leaves_results_and_errors() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let done = folder.memlab(&["--quiet", "compare", "empty", &reports()]).expect(0);
    assert_eq!(done.stderr, "");
    assert!(done.stdout.contains("gamma"));
    let wrong = folder.memlab(&["--quiet", "compare", "no-such.json"]).expect(2);
    assert!(wrong.stderr.contains("no-such.json"), "{}", wrong.stderr);
}

/// The sub-commands that a help text lists.
fn commands(help: &str) -> Vec<&str> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect()
}

/// Checks the help of a command and of everything below it; gives the number of commands that do something.
fn check_help(folder: &Folder, words: &[&str]) -> usize {
    let help = folder.memlab(&[words, &["--help"]].concat()).expect(0).stdout;
    let name = words.join(" ");
    for cause in ["AdamW", "SGD", "retain", "leak", "activation", "optimizer state"] {
        assert!(!help.contains(cause), "memlab {name} --help names {cause}");
    }
    let below = commands(&help);
    if below.is_empty() {
        assert!(help.contains("Example"), "memlab {name} has no example:\n{help}");
        assert!(help.contains(&format!("  memlab {name}")), "memlab {name} shows no use of itself:\n{help}");
        let is_text = |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.starts_with("Example");
        let after: Vec<&str> = help.lines().skip_while(|line| !line.starts_with("Example")).collect();
        for pair in after.windows(2).filter(|pair| pair.iter().all(|line| is_text(line))) {
            let word = pair[1].split(' ').next().unwrap_or_default();
            assert!(pair[0].len() + 1 + word.len() > 100, "memlab {name} breaks a line early:\n{}", pair.join("\n"));
        }
        return 1;
    }
    below.iter().map(|command| check_help(folder, &[words, &[command]].concat())).sum()
}

#[test]
fn every_command_has_an_example_and_says_no_cause() {
    let commands = check_help(&Folder::new(), &[]);
    assert!(commands >= 10, "{commands}");
}

#[test]
fn an_unknown_command_is_an_argument_error() {
    let done = Folder::new().memlab(&["swep"]).expect(2);
    assert!(done.stderr.contains("swep") && done.stderr.contains("sweep"), "{}", done.stderr);
    assert_eq!(done.stdout, "");
}

#[test]
fn the_version_is_on_stdout() {
    let done = Folder::new().memlab(&["--version"]).expect(0);
    assert_eq!(done.stdout, format!("memlab {}\n", env!("CARGO_PKG_VERSION")));
}
