//! Errors of primary storage, as events for an administrator.
//!
//! ```text
//!            an I/O fails                 one has succeeded since, and none failed for a while
//!   Works ─────────────────► Fails ─────────────────────────────────────────────────► Works
//!                            └─◄─┘ one more fails: counted
//! ```
//! Reads, writes and flushes have a state each: storage that is full still answers reads.

use crate::action::{Event, PrimaryOp};
use crate::cx::Cx;
use crate::cx::io::{IoEntry, IoKind, RequestIo};
use crate::ids::Nanos;
use crate::stats::PrimaryErrors;
use crate::status::IoStatus;
use crate::write_back::DestageIo;

/// Time without a failure after which primary storage works again. The destager tries again sooner.
const CALM: Nanos = Nanos::from_millis(15_000);

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
    /// An I/O has succeeded since the last failure.
    has_succeeded: bool,
}

impl Failing {
    /// When it counts as over, if nothing fails until then.
    fn over_at(&self) -> Nanos {
        if self.has_succeeded { self.at.plus(CALM) } else { Nanos::NEVER }
    }
}

impl Errors {
    /// When [`Errors::note_calm`] is due.
    pub(crate) fn deadline(&self) -> Nanos {
        self.failing.iter().flatten().map(Failing::over_at).min().unwrap_or(Nanos::NEVER)
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
        let failing = &mut self.failing[op as usize];
        let offset = entry.range.start;
        match failing {
            Some(failing) if status.is_ok() => failing.has_succeeded = true,
            None if status.is_ok() => {}
            // What not every storage can do.
            _ if status == IoStatus::Unsupported => {}
            Some(Failing { count, .. }) => {
                let count = *count + 1;
                *failing =
                    Some(Failing { status, offset, at: cx.now, count, has_succeeded: false });
            }
            None => {
                *failing =
                    Some(Failing { status, offset, at: cx.now, count: 1, has_succeeded: false });
                let event = Event::PrimaryFails { op, status, offset, is_destaging };
                cx.event(event);
            }
        }
    }

    /// Tells what works again.
    pub(crate) fn note_calm(&mut self, cx: &mut Cx<'_>) {
        for op in PrimaryOp::ALL {
            let failing = &mut self.failing[op as usize];
            if let Some(was) = failing.take_if(|failing| failing.over_at() <= cx.now) {
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
