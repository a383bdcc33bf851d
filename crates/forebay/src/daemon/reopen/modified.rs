//! A disk that is opened again, and what others have done to its primary storage.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use forebay_backends::Probe;
use forebay_host::events::Severity;
use tokio::task::spawn_blocking;

use super::Reopening;
use crate::daemon::served::{MODIFIED, ServedDisk};

impl Reopening<'_> {
    /// Looks at primary storage right before a disk with a write log ends: where it was modified by somebody else, the opening
    /// would refuse the log, and clients would wait for an administrator. One that `leaves_pool` leaves an empty log.
    ///
    /// # Errors
    /// It was modified; the disk goes on.
    pub(in crate::daemon) async fn check_unmodified(&self, leaves_pool: bool) -> Result<()> {
        let served = &self.served;
        if served.info.write_log_bytes == 0 || leaves_pool {
            return Ok(());
        }
        let is_explained = match served.last_write() {
            Some(last_write) => {
                let accepted = served.accepted();
                let look = move |probe: &Probe| {
                    let modified = probe.look()?.modified;
                    let is_known = modified.is_none() || modified == accepted;
                    Ok(is_known || modified.is_some_and(|it| last_write.explains(it)))
                };
                served.look(look).await.context("cannot look at its primary storage")?
            }
            None => true,
        };
        ensure!(
            is_explained && !served.is_modified(),
            "{MODIFIED}; its write log would be refused. First give 'forebay disk drop-cache {}'",
            served.name()
        );
        Ok(())
    }

    /// The one that has taken its place knows what it knew, before anybody looks at that one. Nobody waits until that is noted.
    pub(super) fn take_modified_over(&self, opened: &Arc<ServedDisk>) {
        if !opened.take_modified_over(&self.served) {
            return;
        }
        let (state, disk) = (self.state.clone(), opened.clone());
        spawn_blocking(move || {
            if let Err(error) = disk.keep_modified() {
                state.report(Some(disk.name()), Severity::Error, &disk.not_noted(&error));
            }
        });
    }
}
