//! Another size of a disk's RAM cache.
//!
//! ```text
//!   larger:  memory made usable ─► engine ─► Wanted ─► population gives it, part by part ─► have_memory
//!   smaller: engine moves what stays ─► event: the rest is empty ─► its memory goes back to the kernel
//! ```
//! Whoever gives memory touches it, from another thread. So that this ends before the memory is given back, each resize has
//! a number, which changes when the resize is certain.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use forebay_backends::size::rounded;
use forebay_core::engine::metadata_bytes;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use forebay_frontends::client::Port;
use forebay_host::events::Severity;
use forebay_io::arena::Arena;

use super::ShardDisk;
use super::buffers::AT_ONCE;
use super::detach::ENDING;

/// A RAM cache has another size.
pub(crate) struct Resized {
    /// What memory it waits for.
    pub(crate) missing: Option<Missing>,
    /// Bytes of metadata that the cache needs with it.
    pub(crate) metadata_bytes: u64,
}

/// Memory that the RAM cache of a disk waits for.
#[derive(Debug)]
pub struct Missing {
    /// The disk's name.
    pub disk: Arc<str>,
    /// All of its memory.
    pub memory: Weak<Arena>,
    /// The part of it.
    pub place: ByteRange,
    /// Resizes of the cache before it waited: it waits until the next.
    pub resizes: u64,
}

impl ShardDisk {
    /// Goes on with a RAM cache of `bytes`.
    ///
    /// # Errors
    /// It cannot have that much, or it is ending. Nothing has changed.
    pub(crate) fn resize_ram(&mut self, now: Nanos, bytes: u64) -> Result<Resized, String> {
        if self.is_ending() {
            return Err(ENDING.to_owned());
        }
        let Port { engine, memory, actions, .. } = &mut self.port;
        let room = engine.ram_room().map_or(0, |room| room.len());
        if bytes > room && room > 0 {
            return Err(format!(
                "a disk at work has room for a RAM cache of {}, and not of {}: it can have more from the next start on",
                rounded(room),
                rounded(bytes)
            ));
        }
        let place = engine.check_ram(bytes).map_err(|error| error.to_string())?;
        // Whoever gives memory by now touches none of this, and goes on when there is none.
        memory.make_usable(place.end).map_err(|error| {
            format!("there is no memory for a RAM cache of {}: {error}", rounded(bytes))
        })?;
        let resizes = self.shown.resizes.fetch_add(1, Ordering::AcqRel) + 1;
        let missing = engine.resize_ram(now, bytes, actions).map_err(|error| error.to_string())?;
        let (disk, memory) = (self.name.clone(), Arc::downgrade(memory));
        let missing = missing.map(|place| Missing { disk, memory, place, resizes });
        Ok(Resized { missing, metadata_bytes: metadata_bytes(engine.config()) })
    }

    /// Memory is there up to `end`, of what was wanted after so many resizes.
    pub(crate) fn have_memory(&mut self, resizes: u64, end: u64) {
        if self.shown.resizes.load(Ordering::Acquire) == resizes {
            self.port.engine.have_memory(end);
        }
    }

    /// Gives back, from the next turn on, the memory that no slot of the RAM cache takes.
    pub(crate) fn give_ram_back(&mut self) {
        self.turn.gives_ram_back = true;
    }

    /// Gives back some of it, if there is any: a cache of many GiB takes the kernel longer than other disks of the shard are to
    /// wait.
    pub(super) fn give_some_ram_back(&mut self) {
        if !self.turn.gives_ram_back {
            return;
        }
        let spare = self.port.engine.ram_spare();
        let given =
            spare.map_or(Ok(false), |it| self.port.memory.give_back(it.start, AT_ONCE.into()));
        self.turn.gives_ram_back = given.unwrap_or_else(|error| {
            self.report(Severity::Warning, format!("the kernel took no memory back: {error}"));
            false
        });
    }
}
