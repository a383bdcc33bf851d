//! The disks of a shard, and which of them are *awake*: those that the next turn asks.
//!
//! ```text
//!                somebody uses it, an I/O ends, a command, its deadline, a wake-up from another thread
//!   asleep ──────────────────────────────────────────────────────────────────────────────────────► awake
//!      ◄──────────────────── the turn is over, and it is not about to end ────────────────────────────┘
//! ```
//! A shard may have hundreds of disks, of which hardly any has work. A turn costs what the disks cost that are awake.
//!
//! A disk has three names. Clients know it by its *id*. What it asks of the reactor and of other threads is for its *number*,
//! which no other disk of the shard ever has. In a turn the shard knows it by its *place*, which may be another one when some disk has gone.
//!
//! A disk that takes the place of another has its id, and a number of its own: what completes late for the one before finds
//! nobody. What comes late for one that has gone to another shard is sent after it.
//!
//! A disk that was detached is let go of, with all its memory, as soon as nobody has to do with it any more. Where that went
//! wrong, how it ended stays.
//!
//! **Invariant:** a disk changes only while it is awake, so its deadline is known while it sleeps. Whoever borrows a
//! disk to change it wakes it.
//!
//! **Limits:** [`DISKS_MAX`] disks, one after the other or at once. One that could not be taken counts: what it began may complete
//! late. One that has gone costs the four bytes of its number, and four for its id. A turn looks at those alone that are here.

use std::collections::BTreeMap;

use forebay_core::ids::Nanos;
use forebay_frontends::client::{DiskId, Disks, Port};
use forebay_io::mailbox::Sender;

use crate::disk::ShardDisk;
use crate::mailbox::{Command, Trail};
use crate::token::DISKS_MAX;
use crate::{DiskHandle, Drained};

/// Of a disk that is not here: the place of none.
const NOWHERE: u32 = u32::MAX;

/// See the module.
#[derive(Default)]
pub(crate) struct Roster {
    /// By place.
    here: Vec<Member>,
    /// The places of the disks, by their numbers; [`NOWHERE`]: it could not be taken, another disk has its place, it has gone
    /// to another shard, or nobody asks for it any more.
    of_numbers: Vec<u32>,
    /// The places of the disks, by their ids; [`NOWHERE`] of those on other shards.
    of_ids: Vec<u32>,
    /// The shards of those that were here, as long as somebody has a handle of them.
    moved: BTreeMap<DiskId, (Sender<Command>, Trail)>,
    /// How those ended that were let go of, where something of them is not as it should be.
    gone: Vec<Drained>,
    /// The places of those that are awake, each once, in the order in which they woke.
    awake: Vec<usize>,
}

/// A disk that is here.
struct Member {
    disk: Box<ShardDisk>,
    number: u32,
    is_awake: bool,
    /// When it wants a turn at the latest, while it sleeps.
    deadline: Nanos,
}

impl Disks for Roster {
    fn port(&mut self, disk: DiskId) -> &mut Port {
        &mut self.disk(self.of_ids[disk.0 as usize] as usize).port
    }

    fn find_port(&mut self, disk: DiskId) -> Option<&mut Port> {
        let place = self.place_of(disk)?;
        Some(&mut self.disk(place).port)
    }
}

impl Roster {
    /// A number for a disk that may come, which is used from now on; `None`: all are.
    pub(crate) fn take_number(&mut self) -> Option<u32> {
        let next = self.of_numbers.len() as u32;
        (next < DISKS_MAX).then(|| self.of_numbers.push(NOWHERE))?;
        Some(next)
    }

    /// As if the shard had taken so many disks.
    #[cfg(test)]
    pub(crate) fn use_numbers_up_to(&mut self, count: u32) {
        self.of_numbers.resize(count as usize, NOWHERE);
    }

    /// A disk comes, awake, with the number that was taken for it; with the id of another one it takes its place.
    pub(crate) fn add(&mut self, disk: ShardDisk, number: u32) {
        let id = disk.id();
        self.remove(id);
        self.moved.remove(&id);
        let (place, known) = (self.here.len(), self.of_ids.len().max(id.0 as usize + 1));
        self.of_ids.resize(known, NOWHERE);
        self.of_ids[id.0 as usize] = place as u32;
        self.of_numbers[number as usize] = place as u32;
        let disk = Box::new(disk);
        self.here.push(Member { disk, number, is_awake: true, deadline: Nanos::NEVER });
        self.awake.push(place);
    }

    /// A disk is gone. The last one has its place from now on.
    fn remove(&mut self, id: DiskId) {
        let Some(place) = self.place_of(id) else { return };
        let member = self.here.swap_remove(place);
        self.of_ids[id.0 as usize] = NOWHERE;
        self.of_numbers[member.number as usize] = NOWHERE;
        self.awake.retain(|it| *it != place);
        if let Some(moved) = self.here.get(place) {
            self.of_ids[moved.disk.id().0 as usize] = place as u32;
            self.of_numbers[moved.number as usize] = place as u32;
            let last = self.here.len();
            self.awake.iter_mut().filter(|it| **it == last).for_each(|it| *it = place);
        }
        free(member.disk);
    }

    /// A disk has gone to another shard, where whatever comes for it is sent.
    pub(crate) fn move_to(&mut self, disk: &DiskHandle, shard: Sender<Command>) {
        self.remove(disk.id);
        self.moved.retain(|_, (_, trail)| trail.is_used());
        self.moved.insert(disk.id, (shard, disk.home.trail()));
    }

