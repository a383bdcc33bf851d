//! The engine's events in words for an operator.

use forebay_core::action::{DestageFault, Event};

use forebay_host::events::{EventCode, EventKind, Severity};

/// How much an event matters, its code, and what happened.
pub fn describe(event: Event) -> (EventKind, String) {
    let (severity, text) = words(event);
    (EventKind { severity, code: Some(code(event)) }, text)
}

fn code(event: Event) -> EventCode {
    match event {
        Event::GridMoved { .. } => EventCode::GridMoved,
        Event::GridAdvice { .. } => EventCode::GridAdvice,
        Event::FlashFailed { .. } => EventCode::FlashFailed,
        Event::RingFailed { .. } => EventCode::IndexFailed,
        Event::LogRevoked => EventCode::LogRevoked,
        Event::LogNotRevoked => EventCode::LogNotRevoked,
        Event::JournalRevoked => EventCode::JournalRevoked,
        Event::JournalNotRevoked => EventCode::JournalNotRevoked,
        Event::RingNotVoided => EventCode::IndexNotVoided,
        Event::SlotQuarantined { .. } => EventCode::SlotQuarantined,
        Event::ChecksumMismatch { .. } => EventCode::ChecksumMismatch,
        Event::PrimaryFails { .. } => EventCode::PrimaryFails,
        Event::PrimaryWorks { .. } => EventCode::PrimaryWorks,
        Event::BackendTimedOut { .. } => EventCode::PrimaryTimedOut,
        Event::LogFailed { .. } => EventCode::LogFailed,
        Event::LogCorrupt { .. } => EventCode::LogCorrupt,
        Event::DestageFailed { .. } => EventCode::DestageFailed,
        Event::DestagingResumed => EventCode::DestagingResumed,
        Event::LogThrottles => EventCode::LogThrottles,
        Event::LogFull => EventCode::LogFull,
        Event::LogHasRoom => EventCode::LogHasRoom,
        Event::ModeChanged { .. } => EventCode::ModeChanged,
        Event::RamShrunk { .. } => EventCode::RamShrunk,
        Event::FlashShrunk { .. } => EventCode::FlashShrunk,
        Event::FormerWritesAtRisk => EventCode::FormerWritesAtRisk,
        Event::UnflushedWritesAtRisk { .. } => EventCode::UnflushedWritesAtRisk,
    }
}

