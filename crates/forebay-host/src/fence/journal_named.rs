//! The destage journal that a sidecar names: put in place before a session begins, named for the next one.

use anyhow::{Context, Result};
use forebay_backends::{Look, Probe};
use forebay_core::flash_pool::disk::DiskRecord;
use forebay_core::flash_pool::fence::Verdict;
use forebay_core::flash_pool::sidecar::Sidecar;
use forebay_core::ids::Uuid;

use super::{Examined, Fence, LastWrite, SidecarPlace, identity, last_write, words};
use crate::events::Severity;
use crate::journal::{self, Journal, JournalPlace, Primary};
use crate::pool::host;

/// Refuses primary storage that another disk left torn: with its destage journal it is whole.
///
/// # Errors
/// It is torn, or that cannot be known.
pub(super) fn check_torn(
    sidecar: &Sidecar,
    probe: Option<&Probe>,
    place: &SidecarPlace,
) -> Result<()> {
    let (Some(probe), Some(path)) = (probe, place.path()) else { return Ok(()) };
    let (Some(journal), Some(owner)) =
        (JournalPlace::named(sidecar, path)?, journal::owner(sidecar))
    else {
        return Ok(());
    };
    let size = probe.look().context("cannot look at its primary storage")?.size;
    match journal::check(&journal, owner, size)? {
        Journal::Found(found) if found.windows > 0 => Err(words::torn(path, &journal).into()),
        Journal::Found(_) | Journal::None | Journal::Foreign(_) => Ok(()),
    }
}

impl Examined {
    /// Puts in place what the destage journal of the last session has, if primary storage is what that session left. Once it
    /// is not, what others wrote is newer.
    ///
    /// # Errors
    /// The journal is damaged, or either cannot be read or written.
    pub fn put_journal_in_place(
        &mut self,
        record: &DiskRecord,
        notes: &mut Vec<(Severity, String)>,
    ) -> Result<()> {
        let is_ours = matches!(self.verdict, Verdict::Strong | Verdict::Weak(_));
        let (Some(own), Some(path)) = (&self.own, self.place.path()) else { return Ok(()) };
        let Some(probe) = self.probe.as_ref().filter(|probe| is_ours && !probe.is_read_only())
        else {
            return Ok(());
        };
        let (Some(journal), Some(owner)) = (JournalPlace::named(own, path)?, journal::owner(own))
        else {
            return Ok(());
        };
        // Should this process die meanwhile, the next start has to know the writes for ours.
        let is_watched = last_write::left(record.uuid)
            .is_some_and(|left| left.generation == record.committed && record.boot == host::boot());
        let note = match self.look.modified.filter(|_| is_watched) {
            Some(seen) => LastWrite::begin(record.uuid, record.committed, seen, 0).ok().flatten(),
            None => None,
        };
        let late = self.is_unanswered;
        let primary = || Primary::of(probe, note.as_ref(), late);
        let came = journal::repair(&journal, owner, primary, self.look.size, late);
        let came = came.with_context(|| words::journal_unusable(path, &journal))?;
        notes.extend(words::journal(&journal, &came));
        let found = probe.look_durably().context("cannot look at its primary storage")?;
        if let (Some(note), Some(modified)) = (&note, found.modified) {
            note.accept(modified);
        }
        self.look = Look { size: self.look.size, ..found };
        Ok(())
    }
}

impl Fence {
    /// Where the destage journal of primary storage has its place by itself: beside an image file.
    pub fn journal_place(&self) -> Option<Result<JournalPlace>> {
        match (&self.place, self.names_journals()) {
            (SidecarPlace::Beside(path), true) => Some(JournalPlace::beside(path)),
            _ => None,
        }
    }

    /// Who primary storage is; [`Uuid::NIL`]: nobody knows.
    pub fn primary(&self) -> Uuid {
        identity(self.probe.as_ref())
    }

    /// True when there is a sidecar that can name a journal.
    pub fn names_journals(&self) -> bool {
        self.written_at().is_some() && self.sidecar.is_some()
    }

    /// The sidecar names the journal that was made there under this nonce.
    ///
    /// # Errors
    /// The file system's.
    pub fn name_journal(&mut self, journal: &JournalPlace, nonce: u64) -> std::io::Result<()> {
        let (Some(revoker), Some(state)) = (&self.revoker, self.sidecar) else { return Ok(()) };
        let named = journal.name(nonce);
        if !named.fits() {
            return Err(std::io::Error::other("the journal's URI is too long"));
        }
        revoker.name_journal(named);
        self.ahead_ns = revoker.write(state)?;
        Ok(())
    }
}
