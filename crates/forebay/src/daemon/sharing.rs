//! RAM and flash that disks share: now and then each gets as much as it gains from (`forebay_trace::share`).
//!
//! ```text
//!   every EVERY ─► curves of the disks that share ─► plan ─► those that are to have less shrink
//!                                                              └─ some is free ─► the others grow, now or in a later round
//! ```
//! RAM is shared by all disks, flash by those that have it on one device.
//!
//! **Invariant:** the disks that share have no more together than they bring, but for a disk that is given more by command
//! while others have lent theirs: until the next round. Of flash a disk gets only what its pool has given it.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use forebay_backends::size::rounded;
use forebay_core::mrc::Snapshot;
use forebay_core::observer::Observer;
use forebay_host::events::Severity;
use forebay_trace::share::{self, Demand, Member};
use tokio::time::{Instant, sleep, timeout};

use super::control::ControlState;
use super::opening;
use super::served::{Resized, ServedDisk};
use crate::config::values::Name;
use crate::config::{self, DaemonSpec, DiskSpec};
use plan::Plan;

/// Between two rounds.
const EVERY: Duration = Duration::from_secs(10);
/// What was seen before a round counts so much after it: half of it is forgotten in six minutes.
const KEEP: f64 = 0.98;
/// Time that a disk has for its answer; without one all stays as it is.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Divides RAM and flash anew, without end.
pub(super) async fn follow(state: Arc<ControlState>) {
    let mut divisions: BTreeMap<Whole, Division> = BTreeMap::new();
    loop {
        sleep(EVERY).await;
        let spec = state.opener.spec();
        let seen = seen(&state, &spec).await;
        // A change by command goes first: none waits for a disk that does not answer.
        let Ok(_one) = state.turns.reloading.try_lock() else { continue };
        if !Arc::ptr_eq(&spec, &state.opener.spec()) {
            continue;
        }
        divisions.retain(|whole, _| seen.contains_key(whole));
        for (whole, disks) in seen.into_iter().filter(|(_, disks)| !disks.is_empty()) {
            divisions.entry(whole).or_default().round(&state, &disks).await;
        }
    }
}

/// What is divided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whole {
    Ram,
    /// Of this device, for cached data.
    Flash(PathBuf),
}

impl Whole {
    fn name(&self) -> &'static str {
        match self {
            Whole::Ram => "RAM",
            Whole::Flash(_) => "flash",
        }
    }
}

/// How one of them is divided.
#[derive(Default)]
struct Division {
    demands: BTreeMap<Name, Demand>,
    /// What each is to have.
    plan: Plan,
    /// Those of which it was told that they cannot have that.
    told: BTreeSet<Name>,
    /// Those that cannot get more: others lend them nothing meanwhile.
    stuck: BTreeMap<Name, Stuck>,
}

/// A disk that could not get more of a whole.
struct Stuck {
    /// Rounds until it is planned to get more again.
    rounds: u32,
    /// Rounds after the next time that it cannot.
    next: u32,
}

/// Rounds after which a disk that could not get more is planned to again, at first and at most: 5 minutes and 2 hours.
const STUCK_MIN: u32 = 30;
const STUCK_MAX: u32 = 720;

/// A disk that shares, as it is.
struct Seen {
    name: Name,
    disk: Arc<ServedDisk>,
    whole: Whole,
    block_size: u64,
    /// It has a multiple of so many bytes.
    unit: u64,
    /// Bytes that it brings.
    brings: u64,
    /// Bytes that its slots take.
    has: u64,
    /// What it keeps, gets and counts.
    sharing: config::Sharing,
    /// Bytes that it gets at most, whatever its units.
    limit: u64,
    /// For how long it is open.
    age: Duration,
    /// What it read since then, and how often.
    read: (Snapshot, u64),
    /// It is in a mode that keeps what is read, so that more would save misses.
    keeps_reads: bool,
}

impl Seen {
    /// Whether it may hold more than it has by its own word, after this answer: flash that a disk does not use any more is its
    /// own until its pool has it back. RAM counts as its own as long as it is.
    fn holds_more(&self, resized: Resized) -> bool {
        matches!(self.whole, Whole::Flash(_)) && resized == Resized::NotYet
    }

    fn asked_for(&self, bytes: u64) -> AskedFor {
        let Seen { has, brings, limit, .. } = *self;
        AskedFor { disk: self.disk.clone(), whole: self.whole.clone(), has, brings, limit, bytes }
    }

    /// Bytes in whole units.
    fn whole(&self, bytes: u64) -> u64 {
        bytes / self.unit * self.unit
    }

    fn member<'a>(&self, demand: &'a Demand) -> Member<'a> {
        let config::Sharing { reservation, limit, shares } = self.sharing;
        Member {
            brings: self.brings,
            has: self.has,
            reservation: self.whole(reservation),
            limit: self.whole(limit),
            shares,
            block_size: self.block_size,
            demand,
        }
    }
}

