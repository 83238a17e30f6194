//! The schema of experiments agrees with what memlab reads, and the file in experiments/ with the schema.
#![expect(clippy::unwrap_used, reason = "a schema of another form fails the test")]

mod support;

use std::collections::BTreeSet;
use std::path::Path;

use memlab::protocol::{Axis, Definition};
use serde_json::Value;
use support::{Folder, data};

#[test]
fn the_file_beside_the_experiments_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/experiment.schema.json");
    let schema = Folder::new().memlab(&["schema"]).expect(0).stdout;
    if std::env::var_os("MEMLAB_BLESS").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap();
    assert!(there == schema, "{} is out of date: run the tests with MEMLAB_BLESS=1", path.display());
}

#[test]
fn what_memlab_reads_the_schema_accepts() {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    let mut paths: Vec<_> = std::fs::read_dir(experiments).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    assert!(paths.len() >= 6, "{paths:?}");
    paths.push(data("whole_language.toml"));
    let schema = memlab::experiment::schema();
    for path in paths {
        let problems = check(&schema, &json(&std::fs::read_to_string(&path).unwrap()), "");
        assert!(problems.is_empty(), "{}: {problems:?}", path.display());
    }
}

#[test]
fn what_memlab_refuses_for_its_form_the_schema_refuses() {
    let schema = memlab::experiment::schema();
    for name in [
        "key_unknown",
        "batch_of_zero",
        "boolean_as_text",
        "list_outside_sweep",
        "one_value_in_sweep",
        "axis_empty",
        "range_incomplete",
        "range_unknown_key",
        "exclude_without_reason",
        "preset_incomplete",
        "device_unknown",
        "slurm_setup_as_text",
        "hypothesis_unknown_indicator",
        "name_with_slash",
        "timeout_without_unit",
        "zip_without_groups",
    ] {
        let text = std::fs::read_to_string(data("bad").join(format!("{name}.toml"))).unwrap();
        assert!(!check(&schema, &json(&text), "").is_empty(), "{name}");
    }
}

/// Every name of a key in the schema.
fn keys(schema: &Value, names: &mut BTreeSet<String>) {
    let below = schema.as_object().into_iter().flatten().map(|(_, below)| below);
    for below in below.chain(schema.as_array().into_iter().flatten()) {
        keys(below, names);
    }
    names.extend(
        schema.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name.clone()),
    );
}

#[test]
fn the_readme_names_every_key_and_every_default() {
    let readme = include_str!("../README.md");
    let mut names = BTreeSet::new();
    keys(&memlab::experiment::schema(), &mut names);
    assert!(names.len() > 60, "{names:?}");
    let words: BTreeSet<&str> = readme.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let absent: Vec<&String> = names.iter().filter(|name| !words.contains(name.as_str())).collect();
    assert!(absent.is_empty(), "README.md does not name {absent:?}");
    for Definition { name, help, default, .. } in Axis::definitions() {
        let line = format!("| `{name}` | {} | {help} |\n", default.unwrap_or("required"));
        assert!(readme.contains(&line), "README.md lacks {line}");
    }
}

fn json(toml: &str) -> Value {
    fn convert(value: toml::Value) -> Value {
        match value {
            toml::Value::Datetime(day) => Value::String(day.to_string()),
            toml::Value::Table(table) => table.into_iter().map(|(key, value)| (key, convert(value))).collect(),
            toml::Value::Array(list) => list.into_iter().map(convert).collect(),
            toml::Value::String(text) => text.into(),
            toml::Value::Integer(number) => number.into(),
            toml::Value::Float(number) => number.into(),
            toml::Value::Boolean(on) => on.into(),
        }
    }
    convert(toml::Value::Table(toml.parse().unwrap()))
}

