//! The writer: protocol 4, with the instructions that the official viewer knows and no others.
//!
//! The viewer has its own small reader: no wide strings, no calls, and one function call per batch of list items, so
//! batches stay at 1000 as Python's do. Every text is written once and remembered.

use std::collections::HashMap;
use std::io::{self, Write};

use super::opcode as op;

const BATCH: usize = 1000;

/// Writes one pickle: one value.
#[derive(Debug)]
pub(in crate::snapshot) struct Writer<W> {
    output: W,
    texts: HashMap<String, u32>,
    remembered: u32,
}

/// The number under which the writer remembers a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::snapshot) struct Remembered(u32);

impl<W: Write> Writer<W> {
    /// Begins a pickle.
    ///
    /// # Errors
    /// What the output says.
    pub(in crate::snapshot) fn new(mut output: W) -> io::Result<Self> {
        output.write_all(&[op::PROTO, 4])?;
        Ok(Self { output, texts: HashMap::new(), remembered: 0 })
    }

    /// Ends the pickle, and gives the output back.
    ///
    /// # Errors
    /// What the output says.
    pub(in crate::snapshot) fn finish(mut self) -> io::Result<W> {
        self.output.write_all(&[op::STOP])?;
        Ok(self.output)
    }

    /// A whole number.
    ///
    /// # Errors
    /// What the output says.
    pub(in crate::snapshot) fn int(&mut self, value: i64) -> io::Result<()> {
        if let Ok(byte) = u8::try_from(value) {
            self.output.write_all(&[op::BININT1, byte])
        } else if let Ok(short) = u16::try_from(value) {
            self.output.write_all(&[op::BININT2])?;
            self.output.write_all(&short.to_le_bytes())
        } else if let Ok(int) = i32::try_from(value) {
            self.output.write_all(&[op::BININT])?;
            self.output.write_all(&int.to_le_bytes())
        } else {
            self.output.write_all(&[op::LONG1, 8])?;
            self.output.write_all(&value.to_le_bytes())
        }
    }

    /// A whole number that is not negative.
    ///
    /// # Errors
    /// What the output says.
    pub(in crate::snapshot) fn uint(&mut self, value: u64) -> io::Result<()> {
        if let Ok(value) = i64::try_from(value) {
            return self.int(value);
        }
        self.output.write_all(&[op::LONG1, 9])?;
        self.output.write_all(&value.to_le_bytes())?;
        self.output.write_all(&[0])
    }

    /// Any other number.
    ///
    /// # Errors
    /// What the output says.
    pub(in crate::snapshot) fn float(&mut self, value: f64) -> io::Result<()> {
        self.output.write_all(&[op::BINFLOAT])?;
        self.output.write_all(&value.to_be_bytes())
    }

    /// True or false.
    ///
    /// # Errors
    /// What the output says.
    pub(in crate::snapshot) fn bool(&mut self, value: bool) -> io::Result<()> {
        self.output.write_all(&[if value { op::NEWTRUE } else { op::NEWFALSE }])
    }

    /// Text, at most 2^32 bytes of it.
    ///
    /// # Errors
    /// What the output says.
    pub(in crate::snapshot) fn str(&mut self, text: &str) -> io::Result<()> {
        if let Some(&at) = self.texts.get(text) {
            return self.recall(Remembered(at));
        }
        if let Ok(length) = u8::try_from(text.len()) {
            self.output.write_all(&[op::SHORT_BINUNICODE, length])?;
        } else {
            let length = u32::try_from(text.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            self.output.write_all(&[op::BINUNICODE])?;
            self.output.write_all(&length.to_le_bytes())?;
        }
        self.output.write_all(text.as_bytes())?;
        let Remembered(at) = self.remember()?;
        self.texts.insert(text.to_owned(), at);
        Ok(())
    }

    /// Remembers the value just written.
    ///
    /// # Errors
    /// What the output says.
    pub(in crate::snapshot) fn remember(&mut self) -> io::Result<Remembered> {
        self.output.write_all(&[op::MEMOIZE])?;
        self.remembered += 1;
        Ok(Remembered(self.remembered - 1))
    }

    /// A value that was written before.
    ///
    /// # Errors
    /// What the output says.
    pub(in crate::snapshot) fn recall(&mut self, Remembered(at): Remembered) -> io::Result<()> {
        if let Ok(at) = u8::try_from(at) {
            self.output.write_all(&[op::BINGET, at])
        } else {
            self.output.write_all(&[op::LONG_BINGET])?;
            self.output.write_all(&at.to_le_bytes())
        }
    }

    /// A list of what `item` writes for each of `items`.
    ///
    /// # Errors
    /// What the output says.
    pub(in crate::snapshot) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.output.write_all(&[op::EMPTY_LIST])?;
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            self.output.write_all(&[op::MARK])?;
            for each in items.by_ref().take(BATCH) {
                item(self, each)?;
            }
            self.output.write_all(&[op::APPENDS])?;
        }
        Ok(())
    }

    /// A pair of whole numbers, as a tuple.
    ///
    /// # Errors
    /// What the output says.
    pub(in crate::snapshot) fn pair(&mut self, first: u64, second: u64) -> io::Result<()> {
        self.uint(first)?;
        self.uint(second)?;
        self.output.write_all(&[op::TUPLE2])
    }

    /// A dictionary of what `fill` writes, key and value in turn; fewer than 1000 entries.
    ///
    /// # Errors
    /// What the output says.
    pub(in crate::snapshot) fn dict(&mut self, fill: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.output.write_all(&[op::EMPTY_DICT, op::MARK])?;
        fill(self)?;
        self.output.write_all(&[op::SETITEMS])
    }
}
