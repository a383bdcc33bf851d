//! The one loop that carries out what an engine asks for.
//!
//! ```text
//!  engine ──Actions──► carry_out ──one call for each──► Executor: a shard, the simulator, timed runs, tests, benchmarks
//! ```
//! An executor says how each kind of action is carried out on its devices. In which order, and that nothing is left out,
//! is the same for all. So a crash in the simulator happens between the same steps as one of a shard.

use crate::action::{Action, Actions, Event, Io, LogAction, Reply, Span};
use crate::ids::{IoId, SegmentId};

/// Carries out actions, one method for each kind. See [`Action`] for what each has to do.
pub trait Executor {
    /// Starts an I/O.
    fn start(&mut self, io: Io);
    /// Copies bytes within the disk's memory.
    fn copy(&mut self, from: Span, to: Span);
    /// Fills memory with zeroes.
    fn zero(&mut self, memory: Span);
    /// Compares what was found with what is expected; answered with `Engine::compared`.
    fn compare(&mut self, id: IoId, found: Span, expected: Span);
    /// Builds a piece of the write log in memory.
    fn build(&mut self, action: LogAction);
    /// Leases a segment for the log; answered with `Engine::leased`.
    fn lease(&mut self);
    /// Takes memory for the rest of the groups; answered with `Engine::staging_grown`.
    fn grow_staging(&mut self);
    /// Gives a segment of the log back.
    fn unlease(&mut self, segment: SegmentId);
    /// Leases a segment of the log anew; answered with `Engine::leased`.
    fn renew(&mut self, segment: SegmentId);
    /// Copies the pages of the cache index that are to be written into memory.
    fn copy_index(&mut self, memory: Span);
    /// Copies what is to be written to the destage journal into memory, and dates it.
    fn copy_journal(&mut self, memory: Span);
    /// Notes that the destage journal does not count any more; answered with `Engine::journal_revoked`.
    fn revoke_journal(&mut self);
    /// Notes that the cache index is void; answered with `Engine::voided`.
    fn void(&mut self);
    /// Notes that the log is revoked; answered with `Engine::revoked`.
    fn revoke(&mut self);
    /// Answers a request, whose data may be slices or extents of `actions`.
    fn reply(&mut self, reply: &Reply, actions: &Actions);
    /// Tells the operator.
    fn event(&mut self, event: Event);
}

impl Actions {
    /// Has everything carried out, in order.
    pub fn carry_out(&self, executor: &mut impl Executor) {
        for action in &self.list {
            match *action {
                Action::Io(io) => executor.start(io),
                Action::Copy { from, to } => executor.copy(from, to),
                Action::Zero { memory } => executor.zero(memory),
                Action::Compare { id, found, expected } => executor.compare(id, found, expected),
                Action::Log(index) => executor.build(self.log[index as usize]),
                Action::Lease => executor.lease(),
                Action::GrowStaging => executor.grow_staging(),
                Action::Unlease(segment) => executor.unlease(segment),
                Action::Renew(segment) => executor.renew(segment),
                Action::Ring { memory } => executor.copy_index(memory),
                Action::Journal { memory } => executor.copy_journal(memory),
                Action::RevokeJournal => executor.revoke_journal(),
                Action::Void => executor.void(),
                Action::Revoke => executor.revoke(),
                Action::Reply(ref reply) => executor.reply(reply, self),
                Action::Event(event) => executor.event(event),
            }
        }
    }
}

/// An executor of one engine.
pub trait Runs: Executor {
    /// Lets the engine proceed: what it asks for, unless it has nothing to ask for.
    fn proceed(&mut self) -> Option<Actions>;

    /// Everything of it was carried out; the list may be used again.
    fn carried_out(&mut self, actions: Actions);
}

/// Carries out what the engine asks for until it asks for nothing.
pub fn run(executor: &mut impl Runs) {
    while let Some(actions) = executor.proceed() {
        actions.carry_out(executor);
        executor.carried_out(actions);
    }
}
