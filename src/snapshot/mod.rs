//! `PyTorch` memory snapshots: read, write, summarise, replay.
//!
//! A file is read into plain data (`document`) by a reader that executes nothing (`pickle`, `json`), and that into
//! a [`Snapshot`] whatever its layout. The worker fills a [`Snapshot`] from the allocator model, and [`write()`] writes it as
//! `PyTorch` does.

mod decode;
mod document;
mod fault;
mod json;
mod model;
mod pickle;
pub mod replay;
pub mod summary;
#[cfg(test)]
mod tests;
mod timeline;
mod write;

use std::io::{self, BufRead, BufReader, Read};

pub use decode::DecodeError;
pub use model::{
    Annotation, Block, Contexts, Entry, Frame, FrameId, NoteId, RecordedSettings, Segment, Snapshot, StackId,
};
pub use pickle::{Limits, ReadError};
pub use timeline::{Change, Timeline};
pub use write::write;

/// The form of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A pickle with its protocol.
    Pickle(u8),
    /// JSON.
    Json,
}

/// Why a file is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be read at all.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is no pickle and no JSON of plain data.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It is plain data, but of something else.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// Reads a snapshot, pickle or JSON.
///
/// # Errors
/// [`Error`] for whatever is not a snapshot, and beyond the limits.
pub fn read(source: impl Read, limits: Limits) -> Result<(Snapshot, Format), Error> {
    let mut source = BufReader::with_capacity(1 << 12, source);
    let json = source
        .fill_buf()?
        .iter()
        .find(|byte| !byte.is_ascii_whitespace())
        .is_some_and(|byte| matches!(byte, b'{' | b'['));
    let (document, top, format) = if json {
        let (document, top) = json::read(source.take(limits.bytes))?;
        (document, top, Format::Json)
    } else {
        let (document, top, protocol) = pickle::read(source, limits)?;
        (document, top, Format::Pickle(protocol))
    };
    Ok((decode::decode(&document, top)?, format))
}
