//! Tasks that wait: for memory, or to be carried out, oldest first; and what the tasks of a session have of the disks'
//! memory.
//!
//! **Room.** A session has [`BYTES_MAX`] of that memory. Who finds no room goes before all that came later, be they reads
//! or writes: else writes of a guest that has many would keep its reads waiting, and small ones a large one.
//!
//! A disk that does not answer keeps what its tasks have. So a unit that has nothing of it may begin one task all the same,
//! up to [`WITH_OTHERS_MAX`] over all units. Then only those of its unit go before, and those of others that have nothing:
//! the rest wait for their own unit, and begin at the latest when that has nothing.
//!
//! Hosts prove by a compare-and-write that they live. It waits for none of these: all of them have [`COMPARE_ROOM`] beyond.

use std::collections::VecDeque;

use forebay_core::action::Buffer;
use forebay_core::ids::Nanos;

use super::super::task::{Counted, Memory, Phase, Sink, Task};
use super::{BYTES_MAX, Device, Response, Session, Status, WITH_OTHERS_MAX};

/// Bytes that compare-and-writes may have, whatever others have: of all that a host sends at once.
const COMPARE_ROOM: u64 = 1 << 20;

/// The tasks that wait, and the disks' memory that a session has.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// To be carried out, oldest first.
    pub(super) ready: VecDeque<u32>,
    /// For memory, oldest first.
    pub(super) wanting: VecDeque<u32>,
    /// Memory of tasks that are gone.
    pub(super) released: Vec<(usize, Buffer)>,
    /// Bytes of memory that tasks have.
    pub(super) bytes: u64,
    /// How many tasks have come.
    tasks: u64,
    /// How many wait for room.
    for_room: usize,
}

impl Waiting {
    /// A task comes; how many came before.
    pub(super) fn count(&mut self) -> u64 {
        self.tasks += 1;
        self.tasks - 1
    }
}

/// The tasks that are passed, because one of them has to wait, so that others do not wait behind it.
#[derive(Debug, Default)]
pub struct Passed {
    /// Those of a unit without memory, or all of it.
    units: Vec<(Option<usize>, bool)>,
    /// Those of a unit that need room, from this number on: one waits for room in the session. Compare-and-writes alone wait
    /// behind one of their kind.
    for_room: Vec<ForRoom>,
}

/// A task that waits for room in the session.
#[derive(Debug)]
struct ForRoom {
    unit: Option<usize>,
    number: u64,
    is_compare: bool,
}

impl Passed {
    /// This one waits for room in the session. None of its unit that came later is to take it first.
    pub fn for_room(&mut self, task: &Task) {
        let Task { unit, number, .. } = *task;
        self.for_room.push(ForRoom { unit, number, is_compare: task.is_compare() });
    }

    pub(super) fn has(&self, task: &Task) -> bool {
        let waits_behind = |it: &ForRoom| {
            let is_like = it.is_compare || !task.is_compare();
            is_like && it.unit == task.unit && task.number >= it.number
        };
        task.needs_room() && self.for_room.iter().any(waits_behind) || self.has_unit_of(task)
    }

    fn has_unit_of(&self, task: &Task) -> bool {
        let has_memory = task.has_memory();
        self.units.iter().any(|it| it.0 == task.unit && (it.1 || !has_memory))
    }
}

impl Session {
    /// Memory for a task that asked for it, or waited. Its bytes so far are to be copied there.
    pub fn give(
        &mut self,
        device: &mut Device,
        key: u32,
        memory: Memory,
        bytes: u64,
        out: &mut Vec<u8>,
    ) -> Vec<u8> {
        self.charge(key, bytes);
        self.wait_for_data(key);
        let task = self.task_mut(key);
        device.unhold(std::mem::take(&mut task.held));
        let held = match std::mem::replace(&mut task.sink, Sink::Memory(memory)) {
            Sink::Bytes(held) => held,
            Sink::Nowhere | Sink::Memory(_) => Vec::new(),
        };
        self.waiting.wanting.retain(|it| *it != key);
        self.go_on(device, key, out);
        held
    }

    /// There is no memory now: what comes unasked waits, as far as there is room for it.
    pub fn hold(&mut self, device: &mut Device, key: u32, out: &mut Vec<u8>) {
        let unasked = self.task(key).data.wanted.min(self.terms.rules.first_burst);
        if self.set_aside(device, key, unasked, false) {
            self.task_mut(key).deadline = Nanos::NEVER;
            self.waiting.wanting.push_back(key);
        } else {
            self.answer(device, key, Response::of(Status::Busy), out);
        }
    }

    /// So many bytes of a task's data, or of its parameters, may come, which the heap takes; false when all sessions together
    /// have too many there.
    pub(super) fn set_aside(
        &mut self,
        device: &mut Device,
        key: u32,
        bytes: u32,
        is_list: bool,
    ) -> bool {
        let fits = device.hold(bytes as usize, is_list);
        if fits {
            let task = self.task_mut(key);
            task.held += bytes as usize;
            task.sink = Sink::Bytes(Vec::new());
        }
        fits
    }

