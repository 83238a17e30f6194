//! The name of a run: readable, and ending in a hash of everything that decides what it measures.
//!
//! The hash covers resolved values in the axes' own order, so neither the order of keys, nor how a value was written, nor where it
//! came from changes it. The readable part repeats whatever differs from the exercise's defaults, so that the 32 bits of the hash only
//! have to tell apart presets and device models of the same name.

use std::fmt::{self, Write};
use std::sync::Arc;

use super::{Axis, DeviceKind, DeviceModel, ModelConfig, RunSpec, Value};
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

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

impl Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
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

    fn hash(&mut self, spec: &RunSpec) -> u32 {
        let mut hash = Fnv::new();
        for definition in Axis::definitions() {
            let _ = write!(hash, "{}={};", definition.name, (definition.of)(spec));
        }
        let _ = write!(hash, "model={:x};", self.model(&spec.model));
        if let Some(device_model) = &spec.device_model {
            let _ = write!(hash, "device_model={:x};", self.device_model(device_model));
        }
        if let Some(snapshot) = &spec.snapshot {
            let _ = write!(hash, "snapshot={};", snapshot.max_entries);
        }
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

/// The five values that the exercise speaks of, then whatever is not the default.
fn readable(id: &mut String, spec: &RunSpec) -> fmt::Result {
    let RunSpec { case, preset, batch_size, steps, precision, .. } = spec;
    write!(id, "{case}-{}-b{batch_size}-s{steps}-{precision}", Name(preset))?;
    let is_default = |axis: Axis, value: u64| axis.default_value() == Value::Whole(value);
    if !is_default(Axis::Seed, spec.seed) {
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
