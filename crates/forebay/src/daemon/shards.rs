//! The shards: which disk is on which, and how busy each is.
//!
//! A disk goes to the shard that is least busy; among those that are about as busy, to the one with the fewest disks. Disks of
//! one iSCSI target live on one shard.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use forebay_shard::{DiskHandle, Drained, NewDisk, ShardSender};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::api::ShardLoad;
use super::control::{ControlState, lock};
use crate::config::DaemonSpec;
use crate::config::iscsi::IscsiSpec;
use crate::config::values::Name;

/// Between two looks at how busy they are.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Time that a shard has to say so.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Shards whose shares of a CPU differ by less are about as busy.
const ABOUT: f64 = 0.1;

/// See the module.
#[derive(Debug)]
pub(super) struct Shards {
    senders: Vec<ShardSender>,
    /// Where disks are.
    of_disks: Mutex<BTreeMap<Name, usize>>,
    /// Where the disks of iSCSI targets are, also when none is served: those that come back go there, too.
    of_targets: Mutex<BTreeMap<String, usize>>,
    loads: Mutex<Vec<Load>>,
}

/// The load of one.
#[derive(Clone, Copy, Debug)]
struct Load {
    seen: Instant,
    cpu: Duration,
    /// The part of a CPU that it took between the last two looks. None: it did not answer.
    busy: Option<f64>,
}

impl Shards {
    pub(super) fn new(senders: Vec<ShardSender>) -> Shards {
        // Nobody has asked them for anything yet.
        let idle = Load { seen: Instant::now(), cpu: Duration::ZERO, busy: Some(0.0) };
        let loads = Mutex::new(vec![idle; senders.len()]);
        Shards { senders, of_disks: Mutex::default(), of_targets: Mutex::default(), loads }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.senders.len()
    }

    /// How many disks each has, and how busy it is.
    pub(super) fn loads(&self) -> Vec<ShardLoad> {
        let of_disks = lock(&self.of_disks);
        let disks = |shard: usize| of_disks.values().filter(|it| **it == shard).count();
        let loads = lock(&self.loads);
        let load = |(shard, load): (usize, &Load)| ShardLoad {
            disks: disks(shard),
            busy: load.busy,
            cpu_seconds: load.cpu.as_secs_f64(),
        };
        loads.iter().enumerate().map(load).collect()
    }

    /// The shard for a disk that is to be opened.
    pub(super) fn for_disk(&self, spec: &DaemonSpec, name: &Name) -> usize {
        let target = target_of(spec, name);
        let known = target.and_then(|it| lock(&self.of_targets).get(&it.target.0).copied());
        known.unwrap_or_else(|| least_busy(&self.loads(), None))
    }

    /// The shard for a disk that leaves this one, of several.
    pub(super) fn least_busy_but(&self, shard: usize) -> usize {
        least_busy(&self.loads(), Some(shard))
    }

    /// Whether a shard comes round to its mailbox.
    pub(super) async fn answers(&self, shard: usize) -> bool {
        matches!(timeout(ANSWER_MAX, self.senders[shard].turn()).await, Ok(Some(_)))
    }

    /// Hands a disk over, in the place of one that has ended beneath its clients, or in none. With how often the RAM cache there
    /// was resized until then.
    ///
    /// # Errors
    /// The shard cannot take it; the clients wait on.
    pub(super) async fn hand_over(
        &self,
        shard: usize,
        spec: &DaemonSpec,
        (name, new): (&Name, NewDisk),
        ended: Option<&DiskHandle>,
    ) -> Result<(DiskHandle, u64)> {
        let handed_over = match ended {
            None => (self.senders[shard].add(new).await?, 0),
            Some(ended) => (ended.clone(), self.senders[shard].replace(ended, new).await?),
        };
        lock(&self.of_disks).insert(name.clone(), shard);
        if let Some(target) = target_of(spec, name) {
            // The first one decides, until all move.
            lock(&self.of_targets).entry(target.target.0.clone()).or_insert(shard);
        }
        Ok(handed_over)
    }

