//! Pickle, as far as plain data needs it: a reader that executes nothing, and a writer that the official viewer reads.

mod opcode;
mod read;
mod write;

pub(super) use read::read;
pub use read::{Limits, ReadError};
pub(super) use write::{Remembered, Writer};
