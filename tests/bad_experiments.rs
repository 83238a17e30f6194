//! Every kind of mistake in an experiment, and what a user reads about it. One snapshot for each file in tests/data/bad.

mod support;

use support::{Folder, data};

#[test]
fn every_mistake_is_explained() {
    let mut names: Vec<String> = std::fs::read_dir(data("bad"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() >= 30, "only {} bad experiments are left", names.len());
    let folder = Folder::new();
    for name in names {
        std::fs::copy(data("bad").join(&name), folder.path().join(&name)).unwrap();
        let done = folder.memlab(&["plan", "--quiet", &name]).expect(2);
        assert_eq!(done.stdout, "", "{name}");
        assert!(done.stderr.starts_with("error: "), "{name}: {}", done.stderr);
        insta::assert_snapshot!(name.trim_end_matches(".toml"), done.stderr);
    }
}

#[test]
fn a_file_that_is_not_there_or_is_a_folder_is_named() {
    let folder = Folder::new();
    insta::assert_snapshot!(folder.memlab(&["plan", "none.toml"]).expect(2).stderr);
    insta::assert_snapshot!(folder.memlab(&["plan", "."]).expect(2).stderr);
}
