//! Detaching a disk: it takes no clients any more, everything is destaged, then it ends. What an administrator asks for
//! meanwhile is waited for or refused here, too.
//!
//! ```text
//!   serving ── detach ──► detaching ── nothing is dirty ──► draining (ending.rs) ─► done
//!      ▲                      │
//!      └─ another mode, pause, resume; the log is lost: a cancelled detach, in the mode of before
//! ```

use forebay_backends::size::rounded;
use forebay_core::config::Mode;
use forebay_core::ids::Nanos;
use forebay_host::events::Severity;

use super::ShardDisk;

/// How far a detach is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detaching {
    /// None was asked for, or why the last one was cancelled.
    No(&'static str),
    /// Under way; the mode of before.
    Since(Mode),
}

pub(super) const ENDING: &str = "the disk is ending";

impl ShardDisk {
    /// Lets everything be destaged and ends then. Who asks again waits for the same end.
    ///
    /// # Errors
    /// One of `clients` is attached, or what is dirty cannot be destaged.
    pub(super) fn begin_detach(&mut self, now: Nanos, clients: usize) -> Result<(), String> {
        if self.is_held() {
            return Err(self.why_closed());
        }
        if self.is_detaching() || self.is_ending() {
            return Ok(());
        }
        if clients > 0 {
            return Err(format!(
                "clients are attached: {clients}. Detach them from the disk first"
            ));
        }
        if self.port.engine.log_is_lost() {
            return Err(
                "its write log is lost: dirty data cannot be read, and primary storage does not have them".to_owned()
            );
        }
        let mode = self.port.engine.config().mode;
        self.set_mode(now, Mode::WriteThrough)?;
        self.pause(now, false);
        self.detaching = Detaching::Since(mode);
        self.tell_clients();
        let dirty = self.port.engine.log_statistics(now).map_or(0, |log| log.dirty_bytes);
        let text = format!(
            "it is being detached: {} are to be destaged, and no client may attach; 'forebay disk resume {}' cancels that",
            rounded(dirty),
            self.name
        );
        self.report(Severity::Info, text);
        Ok(())
    }

    /// True from when a detach begins until it is cancelled.
    pub(crate) fn is_detaching(&self) -> bool {
        matches!(self.detaching, Detaching::Since(_))
    }

    /// Why it is not being detached although that was asked for.
    pub(crate) fn not_detached(&self) -> Option<String> {
        match self.detaching {
            Detaching::No(why) => Some(format!("it was not detached: {why}")),
            Detaching::Since(_) => None,
        }
    }

    /// The daemon ends. It does not wait until what a process before it has sent can land no more, nor long for flash that hangs.
    pub(crate) fn end_with_daemon(&mut self) {
        self.ending.daemon_ends = true;
        if self.storage.backend.holds_changes() {
            self.give_detach_up();
        }
    }

    /// It ends with the daemon, as any other, and is not detached.
    pub(super) fn give_detach_up(&mut self) {
        if self.is_detaching() {
            self.detaching = Detaching::No("the daemon ended");
        }
    }

    /// Asks for a mode, for an administrator: a detach is cancelled by it.
    ///
    /// # Errors
    /// What it lacks, or the disk is ending.
    pub(crate) fn change_mode(&mut self, now: Nanos, mode: Mode) -> Result<(), String> {
        if self.is_ending() {
            return Err(self.why_closed());
        }
        self.set_mode(now, mode)?;
        self.cancel_detach("its mode was set");
        Ok(())
    }

    /// Stops destaging, or goes on, for an administrator: a detach is cancelled by either.
    ///
    /// # Errors
    /// The disk is ending, or all writes wait until the log is empty.
    pub(crate) fn change_pause(&mut self, now: Nanos, pause: bool) -> Result<(), String> {
        if self.is_ending() {
            return Err(self.why_closed());
        }
        let log = self.port.engine.log_statistics(now);
        if pause && log.is_some_and(|log| log.failure.is_some() && !log.is_clean) {
            return Err("its write log failed, and all writes wait until it is destaged".to_owned());
        }
        if pause && !self.asked_mode().logs() {
            // It would come into force unnoticed with a later mode, and keep a change of mode that is under way from its end.
            return Err(format!(
                "mode {} has no write log, so that there is no destaging to pause",
                self.asked_mode()
            ));
        }
        self.pause(now, pause);
        self.return_to_service(now, if pause { "destaging was paused" } else { "it was resumed" })
    }

    /// The mode that an administrator asked for last. A detach has its own.
    fn asked_mode(&self) -> Mode {
        match self.detaching {
            Detaching::Since(mode) => mode,
            _ => self.port.engine.config().mode,
        }
    }

    /// Goes on with a detach; true when the disk is to end.
    pub(super) fn advance_detach(&mut self, now: Nanos) -> bool {
        if !self.is_detaching() || self.is_ending() {
            return false;
        }
        if self.port.engine.log_is_lost() {
            let lost = "its write log is lost, dirty data cannot be read";
            let _ = self.return_to_service(now, lost);
            return false;
        }
        // Its last flush has to end, and an end cannot be cancelled: it waits for primary storage as one that is detached.
        let backend = &self.storage.backend;
        let can_end = backend.properties().read_only || backend.trouble().is_none();
        !self.port.engine.mode().logs() && can_end
    }

    /// Cancels a detach, in the mode of before.
    fn return_to_service(&mut self, now: Nanos, why: &'static str) -> Result<(), String> {
        let Detaching::Since(mode) = self.detaching else { return Ok(()) };
        self.cancel_detach(why);
        self.set_mode(now, mode)
    }

    fn cancel_detach(&mut self, why: &'static str) {
        if self.is_detaching() {
            self.detaching = Detaching::No(why);
            self.tell_clients();
            let text = format!("its detach was cancelled: {why}; clients may attach again");
            self.report(Severity::Warning, text);
        }
    }
}
