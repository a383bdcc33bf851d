//! What outlives a kill of a loss that no guest is known to have heard of: a file on tmpfs, from the moment in which primary
//! storage may have lost acknowledged writes (its session was lost, or a flush failed) until a flush of the guest has failed
//! for it, and a later one has ended well.
//!
//! ```text
//!   engine: nobody waits: untold ──► file ──kill──► next start: the first flush fails
//!              ▼                      ▲ │
//!           a flush fails: told ──────┘ └─ a later one ends well ──► no file
//! ```
//! A guest lives on when its Forebay is killed, and connects again. Its next flush must not promise what is gone. The file
//! goes only with the next flush that ends well, because the answer that told may not have arrived, also where a flush was
//! waiting and was told at once: to be told twice is better than never. It is
//! named after who primary storage is, and does not outlive the host, since no guest does.
//!
//! What it does not know: what primary storage loses while no Forebay is connected to it.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use forebay_backends::Witness;
use forebay_core::ids::Uuid;
use rustix::fs::OFlags;

use super::identity;
use crate::daemon::pool::staging;

/// See the module. The shard's; it writes when something changed, which is rare.
#[derive(Debug, Default)]
pub struct Untold {
    /// Where the file is; `None`: nobody knows who primary storage is, or there is no folder on tmpfs.
    path: Option<PathBuf>,
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
    /// There is a file, and somebody was told when so many flushes had ended well.
    Told(u64),
}

impl Untold {
    /// What a former run left for primary storage that `witness` looks at.
    pub(in crate::daemon) fn find(witness: Option<&Witness>) -> Untold {
        let identity = identity(witness);
        let folder = staging::folder().filter(|_| identity != Uuid::NIL);
        Untold::find_in(folder.as_deref(), identity)
    }

    fn find_in(folder: Option<&Path>, identity: Uuid) -> Untold {
        let Some(folder) = folder else { return Untold::default() };
        let path = folder.join(format!("forebay-{identity}.untold"));
        // Others may write to the folder, too.
        let user = rustix::process::geteuid().as_raw();
        let is_ours = |found: fs::Metadata| found.is_file() && found.uid() == user;
        let is_there = fs::symlink_metadata(&path).is_ok_and(is_ours);
        let state = if is_there { State::Noted } else { State::Nothing };
        Untold { path: Some(path), state, told: 0 }
    }

    /// True when a former run left word.
    pub fn is_noted(&self) -> bool {
        self.state == State::Noted
    }

    /// Follows the engine: whether there is a loss that nobody was told of, how many were told, and how many flushes have
    /// ended well so far.
    pub fn follow(&mut self, is_untold: bool, told: u64, flushes: u64) {
        let was_told = std::mem::replace(&mut self.told, told) != told;
        let state = match self.state {
            _ if is_untold => State::Noted,
            _ if was_told => State::Told(flushes),
            State::Told(at) if flushes > at => State::Nothing,
            state => state,
        };
        match (std::mem::replace(&mut self.state, state), state) {
            (State::Nothing, State::Noted | State::Told(_)) => self.create(),
            (State::Noted | State::Told(_), State::Nothing) => self.remove(),
            _ => {}
        }
    }

    fn create(&self) {
        let Some(path) = &self.path else { return };
        let flags = OFlags::NOFOLLOW.bits() as i32;
        // Without room for a file the loss is told all the same, unless this process is killed before.
        let _ =
            OpenOptions::new().write(true).create(true).mode(0o600).custom_flags(flags).open(path);
    }

    fn remove(&self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_known_to_the_next_run_until_a_flush_after_the_one_that_told_ends_well() {
        let folder = tempfile::tempdir().unwrap();
        let found = || Untold::find_in(Some(folder.path()), Uuid([7; 16]));
        let mut run = found();
        run.follow(false, 0, 5);
        assert!(!found().is_noted());
        run.follow(true, 0, 5);
        assert!(found().is_noted());
        run.follow(false, 1, 5);
        assert!(found().is_noted(), "the answer that told may not have arrived");
        // Another loss, meanwhile.
        run.follow(true, 1, 6);
        assert!(found().is_noted());
        // The next run.
        let mut run = found();
        run.follow(true, 0, 0);
        run.follow(false, 1, 0);
        run.follow(false, 1, 0);
        assert!(found().is_noted());
        run.follow(false, 1, 1);
        assert!(!found().is_noted());
        assert!(!Untold::find_in(Some(folder.path()), Uuid([8; 16])).is_noted());
    }

    #[test]
    fn a_loss_that_a_waiting_flush_heard_of_at_once_is_known_until_a_later_one_ends_well() {
        let folder = tempfile::tempdir().unwrap();
        let found = || Untold::find_in(Some(folder.path()), Uuid([7; 16]));
        let mut run = found();
        run.follow(false, 1, 5);
        assert!(found().is_noted(), "the answer that told may not have arrived");
        // Two more, one of them while nobody waits.
        run.follow(false, 2, 6);
        run.follow(true, 3, 6);
        run.follow(false, 4, 7);
        run.follow(false, 4, 7);
        assert!(found().is_noted());
        run.follow(false, 4, 8);
        assert!(!found().is_noted());
    }

    #[test]
    fn nobody_else_can_say_that_something_was_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("forebay-{}.untold", Uuid([7; 16])));
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        let mut found = Untold::find_in(Some(folder.path()), Uuid([7; 16]));
        assert!(!found.is_noted());
        found.follow(true, 0, 0);
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink(), "and nothing was opened");
        let mut nowhere = Untold::find_in(None, Uuid([7; 16]));
        nowhere.follow(true, 0, 0);
        nowhere.follow(false, 1, 0);
        nowhere.follow(false, 1, 1);
    }
}
