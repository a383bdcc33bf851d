//! What limits destaging now: the one reason that an administrator can do most about.

use crate::action::DestageFault;
use crate::ids::Nanos;
use crate::stats::DestageLimit;
use crate::write_back::WriteBack;
use crate::write_back::destage::window::Limit;

impl WriteBack {
    /// What limits destaging. What nobody can destage comes first, then what fails, then what is slow.
    pub(crate) fn destage_limited_by(&self, now: Nanos) -> DestageLimit {
        let (destager, log) = (&self.destager, &self.log);
        if self.is_clean() {
            return DestageLimit::Nothing;
        }
        if log.health.is_lost {
            return DestageLimit::LogLost;
        }
        if destager.hold.paused {
            return DestageLimit::Paused;
        }
        if destager.is_held(now) {
            return DestageLimit::Held;
        }
        match destager.trouble.fault {
            Some(DestageFault::PrimaryStorage) => return DestageLimit::PrimaryErrors,
            Some(DestageFault::LogRead) => return DestageLimit::LogReadErrors,
            Some(DestageFault::Journal) => return DestageLimit::JournalErrors,
            Some(DestageFault::Note) => return DestageLimit::NoteErrors,
            None => {}
        }
        match destager.window.limited_by(now, self.destage_supply()) {
            Limit::Idle if destager.waits_for_journal_alone() => DestageLimit::Journal,
            Limit::Idle if destager.reached.done >= log.last_sequence() => {
                DestageLimit::PrimaryFlush
            }
            Limit::Idle if !destager.batch.is_active() && destager.flushes.flushing.is_some() => {
                DestageLimit::PrimaryFlush
            }
            Limit::Idle if destager.running.outstanding > 0 => DestageLimit::PrimaryStorage,
            Limit::Idle if log.wants.durable => DestageLimit::LogCommit,
            Limit::Idle => DestageLimit::OpenEpoch,
            Limit::EpochBound => DestageLimit::EpochOrder,
            Limit::Storage => DestageLimit::PrimaryStorage,
            Limit::GuestReads => DestageLimit::GuestReads,
            Limit::RateLimit => DestageLimit::RateLimit,
            Limit::Errors => DestageLimit::RetryPause,
        }
    }
}
