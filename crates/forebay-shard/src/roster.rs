//! The disks of a shard, and which of them are *awake*: those that the next turn asks.
//!
//! ```text
//!                somebody uses it, an I/O ends, a command, its deadline, a wake-up from another thread
//!   asleep ──────────────────────────────────────────────────────────────────────────────────────► awake
//!      ◄──────────────────── the turn is over, and it is not about to end ────────────────────────────┘
//! ```
//! A shard may have hundreds of disks, of which hardly any has work. A turn costs what the disks cost that are awake.
//!
//! Clients know a disk by its id. A disk that takes the place of another has its id, and a number of its own: what completes
//! late for the one before finds nobody. What comes late for one that has gone to another shard is sent after it.
//!
//! A disk that was detached is let go of, with all its memory, as soon as nobody has to do with it any more. How it ended stays.
//!
//! **Invariant:** a disk changes only while it is awake, so its deadline is known while it sleeps. Whoever borrows a
//! disk to change it wakes it.

use std::collections::BTreeMap;

use forebay_core::ids::Nanos;
use forebay_frontends::client::{DiskId, Disks, Port};
use forebay_io::mailbox::Sender;

use crate::Drained;
use crate::disk::ShardDisk;
use crate::mailbox::Command;

/// Of a disk that is not here: the number of none.
const NOWHERE: usize = usize::MAX;

/// See the module.
#[derive(Default)]
pub(crate) struct Roster {
    /// By number. A number is never used twice; `None`: another disk has taken its place, it has gone to
    /// another shard, or nobody asks for it any more.
    disks: Vec<Option<ShardDisk>>,
    /// The numbers of the disks, by their ids; [`NOWHERE`] of those on other shards.
    numbers: Vec<usize>,
    /// The shards of those that were here.
    moved: BTreeMap<DiskId, Sender<Command>>,
    is_awake: Vec<bool>,
    /// When each disk that sleeps wants a turn at the latest.
    deadlines: Vec<Nanos>,
    /// How those ended that were let go of.
    gone: Vec<Drained>,
    /// Those that are awake, each once, in the order in which they woke.
    awake: Vec<usize>,
}

impl Disks for Roster {
    fn port(&mut self, disk: DiskId) -> &mut Port {
        &mut self.disk(self.numbers[disk.0 as usize]).port
    }

    fn find_port(&mut self, disk: DiskId) -> Option<&mut Port> {
        Some(&mut self.find(self.number_of(disk)?)?.port)
    }
}

impl Roster {
    /// The number that the next disk has.
    pub(crate) fn next(&self) -> u32 {
        self.disks.len() as u32
    }

    /// A disk comes, awake, with the next number; with the id of another one it takes its place.
    pub(crate) fn add(&mut self, disk: ShardDisk) {
        let (id, number) = (disk.id(), self.disks.len());
        self.remove(id);
        self.moved.remove(&id);
        let known = self.numbers.len().max(id.0 as usize + 1);
        self.numbers.resize(known, NOWHERE);
        self.numbers[id.0 as usize] = number;
        self.disks.push(Some(disk));
        self.is_awake.push(false);
        self.deadlines.push(Nanos::NEVER);
        self.wake(number);
    }

    /// A disk is gone.
    fn remove(&mut self, id: DiskId) {
        let Some(number) = self.number_of(id) else { return };
        self.numbers[id.0 as usize] = NOWHERE;
        free(self.disks[number].take());
        self.is_awake[number] = false;
        self.deadlines[number] = Nanos::NEVER;
        self.awake.retain(|it| *it != number);
    }

    /// A disk has gone to another shard, where whatever comes for it is sent.
    pub(crate) fn move_to(&mut self, id: DiskId, shard: Sender<Command>) {
        self.remove(id);
        self.moved.insert(id, shard);
    }

    /// Where a disk has gone that was here.
    pub(crate) fn moved_to(&self, id: DiskId) -> Option<&Sender<Command>> {
        self.moved.get(&id)
    }

