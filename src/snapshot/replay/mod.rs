//! Replay: what a recorded history does to the allocator model.
//!
//! A history says what the allocator did. What the program did is most of it: requests and frees are entries, but a
//! call to `empty_cache` shows only by what it released, and whether a stream's work was finished at a request only
//! by where the completion stands. [`recorded`] goes through the entries with the model under the recorded settings,
//! finds the program's own operations ([`Program`]), and counts every difference between model and recording.
//! [`what_if`] runs those operations again under other settings.
//!
//! A history that does not begin at process start is replayed from a state inferred by `initial`.

mod damage;
mod device;
mod initial;
mod limit;
mod program;
mod recorded;
#[cfg(test)]
mod tests;
mod what_if;

pub use damage::Damage;
pub use initial::Initial;
pub use limit::InferredLimit;
pub use program::{Operation, Program};
pub use recorded::{Mismatch, Recorded, recorded};
pub use what_if::{WhatIf, what_if};

/// The model's device when a snapshot does not say how much memory it had: no history reaches this.
const UNKNOWN_TOTAL: u64 = 1 << 40;
