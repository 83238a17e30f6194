//! Submitting and following: what a user sees while jobs wait and run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::{Array, JobState, Request, Slurm, Standing, Submitted, queue, submit};
use crate::diag::Diagnostic;
use crate::exec::signals::Watch;
use crate::exec::{Ending, Event, Job, Place};
use crate::protocol::{Outcome, Phase, SlurmJob};
use crate::store::{ResultsFolder, State};

/// How often a run's own files are looked at.
const TICK: Duration = Duration::from_secs(1);
/// The longest pause while the scheduler does not answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

impl Slurm<'_> {
    /// Submits as many arrays as the cluster takes for now, in order. Gives the jobs; arrays that have to wait stay in the list. Those
    /// that are too large for a limit that Slurm only tells by refusing are cut in halves.
    ///
    /// # Errors
    /// Slurm refuses one, or does not answer for long. What was accepted until then is on record.
    pub fn submit(
        &mut self,
        request: &mut Request<'_>,
        waiting: &mut VecDeque<Array>,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Vec<SlurmJob>, Diagnostic> {
        let mut jobs = Vec::new();
        let mut queued = self.queued();
        while let Some(mut array) = waiting.pop_front() {
            let tasks = array.record.tasks.len();
            if queued > 0 && queued + tasks > request.limits.jobs {
                waiting.push_front(array);
                break;
            }
            let on_trouble = &mut |text| on_event(Event::Notice { text });
            let submitted = submit::submit(&array.place, &mut array.record, &mut self.queue, on_trouble);
            let why = match submitted.map_err(|error| self.with_what_goes_on(error, queued))? {
                Submitted::Accepted(job) => {
                    let text = format!("submitted {} runs as job {job}, {tasks} tasks", array.runs());
                    on_event(Event::Notice { text });
                    jobs.push(job);
                    queued += tasks;
                    self.add(array.place, array.record);
                    continue;
                }
                Submitted::TooMany(why) if queue::is_empty_of_own()? => {
                    if tasks == 1 {
                        return Err(submit::refused(&why, &array.place.script().display().to_string()));
                    }
                    waiting.push_front(array);
                    request.limits.array = tasks.div_ceil(2);
                    self.plan_again(request, waiting)?;
                    continue;
                }
                Submitted::Busy(why) | Submitted::TooMany(why) => why,
            };
            waiting.push_front(array);
            if self.warned.insert(why.clone()) {
                let text = format!("Slurm takes no more jobs for now: {why}; the rest is submitted as they end");
                on_event(Event::Notice { text });
            }
            break;
        }
        Ok(jobs)
    }

    /// Arrays within the limits as they are now, for the runs of those that wait.
    fn plan_again(&self, request: &Request<'_>, waiting: &mut VecDeque<Array>) -> Result<(), Diagnostic> {
        let mut jobs = Vec::new();
        for array in waiting.drain(..) {
            array.place.remove()?;
            let runs = array.tasks.into_iter().flat_map(|task| task.runs);
            jobs.extend(runs.map(|run| Job { place: Place::Folder(self.folder.run(&run.run_id)), run }));
        }
        waiting.extend(self.plan(request, &jobs)?);
        waiting.iter().try_for_each(Array::write)
    }

    /// An error in the middle of a submission, for a user who has to know that a part is in the queue.
    fn with_what_goes_on(&self, error: Diagnostic, queued: usize) -> Diagnostic {
        if queued == 0 {
            return error;
        }
        let path = self.folder.path().display();
        error.note(format!(
            "{queued} tasks are in the queue and go on: `memlab status {path}` shows them, `memlab cancel {path}` ends them"
        ))
    }

    /// Tasks that may be in the queue.
    fn queued(&self) -> usize {
        let open = self.entries.iter().filter(|entry| entry.record.closed.is_none() && entry.record.job.is_some());
        open.map(|entry| entry.record.tasks.len() - entry.over.len()).sum()
    }

    /// Follows these runs to their ends, submitting what has to wait as room appears. An interruption leaves the jobs alone.
    ///
    /// # Errors
    /// A file cannot be written, or an array is refused. A scheduler that does not answer is no error.
    pub fn follow(
        &mut self,
        request: &mut Request<'_>,
        jobs: &[Job],
        mut waiting: VecDeque<Array>,
        poll: Duration,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Ending, Diagnostic> {
        let (sender, receiver) = channel();
        let watch = Watch::new(move || {
            let _ = sender.send(());
        })
        .map_err(|error| Diagnostic::error(format!("cannot watch for signals: {error}")))?;
        let mut view = View {
            folder: self.folder,
            index: jobs.iter().enumerate().map(|(at, job)| (job.run.run_id.as_str(), at)).collect(),
            shown: vec![Shown::Queued; jobs.len()],
            on_event,
        };
        let mut pause = Duration::ZERO;
        let mut next = Instant::now();
        let mut failing = false;
        let ending = loop {
            if Instant::now() >= next {
                match self.survey() {
                    Ok(standings) => {
                        if std::mem::take(&mut failing) {
                            view.notice("the scheduler answers again".to_owned());
                        }
                        self.warn_of_unknown_states(&standings, &mut view);
                        let changed = self.settle(&standings)?;
                        for standing in standings.iter().filter(|standing| !standing.in_flight) {
                            view.show(&standing.run_id, &standing.own);
                        }
                        for (run_id, outcome, message) in changed {
                            view.correct(&run_id, outcome, message);
                        }
                        self.close(&standings)?;
                        let submitted = self.submit(request, &mut waiting, view.on_event)?;
                        let open = standings.iter().any(|standing| standing.in_flight || !standing.task_over);
                        if waiting.is_empty() && submitted.is_empty() && !open {
                            break Ending::Complete;
                        }
                        // All have said how they ended: what Slurm says of it comes within seconds.
                        pause = if view.all_ended() { poll.min(2 * TICK) } else { poll };
                    }
                    Err(trouble) => {
                        if !std::mem::replace(&mut failing, true) {
                            view.notice(format!(
                                "the scheduler does not answer ({trouble}); jobs go on, and it is asked again"
                            ));
                        }
                        pause = (pause * 2).clamp(poll, LONGEST_PAUSE.max(poll));
                    }
                }
                next = Instant::now() + pause;
            }
            self.look_at_files(&mut view);
            // Thousands of files on a file system that others use as well are not looked at every second.
            let tick = TICK * u32::try_from(1 + view.waiting() / 500).unwrap_or(60);
            let until = next.saturating_duration_since(Instant::now()).min(tick);
            match receiver.recv_timeout(until) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break Ending::Interrupted,
            }
        };
        drop(watch);
        Ok(ending)
    }

    /// Shows how far the runs are by their own word, and ends of which Slurm need not be asked.
    fn look_at_files(&self, view: &mut View<'_>) {
        let open: Vec<&str> =
            view.index.iter().filter(|(_, at)| view.shown[**at] != Shown::Ended).map(|(run_id, _)| *run_id).collect();
        for run_id in open {
            let Some((entry, task)) = self.responsible(run_id) else { continue };
            match super::own_state(self.folder, run_id, &entry.record, task) {
                State::Ended { outcome, .. } if !outcome.is_finished() => {}
                own => view.show(run_id, &own),
            }
        }
    }

    fn warn_of_unknown_states(&mut self, standings: &[Standing], view: &mut View<'_>) {
        for seen in standings.iter().filter_map(|standing| standing.seen.as_ref()) {
            if seen.state == JobState::Unknown && self.warned.insert(seen.word.clone()) {
                view.notice(format!(
                    "Slurm says {:?} of job {}, a state that memlab does not know: it waits",
                    seen.word, seen.job
                ));
            }
        }
    }
}

