//! The name of a run: readable, and ending in a hash of everything that decides what it measures.
//!
//! The hash covers resolved values, so neither the order of keys, nor how a value was written, nor where it
//! came from changes it. The readable part repeats whatever differs from the exercise's defaults, so that the 32 bits of the hash only
//! have to tell apart presets and device models of the same name.

use std::fmt::{self, Write};
use std::sync::Arc;

use super::{DeviceKind, DeviceModel, ModelConfig, RunSpec};
use crate::units;

/// FNV-1a, 64 bits: small, fixed for ever, and quick on texts as short as these.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn of(value: &impl serde::Serialize) -> u64 {
        let mut hash = Self::new();
        // Writing into a hash cannot fail, and the types of this module serialise: what is left out here would be left out always.
        let _ = serde_json::to_writer(&mut hash, value);
        hash.0
    }

    /// The 64 bits folded to 32, as the authors recommend.
    fn folded(&self) -> u32 {
        let [high, low] = [self.0 >> 32, self.0 & 0xffff_ffff].map(|half| u32::try_from(half).unwrap_or(0));
        high ^ low
    }

    /// With an end that no text contains, so that two texts cannot be taken for one.
    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
        self.bytes(&[0xff]);
    }

    fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    fn option(&mut self, number: Option<u64>) {
        self.bytes(&[u8::from(number.is_some())]);
        self.number(number.unwrap_or(0));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

impl std::io::Write for Fnv {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Names many runs: neighbours in a plan share their model and their device, whose hashes are kept from one to the next.
#[derive(Debug, Default)]
pub struct RunIds {
    model: Option<(ModelConfig, u64)>,
    device_model: Option<(Arc<DeviceModel>, u64)>,
}

impl RunIds {
    /// The run's id.
    pub fn id(&mut self, spec: &RunSpec) -> String {
        let mut id = String::with_capacity(64);
        // Writing to a String cannot fail.
        let _ = readable(&mut id, spec);
        let _ = write!(id, "-{:08x}", self.hash(spec));
        id
    }

    /// Everything that decides what a run measures: taking the spec apart makes sure that no field is forgotten.
    fn hash(&mut self, spec: &RunSpec) -> u32 {
        let RunSpec {
            case,
            preset,
            model,
            batch_size,
            steps,
            precision,
            seed,
            world_size,
            rank_zero_extra_samples,
            device,
            device_model,
            capacity,
            compute,
            backend,
            snapshot,
        } = spec;
        let mut hash = Fnv::new();
        hash.text(case.name());
        hash.text(preset);
        hash.number(self.model(model));
        for number in [*batch_size, *steps, *seed, *world_size, *rank_zero_extra_samples, u64::from(*compute)] {
            hash.number(number);
        }
        hash.text(precision.name());
        hash.text(device.name());
        hash.option(device_model.as_ref().map(|model| self.device_model(model)));
        hash.option(*capacity);
        hash.text(backend.map_or("", |backend| backend.name()));
        hash.option(snapshot.as_ref().map(|snapshot| snapshot.max_entries));
        hash.folded()
    }

    fn model(&mut self, model: &ModelConfig) -> u64 {
        match &self.model {
            Some((known, hash)) if known == model => *hash,
            _ => self.model.insert((model.clone(), Fnv::of(model))).1,
        }
    }

    fn device_model(&mut self, model: &Arc<DeviceModel>) -> u64 {
        match &self.device_model {
            Some((known, hash)) if Arc::ptr_eq(known, model) || known == model => *hash,
            _ => self.device_model.insert((Arc::clone(model), Fnv::of(model))).1,
        }
    }
}

impl RunSpec {
    /// The run's id, such as `alpha-small-b2-s6-fp32-1a2b3c4d`: a valid file name, equal for equal specs.
    pub fn run_id(&self) -> String {
        RunIds::default().id(self)
    }
}

/// The exercise's seed, which goes without saying.
const DEFAULT_SEED: u64 = 1234;

/// The five values that the exercise speaks of, then whatever is not the default.
fn readable(id: &mut String, spec: &RunSpec) -> fmt::Result {
    let RunSpec { case, preset, batch_size, steps, precision, .. } = spec;
    write!(id, "{case}-{}-b{batch_size}-s{steps}-{precision}", Name(preset))?;
    if spec.seed != DEFAULT_SEED {
        write!(id, "-seed{}", spec.seed)?;
    }
    if spec.world_size > 1 {
        write!(id, "-w{}", spec.world_size)?;
    }
    if spec.rank_zero_extra_samples > 0 {
        write!(id, "-x{}", spec.rank_zero_extra_samples)?;
    }
    if spec.device == DeviceKind::Cuda {
        id.push_str("-cuda");
    }
    if let Some(model) = spec.device_model.as_ref().filter(|model| model.name != "h200") {
        write!(id, "-{}", Name(&model.name))?;
    }
    if let Some(capacity) = spec.capacity {
        write!(id, "-{}", units::format_bytes(capacity).replace(' ', ""))?;
    }
    if !spec.compute {
        id.push_str("-alloc");
    }
    if let Some(backend) = spec.backend {
        write!(id, "-{backend}")?;
    }
    if spec.snapshot.is_some() {
        id.push_str("-snapshot");
    }
    Ok(())
}

/// A user's name as part of a file name: whatever could mean something to a file system or a shell becomes `_`.
struct Name<'a>(&'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().take(64).try_for_each(|c| {
            let safe = c.is_ascii_alphanumeric() || c == '_' || c == '-';
            f.write_char(if safe { c } else { '_' })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Axis, Case, Precision, SnapshotSpec, Value};

    fn spec() -> RunSpec {
        RunSpec {
            case: Case::Alpha,
            preset: "small".into(),
            model: ModelConfig {
                attention_heads: 6,
                classes: 16,
                feedforward_size: 1536,
                hidden_size: 384,
                layers: 4,
                sequence_length: 256,
                vocabulary_size: 4096,
            },
            batch_size: 2,
            steps: 6,
            precision: Precision::Fp32,
            seed: DEFAULT_SEED,
            world_size: 1,
            rank_zero_extra_samples: 0,
            device: DeviceKind::Cuda,
            device_model: None,
            capacity: None,
            compute: true,
            backend: None,
            snapshot: None,
        }
    }

    #[test]
    fn whatever_changes_a_run_changes_its_id() {
        let base = spec();
        let mut ids = std::collections::BTreeSet::from([base.run_id()]);
        let mut model = base.model.clone();
        model.layers = 5;
        let changed = [
            RunSpec { model, ..base.clone() },
            RunSpec { case: Case::Beta, ..base.clone() },
            RunSpec { preset: "s.mall".into(), ..base.clone() },
            RunSpec { preset: "s_mall".into(), ..base.clone() },
            RunSpec { seed: 0, ..base.clone() },
            RunSpec { compute: false, ..base.clone() },
            RunSpec { capacity: Some(1), ..base.clone() },
            RunSpec { capacity: Some(u64::MAX), ..base.clone() },
            RunSpec { snapshot: Some(SnapshotSpec { max_entries: 1 }), ..base.clone() },
            RunSpec { snapshot: Some(SnapshotSpec { max_entries: 2 }), ..base.clone() },
        ];
        for spec in changed {
            assert!(ids.insert(spec.run_id()), "{}", spec.run_id());
        }
    }

    #[test]
    fn the_seed_that_goes_without_saying_is_the_default() {
        assert_eq!(Axis::Seed.default_value(), Value::Whole(DEFAULT_SEED));
    }

    #[test]
    fn an_id_is_a_file_name_whatever_the_preset_is_called() {
        let id = RunSpec { preset: "../größer $(rm)\n".repeat(20).into(), ..spec() }.run_id();
        assert!(id.len() < 200 && id.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)), "{id}");
    }

    #[test]
    fn one_namer_names_as_another() {
        let (one, mut ids) = (spec(), RunIds::default());
        let other = RunSpec { model: ModelConfig { layers: 9, ..one.model.clone() }, ..one.clone() };
        for spec in [&one, &other, &one] {
            assert_eq!(ids.id(spec), spec.run_id());
        }
    }
}
