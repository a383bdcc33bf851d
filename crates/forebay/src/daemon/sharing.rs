//! RAM that disks share: now and then each gets as much as it gains from (`forebay_trace::share`).
//!
//! ```text
//!   every EVERY ─► curves of the disks that share ─► plan ─► those that are to have less shrink
//!                                                              └─ RAM is free ─► the others grow, now or in a later round
//! ```
//! **Invariant:** the disks that share have no more RAM together than they bring, but for a disk that is given more by
//! command while others have lent theirs: until the next round.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_backends::size::rounded;
use forebay_core::mrc::Snapshot;
use forebay_core::observer::Observer;
use forebay_host::events::Severity;
use forebay_trace::share::{self, Demand, Member};
use tokio::time::{sleep, timeout};

use super::control::ControlState;
use super::opening;
use super::served::ServedDisk;
use crate::config::values::Name;
use crate::config::{DaemonSpec, DiskSpec};

/// Between two rounds.
const EVERY: Duration = Duration::from_secs(10);
/// What was seen before a round counts so much after it: half of it is forgotten in six minutes.
const KEEP: f64 = 0.98;
/// Time that a disk has for its answer; without one all stays as it is.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Divides RAM anew, without end.
pub(super) async fn follow(state: Arc<ControlState>) {
    let mut sharing = Sharing::default();
    loop {
        sleep(EVERY).await;
        let spec = state.opener.spec();
        let Some(disks) = seen(&state, &spec).await else { continue };
        // A change by command goes first: none waits for a disk that does not answer.
        let Ok(_one) = state.reloading.try_lock() else { continue };
        if Arc::ptr_eq(&spec, &state.opener.spec()) {
            sharing.round(&state, &disks).await;
        }
    }
}

#[derive(Default)]
struct Sharing {
    demands: BTreeMap<Name, Demand>,
    /// What each is to have, where that was changed.
    planned: BTreeMap<Name, u64>,
}

/// A disk that shares, as it is.
struct Seen {
    spec: DiskSpec,
    disk: Arc<ServedDisk>,
    block_size: u64,
    /// Bytes that its slots take.
    has: u64,
    /// Bytes that a disk at work has room for.
    room: u64,
    /// What it read, and how often.
    read: (Snapshot, u64),
}

impl Seen {
    /// Bytes of whole blocks, as the cache has them.
    fn whole(&self, bytes: u64) -> u64 {
        bytes / self.block_size * self.block_size
    }

    /// Bytes that it brings.
    fn brings(&self) -> u64 {
        self.whole(self.spec.ram_bytes)
    }

    fn member<'a>(&self, demand: &'a Demand) -> Member<'a> {
        let sharing = self.spec.sharing;
        let room = self.room.max(self.spec.ram_bytes);
        Member {
            brings: self.brings(),
            has: self.has,
            reservation: self.whole(sharing.reservation),
            limit: self.whole(sharing.limit.min(room)),
            shares: sharing.shares,
            block_size: self.block_size,
            demand,
        }
    }
}

impl Sharing {
    async fn round(&mut self, state: &Arc<ControlState>, disks: &[Seen]) {
        let is_there = |name: &Name| disks.iter().any(|it| it.spec.name == *name);
        self.demands.retain(|name, _| is_there(name));
        self.planned.retain(|name, _| is_there(name));
        let pool = disks.iter().map(Seen::brings).fold(0, u64::saturating_add);
        for seen in disks {
            let demand = self.demands.entry(seen.spec.name.clone()).or_default();
            let sizes = share::blocks_asked_for(pool, &seen.member(demand));
            demand.look(seen.read.clone(), sizes.into_iter(), KEEP);
        }
        let members: Vec<Member<'_>> =
            disks.iter().map(|it| it.member(&self.demands[&it.spec.name])).collect();
        if let Some(planned) = share::plan(&members) {
            let names = disks.iter().map(|it| it.spec.name.clone());
            self.planned = names.zip(planned).collect();
        }
        self.carry_out(state, pool, disks).await;
    }

    /// Goes towards what is planned: shrinks first, and grows as far as there is RAM.
    async fn carry_out(&self, state: &Arc<ControlState>, pool: u64, disks: &[Seen]) {
        let wanted = |it: &Seen| {
            let planned = self.planned.get(&it.spec.name).copied().unwrap_or(it.spec.ram_bytes);
            let sharing = it.spec.sharing;
            it.whole(planned.clamp(sharing.reservation, sharing.limit))
        };
        let taken = disks.iter().map(|it| it.has).fold(0, u64::saturating_add);
        let mut free = pool.saturating_sub(taken);
        for seen in disks {
            let wanted = wanted(seen);
            // One that shrinks still has what it is to lose. It may keep that, if it is wanted again.
            let more = seen.whole(wanted.saturating_sub(seen.has).min(free));
            free -= more;
            resize(state, seen, wanted.min(seen.has + more)).await;
        }
    }
}

/// The disks that share, if each answers.
async fn seen(state: &Arc<ControlState>, spec: &DaemonSpec) -> Option<Vec<Seen>> {
    let sharing: Vec<_> = spec
        .disks
        .iter()
        .filter_map(|disk| Some((disk.clone(), state.find(&disk.name.0).ok()?)))
        // One that shares no more may have something else than it brought.
        .filter(|(spec, disk)| {
            let blocks = |bytes| bytes / disk.info().block_size;
            spec.shares_ram() || blocks(disk.info().ram_bytes) != blocks(spec.ram_bytes)
        })
        .collect();
    if sharing.is_empty() {
        return None;
    }
    let mut all = Vec::with_capacity(sharing.len());
    let room = opening::ram_room();
    for (spec, disk) in sharing {
        let look = |observer: &mut Observer| observer.uses().map(|uses| uses.snapshot());
        let answers = async {
            let status = disk.handle.stats().await.ok()?;
            Some((status, disk.handle.observe(look).await.ok()??))
        };
        let (status, snapshot) = timeout(ANSWER_MAX, answers).await.ok()??;
        let block_size = status.engine.block_size;
        let has = status.engine.ram.slots * block_size;
        let read = (snapshot, status.engine.counters.reads);
        all.push(Seen { spec, disk: disk.clone(), block_size, has, room, read });
    }
    Some(all)
}

/// Gives a disk another size, unless it was told before.
async fn resize(state: &Arc<ControlState>, seen: &Seen, bytes: u64) {
    if seen.whole(seen.disk.info().ram_bytes) == bytes {
        return;
    }
    // On a task of its own: what it waits for is given to it, however late it answers.
    let (opener, disk) = (state.opener.clone(), seen.disk.clone());
    let resizing = tokio::spawn(async move { opener.resize_ram(&disk, bytes).await });
    let Ok(Ok(resized)) = timeout(ANSWER_MAX, resizing).await else { return };
    let (severity, text) = match resized {
        Ok(()) => {
            let (has, brought) = (rounded(bytes), rounded(seen.spec.ram_bytes));
            let what = if bytes < seen.has { "lends RAM to others" } else { "gets RAM of others" };
            (Severity::Info, format!("it {what}: it has {has} now, and brought {brought}"))
        }
        Err(error) => (Severity::Warning, format!("it cannot share RAM: {error:#}")),
    };
    state.report(Some(seen.disk.name()), severity, &text);
}
