//! Requests in flight, in memory that the hypervisor keeps: what a daemon that was killed had taken and not answered.
//!
//! One region for all queues; each begins on a cache line. Layout of a queue (vhost-user, "Inflight I/O tracking",
//! split ring), little as everything here:
//!
//! | at | bytes | field | |
//! |---|---|---|---|
//! | 0 | 8 | features | [`CACHE_OFF`]: the guest has switched its write cache off |
//! | 8 | 2 | version | 1; 0: never used |
//! | 10 | 2 | desc_num | descriptors of the ring |
//! | 12 | 2 | last_batch_head | the request that was answered last |
//! | 14 | 2 | used_idx | answers of which it is known that their marks are gone |
//! | 16 + 16·n | 1 | inflight | request n is in flight |
//! | 22 + 16·n | 2 | next | the one answered before it |
//! | 24 + 16·n | 8 | counter | its place in the order of arrival |
//!
//! ```text
//!   take    counter, inflight = 1                                    … then it is submitted
//!   answer  next = last_batch_head, last_batch_head = n | used ring | inflight = 0, used_idx
//! ```
//! **Invariant:** after a kill at any point, every request is either answered in the used ring or marked. Between the
//! used ring and the mark it is both: then `used_idx` is one behind, and the mark of `last_batch_head` is taken off.
//!
//! The specification gives `features` no meaning. A hypervisor tells a new daemon what was in
//! flight, but not what the guest wrote to the configuration space. So that is kept here, where
//! it lives exactly as long as the device.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vm_memory::{Bytes, MmapRegion, VolatileMemory, VolatileSlice};

use super::memory;

/// Bit of `features`: the guest has switched its write cache off.
pub const CACHE_OFF: u64 = 1 << 63;

const VERSION: u16 = 1;
const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
const LINE_BYTES: usize = 64;

const FEATURES_AT: usize = 0;
const VERSION_AT: usize = 8;
const SIZE_AT: usize = 10;
const LAST_AT: usize = 12;
const USED_AT: usize = 14;

/// Why a region cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The kernel's reason.
    #[error("memory for requests in flight cannot be had: {0}")]
    Kernel(String),
    /// It is for other queues.
    #[error("memory for requests in flight of {have} bytes, {queues} queues of {size} need {need}")]
    Short {
        /// Its bytes.
        have: u64,
        /// Queues it is for.
        queues: u16,
        /// Descriptors of each.
        size: u16,
        /// Bytes that takes.
        need: u64,
    },
    /// What it says is none of ours.
    #[error("requests in flight of version {version} for a ring of {found}; it has {size}")]
    Foreign {
        /// Its version.
        version: u16,
        /// The size that it is for.
        found: u16,
        /// The size of the ring.
        size: u16,
    },
}

/// The memory of all queues of a device.
#[derive(Clone, Debug)]
pub struct Region {
    memory: Arc<MmapRegion>,
    queues: u16,
    size: u16,
}

/// The part of one queue.
#[derive(Debug)]
pub struct Inflight {
    region: Region,
    start: usize,
    counter: u64,
}

impl Region {
    /// Bytes for so many queues of `size` descriptors.
    pub fn bytes(queues: u16, size: u16) -> u64 {
        (usize::from(queues) * queue_bytes(size)) as u64
    }

    /// A new region in a file without a name.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create(queues: u16, size: u16) -> Result<(Region, File), RegionError> {
        let kernel = |error: rustix::io::Errno| RegionError::Kernel(error.to_string());
        let file = memfd_create("forebay-inflight", MemfdFlags::CLOEXEC).map_err(kernel)?;
        ftruncate(&file, Region::bytes(queues, size)).map_err(kernel)?;
        let file = File::from(file);
        let copy = file.try_clone().map_err(|error| RegionError::Kernel(error.to_string()))?;
        let bytes = Region::bytes(queues, size);
        Ok((Region::open(copy, 0, bytes, queues, size)?, file))
    }

    /// The region that a daemon before us, or we, have made.
    ///
    /// # Errors
    /// It is too short, or cannot be mapped.
    pub fn open(
        file: File,
        offset: u64,
        bytes: u64,
        queues: u16,
        size: u16,
    ) -> Result<Region, RegionError> {
        let need = Region::bytes(queues, size);
        if bytes < need {
            return Err(RegionError::Short { have: bytes, queues, size, need });
        }
        let memory = memory::map(file, offset, need).map_err(RegionError::Kernel)?;
        Ok(Region { memory: Arc::new(memory), queues, size })
    }

    /// Queues that it is for.
    pub fn queues(&self) -> u16 {
        self.queues
    }

    /// Whether the guest had its write cache switched off when this was last noted.
    pub fn is_cache_off(&self) -> bool {
        (0..self.queues).any(|queue| {
            let start = usize::from(queue) * queue_bytes(self.size);
            self.load::<u64>(start + FEATURES_AT) & CACHE_OFF != 0
        })
    }

    /// Notes whether the guest has its write cache switched off.
    pub fn note_cache(&self, is_off: bool) {
        for queue in 0..self.queues {
            let at = usize::from(queue) * queue_bytes(self.size) + FEATURES_AT;
            let others = self.load::<u64>(at) & !CACHE_OFF;
            self.store(at, others | if is_off { CACHE_OFF } else { 0 });
        }
    }

    fn slice(&self) -> VolatileSlice<'_> {
        self.memory.as_volatile_slice()
    }

    fn load<T: vm_memory::AtomicAccess>(&self, at: usize) -> T {
        self.slice().load(at, Ordering::Acquire).expect("within the region, and aligned")
    }

    /// Each store is made before the next one: what was killed in between has made the first ones.
    fn store<T: vm_memory::AtomicAccess>(&self, at: usize, value: T) {
        self.slice().store(value, at, Ordering::Release).expect("within the region, and aligned");
    }
}

