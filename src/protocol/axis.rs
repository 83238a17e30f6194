//! Axes: the fields of a run that an experiment sets and varies.
//!
//! [`DEFINITIONS`] is the one table that the TOML keys, the options of `memlab run`, `--set`, the CSV columns, the schema and the
//! plan follow from. A new axis is a field of [`RunSpec`], a variant of [`Axis`] and a row here.

use std::fmt;
use std::sync::Arc;

use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Backend, Case, DeviceKind, Precision, RunSpec};
use crate::units;

/// One axis. The order is that of tables and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Axis {
    /// The exercise's case.
    Case,
    /// The model's dimensions, by name.
    Preset,
    /// Samples per device.
    BatchSize,
    /// Training steps.
    Steps,
    /// Arithmetic.
    Precision,
    /// Seed of the weights and the batch.
    Seed,
    /// Ranks.
    WorldSize,
    /// Samples that rank zero has beyond the others.
    RankZeroExtraSamples,
    /// What the run executes on.
    Device,
    /// The modelled GPU of a CPU run.
    DeviceModel,
    /// Bytes that the allocator may reserve.
    Capacity,
    /// Whether values are computed.
    Compute,
    /// Collective backend.
    Backend,
}

/// A value of an axis, in the form in which axes are compared, shown and stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// No value: no limit, not applicable.
    None,
    /// A whole number; bytes where the axis is a size.
    Whole(u64),
    /// True or false.
    Switch(bool),
    /// A name.
    Text(Arc<str>),
}

/// What the values of an axis look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One of a few names.
    Choice(&'static [&'static str]),
    /// The name of a preset, built in or from `[presets.NAME]`.
    Preset,
    /// The name of a device model, built in or from `[device_models.NAME]`.
    DeviceModel,
    /// A whole number within bounds, both included.
    Whole {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// A size in memory (`"80GiB"`), or `"none"`.
    Bytes,
    /// True or false.
    Switch,
}

/// Everything there is to know about an axis.
#[derive(Debug)]
pub struct Definition {
    /// Which.
    pub axis: Axis,
    /// The name in TOML, CSV, JSON and `--set`; with dashes, the option of `memlab run`.
    pub name: &'static str,
    /// One line for help, schema and documentation.
    pub help: &'static str,
    /// What its values look like.
    pub kind: Kind,
    /// The exercise's default as text; null for a value that has to be given.
    pub default: Option<&'static str>,
    /// Reads it from a run.
    pub of: fn(&RunSpec) -> Value,
}

/// Large enough for every real run, small enough that sums and products of a few stay far from overflow.
const MANY: u64 = 1_000_000;

/// What an experiment writes for a device: `auto` is resolved before planning, and is no value of a run.
const DEVICES: &[&str] = &["auto", DeviceKind::Cuda.name(), DeviceKind::Cpu.name()];
/// What an experiment writes for a backend.
const BACKENDS: &[&str] = &["auto", Backend::Gloo.name(), Backend::Nccl.name()];

/// The table of axes, in the order of [`Axis`].
static DEFINITIONS: [Definition; 13] = [
    Definition {
        axis: Axis::Case,
        name: "case",
        help: "anonymous case of the exercise",
        kind: Kind::Choice(Case::NAMES),
        default: None,
        of: |spec| Value::from(spec.case.name()),
    },
    Definition {
        axis: Axis::Preset,
        name: "preset",
        help: "dimensions of the model, by name",
        kind: Kind::Preset,
        default: Some("small"),
        of: |spec| Value::Text(Arc::clone(&spec.preset)),
    },
    Definition {
        axis: Axis::BatchSize,
        name: "batch_size",
        help: "samples per device and step",
        kind: Kind::Whole { min: 1, max: MANY },
        default: Some("2"),
        of: |spec| Value::Whole(spec.batch_size),
    },
    Definition {
        axis: Axis::Steps,
        name: "steps",
        help: "training steps",
        kind: Kind::Whole { min: 1, max: MANY },
        default: Some("6"),
        of: |spec| Value::Whole(spec.steps),
    },
    Definition {
        axis: Axis::Precision,
        name: "precision",
        help: "arithmetic of forward and backward; parameters are fp32",
        kind: Kind::Choice(Precision::NAMES),
        default: Some("fp32"),
        of: |spec| Value::from(spec.precision.name()),
    },
    Definition {
        axis: Axis::Seed,
        name: "seed",
        help: "seed of the weights; the batch uses seed + rank",
        kind: Kind::Whole { min: 0, max: 1_000_000_000_000_000_000 },
        default: Some("1234"),
        of: |spec| Value::Whole(spec.seed),
    },
    Definition {
        axis: Axis::WorldSize,
        name: "world_size",
        help: "ranks, one process each",
        kind: Kind::Whole { min: 1, max: 4096 },
        default: Some("1"),
        of: |spec| Value::Whole(spec.world_size),
    },
    Definition {
        axis: Axis::RankZeroExtraSamples,
        name: "rank_zero_extra_samples",
        help: "samples that rank zero has beyond batch_size",
        kind: Kind::Whole { min: 0, max: MANY },
        default: Some("0"),
        of: |spec| Value::Whole(spec.rank_zero_extra_samples),
    },
    Definition {
        axis: Axis::Device,
        name: "device",
        help: "what the run executes on; auto takes CUDA where it works",
        kind: Kind::Choice(DEVICES),
        default: Some("auto"),
        of: |spec| Value::from(spec.device.name()),
    },
    Definition {
        axis: Axis::DeviceModel,
        name: "device_model",
        help: "GPU whose memory a CPU run accounts for",
        kind: Kind::DeviceModel,
        default: Some("h200"),
        of: |spec| spec.device_model.as_ref().map_or(Value::None, |model| Value::from(model.name.as_str())),
    },
    Definition {
        axis: Axis::Capacity,
        name: "capacity",
        help: "memory that the allocator may reserve, such as 80GiB; none for all the device has",
        kind: Kind::Bytes,
        default: Some("none"),
        of: |spec| spec.capacity.map_or(Value::None, Value::Whole),
    },
    Definition {
        axis: Axis::Compute,
        name: "compute",
        help: "whether values are computed; false only allocates (CPU only)",
        kind: Kind::Switch,
        default: Some("true"),
        of: |spec| Value::Switch(spec.compute),
    },
    Definition {
        axis: Axis::Backend,
        name: "backend",
        help: "how ranks talk to each other; auto takes nccl where every rank has its own GPU",
        kind: Kind::Choice(BACKENDS),
        default: Some("auto"),
        of: |spec| spec.backend.map_or(Value::None, |backend| Value::from(backend.name())),
    },
];

