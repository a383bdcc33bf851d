//! The cache: the blocks of the disk that RAM and flash hold.
//!
//! ```text
//!  fetched ──install──┐                                                  ┌──hit──► slots of the reply
//!  written ──update───┴─► RAM slot ──evicted──► admitted? ─► flash slot ─┴─lookup─► copied, or read
//!                           │                      ▲             │
//!  wrong ────invalidate─────┴──────────────────────┼─────────────┘      destaged ──offer──► flash
//!                                                  └─ without RAM
//! ```
//! | file | what it is |
//! |---|---|
//! | `lookup.rs` | what the tiers have of a block, and its uses |
//! | `install.rs` | bytes on their way into RAM, and from there to flash |
//! | `update.rs` | what a write changes |
//! | `invalidate.rs`, `stale.rs`, `dropping.rs` | what became wrong, at once or part by part |
//! | `changes.rs`, `resize.rs` | settings that change, and the size of RAM |
//! | `ram.rs`, `flash/` | the tiers |
//! | `directory.rs` | which block is in which slot, for both tiers |
//! | `streams.rs`, `edges.rs`, `returns.rs` | what is worth a place, learned from what comes back |
//! | `alignment.rs` | where the guest's data are aligned |
//! | `restore.rs` | the flash tier of a former run |
//!
//! This part knows nothing of requests, of the write log or of primary storage. What it needs of the log a flow
//! passes in: which granules of a block are not destaged ([`Undestaged`]). The memory of its copies comes from
//! `cx.buffers`. The cache index records what flash holds, and asks for [`Unrecorded`].
//!
//! **Invariants**
//! - A granule is valid only with its newest bytes: whoever installs holds the range, and a write cancels what is
//!   on its way to flash.
//! - A slot that a reply refers to does not change until [`Cache::unpin`].
//! - A slot that an I/O uses gets no other block until the I/O ended.
//! - A stale block counts as not cached, however far the sweep is.
//!
//! **Limits:** tables and lists have the sizes that they were made with. A call drops at most
//! [`Cache::visits_max`] blocks. A fill that finds no slot or no memory is skipped and counted.

pub mod alignment;
mod changes;
pub mod directory;
mod dropping;
mod edges;
mod flash;
mod install;
mod invalidate;
mod lookup;
mod ram;
mod resize;
mod restore;
mod returns;
mod sequential;
mod stale;
mod streams;
mod update;

use crate::config::{Config, GridOffset};
use crate::cx::Cx;
use crate::geometry::{ByteRange, GranuleMask, Grid, PAGE};
use crate::ids::BlockIndex;
use crate::stats::{TierState, TierStatistics};
use crate::status::IoStatus;

use alignment::AlignmentDetector;
use changes::Changing;
use dropping::Dropping;
use edges::Edges;
use flash::Flash;
pub(crate) use flash::fills::WRITES_MAX as FILL_WRITES_MAX;
pub(crate) use flash::unrecorded::Unrecorded;
pub(crate) use flash::{BlockBytes, Offer};
pub(crate) use lookup::{Found, SlotRun};
use ram::RamTier;
use stale::Stale;
use streams::Streams;
pub(crate) use update::Update;

/// Of some granules of a block those that the write log holds and primary storage may not have.
pub(crate) type Undestaged<'a> = &'a dyn Fn(BlockIndex, GranuleMask, &Grid) -> GranuleMask;

/// See the module.
#[derive(Debug)]
pub(crate) struct Cache {
    ram: Option<RamTier>,
    flash: Option<Flash>,
    stale: Stale,
    dropping: Dropping,
    changing: Changing,
    streams: Streams,
    edges: Edges,
    /// Observes until the grid is settled.
    alignment: Option<AlignmentDetector>,
}

