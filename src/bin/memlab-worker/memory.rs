//! Memory of the run's device: CUDA's counters, or the account of the modelled GPU.
//!
//! The modelled GPU is a [`CachingAllocator`] whose segments are stretches of one reserved range of host addresses, so that
//! a block's place in the model is its place in memory. A computing run puts memory behind a segment while it is reserved;
//! an allocation-only run does so for segments of small blocks alone.

#![expect(unsafe_code, reason = "the C++ side allocates through functions with a C interface, in mapped memory")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use memlab::allocator::{Address, CachingAllocator, Device, Driver, First, History, Settings, StreamId, VirtualDevice};
use memlab::protocol::{Activity, DeviceKind, DeviceModel, RunSpec};
use memlab::units::{MIB, mib};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, mprotect};

use crate::log;
use crate::native::{self, Device as TensorDevice};
use crate::recorder::{self, Origin, Recorder};
use crate::stop::Stop;

/// Counters of the device, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Live tensor memory.
    pub(crate) allocated: u64,
    /// Held by the allocator.
    pub(crate) reserved: u64,
    /// Largest live memory since the last reset.
    pub(crate) peak_allocated: u64,
    /// Used on the whole device.
    pub(crate) device_used: u64,
    /// All memory of the device; none for a modelled GPU without limit.
    pub(crate) device_total: Option<u64>,
}

/// The memory of the run's device.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Memory {
    /// A GPU.
    Cuda,
    /// A modelled GPU.
    Modelled,
}

impl Memory {
    /// Opens the device that `spec` asks for; of several visible GPUs `own` alone, if it says which. Must be the process's first act that involves libtorch.
    ///
    /// # Errors
    /// No usable GPU, a device model that cannot be, or a host without room for addresses.
    pub(crate) fn open(spec: &RunSpec, own: Option<u64>) -> Result<Self, Stop> {
        match (spec.device, &spec.device_model) {
            (DeviceKind::Cuda, _) => {
                native::open_cuda(spec.capacity, own)?;
                CUDA_REFUSALS.store(native::cuda_counters()?.out_of_memory_events, Ordering::Relaxed);
                CAPACITY.store(spec.capacity.unwrap_or(0), Ordering::Relaxed);
                if let Some(snapshot) = &spec.snapshot {
                    RECORDING.store(true, Ordering::Relaxed);
                    native::cuda_record(snapshot.max_entries)?;
                }
                Ok(Memory::Cuda)
            }
            (DeviceKind::Cpu, Some(model)) => {
                let mut account = Account::open(model, spec.capacity, spec.compute)?;
                if let Some(snapshot) = &spec.snapshot {
                    RECORDING.store(true, Ordering::Relaxed);
                    account.record(snapshot.max_entries);
                }
                if ACCOUNT.set(Mutex::new(account)).is_err() {
                    return Err(Stop::Error("the modelled GPU is open already".to_owned()));
                }
                native::open_modelled(model, spec.compute)?;
                Ok(Memory::Modelled)
            }
            (DeviceKind::Cpu, None) => Err(Stop::Error("a CPU run needs a device model".to_owned())),
        }
    }

    /// Where tensors go.
    pub(crate) fn device(self) -> TensorDevice {
        match self {
            Memory::Cuda => TensorDevice::Cuda,
            Memory::Modelled => TensorDevice::Modelled,
        }
    }

    /// Waits for the device and reads its counters.
    ///
    /// # Errors
    /// A failed kernel, which shows here.
    pub(crate) fn counters(self) -> Result<Counters, Stop> {
        match self {
            Memory::Cuda => {
                let cuda = native::cuda_counters()?;
                Ok(Counters {
                    allocated: cuda.allocated,
                    reserved: cuda.reserved,
                    peak_allocated: cuda.peak_allocated,
                    device_used: cuda.device_total - cuda.device_free,
                    device_total: Some(cuda.device_total),
                })
            }
            Memory::Modelled => {
                let account = account()?;
                if let Some(lost) = &account.lost {
                    return Err(Stop::Error(lost.clone()));
                }
                let stats = account.allocator.stats();
                let reserved = stats.reserved_bytes.all.current;
                Ok(Counters {
                    allocated: stats.allocated_bytes.all.current,
                    reserved,
                    peak_allocated: stats.allocated_bytes.all.peak,
                    device_used: reserved + account.context_bytes,
                    device_total: account.memory_bytes,
                })
            }
        }
    }

