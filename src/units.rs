//! Units: memory is bytes in code and MiB in reports; a MiB is 2^20 bytes.

/// Bytes in one MiB.
pub const MIB: u64 = 1 << 20;

/// Bytes as MiB. Exact for every size below 8 PiB, because the divisor is a power of two.
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}
