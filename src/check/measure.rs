//! What one run says about a measure, or why it says nothing.

use crate::collate::Row;
use crate::protocol::{Measure, Outcome, Phase, RankReport, Report, Unmeasured};

/// The measure's value in a run: the largest over its ranks. A run that did not measure all it should says nothing.
pub(super) fn value(row: &Row, measure: Measure) -> Result<f64, Unmeasured> {
    let why = |why: String| Unmeasured { run_id: row.run_id.clone(), why };
    let report = valid(row).map_err(why)?;
    let found = match measure {
        Measure::Indicator(indicator) => indicator.of(&row.indicators()),
        Measure::Sampled { quantity, phase, step } => {
            let of_rank = |rank: &RankReport| {
                let at =
                    |wanted: i64| rank.samples.iter().find(|sample| sample.phase == phase && sample.step == wanted);
                let sample = match step {
                    Some(step) => at(i64::try_from(step).ok()?),
                    None => rank.samples.iter().rev().find(|sample| sample.phase == phase),
                };
                sample.map(|sample| quantity.of(sample))
            };
            report.rank_reports.iter().map(of_rank).reduce(|left, right| Some(left?.max(right?))).flatten()
        }
        Measure::Outcome => None,
    };
    match found {
        Some(value) if value.is_finite() => Ok(value),
        Some(_) => Err(why(format!("{} is not a finite number", super::words::measure(measure)))),
        None => Err(why(format!("no {} in its report", super::words::measure(measure)))),
    }
}

/// The report of a run that measured all it should; else why it cannot be judged.
pub(super) fn valid(row: &Row) -> Result<&Report, String> {
    let said = |name: &str| match row.state.message() {
        Some(message) => format!("{name}: {}", shortened(message)),
        None => name.to_owned(),
    };
    match row.outcome() {
        Some(Outcome::Ok) => {}
        Some(Outcome::Oom) => return Err(said("out of memory")),
        _ => return Err(said(row.state.name())),
    }
    let report = row.report.as_ref().ok_or("no report")?;
    let ranks = report.rank_reports.len() as u64;
    if ranks == 0 || ranks != report.world_size {
        return Err(format!("{ranks} of {} ranks in its report", report.world_size));
    }
    for rank in &report.rank_reports {
        let steps = rank.samples.iter().filter(|sample| sample.phase == Phase::AfterClearGradients).count() as u64;
        if steps == 0 || steps != report.steps {
            return Err(format!("{steps} of {} steps measured on rank {}", report.steps, rank.rank));
        }
    }
    Ok(report)
}

/// Of a long message its beginning: the whole of it is in the run's own row.
fn shortened(message: &str) -> String {
    const MOST: usize = 160;
    match message.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &message[..end]),
        None => message.to_owned(),
    }
}
