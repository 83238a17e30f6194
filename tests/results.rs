//! Results folders as people find them: half done, damaged, moved, of other versions.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod support;

use support::{Folder, data};

/// A swept folder of three runs.
fn swept() -> Folder {
    let folder = Folder::new();
    folder.write("demo.toml", "name = \"demo\"\n[base]\ncase = \"alpha\"\n[sweep]\nseed = [1, 2, 3]\n");
    folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    folder
}

/// The folders of the runs, by seed.
fn runs(folder: &Folder) -> Vec<String> {
    let text = folder.read("runs/demo/results.csv");
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.records().map(|row| format!("runs/demo/{}", &row.unwrap()[0])).collect()
}

fn outcomes(folder: &Folder) -> Vec<String> {
    let text = folder.read("runs/demo/results.csv");
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let at = reader.headers().unwrap().iter().position(|name| name == "outcome").unwrap();
    reader.records().map(|row| row.unwrap()[at].to_owned()).collect()
}

#[test]
fn collate_gives_the_same_files_again() {
    let folder = swept();
    let names = ["results.csv", "samples.csv", "comparison.md"].map(|name| format!("runs/demo/{name}"));
    let before = names.clone().map(|name| folder.read(&name));
    for name in &names {
        std::fs::remove_file(folder.path().join(name)).unwrap();
    }
    let done = folder.memlab(&["collate", "runs/demo"]).expect(0);
    assert_eq!(done.stdout, "", "collate writes files, and prints no result");
    assert_eq!(names.map(|name| folder.read(&name)), before);
}

#[test]
fn what_is_missing_or_damaged_has_a_row_and_an_exit_code() {
    let folder = swept();
    let runs = runs(&folder);
    std::fs::remove_dir_all(folder.path().join(&runs[0])).unwrap();
    folder.write(&format!("{}/report.json", runs[2]), "{\"case\": \"al");
    let done = folder.memlab(&["collate", "runs/demo"]).expect(4);
    assert!(done.stderr.contains("is no readable report"), "{}", done.stderr);
    // The status still says that the last run ended well; what it measured is not known any more.
    assert_eq!(outcomes(&folder), ["missing", "ok", "error"]);
    assert!(folder.read("runs/demo/results.csv").contains("damaged report: the file ends too early"));
    // The next sweep runs both again.
    let again = folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    assert!(again.stderr.contains("3 runs, 1 of them finished before"), "{}", again.stderr);
}

#[test]
fn a_damaged_plan_is_named_with_its_place() {
    let folder = swept();
    let plan = folder.read("runs/demo/plan.json");
    folder.write("runs/demo/plan.json", &plan[..plan.len() / 2]);
    let done = folder.memlab(&["collate", "runs/demo"]).expect(2);
    assert!(done.stderr.contains("runs/demo/plan.json is no readable plan"), "{}", done.stderr);
    // A sweep writes it anew, and keeps the runs.
    let again = folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    assert!(again.stderr.contains("3 runs, 3 of them finished before"), "{}", again.stderr);
}

#[test]
fn a_damaged_status_is_no_obstacle() {
    let folder = swept();
    folder.write(&format!("{}/status.json", runs(&folder)[1]), "");
    folder.memlab(&["collate", "runs/demo"]).expect(0);
    assert_eq!(outcomes(&folder), ["ok", "ok", "ok"]);
}

#[test]
fn a_report_without_a_status_speaks_for_itself() {
    let folder = swept();
    std::fs::remove_file(folder.path().join(&runs(&folder)[1]).join("status.json")).unwrap();
    folder.memlab(&["collate", "runs/demo"]).expect(0);
    assert_eq!(outcomes(&folder), ["ok", "ok", "ok"]);
}

