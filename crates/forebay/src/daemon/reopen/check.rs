//! What keeps a disk from being opened again, found before its clients wait for that.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use forebay_backends::Probe;
use forebay_core::stats::{LogState, TierState};
use forebay_shard::PrimaryState;
use tokio::time::timeout;

use super::Reopening;
use crate::config::DiskSpec;
use crate::config::difference::{is_same_pool, is_unit, outlives_its_opening};
use crate::daemon::opener::{self, Among};
use crate::daemon::opening::{check_memory, check_spec};
use crate::daemon::questions::{About, FLASH_MAX};
use crate::daemon::served::MODIFIED;

/// Time that primary storage has to answer a flush before clients wait.
const FLUSH_MAX: Duration = Duration::from_secs(10);

/// Whether the pool of a disk is too small and is to be made anew, as it can be when no other disk has it, and it keeps no name
/// and no reservations of a logical unit. May wait for flash.
fn makes_room(opener: &opener::Opener, (disk, disks): Among<'_>) -> bool {
    let others = disks.iter().filter(|it| it.name != disk.name);
    !opener.flash.has_room(disk, disks)
        && !others.into_iter().any(|other| is_same_pool(other, disk))
        && !is_unit(&opener.spec(), disk)
}

impl Reopening<'_> {
    /// Finds what speaks against it before anybody has to wait: once it has ended, it has to be opened. Whether its pool is
    /// to be made anew.
    pub(in crate::daemon) async fn check(
        &self,
        before: &DiskSpec,
        among: Among<'_>,
    ) -> Result<bool> {
        let is_made_anew = self.look(before, among, among.1).await?;
        self.check_flush().await?;
        Ok(is_made_anew)
    }

    /// The same, as far as primary storage has nothing to do for it. A pool that is not open will be opened for the `first`
    /// disks.
    pub(in crate::daemon) async fn look(
        &self,
        before: &DiskSpec,
        among: Among<'_>,
        first: &[DiskSpec],
    ) -> Result<bool> {
        let after = &opener::limited(among);
        let handle = &self.served.handle;
        ensure!(handle.is_open(), "it ends, or is being detached");
        if let Some(why) = self.served.unopened() {
            bail!("{why}");
        }
        ensure!(
            outlives_its_opening(before),
            "its primary storage is memory, which is empty when it is opened again"
        );
        let status = handle.stats().await?;
        ensure!(
            status.primary_storage == PrimaryState::Connected,
            "primary storage does not answer, or has failed an I/O lately ('forebay disk show' says \
             which): the disk can be opened again when it does"
        );
        if let Some(standing) = self.served.standing() {
            bail!("{standing}: that is to be put right first");
        }
        ensure!(
            status.engine.log.is_none() || !self.served.is_modified(),
            "{MODIFIED}; its write log would be refused. First give 'forebay disk drop-cache {}'",
            before.name
        );
        let has_failed = status.engine.flash.state == TierState::Failed
            || status.engine.log.is_some_and(|log| {
                matches!(log.state, LogState::Failed | LogState::Lost) || log.is_lost
            });
        ensure!(
            !has_failed,
            "its flash has failed: a disk that is opened again goes on with it. Detach the disk, or stop Forebay, and start it \
             with other flash"
        );
        let size = match handle.measure(None).await? {
            Some(size) => size,
            None => self.served.look(Probe::look).await?.size,
        };
        ensure!(
            size == handle.size(),
            "primary storage has another size than the disk: first give 'forebay disk resize {}'",
            before.name
        );
        check_spec(after, handle.traits().await?)?;
        self.look_at_flash_of(before).await?;
        let is_made_anew = self.look_at_flash(among, first).await?;
        // As both openings will find it: what RAM has of its memory is free by then, the metadata of before are not. What
        // it has beside them it has again, and RAM may wait for its memory.
        let has = status.engine.ram.slots_ready * before.block_size;
        let finer = (before.block_size / after.block_size).max(1);
        let rest = self.served.info.memory_bytes - self.served.info.ram_bytes;
        let needed = rest + status.engine.metadata_bytes * finer;
        check_memory(needed.saturating_sub(has), false)?;
        Ok(is_made_anew)
    }

    /// Looks at the flash that it has: its end is noted there, and it is opened there again should the other opening fail.
    async fn look_at_flash_of(&self, before: &DiskSpec) -> Result<()> {
        let Some(flash) = &before.flash else { return Ok(()) };
        let (opener, disk) = (self.state.opener.clone(), before.clone());
        let questions = opener.questions.clone();
        let look = move || opener.flash.check_tables(&disk);
        let looked = questions.ask(About::Flash(flash.path.clone()), FLASH_MAX, look).await;
        let looked = looked.unwrap_or_else(|why| Err(why.of("its flash")));
        looked.map_err(|why| anyhow!("{why:#}; the disk goes on as it was"))
    }

    /// Looks at the flash that it is to have: what is cached on that of before is gone when it is opened.
    async fn look_at_flash(&self, among: Among<'_>, first: &[DiskSpec]) -> Result<bool> {
        let of = Arc::new((among.0.clone(), among.1.to_vec(), first.to_vec()));
        let Some(path) = among.0.flash.as_ref().map(|flash| flash.path.clone()) else {
            return Ok(false);
        };
        // Its pool is locked while flash is written, and hangs with it.
        let look = || {
            let (opener, of, about) =
                (self.state.opener.clone(), of.clone(), About::Flash(path.clone()));
            let questions = opener.questions.clone();
            let look = move || {
                let (disk, disks, first) = &*of;
                let is_made_anew = makes_room(&opener, (disk, disks));
                let checked = opener.flash.check(disk, (first, disks), is_made_anew);
                checked.map(|()| is_made_anew)
            };
            async move {
                let looked = questions.ask(about, FLASH_MAX, look).await;
                looked.unwrap_or_else(|why| Err(why.of("the flash that it is to have")))
            }
        };
        self.when_free(look).await.map_err(|why| anyhow!("{why:#}; the disk goes on as it was"))
    }

    /// Flushes primary storage: the end of the disk does so, and whoever waits for that waits without a limit.
    pub(super) async fn check_flush(&self) -> Result<()> {
        match timeout(FLUSH_MAX, self.served.handle.flush()).await {
            Ok(flushed) => ensure!(flushed?, "a flush of primary storage has failed"),
            Err(_) => bail!(
                "primary storage has not answered a flush for {} s: it hangs, or has much to write. Try again later",
                FLUSH_MAX.as_secs()
            ),
        }
        Ok(())
    }
}
