//! Why a run cannot go on.

use crate::memory;

/// The reason that ends a run early.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stop {
    /// The device's allocator refused. Sizes in MiB.
    OutOfMemory {
        /// What was asked for, where known.
        requested_mib: Option<f64>,
        /// What the allocator may reserve, where limited.
        capacity_mib: Option<f64>,
        /// `PyTorch`'s message.
        message: String,
    },
    /// The host had no memory.
    HostOutOfMemory(String),
    /// Another rank is gone: a consequence of what happened there.
    Lost(String),
    /// Anything else.
    Error(String),
}

impl Stop {
    /// Sorts a failure of libtorch by evidence: a refusal that the device's allocator counted, the host's allocator's
    /// message, or neither.
    pub(crate) fn from_libtorch(message: &str) -> Self {
        // What follows is a stack trace or a list of kernels, which say nothing to a user.
        let message = message.split("\nException raised from").next().unwrap_or(message);
        let message = message.split("\n\n").next().unwrap_or(message).to_owned();
        if let Some(refusal) = memory::refusal(&message) {
            return refusal;
        }
        // c10/core/impl/alloc_cpu.cpp, and the C++ library's own.
        if message.contains("DefaultCPUAllocator: can't allocate memory") || message.contains("std::bad_alloc") {
            return Stop::HostOutOfMemory(message);
        }
        // The collectives' libraries say where in them they failed: gloo its source file, NCCL its name.
        if message.contains("/gloo/") || message.contains("NCCL") {
            return Stop::Lost(message);
        }
        Stop::Error(message)
    }

    /// What PyTorch, the host or memlab says.
    pub(crate) fn message(&self) -> &str {
        match self {
            Stop::OutOfMemory { message, .. }
            | Stop::HostOutOfMemory(message)
            | Stop::Lost(message)
            | Stop::Error(message) => message,
        }
    }
}

impl From<tch::TchError> for Stop {
    fn from(error: tch::TchError) -> Self {
        Stop::from_libtorch(&match error {
            tch::TchError::Torch(message) => message,
            other => other.to_string(),
        })
    }
}
