//! Dropping everything that is cached, some slots at a time: a large cache has millions.
//!
//! ```text
//!   asked ─► sweeping: nothing is looked up, nothing kept ─► swept ─► the ring knows durably ─► done
//!               └─ a part of the slots each tick
//! ```
//! Requests that arrive after it was asked for are not answered from what was there, nor is it kept by those under
//! way. When it is done a restart does not find it either. What is dirty stays in the log.

use super::Engine;
use super::inflight::Job;
use crate::action::Actions;
use crate::directory::Directory;
use crate::geometry::GranuleMask;
use crate::ids::{Nanos, SlotId};

/// Slots that one tick empties at most: some tenths of a millisecond.
const SLOTS_MAX: u32 = 512;
/// Ticks that the smallest cache takes at least.
const TICKS_MIN: u32 = 4;
/// Between two ticks.
const PAUSE: Nanos = Nanos::from_micros(10);

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Dropping {
    /// Nobody asked for it, or it is done.
    #[default]
    No,
    /// Slots before this one, those of RAM first, are empty; the next tick is due then; so many blocks were dropped.
    Sweeping(u32, Nanos, u64),
    /// Everything is empty. The ring has to know of these changes; so many blocks were dropped.
    Swept(u64, u64),
}

impl Dropping {
    /// True while something of before is still there.
    pub(super) fn is_sweeping(self) -> bool {
        match self {
            Dropping::Sweeping(..) => true,
            Dropping::No | Dropping::Swept(..) => false,
        }
    }
}

impl Engine {
    /// Begins to drop everything that is cached; [`Engine::dropped`] tells when that is done.
    pub fn drop_cache(&mut self, now: Nanos, actions: &mut Actions) {
        self.begin_drop(now);
        self.run(now, actions);
    }

    /// The same for who is running.
    pub(super) fn begin_drop(&mut self, now: Nanos) {
        for request in self.requests.iter_mut() {
            if let Job::Read(job) = &mut request.job {
                // It may hold bytes of before.
                job.admit = false;
            }
        }
        for fill in self.fills.iter_mut() {
            fill.cancelled = GranuleMask::ALL;
        }
        self.dropping = Dropping::Sweeping(0, now, 0);
    }

    /// How many blocks were dropped, once, when everything is.
    pub fn dropped(&mut self) -> Option<u64> {
        let Dropping::Swept(changes, blocks) = self.dropping else { return None };
        if !self.is_recorded(changes) {
            return None;
        }
        self.dropping = Dropping::No;
        Some(blocks)
    }

    /// When more is to be dropped.
    pub(super) fn drop_deadline(&self) -> Nanos {
        match self.dropping {
            Dropping::Sweeping(_, due, _) => due,
            Dropping::No | Dropping::Swept(..) => Nanos::NEVER,
        }
    }

    /// Drops some, if that is due.
    pub(super) fn drop_more(&mut self, now: Nanos) {
        let Dropping::Sweeping(first, due, mut blocks) = self.dropping else { return };
        if now < due {
            return;
        }
        let slots = |dir: Option<&Directory>| dir.map_or(0, Directory::slots);
        let in_ram = slots(self.ram.as_ref().map(|ram| &ram.dir));
        let all = in_ram + slots(self.flash.as_ref().map(|flash| &flash.dir));
        let end = all.min(first + (all / TICKS_MIN).clamp(1, SLOTS_MAX));
        for slot in first..end {
            blocks += u64::from(match slot.checked_sub(in_ram) {
                None => self.empty_ram_slot(SlotId(slot)),
                Some(slot) => self.empty_flash_slot(SlotId(slot)),
            });
        }
        self.dropping = Dropping::Sweeping(end, now.plus(PAUSE), blocks);
        if end == all {
            let changes = self.cache_changes();
            self.dropping = Dropping::Swept(changes, blocks);
            // It is asked to record that.
            self.is_recorded(changes);
        }
    }

    /// True when the block was in RAM alone.
    fn empty_ram_slot(&mut self, slot: SlotId) -> bool {
        let ram = self.ram.as_mut().expect("it is one of its slots");
        let Some(block) = ram.dir.block_of(slot) else { return false };
        ram.dir.remove(slot);
        ram.retire(slot);
        self.flash.as_ref().is_none_or(|flash| flash.find(block).is_none())
    }

    fn empty_flash_slot(&mut self, slot: SlotId) -> bool {
        let flash = self.flash.as_mut().expect("it is one of its slots");
        let holds = flash.dir.block_of(slot).is_some();
        if holds {
            flash.dir.remove(slot);
            flash.retire(slot);
        }
        holds
    }
}
