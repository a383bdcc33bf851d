//! Moving the block grid to where the guest's data are aligned.
//!
//! Not with a write log: its pages lie on the grid. And only while the cache is nearly empty: it starts afresh on the new grid. Otherwise the engine
//! only says which offset would fit.

use crate::action::Event;
use crate::cx::Cx;
use crate::engine::Parts;
use crate::geometry::{Grid, PAGE};
use crate::request::{Op, Request};
use crate::requests::in_flight::Job;

/// Requests after which a grid that does not fit is worth an advice.
const ADVICE_SAMPLES: u32 = 4096;
/// Blocks that a tier may hold when the grid moves: they are dropped at once.
const MOVED_MAX: u32 = 4096;

impl Parts {
    /// Looks at a request's alignment, and moves the grid while that is still cheap.
    pub(super) fn observe(&mut self, request: &Request, cx: &mut Cx<'_>) {
        let Some(detector) = self.cache.alignment() else { return };
        match request.op {
            Op::Read { .. } | Op::Write { .. } => detector.observe(request.range),
            _ => return,
        }
        let Some(offset) = detector.verdict() else { return };
        let seen_enough = detector.samples() >= ADVICE_SAMPLES;
        let fits_backend = offset % u64::from(cx.config.backend.logical_block) == 0;
        if !fits_backend || offset == cx.grid.offset() % PAGE {
            return;
        }
        if self.write_back.is_none() && self.cache.is_hardly_filled(MOVED_MAX) {
            self.move_grid(offset, cx);
        } else if seen_enough {
            self.cache.stop_watching_alignment();
            cx.event(Event::GridAdvice { offset });
        }
    }

    /// Starts the cache afresh on a grid that fits the guest.
    fn move_grid(&mut self, offset: u64, cx: &mut Cx<'_>) {
        // Reads under way were laid out on the old grid: they finish without the cache, or hold no granules of the new one.
        for request in self.requests.table.iter_mut() {
            if let Job::Read(job) = &mut request.job {
                job.use_cache = false;
                job.admit = false;
                job.exact = true;
            }
        }
        self.cache.clear();
        cx.misses.forget_blocks();
        cx.grid = Grid::new(cx.config.backend.size, cx.config.block_size, offset);
        self.requests.ledger.observer.move_grid(offset);
        self.cache.stop_watching_alignment();
        cx.event(Event::GridMoved { offset });
    }
}
