//! Whose turn it is to open a disk, to decide about one, or to change one.
//!
//! Who needs several takes them in this order: `reloading`, `opening`, `resizing`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};

use super::{ControlState, lock};
use crate::config::difference;
use crate::config::sources::Sources;
use crate::daemon::served::ServedDisk;

/// Time that a disk which is being opened, or decided about, has to come to its end before others give up waiting.
const OPENING_MAX: Duration = Duration::from_secs(30);

/// What happens once at a time.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Turns {
    /// After the start a disk is opened, or decided about; none is while the daemon ends.
    pub(in crate::daemon) opening: Arc<tokio::sync::Mutex<()>>,
    /// The configuration is read again.
    pub(in crate::daemon) reloading: tokio::sync::Mutex<()>,
    /// Those that are being detached because no file listed them any more, each with whoever does that, and whether none does.
    pub(in crate::daemon) unlisted: Mutex<BTreeMap<String, (Arc<()>, bool)>>,
    /// Disks whose settings are just being changed: none of them is opened that is not served.
    pub(in crate::daemon) changing: Mutex<BTreeSet<String>>,
    /// Disks without flash are given some.
    pub(in crate::daemon) placing: tokio::sync::Mutex<()>,
    /// A disk is resized.
    pub(in crate::daemon) resizing: tokio::sync::Mutex<()>,
}

impl ControlState {
    /// Nobody else opens a disk, or decides about one, as long as this is kept.
    ///
    /// # Errors
    /// Somebody does, and that takes long: storage hangs, perhaps.
    pub(in crate::daemon) async fn opening_turn(&self) -> Result<tokio::sync::MutexGuard<'_, ()>> {
        let turn = tokio::time::timeout(OPENING_MAX, self.turns.opening.lock());
        turn.await.context(
            "another disk is being opened, and its storage or its flash takes long to answer: ask again",
        )
    }

    /// False of a disk that a restart would not know: its file does not list it any more, and it has not gone yet.
    pub(in crate::daemon) fn is_listed(&self, name: &str) -> bool {
        let asked = self.opener.spec().sources.as_ref().map(Sources::spec);
        // What cannot be read is told where it is read.
        let asked = asked.and_then(Result::ok);
        asked.is_none_or(|asked| asked.disks.iter().any(|disk| disk.name.0 == name))
    }

    /// Whether a disk that is not served is opened, looked at or decided about. That outlives a turn when it takes long.
    pub(in crate::daemon) fn is_at_work(&self, name: &str) -> bool {
        self.opener.questions.disks().iter().any(|(disk, _)| disk == name)
    }

    /// A disk that has ended beneath its clients, who wait, and that nobody is opening right now.
    pub(in crate::daemon) fn waiting_for_opening(&self, name: &str) -> Option<Arc<ServedDisk>> {
        self.find(name).ok().filter(|disk| disk.has_clients_wait())
    }

    /// A disk that is served, also one that somebody was about to open; `None`: it is not served.
    ///
    /// # Errors
    /// Another disk is being opened, and that takes long.
    pub(in crate::daemon) async fn find_or_opened(
        &self,
        name: &str,
    ) -> Result<Option<Arc<ServedDisk>>> {
        if let Ok(served) = self.find(name) {
            return Ok(Some(served));
        }
        let _nobody_opens_it = self.opening_turn().await?;
        Ok(self.find(name).ok())
    }

    /// A disk that has ended, or was never served, is not part of the configuration any more, unless it is served again: then
    /// false.
    ///
    /// # Errors
    /// Somebody opens it, or another one, and that takes long.
    pub(in crate::daemon) async fn forget(&self, name: &str) -> Result<bool> {
        // Who was about to open it would serve what nobody knows.
        let _nobody_opens_it = self.opening_turn().await?;
        if self.find(name).is_ok() {
            return Ok(false);
        }
        self.forget_in_turn(name);
        Ok(true)
    }

    fn forget_in_turn(&self, name: &str) {
        self.opener.change_spec(difference::without(&self.opener.spec(), name));
        lock(&self.turns.unlisted).remove(name);
        lock(&self.lists.refused).retain(|known| known.name != name);
        // One that ended in trouble.
        lock(&self.lists.disks).retain(|known| known.name() != name || known.ended().is_none());
    }
}