    /// Sets the peak to what is allocated now.
    ///
    /// # Errors
    /// None in practice.
    pub(crate) fn reset_peak(self) -> Result<(), Stop> {
        match self {
            Memory::Cuda => native::cuda_reset_peak(),
            Memory::Modelled => {
                account()?.allocator.reset_peak_stats();
                Ok(())
            }
        }
    }

    /// Operators that ran without a recipe, with their numbers of calls.
    ///
    /// # Errors
    /// None in practice.
    pub(crate) fn operators_without_recipe(self) -> Result<Vec<(String, u64)>, Stop> {
        match self {
            Memory::Cuda => Ok(Vec::new()),
            Memory::Modelled => Ok(account()?.unknown.iter().map(|(name, calls)| (name.clone(), *calls)).collect()),
        }
    }
}

impl Memory {
    /// Tells the recorder, if there is one, what the run does from now on.
    ///
    /// # Errors
    /// None in practice.
    pub(crate) fn begin(self, step: i64, activity: Activity) -> Result<(), Stop> {
        if !RECORDING.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self {
            Memory::Cuda => {
                let mut phases = CUDA_PHASES.lock().unwrap_or_else(PoisonError::into_inner);
                phases.push((recorder::now_us(), step, activity));
            }
            Memory::Modelled => {
                if let Some(recorder) = &mut account()?.recorder {
                    recorder.set_phase(step, activity);
                }
            }
        }
        Ok(())
    }

    /// The recorded history as a snapshot file; none where nothing was recorded.
    ///
    /// # Errors
    /// A libtorch without a recorder.
    pub(crate) fn snapshot(self) -> Result<Option<Vec<u8>>, Stop> {
        if !RECORDING.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match self {
            Memory::Cuda => {
                let phases = CUDA_PHASES.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(Some(recorder::with_phases(native::cuda_snapshot()?, &phases)))
            }
            Memory::Modelled => {
                let account = account()?;
                let Some(recorder) = &account.recorder else { return Ok(None) };
                recorder::encode(&recorder.snapshot(&account.alloc_conf, &account.allocator)).map(Some)
            }
        }
    }
}

/// When each phase began, for CUDA's recorder, which knows times only.
static CUDA_PHASES: Mutex<Vec<(u64, i64, Activity)>> = Mutex::new(Vec::new());
static CUDA_REFUSALS: AtomicI64 = AtomicI64::new(0);
static CAPACITY: AtomicU64 = AtomicU64::new(0);

/// The refusal behind a failure of libtorch, if there was one: the device's allocator counted it.
pub(crate) fn refusal(message: &str) -> Option<Stop> {
    if let Some(account) = ACCOUNT.get() {
        return lock(account).refusal.take();
    }
    let counted = native::cuda_out_of_memory_events();
    (counted > CUDA_REFUSALS.swap(counted, Ordering::Relaxed)).then(|| Stop::OutOfMemory {
        requested_mib: requested_mib(message),
        capacity_mib: Some(CAPACITY.load(Ordering::Relaxed)).filter(|capacity| *capacity > 0).map(mib),
        message: message.to_owned(),
    })
}

/// The size in `Tried to allocate 44.00 MiB.`, in MiB.
fn requested_mib(message: &str) -> Option<f64> {
    let mut words = message.split_once("Tried to allocate ")?.1.split(' ');
    let number: f64 = words.next()?.parse().ok()?;
    match words.next()?.trim_end_matches('.') {
        "bytes" => Some(number / 1_048_576.0),
        "KiB" => Some(number / 1024.0),
        "MiB" => Some(number),
        "GiB" => Some(number * 1024.0),
        _ => None,
    }
}

