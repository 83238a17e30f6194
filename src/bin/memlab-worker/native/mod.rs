//! The worker's C++ part, as safe functions.

#![expect(unsafe_code, reason = "calls into C++; each function hands over valid tensors and lengths")]

use std::ffi::{CStr, c_char, c_void};

use memlab::protocol::{AttentionFamily, DeviceModel};
use tch::Tensor;
use torch_sys::C_tensor;

use crate::stop::Stop;

pub(crate) mod foreach;
pub(crate) mod ranks;

/// Where a run's tensors live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Device {
    /// The first visible GPU.
    Cuda = 0,
    /// The modelled GPU.
    Modelled = 1,
}

type Status = i32;
type Out = *mut *mut C_tensor;
type TensorPointer = *const C_tensor;

/// `MemlabGpu` of shim.h.
#[repr(C)]
struct GpuDescription {
    blas_workspace_bytes: i64,
    multiprocessors: i64,
    max_threads_per_multiprocessor: i64,
    cudnn_head_size_limit: i64,
    bf16_attention: i32,
    compute: i32,
}

/// `MemlabCudaDevice` of shim.h.
#[repr(C)]
struct CudaDevice {
    name: [c_char; 256],
    memory_bytes: u64,
    compute_capability: [i32; 2],
    multiprocessors: i32,
    driver_version: i32,
}

/// The CUDA allocator's counters, in bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CudaCounters {
    /// Live tensor memory.
    pub(crate) allocated: u64,
    /// Held by the allocator.
    pub(crate) reserved: u64,
    /// Largest live memory since the last reset.
    pub(crate) peak_allocated: u64,
    /// Free memory of the device.
    pub(crate) device_free: u64,
    /// All memory of the device.
    pub(crate) device_total: u64,
    /// Refusals so far.
    pub(crate) out_of_memory_events: i64,
}

// SAFETY: the declarations are those of shim.h.
unsafe extern "C" {
    fn memlab_last_error() -> *const c_char;
    fn memlab_cuda_open(capacity: u64, own: i32) -> Status;
    fn memlab_cuda_out_of_memory_events() -> i64;
    fn memlab_cuda_runtime_version() -> i32;
    fn memlab_libtorch_abi_version() -> u64;
    fn memlab_libtorch_path() -> *const c_char;
    fn memlab_scalar(tensor: TensorPointer, value: *mut f64) -> Status;
    fn memlab_modelled_open(description: *const GpuDescription) -> Status;
    fn memlab_cuda_device_count(count: *mut i32) -> Status;
    fn memlab_cuda_device(index: i32, device: *mut CudaDevice) -> Status;
    fn memlab_cuda_counters(counters: *mut CudaCounters) -> Status;
    fn memlab_cuda_reset_peak() -> Status;
    fn memlab_cuda_record(max_entries: u64) -> Status;
    fn memlab_cuda_snapshot(write: extern "C" fn(*mut c_void, *const c_char, usize), context: *mut c_void) -> Status;
    fn memlab_to_device(tensor: TensorPointer, device: i32, result: Out) -> Status;
    fn memlab_cuda_seed(seed: u64) -> Status;
    fn memlab_cuda_randint(high: i64, sizes: *const i64, dimensions: usize, result: Out) -> Status;
    fn memlab_backward(loss: TensorPointer, keep_graph: i32) -> Status;
    fn memlab_gradient(tensor: TensorPointer, result: Out) -> Status;
    fn memlab_clear_gradient(tensor: TensorPointer) -> Status;
    fn memlab_attention(query: TensorPointer, key: TensorPointer, value: TensorPointer, result: Out) -> Status;
    fn memlab_autocast_enter(device: i32) -> Status;
    fn memlab_autocast_exit(device: i32) -> Status;
}

/// Turns a status into a result with the C++ side's message.
fn check(status: Status) -> Result<(), Stop> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: the C++ side keeps the message of this thread's last failure as a terminated string.
    let message = unsafe { CStr::from_ptr(memlab_last_error()) }.to_string_lossy().into_owned();
    Err(Stop::from_libtorch(&message))
}

/// Calls a function that gives a tensor; null is none.
fn tensor_from(call: impl FnOnce(Out) -> Status) -> Result<Option<Tensor>, Stop> {
    let mut result = std::ptr::null_mut();
    check(call(&raw mut result))?;
    // SAFETY: the C++ side gives a tensor that it does not keep.
    Ok((!result.is_null()).then(|| unsafe { Tensor::from_ptr(result) }))
}

fn tensor(call: impl FnOnce(Out) -> Status) -> Result<Tensor, Stop> {
    tensor_from(call)?.ok_or_else(|| Stop::Error("libtorch gave no tensor".to_owned()))
}

