//! `memlab compare` as a user meets it.

mod support;

use support::{Folder, data};

/// A folder `r` with five of the reference's reports.
fn reports() -> Folder {
    let folder = Folder::new();
    for name in [
        "gamma-small-b2-s6-fp32",
        "ddp2-gloo-alpha-small-b2-x2",
        "beta-small-b2-s6-fp32",
        "alpha-small-b4-s6-fp32",
        "alpha-small-b1-s6-fp32",
    ] {
        let name = format!("{name}.json");
        folder.write(&format!("r/{name}"), &std::fs::read_to_string(data("reports").join(&name)).expect("a report"));
    }
    folder
}

#[test]
fn the_reference_reports_are_one_table_in_natural_order() {
    let done = reports().memlab(&["compare", "r"]).expect(0);
    insta::assert_snapshot!(done.stdout);
    assert_eq!(done.stderr, "");
}

#[test]
fn csv_reads_back_equal_and_is_all_there_is_on_stdout() {
    let done = reports().memlab(&["compare", "--format", "csv", "r"]).expect(0);
    let mut reader = csv::Reader::from_reader(done.stdout.as_bytes());
    let header = reader.headers().unwrap().clone();
    let peak = header.iter().position(|name| name == "maximum_peak_allocated_mib").unwrap();
    let peaks: Vec<f64> = reader.records().map(|row| row.unwrap()[peak].parse().unwrap()).collect();
    assert_eq!(
        peaks,
        [133.166_503_906_25, 211.617_675_781_25, 239.504_882_812_5, 245.591_308_593_75, 450.168_457_031_25]
    );
}

#[test]
fn json_is_a_list_of_objects() {
    let done = reports().memlab(&["compare", "--format", "json", "r"]).expect(0);
    let rows: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(rows[1]["run_id"], "alpha-small-b4-s6-fp32");
    assert_eq!(rows[1]["largest_forward_increase_mib"], 137.915_527_343_75);
}

#[test]
fn ranks_are_shown_on_request() {
    let report = data("reports/ddp2-gloo-alpha-small-b2-x2.json");
    let done = Folder::new().memlab(&["compare", "--per-rank", "--format", "markdown", report.to_str().unwrap()]);
    insta::assert_snapshot!(done.expect(0).stdout);
}

#[test]
fn phases_follow_the_table() {
    let report = data("reports/alpha-small-b1-s6-fp32.json");
    let done = Folder::new().memlab(&["compare", "--show-phases", report.to_str().unwrap()]);
    insta::assert_snapshot!(done.expect(0).stdout);
}

#[test]
fn a_damaged_report_is_named_and_the_others_are_shown() {
    let folder = Folder::new();
    let whole = folder.read(data("reports/alpha-small-b1-s6-fp32.json").to_str().unwrap());
    folder.write("r/whole.json", &whole);
    folder.write("r/cut.json", &whole[..whole.len() / 2]);
    folder.write("r/nan.json", &whole.replacen("\"allocated_mib\": 33.4248046875", "\"allocated_mib\": NaN", 1));
    folder.write("r/keys.json", "{\n  \"case\": \"alpha\"\n}\n");
    let done = folder.memlab(&["compare", "r"]).expect(5);
    assert_eq!(done.stdout.matches("whole").count(), 1, "{}", done.stdout);
    insta::assert_snapshot!(done.stderr);
}

#[test]
fn what_is_not_there_is_an_argument_error() {
    let done = Folder::new().memlab(&["compare", "no-such.json"]).expect(2);
    insta::assert_snapshot!(done.stderr, @"error: cannot read no-such.json: No such file or directory (os error 2)");
}

#[test]
fn an_empty_folder_gives_nothing_to_compare() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let done = folder.memlab(&["compare", "empty"]).expect(5);
    insta::assert_snapshot!(done.stderr);
}

#[test]
fn two_folders_are_compared_run_by_run() {
    let folder = Folder::new();
    for name in ["alpha-small-b1-s6-fp32", "beta-small-b2-s6-fp32", "gamma-small-b2-s6-fp32"] {
        let text = std::fs::read_to_string(data(&format!("reports/{name}.json"))).expect("a report");
        folder.write(&format!("one/{name}.json"), &text);
        if name.starts_with("beta") {
            folder.write(&format!("two/{name}.json"), &text.replace("239.5048828125", "250.5048828125"));
        } else if name.starts_with("gamma") {
            folder.write("two/other.json", &text);
        } else {
            folder.write(&format!("two/{name}.json"), &text);
        }
    }
    let done = folder.memlab(&["compare", "one", "two"]).expect(0);
    insta::assert_snapshot!(format!("{}{}", done.stdout, done.stderr));
    let everything = folder.memlab(&["compare", "--format", "csv", "one", "two"]).expect(0);
    assert_eq!(everything.stdout.lines().count(), 1 + 2 * 6, "{}", everything.stdout);
}

#[test]
fn folders_without_a_common_run_are_one_table() {
    let folder = Folder::new();
    for (place, name) in [("one", "alpha-small-b1-s6-fp32"), ("two", "beta-small-b2-s6-fp32")] {
        let text = std::fs::read_to_string(data(&format!("reports/{name}.json"))).expect("a report");
        folder.write(&format!("{place}/{name}.json"), &text);
    }
    let done = folder.memlab(&["compare", "one", "two"]).expect(0);
    assert!(done.stdout.contains("alpha-small") && done.stdout.contains("beta-small"), "{}", done.stdout);
}