impl Cache {
    /// An empty cache, whose RAM slots begin at `base` of the disk's memory. `ios_max`: I/Os in flight at most.
    pub(crate) fn new(config: &Config, grid: &Grid, base: u64, ios_max: u32) -> Cache {
        let (ram, flash) = (slots(config.ram_bytes, config), slots(config.flash_bytes, config));
        let cached = flash.or(ram);
        Cache {
            ram: ram.map(|slots| RamTier::new(slots, grid, config, base)),
            flash: flash.map(|slots| Flash::new(slots, grid, config, ios_max as usize)),
            stale: Stale::new(),
            dropping: Dropping::No,
            changing: Changing::new(config.policy),
            streams: Streams::new(cached),
            edges: Edges::new(cached),
            alignment: match config.grid_offset {
                GridOffset::Fixed(_) => None,
                GridOffset::Auto => Some(AlignmentDetector::default()),
            },
        }
    }

    /// Bytes of metadata that a configuration needs.
    pub(crate) fn metadata_bytes_for(config: &Config) -> u64 {
        let granules = (config.block_size / (config.block_size / 64).max(PAGE)) as u32;
        let all = |bytes: u64| u32::try_from(bytes / config.block_size).unwrap_or(u32::MAX);
        let slots = |bytes| Some(all(bytes)).filter(|&slots| slots > 0);
        let ram = slots(config.ram_bytes);
        let flash = slots(config.flash_bytes);
        ram.map_or(0, |slots| RamTier::metadata_bytes_for(slots, granules, config.policy))
            + flash.map_or(0, |slots| {
                let slots = (slots, all(config.flash_room));
                Flash::metadata_bytes_for(slots, granules, config.policy)
            })
    }

    /// Bytes of the disk's memory that the RAM tier of a configuration has a place in.
    pub(crate) fn memory_bytes_for(config: &Config) -> u64 {
        let room = slots(config.ram_bytes, config)
            .and(slots(config.ram_room.max(config.ram_bytes), config));
        room.map_or(0, |slots| u64::from(slots) * config.block_size)
    }

    /// Bytes of flash that it takes.
    pub(crate) fn flash_bytes(&self, grid: &Grid) -> u64 {
        self.flash.as_ref().map_or(0, |flash| u64::from(flash.tier.dir.slots()) * grid.block_size())
    }

    /// Slots of the flash tier, where there is one.
    pub(crate) fn flash_slots(&self) -> Option<u32> {
        self.flash.as_ref().map(|flash| flash.tier.dir.slots())
    }

    /// True with a RAM tier.
    pub(crate) fn has_ram(&self) -> bool {
        self.ram.is_some()
    }

    /// True with a flash tier, even one that was given up.
    pub(crate) fn has_flash(&self) -> bool {
        self.flash.is_some()
    }

    /// No RAM slot is used before its memory is there. The cache is empty.
    pub(crate) fn withhold_ram(&mut self) {
        if let Some(ram) = &mut self.ram {
            ram.withhold();
        }
    }

    /// The disk's memory is there up to `end`.
    pub(crate) fn have_memory(&mut self, end: u64) {
        if let Some(ram) = &mut self.ram {
            ram.have_memory(end);
        }
    }

    /// Where the RAM slots are in the disk's memory.
    pub(crate) fn ram_place(&self) -> Option<ByteRange> {
        self.ram.as_ref().map(RamTier::place)
    }

    /// Every reply handed out so far was sent or copied: slots are no longer read.
    #[inline]
    pub(crate) fn unpin(&mut self) {
        if let Some(ram) = &mut self.ram {
            ram.unpin_all();
        }
    }

    /// Fills being written to flash.
    pub(crate) fn fills_at_device(&self) -> u32 {
        self.flash.as_ref().map_or(0, |flash| flash.fills.writes())
    }

    /// Takes note of how an I/O on a flash slot ended; true when the tier has to be given up.
    pub(crate) fn note_flash_io(&mut self, status: IoStatus) -> bool {
        self.flash.as_mut().is_some_and(|flash| flash.tier.note(status))
    }

