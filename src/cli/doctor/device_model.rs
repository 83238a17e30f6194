//! `memlab doctor --device-model`: describes the GPU at hand by running the exercise on it and on its model, and comparing.
//!
//! A model that is guessed from the compute capability is corrected by what the runs differ in: the BLAS workspace by how much more
//! is allocated after the first forward pass (one thread's) and after the first step (two threads'); the attention kernel by which
//! of them gives the samples of the bf16 run; the context by what the device uses beyond what the allocator reserves. Whatever the
//! runs do not settle stays a guess, and is called unmeasured.

use std::path::Path;

use crate::cli::console::{Console, Stop};
use crate::cli::machine::Machine;
use crate::cli::planning;
use crate::diag::Diagnostic;
use crate::exec::{Job, Limits, Place, provenance};
use crate::exit::Exit;
use crate::experiment;
use crate::protocol::{AttentionFamily, DeviceModel, Gpu, Outcome, Phase, Report, Sample};
use crate::store;
use crate::units::MIB;

/// Both runs: in fp32 for workspace and context, in bf16 for the attention kernel. With this batch all three differ on the H200.
const RUNS: &str = "case = \"alpha\"\nbatch_size = 4\nsteps = 2\n";

/// Measures, prints the model as TOML, and says how well it reproduces the measurements.
pub(super) fn describe(console: &mut Console) -> Result<Exit, Stop> {
    let machine = Machine::find()?;
    let Some(gpu) = machine.probe.gpus.first() else {
        let none = format!("there is no GPU to describe: {}", machine.why_no_cuda());
        return Err(Diagnostic::error(none).help("run it where the GPU is, such as in a batch job").into());
    };
    let name = short_name(&gpu.name);
    let measured =
        execute(&machine, console, &format!("{RUNS}device = \"cuda\"\n"), "precision = [\"fp32\", \"bf16\"]", "")?;
    let [fp32, bf16] = &measured[..] else { return Err(Diagnostic::error("a run left no report").into()) };

    let guess = guess(&name, gpu)?;
    let modelled = modelled(&machine, console, &guess)?;
    let mut model = guess.clone();
    let mut unmeasured = Vec::new();
    match workspace(fp32, &modelled[0], guess.blas_workspace_bytes) {
        Some(bytes) => model.blas_workspace_bytes = bytes,
        None => unmeasured.push("blas_workspace_bytes".to_owned()),
    }
    match context(fp32) {
        Some(bytes) => model.context_bytes = bytes,
        None => unmeasured.push("context_bytes".to_owned()),
    }
    let mut fits = Vec::new();
    for family in AttentionFamily::ALL {
        model.bf16_attention = *family;
        let reports = self::modelled(&machine, console, &model)?;
        fits.push((equal(bf16, &reports[1]), *family));
    }
    let best = fits.iter().map(|(equal, _)| *equal).max().unwrap_or(0);
    let mut candidates = fits.iter().filter(|(equal, _)| *equal == best).map(|(_, family)| *family);
    model.bf16_attention = candidates.next().filter(|_| candidates.next().is_none()).unwrap_or_else(|| {
        unmeasured.push("bf16_attention".to_owned());
        guess.bf16_attention
    });
    model.unmeasured = unmeasured;

    let reports = self::modelled(&machine, console, &model)?;
    let (all, same) = measured.iter().zip(&reports).fold((0, 0), |(all, same), (measured, modelled)| {
        (all + samples(measured).count() * 3, same + equal(measured, modelled))
    });
    console.result(&toml(&model))?;
    console.note(&format!(
        "measured on {}: the model gives {same} of {all} values of allocated, reserved and peak memory to the byte",
        gpu.name
    ));
    console.note("context_bytes holds whatever else used the GPU meanwhile");
    Ok(Exit::Success)
}

/// `NVIDIA H100 80GB HBM3` is `measured-h100-80gb-hbm3`: never the name of a built-in model.
fn short_name(gpu: &str) -> String {
    let words = gpu.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty() && *word != "NVIDIA");
    let name = words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-");
    format!("measured-{}", if name.is_empty() { "gpu" } else { &name })
}

/// What the probe knows, and the compute capability implies.
fn guess(name: &str, gpu: &Gpu) -> Result<DeviceModel, Stop> {
    let [major, minor] = gpu.compute_capability;
    let table = format!(
        "gpu_name = {}\nmemory_bytes = {}\ncompute_capability = [{major}, {minor}]\nmultiprocessors = {}\n",
        quoted(&gpu.name),
        gpu.memory_bytes,
        gpu.multiprocessors,
    );
    let text = format!("name = \"guess\"\n[base]\ncase = \"alpha\"\n[device_models.{name}]\n{table}");
    let experiment = experiment::parse(Path::new("device model"), &text)?;
    let model = experiment.device_models.get(name).map(|model| model.as_ref().clone());
    model.ok_or_else(|| Diagnostic::error(format!("the GPU's name {name} is no name of a device model")).into())
}

