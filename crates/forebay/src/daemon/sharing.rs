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
use super::served::ServedDisk;
use crate::config::DiskSpec;
use crate::config::values::Name;

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
        // A change by command goes first.
        if let Ok(_one) = state.reloading.try_lock() {
            sharing.round(&state).await;
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
    /// What it read, and how often.
    read: (Snapshot, u64),
}

impl Seen {
    fn member<'a>(&self, demand: &'a Demand) -> Member<'a> {
        Member {
            brings: self.spec.ram_bytes,
            has: self.has,
            reservation: self.spec.sharing.reservation,
            limit: self.spec.sharing.limit,
            shares: self.spec.sharing.shares,
            block_size: self.block_size,
            demand,
        }
    }
}

impl Sharing {
    async fn round(&mut self, state: &Arc<ControlState>) {
        let Some(disks) = seen(state).await else { return };
        let is_there = |name: &Name| disks.iter().any(|it| it.spec.name == *name);
        self.demands.retain(|name, _| is_there(name));
        self.planned.retain(|name, _| is_there(name));
        let pool = disks.iter().map(|it| it.spec.ram_bytes).fold(0, u64::saturating_add);
        for seen in &disks {
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
        self.carry_out(state, pool, &disks).await;
    }

    /// Goes towards what is planned: shrinks first, and grows as far as there is RAM.
    async fn carry_out(&self, state: &Arc<ControlState>, pool: u64, disks: &[Seen]) {
        let wanted = |it: &Seen| {
            let planned = self.planned.get(&it.spec.name).copied();
            let sharing = it.spec.sharing;
            let wanted = planned.unwrap_or(it.spec.ram_bytes);
            wanted.clamp(sharing.reservation, sharing.limit) / it.block_size * it.block_size
        };
        let taken = disks.iter().map(|it| it.has).fold(0, u64::saturating_add);
        let mut free = pool.saturating_sub(taken);
        for seen in disks.iter().filter(|it| wanted(it) < it.has) {
            resize(state, seen, wanted(seen)).await;
        }
        for seen in disks.iter().filter(|it| wanted(it) > it.has) {
            let more = (wanted(seen) - seen.has).min(free) / seen.block_size * seen.block_size;
            if more > 0 && resize(state, seen, seen.has + more).await {
                free -= more;
            }
        }
    }
}

/// The disks that share, if each answers.
async fn seen(state: &Arc<ControlState>) -> Option<Vec<Seen>> {
    let spec = state.opener.spec();
    let sharing: Vec<_> = spec
        .disks
        .iter()
        .filter_map(|disk| Some((disk.clone(), state.find(&disk.name.0).ok()?)))
        // One that shares no more may have something else than it brought.
        .filter(|(spec, disk)| spec.shares_ram() || disk.info().ram_bytes != spec.ram_bytes)
        .collect();
    if sharing.is_empty() {
        return None;
    }
    let mut all = Vec::with_capacity(sharing.len());
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
        all.push(Seen { spec, disk: disk.clone(), block_size, has, read });
    }
    Some(all)
}

/// Gives a disk another size; true when it has it.
async fn resize(state: &Arc<ControlState>, seen: &Seen, bytes: u64) -> bool {
    // It has been told before, and takes some time.
    if seen.disk.info().ram_bytes == bytes {
        return true;
    }
    let name = Some(seen.disk.name());
    match state.opener.resize_ram(&seen.disk, bytes).await {
        Ok(()) => {
            let verb = if bytes < seen.has { "lends RAM to others" } else { "gets RAM of others" };
            let text = format!(
                "it {verb}: it has {} now, and brought {}",
                rounded(bytes),
                rounded(seen.spec.ram_bytes)
            );
            state.report(name, Severity::Info, &text);
            true
        }
        Err(error) => {
            state.report(name, Severity::Warning, &format!("it cannot share RAM: {error:#}"));
            false
        }
    }
}