/// Opens the CUDA libraries, and lets the allocator reserve at most `capacity` bytes. Of several visible GPUs, `own` says which
/// is the only one for this process. Must be the process's first act that involves libtorch.
///
/// # Errors
/// Libraries that are not there, or no usable GPU.
pub(crate) fn open_cuda(capacity: Option<u64>, own: Option<u64>) -> Result<(), Stop> {
    let own = own.map_or(-1, |index| i32::try_from(index).unwrap_or(i32::MAX));
    // SAFETY: no pointers.
    check(unsafe { memlab_cuda_open(capacity.unwrap_or(0), own) })
}

/// Refusals that the CUDA allocator counted; 0 where CUDA is not open.
pub(crate) fn cuda_out_of_memory_events() -> i64 {
    // SAFETY: no arguments.
    unsafe { memlab_cuda_out_of_memory_events() }
}

/// The CUDA version of the libraries (`13.0`), once they are open.
pub(crate) fn cuda_version() -> Option<String> {
    // SAFETY: no arguments.
    let version = unsafe { memlab_cuda_runtime_version() };
    (version > 0).then(|| format!("{}.{}", version / 1000, version % 1000 / 10))
}

/// The version of the libtorch that runs (`2.11.0`), and the folder of its libraries.
pub(crate) fn libtorch() -> ([u8; 3], std::path::PathBuf) {
    // SAFETY: no arguments; the path is terminated and lives as long as the process.
    let (version, path) = unsafe { (memlab_libtorch_abi_version(), CStr::from_ptr(memlab_libtorch_path())) };
    let [major, minor, patch, ..] = version.to_be_bytes();
    ([major, minor, patch], std::path::Path::new(&*path.to_string_lossy()).parent().map(Into::into).unwrap_or_default())
}

/// The value of a tensor with one element.
///
/// # Errors
/// A failed kernel, which shows here.
pub(crate) fn scalar(of: &Tensor) -> Result<f64, Stop> {
    let mut value = 0.0;
    // SAFETY: tensor and pointer are valid.
    check(unsafe { memlab_scalar(of.as_ptr(), &raw mut value) })?;
    Ok(value)
}

/// Registers the modelled GPU with libtorch.
///
/// # Errors
/// A second registration.
pub(crate) fn open_modelled(model: &DeviceModel, compute: bool) -> Result<(), Stop> {
    let description = GpuDescription {
        blas_workspace_bytes: signed(model.blas_workspace_bytes),
        multiprocessors: signed(model.multiprocessors),
        max_threads_per_multiprocessor: signed(threads_per_multiprocessor(model.compute_capability)),
        cudnn_head_size_limit: cudnn_head_size_limit(model.compute_capability),
        bf16_attention: match model.bf16_attention {
            AttentionFamily::Efficient => 0,
            AttentionFamily::Flash => 1,
            AttentionFamily::Cudnn => 2,
        },
        compute: i32::from(compute),
    };
    // SAFETY: the description outlives the call, which copies it.
    check(unsafe { memlab_modelled_open(&raw const description) })
}

/// Resident threads per multiprocessor (CUDA C++ programming guide, technical specifications per compute capability).
pub(crate) fn threads_per_multiprocessor(compute_capability: [u32; 2]) -> u64 {
    match compute_capability {
        [7, 5] => 1024,
        [8, 6 | 7 | 9] | [12, _] => 1536,
        _ => 2048,
    }
}

