//! The flash pools of a daemon: each is opened once, for the shares of all disks on it, and has an owner.
//!
//! ```text
//!   a disk's flash ──open──► Pool, locked ──► PoolOwner, a thread ──end, or no disk has it──► joined, let go of
//!                      ├─ another process has it: its disks are refused, and opened when it is free
//!                      └─ made where its file system was not mounted yet: let go of before a disk is opened on it once more
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, bail};
use forebay_host::events::EventSender;
use forebay_host::fence::{Refused, is_in_use};
use forebay_host::pool::owner::{PoolHandle, PoolOwner};
use forebay_host::pool::report::{self, PoolReport};
use forebay_host::pool::{self, Pool, Share, SharedPool};
use forebay_host::warm::ring_bytes_max;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout_at};

use super::control::lock;
use super::questions::{About, Questions};
use crate::config::{DaemonSpec, DiskSpec};

/// A pool that is open.
#[derive(Clone, Debug)]
pub(crate) struct OpenPool {
    /// The path that it was opened by.
    pub(crate) path: PathBuf,
    /// The same without links, as it was then: flash that hangs cannot be asked.
    pub(crate) real: PathBuf,
    pub(crate) pool: SharedPool,
    /// What it said last, of itself at least.
    pub(crate) said: Arc<Mutex<PoolReport>>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Flash {
    events: EventSender,
    pools: Mutex<BTreeMap<PathBuf, Open>>,
    /// Those that are opened, or were: each by one at a time.
    opening: Mutex<BTreeMap<PathBuf, Arc<Mutex<()>>>>,
    /// Those to flash, and to the storage of disks, that may hang.
    pub(super) questions: Questions,
    runtime: Handle,
    /// Takes the paths of pools whose owner has ended by itself.
    failures: UnboundedSender<PathBuf>,
}

#[derive(Debug)]
struct Open {
    of: OpenPool,
    handle: PoolHandle,
    owner: PoolOwner,
    /// Its owner was told to end.
    ends: Arc<AtomicBool>,
    /// Something of a disk that has ended may be under way on it.
    is_unquiet: bool,
}

impl Open {
    /// Waits for its owner to end, and lets go of all of it.
    fn join(self) {
        self.owner.join();
    }
}

impl Flash {
    /// No pool yet, and where it is told of owners that fail.
    pub(super) fn new(events: EventSender) -> (Flash, UnboundedReceiver<PathBuf>) {
        let (failures, failed) = unbounded_channel();
        let (pools, opening, runtime) = (Mutex::default(), Mutex::default(), Handle::current());
        let questions = Questions::default();
        (Flash { events, pools, opening, questions, runtime, failures }, failed)
    }

    /// Opens the flash of all disks, as far as it is not open. What cannot be opened, or takes longer than this, is left out:
    /// its disks find out why. Nor is flash opened that still owes an answer.
    pub(super) async fn open(self: &Arc<Self>, spec: &Arc<DaemonSpec>, patience: Duration) {
        let paths: BTreeSet<PathBuf> = spec.disks.iter().filter_map(path).cloned().collect();
        let of = paths.into_iter().filter(|path| !self.questions.is_any_out(path));
        let of = of.map(|path| (path.clone(), About::Opening(path)));
        let open = |path: &PathBuf| {
            let (flash, spec, path) = (self.clone(), spec.clone(), path.clone());
            move || drop(flash.find_or_open(&path, &spec.disks))
        };
        self.questions.ask_each(of, patience, open).await;
    }

    /// True of a disk whose flash owes an answer, or has no place.
    pub(super) fn is_silent(&self, disk: &DiskSpec) -> bool {
        let owes = |flash: &PathBuf| self.questions.is_any_out(flash);
        disk.unplaced.is_some() || path(disk).is_some_and(owes)
    }

    /// The pool of a disk, where it has one, with room for all of `disks`; may wait for it.
    ///
    /// # Errors
    /// Another process has it, it cannot be opened, or has no room for all of them.
    pub(super) fn of(
        &self,
        disk: &DiskSpec,
        disks: &[DiskSpec],
    ) -> Result<Option<(SharedPool, PoolHandle)>> {
        if let Some(why) = &disk.unplaced {
            return Err(Refused::in_use(why.clone()).into());
        }
        let Some(path) = path(disk) else { return Ok(None) };
        let found = self.find_or_open(path, disks).map_err(|error| match is_in_use(&error) {
            true => Refused::in_use(format!("{error:#}. Ask again when it is free")).into(),
            false => error,
        })?;
        pool::lock(&found.0).check_room(&shares(path, disks))?;
        Ok(Some(found))
    }

