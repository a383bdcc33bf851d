//! The end of a daemon, in order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use forebay_frontends::client::DiskId;
use forebay_host::events::Severity;
use forebay_shard::{Drained, ShardHandle};
use tokio::time::{Instant, timeout_at};

use super::ending::{self, Left};
use super::served::ServedDisk;
use super::{Daemon, advice, kept, systemd};

/// Time that disks have to finish what is in flight when the daemon ends.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(30);
/// Time that threads have to end.
const END_TIME_MAX: Duration = Duration::from_secs(5);
/// Time that pools have to note how disks were left.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(10);
/// Time that a disk which is being opened when the daemon ends has to come to its shard.
const OPENING_TIME_MAX: Duration = Duration::from_secs(5);
/// Time that the control socket has to send its last answers.
const LAST_ANSWERS_MAX: Duration = Duration::from_secs(1);

/// Time that all of an end takes at most, listeners and the log of events included.
const SHUT_DOWN_TIME_MAX: Duration = Duration::from_secs(
    10 + OPENING_TIME_MAX.as_secs()
        + DRAIN_TIME_MAX.as_secs()
        + LEAVE_TIME_MAX.as_secs()
        + LAST_ANSWERS_MAX.as_secs()
        + END_TIME_MAX.as_secs(),
);

impl Daemon {
    /// Ends in order: nobody new, what is in flight finishes, logs are committed, primary storage is flushed. An event
    /// says whether a log holds what is not on primary storage.
    ///
    /// # Errors
    /// Not all of that succeeded: on which disks, and what is not safe. The daemon has ended nevertheless.
    pub async fn shut_down(mut self) -> Result<()> {
        systemd::stopping(SHUT_DOWN_TIME_MAX);
        // The control socket answers until the end; only the listeners close.
        self.control.frontends.close().await;
        // A disk that is being opened comes to its shard before that ends, or not at all; no other is opened.
        let opening = self.control.turns.opening.clone().lock_owned();
        let _no_other = timeout_at(Instant::now() + OPENING_TIME_MAX, opening).await;
        self.control.note_end();
        self.control.frontends.close().await;
        self.following.abort();
        advice::settle_all(self.control.disks()).await;
        let limit = Instant::now() + DRAIN_TIME_MAX;
        // Nobody else tells what the logs of disks have that are not served.
        let refused = kept::in_logs(self.control.clone());
        // All shards at once: one that hangs does not keep the others from ending well.
        let draining: Vec<_> = self.shards.iter().map(ShardHandle::drain).collect();
        let mut trouble = Vec::new();
        let mut ended = Vec::new();
        for (shard, answer) in draining.into_iter().enumerate() {
            match answer {
                Ok(mut answer) => match timeout_at(limit, &mut answer).await {
                    Ok(Ok(disks)) => ended.extend(disks.into_iter().map(|disk| (shard, disk))),
                    Ok(Err(_)) => trouble.push(format!("shard {shard} ended early")),
                    Err(_) => {
                        // One disk that does not end keeps no other from being left as it is.
                        let some = self.ended(shard).await;
                        let some = answer.try_recv().unwrap_or(some);
                        trouble.extend(self.late(shard, &some));
                        ended.extend(some.into_iter().map(|disk| (shard, disk)));
                    }
                },
                Err(gone) => trouble.push(format!("shard {shard}: {gone}")),
            }
        }
        let disks = self.control.disks();
        retain_last(&mut ended, |id| {
            disks.iter().find(|disk| disk.handle.id() == id).map(|disk| disk.info.shard)
        });
        let mut dirty = Vec::new();
        for (_, disk) in &ended {
            match ending::left(disk) {
                Left::OnPrimaryStorage => {}
                Left::InLog(_) => dirty.push(disk.name.clone()),
                Left::NotSafe(why) => trouble.push(format!("disk '{}': {why}", disk.name)),
            }
        }
        // One that was given up because it could not be opened again ended before.
        let given_up = disks.iter().filter(|disk| disk.given_up().is_some());
        dirty.extend(given_up.map(|disk| disk.name().to_owned()));
        let (dirty, unlisted): (Vec<_>, Vec<_>) =
            dirty.into_iter().partition(|name| self.control.is_listed(name));
        trouble.extend(self.leave_places(ended).await);
        let kept = refused.join_all().await.into_iter().flatten().collect::<Vec<_>>();
        self.control.http.close();
        // Who waits for the end of a disk hears of it.
        self.control_end = None;
        let _ = tokio::time::timeout(LAST_ANSWERS_MAX, &mut self.answering).await;
        if tokio::time::timeout(END_TIME_MAX, self.end_threads()).await.is_err() {
            trouble
                .push("a thread does not end: flash or primary storage does not answer".to_owned());
        }
        if trouble.is_empty() {
            let (severity, text) = ending::in_order(&dirty, &unlisted, &kept);
            self.report(severity, text);
        } else {
            trouble.extend(unlisted.iter().map(|disk| ending::not_listed(disk)));
            trouble.extend(kept.iter().map(ending::not_served));
        }
        self.control.events.end_all_repeated();
        self.control.events.settle(&self.events).await;
        systemd::settle();
        ensure!(trouble.is_empty(), "it did not end well: {}", trouble.join("; "));
        Ok(())
    }