    /// Gives the flash tier up: nothing is read from it any more, RAM or no cache goes on.
    pub(crate) fn fail_flash(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        if let Some(flash) = working(&mut self.flash) {
            flash.fail(status, cx);
        }
    }

    /// Watches how the guest's data are aligned.
    pub(crate) fn watch_alignment(&mut self) {
        self.alignment = Some(AlignmentDetector::default());
    }

    /// The grid is settled.
    pub(crate) fn stop_watching_alignment(&mut self) {
        self.alignment = None;
    }

    /// The detector of how the guest's data are aligned, while the grid is not settled.
    pub(crate) fn alignment(&mut self) -> Option<&mut AlignmentDetector> {
        self.alignment.as_mut()
    }

    /// True while no tier has more blocks than `used_max`, or 5 % of its slots filled.
    pub(crate) fn is_hardly_filled(&self, used_max: u32) -> bool {
        let hardly = |used: u32, slots: u32| {
            used <= used_max && u64::from(used) * 20 < u64::from(slots).max(20)
        };
        let flash = self.flash.as_ref().filter(|flash| flash.is_working());
        self.stale.is_empty()
            && self.ram.as_ref().is_none_or(|ram| hardly(ram.dir.len(), ram.dir.slots()))
            && flash.is_none_or(|flash| hardly(flash.tier.dir.len(), flash.tier.dir.slots()))
    }

    /// Drops everything at once, because blocks are something else from now on.
    pub(crate) fn clear(&mut self) {
        if let Some(flash) = &mut self.flash {
            flash.clear();
        }
        if let Some(ram) = &mut self.ram {
            ram.clear();
        }
    }

    /// Figures of both tiers, RAM first.
    pub(crate) fn statistics(&self) -> [TierStatistics; 2] {
        let ram = self.ram.as_ref().map(|ram| TierStatistics {
            state: TierState::Active,
            failure: None,
            slots: ram.dir.slots().into(),
            slots_ready: ram.slots_ready().into(),
            slots_used: ram.dir.filled().into(),
            slots_kept_empty: 0,
            metadata_bytes: ram.metadata_bytes(),
        });
        let flash = self.flash.as_ref().map(|Flash { tier, .. }| TierStatistics {
            state: tier.failed.map_or(TierState::Active, |_| TierState::Failed),
            failure: tier.failed,
            slots: tier.dir.slots().into(),
            slots_ready: tier.dir.slots().into(),
            slots_used: tier.failed.map_or(tier.dir.filled(), |_| 0).into(),
            slots_kept_empty: tier.kept_empty().into(),
            metadata_bytes: tier.metadata_bytes(),
        });
        [ram.unwrap_or_default(), flash.unwrap_or_default()]
    }

    /// Panics when the part contradicts itself. For tests; slow.
    pub(crate) fn check_invariants(&self) {
        if let Some(ram) = &self.ram {
            ram.check_invariants();
        }
        if let Some(flash) = &self.flash {
            flash.check_invariants();
        }
    }

    /// The directory of the flash tier.
    #[cfg(test)]
    pub(crate) fn flash_directory(&self) -> Option<&directory::Directory> {
        self.flash.as_ref().map(|flash| &flash.tier.dir)
    }

    /// The blocks that are stale.
    #[cfg(test)]
    pub(crate) fn stale(&mut self) -> &mut Stale {
        &mut self.stale
    }
}

/// Slots of a tier of so many bytes; `None`: there is no such tier.
fn slots(bytes: u64, config: &Config) -> Option<u32> {
    Some((bytes / config.block_size) as u32).filter(|&slots| slots > 0)
}

/// The flash tier, unless there is none or it was given up.
fn working(flash: &mut Option<Flash>) -> Option<&mut Flash> {
    flash.as_mut().filter(|flash| flash.is_working())
}

#[cfg(test)]
pub(crate) mod tests;
