//! From the values of all axes to a run: names become what they stand for, `auto` what the machine offers.

use std::sync::Arc;

use super::Host;
use crate::experiment::Experiment;
use crate::protocol::{Axis, Backend, DeviceKind, RunSpec, Value};
use crate::units::{MIB, format_bytes};

/// The value of every axis, in the axes' order.
pub(super) type Values = [Value; Axis::COUNT];

/// The allocator asks the device for no less; with less, not even the first tensor would fit.
const SMALLEST_SEGMENT: u64 = 2 * MIB;

/// Values that cannot go together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Conflict {
    /// Which axes, the one to change first.
    pub(super) axes: Vec<Axis>,
    /// What is wrong.
    pub(super) message: String,
    /// The remedy.
    pub(super) help: String,
}

/// What `device = "auto"` is for a run. Allocating without computing is something that only a modelled GPU does.
pub(super) fn settle_device(values: &mut Values, host: &Host) {
    let device = &mut values[Axis::Device as usize];
    if matches!(device, Value::Text(text) if text.as_ref() == "auto") {
        let computes = values[Axis::Compute as usize] != Value::Switch(false);
        let kind = if computes { host.device } else { DeviceKind::Cpu };
        values[Axis::Device as usize] = Value::from(kind.name());
    }
}

/// The run, once its device is settled.
pub(super) fn resolve(values: &Values, experiment: &Experiment, host: &Host) -> Result<RunSpec, Conflict> {
    let text = |axis: Axis| match &values[axis as usize] {
        Value::Text(text) => text.as_ref(),
        _ => "",
    };
    let whole = |axis: Axis| match values[axis as usize] {
        Value::Whole(number) => number,
        _ => 0,
    };
    let unknown = |axis: Axis| Conflict {
        axes: vec![axis],
        message: format!("`{axis}` = {} is no value", values[axis as usize]),
        help: format!("give {}", axis.definition().kind.expected()),
    };
    let name = |axis: Axis| match &values[axis as usize] {
        Value::Text(text) => Ok(text),
        _ => Err(unknown(axis)),
    };

    let device: DeviceKind = text(Axis::Device).parse().map_err(|()| unknown(Axis::Device))?;
    let compute = values[Axis::Compute as usize] != Value::Switch(false);
    let capacity = match values[Axis::Capacity as usize] {
        Value::Whole(bytes) => Some(bytes),
        _ => None,
    };
    let preset = name(Axis::Preset)?;
    let model = experiment.presets.get(preset).ok_or_else(|| unknown(Axis::Preset))?;
    let device_model = match device {
        DeviceKind::Cuda => None,
        DeviceKind::Cpu => {
            let name = name(Axis::DeviceModel)?;
            Some(Arc::clone(experiment.device_models.get(name).ok_or_else(|| unknown(Axis::DeviceModel))?))
        }
    };
    if device == DeviceKind::Cuda && !compute {
        return Err(Conflict {
            axes: vec![Axis::Compute, Axis::Device],
            message: "a CUDA run cannot leave the computation out".to_owned(),
            help: "take compute = false out, or run it with device = \"cpu\"".to_owned(),
        });
    }
    let memory = device_model.as_ref().and_then(|model| model.memory_bytes.map(|bytes| (bytes, &model.name)));
    if let (Some(capacity), Some((memory, model))) = (capacity, memory)
        && capacity > memory
    {
        return Err(Conflict {
            axes: vec![Axis::Capacity, Axis::DeviceModel],
            message: format!("capacity = {} is more than the device model `{model}` has", format_bytes(capacity)),
            help: format!(
                "give at most the {memory} bytes ({:.2} GiB) that it has",
                memory as f64 / f64::from(1 << 30)
            ),
        });
    }
    if let Some(capacity) = capacity.filter(|capacity| *capacity < SMALLEST_SEGMENT) {
        return Err(Conflict {
            axes: vec![Axis::Capacity],
            message: format!(
                "capacity = {} is less than the allocator takes at a time, {}",
                format_bytes(capacity),
                format_bytes(SMALLEST_SEGMENT)
            ),
            help: format!("a number without a unit is in bytes: write capacity = \"{capacity}GiB\", if that is meant"),
        });
    }
    let world_size = whole(Axis::WorldSize);
    let backend = if world_size == 1 { None } else { Some(backend(text(Axis::Backend), device, world_size, host)?) };
    Ok(RunSpec {
        case: text(Axis::Case).parse().map_err(|()| unknown(Axis::Case))?,
        preset: Arc::clone(preset),
        model: model.clone(),
        batch_size: whole(Axis::BatchSize),
        steps: whole(Axis::Steps),
        precision: text(Axis::Precision).parse().map_err(|()| unknown(Axis::Precision))?,
        seed: whole(Axis::Seed),
        world_size,
        rank_zero_extra_samples: whole(Axis::RankZeroExtraSamples),
        device,
        device_model,
        capacity,
        compute,
        backend,
        snapshot: experiment.snapshot.clone(),
    })
}

fn backend(text: &str, device: DeviceKind, world_size: u64, host: &Host) -> Result<Backend, Conflict> {
    match (text.parse::<Backend>(), device) {
        (Ok(Backend::Nccl), DeviceKind::Cpu) => Err(Conflict {
            axes: vec![Axis::Backend, Axis::Device],
            message: "nccl connects GPUs, and this run is on the CPU".to_owned(),
            help: "use backend = \"gloo\", or leave it out".to_owned(),
        }),
        (Ok(backend), _) => Ok(backend),
        (Err(()), DeviceKind::Cuda) if host.gpus >= world_size => Ok(Backend::Nccl),
        (Err(()), _) => Ok(Backend::Gloo),
    }
}
