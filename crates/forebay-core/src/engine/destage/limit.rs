//! What limits destaging now, in words: the one reason that an administrator can do most about.

use crate::action::DestageFault;
use crate::destage::window::Limit;
use crate::engine::Engine;
use crate::ids::Nanos;

impl Engine {
    /// What limits destaging. What nobody can destage comes first, then what fails, then what is slow.
    pub(in crate::engine) fn destage_limited_by(&self, now: Nanos) -> &'static str {
        let (Some(destager), Some(log)) = (&self.destager, &self.log) else {
            return "nothing to destage";
        };
        if self.log_is_clean() {
            return "nothing to destage";
        }
        if log.is_lost {
            return "the log is lost";
        }
        if destager.paused {
            return "paused";
        }
        match destager.fault {
            Some(DestageFault::PrimaryStorage) => return "errors of primary storage",
            Some(DestageFault::LogRead) => return "the log cannot be read",
            Some(DestageFault::Note) => return "progress cannot be noted on flash",
            None => {}
        }
        match destager.window.limited_by(now, self.destage_supply()) {
            Limit::Idle if destager.done >= log.last_sequence() => "a flush of primary storage",
            Limit::Idle if !destager.batch.is_active() && destager.flushing.is_some() => {
                "a flush of primary storage"
            }
            Limit::Idle if destager.outstanding > 0 => "primary storage",
            Limit::Idle if log.wants_durable => "a commit of the log",
            Limit::Idle => "the epoch under way, left alone for a moment",
            Limit::EpochBound => "epoch-bound",
            Limit::Storage => "primary storage",
            Limit::GuestReads => "guest reads",
            Limit::RateLimit => "max-destage-rate",
            Limit::Errors => "errors a moment ago",
        }
    }
}