/// Runs both runs on a model, without computing anything: fp32 first.
fn modelled(machine: &Machine, console: &mut Console, model: &DeviceModel) -> Result<Vec<Report>, Stop> {
    let base = format!("{RUNS}device = \"cpu\"\ncompute = false\ndevice_model = {}\n", quoted(&model.name));
    execute(machine, console, &base, "precision = [\"fp32\", \"bf16\"]", &toml(model))
}

/// Executes an experiment in a folder of its own, and gives its reports in order. Every run has to succeed.
fn execute(
    machine: &Machine,
    console: &mut Console,
    base: &str,
    sweep: &str,
    tables: &str,
) -> Result<Vec<Report>, Stop> {
    let text = format!("name = \"device_model\"\n[base]\n{base}[sweep]\n{sweep}\n{tables}");
    let experiment = experiment::parse(Path::new("device model"), &text)?;
    let plan = crate::plan::expand(&experiment, &planning::host(&machine.probe))?;
    let place = tempfile::tempdir()
        .map_err(|error| Diagnostic::error(format!("cannot make a folder for temporary files: {error}")))?;
    let files = |at: usize| place.path().join(format!("{at}.json"));
    let job = |(at, run)| Job {
        run,
        place: Place::Files {
            report: files(at),
            snapshot: None,
            overwrite: [false; 2],
            log: place.path().join(at.to_string()),
        },
    };
    let jobs: Vec<Job> = plan.runs.into_iter().enumerate().map(job).collect();
    let (_, ended) =
        machine.execute(&jobs, Limits { jobs: Some(1), ..Limits::default() }, provenance(None), console)?;
    for (job, ended) in jobs.iter().zip(ended) {
        let why = match ended {
            Some(ended) if ended.outcome == Outcome::Ok => continue,
            Some(ended) => ended.message.unwrap_or_else(|| ended.outcome.name().to_owned()),
            None => "interrupted".to_owned(),
        };
        let failed = Diagnostic::error(format!("{} cannot be measured: {why}", job.run.run_id));
        return Err(Stop::new(Exit::RunFailed, failed));
    }
    (0..jobs.len()).map(|at| Ok(store::read_report(&files(at))?.report)).collect()
}

fn samples(report: &Report) -> impl Iterator<Item = &Sample> {
    report.rank_reports.iter().flat_map(|rank| &rank.samples)
}

/// How many values of allocated, reserved and peak memory are equal.
fn equal(measured: &Report, modelled: &Report) -> usize {
    let values =
        |sample: &Sample| [sample.allocated_mib, sample.reserved_mib, sample.peak_allocated_mib].map(f64::to_bits);
    let pairs = samples(measured).zip(samples(modelled));
    pairs
        .flat_map(|(left, right)| values(left).into_iter().zip(values(right)))
        .filter(|(left, right)| left == right)
        .count()
}

/// The BLAS workspace of one thread, where both differences between GPU and model are its: one after forward, two after the step.
fn workspace(measured: &Report, modelled: &Report, guess: u64) -> Option<u64> {
    let at = |report: &Report, phase: Phase| {
        samples(report).find(|sample| sample.step == 0 && sample.phase == phase).map(|sample| sample.allocated_mib)
    };
    let difference = |phase| Some(at(measured, phase)? - at(modelled, phase)?);
    let one = difference(Phase::AfterForward)?;
    let two = difference(Phase::AfterClearGradients)?;
    let is_two_of_them = (two - 2.0 * one).abs() < f64::EPSILON;
    is_two_of_them.then(|| bytes(crate::units::mib(guess) + one)).flatten()
}

/// What the device uses beyond the allocator, at its smallest.
fn context(measured: &Report) -> Option<u64> {
    let beyond = samples(measured).map(|sample| sample.device_used_mib - sample.reserved_mib);
    beyond.min_by(f64::total_cmp).and_then(bytes)
}

/// MiB as whole bytes; none below zero.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size in memory, checked to be positive")]
fn bytes(mib: f64) -> Option<u64> {
    (mib.is_finite() && mib >= 0.0).then(|| (mib * MIB as f64).round() as u64)
}

/// As an experiment has it.
fn toml(model: &DeviceModel) -> String {
    let [major, minor] = model.compute_capability;
    let unmeasured: Vec<String> = model.unmeasured.iter().map(|key| quoted(key)).collect();
    let memory = model.memory_bytes.map_or_else(|| "\"none\"".to_owned(), |bytes| bytes.to_string());
    format!(
        "[device_models.{}]\ngpu_name = {}\nmemory_bytes = {memory}\ncontext_bytes = {}\n\
         compute_capability = [{major}, {minor}]\nmultiprocessors = {}\nblas_workspace_bytes = {}\n\
         bf16_attention = \"{}\"\nunmeasured = [{}]\n",
        model.name,
        quoted(&model.gpu_name),
        model.context_bytes,
        model.multiprocessors,
        model.blas_workspace_bytes,
        model.bf16_attention,
        unmeasured.join(", "),
    )
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short() {
        assert_eq!(short_name("NVIDIA H200"), "measured-h200");
        assert_eq!(short_name("NVIDIA H100 80GB HBM3"), "measured-h100-80gb-hbm3");
        assert_eq!(short_name("NVIDIA"), "measured-gpu");
    }
}
