//! A disk that is served, or was: its handle on its shard, its place on this host, how it has ended.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use forebay_backends::{Look, Probe};
use forebay_core::flash_pool::DiskNumber;
use forebay_host::fence::{DiskPlace, LastWrite, Leaving};
use forebay_host::pool::EndOfSession;
use forebay_host::population::Wanted;
use forebay_shard::{DiskFigures, DiskHandle, Drained, FlashUse};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::advice::Keeper;
use super::api::DiskInfo;
use super::control::lock;
use super::ending;
use super::history::History;
use super::reopen::LateOpening;
use super::watch;
use modified::Modified;

mod modified;

pub(super) use modified::MODIFIED;

/// Time that primary storage has to say how long it is.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// How long a change of a cache on flash is waited for.
const HOLD_MAX: Duration = Duration::from_secs(10);

/// A disk that is served, or was.
#[derive(Debug)]
pub(super) struct ServedDisk {
    /// As it was opened.
    pub(super) info: DiskInfo,
    /// The sizes of its cache now.
    sizes: Mutex<Sizes>,
    /// One change of the size of its cache on flash after the other.
    resizing_flash: tokio::sync::Mutex<()>,
    /// On its shard.
    pub(super) handle: DiskHandle,
    /// The advice that was kept for it.
    pub(super) advice: Arc<Keeper>,
    place: Option<DiskPlace>,
    /// As it is configured.
    flash: Option<PathBuf>,
    /// Looks at primary storage as long as it is served.
    probe: Mutex<Option<Probe>>,
    /// Held by who asks for its standing: one that hangs has a thread, and those after it have none.
    asking: Arc<tokio::sync::Mutex<()>>,
    /// What has become of primary storage, where that is not what was opened.
    standing: Mutex<Option<String>>,
    /// Somebody has modified primary storage.
    modified: Mutex<Modified>,
    /// Its pool says so. Held while that is noted.
    is_noted_modified: Mutex<bool>,
    /// It was to be opened again, and that takes long: no other opening begins before.
    pub(super) late_opening: tokio::sync::Mutex<Option<LateOpening>>,
    /// Why its clients wait, where it does not end or cannot be opened again.
    unopened: Mutex<Option<String>>,
    /// It has ended beneath its clients, who wait until it can be opened, and nobody is opening it right now.
    has_clients_wait: AtomicBool,
    /// What it did in the last hours.
    history: Mutex<History>,
    /// What it answered last, and when.
    figures: Mutex<Option<(Instant, Arc<DiskFigures>)>>,
    /// When it was opened, by the clock, and by one that nobody sets.
    opened: (SystemTime, Instant),
    /// Set when it has ended: detached, or why it was not as it should be.
    ended: OnceLock<Option<String>>,
}

/// What became of the size that a disk is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resized {
    /// It has that from now on, or goes there.
    Now,
    /// It had that, or is becoming smaller still: until then it shows all that it holds.
    Already,
    /// A change of before is not done: the disk may still hold more than it shows.
    NotYet,
}

/// Bytes of a cache: what is in RAM, what is on flash, and the metadata of both.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    ram: u64,
    flash: u64,
    metadata: u64,
}

impl ServedDisk {
    /// A disk that its shard has taken; its place on this host, and the path of its flash; what looks at its primary storage.
    pub(super) fn new(
        info: DiskInfo,
        handle: DiskHandle,
        advice: Arc<Keeper>,
        (place, flash): (Option<DiskPlace>, Option<PathBuf>),
        probe: Option<Probe>,
    ) -> ServedDisk {
        let (probe, standing, ended) = (Mutex::new(probe), Mutex::default(), OnceLock::new());
        let sizes = Sizes {
            ram: info.ram_bytes,
            flash: info.flash_cache_bytes,
            metadata: info.metadata_bytes,
        };
        ServedDisk {
            info,
            sizes: Mutex::new(sizes),
            resizing_flash: tokio::sync::Mutex::default(),
            handle,
            advice,
            place,
            flash,
            probe,
            asking: Arc::default(),
            standing,
            modified: Mutex::default(),
            is_noted_modified: Mutex::default(),
            late_opening: tokio::sync::Mutex::default(),
            unopened: Mutex::default(),
            has_clients_wait: AtomicBool::new(false),
            history: Mutex::default(),
            figures: Mutex::default(),
            opened: (SystemTime::now(), Instant::now()),
            ended,
        }
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.info.name
    }

    /// What is told of it now; no addresses.
    pub(super) fn info(&self) -> DiskInfo {
        let DiskInfo { ram_bytes, memory_bytes, .. } = self.info;
        let Sizes { ram, flash, metadata } = *lock(&self.sizes);
        DiskInfo {
            size: self.handle.size(),
            ram_bytes: ram,
            flash_cache_bytes: flash,
            metadata_bytes: metadata,
            memory_bytes: memory_bytes - ram_bytes + ram,
            ..self.info.clone()
        }
    }

