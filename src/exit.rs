//! The exit codes, in one place. The first that applies, in the order of [`Exit::worst`], is the command's.

/// What a command ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Everything asked for was done, and every judgement was favourable.
    Success,
    /// A hypothesis was refuted, a baseline broken, or a replay does not agree with its recording.
    Refuted,
    /// Arguments or experiment unreadable, environment missing, folder in use.
    Usage,
    /// A single run was out of memory (`memlab run` and the worker only; in a sweep that is evidence).
    OutOfMemory,
    /// A run failed or is missing.
    RunFailed,
    /// Nothing could be judged: no data, no baseline, damaged data, a limit not found.
    Undecided,
    /// Interrupted by the user.
    Interrupted,
}

impl Exit {
    /// The process exit status.
    pub fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Refuted => 1,
            Exit::Usage => 2,
            Exit::OutOfMemory => 3,
            Exit::RunFailed => 4,
            Exit::Undecided => 5,
            Exit::Interrupted => 130,
        }
    }

    /// Of two results the one that is reported: interrupted, usage, failed run, out of memory, refuted, undecided, success.
    #[must_use]
    pub fn worst(self, other: Exit) -> Exit {
        const ORDER: [Exit; 7] = [
            Exit::Interrupted,
            Exit::Usage,
            Exit::RunFailed,
            Exit::OutOfMemory,
            Exit::Refuted,
            Exit::Undecided,
            Exit::Success,
        ];
        ORDER.into_iter().find(|exit| *exit == self || *exit == other).unwrap_or(self)
    }
}
