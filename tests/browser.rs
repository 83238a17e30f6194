//! The page in a real browser: what a reader sees, clicks and types.
#![expect(clippy::unwrap_used, reason = "a page that cannot be shown fails the test")]

mod support;

/// Headless Chromium shows the page with the checks of `browser/checks.js` at its end, and prints what they found.
mod needs_browser {
    use std::path::Path;
    use std::process::{Command, Output};

    use memlab::allocator::{CachingAllocator, History, Settings, VirtualDevice};
    use memlab::snapshot::{self, Frame, Snapshot};
    use serde_json::Value;

    use crate::support::Folder;

    fn chromium(folder: &Folder, page: &Path, args: &[&str]) -> Output {
        Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
            .args(["--enable-logging=stderr", "--window-size=1280,900", "--virtual-time-budget=20000"])
            .args(args)
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg(format!("file://{}", page.display()))
            .env("HOME", folder.path())
            .output()
            .expect("chromium is there: apt-get install chromium")
    }

    /// Opens a page, runs the checks in it, and gives their lines; none of the browser's complaints are accepted.
    fn check(folder: &Folder, page: &str, expected: &str) -> String {
        let checks = include_str!("browser/checks.js");
        let html = folder.read(page);
        let expected = expected.replace('<', "\\u003c");
        // Errors are caught from the first script on.
        let early =
            "<script>window.errors = []; addEventListener('error', (event) => errors.push(event.message));</script>";
        let html = html.replacen("<style>", &format!("{early}<style>"), 1);
        let late = format!("<script>const expected = {expected};\n{checks}</script></body>");
        let path = folder.write("checked.html", &html.replace("</body>", &late));
        let output = chromium(folder, &path, &["--dump-dom"]);
        let (dom, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let complaints: Vec<&str> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(complaints.is_empty(), "{complaints:#?}");
        let found = dom.split("<pre id=\"checked\">").nth(1).and_then(|rest| rest.split("</pre>").next());
        found.unwrap_or_else(|| panic!("the checks did not end: {said}")).to_owned()
    }

    fn json(value: impl serde::Serialize) -> String {
        serde_json::to_string(&value).unwrap()
    }

    #[test]
    fn the_page_of_a_sweep_shows_its_numbers_and_does_what_is_clicked() {
        let folder = Folder::new();
        let title = "What does </script><script>alert(1)</script> <b>change</b> & \"why\"?";
        folder.write(
            "demo.toml",
            &format!(
                "name = \"demo\"\ntitle = '''{title}'''\n[base]\ncase = \"alpha\"\n[sweep]\ncase = [\"alpha\", \"gamma\"]\n\
                 batch_size = [1, 2, 4]\n[[hypothesis]]\nclaim = \"<i>nothing</i> grows\"\nindicator = \
                 \"between_step_growth_mib\"\nvalue = {{ max = 0.0 }}\n"
            ),
        );
        folder.with_worker(&["sweep", "--device", "cpu", "demo.toml"]);
        let expected = json(serde_json::json!({
            "title": title, "claim": "<i>nothing</i> grows", "runs": 6,
            "results": folder.read("runs/demo/results.csv"), "samples": folder.read("runs/demo/samples.csv"),
        }));
        let found = check(&folder, "runs/demo/report.html", &expected);
        assert!(found.ends_with("all as expected"), "{found}");
    }

    #[test]
    fn any_reports_make_a_page() {
        let folder = Folder::new();
        let reports = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/reports");
        let reports = reports.to_str().unwrap();
        let done = folder.memlab(&["compare", "--html", "page.html", reports]);
        assert_eq!(done.code, 0, "{}", done.stderr);
        let results = folder.memlab(&["compare", "--format", "csv", reports]).stdout;
        let samples = folder.memlab(&["compare", "--format", "csv", "--show-phases", reports]).stdout;
        let expected = serde_json::json!({ "title": "Comparison", "runs": results.lines().count() - 1, "results": results, "samples": samples});
        let found = check(&folder, "page.html", &json(expected));
        assert!(found.ends_with("all as expected"), "{found}");
    }

    /// Writes the history of a modelled GPU with so many changes: steps of blocks that come forwards and go backwards.
    fn record(path: &Path, changes: usize, function: &str) {
        const LAYERS: u32 = 250;
        let mut allocator = CachingAllocator::new(Settings::default(), None, VirtualDevice::new(80 << 30, 0));
        allocator.set_history(Some(History::new(usize::MAX, || 0)));
        let mut recording = Snapshot::new("", Settings::default());
        let mut tags = vec![Default::default()];
        for step in 0..changes.div_ceil(2 * LAYERS as usize) {
            let note = recording.contexts.note(&format!("step {step} forward"));
            let mut alive = Vec::new();
            for layer in 0..LAYERS {
                let name = format!("{function} {}", layer % 12);
                let frame = recording.contexts.frame(Frame { name, filename: "model.py".to_owned(), line: layer });
                tags.push((recording.contexts.stack(&[frame]), note));
                allocator.set_tag(u32::try_from(tags.len() - 1).unwrap());
                alive.push(allocator.malloc(u64::from(1 + layer % 12) << 18, 0).unwrap());
            }
            while let Some(block) = alive.pop() {
                allocator.free(block).unwrap();
            }
        }
        recording.add_device(0, &allocator, |tag| tags[tag as usize]);
        snapshot::write(&recording, std::fs::File::create(path).unwrap()).unwrap();
    }

    #[test]
    fn a_recording_of_a_hundred_thousand_changes_opens_and_can_be_zoomed() {
        let folder = Folder::new();
        let (changes, function) = (100_000, "</script><b>layer</b>");
        let recording = folder.path().join("recording.pickle");
        record(&recording, changes, function);
        let report = crate::support::data("reports/alpha-small-b4-s6-fp32.json");
        let mut report: Value = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
        report["rank_reports"][0]["snapshot"] = recording.to_str().into();
        folder.write("report.json", &report.to_string());
        let other = crate::support::data("reports/gamma-small-b2-s6-fp32.json");
        let compare = |args: &[&str]| {
            folder.memlab(&[&["compare"], args, &["report.json", other.to_str().unwrap()]].concat()).expect(0).stdout
        };
        compare(&["--html", "page.html"]);
        let expected = serde_json::json!({
            "title": "Comparison", "runs": 2, "changes": changes, "origin": format!("{function} 0"),
            "results": compare(&["--format", "csv"]), "samples": compare(&["--format", "csv", "--show-phases"]),
        });
        let found = check(&folder, "page.html", &json(expected));
        assert!(found.ends_with("all as expected"), "{found}");
    }

    #[test]
    fn the_page_can_be_printed() {
        let folder = Folder::new();
        let reports = crate::support::data("reports");
        folder.memlab(&["compare", "--html", "page.html", reports.to_str().unwrap()]).expect(0);
        let (page, paper) = (folder.path().join("page.html"), folder.path().join("page.pdf"));
        chromium(&folder, &page, &[&format!("--print-to-pdf={}", paper.display())]);
        let paper = std::fs::read(paper).unwrap();
        assert!(paper.starts_with(b"%PDF"));
        // Pictures, tables and provenance of five reports: nothing is cut off at the end of the first sheet.
        let sheets = String::from_utf8_lossy(&paper).matches("/Type /Page\n").count();
        assert!((2..=10).contains(&sheets), "{sheets}");
    }
}