/// As much of draft 7 as the schema uses; what it does not know is a failure, so that nothing is passed over.
fn check(schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut refuse = |wrong: bool, why: &str| {
        if wrong {
            problems.push(format!("{at}: {why}"));
        }
    };
    let empty = serde_json::Map::new();
    let mut inside = Vec::new();
    for (key, rule) in schema.as_object().unwrap() {
        match key.as_str() {
            "$schema" | "title" | "description" | "examples" | "default" => {}
            "type" => {
                let is = |name: &Value| match name.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    "boolean" => value.is_boolean(),
                    "null" => value.is_null(),
                    other => panic!("type {other}"),
                };
                refuse(!rule.as_array().map_or_else(|| is(rule), |names| names.iter().any(is)), "type");
            }
            "enum" => refuse(!rule.as_array().unwrap().contains(value), "enum"),
            "minimum" => refuse(value.as_f64().is_some_and(|value| value < rule.as_f64().unwrap()), "minimum"),
            "maximum" => refuse(value.as_f64().is_some_and(|value| value > rule.as_f64().unwrap()), "maximum"),
            "minLength" => refuse(value.as_str() == Some(""), "minLength"),
            "minItems" => {
                refuse(value.as_array().is_some_and(|list| (list.len() as u64) < rule.as_u64().unwrap()), "minItems");
            }
            "maxItems" => {
                refuse(value.as_array().is_some_and(|list| list.len() as u64 > rule.as_u64().unwrap()), "maxItems");
            }
            "pattern" => refuse(!is_a_name(value.as_str().unwrap_or_default()), "pattern"),
            "required" => {
                let missing = |name: &&Value| value.get(name.as_str().unwrap()).is_none();
                refuse(value.is_object() && rule.as_array().unwrap().iter().any(|name| missing(&name)), "required");
            }
            "anyOf" => refuse(rule.as_array().unwrap().iter().all(|rule| !check(rule, value, at).is_empty()), "anyOf"),
            "items" => {
                let items = value.as_array().into_iter().flatten().enumerate();
                inside.extend(items.flat_map(|(index, item)| check(rule, item, &format!("{at}[{index}]"))));
            }
            "properties" | "additionalProperties" => {
                let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
                for (name, item) in value.as_object().into_iter().flatten() {
                    let at = format!("{at}.{name}");
                    match (properties.get(name), rule) {
                        (Some(rule), _) if key == "properties" => inside.extend(check(rule, item, &at)),
                        (None, Value::Bool(false)) => inside.push(format!("{at}: unknown")),
                        (None, rule) if key == "additionalProperties" => inside.extend(check(rule, item, &at)),
                        _ => {}
                    }
                }
            }
            other => panic!("the schema uses `{other}`, which this test does not know"),
        }
    }
    problems.extend(inside);
    problems
}

/// The one pattern that the schema has.
fn is_a_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    name.chars().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && name.chars().all(allowed)
        && name.len() <= 64
}

#[test]
fn the_verdict_documents_have_their_schema() {
    let folder = Folder::new();
    folder.write(
        "demo.toml",
        "name = \"demo\"\n[base]\ncase = \"alpha\"\n[sweep]\nbatch_size = [1, 2, 3]\n[baseline]\ntolerance = 0\n\
         [[hypothesis]]\nclaim = \"a\"\nindicator = \"maximum_peak_allocated_mib\"\nalong = \"batch_size\"\n\
         trend = \"linear\"\nknown_failure = { reason = \"none\" }\n\
         [[hypothesis]]\nclaim = \"b\"\noutcome = \"oom\"\n",
    );
    let schema = json_text(&folder.memlab(&["schema", "verdicts"]).expect(0).stdout);
    folder.with_worker(&["sweep", "demo.toml"]).expect(1);
    folder.with_worker(&["check", "--save-baseline", "demo.toml"]).expect(1);
    // A run that the baseline does not have, and one that fails.
    folder.write("demo.toml", &folder.read("demo.toml").replace("[1, 2, 3]", "[1, 2, 5]\nseed = [1234, 101]"));
    let done = folder.with_worker(&["check", "--format", "json", "demo.toml"]).expect(4);
    for text in [folder.read("runs/demo/verdicts.json"), done.stdout] {
        let document = json_text(&text);
        let problems = check(&schema, &document, "");
        assert!(problems.is_empty(), "{problems:?}");
        assert!(!document["experiments"][0]["baseline"]["changes"].as_array().unwrap().is_empty());
    }
}

fn json_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn completions_name_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let done = Folder::new().memlab(&["completions", shell]).expect(0);
        assert!(done.stdout.contains("compare") && done.stdout.contains("plan"), "{shell}");
    }
}