fn words(event: Event) -> (Severity, String) {
    match event {
        Event::GridMoved { offset } => (
            Severity::Info,
            format!(
                "the grid of cache blocks was moved to byte offset {offset} to fit the guest's alignment; the cache started afresh"
            ),
        ),
        Event::GridAdvice { offset } => (
            Severity::Info,
            format!(
                "the guest's requests would fit a grid at byte offset {offset} better; set grid-offset = \"{offset}\" and start again"
            ),
        ),
        Event::FlashFailed { status } => (
            Severity::Error,
            format!(
                "flash was given up ({status}); the disk goes on with RAM and primary storage"
            ),
        ),
        Event::RingFailed { status } => (
            Severity::Warning,
            format!(
                "the index of the cache on flash cannot be written ({status}): the next start begins with an empty cache"
            ),
        ),
        Event::LogRevoked => (
            Severity::Error,
            "flash is dead: what memory has is written to primary storage, and the log on that flash will not be used \
             again. When the disk is in another mode, run 'forebay disk flush' for the other disks of the pool, and replace \
             the flash device"
                .to_owned(),
        ),
        Event::LogNotRevoked => (
            Severity::Error,
            "flash is dead, and Forebay cannot note beside primary storage that the log on it must not be used again: \
             it keeps back what memory has. The folder there cannot be written, or has the sidecar of another disk by now"
                .to_owned(),
        ),
        Event::JournalRevoked => (
            Severity::Warning,
            "the destage journal cannot be written: it is not used any more, and destaging goes on in strict order. The \
             next start makes a new one"
                .to_owned(),
        ),
        Event::JournalNotRevoked => (
            Severity::Error,
            "the destage journal cannot be written, and Forebay cannot note beside primary storage that it must not be \
             used: destaging waits for the journal. Make space and write access in the folder of the image; if that has \
             the sidecar of another disk by now, the image was replaced"
                .to_owned(),
        ),
        Event::RingNotVoided => (
            Severity::Error,
            "flash cannot note that its cache must not be used again: this disk needs a new pool before it starts \
             again. The pool has the write logs of all its disks: run 'forebay disk flush' for each disk that \
             'forebay pool show' names, and stop the daemon. Then remove the file, or run 'blkdiscard --zeroout' for the \
             device"
                .to_owned(),
        ),
        Event::SlotQuarantined { offset } => (
            Severity::Warning,
            format!(
                "flash failed a write at byte {offset} of the disk's share; that slot is not used any more"
            ),
        ),
        Event::ChecksumMismatch { offset } => (
            Severity::Warning,
            format!(
                "flash returned wrong bytes at byte {offset} of the disk's share; they were read from primary storage instead"
            ),
        ),
        Event::PrimaryFails { op, status, offset, is_destaging } => {
            let then = match is_destaging {
                true => "destaging tries again",
                false => "the guest gets an error",
            };
            let text = format!(
                "primary storage fails {op}: {status}, at byte {offset}; {then}. 'forebay disk show' counts the next ones"
            );
            (Severity::Error, text)
        }
        Event::PrimaryWorks { op, failed } => {
            (Severity::Info, format!("primary storage works again: {failed} {op} failed"))
        }
        Event::BackendTimedOut { range } => (
            Severity::Error,
            format!(
                "primary storage did not answer in time at bytes {}..{}",
                range.start, range.end
            ),
        ),
        Event::LogFailed { status } => (
            Severity::Error,
            format!(
                "the write log failed ({status}): Forebay destages what it holds, writes no more to it, and the disk goes \
                 on without it"
            ),
        ),
        Event::LogCorrupt { range } => (
            Severity::Error,
            format!(
                "the write log cannot be read back for bytes {}..{}, which primary storage does not have",
                range.start, range.end
            ),
        ),
        Event::DestageFailed { fault, status } => {
            let what = match fault {
                DestageFault::PrimaryStorage => "met an error of primary storage",
                DestageFault::LogRead => "could not read the write log on flash",
                DestageFault::Journal => "could not write the destage journal",
                DestageFault::Note => "could not note on flash how far it is",
            };
            (Severity::Warning, format!("destaging {what} ({status}); it tries again"))
        }
        Event::DestagingResumed => (
            Severity::Warning,
            "destaging was paused and goes on: the write log has to be emptied".to_owned(),
        ),
        Event::LogThrottles => (
            Severity::Warning,
            "the write log fills: writers slow down to the speed of destaging; 'forebay disk show' says what limits it"
                .to_owned(),
        ),
        Event::LogFull => (
            Severity::Error,
            "the write log is full: writers wait for destaging; 'forebay disk show' says what limits it".to_owned(),
        ),
        Event::LogHasRoom => (
            Severity::Info,
            "the write log has room again: writers go on at full speed".to_owned(),
        ),
        Event::ModeChanged { mode } => {
            (Severity::Info, format!("the disk is now in mode {mode}"))
        }
        Event::RamShrunk { .. } => (
            Severity::Info,
            "the RAM cache is as small as it was to be, and the rest of its memory is free".to_owned(),
        ),
        Event::FlashShrunk { .. } => (
            Severity::Info,
            "the cache on flash is as small as it was to be, and others may have the rest of its flash"
                .to_owned(),
        ),
        Event::FormerWritesAtRisk => (
            Severity::Error,
            "primary storage failed the first flush, or lost the connection before it: what a former run wrote may be \
             lost, and a flush of the guest fails for it"
                .to_owned(),
        ),
        Event::UnflushedWritesAtRisk { bytes } => (
            Severity::Error,
            format!(
                "up to {bytes} bytes that were written and not flushed may be lost; the guest's next flush fails"
            ),
        ),
    }
}
