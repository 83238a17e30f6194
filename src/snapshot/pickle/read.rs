//! The reader: protocols 2 to 5, plain data only.
//!
//! A pickle is a program for a stack machine. This one knows the instructions that build plain data and refuses the
//! others by name and offset, so nothing in a file can run. It keeps its own stack, so no nesting can overflow the
//! process's; it takes memory only for bytes that it has read, so no length in a damaged file can ask for more.

use std::io::{self, Read};

use super::opcode;
use crate::snapshot::document::{Document, TooLarge, Value};

/// How much a reader accepts.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the file.
    pub bytes: u64,
    /// Collections that are open at the same time.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 4 << 30, depth: 1000 }
    }
}

/// Why a file was not read, and where.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ReadError {
    /// What is wrong and where, a fragment.
    pub message: String,
    /// The remedy, where there is one to name.
    pub help: Option<&'static str>,
}

/// Reads a pickle; returns the data and the protocol.
///
/// # Errors
/// [`ReadError`] for anything but plain data, for damage, and beyond the limits.
pub(in crate::snapshot) fn read(source: impl Read, limits: Limits) -> Result<(Document, Value, u8), ReadError> {
    let mut machine = Machine {
        input: Input { source, buffer: vec![0; 1 << 18].into(), start: 0, end: 0, consumed: 0, limit: limits.bytes },
        limits,
        document: Document::default(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        protocol: 0,
        opcode: 0,
        at: 0,
        scratch: Vec::new(),
    };
    match machine.run() {
        Ok(value) => Ok((machine.document, value, machine.protocol)),
        Err(fault) => Err(machine.explain(fault)),
    }
}

/// What went wrong, before it is put into words.
enum Fault {
    Io(io::Error),
    Ended,
    Code,
    Unknown,
    Unsupported,
    Empty,
    Kind(&'static str),
    Memo,
    Number,
    Utf8,
    Protocol(u8),
    Deep,
    Long,
    TooLarge(TooLarge),
}

impl From<TooLarge> for Fault {
    fn from(what: TooLarge) -> Self {
        Fault::TooLarge(what)
    }
}

/// The file, through one buffer.
struct Input<R> {
    source: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes of the file before the buffer.
    consumed: u64,
    limit: u64,
}

impl<R: Read> Input<R> {
    fn offset(&self) -> u64 {
        self.consumed + self.start as u64
    }

    #[cold]
    fn refill(&mut self) -> Result<(), Fault> {
        self.consumed += self.end as u64;
        (self.start, self.end) = (0, 0);
        if self.consumed >= self.limit {
            return Err(Fault::Long);
        }
        loop {
            match self.source.read(&mut self.buffer) {
                Ok(0) => return Err(Fault::Ended),
                Ok(count) => {
                    self.end = count;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::Io(error)),
            }
        }
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Fault> {
        if self.start == self.end {
            self.refill()?;
        }
        let byte = self.buffer[self.start];
        self.start += 1;
        Ok(byte)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        if let Some(bytes) = self.buffer[self.start..self.end].first_chunk::<N>() {
            self.start += N;
            return Ok(*bytes);
        }
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = self.byte()?;
        }
        Ok(bytes)
    }

    /// The next `count` bytes, in `scratch`.
    fn take(&mut self, mut count: u64, scratch: &mut Vec<u8>) -> Result<(), Fault> {
        scratch.clear();
        while count > 0 {
            if self.start == self.end {
                self.refill()?;
            }
            let here = usize::try_from(count).unwrap_or(usize::MAX).min(self.end - self.start);
            scratch.extend_from_slice(&self.buffer[self.start..self.start + here]);
            self.start += here;
            count -= here as u64;
        }
        Ok(())
    }

    /// The rest of a line, in `scratch`.
    fn line(&mut self, scratch: &mut Vec<u8>) -> Result<(), Fault> {
        scratch.clear();
        loop {
            match self.byte()? {
                b'\n' => return Ok(()),
                byte => scratch.push(byte),
            }
        }
    }
}

struct Machine<R> {
    input: Input<R>,
    limits: Limits,
    document: Document,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: Vec<Value>,
    protocol: u8,
    /// The instruction under way, and where it is.
    opcode: u8,
    at: u64,
    scratch: Vec<u8>,
}

impl<R: Read> Machine<R> {
    fn run(&mut self) -> Result<Value, Fault> {
        use opcode as op;
        loop {
            self.at = self.input.offset();
            self.opcode = self.input.byte()?;
            if self.at == 0 && self.opcode != op::PROTO {
                return Err(Fault::Unknown);
            }
            match self.opcode {
                op::STOP => return self.pop(),
                op::PROTO => {
                    self.protocol = self.input.byte()?;
                    if !(2..=5).contains(&self.protocol) {
                        return Err(Fault::Protocol(self.protocol));
                    }
                }
                op::FRAME => {
                    self.input.array::<8>()?;
                }
                op::MARK => {
                    if self.marks.len() >= self.limits.depth {
                        return Err(Fault::Deep);
                    }
                    self.marks.push(self.stack.len());
                }
                op::POP => {
                    if self.marks.last() == Some(&self.stack.len()) {
                        self.marks.pop();
                    } else {
                        self.pop()?;
                    }
                }
                op::POP_MARK => {
                    let mark = self.mark()?;
                    self.stack.truncate(mark);
                }
                op::DUP => {
                    let top = self.top()?;
                    self.stack.push(top);
                }
                op::NONE => self.stack.push(Value::NONE),
                op::NEWTRUE => self.stack.push(Value::bool(true)),
                op::NEWFALSE => self.stack.push(Value::bool(false)),
                op::BININT => {
                    let number = i32::from_le_bytes(self.input.array()?);
                    self.push_int(i128::from(number));
                }
                op::BININT1 => {
                    let number = self.input.byte()?;
                    self.push_int(i128::from(number));
                }
                op::BININT2 => {
                    let number = u16::from_le_bytes(self.input.array()?);
                    self.push_int(i128::from(number));
                }
                op::LONG1 => {
                    let length = self.input.byte()?;
                    self.push_long(u32::from(length))?;
                }
                op::LONG4 => {
                    let length = u32::from_le_bytes(self.input.array()?);
                    self.push_long(length)?;
                }
                op::BINFLOAT => {
                    let number = f64::from_be_bytes(self.input.array()?);
                    let value = self.document.float(number);
                    self.stack.push(value);
                }
                op::INT | op::LONG | op::FLOAT => self.push_number_line()?,
                op::SHORT_BINUNICODE | op::SHORT_BINSTRING | op::SHORT_BINBYTES => {
                    let length = self.input.byte()?;
                    self.push_text(u64::from(length))?;
                }
                op::BINUNICODE | op::BINSTRING | op::BINBYTES => {
                    let length = u32::from_le_bytes(self.input.array()?);
                    self.push_text(u64::from(length))?;
                }
                op::BINUNICODE8 | op::BINBYTES8 | op::BYTEARRAY8 => {
                    let length = u64::from_le_bytes(self.input.array()?);
                    self.push_text(length)?;
                }
                op::EMPTY_LIST | op::EMPTY_TUPLE => {
                    let list = self.document.list(&[]);
                    self.stack.push(list);
                }
                op::EMPTY_DICT => {
                    let dict = self.document.dict()?;
                    self.stack.push(dict);
                }
                op::LIST | op::TUPLE => {
                    let mark = self.mark()?;
                    self.collect(mark);
                }
                op::TUPLE1 | op::TUPLE2 | op::TUPLE3 => {
                    let count = usize::from(self.opcode - op::TUPLE1) + 1;
                    let mark = self.below(count)?;
                    self.collect(mark);
                }
                op::APPEND => {
                    let mark = self.below(1)?;
                    self.append(mark)?;
                }
                op::APPENDS => {
                    let mark = self.mark()?;
                    self.append(mark)?;
                }
                op::DICT => {
                    let mark = self.mark()?;
                    let dict = self.document.dict()?;
                    self.stack.insert(mark, dict);
                    self.set(mark + 1)?;
                }
                op::SETITEM => {
                    let mark = self.below(2)?;
                    self.set(mark)?;
                }
                op::SETITEMS => {
                    let mark = self.mark()?;
                    self.set(mark)?;
                }
                op::MEMOIZE => {
                    let top = self.top()?;
                    self.memo.push(top);
                }
                op::BINPUT => {
                    let at = self.input.byte()?;
                    self.put(u32::from(at))?;
                }
                op::LONG_BINPUT => {
                    let at = u32::from_le_bytes(self.input.array()?);
                    self.put(at)?;
                }
                op::PUT => {
                    let at = self.index_line()?;
                    self.put(at)?;
                }
                op::BINGET => {
                    let at = self.input.byte()?;
                    self.get(u32::from(at))?;
                }
                op::LONG_BINGET => {
                    let at = u32::from_le_bytes(self.input.array()?);
                    self.get(at)?;
                }
                op::GET => {
                    let at = self.index_line()?;
                    self.get(at)?;
                }
                other if op::executes(other) => return Err(Fault::Code),
                other if op::name(other).is_some() => return Err(Fault::Unsupported),
                _ => return Err(Fault::Unknown),
            }
        }
    }

    #[inline]
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Value, Fault> {
        if self.stack.len() <= self.floor() {
            return Err(Fault::Empty);
        }
        self.stack.pop().ok_or(Fault::Empty)
    }

    #[inline]
    fn top(&self) -> Result<Value, Fault> {
        if self.stack.len() <= self.floor() {
            return Err(Fault::Empty);
        }
        self.stack.last().copied().ok_or(Fault::Empty)
    }

    /// Where the topmost mark was set; the mark is gone.
    #[inline]
    fn mark(&mut self) -> Result<usize, Fault> {
        self.marks.pop().ok_or(Fault::Empty)
    }

    /// Where the topmost `count` values begin.
    #[inline]
    fn below(&self, count: usize) -> Result<usize, Fault> {
        self.stack.len().checked_sub(count).filter(|at| *at >= self.floor()).ok_or(Fault::Empty)
    }

    fn push_int(&mut self, number: i128) {
        let value = self.document.int(number);
        self.stack.push(value);
    }

    fn push_long(&mut self, length: u32) -> Result<(), Fault> {
        if length > 16 {
            return Err(Fault::Number);
        }
        let mut bytes = [0_u8; 16];
        let length = length as usize;
        for byte in &mut bytes[..length] {
            *byte = self.input.byte()?;
        }
        if length > 0 && bytes[length - 1] >= 0x80 {
            bytes[length..].fill(0xff);
        }
        self.push_int(i128::from_le_bytes(bytes));
        Ok(())
    }

    fn push_number_line(&mut self) -> Result<(), Fault> {
        self.input.line(&mut self.scratch)?;
        let text = std::str::from_utf8(&self.scratch).map_err(|_| Fault::Utf8)?;
        let value = match (self.opcode, text) {
            (opcode::INT, "00") => Value::bool(false),
            (opcode::INT, "01") => Value::bool(true),
            (opcode::FLOAT, _) => self.document.float(text.parse().map_err(|_| Fault::Number)?),
            _ => self.document.int(text.trim_end_matches('L').parse().map_err(|_| Fault::Number)?),
        };
        self.stack.push(value);
        Ok(())
    }

    #[inline]
    fn push_text(&mut self, length: u64) -> Result<(), Fault> {
        self.input.take(length, &mut self.scratch)?;
        let text = std::str::from_utf8(&self.scratch).map_err(|_| Fault::Utf8)?;
        let value = self.document.str(text)?;
        self.stack.push(value);
        Ok(())
    }

    /// Makes a list of what lies above `mark`.
    fn collect(&mut self, mark: usize) {
        let list = self.document.list(&self.stack[mark..]);
        self.stack.truncate(mark);
        self.stack.push(list);
    }

    /// Adds what lies above `mark` to the list below it.
    fn append(&mut self, mark: usize) -> Result<(), Fault> {
        let at = mark.checked_sub(1).filter(|at| *at >= self.floor()).ok_or(Fault::Empty)?;
        if !self.document.extend(self.stack[at], &self.stack[mark..]) {
            return Err(Fault::Kind("a list"));
        }
        self.stack.truncate(mark);
        Ok(())
    }

    /// Sets what lies above `mark` in the dictionary below it.
    fn set(&mut self, mark: usize) -> Result<(), Fault> {
        let at = mark.checked_sub(1).filter(|at| *at >= self.floor()).ok_or(Fault::Empty)?;
        if !(self.stack.len() - mark).is_multiple_of(2) {
            return Err(Fault::Kind("a value for every key"));
        }
        if !self.document.set(self.stack[at], &self.stack[mark..])? {
            return Err(Fault::Kind("a dictionary"));
        }
        self.stack.truncate(mark);
        Ok(())
    }

    /// Keeps the topmost value. Writers count upwards: a number far beyond the last one is damage.
    fn put(&mut self, at: u32) -> Result<(), Fault> {
        let top = self.top()?;
        let at = at as usize;
        if at > self.memo.len() + 1024 {
            return Err(Fault::Memo);
        }
        if at >= self.memo.len() {
            self.memo.resize(at + 1, Value::NONE);
        }
        self.memo[at] = top;
        Ok(())
    }

    #[inline]
    fn get(&mut self, at: u32) -> Result<(), Fault> {
        let value = *self.memo.get(at as usize).ok_or(Fault::Memo)?;
        self.stack.push(value);
        Ok(())
    }

    fn index_line(&mut self) -> Result<u32, Fault> {
        self.input.line(&mut self.scratch)?;
        std::str::from_utf8(&self.scratch).ok().and_then(|text| text.parse().ok()).ok_or(Fault::Number)
    }

    fn explain(&self, fault: Fault) -> ReadError {
        let name = opcode::name(self.opcode).unwrap_or("?");
        let mut help = None;
        let mut offset = self.at;
        let message = match fault {
            Fault::Io(error) => error.to_string(),
            Fault::Ended => {
                offset = self.input.offset();
                help = Some("copy it again, or dump it again: the process may have been killed while it wrote");
                "the file ends in the middle".to_owned()
            }
            Fault::Code => {
                help = Some("a snapshot is plain data; memlab executes nothing that a file says");
                format!("opcode {name} would name or call code")
            }
            Fault::Unsupported => {
                help = Some("a snapshot holds no such thing: is it another file?");
                format!("opcode {name} is not plain data of a snapshot")
            }
            Fault::Unknown => {
                help = Some("is it a memory snapshot?");
                match self.at {
                    0 => format!("byte {:#04x} begins neither a pickle nor JSON", self.opcode),
                    _ => format!("no pickle: byte {:#04x} is no opcode", self.opcode),
                }
            }
            Fault::Empty => format!("opcode {name} finds nothing on the stack"),
            Fault::Kind(expected) => format!("opcode {name} needs {expected}"),
            Fault::Memo => format!("opcode {name} with a memo number that was not set"),
            Fault::Number => format!("opcode {name} with a number that is none, or wider than 128 bits"),
            Fault::Utf8 => format!("opcode {name} with a text that is not UTF-8"),
            Fault::Protocol(protocol) => {
                help = Some("dump it with protocol 4, the default of Python 3.8 to 3.13");
                format!("pickle protocol {protocol}, which is not one of 2 to 5,")
            }
            Fault::Deep => format!("more than {} open collections", self.limits.depth),
            Fault::Long => format!("more than {} bytes", self.limits.bytes),
            Fault::TooLarge(what) => {
                help = Some("a snapshot holds no such thing: is it another file?");
                what.to_string()
            }
        };
        ReadError { message: format!("{message} at offset {offset}"), help }
    }
}
