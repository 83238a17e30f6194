//! Maps by address: what is looked up at every request and every free.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::device::Address;

/// Something for each of some addresses.
pub(crate) type AddressMap<V> = HashMap<Address, V, BuildHasherDefault<AddressHasher>>;

/// Addresses are multiples of 512: one multiplication spreads them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, address: u64) {
        let product = u128::from(address) * 0x9e37_79b9_7f4a_7c15;
        #[expect(clippy::cast_possible_truncation, reason = "the two halves are folded")]
        let folded = (product >> 64) as u64 ^ product as u64;
        self.0 = folded;
    }
}
