//! The job that writes the tables when nobody watches.

use serde::Serialize;

use super::arrays::Programs;
use super::client::call;
use super::script::{Template, job_name, pattern};
use super::submission_name;
use super::submit::read_job;
use crate::diag::Diagnostic;
use crate::protocol::{PlanFile, SlurmJob};
use crate::store::ResultsFolder;

/// Submits the small job that collates after these jobs, however they end.
///
/// # Errors
/// Slurm does not take it; the others are submitted.
pub fn submit_collation(
    folder: &ResultsFolder,
    plan: &PlanFile,
    programs: &Programs,
    after: &[SlurmJob],
) -> Result<SlurmJob, Diagnostic> {
    #[derive(Serialize)]
    struct Context<'a> {
        experiment: &'a str,
        name: String,
        log: String,
        partition: Option<&'a str>,
        account: Option<&'a str>,
        qos: Option<&'a str>,
        memlab: &'a str,
        folder: &'a str,
    }
    let submission = submission_name();
    let settings = plan.slurm.as_ref();
    let path = std::path::absolute(folder.path()).unwrap_or_else(|_| folder.path().to_owned());
    let script = Template::collate().render(&Context {
        experiment: &plan.name,
        name: format!("memlab-{}-{submission}-collate", job_name(&plan.name)),
        log: pattern(&path.join("slurm/collate.log")),
        partition: settings.and_then(|settings| settings.partition.as_deref()),
        account: settings.and_then(|settings| settings.account.as_deref()),
        qos: settings.and_then(|settings| settings.qos.as_deref()),
        memlab: &programs.memlab,
        folder: path.to_str().ok_or_else(|| Diagnostic::error(format!("the path {} is not UTF-8", path.display())))?,
    })?;
    folder.write("slurm/collate.sh", &script)?;
    let script = path.join("slurm/collate.sh");
    let ids: Vec<String> = after.iter().map(|job| job.id.to_string()).collect();
    let dependency = format!("--dependency=afterany:{}", ids.join(":"));
    let cluster = after.iter().find_map(|job| job.cluster.as_ref()).map(|cluster| format!("--clusters={cluster}"));
    let script = script.to_string_lossy();
    let mut arguments = vec!["--parsable", dependency.as_str()];
    arguments.extend(cluster.as_deref());
    arguments.push(&script);
    let answer =
        call("sbatch", &arguments).map_err(|error| Diagnostic::error(format!("sbatch cannot be started: {error}")))?;
    read_job(&answer.stdout).filter(|_| answer.success).ok_or_else(|| {
        Diagnostic::error(format!("Slurm does not take the job that collates: {}", answer.complaint()))
            .help(format!("the runs are submitted; `memlab collate {}` collates them later", folder.path().display()))
    })
}
