//! Memory of request buffers that was not in use for a while goes back to the host.
//!
//! A burst of long requests touches tens of MiB. With hundreds of disks that would be the memory of the host in the end. So
//! a disk that has touched more than the first 2 MiB of its buffers is looked at until it has given the rest back.

use forebay_core::ids::Nanos;
use forebay_frontends::client::Port;
use forebay_host::events::Severity;
use forebay_io::arena::Region;
use forebay_io::reactor::Reactor;

use super::ShardDisk;

/// Memory goes back that was not in use for so long.
pub(crate) const LOOK_EVERY: Nanos = Nanos::from_millis(2_000);
/// So much of it at a time: other disks of the shard wait meanwhile.
pub(super) const AT_ONCE: u32 = 8 << 20;

impl ShardDisk {
    /// Gives memory back, if it is time to look.
    pub(super) fn give_buffers_back(&mut self, now: Nanos, reactor: &mut Reactor) {
        if now < self.turn.buffers_due {
            return;
        }
        self.turn.buffers_due = Nanos::NEVER;
        let Port { engine, arena, .. } = &mut self.port;
        let Some(idle) = engine.idle_buffers(AT_ONCE.into()) else { return };
        let region = Region { arena: *arena, offset: idle.start, len: idle.len() as u32 };
        if let Err(error) = reactor.release(region) {
            self.report(Severity::Warning, format!("the kernel took no memory back: {error}"));
        }
    }

    /// Looks again later, if there may be something to give back then.
    pub(super) fn look_at_buffers_later(&mut self, now: Nanos) {
        if self.turn.buffers_due == Nanos::NEVER && self.port.engine.has_touched_buffers() {
            self.turn.buffers_due = now.plus(LOOK_EVERY);
        }
    }
}