impl Axis {
    /// How many axes there are.
    pub const COUNT: usize = DEFINITIONS.len();

    /// Every axis with its definition, in order.
    pub fn definitions() -> &'static [Definition; Self::COUNT] {
        &DEFINITIONS
    }

    /// Every axis, in order.
    pub fn all() -> impl Iterator<Item = Axis> {
        DEFINITIONS.iter().map(|definition| definition.axis)
    }

    /// Its row in the table.
    pub fn definition(self) -> &'static Definition {
        &DEFINITIONS[self as usize]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.definition().name
    }

    /// The axis of that name.
    pub fn named(name: &str) -> Option<Axis> {
        DEFINITIONS.iter().find(|definition| definition.name == name).map(|definition| definition.axis)
    }

    /// Its value in a run.
    pub fn of(self, spec: &RunSpec) -> Value {
        (self.definition().of)(spec)
    }

    /// The exercise's default, or no value where one has to be given.
    pub fn default_value(self) -> Value {
        let Definition { kind, default, .. } = self.definition();
        default.and_then(|text| kind.parse(text).ok()).unwrap_or(Value::None)
    }

    /// A value as a person reads it: sizes with their unit, no value as `none`.
    pub fn show(self, value: &Value) -> String {
        match value {
            Value::Whole(bytes) if self.definition().kind == Kind::Bytes => units::format_bytes(*bytes),
            value => value.to_string(),
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Axis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Axis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Axis::named(&name).ok_or_else(|| D::Error::custom(format_args!("unknown axis `{name}`")))
    }
}

impl Kind {
    /// Reads a value from the text of an option.
    ///
    /// # Errors
    /// What was expected, in words. Names of presets and device models are taken as they are: who knows them checks them.
    pub fn parse(self, text: &str) -> Result<Value, String> {
        match self {
            Kind::Choice(names) => names.iter().find(|name| **name == text).map(|name| Value::from(*name)),
            Kind::Preset | Kind::DeviceModel => (!text.is_empty()).then(|| Value::from(text)),
            Kind::Whole { min, max } => {
                text.parse().ok().filter(|number| (min..=max).contains(number)).map(Value::Whole)
            }
            Kind::Bytes if text == "none" => Some(Value::None),
            Kind::Bytes => units::parse_bytes(text).ok().filter(|bytes| *bytes > 0).map(Value::Whole),
            Kind::Switch => text.parse().ok().map(Value::Switch),
        }
        .ok_or_else(|| self.expected())
    }

    /// What a value looks like, in words.
    pub fn expected(self) -> String {
        match self {
            Kind::Choice(names) => match names {
                [] => "nothing".to_owned(),
                [only] => (*only).to_owned(),
                [first @ .., last] => format!("{} or {last}", first.join(", ")),
            },
            Kind::Preset => "the name of a preset".to_owned(),
            Kind::DeviceModel => "the name of a device model".to_owned(),
            Kind::Whole { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Bytes => "a size such as 512MiB or 80GiB, or none".to_owned(),
            Kind::Switch => "true or false".to_owned(),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.into())
    }
}

/// As in CSV cells and `--set`: sizes are bytes, no value is `none`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::None => f.pad("none"),
            Value::Whole(number) => number.fmt(f),
            Value::Switch(on) => on.fmt(f),
            Value::Text(text) => f.pad(text),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::None => serializer.serialize_unit(),
            Value::Whole(number) => serializer.serialize_u64(*number),
            Value::Switch(on) => serializer.serialize_bool(*on),
            Value::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyValue;
        impl Visitor<'_> for AnyValue {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the value of an axis: text, a whole number, true, false or null")
            }
            fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
                Ok(Value::Whole(number))
            }
            fn visit_bool<E>(self, on: bool) -> Result<Value, E> {
                Ok(Value::Switch(on))
            }
            fn visit_str<E>(self, text: &str) -> Result<Value, E> {
                Ok(Value::from(text))
            }
            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::None)
            }
        }
        deserializer.deserialize_any(AnyValue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (index, definition) in Axis::definitions().iter().enumerate() {
            assert_eq!(definition.axis as usize, index);
            assert_eq!(Axis::named(definition.name), Some(definition.axis));
        }
    }

    #[test]
    fn every_default_is_a_value() {
        for definition in Axis::definitions() {
            if let Some(text) = definition.default {
                definition.kind.parse(text).unwrap();
            }
        }
    }

    #[test]
    fn values_survive_json() {
        for value in [Value::None, Value::Whole(7), Value::Switch(true), Value::from("alpha")] {
            let text = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        }
    }
}
