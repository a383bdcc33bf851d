//! The trace of a run: what the engine asked for, in a form that survives renames.
//!
//! Each action becomes a [`Step`]: a code, which is written here by hand and never changes, and
//! its figures. Names of types and of I/Os are left out (an [`IoId`](forebay_core::ids::IoId)
//! says how the engine keeps its tables). So two trees whose engines do the same have the same
//! traces. `scripts/same-traces` compares them.
//!
//! ```text
//!  time     code        figures
//!  152000   write       0 8192 12288 65536 4096 0     target, range, memory, checksums of, durable
//! ```

use forebay_core::action::{
    Action, Actions, DestageFault, Event, ExtentState, Io, IoOp, LogAction, PrimaryOp, Reply,
    ReplyData, Span, Target,
};
use forebay_core::config::Mode;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use forebay_core::status::IoStatus;
use forebay_core::write_back::format::group::{Entry, RecordKind};

/// One action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// When it was carried out.
    pub now: Nanos,
    /// What it is.
    pub code: &'static str,
    /// Its figures, in the order of the fields here.
    pub figures: Vec<u64>,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.now.0, self.code)?;
        self.figures.iter().try_for_each(|figure| write!(f, " {figure}"))
    }
}

/// A number that stands for a trace: FNV-1a, the same on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHash {
    /// How many steps.
    pub steps: u64,
    /// Of them all.
    pub hash: u64,
}

impl Default for TraceHash {
    fn default() -> Self {
        TraceHash { steps: 0, hash: 0xcbf2_9ce4_8422_2325 }
    }
}

impl TraceHash {
    /// One more step.
    pub fn add(&mut self, step: &Step) {
        self.steps += 1;
        step.code.bytes().for_each(|byte| self.mix(byte.into()));
        self.mix(step.now.0);
        step.figures.iter().for_each(|&figure| self.mix(figure));
    }

    fn mix(&mut self, value: u64) {
        self.hash = (self.hash ^ value).wrapping_mul(0x100_0000_01b3).rotate_left(23);
    }
}

/// An action as a step, with what it refers to in `actions`.
pub fn step(now: Nanos, action: &Action, actions: &Actions) -> Step {
    let mut figures = Vec::new();
    let code = match action {
        Action::Io(io) => io_step(io, &mut figures),
        Action::Copy { from, to } => {
            spans(&mut figures, &[*from, *to]);
            "copy"
        }
        Action::Zero { memory } => {
            spans(&mut figures, &[*memory]);
            "zero"
        }
        Action::Compare { found, expected, .. } => {
            spans(&mut figures, &[*found, *expected]);
            "compare"
        }
        Action::Log(index) => log_step(&actions.log[*index as usize], &mut figures),
        Action::Lease => "lease",
        Action::GrowStaging => "grow-staging",
        Action::Unlease(segment) => {
            figures.push(segment.0.into());
            "unlease"
        }
        Action::Renew(segment) => {
            figures.push(segment.0.into());
            "renew"
        }
        Action::Ring { memory } => {
            spans(&mut figures, &[*memory]);
            "index-page"
        }
        Action::Journal { memory } => {
            spans(&mut figures, &[*memory]);
            "journal"
        }
        Action::RevokeJournal => "revoke-journal",
        Action::Void => "void",
        Action::Revoke => "revoke",
        Action::Reply(reply) => reply_step(reply, actions, &mut figures),
        Action::Event(event) => event_step(event, &mut figures),
    };
    Step { now, code, figures }
}

fn spans(figures: &mut Vec<u64>, spans: &[Span]) {
    figures.extend(spans.iter().flat_map(|span| [span.offset, span.len.into()]));
}

fn add<const N: usize>(figures: &mut Vec<u64>, more: [u64; N]) {
    figures.extend(more);
}

fn range_of(range: ByteRange) -> [u64; 2] {
    [range.start, range.end]
}

fn io_step(io: &Io, figures: &mut Vec<u64>) -> &'static str {
    figures.push(match io.target {
        Target::Backend => 0,
        Target::Flash => 1,
        Target::Log => 2,
        Target::Ring => 3,
        Target::Journal => 4,
    });
    figures.extend(range_of(io.range));
    match io.op {
        IoOp::Read { memory } => {
            spans(figures, &[memory]);
            figures.push(io.checksum_piece.into());
            "read"
        }
        IoOp::Write { memory, durable } => {
            spans(figures, &[memory]);
            add(figures, [io.checksum_piece.into(), durable.into()]);
            "write"
        }
        IoOp::Progress { flushed, through } => {
            add(figures, [flushed.0, through.0]);
            "progress"
        }
        IoOp::Flush => "flush",
        IoOp::Discard => "discard",
        IoOp::WriteZeroes { may_unmap, fast_only } => {
            add(figures, [may_unmap.into(), fast_only.into()]);
            "write-zeroes"
        }
        IoOp::Extents => "extents",
    }
}

