//! Task management and logout: what ends tasks without an answer of their own.
//!
//! A function is answered at once. Tasks that the engine has go on unseen: an aborted write is there
//! before any later command looks, or never, because the engine serialises what overlaps.
//!
//! A compare and write that the engine has is an exception: its initiator would try it again, find its
//! own bytes, and take them for another host's. So ABORT TASK is answered after it, and what other
//! sessions abort leaves it to its own answer. The other functions of its own session do end it.
//! Other sessions leave also a change of reservations that is being stored: tried again, a preemption
//! that took effect finds nobody, and counts as one that failed.

use super::super::codec::{Answer, Pdu, Residual};
use super::super::device::Cause;
use super::super::task::{Phase, Task};
use super::{Device, Response, Session, Status};
use crate::client::DiskId;
use crate::scsi::Medium;

/// Responses (RFC 7143, 11.6.1).
const COMPLETE: u8 = 0;
const NO_SUCH_TASK: u8 = 1;
const NO_SUCH_UNIT: u8 = 2;
const NO_REASSIGNMENT: u8 = 4;
const NOT_SUPPORTED: u8 = 5;

/// Responses to a logout (RFC 7143, 11.15.1).
const CLOSED: u8 = 0;
const NO_SUCH_CONNECTION: u8 = 1;
const NO_RECOVERY: u8 = 2;

/// Functions that wait for the end of a task; with one more it is aborted.
const ABORTS_MAX: usize = 8;

/// The messages about events from outside.
#[derive(Debug)]
pub(super) enum Late {
    /// The answer to a task whose unit waited for something to be stored.
    Stored(u32, Response),
    /// A task was aborted: its tag, what it did not transfer, its R2Ts.
    Aborted((u32, Residual, u32)),
    /// A function waited for the end of a task, which was aborted by another one: its tag.
    Managed(u32),
    /// The window was full of tasks that are gone without an answer.
    Open,
}

impl Session {
    /// Carries out a task management function; true when the session is over with it.
    pub(super) fn manage(
        &mut self,
        device: &mut Device,
        pdu: &Pdu,
        function: u8,
        referenced: u32,
        out: &mut Vec<u8>,
    ) -> bool {
        let unit = device.find(pdu.lun);
        let mut ends = false;
        let response = match (function, unit) {
            (1..=5, None) => NO_SUCH_UNIT,
            (1, Some(unit)) => match self.abort_task(device, unit, referenced, pdu.tag) {
                Some(response) => response,
                None => return false,
            },
            (2, Some(unit)) => {
                self.abort_where(device, |task| task.unit == Some(unit));
                COMPLETE
            }
            (4, Some(unit)) => {
                self.abort_where(device, |task| task.unit == Some(unit));
                device.abort_others(self.member, unit, Cause::Cleared);
                COMPLETE
            }
            (5, Some(unit)) => {
                self.reset(device, unit, false);
                COMPLETE
            }
            (6 | 7, _) => {
                for unit in 0..device.units.len() {
                    self.reset(device, unit, true);
                }
                if function == 7 {
                    device.end_others(self.member);
                    ends = true;
                }
                COMPLETE
            }
            (8, _) => NO_REASSIGNMENT,
            _ => NOT_SUPPORTED,
        };
        self.put(&Answer::TaskManagement { response }, pdu.tag, &[], out);
        ends
    }

    /// Aborts one task; the response, unless it comes after the task's own.
    fn abort_task(
        &mut self,
        device: &mut Device,
        unit: usize,
        referenced: u32,
        tag: u32,
    ) -> Option<u8> {
        let key = self.tasks.find(referenced);
        let Some(key) = key.filter(|key| self.task(*key).unit == Some(unit)) else {
            return Some(NO_SUCH_TASK);
        };
        let waiting = self.aborts.iter().filter(|(of, _)| *of == key).count();
        if is_comparing(self.task(key)) && waiting < ABORTS_MAX {
            self.aborts.push((key, tag));
            return None;
        }
        self.abort(device, key);
        Some(COMPLETE)
    }

    /// A task has been answered that may have been to be aborted.
    pub(super) fn answer_aborts(&mut self, key: u32, out: &mut Vec<u8>) {
        for tag in self.aborts_of(key) {
            self.put(&Answer::TaskManagement { response: NO_SUCH_TASK }, tag, &[], out);
        }
    }

    /// The tags of the functions that wait for the end of a task, which are answered now.
    fn aborts_of(&mut self, key: u32) -> Vec<u32> {
        self.aborts.extract_if(.., |(of, _)| *of == key).map(|(_, tag)| tag).collect()
    }

    fn reset(&mut self, device: &mut Device, unit: usize, of_target: bool) {
        self.abort_where(device, |task| task.unit == Some(unit));
        device.reset(self.member, unit, of_target);
    }

    /// Aborts the tasks that `is_hit` names.
    pub(super) fn abort_where(&mut self, device: &mut Device, is_hit: impl Fn(&Task) -> bool) {
        for key in self.find_where(|task| task.phase != Phase::Aborted && is_hit(task)) {
            self.abort(device, key);
        }
    }

    /// The keys of the tasks that `is_hit` names.
    fn find_where(&self, is_hit: impl Fn(&Task) -> bool) -> Vec<u32> {
        self.tasks.iter().filter(|(_, task)| is_hit(task)).map(|(key, _)| key).collect()
    }

