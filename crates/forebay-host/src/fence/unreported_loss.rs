//! What outlives a kill of a loss that no guest is known to have heard of: a file on tmpfs, from the moment in which primary
//! storage may have lost acknowledged writes (its session was lost, or a flush failed) until a flush of the guest has failed
//! for it, and a later one has ended well.
//!
//! ```text
//!      a start that fails at its flush ──┐
//!   engine: nobody waits: unreported ──► file ──kill──► next start: the first flush fails
//!              ▼                      ▲ │
//!           a flush fails: told ──────┘ └─ a later one ends well ──► no file
//! ```
//! A guest lives on when its Forebay is killed, and connects again. Its next flush must not promise what is gone. The file
//! goes only with the next flush that ends well, because the answer that told may not have arrived, also where a flush was
//! waiting and was told at once: to be told twice is better than never. After a detach no guest has the disk any more, and
//! the administrator was told: the file goes. After a mere end of the daemon a guest may come back: it stays.
//!
//! It is named after who primary storage is, that is a path or an address, and has in it what tells that there is other
//! storage by now: when an image file was made, and the size. Its bytes are no format. It does not outlive the host, nor
//! do guests on it.
//!
//! What it does not know: what primary storage loses while no Forebay is connected to it; that another NBD export or device
//! that is not smaller is at the address by now; and a guest on another host (NBD over TCP, iSCSI) that outlives this one.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use forebay_backends::Probe;
use forebay_core::flash_pool::fence::Timestamp;
use forebay_core::ids::Uuid;

use super::identity;
use crate::tmpfs;

/// See the module. The shard's; it writes when something changed, which is rare.
#[derive(Debug, Default)]
pub struct UnreportedLoss {
    /// Where the file is; `None`: nobody knows who primary storage is, or there is no folder on tmpfs.
    path: Option<PathBuf>,
    /// What is in the file; `None`: it could not be looked at.
    storage: Option<Storage>,
    state: State,
    /// Losses that had been told when the engine was followed last.
    told: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Nothing,
    /// There is a file, and nobody was told.
    Noted,
    /// There is a file, and somebody was told when no more than so many flushes could have been asked for.
    Told(u64),
}

/// What tells primary storage from other storage at the same path or address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Storage {
    size: u64,
    /// When an image file was made.
    born: Option<Timestamp>,
}

impl UnreportedLoss {
    /// What a former run left for primary storage that `probe` looks at.
    pub fn find(probe: Option<&Probe>) -> UnreportedLoss {
        let identity = identity(probe);
        let folder = tmpfs::folder().filter(|_| identity != Uuid::NIL);
        UnreportedLoss::find_in(folder.as_deref(), identity, probe.and_then(Storage::of))
    }

    fn find_in(folder: Option<&Path>, identity: Uuid, storage: Option<Storage>) -> UnreportedLoss {
        let Some(folder) = folder else { return UnreportedLoss::default() };
        let path = tmpfs::place(folder, &format!("forebay-{identity}.untold"));
        let is_there = tmpfs::is_ours(&path) == Some(true);
        let state = if is_there { State::Noted } else { State::Nothing };
        let mut found = UnreportedLoss { path: Some(path), storage, state, told: 0 };
        if is_there && found.is_of_other_storage() {
            found.forget();
        }
        found
    }

