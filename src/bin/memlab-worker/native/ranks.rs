//! The store where ranks meet, the group in which they compute, and the reducer that averages their gradients.
//!
//! Handles live until the process ends: to destroy a group is to wait for its threads, which may wait for a rank that is gone.

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

use tch::Tensor;
use torch_sys::C_tensor;

use super::{Device, Status, check};
use crate::stop::Stop;

// SAFETY: the declarations are those of ranks.h.
unsafe extern "C" {
    fn memlab_store_file(path: *const c_char, world_size: i32, store: *mut *mut c_void) -> Status;
    fn memlab_store_tcp(host: *const c_char, port: u16, world_size: i32, hosts: i32, store: *mut *mut c_void)
    -> Status;
    fn memlab_store_set(store: *mut c_void, key: *const c_char, data: *const u8, size: usize) -> Status;
    fn memlab_store_get(
        store: *mut c_void,
        key: *const c_char,
        write: extern "C" fn(*mut c_void, *const c_char, usize),
        context: *mut c_void,
    ) -> Status;
    fn memlab_store_add(store: *mut c_void, key: *const c_char, amount: i64, sum: *mut i64) -> Status;
    fn memlab_group_gloo(
        store: *mut c_void,
        rank: i32,
        world_size: i32,
        device: i32,
        timeout_ms: i64,
        group: *mut *mut c_void,
    ) -> Status;
    fn memlab_group_nccl(
        store: *mut c_void,
        rank: i32,
        world_size: i32,
        timeout_ms: i64,
        group: *mut *mut c_void,
    ) -> Status;
    fn memlab_group_shutdown(group: *mut c_void) -> Status;
    fn memlab_reducer_open(
        group: *mut c_void,
        parameters: *const *const C_tensor,
        count: usize,
        reducer: *mut *mut c_void,
    ) -> Status;
    fn memlab_reducer_before_forward(reducer: *mut c_void) -> Status;
    fn memlab_reducer_before_backward(reducer: *mut c_void) -> Status;
}

/// An object of the C++ side that is never destroyed.
fn handle(open: impl FnOnce(*mut *mut c_void) -> Status) -> Result<NonNull<c_void>, Stop> {
    let mut pointer = std::ptr::null_mut();
    check(open(&raw mut pointer))?;
    NonNull::new(pointer).ok_or_else(|| Stop::Error("libtorch gave no object".to_owned()))
}

fn terminated(text: &[u8]) -> Result<CString, Stop> {
    CString::new(text).map_err(|_| Stop::Error(format!("a zero byte in `{}`", String::from_utf8_lossy(text))))
}

/// Keys and values that every rank of a run sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Store(NonNull<c_void>);

// SAFETY: c10d's stores lock what they share, and the object is never destroyed.
unsafe impl Send for Store {}
// SAFETY: as above.
unsafe impl Sync for Store {}

impl Store {
    /// In a file that belongs to this run.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub(crate) fn file(path: &Path, world_size: i32) -> Result<Self, Stop> {
        let path = terminated(path.as_os_str().as_bytes())?;
        // SAFETY: the path is terminated.
        handle(|out| unsafe { memlab_store_file(path.as_ptr(), world_size, out) }).map(Self)
    }

    /// On a server, which this process hosts or another does.
    ///
    /// # Errors
    /// A server that cannot be reached, or a port in use.
    pub(crate) fn tcp(host: &str, port: u16, world_size: i32, hosts: bool) -> Result<Self, Stop> {
        let host = terminated(host.as_bytes())?;
        // SAFETY: the host is terminated.
        handle(|out| unsafe { memlab_store_tcp(host.as_ptr(), port, world_size, i32::from(hosts), out) }).map(Self)
    }

    /// Sets a key.
    ///
    /// # Errors
    /// A store that cannot be reached any more.
    pub(crate) fn set(self, key: &str, value: &[u8]) -> Result<(), Stop> {
        let key = terminated(key.as_bytes())?;
        // SAFETY: key and value are valid for the call.
        check(unsafe { memlab_store_set(self.0.as_ptr(), key.as_ptr(), value.as_ptr(), value.len()) })
    }

    /// The value of a key, if it is set.
    ///
    /// # Errors
    /// A store that cannot be reached any more.
    pub(crate) fn get(self, key: &str) -> Result<Option<Vec<u8>>, Stop> {
        extern "C" fn write(context: *mut c_void, data: *const c_char, size: usize) {
            // SAFETY: the context is the option below, and the data is valid for its size.
            unsafe {
                let bytes = if size == 0 { &[] } else { std::slice::from_raw_parts(data.cast::<u8>(), size) };
                *context.cast::<Option<Vec<u8>>>() = Some(bytes.to_vec());
            }
        }
        let key = terminated(key.as_bytes())?;
        let mut value = None;
        // SAFETY: key and context are valid for the call.
        check(unsafe { memlab_store_get(self.0.as_ptr(), key.as_ptr(), write, (&raw mut value).cast()) })?;
        Ok(value)
    }

    /// Adds one to a counter that begins at 0, and gives the sum.
    ///
    /// # Errors
    /// A store that cannot be reached any more.
    pub(crate) fn count(self, key: &CStr) -> Result<i64, Stop> {
        let mut sum = 0;
        // SAFETY: key and sum are valid for the call.
        check(unsafe { memlab_store_add(self.0.as_ptr(), key.as_ptr(), 1, &raw mut sum) })?;
        Ok(sum)
    }
}

