//! A process dies, and primary storage still carries out what it had sent (an NBD server, a kernel).
//!
//! ```text
//!  death ─► start: the engine is unsettled, changes are held ──── the fence time is over ─► held changes go on,
//!    │                                                              (a death begins it anew)   the engine is told
//!    └─ writes, discards, zeroes in flight land at any time before that, wholly or in part
//! ```
//! As in `forebay-shard`, and `nbd/hold.rs` of `forebay-backends`: reads and flushes are not held. A start that has to change
//! primary storage, or to flush all that was sent, waits until nothing can land.

use forebay_core::action::{Io, Target};
use forebay_core::ids::Nanos;

use crate::device::{Pending, changes};
use crate::planted::Planted;
use crate::world::{Event, World};

/// An I/O that waits.
#[derive(Debug)]
struct Held {
    number: u64,
    io: Io,
    data: Vec<u8>,
    checksums: Vec<u32>,
}

/// What a former process may have left behind.
#[derive(Debug, Default)]
pub(crate) struct Former {
    /// It ended in order, with no I/O under way.
    pub has_ended: bool,
    /// It did not see the end of what it had sent.
    pub is_unanswered: bool,
    /// Changes wait.
    holds: bool,
    held: Vec<Held>,
}

impl World<'_> {
    /// The process has ended, which may leave something behind.
    pub(crate) fn end_former(&mut self) {
        let has_ended = std::mem::take(&mut self.former.has_ended);
        let was_held = std::mem::take(&mut self.former.holds);
        self.former.held.clear();
        self.former.is_unanswered = self.setup.fence.is_some() && (!has_ended || was_held);
        self.coverage.unsettled_deaths += u64::from(was_held && !has_ended);
    }

    /// The process died, and this was in flight: perhaps it lands later.
    pub(crate) fn leave(&mut self, number: u64, pending: Pending) {
        let Some(fence) = self.setup.fence.filter(|_| self.former.is_unanswered) else { return };
        if pending.executed || !changes(&pending.io) || !self.chance.chance(700) {
            return;
        }
        let when = self.now.plus(Nanos(self.chance.below(fence.0)));
        self.log.line(self.now, || format!("{:?} lands at {when:?}", pending.io.range));
        self.oracle.expect_late(pending.versions());
        self.queue.plan(when, Event::Land(number));
        self.backend.leave(number, pending);
    }

    /// It lands.
    pub(crate) fn on_land(&mut self, number: u64) {
        let Some(range) = self.backend.land_late(number) else { return };
        self.log.line(self.now, || format!("{range:?} lands"));
        self.coverage.landed_late += 1;
        let arrival = self.clients.arrive();
        self.oracle.landed(arrival, range);
        self.check_claims(range);
    }

    /// An engine begins; with what a former process left, perhaps.
    pub(crate) fn begin_unsettled(&mut self) {
        if !self.backend.is_unsettled() {
            // A start has waited for it, or there was nothing.
            self.oracle.settled();
        }
        let Some(fence) = self.setup.fence.filter(|_| self.former.is_unanswered) else { return };
        if self.setup.config.backend.read_only {
            return;
        }
        self.former.holds = true;
        self.engine.set_unsettled(self.planted != Planted::EarlySettled);
        self.queue.plan(self.now.plus(fence), Event::Settled);
        if self.may_die() && self.chance.chance(250) {
            let soon = self.chance.below(fence.0);
            self.queue.plan(self.now.plus(Nanos(soon)), Event::Death);
        }
    }

    /// The process dies, or ends in order, or only loses its session.
    pub(crate) fn die_soon(&mut self) {
        match self.chance.below(10) {
            0 | 1 if self.crashes_left == 0 => self.end_in_order(),
            2 => self.lose_session(),
            _ => self.crash(false),
        }
    }

    fn may_die(&self) -> bool {
        let is_over = self.clients.made >= self.setup.load.requests;
        !is_over && !self.setup.log_dies
    }

    /// Perhaps the process dies while this change is under way.
    pub(crate) fn die_with(&mut self, io: &Io) {
        let is_change = io.target == Target::Backend && changes(io);
        if self.setup.fence.is_some() && is_change && self.may_die() && self.chance.chance(20) {
            let soon = self.chance.skewed(500_000);
            self.queue.plan(self.now.plus(Nanos(soon)), Event::Death);
        }
    }

    /// Nothing of a former process can land any more.
    pub(crate) fn on_settled(&mut self) {
        assert!(!self.backend.is_unsettled(), "all of it lands in time");
        self.log.line(self.now, || "settled".into());
        self.former.holds = false;
        for Held { number, io, data, checksums } in std::mem::take(&mut self.former.held) {
            self.issue(number, io, data, checksums);
        }
        self.engine.set_unsettled(false);
        if self.may_die() && self.chance.chance(200) {
            // What has landed may not be flushed yet.
            let soon = self.chance.skewed(5_000_000);
            self.queue.plan(self.now.plus(Nanos(soon)), Event::PowerLoss);
        }
        self.engine.tick(self.now, &mut self.actions);
    }

    /// True when changes of primary storage wait.
    pub(crate) fn holds(&self, io: &Io) -> bool {
        self.former.holds
            && io.target == Target::Backend
            && changes(io)
            && self.planted != Planted::UnheldChange
    }

    /// It waits.
    pub(crate) fn hold(&mut self, number: u64, io: Io, data: Vec<u8>, checksums: Vec<u32>) {
        self.coverage.changes_held += 1;
        self.former.held.push(Held { number, io, data, checksums });
    }
}