    /// True when a task waits for memory, or to be carried out.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.wanting.is_empty() || !self.waiting.ready.is_empty()
    }

    /// The task that has waited longest for memory, of those that may begin, but for those that are passed.
    pub fn wanting(&self, device: &Device, passed: &Passed) -> Option<u32> {
        self.waiting.wanting.iter().copied().find(|key| self.goes_on(device, *key, passed))
    }

    /// Whether a task may begin, and is not passed.
    fn goes_on(&self, device: &Device, key: u32, passed: &Passed) -> bool {
        !passed.has(self.task(key)) && self.may_begin(device, key)
    }

    /// A task waits for its disk, and so do those that are like it. Others may have the room that these waited for.
    pub fn pass(&mut self, key: u32, passed: &mut Passed) {
        let task = self.task(key);
        passed.units.push((task.unit, task.has_memory()));
        let waiting = self.waiting.wanting.iter().chain(&self.waiting.ready);
        let like = waiting.copied().filter(|it| passed.has_unit_of(self.task(*it)));
        like.collect::<Vec<u32>>().into_iter().for_each(|it| self.note_room(it, true));
    }

    /// A task has room, needs none, or waits for some.
    pub(super) fn note_room(&mut self, key: u32, has_room: bool) {
        if has_room && self.waiting.for_room == 0 {
            return;
        }
        let waited = std::mem::replace(&mut self.task_mut(key).waits_for_room, !has_room);
        self.waiting.for_room += usize::from(!has_room);
        self.waiting.for_room -= usize::from(waited);
    }

    /// The next task to carry out, of those that may begin, but for those that are passed: it is at the front.
    pub fn ready(&mut self, device: &Device, passed: &Passed) -> Option<u32> {
        let at = self.waiting.ready.iter().position(|key| self.goes_on(device, *key, passed))?;
        if at > 0
            && let Some(key) = self.waiting.ready.remove(at)
        {
            self.waiting.ready.push_front(key);
        }
        self.waiting.ready.front().copied()
    }

    /// Whether all tasks that are to be done before have ended.
    #[inline]
    pub fn may_begin(&self, device: &Device, key: u32) -> bool {
        let task = self.task(key);
        let Some(unit) = task.unit else { return true };
        let is_early = task.counted == Counted::CacheOff && device.has_cached(unit);
        !is_early && device.may_begin(unit, task.stage)
    }

    /// The task at the front, as [`Session::ready`] said, is being carried out.
    pub fn start(&mut self) {
        let key = self.waiting.ready.pop_front().expect("one is ready");
        self.task_mut(key).phase = Phase::Running;
    }

    /// Whether a task that may begin may have so many more bytes of memory now. One task alone always may, of the session or
    /// beside other units, but none that came later than one that waits for the same room.
    pub fn has_room(&mut self, key: u32, bytes: u64) -> bool {
        let waiting = &self.waiting;
        let fits = waiting.bytes == 0 || waiting.bytes + bytes <= BYTES_MAX;
        if fits && waiting.for_room == 0 {
            return true;
        }
        if self.task(key).is_compare() && self.compared() + bytes <= COMPARE_ROOM {
            self.note_room(key, true);
            return true;
        }
        let Task { unit, number, .. } = *self.task(key);
        let fits_beside = self.has_none(unit) && waiting.bytes + bytes <= WITH_OTHERS_MAX;
        let all = waiting.wanting.iter().chain(&waiting.ready).map(|key| self.task(*key));
        let mut before = all.filter(|task| task.waits_for_room && task.number < number);
        let has_room = match fits_beside {
            true => !before.any(|task| task.unit == unit || self.has_none(task.unit)),
            false => fits && before.next().is_none(),
        };
        self.note_room(key, has_room);
        has_room
    }

    /// Bytes that compare-and-writes have.
    fn compared(&self) -> u64 {
        let all = self.tasks.iter().map(|(_, task)| task);
        all.filter(|task| task.is_compare()).map(|task| task.bytes).sum()
    }

    /// Whether no task of a unit has memory. It is asked for where room is scarce.
    fn has_none(&self, unit: Option<usize>) -> bool {
        !self.tasks.iter().any(|(_, task)| task.unit == unit && task.bytes > 0)
    }

    /// A task has memory, or is about to be answered with it.
    pub fn charge(&mut self, key: u32, bytes: u64) {
        self.task_mut(key).bytes += bytes;
        self.waiting.bytes += bytes;
    }

    /// A task's resources for one of its requests are free.
    pub fn discharge(&mut self, key: u32) {
        let bytes = std::mem::take(&mut self.task_mut(key).bytes);
        self.waiting.bytes -= bytes;
    }

    /// A task at work waits for the engine to take its next request.
    pub fn requeue(&mut self, key: u32) {
        self.task_mut(key).phase = Phase::Queued;
        self.waiting.ready.push_front(key);
    }

    /// Memory that tasks no longer use, with the unit whose disk it belongs to.
    pub fn take_released(&mut self) -> Option<(usize, Buffer)> {
        self.waiting.released.pop()
    }
}
