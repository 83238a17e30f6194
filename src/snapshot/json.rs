//! The JSON form of a snapshot.

use std::fmt;
use std::io::Read;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::document::{Document, Value};
use super::pickle::ReadError;

/// Reads JSON. Nesting is limited to 128, as `serde_json` limits it.
///
/// # Errors
/// [`ReadError`] for what is not JSON.
pub(super) fn read(source: impl Read) -> Result<(Document, Value), ReadError> {
    let mut document = Document::default();
    let mut reader = serde_json::Deserializer::from_reader(std::io::BufReader::new(source));
    let value = Seed(&mut document).deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    value
        .map(|value| (document, value))
        .map_err(|error| ReadError { message: format!("no JSON snapshot: {error}"), help: None })
}

struct Seed<'a>(&'a mut Document);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::NONE)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(self.0.int(i128::from(value)))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(self.0.int(i128::from(value)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(self.0.float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.0.str(value).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(Seed(self.0))? {
            items.push(item);
        }
        Ok(self.0.list(&items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = access.next_key_seed(Seed(self.0))? {
            entries.push(key);
            entries.push(access.next_value_seed(Seed(self.0))?);
        }
        let dict = self.0.dict().map_err(A::Error::custom)?;
        self.0.set(dict, &entries).map_err(A::Error::custom)?;
        Ok(dict)
    }
}
