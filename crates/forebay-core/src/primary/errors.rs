//! Errors of primary storage, as events for an administrator.
//!
//! ```text
//!            an I/O fails                 an I/O has succeeded since, and none failed for a while
//!   Works ─────────────────► Fails ─────────────────────────────────────────────────► Works
//!                            └─◄─┘ one more fails: counted
//! ```
//! Reads, writes and flushes have a state each: storage that is full still answers reads. What succeeds proves most of its own
//! operation. Of another one, which nobody may ask for any more, it proves something when none has failed for longer.

use crate::action::{Event, PrimaryOp};
use crate::cx::Cx;
use crate::cx::io::{IoEntry, IoKind, RequestIo};
use crate::ids::Nanos;
use crate::stats::PrimaryErrors;
use crate::status::IoStatus;
use crate::write_back::DestageIo;

/// Time without a failure after which primary storage works again. The destager tries again sooner.
const CALM: Nanos = Nanos::from_millis(15_000);
/// The same where other operations alone have succeeded.
const CALM_OTHERWISE: Nanos = Nanos::from_millis(300_000);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    failing: [Option<Failing>; 3],
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    /// Of the last failure.
    status: IoStatus,
    offset: u64,
    at: Nanos,
    /// Failures so far.
    count: u64,
    /// When it counts as over, if nothing fails until then.
    over_at: Nanos,
}

impl Errors {
    /// When [`Errors::note_calm`] is due.
    pub(crate) fn deadline(&self) -> Nanos {
        self.failing.iter().flatten().map(|failing| failing.over_at).min().unwrap_or(Nanos::NEVER)
    }

    /// What fails now.
    pub(crate) fn now(&self) -> Vec<PrimaryErrors> {
        let shown = |op: PrimaryOp| {
            let Failing { status, offset, count, .. } = self.failing[op as usize]?;
            Some(PrimaryErrors { operation: op, status, last_offset: offset, failed: count })
        };
        PrimaryOp::ALL.into_iter().filter_map(shown).collect()
    }
}

impl Errors {
    /// An I/O on primary storage has ended.
    pub(crate) fn note_io(&mut self, entry: &IoEntry, status: IoStatus, cx: &mut Cx<'_>) {
        let Some((op, is_destaging)) = operation(&entry.kind) else { return };
        match status {
            IoStatus::Ok => self.note_success(op),
            // What not every storage can do.
            IoStatus::Unsupported => {}
            status => {
                let offset = entry.range.start;
                let failing = &mut self.failing[op as usize];
                if failing.is_none() {
                    cx.event(Event::PrimaryFails { op, status, offset, is_destaging });
                }
                let count = failing.map_or(0, |failing| failing.count) + 1;
                *failing =
                    Some(Failing { status, offset, at: cx.now, count, over_at: Nanos::NEVER });
            }
        }
    }

    fn note_success(&mut self, op: PrimaryOp) {
        for of in PrimaryOp::ALL {
            if let Some(failing) = &mut self.failing[of as usize] {
                let calm = if of == op { CALM } else { CALM_OTHERWISE };
                failing.over_at = failing.over_at.min(failing.at.plus(calm));
            }
        }
    }

    /// Tells what works again.
    pub(crate) fn note_calm(&mut self, cx: &mut Cx<'_>) {
        for op in PrimaryOp::ALL {
            let failing = &mut self.failing[op as usize];
            if let Some(was) = failing.take_if(|failing| failing.over_at <= cx.now) {
                let event = Event::PrimaryWorks { op, failed: was.count };
                cx.event(event);
            }
        }
    }
}

/// What an I/O asks of primary storage, and whether the destager does; `None`: nothing, or a hint.
fn operation(kind: &IoKind) -> Option<(PrimaryOp, bool)> {
    match kind {
        IoKind::Request(_, io) => match io {
            RequestIo::Fetch | RequestIo::Edge => Some((PrimaryOp::Read, false)),
            RequestIo::Write | RequestIo::Zero => Some((PrimaryOp::Write, false)),
            RequestIo::Flash { .. } | RequestIo::Log { .. } | RequestIo::Overlay { .. } => None,
            RequestIo::Extents | RequestIo::Compare { .. } => None,
        },
        IoKind::PrimaryFlush => Some((PrimaryOp::Flush, false)),
        IoKind::Destager(io) => match io {
            DestageIo::Below { .. } | DestageIo::ZeroEdge { .. } => Some((PrimaryOp::Read, true)),
            DestageIo::Write { .. } | DestageIo::Zero { .. } => Some((PrimaryOp::Write, true)),
            DestageIo::Flush { .. } => Some((PrimaryOp::Flush, true)),
            DestageIo::Read { .. } | DestageIo::Note => None,
            DestageIo::Piece { .. } | DestageIo::Journal => None,
        },
        IoKind::Orphan { .. } | IoKind::Fill { .. } | IoKind::Index | IoKind::Log(_) => None,
    }
}
