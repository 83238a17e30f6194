//! The page in a real browser: what a reader sees, clicks and types.
#![expect(clippy::unwrap_used, reason = "a page that cannot be shown fails the test")]

mod support;

/// Headless Chromium shows the page with the checks of `browser/checks.js` at its end, and prints what they found.
mod needs_browser {
    use std::path::Path;
    use std::process::Command;

    use crate::support::Folder;

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
        let output = Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
            .args(["--enable-logging=stderr", "--window-size=1280,900", "--virtual-time-budget=20000", "--dump-dom"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg(format!("file://{}", path.display()))
            .env("HOME", folder.path())
            .output()
            .expect("chromium is there: apt-get install chromium");
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
}
