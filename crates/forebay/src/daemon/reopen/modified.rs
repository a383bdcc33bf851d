//! A disk that is opened again, and what others have done to its primary storage.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use forebay_backends::Probe;
use forebay_core::flash_pool::fence::Timestamp;
use forebay_host::events::Severity;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Reopening;
use crate::daemon::questions::FLASH_MAX;
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
        let unexplained = match served.last_write() {
            Some(last_write) => {
                let accepted = served.accepted();
                let look = move |probe: &Probe| {
                    let looked = Instant::now();
                    let look = probe.look()?;
                    let modified = look.modified.filter(|it| Some(*it) != accepted);
                    Ok(modified
                        .filter(|it| !last_write.explains(*it, looked))
                        .map(|it| (it, look.size)))
                };
                served.look(look).await.context("cannot look at its primary storage")?
            }
            None => None,
        };
        if let Some((at, size)) = unexplained {
            self.note_modified(at, size).await;
        }
        ensure!(
            unexplained.is_none() && !served.is_modified(),
            "{MODIFIED}; its write log would be refused. First give 'forebay disk drop-cache {}'",
            served.name()
        );
        Ok(())
    }

    /// Somebody else left primary storage so. The next write of the disk hides that from every later look. Flash that hangs
    /// notes it later.
    async fn note_modified(&self, at: Timestamp, size: u64) {
        let (state, disk) = (self.state.clone(), self.served.clone());
        state.report(Some(disk.name()), Severity::Error, MODIFIED);
        if size > disk.handle.size() {
            // One that became longer may be resized by an administrator.
            return;
        }
        let note = spawn_blocking(move || {
            if let Err(error) = disk.note_modified(at) {
                state.report(Some(disk.name()), Severity::Error, &disk.not_noted(&error));
            }
        });
        let _ = timeout(FLASH_MAX, note).await;
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

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use forebay_core::flash_pool::disk::DiskFlags;
    use forebay_host::pool;

    use super::*;
    use crate::daemon::refused::serve;
    use crate::daemon::refused::tests::Refused;

    /// The disk may write before the next look of who watches it, which takes the time for its own then.
    #[tokio::test]
    async fn a_change_that_is_found_right_before_the_disk_ends_is_noted_and_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let refused = Refused::start(folder.path(), 0).await;
        serve(&refused.state, "db", None).await.unwrap();
        let served = refused.state.find("db").unwrap();
        if served.last_write().is_none() {
            // Without a folder on tmpfs nobody knows.
            return refused.end().await;
        }
        let reopening = Reopening::of(&refused.state, &served);
        reopening.check_unmodified(false).await.unwrap();
        let image =
            std::fs::File::options().write(true).open(folder.path().join("db.raw")).unwrap();
        image.set_modified(SystemTime::now() + std::time::Duration::from_secs(60)).unwrap();
        let why = reopening.check_unmodified(false).await.unwrap_err().to_string();
        assert!(why.contains("First give 'forebay disk drop-cache db'"), "{why}");
        assert!(served.is_modified(), "no later look has to find it");
        let (path, number) = served.in_pool().unwrap();
        let is_it = |open: &&crate::daemon::flash::OpenPool| open.path == path;
        let pools = refused.state.opener.flash.pools();
        let pool = pools.iter().find(is_it).unwrap().pool.clone();
        let is_noted = || pool::lock(&pool).record(number).flags.has(DiskFlags::MODIFIED);
        assert!(is_noted());
        let is_told =
            || refused.state.events.lines(Some("db")).iter().any(|it| it.text == MODIFIED);
        while !is_told() {
            tokio::task::yield_now().await;
        }
        // However often it is found, dropping the cache deals with it.
        let found = served.modified_up_to_now().await;
        served.deal_with_modified(found).unwrap();
        assert!(!served.is_modified() && !is_noted());
        reopening.check_unmodified(false).await.unwrap();
        drop((reopening, pool, pools, served));
        refused.end().await;
    }
}
