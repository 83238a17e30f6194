//! Pictures of a collation: the page, and the figures beside it. What they need of the disk is read here.

use std::fs::File;
use std::path::Path;

use crate::collate::Collation;
use crate::diag::Diagnostic;
use crate::protocol::Judged;
use crate::render::{self, Page, Recording};
use crate::snapshot::{self, Limits, Timeline};
use crate::store::ResultsFolder;

/// So many recorded histories are read for one page.
const MOST_RECORDINGS: usize = 24;

/// The page as text. Recorded histories are looked for in these results folders, and where the reports say.
pub(super) fn html(collation: &Collation, judged: Option<&Judged>, folders: &[&Path]) -> Result<String, Diagnostic> {
    let recordings = recordings(collation, folders);
    let page = Page { collation, judged, recordings: &recordings };
    render::html(&page).map_err(|error| Diagnostic::error(format!("cannot make the page: {error}")))
}

/// Writes `figures/*.svg`.
pub(super) fn write_figures(folder: &ResultsFolder, collation: &Collation) -> Result<(), Diagnostic> {
    folder.write_figures(&render::figures(collation))
}

fn recordings(collation: &Collation, folders: &[&Path]) -> Vec<Recording> {
    let mut found = Vec::new();
    for row in &collation.rows {
        let ranks = row.report.iter().flat_map(|report| &report.rank_reports);
        for (rank, said) in ranks.filter_map(|rank| Some((rank.rank, rank.snapshot.as_ref()?))) {
            let here = folders.iter().filter_map(|folder| ResultsFolder::open(*folder).ok());
            let beside = here.map(|folder| folder.run(&row.run_id).rank_snapshot_path(rank));
            let path = beside.chain([Path::new(said).to_owned()]).find(|path| path.is_file());
            found.extend(path.map(|path| (row.run_id.clone(), path)));
        }
    }
    let read = |(at, (run_id, path)): (usize, (String, std::path::PathBuf))| {
        let file = path.display().to_string();
        if at >= MOST_RECORDINGS {
            let history =
                Err("beyond the recordings that fit into one page; memlab snapshot summary shows it".to_owned());
            return vec![Recording { run_id, file, history }];
        }
        match history(&path) {
            Ok(timelines) => timelines
                .into_iter()
                .map(|timeline| Recording { run_id: run_id.clone(), file: file.clone(), history: Ok(timeline) })
                .collect(),
            Err(why) => vec![Recording { run_id, file, history: Err(why) }],
        }
    };
    found.into_iter().enumerate().flat_map(read).collect()
}

fn history(path: &Path) -> Result<Vec<Timeline>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let (snapshot, _) = snapshot::read(file, Limits::default()).map_err(|error| error.to_string())?;
    Timeline::of(&snapshot).map_err(|error| error.to_string())
}