fn log_step(action: &LogAction, figures: &mut Vec<u64>) -> &'static str {
    match *action {
        LogAction::OpenSegment {
            memory,
            segment,
            ordinal,
            generation,
            first_group,
            first_sequence,
            durable,
            epoch,
            phase,
        } => {
            spans(figures, &[memory]);
            add(figures, [segment.0.into(), ordinal, generation.0, first_group.0]);
            add(figures, [first_sequence.0, durable.0, epoch.0, phase.into()]);
            "log-segment"
        }
        LogAction::OpenGroup { memory, number, generation, first_sequence, phase } => {
            spans(figures, &[memory]);
            add(figures, [number.0, generation.0, first_sequence.0, phase.into()]);
            "log-group"
        }
        LogAction::Stage { memory, data, record } => {
            spans(figures, &[memory, data]);
            let Entry { range, epoch, kind, more } = record;
            let is_zero = match kind {
                RecordKind::Write => 0,
                RecordKind::Zero => 1,
            };
            figures.extend(range_of(range));
            add(figures, [epoch.0, is_zero, more.into()]);
            "log-stage"
        }
        LogAction::SealGroup { memory, durable, summary } => {
            spans(figures, &[memory]);
            figures.push(durable.0);
            spans(figures, summary.as_slice());
            "log-seal"
        }
        LogAction::SealSegment {
            memory,
            segment,
            ordinal,
            generation,
            first_group,
            first_sequence,
            groups,
            bytes,
        } => {
            spans(figures, &[memory]);
            add(figures, [segment.0.into(), ordinal, generation.0, first_group.0]);
            add(figures, [first_sequence.0, groups.into(), bytes.into()]);
            "log-summary"
        }
    }
}

fn reply_step(reply: &Reply, actions: &Actions, figures: &mut Vec<u64>) -> &'static str {
    add(figures, [reply.tag.0, status(reply.status), reply.submitted.0]);
    match reply.data {
        ReplyData::None => "reply",
        ReplyData::Slots { first, count } => {
            spans(figures, &actions.slices[first as usize..][..count as usize]);
            "reply-slots"
        }
        ReplyData::Buffer { data, buffer } => {
            spans(figures, &[data, buffer.span]);
            figures.extend(range_of(buffer.window));
            "reply-buffer"
        }
        ReplyData::Extents { first, count } => {
            let extents = &actions.extents[first as usize..][..count as usize];
            figures.extend(extents.iter().flat_map(|extent| [extent.len, state(extent.state)]));
            "reply-extents"
        }
        ReplyData::Difference { offset } => {
            figures.push(offset);
            "reply-difference"
        }
    }
}

fn state(state: ExtentState) -> u64 {
    match state {
        ExtentState::Allocated => 0,
        ExtentState::Hole => 1,
        ExtentState::Zero => 2,
        ExtentState::Uncached => 3,
        ExtentState::Clean => 4,
        ExtentState::Dirty => 5,
    }
}

fn status(status: IoStatus) -> u64 {
    match status {
        IoStatus::Ok => 0,
        IoStatus::IoError => 1,
        IoStatus::TimedOut => 2,
        IoStatus::NoSpace => 3,
        IoStatus::Unsupported => 4,
        IoStatus::ReadOnly => 5,
        IoStatus::Invalid => 6,
        IoStatus::ShuttingDown => 7,
        IoStatus::Miscompare => 8,
        IoStatus::Reserved => 9,
    }
}

fn event_step(event: &Event, figures: &mut Vec<u64>) -> &'static str {
    let (code, found) = match *event {
        Event::GridMoved { offset } => ("event-grid-moved", vec![offset]),
        Event::GridAdvice { offset } => ("event-grid-advice", vec![offset]),
        Event::FlashFailed { status: why } => ("event-flash-failed", vec![status(why)]),
        Event::RingFailed { status: why } => ("event-index-failed", vec![status(why)]),
        Event::LogRevoked => ("event-log-revoked", vec![]),
        Event::JournalRevoked => ("event-journal-revoked", vec![]),
        Event::JournalNotRevoked => ("event-journal-not-revoked", vec![]),
        Event::LogNotRevoked => ("event-log-not-revoked", vec![]),
        Event::RingNotVoided => ("event-index-not-voided", vec![]),
        Event::SlotQuarantined { offset } => ("event-slot-quarantined", vec![offset]),
        Event::ChecksumMismatch { offset } => ("event-checksum-mismatch", vec![offset]),
        Event::PrimaryFails { op, status: why, offset, is_destaging } => {
            ("event-primary-fails", vec![primary(op), status(why), offset, is_destaging.into()])
        }
        Event::PrimaryWorks { op, failed } => ("event-primary-works", vec![primary(op), failed]),
        Event::BackendTimedOut { range } => ("event-timed-out", range_of(range).to_vec()),
        Event::LogFailed { status: why } => ("event-log-failed", vec![status(why)]),
        Event::LogCorrupt { range } => ("event-log-corrupt", range_of(range).to_vec()),
        Event::DestageFailed { fault, status: why } => {
            let fault = match fault {
                DestageFault::PrimaryStorage => 0,
                DestageFault::LogRead => 1,
                DestageFault::Note => 2,
                DestageFault::Journal => 3,
            };
            ("event-destage-failed", vec![fault, status(why)])
        }
        Event::DestagingResumed => ("event-destaging-resumed", vec![]),
        Event::LogThrottles => ("event-log-throttles", vec![]),
        Event::LogFull => ("event-log-full", vec![]),
        Event::LogHasRoom => ("event-log-has-room", vec![]),
        Event::ModeChanged { mode } => ("event-mode", vec![mode_of(mode)]),
        Event::RamShrunk { end } => ("event-ram-shrunk", vec![end]),
        Event::FlashShrunk { end } => ("event-flash-shrunk", vec![end]),
        Event::FormerWritesAtRisk => ("event-former-at-risk", vec![]),
        Event::UnflushedWritesAtRisk { bytes } => ("event-unflushed-at-risk", vec![bytes]),
    };
    figures.extend(found);
    code
}

fn primary(op: PrimaryOp) -> u64 {
    match op {
        PrimaryOp::Read => 0,
        PrimaryOp::Write => 1,
        PrimaryOp::Flush => 2,
    }
}

fn mode_of(mode: Mode) -> u64 {
    match mode {
        Mode::WriteThrough => 0,
        Mode::WriteAround => 1,
        Mode::WriteBack => 2,
        Mode::WriteOnly => 3,
        Mode::PassThrough => 4,
        Mode::Monitor => 5,
    }
}