    /// Where a disk has gone that was here.
    pub(crate) fn moved_to(&self, id: DiskId) -> Option<&Sender<Command>> {
        self.moved.get(&id).map(|(shard, _)| shard)
    }

    /// The places of all disks that are here, be they done or not.
    pub(crate) fn places(&self) -> std::ops::Range<usize> {
        0..self.here.len()
    }

    /// The place of a disk that clients know.
    pub(crate) fn place_of(&self, id: DiskId) -> Option<usize> {
        let place = *self.of_ids.get(id.0 as usize)?;
        (place != NOWHERE).then_some(place as usize)
    }

    /// How all of them ended, and those that were here; `None`: one has not.
    pub(crate) fn drained(&self) -> Option<Vec<Drained>> {
        let gone = self.gone.iter().cloned().map(Some);
        gone.chain(self.here.iter().map(|it| it.disk.drained())).collect()
    }

    /// How those ended that have.
    pub(crate) fn ended(&self) -> Vec<Drained> {
        let here = self.here.iter().filter_map(|it| it.disk.drained());
        self.gone.iter().cloned().chain(here).collect()
    }

    /// A disk that clients know, to look at.
    pub(crate) fn look(&self, id: DiskId) -> Option<&ShardDisk> {
        Some(&self.here[self.place_of(id)?].disk)
    }

    /// A disk that clients know, to change it: it is awake from now on.
    pub(crate) fn find(&mut self, id: DiskId) -> Option<&mut ShardDisk> {
        let place = self.place_of(id)?;
        Some(self.disk(place))
    }

    /// The same of one with this number.
    pub(crate) fn find_numbered(&mut self, number: u32) -> Option<&mut ShardDisk> {
        let place = *self.of_numbers.get(number as usize)?;
        (place != NOWHERE).then(|| self.disk(place as usize))
    }

    /// The same of one at this place.
    pub(crate) fn disk(&mut self, place: usize) -> &mut ShardDisk {
        let member = &mut self.here[place];
        if !member.is_awake {
            member.is_awake = true;
            self.awake.push(place);
        }
        &mut member.disk
    }

    /// Wakes all: another thread may have news for any.
    pub(crate) fn wake_all(&mut self) {
        self.wake_due(Nanos::NEVER);
    }

    /// Wakes those whose time has come.
    pub(crate) fn wake_due(&mut self, now: Nanos) {
        for (place, member) in self.here.iter_mut().enumerate() {
            if member.deadline <= now && !std::mem::replace(&mut member.is_awake, true) {
                self.awake.push(place);
            }
        }
    }

    /// How many are awake. More may wake in the course of a turn.
    pub(crate) fn awake(&self) -> usize {
        self.awake.len()
    }

    /// The place of the disk that woke as number `at`.
    pub(crate) fn awake_at(&self, at: usize) -> usize {
        self.awake[at]
    }

    /// Those that are awake, to look at.
    pub(crate) fn iter_awake(&self) -> impl Iterator<Item = &ShardDisk> {
        self.awake.iter().map(|place| &*self.here[*place].disk)
    }

    /// Does something with each that is awake, but for the first so many to wake.
    pub(crate) fn each_awake(&mut self, but_first: usize, mut does: impl FnMut(&mut ShardDisk)) {
        for place in &self.awake[but_first..] {
            does(&mut self.here[*place].disk);
        }
    }

    /// A turn is over. A disk that is about to end takes part in the next one as well: its clients leave without a
    /// word to it.
    pub(crate) fn sleep(&mut self) {
        let mut left = Vec::new();
        let Roster { here, awake, .. } = self;
        awake.retain(|place| {
            let Member { disk, is_awake, deadline, .. } = &mut here[*place];
            left.extend(disk.gone());
            *deadline = deadline_of(disk);
            *is_awake = disk.is_about_to_end();
            *is_awake
        });
        for (drained, is_settled) in left {
            self.remove(drained.id);
            self.gone.extend((!is_settled).then_some(drained));
        }
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    /// Panics when a disk that sleeps wants a turn at another time than is known, or is not found where it is.
    fn check_invariants(&self) {
        for (place, Member { disk, number, is_awake, deadline }) in self.here.iter().enumerate() {
            assert!(*is_awake || deadline_of(disk) == *deadline, "disk {number} changed");
            assert_eq!(self.awake.contains(&place), *is_awake, "disk {number}");
            assert_eq!(self.of_numbers[*number as usize] as usize, place);
            assert_eq!(self.place_of(disk.id()), Some(place));
        }
    }

    /// When the next turn is due at the latest; once all that was awake has had its turn.
    pub(crate) fn next_deadline(&self) -> Nanos {
        self.here.iter().map(|member| member.deadline).min().unwrap_or(Nanos::NEVER)
    }
}

/// At once when there is something to do: it may have come after the disk's turn.
fn deadline_of(disk: &ShardDisk) -> Nanos {
    if disk.goes_on() { Nanos(0) } else { disk.next_deadline() }
}

/// Frees what may be hundreds of MiB, such as a disk and its tables, where nobody waits for that.
pub(crate) fn free(what: impl Send + 'static) {
    // Without a thread it is freed at once.
    let _ = forebay_io::thread::start("free", move || drop(what));
}

#[cfg(test)]
mod tests;
