//! The engine's events in words for an operator.

use forebay_core::action::Event;
use forebay_core::config::Mode;

use crate::daemon::events::Severity;

/// How much an event matters, and what happened.
pub(crate) fn describe(event: Event) -> (Severity, String) {
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
                "flash was given up ({status:?}); the disk goes on with RAM and primary storage"
            ),
        ),
        Event::RingFailed { status } => (
            Severity::Warning,
            format!(
                "what the cache on flash holds is not recorded any more ({status:?}): it starts empty the next time"
            ),
        ),
        Event::LogRevoked => (
            Severity::Error,
            "flash is dead: what memory has is written to primary storage, and the log on that flash will not be used \
             again. Replace the flash device when the disk is in another mode"
                .to_owned(),
        ),
        Event::LogNotRevoked => (
            Severity::Error,
            "flash is dead, and it cannot be noted beside primary storage that the log on it must not be used again: \
             what memory has is kept back"
                .to_owned(),
        ),
        Event::RingNotVoided => (
            Severity::Error,
            "flash cannot note that its cache must not be used again: before this disk is started on this flash \
             the next time, remove the flash file, or zero the first MiB of the device"
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
                "the write log failed ({status:?}): nothing more is written to it, what it holds is destaged, and \
                 the disk goes on without it"
            ),
        ),
        Event::LogCorrupt { range } => (
            Severity::Error,
            format!(
                "the write log cannot be read back for bytes {}..{}, which primary storage does not have",
                range.start, range.end
            ),
        ),
        Event::DestageFailed { status } => (
            Severity::Warning,
            format!("destaging met an error of primary storage ({status:?}); it is tried again"),
        ),
        Event::ModeChanged { mode } => {
            let name = Mode::ALL.iter().find(|(known, _)| *known == mode).map_or("", |(_, n)| n);
            (Severity::Info, format!("the disk is now in mode {name}"))
        }
        Event::UnflushedWritesAtRisk { bytes } => (
            Severity::Error,
            format!(
                "up to {bytes} bytes written but not flushed may be lost; the next flush fails"
            ),
        ),
    }
}