    /// The tasks of a unit were aborted by another session.
    pub(super) fn abort_by_another(&mut self, device: &mut Device, unit: usize, cause: Cause) {
        let hit = self.find_where(|task| {
            let is_spared = task.phase == Phase::Storing || is_comparing(task);
            task.unit == Some(unit) && task.phase != Phase::Aborted && !is_spared
        });
        if hit.is_empty() {
            return;
        }
        let answers = device.tell_cleared(self.member, unit, cause);
        let was_full = self.is_window_full();
        for key in hit {
            if answers && (self.task(key).data.is_owed() || self.is_arriving(key)) {
                self.abort_after_data(device, key);
                continue;
            }
            if answers {
                let task = self.task(key);
                let told = (task.tag, task.residual(task.work.needed), task.data.r2t_sn);
                self.late.push(Late::Aborted(told));
            }
            self.abort(device, key);
        }
        if !answers {
            self.note_open(was_full);
        }
    }

    /// Tasks are gone without an answer by which an initiator whose window was full would learn that it may send again.
    fn note_open(&mut self, was_full: bool) {
        if was_full && !self.is_window_full() {
            self.late.push(Late::Open);
        }
    }

    /// A task is to be answered as aborted when the data have come that the initiator owes: a status must not overtake
    /// them (RFC 7143, 11.4). Nothing is kept of them.
    fn abort_after_data(&mut self, device: &mut Device, key: u32) {
        self.task_mut(key).answer = Some(Response::of(Status::TaskAborted));
        self.leave_order(device, key);
        if !self.is_written_to(key) {
            self.free(device, key);
        }
    }

    /// Appends what is to be said of what happened from outside.
    pub fn answer_late(&mut self, device: &mut Device, out: &mut Vec<u8>) {
        for late in std::mem::take(&mut self.late) {
            match late {
                Late::Stored(key, response) => {
                    // It may have been aborted at the same time.
                    let task = self.tasks.get(key);
                    if task.is_some_and(|task| task.phase == Phase::Storing) {
                        self.answer(device, key, response, out);
                    }
                }
                Late::Aborted((tag, residual, exp_data_sn)) => {
                    let status = Status::TaskAborted as u8;
                    let answer = Answer::Response { response: 0, status, residual, exp_data_sn };
                    self.put(&answer, tag, &[], out);
                }
                Late::Managed(tag) => {
                    self.put(&Answer::TaskManagement { response: COMPLETE }, tag, &[], out);
                }
                Late::Open => self.tell_window(out),
            }
        }
    }

    /// A task has no answer any more.
    fn abort(&mut self, device: &mut Device, key: u32) {
        let phase = self.task(key).phase;
        self.tasks.forget_tag(key);
        self.task_mut(key).phase = Phase::Aborted;
        let waiting = self.aborts_of(key);
        self.late.extend(waiting.into_iter().map(Late::Managed));
        if phase != Phase::Running && !self.is_written_to(key) {
            self.retire(device, key);
        }
    }

    /// True while a receive writes to a task's memory, which is given back when the receive has ended.
    fn is_written_to(&self, key: u32) -> bool {
        self.is_receiving_direct && self.is_arriving(key)
    }

    /// The receive that went to memory has ended; a task that was aborted meanwhile is gone now.
    pub fn receive_ended(&mut self, device: &mut Device) {
        self.is_receiving_direct = false;
        let is_hit =
            |(key, task): &(u32, &Task)| self.is_arriving(*key) && task.phase == Phase::Aborted;
        let hit = self.tasks.iter().find(is_hit).map(|(key, _)| key);
        if let Some(key) = hit {
            let was_full = self.is_window_full();
            self.retire(device, key);
            self.note_open(was_full);
        }
    }

    /// The connection is gone: every task without the engine is, too.
    pub fn end(&mut self, device: &mut Device) {
        self.abort_where(device, |_| true);
    }

    /// Nothing further begins: tasks that the engine does not have are gone.
    pub fn abort_unstarted(&mut self, device: &mut Device) {
        self.abort_where(device, |task| task.phase != Phase::Running);
    }

    /// The same of tasks whose disk takes nothing any more, as `has_ended` knows.
    pub fn abort_unstarted_of(
        &mut self,
        device: &mut Device,
        mut has_ended: impl FnMut(DiskId) -> bool,
    ) {
        for key in self.find_where(|it| !matches!(it.phase, Phase::Running | Phase::Aborted)) {
            let unit = self.task(key).unit;
            if unit.is_some_and(|unit| has_ended(device.units[unit].disk)) {
                self.abort(device, key);
            }
        }
    }

    /// True when the initiator leaves.
    pub(super) fn on_logout(
        &mut self,
        device: &mut Device,
        pdu: &Pdu,
        reason: u8,
        cid: u16,
        out: &mut Vec<u8>,
    ) -> bool {
        let response = match reason {
            0 => CLOSED,
            1 if cid == self.terms.cid => CLOSED,
            1 => NO_SUCH_CONNECTION,
            _ => NO_RECOVERY,
        };
        if response == CLOSED {
            self.abort_where(device, |_| true);
            device.log_out(self.member);
            // Nothing follows the answer to a logout.
            self.late.clear();
        }
        self.put(&Answer::Logout { response }, pdu.tag, &[], out);
        response == CLOSED
    }
}

/// True for a compare and write that the engine has.
fn is_comparing(task: &Task) -> bool {
    task.phase == Phase::Running && matches!(task.work.medium, Some(Medium::CompareAndWrite { .. }))
}
