//! Changes of data that wait after a start until what a former process sent can land no more.
//!
//! A process that was killed leaves writes behind of which nobody knows the answer, and its successor connects at once.
//! The server may carry them out later than what the successor sends. So for the fence time from its start on the
//! successor reads and flushes, but changes nothing.

use forebay_core::ids::Nanos;

use crate::backend::BackendIo;

/// See the module.
#[derive(Debug, Default)]
pub(super) enum Hold {
    /// Nothing of before is known to be under way.
    #[default]
    Off,
    /// From the attachment on, for so long.
    Wanted(Nanos),
    /// Until then, with what waits, in order.
    On(Nanos, Vec<BackendIo>),
}

impl Hold {
    /// It is attached.
    pub(super) fn begin(&mut self, now: Nanos) {
        if let Hold::Wanted(time) = *self {
            *self = Hold::On(now.plus(time), Vec::new());
        }
    }

    /// True when the I/O waits here.
    pub(super) fn takes(&mut self, io: &BackendIo) -> bool {
        match self {
            Hold::On(_, waiting) if io.changes_data() => {
                waiting.push(*io);
                true
            }
            Hold::On(..) | Hold::Off | Hold::Wanted(_) => false,
        }
    }

    /// The I/Os that have waited long enough, in order.
    pub(super) fn end(&mut self, now: Nanos) -> Vec<BackendIo> {
        match self {
            Hold::On(until, waiting) if *until <= now => {
                let waiting = std::mem::take(waiting);
                *self = Hold::Off;
                waiting
            }
            Hold::On(..) | Hold::Off | Hold::Wanted(_) => Vec::new(),
        }
    }

    /// When it ends.
    pub(super) fn deadline(&self) -> Nanos {
        match self {
            Hold::On(until, _) => *until,
            Hold::Off | Hold::Wanted(_) => Nanos::NEVER,
        }
    }
}
