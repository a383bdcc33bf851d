//! Where answers go that a disk has asked for itself, from other threads: of its pool's owner, of who notes that flash is
//! dead.
//!
//! They are for the disk that asked, and not for one that took its place meanwhile: it would get a segment that it did not
//! ask for.

use forebay_core::action::Voided;
use forebay_host::pool::owner::Leased;
use forebay_io::mailbox::Sender;

use crate::mailbox::{Command, Visit};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct ReturnPath {
    pub(crate) sender: Sender<Command>,
    /// The disk, as its shard counts it.
    pub(crate) number: u32,
}

impl ReturnPath {
    /// The segment that it asked for.
    pub(crate) fn leased(&self, leased: Leased) {
        self.tell(move |on| on.disk.leased(on.now, leased));
    }

    /// Its ring must not be believed, and that is known.
    pub(crate) fn voided(&self, voided: Voided) {
        self.tell(move |on| on.disk.voided(on.now, voided));
    }

    /// Its destage journal cannot be written.
    pub(crate) fn journal_revoked(&self, known: bool) {
        self.tell(move |on| on.disk.journal_revoked(on.now, known));
    }

    /// Its flash is dead.
    pub(crate) fn revoked(&self, known: bool) {
        self.tell(move |on| on.disk.revoked(on.now, known));
    }

    /// There is always room for that.
    fn tell(&self, operation: impl FnOnce(&mut Visit<'_>) + Send + 'static) {
        self.sender.answer(Command::Asked(self.number, Box::new(operation)));
    }
}