/// What was shown of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Queued,
    Running(Option<(i64, Phase)>),
    Ended,
}

/// Turns what is known of the runs into events, each once.
struct View<'a> {
    folder: &'a ResultsFolder,
    index: BTreeMap<&'a str, usize>,
    shown: Vec<Shown>,
    on_event: &'a mut dyn FnMut(Event),
}

impl View<'_> {
    fn notice(&mut self, text: String) {
        (self.on_event)(Event::Notice { text });
    }

    fn all_ended(&self) -> bool {
        self.waiting() == 0
    }

    fn waiting(&self) -> usize {
        self.shown.iter().filter(|shown| **shown != Shown::Ended).count()
    }

    fn show(&mut self, run_id: &str, own: &State) {
        let Some(&job) = self.index.get(run_id) else { return };
        match (self.shown[job], own) {
            (Shown::Ended, _) | (_, State::Missing) => {}
            (before, State::Running(status)) => {
                if before == Shown::Queued {
                    (self.on_event)(Event::Started { job });
                }
                if before != Shown::Running(status.phase)
                    && let Some((step, phase)) = status.phase
                {
                    (self.on_event)(Event::Phase { job, rank: 0, step, phase });
                }
                self.shown[job] = Shown::Running(status.phase);
            }
            (_, State::Ended { outcome, message }) => self.end(run_id, job, *outcome, message.clone()),
        }
    }

    /// What Slurm knows better than the run.
    fn correct(&mut self, run_id: &str, outcome: Outcome, message: String) {
        match self.index.get(run_id) {
            Some(&job) if self.shown[job] != Shown::Ended => self.end(run_id, job, outcome, Some(message)),
            _ => self.notice(format!("{run_id}: {outcome}: {message}")),
        }
    }

    fn end(&mut self, run_id: &str, job: usize, outcome: Outcome, message: Option<String>) {
        self.shown[job] = Shown::Ended;
        let status = self.folder.run(run_id).status().ok().flatten();
        let seconds = status.and_then(|status| seconds_between(&status.started_at, &status.ended_at?));
        (self.on_event)(Event::Ended { job, outcome, message, seconds: seconds.unwrap_or(0.0) });
    }
}

fn seconds_between(start: &str, end: &str) -> Option<f64> {
    let (start, end): (jiff::Timestamp, jiff::Timestamp) = (start.parse().ok()?, end.parse().ok()?);
    Some(end.duration_since(start).as_secs_f64())
}