// ---- the modelled GPU ---------------------------------------------------------------------------------------------------

static ACCOUNT: OnceLock<Mutex<Account>> = OnceLock::new();

/// The account of the modelled GPU.
struct Account {
    allocator: CachingAllocator<MappedDevice>,
    context_bytes: u64,
    memory_bytes: Option<u64>,
    capacity: Option<u64>,
    refusal: Option<Stop>,
    /// Why the account cannot be trusted any more.
    lost: Option<String>,
    unknown: BTreeMap<String, u64>,
    alloc_conf: String,
    recorder: Option<Recorder>,
}

fn lock(account: &Mutex<Account>) -> MutexGuard<'_, Account> {
    account.lock().unwrap_or_else(PoisonError::into_inner)
}

fn account() -> Result<MutexGuard<'static, Account>, Stop> {
    ACCOUNT.get().map(lock).ok_or_else(|| Stop::Error("the modelled GPU is not open".to_owned()))
}

impl Account {
    fn open(model: &DeviceModel, capacity: Option<u64>, compute: bool) -> Result<Self, Stop> {
        let settings = Settings::parse(&model.alloc_conf)
            .map_err(|error| Stop::Error(format!("device model `{}`: alloc_conf: {error}", model.name)))?;
        let device = MappedDevice::open(model.memory_bytes, compute)?;
        Ok(Self {
            allocator: CachingAllocator::new(settings, capacity, device),
            context_bytes: model.context_bytes,
            memory_bytes: model.memory_bytes,
            capacity,
            refusal: None,
            lost: None,
            unknown: BTreeMap::new(),
            alloc_conf: model.alloc_conf.clone(),
            recorder: None,
        })
    }

    /// What follows happens on behalf of `origin`.
    fn attribute(&mut self, origin: Origin) {
        if let Some(recorder) = &mut self.recorder {
            self.allocator.set_tag(recorder.tag(origin));
        }
    }

    fn record(&mut self, max_entries: u64) {
        let bound = usize::try_from(max_entries).unwrap_or(usize::MAX);
        self.allocator.set_history(Some(History::new(bound, recorder::now_us)));
        self.recorder = Some(Recorder::new());
    }

    fn allocate(&mut self, size: u64) -> Option<NonNull<c_void>> {
        match self.allocator.malloc(size, 0) {
            Ok(address) => NonNull::new(self.allocator.device().pointer(address)),
            Err(refused) => {
                let stop = match self.allocator.device_mut().host_failure.take() {
                    Some(failure) => Stop::HostOutOfMemory(failure),
                    None => Stop::OutOfMemory {
                        requested_mib: Some(mib(refused.requested)),
                        capacity_mib: self.capacity.or(self.memory_bytes).map(mib),
                        message: format!("{} (modelled GPU)", refused.message(0, "")),
                    },
                };
                REFUSAL.set(CString::new(stop.message()).unwrap_or_default());
                self.refusal = Some(stop);
                None
            }
        }
    }
}

/// A [`VirtualDevice`] whose addresses are backed by a reserved range of host addresses.
struct MappedDevice {
    addresses: VirtualDevice,
    driver: Driver,
    /// Host address of the lowest device address.
    base: usize,
    compute: bool,
    host_failure: Option<String>,
}

/// Device addresses that can be backed: `VirtualDevice` hands out segments from the top downwards, and ranges for
/// expandable segments from the bottom upwards.
const SPAN: usize = 1 << 43;
const SEGMENTS_END: Address = 0x7f00_0000_0000;
/// A GPU without limit has more memory than any run can ask for, and fits the span.
const UNLIMITED: u64 = 1 << 41;

