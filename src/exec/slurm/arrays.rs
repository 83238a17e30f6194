//! Which runs share a job array: those with the same needs, cut into tasks, and the tasks into arrays that the cluster takes.

use serde::Serialize;

use super::script::{Template, job_name, pattern};
use crate::diag::Diagnostic;
use crate::exec::Job;
use crate::protocol::{Backend, DeviceKind, Provenance, RunSpec, SCHEMA_VERSION, SlurmArray, SlurmSettings, SlurmTask};
use crate::store::{ArrayPlace, ResultsFolder};
use crate::units::{MIB, format_slurm_time};

/// What scripts name: the programs by absolute path, which every node must see.
#[derive(Debug, Clone)]
pub struct Programs {
    /// This program.
    pub memlab: String,
    /// The worker.
    pub worker: String,
}

/// What an array's script is made from, beside its runs.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) folder: &'a ResultsFolder,
    pub(super) experiment: &'a str,
    /// Part of every job's name, and used only once.
    pub(super) submission: &'a str,
    pub(super) settings: &'a SlurmSettings,
    pub(super) timeout_seconds: Option<u64>,
    pub(super) provenance: &'a Provenance,
    pub(super) programs: &'a Programs,
    pub(super) template: &'a Template,
    /// Tasks of an array at most.
    pub(super) largest_array: usize,
}

/// An array to submit.
#[derive(Debug)]
pub struct Array {
    /// Where its files go.
    pub place: ArrayPlace,
    /// What each task executes.
    pub tasks: Vec<SlurmTask>,
    /// The script.
    pub script: String,
    /// Its record.
    pub record: SlurmArray,
}

impl Array {
    /// How many runs it executes.
    pub fn runs(&self) -> usize {
        self.record.tasks.iter().map(Vec::len).sum()
    }

    /// Writes its files.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self) -> Result<(), Diagnostic> {
        self.place.create(&self.tasks, &self.script, &self.record)
    }
}

/// What the runs of an array have in common.
#[derive(Debug, PartialEq, Eq)]
struct Need {
    settings: SlurmSettings,
    ranks: u64,
}

/// Arrays for the jobs: at most one per distinct need, unless it would be larger than the cluster takes.
pub(super) fn arrays(plan: &Plan<'_>, jobs: &[Job]) -> Result<Vec<Array>, Diagnostic> {
    let mut groups: Vec<(Need, Vec<&Job>)> = Vec::new();
    for job in jobs {
        let need = Need::of(plan.settings, &job.run.spec)?;
        match groups.iter_mut().find(|(known, _)| *known == need) {
            Some((_, members)) => members.push(job),
            None => groups.push((need, vec![job])),
        }
    }
    let mut arrays = Vec::new();
    for (need, members) in &groups {
        let per_task = as_count(need.settings.runs_per_task.unwrap_or(1));
        for part in members.chunks(plan.largest_array.max(1).saturating_mul(per_task)) {
            arrays.push(array(plan, need, part, per_task, arrays.len())?);
        }
    }
    let planned: usize = arrays.iter().map(Array::runs).sum();
    if planned != jobs.len() {
        return Err(Diagnostic::error(format!("{planned} of {} runs are in an array", jobs.len())));
    }
    Ok(arrays)
}