    /// The disks of these targets have moved.
    pub(super) fn note_targets(&self, targets: impl Iterator<Item = String>, shard: usize) {
        lock(&self.of_targets).extend(targets.map(|target| (target, shard)));
    }

    /// A disk has left its shard.
    pub(super) fn forget(&self, disk: &str) {
        lock(&self.of_disks).retain(|name, _| name.0 != disk);
    }

    /// Has the clients of disks that were handed over to this shard come to it, from the shard of those that have ended.
    ///
    /// # Errors
    /// A shard has ended.
    pub(super) async fn take_clients(&self, shard: usize, disks: &[DiskHandle]) -> Result<()> {
        self.senders[shard].take_clients(disks).await
    }

    /// Ends a disk that was handed over to this shard in the place of one of another shard, and whose clients have not come.
    ///
    /// # Errors
    /// The shard has ended.
    pub(super) async fn give_back(&self, shard: usize, disk: &DiskHandle) -> Result<Drained> {
        self.senders[shard].give_back(disk).await
    }

    /// Looks how busy they are. One that hangs holds up none.
    async fn look(&self) {
        let mut asked = JoinSet::new();
        for (shard, sender) in self.senders.iter().cloned().enumerate() {
            asked.spawn(async move { (shard, timeout(ANSWER_MAX, sender.turn()).await) });
        }
        while let Some(answer) = asked.join_next().await {
            let Ok((shard, answer)) = answer else { continue };
            let mut loads = lock(&self.loads);
            let load = &mut loads[shard];
            load.busy = None;
            if let Ok(Some(cpu)) = answer {
                let (took, since) = (cpu.saturating_sub(load.cpu), load.seen.elapsed());
                let busy = took.as_secs_f64() / since.as_secs_f64();
                *load = Load { seen: Instant::now(), cpu, busy: Some(busy.min(1.0)) };
            }
        }
    }
}

/// Looks how busy shards are, without end.
pub(super) async fn follow(state: Arc<ControlState>) {
    loop {
        sleep(LOOK_EVERY).await;
        state.opener.shards.look().await;
    }
}

/// The one that is least busy, but for one; a shard that does not answer is as busy as can be.
fn least_busy(loads: &[ShardLoad], but: Option<usize>) -> usize {
    let steps = |load: &ShardLoad| (load.busy.unwrap_or(f64::INFINITY) / ABOUT) as u64;
    let shards = (0..loads.len()).filter(|shard| Some(*shard) != but);
    let least = shards.min_by_key(|shard| (steps(&loads[*shard]), loads[*shard].disks));
    least.expect("one shard at least")
}

/// The iSCSI target that a disk is a logical unit of.
pub(super) fn target_of<'a>(spec: &'a DaemonSpec, name: &Name) -> Option<&'a IscsiSpec> {
    spec.targets.iter().find(|it| it.luns.values().any(|unit| unit == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_goes_to_the_shard_that_is_least_busy_and_among_idle_ones_to_that_with_fewest_disks() {
        let load = |disks, busy| ShardLoad { disks, busy, cpu_seconds: 0.0 };
        let idle = [load(3, Some(0.02)), load(2, Some(0.09)), load(2, Some(0.0))];
        assert_eq!(least_busy(&idle, None), 1);
        assert_eq!(least_busy(&idle, Some(1)), 2);
        let one_works = [load(1, Some(0.85)), load(40, Some(0.03))];
        assert_eq!(least_busy(&one_works, None), 1);
        assert_eq!(least_busy(&one_works, Some(1)), 0);
        let one_hangs = [load(0, None), load(9, Some(1.0))];
        assert_eq!(least_busy(&one_hangs, None), 1);
        assert_eq!(least_busy(&one_hangs[..1], None), 0);
    }
}
