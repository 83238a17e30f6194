//! Presets and device models that need no TOML.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::protocol::{AttentionFamily, DeviceModel, ModelConfig};

/// Vocabulary of both built-in presets, and of a written one that says nothing else.
pub(super) const VOCABULARY: u64 = 4096;
/// Classes of both built-in presets, and of a written one that says nothing else.
pub(super) const CLASSES: u64 = 16;

/// The default device model; what a written one leaves out is taken from it.
pub(super) const DEFAULT_DEVICE: &str = "h200";

/// What a thread's first matrix product takes where the compute capability is 9.
const HOPPER_WORKSPACE: u64 = 32 << 20;
/// What it takes elsewhere: two buffers of 4 MiB and eight of 16 KiB.
const OTHER_WORKSPACE: u64 = (2 * 4096 + 8 * 16) << 10;

/// Device use beyond what the allocator reserves, on an H200 that nothing else used: the smallest difference of `device_used_mib` and
/// `reserved_mib` in the reference reports, 526.8125 MiB.
const H200_CONTEXT: u64 = 552_402_944;

/// The built-in presets.
pub fn presets() -> BTreeMap<Arc<str>, ModelConfig> {
    let preset = |layers, hidden_size, attention_heads, feedforward_size, sequence_length| ModelConfig {
        attention_heads,
        classes: CLASSES,
        feedforward_size,
        hidden_size,
        layers,
        sequence_length,
        vocabulary_size: VOCABULARY,
    };
    BTreeMap::from([
        (Arc::from("small"), preset(4, 384, 6, 1536, 256)),
        (Arc::from("medium"), preset(8, 512, 8, 2048, 512)),
    ])
}

/// A row of the table of built-in GPUs: name, the GPU's own name, memory, compute capability, multiprocessors.
type Row = (&'static str, &'static str, u64, [u32; 2], u64);

/// GPUs that nobody measured: from their data sheets.
const DATA_SHEETS: [Row; 5] = [
    ("h100-80", "NVIDIA H100 80GB HBM3", 80 << 30, [9, 0], 132),
    ("a100-40", "NVIDIA A100-SXM4-40GB", 40 << 30, [8, 0], 108),
    ("a100-80", "NVIDIA A100-SXM4-80GB", 80 << 30, [8, 0], 108),
    ("l40s", "NVIDIA L40S", 48 << 30, [8, 9], 142),
    ("rtx4090", "NVIDIA GeForce RTX 4090", 24 << 30, [8, 9], 128),
];

/// The built-in device models.
pub fn device_models() -> BTreeMap<Arc<str>, Arc<DeviceModel>> {
    let h200 = h200();
    let unlimited = DeviceModel {
        name: "none".to_owned(),
        gpu_name: "NVIDIA H200 without a memory limit".to_owned(),
        memory_bytes: None,
        ..h200.clone()
    };
    let unmeasured =
        DATA_SHEETS.into_iter().map(|(name, gpu_name, memory, compute_capability, multiprocessors)| DeviceModel {
            name: name.to_owned(),
            gpu_name: gpu_name.to_owned(),
            memory_bytes: Some(memory),
            multiprocessors,
            ..of_capability(compute_capability)
        });
    [h200, unlimited].into_iter().chain(unmeasured).map(|model| (model.name.as_str().into(), Arc::new(model))).collect()
}

/// Measured on one NVIDIA H200 with PyTorch 2.11.
pub(super) fn h200() -> DeviceModel {
    DeviceModel {
        name: DEFAULT_DEVICE.to_owned(),
        gpu_name: "NVIDIA H200".to_owned(),
        memory_bytes: Some(150_109_880_320),
        context_bytes: H200_CONTEXT,
        compute_capability: [9, 0],
        multiprocessors: 132,
        blas_workspace_bytes: HOPPER_WORKSPACE,
        bf16_attention: AttentionFamily::Cudnn,
        alloc_conf: String::new(),
        unmeasured: Vec::new(),
    }
}

/// What a compute capability implies, for a GPU that nobody measured; the rest is the H200's.
pub(super) fn of_capability(compute_capability: [u32; 2]) -> DeviceModel {
    let [major, minor] = compute_capability;
    let unmeasured = [
        "memory_bytes",
        "context_bytes",
        "compute_capability",
        "multiprocessors",
        "blas_workspace_bytes",
        "bf16_attention",
    ];
    DeviceModel {
        compute_capability,
        blas_workspace_bytes: if major == 9 { HOPPER_WORKSPACE } else { OTHER_WORKSPACE },
        bf16_attention: match (major, minor) {
            (9 | 10, 0) => AttentionFamily::Cudnn,
            (8.., _) => AttentionFamily::Flash,
            // Flash attention needs compute capability 8.
            _ => AttentionFamily::Efficient,
        },
        unmeasured: unmeasured.map(str::to_owned).to_vec(),
        ..h200()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_preset_has_the_parameters_of_the_exercise() {
        assert_eq!(presets()["small"].parameter_count(), 8_762_112);
    }

    #[test]
    fn only_what_was_measured_is_called_measured() {
        for (name, model) in device_models() {
            assert_eq!(model.unmeasured.is_empty(), matches!(name.as_ref(), "h200" | "none"), "{name}");
        }
    }
}