    /// Flushes primary storage that a former run may have written to. The start goes no further when that fails, and the next
    /// one hears nothing of it from the kernel: its guest is told. `has_log`: a log has all that was acknowledged.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn flush_first(
        probe: &Probe,
        flush: impl FnOnce() -> io::Result<()>,
        has_log: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        let flushed = flush();
        #[cfg(test)]
        let flushed = flushed.and_then(|()| tests::fail_as_asked());
        if flushed.is_err() && !has_log() {
            UnreportedLoss::find(Some(probe)).follow(true, 0, 0, || 0);
        }
        flushed
    }

    /// True when the file is certainly not about what is there now.
    fn is_of_other_storage(&self) -> bool {
        let noted = self.path.as_ref().and_then(|path| fs::read(path).ok());
        let noted = noted.and_then(|bytes| Storage::decode(&bytes));
        self.storage.zip(noted).is_some_and(|(is, was)| is.is_other_than(was))
    }

    /// What is in the file's place, not ours, and cannot be removed.
    pub fn obstacle(&self) -> Option<&Path> {
        let path = self.path.as_deref()?;
        let is_in_the_way =
            || tmpfs::is_ours(path) == Some(false) && fs::remove_file(path).is_err();
        is_in_the_way().then_some(path)
    }

    /// True when a former run left word.
    pub fn is_noted(&self) -> bool {
        self.state == State::Noted
    }

    /// Follows the engine: whether there is a loss that nobody was told of, how many were told, how many flushes have
    /// ended well so far, and how many are under way. Those prove nothing of an answer that was sent behind their requests.
    pub fn follow(
        &mut self,
        is_unreported: bool,
        told: u64,
        flushes: u64,
        under_way: impl FnOnce() -> u64,
    ) {
        let was_told = std::mem::replace(&mut self.told, told) != told;
        let state = match self.state {
            _ if is_unreported => State::Noted,
            _ if was_told => State::Told(flushes + under_way()),
            State::Told(at) if flushes > at => State::Nothing,
            state => state,
        };
        match (std::mem::replace(&mut self.state, state), state) {
            (State::Nothing, State::Noted | State::Told(_)) => self.create(),
            (State::Noted | State::Told(_), State::Nothing) => self.remove(),
            _ => {}
        }
    }

    /// No guest has a claim any more.
    pub fn forget(&mut self) {
        if self.state != State::Nothing {
            self.remove();
            self.state = State::Nothing;
        }
    }

    fn create(&self) {
        let Some(path) = &self.path else { return };
        // Others may write to the folder, too: what is in its place is not ours.
        let _ = fs::remove_file(path);
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        // Without room for a file the loss is told all the same, unless this process is killed before. A file without
        // all that it should have is about whatever is there.
        if let (Ok(mut file), Some(storage)) = (made, self.storage) {
            let _ = file.write_all(&storage.encode());
        }
    }

    fn remove(&self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

impl Storage {
    fn of(probe: &Probe) -> Option<Storage> {
        Some(Storage { size: probe.look().ok()?.size, born: probe.born() })
    }

    /// True when it cannot be what was there `before`: a file keeps the time at which it was made, and nothing shrinks that
    /// a guest uses.
    fn is_other_than(self, before: Storage) -> bool {
        let is_reborn = self.born.zip(before.born).is_some_and(|(is, was)| is != was);
        is_reborn || self.size < before.size
    }

    fn encode(self) -> [u8; 24] {
        let (seconds, nanos) = self.born.unwrap_or_default();
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..16].copy_from_slice(&seconds.to_le_bytes());
        bytes[16..].copy_from_slice(&u64::from(nanos).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Storage> {
        let bytes: &[u8; 24] = bytes.try_into().ok()?;
        let word =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let born = (word(8) as i64, u32::try_from(word(16)).ok()?);
        Some(Storage { size: word(0), born: (born != (0, 0)).then_some(born) })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// The next first flush of this thread fails.
        pub(in super::super) static FLUSH_FAILS: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn fail_as_asked() -> io::Result<()> {
        match FLUSH_FAILS.take() {
            true => Err(io::Error::from_raw_os_error(5)),
            false => Ok(()),
        }
    }

    const STORAGE: Option<Storage> =
        Some(Storage { size: 1 << 20, born: Some((1_700_000_000, 5)) });

    #[test]
    fn a_loss_is_known_to_the_next_run_until_a_flush_after_the_one_that_told_ends_well() {
        let folder = tempfile::tempdir().unwrap();
        let found = || UnreportedLoss::find_in(Some(folder.path()), Uuid([7; 16]), STORAGE);
        let mut run = found();
        run.follow(false, 0, 5, || 0);
        assert!(!found().is_noted());
        run.follow(true, 0, 5, || 0);
        assert!(found().is_noted());
        run.follow(false, 1, 5, || 0);
        assert!(found().is_noted(), "the answer that told may not have arrived");
        // Another loss, meanwhile.
        run.follow(true, 1, 6, || 0);
        assert!(found().is_noted());
        // The next run.
        let mut run = found();
        run.follow(true, 0, 0, || 0);
        run.follow(false, 1, 0, || 0);
        run.follow(false, 1, 0, || 0);
        assert!(found().is_noted());
        run.follow(false, 1, 1, || 0);
        assert!(!found().is_noted());
        assert!(!UnreportedLoss::find_in(Some(folder.path()), Uuid([8; 16]), STORAGE).is_noted());
    }

    #[test]
    fn a_flush_that_was_under_way_when_another_one_told_proves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let found = || UnreportedLoss::find_in(Some(folder.path()), Uuid([7; 16]), STORAGE);
        let mut run = found();
        run.follow(true, 0, 5, || unreachable!("nobody was told"));
        run.follow(false, 1, 5, || 2);
        run.follow(false, 1, 6, || unreachable!());
        run.follow(false, 1, 7, || unreachable!());
        assert!(found().is_noted(), "both were asked for before");
        run.follow(false, 1, 8, || unreachable!());
        assert!(!found().is_noted());
    }

    #[test]
    fn a_loss_that_a_waiting_flush_heard_of_at_once_is_known_until_a_later_one_ends_well() {
        let folder = tempfile::tempdir().unwrap();
        let found = || UnreportedLoss::find_in(Some(folder.path()), Uuid([7; 16]), STORAGE);
        let mut run = found();
        run.follow(false, 1, 5, || 0);
        assert!(found().is_noted(), "the answer that told may not have arrived");
        // Two more, one of them while nobody waits.
        run.follow(false, 2, 6, || 0);
        run.follow(true, 3, 6, || 0);
        run.follow(false, 4, 7, || 0);
        run.follow(false, 4, 7, || 0);
        assert!(found().is_noted());
        run.follow(false, 4, 8, || 0);
        assert!(!found().is_noted());
    }

    #[test]
    fn a_loss_is_not_told_of_other_storage_nor_after_a_detach() {
        let folder = tempfile::tempdir().unwrap();
        let found = |size, born| {
            let storage = Some(Storage { size, born });
            UnreportedLoss::find_in(Some(folder.path()), Uuid([7; 16]), storage)
        };
        let (born, later) = (Some((1_700_000_000, 5)), Some((1_700_000_000, 6)));
        for (noted_born, size, is_born, is_noted) in [
            (born, 8192, born, true),
            (born, 16384, born, true),
            (born, 8192, None, true),
            (None, 8192, later, true),
            (born, 8192, later, false),
            (born, 4096, born, false),
            (None, 4096, None, false),
        ] {
            let mut run = found(8192, noted_born);
            run.follow(true, 0, 0, || 0);
            let next = found(size, is_born);
            assert_eq!(next.is_noted(), is_noted, "{noted_born:?} {size} {is_born:?}");
            assert_eq!(found(8192, noted_born).is_noted(), is_noted, "the file goes, too");
            run.forget();
        }
        // A file of which only the beginning was written is about whatever is there.
        found(8192, born).follow(true, 0, 0, || 0);
        let path = found(8192, born).path.unwrap();
        fs::write(&path, [1, 2, 3]).unwrap();
        assert!(found(4096, later).is_noted());
        found(4096, later).forget();
        assert!(!path.exists());
    }

    #[test]
    fn nobody_else_can_say_that_something_was_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("forebay-{}.untold", Uuid([7; 16])));
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        let mut found = UnreportedLoss::find_in(Some(folder.path()), Uuid([7; 16]), STORAGE);
        assert!(!found.is_noted());
        found.follow(true, 0, 0, || 0);
        assert!(fs::symlink_metadata(&path).unwrap().is_file(), "nothing that is there is opened");
        found.forget();
        // Nor keep it from being noted, in silence.
        assert_eq!(found.obstacle(), None);
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert_eq!(found.obstacle(), None, "it could be removed");
        fs::create_dir(&path).unwrap();
        assert_eq!(found.obstacle(), Some(&*path));
        found.follow(true, 1, 1, || 0);
        let mut nowhere = UnreportedLoss::find_in(None, Uuid([7; 16]), STORAGE);
        nowhere.follow(true, 0, 0, || 0);
        nowhere.follow(false, 1, 0, || 0);
        nowhere.follow(false, 1, 1, || 0);
    }
}
