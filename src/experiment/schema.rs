//! The JSON schema of experiment files, for editors: made from the same table that reading follows.
//!
//! Draft 7 without references, which every TOML language server understands.

use serde_json::{Map, Value as Json, json};

use super::builtin;
use super::layout::{self, Axes, Field, Layout, Shape};
use crate::protocol::{Axis, Definition, Kind};

/// The whole schema.
pub fn schema() -> Json {
    let mut schema = table(&layout::EXPERIMENT);
    let keys = [
        ("$schema", json!("http://json-schema.org/draft-07/schema#")),
        ("title", json!("memlab experiment")),
        ("description", json!("A case, the axes to sweep, the order in which to perturb it, and what is expected.")),
    ];
    if let Json::Object(object) = &mut schema {
        object.extend(keys.map(|(key, value)| (key.to_owned(), value)));
    }
    schema
}

fn table(layout: &Layout) -> Json {
    let mut properties = Map::new();
    for field in layout.fields() {
        properties.insert(field.name.to_owned(), described(self::field(field), field.help));
    }
    for definition in Axis::definitions().iter().filter(|_| layout.axes != Axes::No) {
        properties.insert(definition.name.to_owned(), axis(definition, layout.axes));
    }
    let required: Vec<&str> = layout.fields().filter(|field| field.required).map(|field| field.name).collect();
    let mut object = json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

fn described(mut schema: Json, help: &str) -> Json {
    schema["description"] = json!(help);
    schema
}

fn axis(definition: &Definition, axes: Axes) -> Json {
    let one = value(definition.kind);
    let several = || {
        let list = json!({ "type": "array", "items": one, "minItems": 1 });
        match definition.kind {
            Kind::Whole { .. } | Kind::Bytes => json!({ "anyOf": [list, range(definition.kind)] }),
            _ => list,
        }
    };
    let mut schema = match axes {
        Axes::Many => several(),
        Axes::Either => json!({ "anyOf": [one, several()] }),
        Axes::One | Axes::No => one,
    };
    if let (Axes::One, Some(default)) = (axes, definition.default) {
        schema["default"] = match definition.kind.parse(default) {
            Ok(crate::protocol::Value::None) | Err(_) => json!(default),
            Ok(value) => json!(value),
        };
    }
    described(schema, definition.help)
}

fn range(kind: Kind) -> Json {
    let step = if kind == Kind::Bytes { value(kind) } else { value(Kind::Whole { min: 1, max: u64::MAX }) };
    let with = |name: &str, how: Json| {
        json!({
            "type": "object",
            "additionalProperties": false,
            "properties": { "from": value(kind), "to": value(kind), name: how },
            "required": ["from", "to", name],
        })
    };
    json!({ "anyOf": [with("factor", value(Kind::Whole { min: 2, max: u64::MAX })), with("step", step)] })
}

fn value(kind: Kind) -> Json {
    match kind {
        Kind::Choice(names) => json!({ "enum": names }),
        Kind::Preset => json!({ "type": "string", "examples": names(builtin::presets()) }),
        Kind::DeviceModel => json!({ "type": "string", "examples": names(builtin::device_models()) }),
        // What an editor reads is a TOML integer, which ends at 63 bits.
        Kind::Whole { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max.min(i64::MAX as u64) }),
        Kind::Bytes => json!({ "anyOf": [
            { "type": "string", "examples": ["80GiB", "512MiB", "none"] },
            { "type": "integer", "minimum": 1 },
        ] }),
        Kind::Switch => json!({ "type": "boolean" }),
    }
}

fn names<T>(known: std::collections::BTreeMap<std::sync::Arc<str>, T>) -> Vec<String> {
    known.into_keys().map(|name| name.to_string()).collect()
}

fn field(field: &Field) -> Json {
    match field.shape {
        Shape::Value(kind) => value(kind),
        Shape::Text => json!({ "type": "string", "minLength": 1 }),
        Shape::AnyText | Shape::Day => json!({ "type": "string" }),
        Shape::Name => json!({ "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$" }),
        Shape::Number => json!({ "type": "number" }),
        Shape::Duration => json!({ "type": "string", "examples": ["90s", "10m", "1h30m", "00:10:00", "1-02:00:00"] }),
        Shape::Tolerance => json!({ "anyOf": [
            { "type": "number", "minimum": 0 },
            { "type": "string", "examples": ["0.5%", "0.5 MiB", "0.5% or 0.5 MiB"] },
        ] }),
        Shape::Axis => json!({ "enum": axis_names() }),
        Shape::Pair => {
            json!({ "type": "array", "items": { "type": "integer", "minimum": 0 }, "minItems": 2, "maxItems": 2 })
        }
        Shape::Lines => json!({ "type": "array", "items": { "type": "string" } }),
        Shape::Texts => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        Shape::AxisGroups => {
            let group = json!({ "type": "array", "items": { "enum": axis_names() }, "minItems": 2 });
            json!({ "type": "array", "items": group })
        }
        Shape::Table(layout) => table(layout),
        Shape::Tables(layout) => json!({ "type": "array", "items": table(layout) }),
        Shape::Named(layout) => json!({ "type": "object", "additionalProperties": table(layout) }),
    }
}

fn axis_names() -> Vec<&'static str> {
    Axis::all().map(Axis::name).collect()
}