    /// The disks of a shard that have ended by now.
    async fn ended(&self, shard: usize) -> Vec<Drained> {
        let Ok(answer) = self.shards[shard].ended() else { return Vec::new() };
        let answered = tokio::time::timeout(LAST_ANSWERS_MAX, answer).await;
        answered.ok().and_then(Result::ok).unwrap_or_default()
    }

    /// The disks of a shard took too long to end, but for these.
    fn late(&self, shard: usize, ended: &[Drained]) -> Option<String> {
        let disks = self.info().disks.into_iter().filter(|disk| disk.shard == shard);
        let served = self.control.disks();
        let has_ended = |name: &str| {
            let here = served.iter().find(|disk| disk.name() == name);
            here.is_some_and(|disk| ended.iter().any(|ended| ended.id == disk.handle.id()))
        };
        let names = disks.map(|disk| disk.name);
        let names: Vec<String> = names.filter(|name| !has_ended(name)).collect();
        let text = format!(
            "not everything in flight finished within {}s on disk {}; what was not acknowledged may be lost",
            DRAIN_TIME_MAX.as_secs(),
            names.join(", ")
        );
        (!names.is_empty()).then_some(text)
    }

    /// Ends shards, devices and the owners of pools, on a thread that may wait for files to be closed.
    async fn end_threads(&mut self) {
        self.has_ended = true;
        let shards = std::mem::take(&mut self.shards);
        let (frontends, opener) = (self.control.frontends.clone(), self.control.opener.clone());
        let ending = move || {
            // Shards first: nobody asks the owners of pools for anything then.
            drop(shards);
            frontends.end_devices();
            opener.flash.end();
        };
        let _ = tokio::task::spawn_blocking(ending).await;
    }

    /// Notes in the pools how each disk was left; what went wrong. Flash that hangs, be it as another disk is opened, holds
    /// up nothing for longer than that may take.
    async fn leave_places(&self, ended: Vec<(usize, Drained)>) -> Vec<String> {
        let limit = Instant::now() + LEAVE_TIME_MAX;
        let disks = self.control.disks();
        let leaving = ended.into_iter().filter_map(|(shard, disk)| {
            // Not by its name: one that was detached before, and came back, had the same.
            let is_it = |it: &&Arc<ServedDisk>| it.info.shard == shard && it.handle.id() == disk.id;
            let served = disks.iter().find(is_it)?.clone();
            let name = disk.name.clone();
            Some((name, tokio::task::spawn_blocking(move || served.leave(&disk))))
        });
        let mut trouble = Vec::new();
        for (name, left) in leaving.collect::<Vec<_>>() {
            let why = match timeout_at(limit, left).await {
                Ok(Ok(Ok(warning))) => {
                    if let Some(text) = warning {
                        self.events.report(Some(&name), Severity::Warning, text);
                    }
                    continue;
                }
                Ok(Ok(Err(error))) => format!("{error:#}"),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!(
                    "how it was left could not be noted within {}s, its flash or its primary storage does not answer: the next \
                     start takes this end for a crash",
                    LEAVE_TIME_MAX.as_secs()
                ),
            };
            trouble.push(format!("disk '{name}': {why}"));
        }
        trouble
    }
}

/// Keeps what tells how each disk ended last. Of one that was to move the shard of before tells, too, and counts where the
/// one that it is listed on does not: it was given back then, and waits to be opened where it was.
fn retain_last(ended: &mut Vec<(usize, Drained)>, listed: impl Fn(DiskId) -> Option<usize>) {
    let is_of_listed = |shard: usize, id| listed(id) == Some(shard);
    let of_listed = ended.iter().filter(|(shard, disk)| is_of_listed(*shard, disk.id));
    let told: BTreeSet<DiskId> = of_listed.map(|(_, disk)| disk.id).collect();
    ended.retain(|(shard, disk)| is_of_listed(*shard, disk.id) || !told.contains(&disk.id));
}

#[cfg(test)]
mod tests {
    use forebay_core::status::IoStatus;

    use super::*;

    fn ended(id: u32) -> Drained {
        Drained {
            id: DiskId(id),
            name: format!("disk-{id}"),
            status: IoStatus::Ok,
            unflushed_bytes: 0,
            has_unreported_loss: false,
            log_end: None,
            log: None,
            is_detaching: false,
            is_quiet: true,
        }
    }

    #[test]
    fn the_end_hears_each_disk_once_and_every_disk() {
        // By disk: where it is listed, which shards tell of it, and who is heard.
        let check = |listed: Option<usize>, tell: &[usize], heard: &[usize]| {
            let mut all: Vec<_> = tell.iter().map(|shard| (*shard, ended(1))).collect();
            all.push((3, ended(2)));
            retain_last(&mut all, |id| if id == DiskId(1) { listed } else { Some(3) });
            let of_one = all.iter().filter(|(_, disk)| disk.id == DiskId(1));
            let shards: Vec<usize> = of_one.map(|(shard, _)| *shard).collect();
            assert_eq!(shards, heard, "listed on {listed:?}, {tell:?}");
            assert!(all.iter().any(|(_, disk)| disk.id == DiskId(2)));
        };
        check(Some(0), &[0], &[0]);
        check(Some(1), &[0, 1], &[1]);
        check(Some(1), &[1, 0], &[1]);
        // It was given back, and its opening where it was waits.
        check(Some(1), &[0], &[0]);
        check(None, &[0], &[0]);
    }
}
