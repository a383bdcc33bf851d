//! Errors of primary storage, as events for an administrator.
//!
//! ```text
//!            an I/O fails                 one has succeeded since, and none failed for a while
//!   Works ─────────────────► Fails ─────────────────────────────────────────────────► Works
//!                            └─◄─┘ one more fails: counted
//! ```
//! Reads, writes and flushes have a state each: storage that is full still answers reads.

use crate::action::{Event, PrimaryOp};
use crate::engine::Parts;
use crate::engine::cx::Cx;
use crate::engine::io::{IoEntry, IoKind};
use crate::ids::Nanos;
use crate::stats::PrimaryErrors;
use crate::status::IoStatus;

/// Time without a failure after which primary storage works again. The destager tries again sooner.
const CALM: Nanos = Nanos::from_millis(15_000);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Primary {
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

impl Primary {
    /// When [`Engine::note_calm`] is due.
    pub(super) fn deadline(&self) -> Nanos {
        self.failing.iter().flatten().map(Failing::over_at).min().unwrap_or(Nanos::NEVER)
    }

    /// What fails now.
    pub(super) fn errors(&self) -> Vec<PrimaryErrors> {
        let shown = |op: PrimaryOp| {
            let Failing { status, offset, count, .. } = self.failing[op as usize]?;
            Some(PrimaryErrors { operation: op, status, last_offset: offset, failed: count })
        };
        PrimaryOp::ALL.into_iter().filter_map(shown).collect()
    }
}

impl Parts {
    /// An I/O on primary storage has ended.
    pub(super) fn note_primary(&mut self, entry: &IoEntry, status: IoStatus, cx: &mut Cx<'_>) {
        let Some((op, is_destaging)) = operation(&entry.kind) else { return };
        let failing = &mut self.primary.errors.failing[op as usize];
        let offset = entry.range.start;
        match failing {
            Some(failing) if status.is_ok() => failing.has_succeeded = true,
            None if status.is_ok() => {}
            // It says what it cannot do, once, and is not asked again.
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
    pub(super) fn note_calm(&mut self, cx: &mut Cx<'_>) {
        for op in PrimaryOp::ALL {
            let failing = &mut self.primary.errors.failing[op as usize];
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
        IoKind::BackendRead { .. } | IoKind::EdgeRead { .. } => Some((PrimaryOp::Read, false)),
        IoKind::Write { .. } | IoKind::Zero { .. } => Some((PrimaryOp::Write, false)),
        IoKind::Flush => Some((PrimaryOp::Flush, false)),
        IoKind::DestageBelow { .. } | IoKind::DestageZeroEdge { .. } => {
            Some((PrimaryOp::Read, true))
        }
        IoKind::DestageWrite { .. } | IoKind::DestageZero { .. } => Some((PrimaryOp::Write, true)),
        IoKind::DestageFlush { .. } => Some((PrimaryOp::Flush, true)),
        IoKind::Extents { .. } | IoKind::Orphan { .. } | IoKind::Compare { .. } => None,
        IoKind::FlashRead { .. } | IoKind::FlashFill { .. } => None,
        IoKind::RingFlush | IoKind::RingWrite => None,
        IoKind::LogWrite { .. }
        | IoKind::LogSummary
        | IoKind::LogFlush
        | IoKind::LogRead { .. }
        | IoKind::LogOverlay { .. }
        | IoKind::DestageRead { .. }
        | IoKind::DestageNote => None,
    }
}
