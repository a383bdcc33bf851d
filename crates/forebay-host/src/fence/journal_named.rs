//! The destage journal that a sidecar names: put in place before a session begins, named for the next one.

use std::path::PathBuf;

use anyhow::{Context, Result};
use forebay_backends::{Look, Probe};
use forebay_core::flash_pool::disk::DiskRecord;
use forebay_core::flash_pool::fence::Verdict;
use forebay_core::flash_pool::sidecar::Sidecar;

use super::{Examined, Fence, LastWrite, SidecarPlace, last_write, words};
use crate::events::Severity;
use crate::journal::{self, Journal};
use crate::pool::host;

/// Refuses an image that another disk left torn: with its destage journal it is whole.
///
/// # Errors
/// It is torn, or that cannot be known.
pub(super) fn check_torn(
    sidecar: &Sidecar,
    probe: Option<&Probe>,
    place: &SidecarPlace,
) -> Result<()> {
    let (Some(probe), SidecarPlace::Beside(path)) = (probe, place) else { return Ok(()) };
    let journal = journal::beside(path);
    let size = probe.look().context("cannot look at its primary storage")?.size;
    match journal::check(&journal, sidecar, size)? {
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
        let (Some(own), SidecarPlace::Beside(path)) = (&self.own, &self.place) else {
            return Ok(());
        };
        let Some(probe) = self.probe.as_ref().filter(|probe| is_ours && !probe.is_read_only())
        else {
            return Ok(());
        };
        let Some(image) = probe.open_at().filter(|_| own.journal.is_some()) else { return Ok(()) };
        // Should this process die meanwhile, the next start has to know the writes for ours.
        let is_watched = last_write::left(record.uuid)
            .is_some_and(|left| left.generation == record.committed && record.boot == host::boot());
        let note = match self.look.modified.filter(|_| is_watched) {
            Some(seen) => LastWrite::begin(record.uuid, record.committed, seen, 0).ok().flatten(),
            None => None,
        };
        let journal = journal::beside(path);
        let came = journal::repair(&journal, own, &image, self.look.size, note.as_ref());
        let came = came.with_context(|| words::journal_unusable(&journal))?;
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
    /// Where the destage journal of primary storage has its place: beside an image file.
    pub fn journal_path(&self) -> Option<PathBuf> {
        match (&self.place, self.written_at(), self.sidecar) {
            (SidecarPlace::Beside(path), Some(_), Some(_)) => Some(journal::beside(path)),
            _ => None,
        }
    }

    /// The sidecar names the journal that was made under this nonce.
    ///
    /// # Errors
    /// The file system's.
    pub fn name_journal(&mut self, nonce: u64) -> std::io::Result<()> {
        let (Some(revoker), Some(state)) = (&self.revoker, self.sidecar) else { return Ok(()) };
        revoker.name_journal(nonce);
        self.ahead_ns = revoker.write(state)?;
        Ok(())
    }
}