    /// Gives it a RAM cache of `bytes`, and says what memory that waits for.
    ///
    /// # Errors
    /// It cannot have that at work; it goes on as before.
    pub(super) async fn resize_ram(&self, bytes: u64) -> Result<Option<Wanted>> {
        let resized = self.handle.resize_ram(bytes).await?;
        let mut sizes = lock(&self.sizes);
        (sizes.ram, sizes.metadata) = (bytes, resized.metadata_bytes);
        Ok(resized.wanted)
    }

    /// Gives it a cache of `bytes` on flash, of what its pool has. A smaller one takes its time; what it does not use any more
    /// goes back to the pool when this is asked for again. `own`: what it brings.
    ///
    /// # Errors
    /// It cannot have that at work; it goes on as before.
    pub(super) async fn resize_flash(self: &Arc<Self>, bytes: u64, own: u64) -> Result<Resized> {
        // Whoever asks again later knows more by then.
        let Ok(_one) = self.resizing_flash.try_lock() else { return Ok(Resized::NotYet) };
        let bytes = bytes / self.info.block_size * self.info.block_size;
        let used = self.size_flash_as_used().await?;
        if used.is_shrinking || used.bytes == bytes {
            return Ok(Resized::Already);
        }
        let parts = match bytes > used.bytes {
            true => {
                self.handle.check_flash(bytes).await?;
                Some(self.size_flash(bytes, own).await?)
            }
            false => None,
        };
        let metadata = self.handle.resize_flash(bytes, parts).await?;
        let mut sizes = lock(&self.sizes);
        (sizes.flash, sizes.metadata) = (bytes, metadata);
        Ok(Resized::Now)
    }

    /// What it does not use any more of flash goes back to its pool.
    ///
    /// # Errors
    /// The medium's, or the disk has ended.
    pub(super) async fn give_flash_back(self: &Arc<Self>) -> Result<Resized> {
        let Ok(_one) = self.resizing_flash.try_lock() else { return Ok(Resized::NotYet) };
        self.size_flash_as_used().await.map(|_| Resized::Already)
    }

