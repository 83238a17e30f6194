//! Reading experiments, as a library: what they say arrives, and what is wrong is shown.

use std::path::Path;

use memlab::experiment;
use memlab::plan::{Host, expand};
use memlab::protocol::DeviceKind;

const CPU: Host = Host { device: DeviceKind::Cpu, gpus: 0 };

#[test]
fn the_whole_language_is_read_and_planned() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/whole_language.toml");
    let experiment = experiment::read(&path).unwrap_or_else(|problems| panic!("{}", shown(&problems)));
    let plan = expand(&experiment, &CPU).unwrap_or_else(|problems| panic!("{}", shown(&problems)));
    let mut file = plan.file(&experiment, "2026-12-01T00:00:00Z", None);
    file.experiment = "whole_language.toml".into();
    insta::assert_json_snapshot!(file);
}

fn shown(problems: &[memlab::diag::Diagnostic]) -> String {
    problems.iter().map(memlab::render::diagnostic).collect()
}
