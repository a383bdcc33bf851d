//! The flash tier: what it holds, what is on its way to it, and what is let in.
//!
//! ```text
//!  offered ─► admission ─┬─► fills ──I/O──► tier
//!                        └─ no: remembered only
//! ```
//! **Invariants:** a granule of the tier is on primary storage. It lies wholly on the disk, so that every flash I/O
//! is a number of whole granules.

mod admission;
mod changes;
pub(super) mod fills;
mod offer;
mod resize;
pub(super) mod tier;
pub(super) mod unrecorded;

use crate::action::Event;
use crate::config::Config;
use crate::cx::{Cx, Shared};
use crate::geometry::{GranuleMask, Grid};
use crate::ids::BlockIndex;
use crate::misses::Fate;
use crate::policy::PolicyKind;
use crate::status::IoStatus;

use super::lookup::SlotRun;
use admission::Admission;
use fills::FlashFills;
pub(super) use offer::Offered;
pub(crate) use offer::{BlockBytes, Offer};
use tier::FlashTier;

/// See the module.
#[derive(Debug)]
pub(super) struct Flash {
    pub tier: FlashTier,
    pub fills: FlashFills,
    admission: Admission,
}

impl Flash {
    /// An empty tier. `ios_max`: I/Os in flight at most.
    pub(super) fn new(slots: u32, grid: &Grid, config: &Config, ios_max: usize) -> Flash {
        let is_recorded = config.ring.is_some();
        let room = (config.flash_room / config.block_size) as u32;
        Flash {
            tier: FlashTier::new((slots, room), grid, config, ios_max, is_recorded),
            fills: FlashFills::new(),
            admission: Admission::new(config),
        }
    }

    pub(super) fn metadata_bytes_for(slots: (u32, u32), granules: u32, policy: PolicyKind) -> u64 {
        FlashTier::metadata_bytes_for(slots, granules, policy)
    }

    /// Goes on as the configuration says.
    pub(super) fn tune(&mut self, shared: &Shared) {
        self.admission.tune(&shared.config, shared.now, &shared.counters);
    }

    /// False when it was given up.
    pub(super) fn is_working(&self) -> bool {
        self.tier.failed.is_none()
    }

    /// Gives the tier up: what it holds is not looked at any more.
    pub(super) fn fail(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        self.tier.failed = Some(status);
        self.end_waiting(cx);
        cx.event(Event::FlashFailed { status });
    }

    /// Drops every block, and what is on its way.
    pub(super) fn clear(&mut self) {
        self.fills.cancel_all(|_| true);
        if self.is_working() {
            self.tier.clear();
        }
    }

    /// Granules `mask` of `block` are old from now on; true when it had some of them.
    pub(super) fn invalidate(&mut self, block: BlockIndex, mask: GranuleMask) -> bool {
        self.fills.cancel(block, mask);
        self.tier.invalidate(block, mask)
    }

    /// Granules `mask` of `block` were overwritten: its place is kept for the new bytes.
    pub(super) fn overwrite(&mut self, block: BlockIndex, mask: GranuleMask) {
        self.fills.cancel(block, mask);
        self.tier.overwrite(block, mask);
    }

    /// A read of a slot ended; true when it delivered what was written there.
    pub(super) fn end_read(
        &mut self,
        at: SlotRun,
        status: IoStatus,
        checksums: &[u32],
        cx: &mut Cx<'_>,
    ) -> bool {
        let SlotRun { block, slot, first, end } = at;
        let is_right = status.is_ok() && self.tier.checksums(slot, first, end) == checksums;
        if status.is_ok() && !is_right {
            cx.counters.flash_checksum_errors += 1;
            let offset = self.tier.range(slot, first, end, cx.grid.granule_size()).start;
            cx.event(Event::ChecksumMismatch { offset });
        }
        if !is_right && self.tier.dir.find(block) == Some(slot) {
            self.tier.invalidate(block, GranuleMask::span(first, end));
            cx.misses.note_lost(block, Fate::Invalidated);
        }
        self.tier.unhold(slot);
        is_right
    }

    pub(super) fn check_invariants(&self) {
        self.tier.check_invariants();
        self.fills.check_invariants();
    }
}
