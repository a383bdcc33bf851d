//! The destage journal that a sidecar names: put in place before a session begins, named for the next one.

use anyhow::{Context, Result};
use forebay_backends::{Look, Probe};
use forebay_core::flash_pool::disk::DiskRecord;
use forebay_core::flash_pool::fence::Verdict;
use forebay_core::flash_pool::sidecar::{Sidecar, SidecarState};
use forebay_core::ids::Uuid;

use super::{Examined, Fence, Refused, SidecarPlace, StartNote, identity, last_write, words};
use crate::events::Severity;
use crate::journal::{self, Journal, JournalPlace, Primary};
use crate::pool::host;

/// Refuses primary storage that was left torn, and is to be used without its log: with its destage journal it is whole.
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
    let unknown = |what: String| Err(Refused::torn(words::may_be_torn(path, &what)).into());
    let found = match journal::check(&journal, owner, size) {
        Ok(found) => found,
        Err(why) => return unknown(format!("which cannot be read ({why:#})")),
    };
    match found {
        Journal::Found(found) if found.windows > 0 => Err(words::torn(path, &journal).into()),
        Journal::Found(_) => Ok(()),
        // A start makes its journal after it has put all of the former one in place, and may die before it names it.
        Journal::Foreign(found) if found.disk == owner.disk => Ok(()),
        Journal::None | Journal::Foreign(_) if sidecar.state == SidecarState::Clean => Ok(()),
        Journal::None => unknown(format!("{journal}, which is not there")),
        Journal::Foreign(_) => unknown(format!("{journal}, and another one is there")),
    }
}

/// True when the journal that the sidecar names has to be put in place.
pub(super) fn is_torn(sidecar: &Sidecar, probe: Option<&Probe>, place: &SidecarPlace) -> bool {
    let torn = || {
        let journal = JournalPlace::named(sidecar, place.path()?).ok()??;
        let size = probe?.look().ok()?.size;
        Some(match journal::check(&journal, journal::owner(sidecar)?, size) {
            Ok(Journal::Found(found)) => found.windows > 0,
            Ok(Journal::None | Journal::Foreign(_)) => false,
            // Nobody knows.
            Err(_) => true,
        })
    };
    torn().unwrap_or(false)
}

/// True when [`Examined::put_journal_in_place`] puts the journal in place that the sidecar names.
pub(super) fn is_put_in_place(verdict: Verdict, probe: Option<&Probe>) -> bool {
    let is_ours = matches!(verdict, Verdict::Strong | Verdict::Weak(_));
    is_ours && probe.is_some_and(|probe| !probe.is_read_only())
}

/// True when the sidecar names the journal of other primary storage: this one is a copy, or has another name by now.
pub(crate) fn is_of_another(sidecar: &Sidecar, probe: &Probe) -> bool {
    let named = sidecar.journal.as_ref().map_or(Uuid::NIL, |journal| journal.identity);
    let is = identity(Some(probe));
    ![named, is].contains(&Uuid::NIL) && named != is
}

impl Examined {
    /// Puts in place what the destage journal of the last session has, if primary storage is what that session left. Once it
    /// is not, what others wrote is newer. `before` is called once before anything is written.
    ///
    /// # Errors
    /// The journal is damaged, or either cannot be read or written. Or it is the journal of other primary storage.
    pub fn put_journal_in_place(
        &mut self,
        record: &DiskRecord,
        before: impl FnOnce() -> Result<()>,
        notes: &mut Vec<(Severity, String)>,
    ) -> Result<()> {
        let (Some(own), Some(path)) = (&self.own, self.place.path()) else { return Ok(()) };
        let is_put = is_put_in_place(self.verdict, self.probe.as_ref());
        let Some(probe) = self.probe.as_ref().filter(|_| is_put) else { return Ok(()) };
        let (Some(journal), Some(owner)) = (JournalPlace::named(own, path)?, journal::owner(own))
        else {
            return Ok(());
        };
        if is_of_another(own, probe) {
            // It may be in use: it is not even retired.
            return match journal::check(&journal, owner, self.look.size) {
                Ok(Journal::Found(found)) if found.windows == 0 => Ok(()),
                Ok(Journal::None | Journal::Foreign(_)) => Ok(()),
                Ok(Journal::Found(_)) | Err(_) => {
                    Err(words::journal_of_another(path, &journal).into())
                }
            };
        }
        let note = self.start_note(record);
        let late = self.is_unanswered;
        let unusable = || words::journal_unusable(path, &journal);
        let found = journal::check(&journal, owner, self.look.size).with_context(unusable)?;
        if matches!(found, Journal::Found(found) if found.windows > 0) {
            before()?;
        }
        let primary = || Primary::of(probe, note.as_ref(), late);
        let came = journal::repair(&journal, owner, primary, self.look.size, late);
        let came = came.with_context(unusable)?;
        notes.extend(words::journal(&journal, &came));
        let found = probe.look_durably().context("cannot look at its primary storage")?;
        if let (Some(note), Some(modified)) = (&note, found.modified) {
            note.accept(modified);
        }
        self.look = Look { size: self.look.size, ..found };
        Ok(())
    }

    /// For the next start, should this process die before its session is committed. That one has to know the writes for ours,
    /// and to find evidence as strong or weak as this one.
    fn start_note(&self, record: &DiskRecord) -> Option<StartNote> {
        let is_watched = last_write::left(record.uuid)
            .is_some_and(|left| left.generation == record.committed && record.boot == host::boot());
        let seen = self.look.modified.filter(|_| record.evidence.is_final || is_watched)?;
        let is_weak = self.verdict != Verdict::Strong;
        Some(StartNote::new(record.uuid, record.committed, seen, is_weak))
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
        let mut named = journal.name(nonce);
        if named.uri.is_some() {
            named.identity = identity(self.probe.as_ref());
        }
        if !named.fits() {
            return Err(std::io::Error::other("the journal's URI is too long"));
        }
        revoker.name_journal(named);
        self.ahead_ns = revoker.write(state)?;
        Ok(())
    }
}