    /// Returns when nobody waits for the pool of a disk, if that is open.
    pub(super) fn wait_for(&self, disk: &DiskSpec) {
        if let Some((found, _)) = path(disk).and_then(|path| self.find(path)) {
            drop(pool::lock(&found));
        }
    }

    /// The pool of a disk, if it is open.
    pub(super) fn open_pool_of(&self, disk: &DiskSpec) -> Option<SharedPool> {
        self.find(path(disk)?).map(|(pool, _)| pool)
    }

    fn find(&self, path: &Path) -> Option<(SharedPool, PoolHandle)> {
        lock(&self.pools).get(path).map(|open| (open.of.pool.clone(), open.handle.clone()))
    }

    fn find_or_open(&self, path: &Path, disks: &[DiskSpec]) -> Result<(SharedPool, PoolHandle)> {
        if let Some(found) = self.find(path) {
            return Ok(found);
        }
        let turn = lock(&self.opening).entry(path.to_owned()).or_default().clone();
        let _one = lock(&turn);
        if let Some(found) = self.find(path) {
            return Ok(found);
        }
        if self.questions.is_out(&About::Closing(path.to_owned())) {
            bail!("the flash {} is let go of, and does not answer", path.display());
        }
        let mut pool = Pool::open(path, &shares(path, disks))?;
        pool.go_if_unused();
        if let Some((severity, text)) = pool.take_news() {
            self.events.report(None, severity, text);
        }
        let said = Arc::new(Mutex::new(report::outline(&pool)));
        let pool: SharedPool = Arc::new(Mutex::new(pool));
        let (mut owner, handle) = PoolOwner::start(pool.clone(), self.events.clone())?;
        let (ended, failures, failed) = (owner.ended(), self.failures.clone(), path.to_owned());
        let ends = Arc::new(AtomicBool::new(false));
        let was_told = ends.clone();
        self.runtime.spawn(async move {
            ended.await;
            if !was_told.load(Ordering::Acquire) {
                // Nobody listens any more when the daemon ends.
                let _ = failures.send(failed);
            }
        });
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let of = OpenPool { path: path.to_owned(), real, pool: pool.clone(), said };
        let open = Open { of, handle: handle.clone(), owner, ends, is_unquiet: false };
        lock(&self.pools).insert(path.to_owned(), open);
        Ok((pool, handle))
    }

    /// Whether the pool of a disk has room for all of `disks`, as far as that is known before it is opened.
    pub(super) fn has_room(&self, disk: &DiskSpec, disks: &[DiskSpec]) -> bool {
        let Some(path) = path(disk) else { return true };
        let has_room =
            |open: &SharedPool| pool::lock(open).check_room(&shares(path, disks)).is_ok();
        self.find(path).is_none_or(|(open, _)| has_room(&open))
    }

    /// Finds what keeps a disk from leaving its pool, or from being opened there again; may wait for it.
    ///
    /// # Errors
    /// A change of its tables could not be written. Whoever is at work there goes on, and no other disk begins or ends in order.
    pub(super) fn check_tables(&self, disk: &DiskSpec) -> Result<()> {
        match self.open_pool_of(disk) {
            Some(open) => pool::lock(&open).check_tables(),
            None => Ok(()),
        }
    }

    /// Finds what would keep a disk from its pool, which is to have room for all of `disks`; may wait for it. One that is not
    /// open is opened for the `first` ones. `is_made_anew`: one that is open is.
    ///
    /// # Errors
    /// That.
    pub(super) fn check(
        &self,
        disk: &DiskSpec,
        (first, disks): (&[DiskSpec], &[DiskSpec]),
        is_made_anew: bool,
    ) -> Result<()> {
        if let Some(why) = &disk.unplaced {
            bail!("{why}");
        }
        let Some(path) = path(disk) else { return Ok(()) };
        let shares = shares(path, disks);
        match self.find(path) {
            Some((open, _)) if is_made_anew => pool::lock(&open).check_size(&shares),
            Some((open, _)) => {
                let open = pool::lock(&open);
                open.check_tables()?;
                open.check_room(&shares)
            }
            None => pool::check_room_at(path, &self::shares(path, first), &shares),
        }
    }