fn array(plan: &Plan<'_>, need: &Need, jobs: &[&Job], per_task: usize, number: usize) -> Result<Array, Diagnostic> {
    let place = plan.folder.array(plan.submission, number);
    let time = Times::of(need.settings.time_seconds, plan.timeout_seconds, jobs.len().min(per_task));
    let tasks: Vec<SlurmTask> = jobs
        .chunks(per_task)
        .map(|jobs| SlurmTask {
            schema_version: SCHEMA_VERSION,
            runs: jobs.iter().map(|job| job.run.clone()).collect(),
            time_limit_seconds: time.run,
            provenance: plan.provenance.clone(),
        })
        .collect();
    let name = format!("memlab-{}-{}-{number}", job_name(plan.experiment), job_name(plan.submission));
    let record = SlurmArray {
        schema_version: SCHEMA_VERSION,
        name,
        tasks: tasks.iter().map(|task| task.runs.iter().map(|run| run.run_id.clone()).collect()).collect(),
        intended_at: None,
        job: None,
        closed: None,
    };
    let settings = &need.settings;
    for (key, value) in &settings.environment {
        if !is_variable(key) {
            return Err(Diagnostic::error(format!("\"{key}\" cannot name a variable of the environment"))
                .help("[slurm] environment: use letters, digits and `_`"));
        }
        if value.contains('\0') {
            return Err(Diagnostic::error(format!("the value of {key} in the environment contains a zero byte")));
        }
    }
    if let Some(line) = settings.directives.iter().find(|line| !line.starts_with('-') || line.contains(['\n', '\r'])) {
        return Err(Diagnostic::error(format!("{line:?} is no directive"))
            .help("[slurm] directives: one option of sbatch in each, such as \"--exclusive\""));
    }
    let folder = plan.folder.path().display();
    let task_list = place.tasks();
    let script = plan.template.render(&Context {
        experiment: plan.experiment,
        submission: plan.submission,
        name: &record.name,
        comment: format!("memlab: {}, array {number} of {}", plan.experiment, plan.submission),
        number,
        array: indices(tasks.len(), settings.throttle),
        tasks: tasks.len(),
        runs: jobs.len(),
        log: format!("{}-%a.log", pattern(place.stem())),
        task_list: task_list
            .to_str()
            .ok_or_else(|| Diagnostic::error(format!("the path {folder} is not UTF-8")).help("rename the folder"))?,
        memlab: &plan.programs.memlab,
        worker: &plan.programs.worker,
        ranks: need.ranks,
        launch: launch(need)?,
        partition: settings.partition.as_deref(),
        account: settings.account.as_deref(),
        qos: settings.qos.as_deref(),
        constraint: settings.constraint.as_deref(),
        time: time.job.map(format_slurm_time),
        mem: settings.mem_bytes.map(mebibytes),
        mem_per_cpu: settings.mem_per_cpu_bytes.map(mebibytes),
        cpus_per_task: settings.cpus_per_task,
        gpus_per_node: settings.gpus_per_node,
        gres: settings.gres.as_deref(),
        nodes: settings.nodes.unwrap_or(1),
        directives: &settings.directives,
        setup: &settings.setup,
        environment: settings.environment.iter().collect(),
    })?;
    Ok(Array { place, tasks, script, record })
}

/// What a template can name.
#[derive(Serialize)]
struct Context<'a> {
    experiment: &'a str,
    submission: &'a str,
    name: &'a str,
    comment: String,
    number: usize,
    array: String,
    tasks: usize,
    runs: usize,
    log: String,
    task_list: &'a str,
    memlab: &'a str,
    worker: &'a str,
    ranks: u64,
    launch: Option<Vec<String>>,
    partition: Option<&'a str>,
    account: Option<&'a str>,
    qos: Option<&'a str>,
    constraint: Option<&'a str>,
    time: Option<String>,
    mem: Option<String>,
    mem_per_cpu: Option<String>,
    cpus_per_task: Option<u64>,
    gpus_per_node: Option<u64>,
    gres: Option<&'a str>,
    nodes: u64,
    directives: &'a [String],
    setup: &'a [String],
    environment: Vec<(&'a String, &'a String)>,
}

impl Need {
    /// Of one run. A CUDA run asks for as many GPUs as its ranks use, unless the experiment asks itself.
    fn of(settings: &SlurmSettings, spec: &RunSpec) -> Result<Self, Diagnostic> {
        let mut settings = settings.of(spec);
        let ranks = spec.world_size;
        let nodes = settings.nodes.unwrap_or(1);
        let gpus = match (spec.device, spec.backend) {
            (DeviceKind::Cpu, _) => 0,
            (DeviceKind::Cuda, Some(Backend::Nccl)) => ranks,
            (DeviceKind::Cuda, _) => 1,
        };
        if gpus > 0 && settings.gres.is_none() {
            let per_node = *settings.gpus_per_node.get_or_insert(gpus.div_ceil(nodes));
            if per_node.saturating_mul(nodes) < gpus {
                return Err(Diagnostic::error(format!(
                    "a run with {ranks} ranks needs {gpus} GPUs, and [slurm] asks for {per_node} on {nodes} node(s)"
                ))
                .help("leave gpus_per_node out, or ask for more for these runs with [[slurm.override]]"));
            }
        }
        Ok(Self { settings, ranks })
    }
}

