//! Figures of every disk at once, for whoever watches them all: `/metrics`, `forebay top`, `forebay disk list`.
//!
//! ```text
//!   Figures::all ──► a task per shard ──DiskHandle::figures──► its disks, a few at a time
//!        │                 └── ServedDisk::note_figures
//!        └── waits for those tasks, a second at most ──► what each disk answered last
//! ```
//! A shard answers for a few disks a turn ([`DISKS_A_TURN`]). All at once would hold up I/O for milliseconds, and one by one
//! would take a turn of the whole shard for each. A shard that does not answer in time holds up
//! nobody. Its disks are shown as they answered last, and as silent. The task goes on waiting for it, and nobody asks that
//! shard anything more until the task has ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_shard::DiskFigures;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::served::ServedDisk;

/// Time that all shards have for their answers.
const ANSWERS_MAX: Duration = Duration::from_secs(1);

/// Disks of a shard that are asked together. An answer takes up to 0.1 ms.
const DISKS_A_TURN: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// Who asks a shard, by its number.
    asking: Mutex<BTreeMap<usize, JoinHandle<()>>>,
}

/// What is known of one disk.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) disk: Arc<ServedDisk>,
    /// What it answered last, and when; `None`: it never did.
    pub(super) figures: Option<(Instant, Arc<DiskFigures>)>,
    /// It did not answer in time.
    pub(super) is_silent: bool,
}

impl Figures {
    /// Asks `disks`; what is known of each, in the same order. One round after the other.
    pub(super) async fn all(&self, disks: Vec<Arc<ServedDisk>>) -> Vec<Known> {
        let mut asking = self.asking.lock().await;
        let began = Instant::now();
        let mut by_shard = BTreeMap::<usize, Vec<Arc<ServedDisk>>>::new();
        for disk in &disks {
            by_shard.entry(disk.info.shard).or_default().push(disk.clone());
        }
        by_shard.retain(|shard, _| asking.get(shard).is_none_or(JoinHandle::is_finished));
        let asked: Vec<usize> = by_shard.keys().copied().collect();
        asking.extend(by_shard.into_iter().map(|(shard, disks)| (shard, tokio::spawn(ask(disks)))));
        for shard in asked {
            let task = asking.get_mut(&shard).expect("it was put there");
            let _ = timeout_at(began + ANSWERS_MAX, task).await;
        }
        let known = disks.into_iter().map(|disk| {
            let last = disk.last_figures();
            let is_silent = last.as_ref().is_none_or(|(at, _)| *at < began);
            Known { disk, figures: last, is_silent }
        });
        known.collect()
    }
}

/// Asks disks of one shard.
async fn ask(disks: Vec<Arc<ServedDisk>>) {
    for together in disks.chunks(DISKS_A_TURN) {
        let asked = together.iter().map(|disk| (disk, disk.handle.figures()));
        for (disk, answer) in asked.collect::<Vec<_>>() {
            // A disk that has ended meanwhile answers no more.
            let Ok(answer) = answer else { continue };
            if let Ok(figures) = answer.await {
                disk.note_figures(figures.into());
            }
        }
    }
}
