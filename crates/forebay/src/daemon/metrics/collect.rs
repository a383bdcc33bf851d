//! Collects what a scrape shows. Nothing here waits for storage, and for nothing else longer than [`POOLS_MAX`] and what
//! `figures.rs` waits for shards.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_host::pool;
use forebay_host::pool::report::{self, PoolUsage};

use super::texts::Texts;
use super::{Daemon, DiskMetrics, PoolMetrics, Scrape, ServedMetrics};
use crate::daemon::control::{ControlState, lock};
use crate::daemon::figures::Known;
use crate::daemon::flash::OpenPool;
use crate::daemon::questions::About;

/// Time that the pools have. One whose flash hangs may be locked.
const POOLS_MAX: Duration = Duration::from_millis(100);

/// What outlives a scrape.
#[derive(Debug)]
pub(in crate::daemon) struct Memory {
    started: (SystemTime, Instant),
    /// What each pool said last, if it ever did.
    pools: Mutex<BTreeMap<PathBuf, Option<PoolUsage>>>,
    pub(super) texts: Texts,
}

impl Default for Memory {
    fn default() -> Memory {
        let started = (SystemTime::now(), Instant::now());
        Memory { started, pools: Mutex::default(), texts: Texts::default() }
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
        let of = pools.iter().map(|open| (open, About::Usage(open.path.clone())));
        let usage = |open: &&OpenPool| {
            let pool = open.pool.clone();
            move || report::usage(&pool::lock(&pool))
        };
        let said = state.opener.questions.ask_each(of, POOLS_MAX, usage).await;
        let mut last = lock(&self.pools);
        // One that is closed is no more asked: what it said last is of the past.
        last.retain(|path, _| pools.iter().any(|open| open.path == *path));
        let pools = said.into_iter().map(|(OpenPool { path, .. }, said)| {
            let last = last.entry(path.clone()).or_default();
            *last = said.ok().or(*last);
            PoolMetrics {
                path: std::path::absolute(path)
                    .unwrap_or_else(|_| path.clone())
                    .display()
                    .to_string(),
                is_up: said.is_ok(),
                usage: *last,
            }
        });
        pools.collect()
    }
}