impl MappedDevice {
    fn open(memory_bytes: Option<u64>, compute: bool) -> Result<Self, Stop> {
        let length = NonZeroUsize::new(2 * SPAN).ok_or_else(|| Stop::Error("no span".to_owned()))?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a fresh mapping that nobody else knows.
        let base = unsafe { mmap_anonymous(None, length, ProtFlags::PROT_NONE, flags) }.map_err(|error| {
            Stop::HostOutOfMemory(format!(
                "cannot reserve {} TiB of addresses (no memory) for the modelled GPU: {error}; \
                 a limit on virtual memory (ulimit -v) has to be lifted",
                (2 * SPAN) >> 40
            ))
        })?;
        let mut addresses = VirtualDevice::new(memory_bytes.unwrap_or(UNLIMITED), 0);
        Ok(Self {
            driver: Driver::start(&mut addresses),
            addresses,
            base: base.as_ptr() as usize,
            compute,
            host_failure: None,
        })
    }

    /// The run uses something for the first time.
    fn first(&mut self, first: First) {
        self.driver.take(&mut self.addresses, first);
    }

    /// The host's pointer to a device address.
    fn pointer(&self, address: Address) -> *mut c_void {
        let segments_start = SEGMENTS_END - SPAN as u64;
        let offset = if address >= segments_start { address - segments_start } else { SPAN as u64 + address };
        (self.base + usize::try_from(offset).unwrap_or(0)) as *mut c_void
    }

    /// The device address of a pointer.
    fn address(&self, pointer: *mut c_void) -> Address {
        let offset = pointer as usize - self.base;
        if offset < SPAN { SEGMENTS_END - (SPAN - offset) as u64 } else { (offset - SPAN) as u64 }
    }

    /// Puts memory behind addresses, or takes it away. In an allocation-only run only segments of small blocks have memory:
    /// counts and orders that steer the program are read back from there.
    fn back(&mut self, address: Address, size: u64, with_memory: bool) -> bool {
        /// `kSmallBuffer` of c10/core/AllocatorConfig.h.
        const SMALL_SEGMENT: u64 = 2 * MIB;
        if !self.compute && size > SMALL_SEGMENT {
            return true;
        }
        let (Some(pointer), Ok(length)) = (NonNull::new(self.pointer(address)), usize::try_from(size)) else {
            return false;
        };
        let protection = if with_memory { ProtFlags::PROT_READ | ProtFlags::PROT_WRITE } else { ProtFlags::PROT_NONE };
        // SAFETY: the range lies in the mapping made by `open`, and no tensor is in a segment that is released.
        let result = unsafe {
            if with_memory {
                mprotect(pointer, length, protection)
            } else {
                madvise(pointer, length, MmapAdvise::MADV_DONTNEED).and_then(|()| mprotect(pointer, length, protection))
            }
        };
        if let Err(error) = result {
            self.host_failure =
                Some(format!("the host has no {:.2} MiB to back the modelled GPU with: {error}", mib(size)));
            return false;
        }
        true
    }
}

impl Device for MappedDevice {
    fn reserve(&mut self, size: u64, stream: StreamId) -> Option<Address> {
        let address = self.addresses.reserve(size, stream)?;
        if self.back(address, size, true) {
            return Some(address);
        }
        self.addresses.release(address, size);
        None
    }

    fn release(&mut self, address: Address, size: u64) {
        self.back(address, size, false);
        self.addresses.release(address, size);
    }

    fn reserve_range(&mut self, size: u64, stream: StreamId) -> Address {
        self.addresses.reserve_range(size, stream)
    }

    fn release_range(&mut self, address: Address, size: u64) {
        self.addresses.release_range(address, size);
    }

    fn map(&mut self, address: Address, size: u64) -> bool {
        if !self.addresses.map(address, size) {
            return false;
        }
        if self.back(address, size, true) {
            return true;
        }
        self.addresses.unmap(address, size);
        false
    }

    fn unmap(&mut self, address: Address, size: u64) {
        self.back(address, size, false);
        self.addresses.unmap(address, size);
    }

    fn total_bytes(&self) -> u64 {
        self.addresses.total_bytes()
    }

    fn free_bytes(&self) -> u64 {
        self.addresses.free_bytes()
    }
}

// ---- what the C++ side calls --------------------------------------------------------------------------------------------