    /// Something of a disk that has ended may be under way on its flash: it stays open.
    pub(super) fn note_unquiet(&self, path: &Path) {
        if let Some(open) = lock(&self.pools).get_mut(path) {
            open.is_unquiet = true;
        }
    }

    /// Lets go of the pools that are not `used`, so that their flash is free for others; waits so long for them. Nobody opens
    /// one meanwhile.
    pub(super) async fn close_unused(&self, used: &BTreeSet<PathBuf>, patience: Duration) {
        self.close(|at| !used.contains(at), patience).await;
    }

    /// The same of the one at `path`, if its file is not there any more.
    pub(super) async fn close_if_moved(&self, path: &Path, patience: Duration) {
        let Some(open) = lock(&self.pools).get(path).map(|open| open.owner.has_moved()) else {
            return;
        };
        // Its file system may hang.
        if self.questions.ask(About::Path(path.to_owned()), patience, open).await == Ok(true) {
            self.close(|at| at == path, patience).await;
        }
    }

    async fn close(&self, which: impl Fn(&Path) -> bool, patience: Duration) {
        let is_free = |at: &PathBuf, open: &mut Open| !open.is_unquiet && which(at);
        // Not on the threads that wait for them: somebody may use one by then.
        let free: Vec<_> = lock(&self.pools).extract_if(.., is_free).collect();
        let closing = free.into_iter().filter_map(|(path, open)| {
            open.ends.store(true, Ordering::Release);
            // While an earlier one of the same path does not answer, this one ends by itself.
            self.questions.begin(About::Closing(path), move || open.join()).ok()
        });
        let give_up = Instant::now() + patience;
        for closed in closing.collect::<Vec<_>>() {
            // One that hangs is let go of when it answers.
            let _ = timeout_at(give_up, closed).await;
        }
    }

    /// Those that are open, by their paths.
    pub(super) fn pools(&self) -> Vec<OpenPool> {
        lock(&self.pools).values().map(|open| open.of.clone()).collect()
    }

    /// Ends all owners, when nobody asks them for anything any more.
    pub(super) fn end(&self) {
        // Who ends without a word needs the lock while one of them hangs.
        let pools = std::mem::take(&mut *lock(&self.pools));
        pools.into_values().for_each(Open::join);
    }
}

/// Lets go of the pools of a daemon that ends without a word. A file that was made for a pool, and has no disk yet, goes.
#[derive(Debug)]
pub(super) struct FlashGuard(pub(super) Arc<Flash>);

impl Drop for FlashGuard {
    fn drop(&mut self) {
        lock(&self.0.pools).clear();
    }
}

fn path(disk: &DiskSpec) -> Option<&PathBuf> {
    disk.flash.as_ref().filter(|_| disk.unplaced.is_none()).map(|flash| &flash.path)
}

/// Bytes that a disk has for its cache on flash at most: never more than all of `disks` bring there.
pub(super) fn limit(disk: &DiskSpec, disks: &[DiskSpec]) -> u64 {
    let (own, cached) = (path(disk), disk.flash_cache_bytes());
    if own.is_none() || cached == 0 {
        return cached;
    }
    let others = disks.iter().filter(|it| it.name != disk.name && path(it) == own);
    let all = others.map(DiskSpec::flash_cache_bytes).fold(cached, u64::saturating_add);
    disk.flash_sharing.limit.min(all)
}

/// What disks want of the flash at `path`.
fn shares(at: &Path, disks: &[DiskSpec]) -> Vec<Share> {
    let share = |disk: &DiskSpec| {
        let log = disk.write_log.as_ref().map_or(0, |log| log.bytes);
        let cache = disk.flash_cache_bytes();
        // It may get more at work.
        let ring = ring_bytes_max(limit(disk, disks), disk.block_size);
        Share { cache, ring, log }
    };
    disks.iter().filter(|disk| path(disk).is_some_and(|it| it == at)).map(share).collect()
}
