//! Moving the block grid to where the guest's data are aligned.
//!
//! Not with a write log: its pages lie on the grid. And only while the cache is nearly empty: it starts afresh on the new grid. Otherwise the engine
//! only says which offset would fit.

use super::Engine;
use super::inflight::Job;
use crate::action::{Action, Actions, Event};
use crate::alignment::AlignmentDetector;
use crate::geometry::{Grid, PAGE};
use crate::request::{Op, Request};

/// Requests after which a grid that does not fit is worth an advice.
const ADVICE_SAMPLES: u32 = 4096;
/// Blocks that a tier may hold when the grid moves: they are dropped at once.
const MOVED_MAX: u32 = 4096;

impl Engine {
    /// Says, when it knows, which grid would fit the guest better than the one that it was given.
    pub fn watch_alignment(&mut self) {
        self.alignment = Some(AlignmentDetector::default());
    }

    /// Looks at a request's alignment, and moves the grid while that is still cheap.
    pub(super) fn observe(&mut self, request: &Request, actions: &mut Actions) {
        let Some(detector) = &mut self.alignment else { return };
        match request.op {
            Op::Read { .. } | Op::Write { .. } => detector.observe(request.range),
            _ => return,
        }
        let Some(offset) = detector.verdict() else { return };
        let seen_enough = detector.samples() >= ADVICE_SAMPLES;
        let fits_backend = offset % u64::from(self.config.backend.logical_block) == 0;
        if !fits_backend || offset == self.grid.offset() % PAGE {
            return;
        }
        if self.log.is_none() && self.is_hardly_filled() {
            self.move_grid(offset, actions);
        } else if seen_enough {
            self.alignment = None;
            actions.list.push(Action::Event(Event::GridAdvice { offset }));
        }
    }

    /// True while less than 5 % of the cache is filled, and with no more than can be dropped at once.
    fn is_hardly_filled(&self) -> bool {
        let hardly = |used: u32, slots: u32| {
            used <= MOVED_MAX && u64::from(used) * 20 < u64::from(slots).max(20)
        };
        let flash = self.flash.as_ref().filter(|flash| flash.failed.is_none());
        self.stale.is_empty()
            && self.ram.as_ref().is_none_or(|r| hardly(r.dir.len(), r.dir.slots()))
            && flash.is_none_or(|f| hardly(f.dir.len(), f.dir.slots()))
    }

    /// Starts the cache afresh on a grid that fits the guest.
    fn move_grid(&mut self, offset: u64, actions: &mut Actions) {
        // Reads under way were laid out on the old grid: they finish without the cache.
        for request in self.requests.iter_mut() {
            if let Job::Read(job) = &mut request.job {
                job.use_cache = false;
                job.admit = false;
            }
        }
        self.fills.cancel_all(|_| true);
        if let Some(flash) = self.flash.as_mut().filter(|flash| flash.failed.is_none()) {
            flash.clear();
        }
        if let Some(ram) = &mut self.ram {
            while let Some(victim) = ram.dir.evict() {
                ram.retire(victim.slot);
            }
            ram.dir.clear();
        }
        self.grid = Grid::new(self.config.backend.size, self.config.block_size, offset);
        self.observer.move_grid(offset);
        self.alignment = None;
        actions.list.push(Action::Event(Event::GridMoved { offset }));
    }
}
