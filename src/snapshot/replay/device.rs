//! A device that gives out the recorded addresses and compares what it is asked with the recorded segment entries.

use crate::allocator::{Action, Address, Device, StreamId};
use crate::snapshot::model::Entry;

use super::UNKNOWN_TOTAL;

/// Addresses that no recording has: for what the model asks for and the recording does not have.
const STRANGE: Address = 1 << 62;

/// The entries between two operations of the program, and how far the model has come in them.
#[derive(Debug, Clone)]
pub(super) struct RecordedDevice<'a> {
    entries: &'a [Entry],
    next: usize,
    end: usize,
    /// Differences since the window was opened.
    pub(super) mismatches: u64,
    /// The first of them: the entry, and what the model did instead.
    pub(super) first: Option<(usize, String)>,
    strange: Address,
}

impl<'a> RecordedDevice<'a> {
    pub(super) fn new(entries: &'a [Entry]) -> Self {
        Self { entries, next: 0, end: 0, mismatches: 0, first: None, strange: STRANGE }
    }

    /// From here on the model has to do what entries `start..end` say.
    pub(super) fn open(&mut self, start: usize, end: usize) {
        (self.next, self.end) = (start, end);
        self.mismatches = 0;
        self.first = None;
    }

    /// What the model did not do counts too.
    pub(super) fn close(&mut self) {
        while let Some(entry) = self.peek() {
            self.differ(format!("the model does no {}", entry.action.name()));
            self.next += 1;
        }
    }

    pub(super) fn differ(&mut self, what: String) {
        self.mismatches += 1;
        if self.first.is_none() {
            self.first = Some((self.next, what));
        }
    }

    /// The entry that the model has come to.
    pub(super) fn position(&self) -> usize {
        self.next
    }

    fn peek(&self) -> Option<&'a Entry> {
        self.entries.get(self.next).filter(|_| self.next < self.end)
    }

    /// The recorded entry, if it is the one that the model wants.
    fn take(
        &mut self,
        action: Action,
        address: Option<Address>,
        size: u64,
        stream: Option<StreamId>,
    ) -> Option<Address> {
        match self.peek() {
            Some(entry)
                if entry.action == action
                    && entry.size == size
                    && address.is_none_or(|address| address == entry.address)
                    && stream.is_none_or(|stream| stream == entry.stream) =>
            {
                self.next += 1;
                Some(entry.address)
            }
            _ => {
                let place = address.map_or(String::new(), |address| format!(" at {address:#x}"));
                self.differ(format!("the model does a {} of {size} bytes{place}", action.name()));
                None
            }
        }
    }

    fn strange(&mut self, size: u64) -> Address {
        let address = self.strange;
        self.strange += size.next_multiple_of(1 << 30);
        address
    }
}

impl Device for RecordedDevice<'_> {
    fn reserve(&mut self, size: u64, stream: StreamId) -> Option<Address> {
        let recorded = self.take(Action::SegmentAlloc, None, size, Some(stream));
        Some(recorded.unwrap_or_else(|| self.strange(size)))
    }

    fn release(&mut self, address: Address, size: u64) {
        self.take(Action::SegmentFree, Some(address), size, None);
    }

    fn reserve_range(&mut self, size: u64, _stream: StreamId) -> Address {
        match self.peek() {
            Some(entry) if entry.action == Action::SegmentMap => entry.address,
            _ => self.strange(size),
        }
    }

    fn release_range(&mut self, _address: Address, _size: u64) {}

    fn map(&mut self, address: Address, size: u64) -> bool {
        self.take(Action::SegmentMap, Some(address), size, None);
        true
    }

    fn unmap(&mut self, address: Address, size: u64) {
        self.take(Action::SegmentUnmap, Some(address), size, None);
    }

    fn total_bytes(&self) -> u64 {
        UNKNOWN_TOTAL
    }

    fn free_bytes(&self) -> u64 {
        UNKNOWN_TOTAL
    }

    fn synchronize(&mut self, waiting: &mut [Address]) {
        let mut done = 0;
        while let Some(entry) = self.peek()
            && entry.action == Action::FreeCompleted
        {
            match waiting[done..].iter().position(|address| *address == entry.address) {
                Some(at) => {
                    waiting[done..].swap(0, at);
                    done += 1;
                }
                None => self.differ("the model waits for no such block".to_owned()),
            }
            self.next += 1;
        }
        for address in &waiting[done..] {
            self.differ(format!("the model completes the free at {address:#x}"));
        }
    }
}