/// All ranks, connected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group(NonNull<c_void>);

impl Group {
    /// Connects the ranks over gloo; waits at most `timeout` for them, now and in every collective.
    ///
    /// # Errors
    /// A rank that does not come.
    pub(crate) fn gloo(store: Store, rank: (i32, i32), device: Device, timeout: Duration) -> Result<Self, Stop> {
        let ((rank, world_size), timeout) = (rank, milliseconds(timeout));
        // SAFETY: the store is never destroyed.
        handle(|out| unsafe { memlab_group_gloo(store.0.as_ptr(), rank, world_size, device as i32, timeout, out) })
            .map(Self)
    }

    /// Connects the ranks over NCCL, with a GPU for each, at the first collective.
    ///
    /// # Errors
    /// A libtorch without NCCL.
    pub(crate) fn nccl(store: Store, rank: (i32, i32), timeout: Duration) -> Result<Self, Stop> {
        let ((rank, world_size), timeout) = (rank, milliseconds(timeout));
        // SAFETY: the store is never destroyed.
        handle(|out| unsafe { memlab_group_nccl(store.0.as_ptr(), rank, world_size, timeout, out) }).map(Self)
    }

    /// Ends what the group does, once every rank is done.
    ///
    /// # Errors
    /// A rank that is gone.
    pub(crate) fn shut_down(self) -> Result<(), Stop> {
        // SAFETY: the group is never destroyed.
        check(unsafe { memlab_group_shutdown(self.0.as_ptr()) })
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Averages gradients over the ranks while backward computes them, as `DistributedDataParallel` does.
#[derive(Debug)]
pub(crate) struct Reducer(NonNull<c_void>);

impl Reducer {
    /// Verifies that all ranks have the same parameters, and gives everyone those of rank zero.
    ///
    /// # Errors
    /// Parameters that differ, out of memory, or a rank that is gone.
    pub(crate) fn new(group: Group, parameters: &[Tensor]) -> Result<Self, Stop> {
        let pointers: Vec<_> = parameters.iter().map(Tensor::as_ptr).collect();
        // SAFETY: the tensors are valid, and the reducer keeps its own references.
        handle(|out| unsafe { memlab_reducer_open(group.0.as_ptr(), pointers.as_ptr().cast(), pointers.len(), out) })
            .map(Self)
    }

    /// To be called before each forward.
    ///
    /// # Errors
    /// Out of memory, or a rank that is gone.
    pub(crate) fn before_forward(&self) -> Result<(), Stop> {
        // SAFETY: the reducer is never destroyed.
        check(unsafe { memlab_reducer_before_forward(self.0.as_ptr()) })
    }

    /// To be called between each forward and its backward.
    ///
    /// # Errors
    /// None in practice.
    pub(crate) fn before_backward(&self) -> Result<(), Stop> {
        // SAFETY: the reducer is never destroyed.
        check(unsafe { memlab_reducer_before_backward(self.0.as_ptr()) })
    }
}
