//! Collects what a scrape shows. Nothing here waits for storage, and for nothing else longer than [`POOLS_MAX`] and what
//! `figures.rs` waits for shards.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_host::pool::report::{self, PoolUsage};
use forebay_host::pool::{self, SharedPool};

use super::texts::Texts;
use super::{Daemon, DiskMetrics, PoolMetrics, Scrape, ServedMetrics};
use crate::daemon::control::{ControlState, lock};
use crate::daemon::figures::Known;

/// Time that the pools have. One whose flash hangs may be locked.
const POOLS_MAX: Duration = Duration::from_millis(100);

/// What a pool said last, if it ever did; whether it owes an answer.
type LastSaid = (Option<PoolUsage>, bool);

/// What outlives a scrape.
#[derive(Debug)]
pub(in crate::daemon) struct Memory {
    started: (SystemTime, Instant),
    /// What each pool said last, and whether it was asked and has not answered yet.
    pools: Arc<Mutex<BTreeMap<PathBuf, LastSaid>>>,
    pub(super) texts: Texts,
}

impl Default for Memory {
    fn default() -> Memory {
        let started = (SystemTime::now(), Instant::now());
        Memory { started, pools: Arc::default(), texts: Texts::default() }
    }
}

/// What the daemon is now.
pub(super) async fn collect(state: &ControlState) -> Scrape {
    let memory = &state.metrics;
    let (known, pools) = tokio::join!(state.known_figures(), memory.pools(state));
    let spec = state.opener.spec();
    let budgets: BTreeMap<&str, Option<u64>> =
        spec.disks.iter().map(|spec| (spec.name.0.as_str(), spec.flash_bytes_per_day())).collect();
    let served = known.iter().filter_map(|known| {
        let (at, figures) = known.figures.as_ref()?;
        Some(ServedMetrics {
            stats: state.stats_with(&known.disk, figures.status.clone(), *at),
            latencies: figures.latencies.clone(),
            flash_bytes_per_day: budgets.get(known.disk.name()).copied().flatten(),
        })
    });
    let about = state.about();
    Scrape {
        daemon: Daemon {
            name: about.name.clone(),
            reactor: about.reactor.clone(),
            shards: about.shards,
            started: memory.started.0.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            uptime: memory.started.1.elapsed().as_secs_f64(),
        },
        shards: state.opener.shards.loads(),
        listeners: state.listeners(),
        pools,
        served: served.collect(),
        disks: configured(state, &known),
    }
}

/// The disks of the configuration that were not detached.
fn configured(state: &ControlState, known: &[Known]) -> Vec<DiskMetrics> {
    let known: BTreeMap<&str, &Known> = known.iter().map(|it| (it.disk.name(), it)).collect();
    let refused = state.refused();
    let ended = state.disks();
    let disk = |name: &str| {
        let (state, is_up) = match known.get(name) {
            Some(known) => {
                let is_detaching = !known.disk.handle.is_open();
                let is_up = !known.is_silent && known.disk.unopened().is_none();
                (if is_detaching { "detaching" } else { "served" }, is_up)
            }
            None if refused.iter().any(|disk| disk.name == name) => ("refused", false),
            None if ended.iter().any(|disk| disk.name() == name) => return None,
            None => ("starting", false),
        };
        Some(DiskMetrics { name: name.to_owned(), state, is_up })
    };
    state.opener.spec().disks.iter().filter_map(|spec| disk(&spec.name.0)).collect()
}

impl Memory {
    /// What each pool says, or said last. A pool that does not answer holds up one thread, not one for each scrape.
    async fn pools(&self, state: &ControlState) -> Vec<PoolMetrics> {
        let pools = state.opener.flash.pools();
        let asked = pools.iter().map(|(path, pool)| self.ask(path, pool));
        let answers = asked.collect::<Vec<_>>();
        let all = async {
            for answer in answers.into_iter().flatten() {
                let _ = answer.await;
            }
        };
        let _ = tokio::time::timeout(POOLS_MAX, all).await;
        let mut last = lock(&self.pools);
        // One that is closed is no more asked: what it said last is of the past.
        last.retain(|path, _| pools.iter().any(|(open, _)| open == path));
        let pools = last.iter().map(|(path, (usage, is_asked))| PoolMetrics {
            path: std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string(),
            is_up: !is_asked,
            usage: *usage,
        });
        pools.collect()
    }

    /// Asks a pool, unless it still owes an answer.
    fn ask(&self, path: &Path, pool: &SharedPool) -> Option<tokio::task::JoinHandle<()>> {
        let mut last = lock(&self.pools);
        let (_, is_asked) = last.entry(path.to_owned()).or_default();
        if std::mem::replace(is_asked, true) {
            return None;
        }
        let (path, pool, last) = (path.to_owned(), pool.clone(), self.pools.clone());
        Some(tokio::task::spawn_blocking(move || {
            let usage = report::usage(&pool::lock(&pool));
            lock(&last).insert(path, (Some(usage), false));
        }))
    }
}
