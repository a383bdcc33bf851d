//! Advices that were kept for disks, and what came of them.
//!
//! ```text
//! disk advise --keep ─► Prediction ─► file.rs: in the state folder, over restarts ◄─ now and then, and at the end
//!                                        │                                              │
//!            every LOOK_EVERY, and when somebody asks ─► follow.rs: which reads count ──┘─► judged in forebay-trace
//! ```
//! **Invariant:** nothing here keeps a disk from being served, or holds up its shard for longer than its statistics do. A file
//! that cannot be read is told of, and left as it is.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use forebay_backends::Probe;
use forebay_core::stats::Statistics;
use forebay_host::date;
use forebay_host::events::Severity;
use forebay_shard::{DiskHandle, Dropped, Gone};
use forebay_trace::advise::{Prediction, Reads};
use forebay_trace::mrc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::api::KeptAdvice;
use super::control::ControlState;
use super::served::ServedDisk;
use follow::{Follower, Seen};

mod file;
mod follow;
pub(super) mod requests;

/// How often reads are counted.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often what was counted is written: more is not lost by a kill.
const WRITE_EVERY: Duration = Duration::from_secs(60);
/// Time that a disk has for its last look.
const LAST_LOOK_MAX: Duration = Duration::from_secs(1);
/// Time that a disk's end waits for what was counted to be written.
const LAST_WRITE_MAX: Duration = Duration::from_secs(3);

/// The kept advice of one disk, if it has one.
#[derive(Debug)]
pub(super) struct Keeper {
    /// Where, or why nowhere.
    path: Result<PathBuf, String>,
    state: Mutex<State>,
    /// One look, or change, after the other.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    kept: Option<(Prediction, Follower)>,
    /// Why what is there cannot be used, or written.
    trouble: Option<String>,
    is_changed: bool,
    /// How often the cache was emptied.
    coolings: u64,
    /// How often it is being emptied.
    cooling: u64,
}

/// The cache is being emptied, until this is dropped.
struct Cooling(Arc<Keeper>);

impl Keeper {
    /// Reads what was kept for the disk in front of what `probe` looks at.
    pub fn open(probe: Option<&Probe>, folder: Option<&Path>) -> Keeper {
        let path = file::path(probe, folder);
        let mut state = State::default();
        if let Ok(path) = &path {
            match file::read(path) {
                Ok(kept) => state.kept = kept,
                Err(why) => {
                    let why =
                        format!("the advice kept in {} cannot be read: {why:#}", path.display());
                    state.trouble = Some(why);
                }
            }
        }
        Keeper { path, state: Mutex::new(state), turn: tokio::sync::Mutex::default() }
    }

    /// What is wrong with what was kept.
    pub fn trouble(&self) -> Option<String> {
        self.state().trouble.clone()
    }

    /// Drops what `disk` has cached. Nothing counts from the beginning to the end of that. It goes on where nobody waits for it
    /// any more.
    ///
    /// # Errors
    /// The disk has ended.
    pub async fn drop_cache(self: &Arc<Keeper>, disk: &DiskHandle) -> Result<Dropped, Gone> {
        let (cooling, disk) = (Cooling::begin(self.clone()), disk.clone());
        let dropping = tokio::spawn(async move {
            let dropped = disk.drop_cache().await;
            drop(cooling);
            dropped
        });
        dropping.await.unwrap_or(Err(Gone))
    }

    /// Keeps another one instead, durably.
    ///
    /// # Errors
    /// There is no place, or the medium's.
    async fn keep(&self, prediction: Prediction) -> Result<()> {
        ensure!(prediction.is_sound(), "the prediction has figures that cannot be");
        let _turn = self.turn.lock().await;
        let follower = Follower::default();
        self.write(file::bytes(&prediction, &follower)).await?;
        self.has_now(Some((prediction, follower)));
        Ok(())
    }

    /// Keeps none, and removes what there is.
    ///
    /// # Errors
    /// The medium's.
    async fn forget(&self) -> Result<()> {
        let _turn = self.turn.lock().await;
        if let Ok(path) = self.path.clone() {
            let shown = path.display().to_string();
            let removed = tokio::task::spawn_blocking(move || file::remove(&path)).await?;
            removed.with_context(|| format!("cannot remove {shown}"))?;
        }
        self.has_now(None);
        Ok(())
    }

    /// This is kept, and written. A drop of the cache that is under way goes on.
    fn has_now(&self, kept: Option<(Prediction, Follower)>) {
        let mut state = self.state();
        let State { coolings, cooling, .. } = *state;
        *state = State { kept, coolings, cooling, ..State::default() };
    }

    /// Counts what `disk` did since the last look.
    async fn look(&self, disk: &DiskHandle) {
        let _turn = self.turn.lock().await;
        let coolings = match &*self.state() {
            State { kept: Some(_), coolings, .. } => *coolings,
            State { kept: None, .. } => return,
        };
        let (Ok(stats), Ok(latencies)) = (disk.stats().await, disk.read_latencies().await) else {
            return;
        };
        let engine = stats.engine;
        let [ram, flash, backend] = *latencies;
        let (joined, bypassed) = (engine.counters.read_hits_joined, engine.counters.reads_bypassed);
        let reads = Reads { ram, flash, backend, joined, bypassed };
        self.count(coolings, &engine, reads);
    }