/// Words in front of each worker: the experiment's own launcher; `srun` where there are several ranks, or a container.
fn launch(need: &Need) -> Result<Option<Vec<String>>, Diagnostic> {
    let Need { settings, ranks } = need;
    if let Some(launcher) = &settings.launcher {
        return shlex::split(launcher)
            .filter(|words| !words.is_empty())
            .map(Some)
            .ok_or_else(|| Diagnostic::error(format!("launcher = {launcher:?} cannot be taken apart into words")));
    }
    if *ranks == 1 && settings.container.is_none() {
        return Ok(None);
    }
    let mut words = vec!["srun".to_owned(), format!("--ntasks={ranks}")];
    words.push(format!("--nodes={}", settings.nodes.unwrap_or(1)));
    // What sbatch was told is not what srun takes over, since Slurm 22.05.
    words.extend(settings.cpus_per_task.map(|cpus| format!("--cpus-per-task={cpus}")));
    words.push("--kill-on-bad-exit=1".to_owned());
    words.extend(settings.container.as_ref().map(|image| format!("--container-image={image}")));
    Ok(Some(words))
}

/// How long a job and each of its runs may take, seconds.
struct Times {
    job: Option<u64>,
    run: Option<u64>,
}

impl Times {
    /// A run is ended a little before the job's own limit, so that it still leaves a report with what was measured.
    fn of(wall: Option<u64>, timeout: Option<u64>, runs: usize) -> Self {
        let margin = |seconds: u64| (seconds / 10).clamp(1, 60);
        let run = match (wall.map(|wall| wall - margin(wall).min(wall / 2)), timeout) {
            (Some(wall), Some(timeout)) => Some(wall.min(timeout)),
            (wall, timeout) => wall.or(timeout),
        };
        let wall = wall.or(timeout.map(|timeout| timeout + margin(timeout) + 60));
        Self { job: wall.map(|wall| wall.saturating_mul(runs.max(1) as u64)), run }
    }
}

/// `0-99%10`.
fn indices(tasks: usize, throttle: Option<u64>) -> String {
    let last = tasks.saturating_sub(1);
    let range = if last == 0 { "0".to_owned() } else { format!("0-{last}") };
    throttle.map_or_else(|| range.clone(), |throttle| format!("{range}%{throttle}"))
}

/// Slurm counts memory in MiB at the finest that every version reads.
fn mebibytes(bytes: u64) -> String {
    format!("{}M", bytes.div_ceil(MIB))
}

fn is_variable(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(word) && !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn as_count(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_told_to_stop_before_its_job_ends() {
        let times = |wall, timeout, runs| {
            let Times { job, run } = Times::of(wall, timeout, runs);
            (job, run)
        };
        assert_eq!(times(Some(600), None, 1), (Some(600), Some(540)));
        assert_eq!(times(Some(86_400), None, 1), (Some(86_400), Some(86_340)));
        assert_eq!(times(Some(60), None, 3), (Some(180), Some(54)), "one after another");
        assert_eq!(times(Some(3600), Some(60), 1), (Some(3600), Some(60)), "the experiment's own limit comes first");
        assert_eq!(times(Some(60), Some(3600), 1), (Some(60), Some(54)));
        // Asked for from the experiment's own limit, with room to start and to end.
        assert_eq!(times(None, Some(600), 2), (Some(1440), Some(600)));
        assert_eq!(times(None, None, 1), (None, None));
    }
}