impl Division {
    async fn round(&mut self, state: &Arc<ControlState>, disks: &[Seen]) {
        let is_there = |name: &Name| disks.iter().any(|it| it.name == *name);
        self.told.retain(is_there);
        self.stuck.retain(|name, _| is_there(name));
        self.stuck.values_mut().for_each(|stuck| stuck.rounds = stuck.rounds.saturating_sub(1));
        let pool = disks.iter().map(|it| it.brings).fold(0, u64::saturating_add);
        self.look(pool, disks);
        self.carry_out(state, pool, disks).await;
    }

    /// Takes note of what they read, and plans.
    fn look(&mut self, pool: u64, disks: &[Seen]) {
        self.demands.retain(|name, _| disks.iter().any(|it| it.name == *name));
        for seen in disks {
            let is_first = !self.demands.contains_key(&seen.name);
            let demand = self.demands.entry(seen.name.clone()).or_default();
            let sizes = share::blocks_asked_for(pool, &seen.member(demand));
            demand.look(seen.read.clone(), seen.keeps_reads, sizes.into_iter(), KEEP);
            if is_first {
                demand.weigh(first_counts(seen.age));
            }
        }
        let member = |seen: &'_ Seen| {
            let mut member = seen.member(&self.demands[&seen.name]);
            member.limit = self.limit(seen);
            member
        };
        let names = disks.iter().map(|it| &it.name);
        let members: Vec<(&Name, Member<'_>)> = names.zip(disks.iter().map(member)).collect();
        if let Some(plan) = self.plan.next(&members) {
            self.plan = plan;
        }
    }

    /// The most that a disk is to have; what it has as long as it cannot get more.
    fn limit(&self, seen: &Seen) -> u64 {
        let limit = seen.whole(seen.sharing.limit);
        match self.stuck.get(&seen.name) {
            Some(stuck) if stuck.rounds > 0 => limit.min(seen.has.max(seen.sharing.reservation)),
            Some(_) | None => limit,
        }
    }

    /// Goes towards what is planned: shrinks first, and grows as far as something is free.
    async fn carry_out(&mut self, state: &Arc<ControlState>, pool: u64, disks: &[Seen]) {
        let wish = |it: &Seen| {
            let planned = self.plan.of(&it.name).unwrap_or(it.brings);
            let most = self.limit(it).max(it.sharing.reservation);
            (it.name.clone(), it.whole(planned.clamp(it.sharing.reservation, most)))
        };
        let wishes: BTreeMap<Name, u64> = disks.iter().map(wish).collect();
        let wanted = |it: &Seen| wishes[&it.name];
        let taken = disks.iter().map(|it| it.has).fold(0, u64::saturating_add);
        let mut free = pool.saturating_sub(taken);
        let (grow, others): (Vec<_>, Vec<_>) = disks.iter().partition(|it| wanted(it) > it.has);
        let mut holds_more = false;
        for seen in others {
            let resized = self.resize(state, seen, wanted(seen)).await;
            holds_more |= seen.holds_more(resized);
        }
        // One that became smaller may be wanted larger already, and another one grows before it.
        for seen in grow.iter().filter(|it| matches!(it.whole, Whole::Flash(_))) {
            let given_back = self.resize(state, seen, seen.has).await;
            holds_more |= seen.holds_more(given_back);
        }
        if holds_more {
            // The pool would refuse what seems to be free.
            return;
        }
        for seen in grow {
            // One that shrinks still has what it is to lose. It may keep that, if it is wanted again.
            let more = seen.whole((wanted(seen) - seen.has).min(free));
            free -= more;
            self.resize(state, seen, seen.has + more).await;
        }
    }

    /// Gives a disk another size, unless it has that.
    async fn resize(&mut self, state: &Arc<ControlState>, seen: &Seen, bytes: u64) -> Resized {
        if seen.whole == Whole::Ram && seen.whole(seen.disk.info().ram_bytes) == bytes {
            return Resized::Already;
        }
        // On a task of its own: what it waits for is given to it, however late it answers.
        let resizing = tokio::spawn(resize(state.clone(), seen.asked_for(bytes)));
        let resized = match timeout(ANSWER_MAX, resizing).await {
            Ok(answered) => answered.context("a task has ended").flatten(),
            Err(_) => return Resized::NotYet,
        };
        match &resized {
            Ok(Resized::Now) => {
                self.told.remove(&seen.name);
                if bytes > seen.has {
                    self.stuck.remove(&seen.name);
                }
            }
            Ok(_) => {}
            Err(error) => {
                if bytes > seen.has {
                    let first = Stuck { rounds: 0, next: STUCK_MIN };
                    let stuck = self.stuck.entry(seen.name.clone()).or_insert(first);
                    if stuck.rounds == 0 {
                        (stuck.rounds, stuck.next) = (stuck.next, (2 * stuck.next).min(STUCK_MAX));
                    }
                }
                if self.told.insert(seen.name.clone()) {
                    let text = format!("it cannot share {}: {error:#}", seen.whole.name());
                    state.report(Some(seen.disk.name()), Severity::Warning, &text);
                }
            }
        }
        resized.unwrap_or(Resized::Already)
    }
}