impl Inflight {
    /// The part of `queue`, whose ring has `size` descriptors and has `used` answers now; and the requests to be
    /// submitted again, in their order.
    ///
    /// # Errors
    /// It belongs to another kind of ring.
    pub fn open(
        region: &Region,
        queue: u16,
        size: u16,
        used: u16,
    ) -> Result<(Inflight, Vec<u16>), RegionError> {
        if queue >= region.queues || size > region.size {
            return Err(RegionError::Foreign { version: 0, found: region.size, size });
        }
        let start = usize::from(queue) * queue_bytes(region.size);
        let mut inflight = Inflight { region: region.clone(), start, counter: 0 };
        let (version, found) = (inflight.load::<u16>(VERSION_AT), inflight.load::<u16>(SIZE_AT));
        if !(version == 0 || version == VERSION && found == size) {
            return Err(RegionError::Foreign { version, found, size });
        }
        if version == 0 {
            inflight.store(SIZE_AT, size);
            inflight.store(USED_AT, used);
            inflight.store(VERSION_AT, VERSION);
            return Ok((inflight, Vec::new()));
        }
        inflight.unmark_answered(size, used);
        Ok(inflight.marked(size)).map(|heads| (inflight, heads))
    }

    /// Marks a request before it is submitted. True when it is marked already, in the order of which it keeps its place.
    pub fn take(&mut self, head: u16) -> bool {
        if self.load::<u8>(entry(head)) != 0 {
            return true;
        }
        self.store(entry(head) + 8, self.counter);
        self.counter = self.counter.wrapping_add(1);
        self.store(entry(head), 1_u8);
        false
    }

    /// Takes the mark off a request that was not submitted after all.
    pub fn put_back(&self, head: u16) {
        self.store(entry(head), 0_u8);
    }

    /// To be called right before the request goes to the used ring …
    pub fn answering(&self, head: u16) {
        self.store(entry(head) + 6, self.load::<u16>(LAST_AT));
        self.store(LAST_AT, head);
    }

    /// … and right after, when that has `used` answers.
    pub fn answered(&self, head: u16, used: u16) {
        self.store(entry(head), 0_u8);
        self.store(USED_AT, used);
    }

    /// Takes off the marks of what was answered by somebody who was killed before he could.
    fn unmark_answered(&self, size: u16, used: u16) {
        let answered = used.wrapping_sub(self.load::<u16>(USED_AT));
        let mut head = self.load::<u16>(LAST_AT);
        // More than a ring holds: the ring began anew, after all had been answered.
        if answered <= size {
            for _ in 0..answered {
                if head >= size {
                    break;
                }
                self.store(entry(head), 0_u8);
                head = self.load(entry(head) + 6);
            }
        }
        self.store(USED_AT, used);
    }

    /// What is marked, in its order. Each counter is read once: the hypervisor can change it meanwhile, and a sort whose
    /// keys change panics.
    fn marked(&mut self, size: u16) -> Vec<u16> {
        let is_marked = |head: &u16| self.load::<u8>(entry(*head)) != 0;
        let counted = |head| (self.load::<u64>(entry(head) + 8), head);
        let mut heads: Vec<(u64, u16)> = (0..size).filter(is_marked).map(counted).collect();
        heads.sort_unstable();
        let counter = heads.last().map_or(0, |(counter, _)| *counter);
        self.counter = counter.wrapping_add(1);
        heads.into_iter().map(|(_, head)| head).collect()
    }

    fn load<T: vm_memory::AtomicAccess>(&self, at: usize) -> T {
        self.region.load(self.start + at)
    }

    fn store<T: vm_memory::AtomicAccess>(&self, at: usize, value: T) {
        self.region.store(self.start + at, value);
    }
}

/// Where a request is noted.
fn entry(head: u16) -> usize {
    HEADER_BYTES + usize::from(head) * ENTRY_BYTES
}

fn queue_bytes(size: u16) -> usize {
    (HEADER_BYTES + usize::from(size) * ENTRY_BYTES).next_multiple_of(LINE_BYTES)
}

#[cfg(test)]
mod tests;
