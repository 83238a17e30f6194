//! What the CUDA driver takes of its address space for itself, and when.
//!
//! It decides where segments come to lie, and with that which of two equal free blocks the allocator takes: see
//! [`VirtualDevice`]. Sizes and moments are those of 174 runs on one H200 (driver for CUDA 13.0, libtorch 2.11.0), in which
//! every mapping of the driver and every segment was written down with its address. They stand for other GPUs too: addresses
//! change no size. Kernels are loaded when they are first used, and fill 2 MiB at a time; which products are new depends on
//! their shapes, so a run may load one more or one less.

use super::device::{Address, VirtualDevice};

const MIB: u64 = 1 << 20;

/// Where kernels and small objects go.
const PAGE: u64 = 2 * MIB;

/// What a process uses for the first time, and the driver takes memory for. The numbers are those of `native/modelled.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// Random numbers, for the batch.
    RandomNumbers,
    /// The lookup of an embedding: its kernel needs more local memory than the context has.
    Embedding,
    /// A BLAS handle: each thread has its own.
    BlasHandle,
    /// Matrix products: forward and backward, on threads of their own, use different kernels.
    Product,
    /// cuDNN attention, forward.
    CudnnAttention,
    /// cuDNN attention, backward.
    CudnnAttentionBackward,
}

/// The driver's part of a [`VirtualDevice`].
#[derive(Debug, Clone)]
pub struct Driver {
    local_memory: Option<Address>,
    used: Vec<First>,
}

impl Driver {
    /// Creates the context: kernels and constants, and local memory for every thread that the GPU can run at once.
    pub fn start(device: &mut VirtualDevice) -> Self {
        device.take_stretch(96 * MIB, 24 * MIB);
        Self { local_memory: Some(device.take_stretch(416 * MIB, PAGE)), used: Vec::new() }
    }

    /// Takes what `first` makes the driver take. The caller knows threads: what they have of their own is taken at each call.
    pub fn take(&mut self, device: &mut VirtualDevice, first: First) {
        let of_each_thread = matches!(first, First::BlasHandle | First::Product);
        if !of_each_thread && self.used.contains(&first) {
            return;
        }
        self.used.push(first);
        let pages = match first {
            First::Embedding => {
                device.take_stretch(512 * MIB, 8 * MIB);
                if let Some(smaller) = self.local_memory.take() {
                    device.give_back(smaller);
                }
                // Host memory that the GPU sees has device addresses as well.
                device.take(PAGE);
                device.take(10 * MIB);
                0
            }
            First::BlasHandle => {
                device.take(64 * MIB);
                0
            }
            First::RandomNumbers | First::Product => 1,
            First::CudnnAttention => 5,
            First::CudnnAttentionBackward => 4,
        };
        for _ in 0..pages {
            device.take(PAGE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::device::Device;
    use super::*;

    /// The segments of a run of alpha (5 layers, hidden size 320, batch 3, fp32), in MiB from the start of the context's local memory,
    /// as recorded.
    #[test]
    fn segments_lie_where_the_driver_put_them() {
        let mut device = VirtualDevice::new(1 << 40, 0);
        let mut driver = Driver::start(&mut device);
        let origin = driver.local_memory.unwrap();
        let segment = |device: &mut VirtualDevice, size: u64| {
            (device.reserve(size * MIB, 0).unwrap().cast_signed() - origin.cast_signed()) / (1 << 20)
        };
        let model = [20, 2, 20, 2].map(|size| segment(&mut device, size));
        assert_eq!(model, [488, 414, -32, -12]);
        driver.take(&mut device, First::RandomNumbers);
        driver.take(&mut device, First::Embedding);
        assert_eq!(segment(&mut device, 2), -38);
        driver.take(&mut device, First::BlasHandle);
        assert_eq!(segment(&mut device, 32), 74);
        driver.take(&mut device, First::Product);
        assert_eq!(segment(&mut device, 2), -34);
        let forward = [2, 2, 2, 2, 20, 2].map(|size| segment(&mut device, size));
        assert_eq!(forward, [-8, -6, -4, -2, 106, 126]);
    }
}