    /// Keeps its cache on flash as it is: for who ends it, so that nothing that it has now comes to the one that follows.
    ///
    /// # Errors
    /// A change of before does not come to its end.
    pub(super) async fn hold_flash(&self) -> Result<tokio::sync::MutexGuard<'_, ()>> {
        let held = timeout(HOLD_MAX, self.resizing_flash.lock()).await;
        held.context("its flash does not answer, which is to get another size: try again later")
    }

    /// What its cache uses of flash, and nothing else is its own any more.
    async fn size_flash_as_used(self: &Arc<Self>) -> Result<FlashUse> {
        let used = self.handle.flash_use().await?;
        if !used.is_shrinking {
            self.size_flash(used.bytes, 0).await?;
        }
        Ok(used)
    }

    /// Has room for a cache of `bytes` in its pool: where that is. `own`: what it brings.
    async fn size_flash(self: &Arc<Self>, bytes: u64, own: u64) -> Result<Vec<(u64, u64)>> {
        let disk = self.clone();
        let sized = spawn_blocking(move || {
            let place = disk.place.as_ref().context("the disk has no flash")?;
            place.size_cache(bytes, own)
        });
        let areas = sized.await.context("a task has ended")??;
        Ok(areas.iter().map(|area| (area.offset, area.len)).collect())
    }

    /// The flash that its cache is on, and the segments that it has there: bytes of one.
    pub(super) fn cache_in_pool(&self) -> Option<(PathBuf, u64)> {
        Some((self.flash.clone()?, self.place.as_ref()?.segment_size()?))
    }

    /// The flash that has its record, and its number there.
    pub(super) fn in_pool(&self) -> Option<(PathBuf, DiskNumber)> {
        Some((self.flash.clone()?, self.place.as_ref()?.number()?))
    }

    /// Notes in its pool how it was left; once, whoever asks. Returns what is worth a warning.
    ///
    /// # Errors
    /// The medium's.
    pub(super) fn leave(&self, disk: &Drained) -> Result<Option<String>> {
        *lock(&self.probe) = None;
        let Some(place) = &self.place else { return Ok(None) };
        let (is_quiet, log_end) = (disk.is_quiet, disk.log_end);
        let leaving = Leaving { end: ending::end_of_session(disk), is_quiet, log_end };
        let mut noted = lock(&self.is_noted_modified);
        let mut is_modified = *noted;
        let left = place.leave(leaving, || {
            is_modified = self.is_modified();
            is_modified
        })?;
        // Nothing is sure about one that has failed.
        if !matches!(leaving.end, EndOfSession::Failed | EndOfSession::Lost) {
            *noted = is_modified;
        }
        Ok(left)
    }

    /// Notes that it has become longer, where that is noted.
    ///
    /// # Errors
    /// The medium's.
    pub(super) fn grow_place(&self, look: Look) -> Result<()> {
        self.place.as_ref().map_or(Ok(()), |place| place.grow(look))
    }

    /// Looks at its primary storage.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub(super) fn probe(&self) -> Result<Probe> {
        let probe = lock(&self.probe);
        let probe = probe.as_ref().context("it cannot be looked at now")?;
        Ok(probe.copy())
    }

    /// What its primary storage looks like, to this `look`.
    ///
    /// # Errors
    /// The kernel's, or it takes longer than [`LOOK_MAX`].
    pub(super) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Probe) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let probe = self.probe()?;
        let looked = timeout(LOOK_MAX, spawn_blocking(move || look(&probe))).await;
        Ok(looked.context("it does not answer")???)
    }

    /// True as long as it may look at its primary storage.
    pub(super) fn is_looked_at(&self) -> bool {
        lock(&self.probe).is_some()
    }

    /// The note of its last write, where it has one.
    pub(super) fn last_write(&self) -> Option<Arc<LastWrite>> {
        self.place.as_ref()?.last_write()
    }

    /// Where the next run looks for the staging file of its write log, if it has one.
    pub(super) fn staging_place(&self) -> Option<PathBuf> {
        self.place.as_ref().filter(|_| self.info.write_log_bytes > 0)?.staging_place()
    }

    /// It has ended beneath its clients and cannot be opened: they wait, and whether nobody is opening it right now.
    pub(super) fn note_clients_wait(&self, is_free: bool) {
        self.has_clients_wait.store(is_free, Ordering::Relaxed);
    }

    /// True while its clients wait, and somebody may decide about it.
    pub(super) fn has_clients_wait(&self) -> bool {
        self.has_clients_wait.load(Ordering::Relaxed)
    }

    /// Notes why its clients wait, or that they go on.
    pub(super) fn note_unopened(&self, why: Option<String>) {
        self.handle.note_unopened(why.clone());
        *lock(&self.unopened) = why;
    }

    /// Why its clients wait, where it does not end or cannot be opened again.
    pub(super) fn unopened(&self) -> Option<String> {
        lock(&self.unopened).clone()
    }

    /// Why it was detached with a write log that holds something: it could not be opened again.
    pub(super) fn given_up(&self) -> Option<String> {
        self.unopened().filter(|_| self.ended() == Some(&None))
    }

    /// Notes what has become of its primary storage.
    pub(super) fn note_standing(&self, words: Option<String>) {
        *lock(&self.standing) = words;
    }

    /// What somebody has done to its primary storage since it was opened.
    pub(super) fn changed(&self) -> Option<String> {
        self.standing().or_else(|| self.is_modified().then(|| MODIFIED.to_owned()))
    }

    /// What has become of its primary storage, where that is not what was opened.
    pub(super) fn standing(&self) -> Option<String> {
        lock(&self.standing).clone()
    }

    /// The same, as it is at this instant where it can be looked at.
    pub(super) async fn standing_now(&self) -> Option<String> {
        let Ok(alone) = self.asking.clone().try_lock_owned() else { return self.standing() };
        let size = self.handle.size();
        let look = move |probe: &Probe| {
            let _alone = alone;
            Ok(watch::describe(probe, &probe.standing(size)?, size))
        };
        self.look(look).await.unwrap_or_else(|_| self.standing())
    }

    /// What it did in the last hours.
    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// When it was opened, in milliseconds since 1970.
    pub(super) fn opened_ms(&self) -> u64 {
        self.opened.0.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
    }

    /// Time from then until `at`.
    pub(super) fn elapsed(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.opened.1)
    }

    /// Notes what it answered.
    pub(super) fn note_figures(&self, figures: Arc<DiskFigures>) {
        *lock(&self.figures) = Some((Instant::now(), figures));
    }

    /// What it answered last, and when.
    pub(super) fn last_figures(&self) -> Option<(Instant, Arc<DiskFigures>)> {
        lock(&self.figures).clone()
    }

    /// It has ended: was detached, or why it was not as it should be. False when somebody has said so before.
    pub(super) fn end(&self, trouble: Option<String>) -> bool {
        self.ended.set(trouble).is_ok()
    }

    /// How it has ended.
    pub(super) fn ended(&self) -> Option<&Option<String>> {
        self.ended.get()
    }
}