    /// Counts what was seen when the cache had been emptied so often: a look that a drop came into may be at the time before.
    fn count(&self, coolings: u64, engine: &Statistics, reads: Reads) {
        let mut state = self.state();
        let is_cold = state.cooling > 0 || state.coolings != coolings;
        let State { kept: Some((prediction, follower)), is_changed, .. } = &mut *state else {
            return;
        };
        if is_cold {
            return;
        }
        let seen = Seen {
            now_ms: date::now_ms(),
            difference: prediction.configuration.difference(engine),
            is_full: is_full(engine),
            reads,
        };
        *is_changed |= follower.look(prediction, seen);
    }

    /// Writes what was counted, if that is more than is written. Trouble with it is told of, and tried again.
    async fn save(&self) {
        let _turn = self.turn.lock().await;
        let bytes = match &*self.state() {
            State { kept: Some((prediction, follower)), is_changed: true, .. } => {
                file::bytes(prediction, follower)
            }
            _ => return,
        };
        let written = self.write(bytes).await;
        let mut state = self.state();
        state.is_changed = written.is_err();
        state.trouble = written.err().map(|why| format!("{why:#}"));
    }

    async fn write(&self, bytes: Vec<u8>) -> Result<()> {
        let path =
            self.path.clone().map_err(anyhow::Error::msg).context("there is no place for it")?;
        let shown = path.display().to_string();
        let written = tokio::task::spawn_blocking(move || file::write(&path, &bytes)).await?;
        written.with_context(|| format!("cannot write {shown}"))
    }

    /// What is kept, as it is now.
    async fn told(&self, disk: &DiskHandle) -> Option<KeptAdvice> {
        self.look(disk).await;
        let cache = {
            let state = self.state();
            let configuration = &state.kept.as_ref()?.0.configuration;
            configuration.ram.max(configuration.flash)
        };
        let lru = lru_hit_ratio(disk, cache).await;
        let state = self.state();
        let (prediction, follower) = state.kept.as_ref()?;
        Some(KeptAdvice {
            prediction: prediction.clone(),
            stage: follower.stage(prediction),
            since_ms: follower.since_ms,
            judgement: prediction.judge(&follower.counted, lru),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cooling {
    fn begin(keeper: Arc<Keeper>) -> Cooling {
        let mut state = keeper.state();
        state.cooling += 1;
        // It stays so until the end: no look counts meanwhile.
        if let Some((_, follower)) = &mut state.kept {
            follower.cooled();
        }
        drop(state);
        Cooling(keeper)
    }
}

impl Drop for Cooling {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.cooling -= 1;
        state.coolings += 1;
    }
}

/// Counts what all disks do, without end.
pub(super) async fn follow(state: Arc<ControlState>) {
    let mut written = Instant::now();
    loop {
        sleep(LOOK_EVERY).await;
        let is_due = written.elapsed() >= WRITE_EVERY;
        if is_due {
            written = Instant::now();
        }
        for disk in state.disks().into_iter().filter(|disk| disk.ended().is_none()) {
            let before = disk.advice.trouble();
            disk.advice.look(&disk.handle).await;
            if is_due {
                disk.advice.save().await;
            }
            let trouble = disk.advice.trouble().filter(|now| before.as_ref() != Some(now));
            if let Some(trouble) = trouble {
                state.report(Some(disk.name()), Severity::Warning, &trouble);
            }
        }
    }
}

/// The last look at a disk, before it ends. A shard or a state folder that hangs does not keep it from ending.
pub(super) async fn settle(disk: &ServedDisk) {
    settle_one(&disk.advice, &disk.handle).await;
}

async fn settle_one(advice: &Arc<Keeper>, disk: &DiskHandle) {
    let _ = timeout(LAST_LOOK_MAX, advice.look(disk)).await;
    let saved = advice.clone();
    // On a task of its own: what is being written keeps its turn, however long it takes.
    let saving = tokio::spawn(async move { saved.save().await });
    let _ = timeout(LAST_WRITE_MAX, saving).await;
}

/// The same for all of them at once.
pub(super) async fn settle_all(disks: Vec<Arc<ServedDisk>>) {
    let settle = |disk: Arc<ServedDisk>| async move { settle(&disk).await };
    all_ended(disks.into_iter().map(settle).collect()).await;
}

/// Waits for all of them. One that panics has said so, and nobody's end depends on it.
async fn all_ended(mut looks: JoinSet<()>) {
    while looks.join_next().await.is_some() {}
}

/// What LRU would have hit of the pieces that the disk was asked for since the start.
async fn lru_hit_ratio(disk: &DiskHandle, cache: u64) -> Option<f64> {
    let look = move |observer: &mut forebay_core::observer::Observer| {
        let uses = observer.uses()?;
        Some((uses.snapshot(), uses.block_size(), uses.grid_offset()))
    };
    let (snapshot, block_size, grid_offset) = disk.observe(look).await.ok()??;
    let curve = mrc::of_disk(&snapshot, block_size, grid_offset, &[cache.max(block_size)]);
    curve.points.first().map(|point| point.read_hit_ratio)
}

/// The larger tier of a disk has hardly any slot left.
fn is_full(engine: &Statistics) -> bool {
    let larger = if engine.flash.slots > 0 { &engine.flash } else { &engine.ram };
    larger.is_full()
}

#[cfg(test)]
mod tests;
