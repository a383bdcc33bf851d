//! Tasks that wait: for memory, or to be carried out, oldest first; and what the tasks of a session have of the disks'
//! memory.

use std::collections::VecDeque;

use forebay_core::action::Buffer;
use forebay_core::ids::Nanos;

use super::super::task::{Memory, Phase, Sink, Task};
use super::{BYTES_MAX, Device, Response, Session, Status};

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
}

/// The tasks that are passed, because one of them has to wait, so that others do not wait behind it.
#[derive(Debug, Default)]
pub struct Passed {
    /// Those of a unit without memory, or all of it.
    units: Vec<(Option<usize>, bool)>,
    /// All that have no memory: those that have some free the room that is wanted.
    without_memory: bool,
}

impl Passed {
    /// This one waits for its disk, and so do those that are like it.
    pub fn like(&mut self, task: &Task) {
        self.units.push((task.unit, task.has_memory()));
    }

    /// One waits for room in the session. No other is to take it first.
    pub fn for_room(&mut self) {
        self.without_memory = true;
    }

    fn has(&self, unit: Option<usize>, has_memory: bool) -> bool {
        let like = |it: &(Option<usize>, bool)| it.0 == unit && (it.1 || !has_memory);
        self.without_memory && !has_memory || self.units.iter().any(like)
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
        let before = std::mem::replace(&mut task.sink, Sink::Memory(memory));
        let reserved = self.held_bytes(key);
        let held = match before {
            Sink::Bytes(held) => {
                device.unhold(reserved);
                held
            }
            Sink::Nowhere | Sink::Memory(_) => Vec::new(),
        };
        self.waiting.wanting.retain(|it| *it != key);
        self.go_on(device, key, out);
        held
    }

    /// There is no memory now: what comes unasked waits, as far as there is room for it.
    pub fn hold(&mut self, device: &mut Device, key: u32, out: &mut Vec<u8>) {
        let reserved = self.held_bytes(key);
        if device.hold(reserved) {
            let task = self.task_mut(key);
            task.sink = Sink::Bytes(Vec::new());
            task.deadline = Nanos::NEVER;
            self.waiting.wanting.push_back(key);
        } else {
            self.answer(device, key, Response::of(Status::Busy), out);
        }
    }

    /// Bytes that are set aside for a task without memory.
    pub(super) fn held_bytes(&self, key: u32) -> usize {
        self.task(key).data.wanted.min(self.terms.rules.first_burst) as usize
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
        let task = self.task(key);
        !passed.has(task.unit, task.has_memory()) && self.may_begin(device, key)
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
    pub fn may_begin(&self, device: &Device, key: u32) -> bool {
        let task = self.task(key);
        device.may_begin(task.unit, task.stage)
    }

    /// The task at the front, as [`Session::ready`] said, is being carried out.
    pub fn start(&mut self) {
        let key = self.waiting.ready.pop_front().expect("one is ready");
        self.task_mut(key).phase = Phase::Running;
    }

    /// Whether a task may have so many more bytes of memory now. One task alone always may.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.waiting.bytes == 0 || self.waiting.bytes + bytes <= BYTES_MAX
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
