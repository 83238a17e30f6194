//! JSON with a line for each item of the outermost lists, and nothing but content inside: a plan of many runs is half as large as
//! with indentation, and still has one line a run.

use std::io::{Result, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// A value as text, with a line break at its end.
///
/// # Errors
/// The value is none that JSON has.
pub(super) fn to_lines<T: Serialize>(value: &T) -> serde_json::Result<Vec<u8>> {
    let mut serializer = Serializer::with_formatter(Vec::new(), Lines { depth: 0 });
    value.serialize(&mut serializer)?;
    let mut bytes = serializer.into_inner();
    bytes.push(b'\n');
    Ok(bytes)
}

struct Lines {
    depth: usize,
}

impl Lines {
    /// The keys of the document, and the items of its lists.
    const DEEPEST: usize = 2;

    fn open<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> Result<()> {
        self.depth += 1;
        writer.write_all(bracket)
    }

    fn item<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        if self.depth <= Self::DEEPEST {
            writer.write_all(b"\n")?;
            (0..self.depth).try_for_each(|_| writer.write_all(b" "))?;
        }
        Ok(())
    }

    fn close<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> Result<()> {
        self.depth -= 1;
        writer.write_all(bracket)
    }
}

impl Formatter for Lines {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.open(writer, b"[")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        self.item(writer, first)
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.close(writer, b"]")
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.open(writer, b"{")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        self.item(writer, first)
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.close(writer, b"}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_of_a_list_has_one_line() {
        let value = serde_json::json!({ "name": "a", "none": [], "runs": [{ "x": [1, 2], "y": {} }, { "x": [] }] });
        let text = String::from_utf8(to_lines(&value).unwrap()).unwrap();
        let expected = "{\n \"name\":\"a\",\n \"none\":[],\n \"runs\":[\n  {\"x\":[1,2],\"y\":{}},\n  {\"x\":[]}]}\n";
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
