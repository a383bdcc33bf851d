//! An administrator at a disk at work: destaging is paused for a while, primary storage is flushed, the disk grows.

use forebay_core::engine::Growth;
use forebay_core::ids::Nanos;

use crate::rng::Rng;
use crate::setup::Setup;
use crate::world::{Event, World};

/// A flush of primary storage that an administrator waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedFlush {
    number: u64,
    /// What was acknowledged before.
    mark: u64,
}

/// Primary storage is longer than the disk, which may grow, and an administrator comes now and then.
pub(crate) fn visit(rng: &mut Rng, setup: &mut Setup) {
    setup.visits = rng.between(2, 20) as u32;
    let backend = &mut setup.config.backend;
    let logical = u64::from(backend.logical_block);
    if rng.chance(500) {
        setup.longer_by = rng.between(1, backend.size / logical / 2) * logical;
    }
}

impl World<'_> {
    pub(crate) fn on_visit(&mut self) {
        match self.chance.below(3) {
            0 if self.setup.config.write_log.is_some() => {
                self.log.line(self.now, || "pause".to_owned());
                self.engine.pause_destaging(self.now, true, &mut self.actions);
                let on = self.now.plus(Nanos(self.chance.between(1, 200_000_000)));
                self.queue.plan(on, Event::Resume);
            }
            1 if self.setup.longer_by > 0 => self.try_to_grow(),
            _ => self.ask_for_flush(),
        }
    }

    /// Destaging goes on.
    pub(crate) fn on_resume(&mut self) {
        self.log.line(self.now, || "resume".to_owned());
        self.engine.pause_destaging(self.now, false, &mut self.actions);
    }

    /// The disk has what primary storage has, unless something is in flight at its end.
    fn try_to_grow(&mut self) {
        let size = self.setup.config.backend.size + self.setup.longer_by;
        self.log.line(self.now, || format!("grow to {size}"));
        match self.engine.grow(self.now, size, &mut self.actions).expect("it is longer") {
            Growth::Busy => self.coverage.busy_ends += 1,
            Growth::Done => {
                self.coverage.growths += 1;
                self.setup.longer_by = 0;
                self.setup.config.backend.size = size;
                self.pool.disk_size = size;
                self.clients.workload.grow(size);
            }
        }
    }

    /// What was acknowledged without the log is to be durable.
    fn ask_for_flush(&mut self) {
        let mark = self.oracle.flush_mark();
        let number = self.engine.flush_primary_storage(self.now, &mut self.actions);
        // With a log the promise is another one.
        let beside = number.filter(|_| self.setup.config.write_log.is_none());
        self.asked_flush = beside.map(|number| AskedFlush { number, mark });
    }

    /// It has come to its end, or not yet.
    pub(crate) fn look_at_flush(&mut self) {
        let Some(AskedFlush { number, mark }) = self.asked_flush else { return };
        if !self.actions.list.is_empty() {
            // A loss may be told of with what is to be carried out.
            return;
        }
        if let Some(is_flushed) = self.engine.flushed_primary_storage(number) {
            self.asked_flush = None;
            if is_flushed && !self.engine.has_untold_loss() {
                self.coverage.flushes_asked += 1;
                self.oracle.flushed(mark, false).unwrap_or_else(|wrong| panic!("{wrong}"));
            }
        }
    }
}