/// The widest attention head that cuDNN's kernels take (`check_cudnn_tensor_shapes` in `native/transformers/cuda/sdp_utils.cpp`).
fn cudnn_head_size_limit(compute_capability: [u32; 2]) -> i64 {
    if compute_capability == [9, 0] { 256 } else { 128 }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A GPU, and its driver's version (`13.0`).
///
/// # Errors
/// A driver that does not answer.
pub(crate) fn cuda_devices() -> Result<Vec<(memlab::protocol::Gpu, String)>, Stop> {
    let mut count = 0;
    // SAFETY: the pointer is valid.
    check(unsafe { memlab_cuda_device_count(&raw mut count) })?;
    (0..count)
        .map(|index| {
            let mut device = CudaDevice {
                name: [0; 256],
                memory_bytes: 0,
                compute_capability: [0; 2],
                multiprocessors: 0,
                driver_version: 0,
            };
            // SAFETY: the pointer is valid, and the name comes back terminated.
            let name = unsafe {
                check(memlab_cuda_device(index, &raw mut device))?;
                CStr::from_ptr(device.name.as_ptr()).to_string_lossy().into_owned()
            };
            let gpu = memlab::protocol::Gpu {
                name,
                memory_bytes: device.memory_bytes,
                compute_capability: device.compute_capability.map(i32::cast_unsigned),
                multiprocessors: u64::from(device.multiprocessors.cast_unsigned()),
            };
            let driver = format!("{}.{}", device.driver_version / 1000, device.driver_version % 1000 / 10);
            Ok((gpu, driver))
        })
        .collect()
}

/// Waits for the device and reads its counters.
///
/// # Errors
/// A failed kernel, which shows here.
pub(crate) fn cuda_counters() -> Result<CudaCounters, Stop> {
    let mut counters = CudaCounters::default();
    // SAFETY: the pointer is valid.
    check(unsafe { memlab_cuda_counters(&raw mut counters) })?;
    Ok(counters)
}

/// Sets the allocator's peak to what is allocated now.
///
/// # Errors
/// None in practice.
pub(crate) fn cuda_reset_peak() -> Result<(), Stop> {
    // SAFETY: no arguments.
    check(unsafe { memlab_cuda_reset_peak() })
}

/// Starts to record the allocator's history.
///
/// # Errors
/// A libtorch without that function.
pub(crate) fn cuda_record(max_entries: u64) -> Result<(), Stop> {
    // SAFETY: no pointers.
    check(unsafe { memlab_cuda_record(max_entries) })
}

/// The recorded history as `PyTorch` pickles it.
///
/// # Errors
/// A libtorch without that function.
pub(crate) fn cuda_snapshot() -> Result<Vec<u8>, Stop> {
    extern "C" fn write(context: *mut c_void, data: *const c_char, size: usize) {
        // SAFETY: the context is the vector below, and the data is valid for its size.
        unsafe { (*context.cast::<Vec<u8>>()).extend_from_slice(std::slice::from_raw_parts(data.cast(), size)) }
    }
    let mut bytes = Vec::<u8>::new();
    // SAFETY: the vector outlives the call.
    check(unsafe { memlab_cuda_snapshot(write, (&raw mut bytes).cast()) })?;
    Ok(bytes)
}

/// A copy on the device.
///
/// # Errors
/// Out of memory.
pub(crate) fn to_device(source: &Tensor, device: Device) -> Result<Tensor, Stop> {
    // SAFETY: the tensor is valid.
    tensor(|out| unsafe { memlab_to_device(source.as_ptr(), device as i32, out) })
}

/// Starts CUDA's generator.
///
/// # Errors
/// None in practice.
pub(crate) fn cuda_seed(seed: u64) -> Result<(), Stop> {
    // SAFETY: no pointers.
    check(unsafe { memlab_cuda_seed(seed) })
}

/// Integers of `0..high` on the GPU.
///
/// # Errors
/// Out of memory.
pub(crate) fn cuda_randint(high: i64, sizes: &[i64]) -> Result<Tensor, Stop> {
    // SAFETY: the sizes are valid for their length.
    tensor(|out| unsafe { memlab_cuda_randint(high, sizes.as_ptr(), sizes.len(), out) })
}

/// Computes gradients, and keeps the graph if asked to.
///
/// # Errors
/// Out of memory.
pub(crate) fn backward(loss: &Tensor, keep_graph: bool) -> Result<(), Stop> {
    // SAFETY: the tensor is valid.
    check(unsafe { memlab_backward(loss.as_ptr(), i32::from(keep_graph)) })
}

/// The gradient, if there is one.
///
/// # Errors
/// None in practice.
pub(crate) fn gradient(of: &Tensor) -> Result<Option<Tensor>, Stop> {
    // SAFETY: the tensor is valid.
    tensor_from(|out| unsafe { memlab_gradient(of.as_ptr(), out) })
}

/// Releases the gradient (`set_to_none=True`).
///
/// # Errors
/// None in practice.
pub(crate) fn clear_gradient(of: &Tensor) -> Result<(), Stop> {
    // SAFETY: the tensor is valid.
    check(unsafe { memlab_clear_gradient(of.as_ptr()) })
}

/// Fused scaled-dot-product attention of (batch, heads, sequence, head size) tensors.
///
/// # Errors
/// Out of memory.
pub(crate) fn attention(query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Tensor, Stop> {
    // SAFETY: the tensors are valid.
    tensor(|out| unsafe { memlab_attention(query.as_ptr(), key.as_ptr(), value.as_ptr(), out) })
}

/// Runs `body` under bf16 autocast, and then drops the casted weights.
///
/// # Errors
/// Those of `body`.
pub(crate) fn autocast<T>(device: Device, body: impl FnOnce() -> Result<T, Stop>) -> Result<T, Stop> {
    // SAFETY: no pointers.
    check(unsafe { memlab_autocast_enter(device as i32) })?;
    let result = body();
    // SAFETY: no pointers.
    check(unsafe { memlab_autocast_exit(device as i32) })?;
    result
}