    /// The numbers of all disks that are here, be they done or not.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        self.numbers.iter().copied().filter(|number| *number != NOWHERE).collect()
    }

    /// The number of a disk that clients know.
    pub(crate) fn number_of(&self, id: DiskId) -> Option<usize> {
        self.numbers.get(id.0 as usize).copied().filter(|number| *number != NOWHERE)
    }

    /// How all of them ended, and those that were here; `None`: one has not.
    pub(crate) fn drained(&self) -> Option<Vec<Drained>> {
        let gone = self.gone.iter().cloned().map(Some);
        gone.chain(self.disks.iter().flatten().map(ShardDisk::drained)).collect()
    }

    /// How those ended that have.
    pub(crate) fn ended(&self) -> Vec<Drained> {
        let here = self.disks.iter().flatten().filter_map(ShardDisk::drained);
        self.gone.iter().cloned().chain(here).collect()
    }

    /// A disk, to look at.
    pub(crate) fn look(&self, number: usize) -> Option<&ShardDisk> {
        self.disks.get(number)?.as_ref()
    }

    /// A disk that there is, to change it: it is awake from now on.
    pub(crate) fn disk(&mut self, number: usize) -> &mut ShardDisk {
        self.find(number).expect("it is there")
    }

    /// The same of one that there may not be.
    pub(crate) fn find(&mut self, number: usize) -> Option<&mut ShardDisk> {
        let Roster { disks, is_awake, awake, .. } = self;
        let disk = disks.get_mut(number)?.as_mut()?;
        if !is_awake[number] {
            is_awake[number] = true;
            awake.push(number);
        }
        Some(disk)
    }

    /// Wakes a disk.
    fn wake(&mut self, number: usize) {
        let _ = self.find(number);
    }

    /// Wakes all: another thread may have news for any.
    pub(crate) fn wake_all(&mut self) {
        (0..self.disks.len()).for_each(|number| self.wake(number));
    }

    /// Wakes those whose time has come.
    pub(crate) fn wake_due(&mut self, now: Nanos) {
        for number in 0..self.deadlines.len() {
            if self.deadlines[number] <= now {
                self.wake(number);
            }
        }
    }

    /// How many are awake. More may wake in the course of a turn.
    pub(crate) fn awake(&self) -> usize {
        self.awake.len()
    }

    /// The number of the disk that woke as number `at`.
    pub(crate) fn awake_at(&self, at: usize) -> usize {
        self.awake[at]
    }

    /// Those that are awake, to look at.
    pub(crate) fn iter_awake(&self) -> impl Iterator<Item = &ShardDisk> {
        self.awake.iter().filter_map(|&number| self.look(number))
    }

    /// Does something with each that is awake, but for the first so many to wake.
    pub(crate) fn each_awake(&mut self, but_first: usize, mut does: impl FnMut(&mut ShardDisk)) {
        for &number in &self.awake[but_first..] {
            self.disks[number].iter_mut().for_each(&mut does);
        }
    }

    /// A turn is over. A disk that is about to end takes part in the next one as well: its clients leave without a
    /// word to it.
    pub(crate) fn sleep(&mut self) {
        let Roster { disks, is_awake, deadlines, awake, numbers, gone, .. } = self;
        awake.retain(|&number| {
            let Some(disk) = &disks[number] else { return false };
            if let Some(drained) = disk.gone() {
                numbers[drained.id.0 as usize] = NOWHERE;
                gone.push(drained);
                (is_awake[number], deadlines[number]) = (false, Nanos::NEVER);
                free(disks[number].take());
                return false;
            }
            deadlines[number] = deadline_of(disk);
            is_awake[number] = disk.is_about_to_end();
            is_awake[number]
        });
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    /// Panics when a disk that sleeps wants a turn at another time than is known.
    fn check_invariants(&self) {
        let asleep = self.disks.iter().enumerate().filter(|&(number, _)| !self.is_awake[number]);
        for (number, disk) in asleep.filter_map(|(number, disk)| Some((number, disk.as_ref()?))) {
            assert_eq!(deadline_of(disk), self.deadlines[number], "disk {number} changed");
        }
    }

    /// When the next turn is due at the latest; once all that was awake has had its turn.
    pub(crate) fn next_deadline(&self) -> Nanos {
        self.deadlines.iter().copied().min().unwrap_or(Nanos::NEVER)
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