#[test]
fn a_run_that_was_changed_by_hand_is_run_again() {
    let folder = swept();
    let report = format!("{}/report.json", runs(&folder)[0]);
    folder.write(&report, &folder.read(&report).replace("\"steps\":6,\"precision\"", "\"steps\":7,\"precision\""));
    let again = folder.with_worker(&["sweep", "demo.toml"]).expect(0);
    assert!(again.stderr.contains("3 runs, 2 of them finished before"), "{}", again.stderr);
}

#[test]
fn a_folder_that_was_moved_is_collated_where_it_is() {
    let folder = swept();
    std::fs::rename(folder.path().join("runs/demo"), folder.path().join("kept")).unwrap();
    folder.memlab(&["collate", "kept"]).expect(0);
    let compared = folder.memlab(&["compare", "kept"]).expect(0);
    assert_eq!(compared.stdout.lines().count(), 4 + 3);
}

#[test]
fn reports_without_a_plan_are_collated_as_found() {
    let folder = Folder::new();
    for name in ["gamma-small-b2-s6-fp32", "alpha-small-b4-s6-fp32", "alpha-small-b1-s6-fp32"] {
        folder
            .write(&format!("r/{name}.json"), &std::fs::read_to_string(data(&format!("reports/{name}.json"))).unwrap());
    }
    folder.memlab(&["collate", "r"]).expect(0);
    let text = folder.read("r/results.csv");
    let names: Vec<&str> = text.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(names, ["alpha-small-b1-s6-fp32", "alpha-small-b4-s6-fp32", "gamma-small-b2-s6-fp32"]);
}

#[test]
fn a_report_of_a_later_version_with_unknown_keys_is_read() {
    let folder = Folder::new();
    let text = std::fs::read_to_string(data("reports/alpha-small-b1-s6-fp32.json")).unwrap();
    folder.write("later.json", &text.replacen('{', "{\n  \"brand_new\": {\"a\": [1]},", 1));
    folder.memlab(&["compare", "later.json"]).expect(0);
}

#[test]
fn status_shows_every_run_and_where_it_is() {
    let folder = swept();
    let runs = runs(&folder);
    std::fs::remove_dir_all(folder.path().join(&runs[0])).unwrap();
    // A run of another machine, which may well go on there.
    let name = format!("{}/status.json", runs[1]);
    let status = folder.read(&name).replace("\"outcome\": \"ok\"", "\"outcome\": null");
    let mut status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["hostname"] = "elsewhere".into();
    folder.write(&name, &status.to_string());
    std::fs::remove_file(folder.path().join(&runs[1]).join("report.json")).unwrap();
    let done = folder.memlab(&["status", "--format", "json", "runs/demo"]).expect(0);
    let rows: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    let states: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["missing", "running", "ok"]);
    assert_eq!(rows[1]["hostname"], "elsewhere");
    assert_eq!((&rows[1]["step"], &rows[1]["phase"]), (&5.into(), &"after_forward".into()));
    assert!(done.stderr.contains("3 runs: 1 ok, 1 running, 1 missing"), "{}", done.stderr);
}

#[test]
fn folders_that_are_none_are_named() {
    let folder = Folder::new();
    folder.write("file", "");
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    for command in ["collate", "status", "cancel"] {
        let missing = folder.memlab(&[command, "no-such"]).expect(2);
        assert!(missing.stderr.contains("cannot open no-such"), "{}", missing.stderr);
        let file = folder.memlab(&[command, "file"]).expect(2);
        assert!(file.stderr.contains("file is no folder"), "{}", file.stderr);
    }
    folder.memlab(&["collate", "empty"]).expect(5);
}

#[test]
fn results_are_as_readable_as_the_umask_says() {
    use std::os::unix::fs::PermissionsExt;
    let folder = swept();
    let mode = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
    let plain = folder.write("plain", "");
    let expected = std::fs::metadata(plain).unwrap().permissions().mode() & 0o777;
    for name in ["runs/demo/plan.json", "runs/demo/results.csv", "runs/demo/samples.csv"] {
        assert_eq!(mode(name), expected, "{name}");
    }
}
