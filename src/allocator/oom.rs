//! A refused request, with every number of `PyTorch`'s message and the message itself.

use std::fmt;

/// The allocator could not serve a request. Sizes are bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfMemory {
    /// What the program asked for.
    pub requested: u64,
    /// The segment that would have been needed: what the message says was tried.
    pub segment: u64,
    /// All memory of the device.
    pub device_total: u64,
    /// Memory of the device that nobody uses.
    pub device_free: u64,
    /// What the process may reserve, where that is limited.
    pub limit: Option<u64>,
    /// Bytes that the program holds.
    pub allocated: u64,
    /// Free bytes in private pools, which only these pools may use; the message counts them as allocated.
    pub free_in_private_pools: u64,
    /// Bytes taken from the device.
    pub reserved: u64,
}

/// From here on no request is tried.
pub(super) const EXABYTE: u64 = 1_152_921_504_606_846_976;

impl OutOfMemory {
    /// `PyTorch`'s message for device number `device`, given what is known about who uses the device: `processes` is
    /// that part of the message, ending in a blank, or empty.
    pub fn message(&self, device: usize, processes: &str) -> String {
        if self.requested >= EXABYTE {
            return "CUDA out of memory. Tried to allocate more than 1EB memory.".to_owned();
        }
        let allowed = self.limit.map_or(String::new(), |limit| format!("{} allowed; ", Size(limit)));
        let private = if self.free_in_private_pools > 0 {
            format!("with {} allocated in private pools (e.g., CUDA Graphs), ", Size(self.free_in_private_pools))
        } else {
            String::new()
        };
        format!(
            "CUDA out of memory. Tried to allocate {}. GPU {device} has a total capacity of {} of which {} is free. \
             {processes}{allowed}Of the allocated memory {} is allocated by PyTorch, {private}and {} is reserved by \
             PyTorch but unallocated. If reserved but unallocated memory is large try setting \
             PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory \
             Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)",
            Size(self.segment),
            Size(self.device_total),
            Size(self.device_free),
            Size(self.allocated + self.free_in_private_pools),
            Size(self.reserved.saturating_sub(self.allocated + self.free_in_private_pools)),
        )
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message(0, ""))
    }
}

impl std::error::Error for OutOfMemory {}

/// Bytes as the message writes them.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..=1024 => write!(f, "{} bytes", self.0),
            1025..=0x10_0000 => write!(f, "{:.2} KiB", bytes / 1024.0),
            0x10_0001..=0x4000_0000 => write!(f, "{:.2} MiB", bytes / f64::from(1 << 20)),
            _ => write!(f, "{:.2} GiB", bytes / f64::from(1 << 30)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the first refusal in a recording on an H200, whose message was written down with it.
    #[test]
    fn the_message_is_pytorch_s() {
        const MIB: f64 = 1_048_576.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive constants")]
        let bytes = |mebibytes: f64| (mebibytes * MIB) as u64;
        let refused = OutOfMemory {
            requested: bytes(42.85),
            segment: bytes(44.0),
            device_total: 150_109_880_320,
            device_free: 145_856_856_064,
            limit: Some(900_659_281),
            allocated: bytes(805.09),
            free_in_private_pools: 0,
            reserved: bytes(805.09) + bytes(38.91),
        };
        let processes = "Including non-PyTorch memory, this process has 1.33 GiB memory in use. ";
        assert!(refused.message(0, processes).starts_with(
            "CUDA out of memory. Tried to allocate 44.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 135.84 \
             GiB is free. Including non-PyTorch memory, this process has 1.33 GiB memory in use. 858.94 MiB allowed; Of \
             the allocated memory 805.09 MiB is allocated by PyTorch, and 38.91 MiB is reserved by PyTorch but \
             unallocated."
        ));
    }

    #[test]
    fn sizes_change_unit_after_the_full_unit() {
        let text = |bytes| Size(bytes).to_string();
        assert_eq!(text(1024), "1024 bytes");
        assert_eq!(text(1025), "1.00 KiB");
        assert_eq!(text(1 << 20), "1024.00 KiB");
        assert_eq!(text(1 << 30), "1024.00 MiB");
        assert_eq!(text((1 << 30) + 1), "1.00 GiB");
    }
}
