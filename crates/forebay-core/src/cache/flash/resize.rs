//! Another size of the flash cache, while the disk is at work (`tier/resize.rs`).
//!
//! **Limits:** one call looks at no more than [`Cache::visits_max`] slots. The tables of slots are made anew once for each
//! change, in one call, but for the index ([`Index::make_room`](crate::index::Index::make_room)).

use super::super::{Cache, slots, working};
use crate::action::Event;
use crate::cx::{Cx, Shared};
use crate::ids::SlotId;

impl Cache {
    /// Goes on with as much flash as the configuration says.
    pub(crate) fn resize_flash(&mut self, shared: &Shared) {
        let Some(slots) = slots(shared.config.flash_bytes, &shared.config) else { return };
        let Some(flash) = working(&mut self.flash) else { return };
        if slots >= flash.tier.dir.slots() {
            flash.tier.grow(slots);
        } else {
            flash.tier.begin_shrinking(slots);
            flash.fills.cancel_from(SlotId(slots));
        }
        self.streams.resize(slots);
        self.edges.resize(slots);
        self.stale.renumber();
        self.plan_changes(shared);
    }

    /// False when there is no flash tier, or it was given up.
    pub(crate) fn is_flash_working(&self) -> bool {
        self.flash.as_ref().is_some_and(|flash| flash.is_working())
    }

    /// True while slots of flash are to go.
    pub(crate) fn is_flash_shrinking(&self) -> bool {
        self.flash.as_ref().is_some_and(|flash| flash.tier.is_shrinking())
    }

    /// True while some of them have to be emptied.
    pub(in crate::cache) fn is_flash_vacating(&self) -> bool {
        let flash = self.flash.as_ref().filter(|flash| flash.is_working());
        flash.is_some_and(|flash| flash.tier.is_vacating())
    }

    /// Empties some of the slots of flash that are to go.
    pub(in crate::cache) fn vacate_flash(&mut self, cx: &mut Cx<'_>) {
        if !self.is_flash_vacating() {
            return;
        }
        let mut visits = self.visits_max();
        while let Some(flash) = working(&mut self.flash)
            && let Some(block) = flash.tier.next_leaving(&mut visits)
        {
            if self.stale.has(block) {
                self.drop_stale(block);
            } else if flash.tier.remove(block) {
                cx.counters.flash_evicted += 1;
                cx.counters.evict_ops += 1;
            }
        }
        // They may have waited until all free slots were looked at.
        self.write_waiting_fills(cx);
    }

    /// Slots of flash that are to go are empty when these changes are recorded; `None`: not yet, or there are none.
    pub(crate) fn flash_vacated(&mut self) -> Option<u64> {
        working(&mut self.flash)?.tier.vacated()
    }

    /// They are recorded: the slots are forgotten.
    pub(crate) fn end_flash_shrinking(&mut self, cx: &mut Cx<'_>) {
        let Some(flash) = working(&mut self.flash) else { return };
        flash.tier.end_shrinking();
        self.stale.renumber();
        let end = self.flash_bytes(&cx.grid);
        cx.event(Event::FlashShrunk { end });
    }
}