/// What the first look at a disk of this age counts. How recent its reads are nobody knows, so they weigh what an even load of as
/// many weighs by then where it was looked at all along.
fn first_counts(age: Duration) -> f64 {
    let looks = (age.as_secs_f64() / EVERY.as_secs_f64()).max(1.0);
    (1.0 - KEEP.powf(looks)) / ((1.0 - KEEP) * looks)
}

/// A size that a disk is to have.
struct AskedFor {
    disk: Arc<ServedDisk>,
    whole: Whole,
    has: u64,
    brings: u64,
    limit: u64,
    bytes: u64,
}

/// Gives a disk another size, and tells of it.
async fn resize(state: Arc<ControlState>, asked: AskedFor) -> Result<Resized> {
    let AskedFor { disk, whole, has, brings, limit, bytes } = asked;
    let resized = match whole {
        Whole::Ram => state.opener.resize_ram(&disk, bytes).await.map(|()| Resized::Now),
        Whole::Flash(_) if bytes == has => disk.give_flash_back().await,
        Whole::Flash(_) => disk.resize_flash(bytes.min(limit), brings).await,
    }?;
    if resized == Resized::Now {
        let name = whole.name();
        let what = match bytes < has {
            true => format!("lends {name} to others"),
            false => format!("gets {name} of others"),
        };
        let (has, brought) = (rounded(bytes), rounded(brings));
        let text = format!("it {what}: it has {has} now, and brought {brought}");
        state.report(Some(disk.name()), Severity::Info, &text);
    }
    Ok(resized)
}

/// What is shared, with the disks that do; none of them where one does not answer.
async fn seen(state: &Arc<ControlState>, spec: &DaemonSpec) -> BTreeMap<Whole, Vec<Seen>> {
    let served = spec.disks.iter().filter_map(|disk| Some((disk, state.find(&disk.name.0).ok()?)));
    let mut all: BTreeMap<Whole, Vec<Seen>> = BTreeMap::new();
    let mut unanswered = Vec::new();
    for (spec, disk) in served {
        let shares = [shares_ram(spec, &disk), shares_flash(spec, &disk)];
        let shares: Vec<Share> = shares.into_iter().flatten().collect();
        if shares.is_empty() {
            continue;
        }
        let look = |observer: &mut Observer| observer.uses().map(|uses| uses.snapshot());
        let answers = async {
            let status = disk.handle.stats().await.ok()?;
            Some((status, disk.handle.observe(look).await.ok()??))
        };
        let Ok(Some((status, snapshot))) = timeout(ANSWER_MAX, answers).await else {
            unanswered.extend(shares.into_iter().map(|share| share.whole));
            continue;
        };
        let engine = &status.engine;
        for Share { whole, unit, brings, sharing, limit } in shares {
            let slots = match whole {
                Whole::Ram => engine.ram.slots,
                Whole::Flash(_) => engine.flash.slots,
            };
            let seen = Seen {
                name: spec.name.clone(),
                disk: disk.clone(),
                block_size: engine.block_size,
                unit,
                brings,
                has: (slots * engine.block_size).next_multiple_of(unit),
                sharing,
                limit,
                age: disk.elapsed(Instant::now()),
                read: (snapshot.clone(), engine.counters.reads),
                keeps_reads: engine.mode_actual.keeps_reads(),
                whole: whole.clone(),
            };
            all.entry(whole).or_default().push(seen);
        }
    }
    for whole in unanswered {
        all.insert(whole, Vec::new());
    }
    all
}

/// What a disk shares of something.
struct Share {
    whole: Whole,
    unit: u64,
    brings: u64,
    sharing: config::Sharing,
    limit: u64,
}

fn shares_ram(spec: &DiskSpec, disk: &ServedDisk) -> Option<Share> {
    let block_size = disk.info().block_size;
    let blocks = |bytes: u64| bytes / block_size;
    // One that shares no more may have something else than it brought.
    let is_other = blocks(disk.info().ram_bytes) != blocks(spec.ram_bytes);
    (spec.shares_ram() || is_other).then(|| {
        // The kernel takes long to say what room there is.
        let room = opening::ram_room().max(spec.ram_bytes);
        let limit = spec.ram_sharing.limit.min(room);
        Share {
            whole: Whole::Ram,
            unit: block_size,
            brings: blocks(spec.ram_bytes) * block_size,
            sharing: config::Sharing { limit, ..spec.ram_sharing },
            limit,
        }
    })
}

fn shares_flash(spec: &DiskSpec, disk: &ServedDisk) -> Option<Share> {
    let (device, unit) = disk.cache_in_pool()?;
    let units = |bytes: u64| bytes.next_multiple_of(unit);
    let (has, brings) = (disk.info().flash_cache_bytes, spec.flash_cache_bytes());
    let config::Sharing { reservation, limit, shares } = spec.flash_sharing;
    let limit = limit.min(disk.info.flash_cache_max.max(brings));
    (has > 0 && (spec.shares_flash() || units(has) != units(brings))).then(|| Share {
        whole: Whole::Flash(device),
        unit,
        brings: units(brings),
        sharing: config::Sharing { reservation: units(reservation), limit: units(limit), shares },
        limit,
    })
}

#[cfg(test)]
mod tests;