/// Allocates on the modelled GPU; null when its allocator refuses.
#[unsafe(no_mangle)]
extern "C" fn memlab_device_allocate(bytes: usize, operator: *const c_char, node: *const c_char) -> *mut c_void {
    let Some(account) = ACCOUNT.get() else { return std::ptr::null_mut() };
    let mut account = lock(account);
    if account.recorder.is_some() {
        // SAFETY: the C++ side passes terminated strings.
        let [operator, node] =
            [operator, node].map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        account.attribute(Origin { operator, node, module: MODULE.with_borrow(Clone::clone) });
    }
    account.allocate(bytes as u64).map_or(std::ptr::null_mut(), NonNull::as_ptr)
}

/// Frees a block of the modelled GPU; null is no block.
#[unsafe(no_mangle)]
extern "C" fn memlab_device_release(pointer: *mut c_void) {
    if pointer.is_null() {
        return;
    }
    if let Some(account) = ACCOUNT.get() {
        let mut account = lock(account);
        if account.recorder.is_some() {
            account.attribute(Origin { module: MODULE.with_borrow(Clone::clone), ..Origin::default() });
        }
        let address = account.allocator.device().address(pointer);
        if let Err(error) = account.allocator.free(address) {
            // Cannot happen while every tensor frees its own block once. A destructor has nobody to tell: the next sample does.
            account.lost = Some(format!("the modelled GPU lost track of its memory: {error}"));
        }
    }
}

thread_local! {
    /// The message of this thread's last refusal, for the C++ side, which reads it before the next.
    static REFUSAL: RefCell<CString> = RefCell::default();
}

/// The message of this thread's last refusal.
#[unsafe(no_mangle)]
extern "C" fn memlab_device_refusal() -> *const c_char {
    REFUSAL.with_borrow(|message| message.as_ptr())
}

/// Whether the names of operators and nodes are asked for.
#[unsafe(no_mangle)]
extern "C" fn memlab_device_is_recorded() -> bool {
    RECORDING.load(Ordering::Relaxed)
}

/// Whether the host, not the modelled GPU, refused last.
#[unsafe(no_mangle)]
extern "C" fn memlab_device_host_refused() -> bool {
    ACCOUNT.get().is_some_and(|account| matches!(lock(account).refusal, Some(Stop::HostOutOfMemory(_))))
}

/// The run uses something for the first time; on this thread, where threads have their own.
#[unsafe(no_mangle)]
extern "C" fn memlab_device_first(what: i32) {
    let first = match what {
        0 => First::Embedding,
        1 => First::BlasHandle,
        2 => First::Product,
        3 => First::CudnnAttention,
        4 => First::CudnnAttentionBackward,
        _ => return log(&format!("the C++ part uses number {what} for the first time, which has no name")),
    };
    note_first(first);
}

/// The run uses something for the first time on the modelled GPU.
pub(crate) fn note_first(first: First) {
    if let Some(account) = ACCOUNT.get() {
        lock(account).allocator.device_mut().first(first);
    }
}

/// Counts an operator that has no recipe.
#[unsafe(no_mangle)]
extern "C" fn memlab_device_unknown_operator(name: *const c_char) {
    // SAFETY: the C++ side passes a terminated string.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    if let Some(account) = ACCOUNT.get() {
        *lock(account).unknown.entry(name).or_default() += 1;
    }
}

// ---- who allocates ------------------------------------------------------------------------------------------------------

thread_local! {
    static MODULE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Whether anybody asks for module names.
static RECORDING: AtomicBool = AtomicBool::new(false);

/// A module whose forward runs on this thread; allocations recorded meanwhile carry its name.
pub(crate) struct Frame {
    outer_length: usize,
}

impl Frame {
    /// Enters the module `name` inside the current one.
    pub(crate) fn enter(name: &str) -> Self {
        if !RECORDING.load(Ordering::Relaxed) {
            return Self { outer_length: 0 };
        }
        MODULE.with_borrow_mut(|module| {
            let outer_length = module.len();
            if !module.is_empty() {
                module.push('.');
            }
            module.push_str(name);
            Self { outer_length }
        })
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        MODULE.with_borrow_mut(|module| module.truncate(self.outer_length));
    }
}
