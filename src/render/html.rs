//! `report.html`: one self-contained page with the pictures, the tables, the provenance, and every number behind them.
//!
//! The page is `templates/report.html`. Everything that it shows of experiments and reports is in one block of JSON (see
//! [`data`]), which the page's scripts turn into pictures; only the headings are written here. Nothing is loaded from anywhere.

mod data;

use std::collections::BTreeMap;

use minijinja::{Environment, Value, context};

use crate::collate::{self, Collation};
use crate::protocol::Judged;
use crate::snapshot::Timeline;

/// What a page is made of.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// The runs, and the plan they belong to.
    pub collation: &'a Collation,
    /// What became of the author's expectations, where they were judged.
    pub judged: Option<&'a Judged>,
    /// The allocator's histories, where they were recorded.
    pub recordings: &'a [Recording],
}

/// The allocator's history of one rank of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// The run, as its row is called.
    pub run_id: String,
    /// The file, as the user knows it.
    pub file: String,
    /// What it holds, or why it is not shown.
    pub history: Result<Timeline, String>,
}

/// The page's parts: a name, and the text that stands for it in the template.
const PARTS: [(&str, &str); 13] = [
    ("uplot_script", include_str!("../../templates/vendor/uplot/uPlot.iife.min.js")),
    ("uplot_style", include_str!("../../templates/vendor/uplot/uPlot.min.css")),
    ("uplot_licence", include_str!("../../templates/vendor/uplot/LICENSE")),
    ("style", include_str!("../../templates/report/style.css")),
    ("data_script", include_str!("../../templates/report/data.js")),
    ("ui_script", include_str!("../../templates/report/ui.js")),
    ("chart_script", include_str!("../../templates/report/chart.js")),
    ("phases_script", include_str!("../../templates/report/phases.js")),
    ("trends_script", include_str!("../../templates/report/trends.js")),
    ("tables_script", include_str!("../../templates/report/tables.js")),
    ("ranks_script", include_str!("../../templates/report/ranks.js")),
    ("recordings_script", include_str!("../../templates/report/recordings.js")),
    ("page_script", include_str!("../../templates/report/page.js")),
];

/// The page as text.
///
/// # Errors
/// The template does not fit what it is given; a message says where.
pub fn html(page: &Page<'_>) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    environment.add_template("report.html", include_str!("../../templates/report.html"))?;
    let plan = page.collation.plan.as_ref();
    let name = plan.map_or("Comparison", |plan| plan.name.as_str());
    let parts: BTreeMap<&str, Value> =
        PARTS.iter().map(|(name, text)| (*name, Value::from_safe_string((*text).to_owned()))).collect();
    environment.get_template("report.html")?.render(context! {
        name,
        title => plan.and_then(|plan| plan.title.as_deref()).unwrap_or(name),
        tally => collate::tally(&page.collation.rows),
        runs => page.collation.rows.len(),
        version => env!("CARGO_PKG_VERSION"),
        data => Value::from_safe_string(in_script(&data::json(page))),
        parts,
    })
}

/// JSON that no text in it can end the script element around it, or open a comment.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::Row;

    fn page(runs: usize) -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/reports/gamma-small-b2-s6-fp32.json");
        let one = Collation::at(std::path::Path::new(path)).unwrap().rows.remove(0);
        let row = |run: usize| {
            let mut row: Row = one.clone();
            row.run_id = format!("</script> run {run}");
            // No two runs measure the same: the page cannot share their numbers.
            let ranks = row.report.iter_mut().flat_map(|report| &mut report.rank_reports);
            for sample in ranks.flat_map(|rank| &mut rank.samples) {
                sample.allocated_mib += run as f64 / 2048.0;
                sample.peak_allocated_mib += run as f64 / 2048.0;
                sample.device_used_mib += run as f64;
                sample.reserved_mib += run as f64;
            }
            row
        };
        let rows = (0..runs).map(row).collect();
        let collation = Collation { plan: None, rows, unplanned: Vec::new(), damaged: Vec::new() };
        html(&Page { collation: &collation, judged: None, recordings: &[] }).unwrap()
    }

    #[test]
    fn two_thousand_runs_stay_under_ten_megabytes() {
        let size = page(2_000).len();
        assert!(size < 10_000_000, "{size}");
    }

    #[test]
    fn nothing_is_loaded_and_no_text_ends_a_script() {
        let page = page(1);
        assert_eq!(page.matches("</script>").count(), 3, "the data, uPlot, and the page's own");
        for loads in
            ["src=\"http", "href=\"http", "url(http", "@import", "fetch(", "XMLHttpRequest", "<link rel=\"stylesheet\""]
        {
            assert!(!page.contains(loads), "{loads}");
        }
        let data = page.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["results"][0]["values"][0], "</script> run 0");
    }
}
