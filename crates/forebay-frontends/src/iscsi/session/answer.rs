//! Answers: status, data from here, data from the cache, and what is said without a question.

use super::super::codec::{Answer, HEADER, NO_TAG, Numbers, Pdu, Residual, padding};
use super::super::digest;
use super::super::task::{Counted, Phase, Sink, Task};
use super::{Broken, Buffer, Device, Response, Session, Status, WINDOW, text};

/// Reasons of a reject (RFC 7143, 11.17.1).
pub(super) const SNACK_REJECT: u8 = 0x03;
pub(super) const NOT_SUPPORTED: u8 = 0x05;
pub(super) const TOO_MANY_IMMEDIATE: u8 = 0x06;
pub(super) const TASK_IN_PROGRESS: u8 = 0x07;

/// Events of an asynchronous message (RFC 7143, 11.9.1).
const DROPS_CONNECTION: u8 = 2;
/// Seconds before an initiator comes back.
const TIME_TO_WAIT: u16 = 2;

/// The data of a read on their way out.
#[derive(Clone, Copy, Debug)]
pub struct DataInPiece {
    tag: u32,
    total: u32,
    sent: u32,
    data_sn: u32,
    residual: Residual,
}

impl DataInPiece {
    /// Bytes that are sent in all.
    pub fn total(&self) -> u32 {
        self.total
    }
}

impl Session {
    /// Ends a task with this answer, at once or when what comes unsolicited has come.
    pub fn answer(&mut self, device: &mut Device, key: u32, response: Response, out: &mut Vec<u8>) {
        if self.task(key).phase != Phase::Aborted && self.task(key).data.is_open {
            self.let_go(device, key);
            self.leave_order(device, key);
            let task = self.task_mut(key);
            task.data.give_up();
            task.answer = Some(response);
            return;
        }
        let task = self.retire(device, key);
        if task.phase == Phase::Aborted {
            return;
        }
        let has_data = matches!(response.status, Status::Good | Status::ConditionMet);
        let found = task.medium_len().max(response.data.len() as u64);
        let actual = if has_data { task.work.needed.max(found) } else { task.work.needed };
        let mut piece = self.piece(&task, actual);
        // A command that claims to read and to write may have taken more than it gives.
        piece.total = piece.total.min(response.data.len() as u32);
        if has_data && task.wish.reads && piece.total > 0 {
            self.put_data_in(piece, &response.data, out);
        } else {
            self.put_response(&task, &response, actual, out);
        }
        if !self.aborts.is_empty() {
            self.answer_aborts(key, out);
        }
    }

    /// Ends a task whose `actual` bytes of data come from the cache: [`Session::next_piece`] until there
    /// is none. When there is none at all the answer is complete.
    pub fn answer_read(
        &mut self,
        device: &mut Device,
        key: u32,
        actual: u64,
        out: &mut Vec<u8>,
    ) -> DataInPiece {
        let task = self.task(key);
        let mut piece = self.piece(task, actual);
        let is_aborted = task.phase == Phase::Aborted;
        if is_aborted {
            piece.total = 0;
        }
        if is_aborted || piece.total > 0 {
            self.end_task(device, key);
        } else {
            let task = self.retire(device, key);
            self.put_response(&task, &Response::GOOD, actual, out);
        }
        piece
    }

    /// Appends the header of the next Data-In, and tells how many bytes of data it has. They, their
    /// [`padding`] and, if [`Session::wants_sum`], their digest are to follow.
    pub fn next_piece(&mut self, piece: &mut DataInPiece, out: &mut Vec<u8>) -> Option<u32> {
        let left = piece.total - piece.sent;
        if left == 0 {
            return None;
        }
        let burst = self.terms.rules.max_burst;
        let in_burst = burst - piece.sent % burst;
        let segment =
            (self.terms.rules.segment_max as u32 & !(super::super::BLOCK - 1)).min(in_burst);
        let len = left.min(segment);
        let is_last = len == left;
        let answer = Answer::DataIn {
            is_final: is_last || len == in_burst,
            end: is_last.then_some((Status::Good as u8, piece.residual)),
            data_sn: piece.data_sn,
            offset: piece.sent,
        };
        self.put_header(&answer, piece.tag, len as usize, out);
        self.counts.stat_sn = self.counts.stat_sn.wrapping_add(u32::from(is_last));
        piece.sent += len;
        piece.data_sn += 1;
        Some(len)
    }

    fn piece(&self, task: &Task, actual: u64) -> DataInPiece {
        let limit = if task.wish.reads { task.wish.expected_len } else { 0 };
        DataInPiece {
            tag: task.tag,
            total: actual.min(limit.into()) as u32,
            sent: 0,
            data_sn: 0,
            residual: task.residual(actual),
        }
    }

    fn put_data_in(&mut self, mut piece: DataInPiece, data: &[u8], out: &mut Vec<u8>) {
        let mut at = 0;
        while let Some(len) = self.next_piece(&mut piece, out) {
            let end = at + len as usize;
            self.put_payload(&data[at..end], out);
            at = end;
        }
    }

    fn put_response(&mut self, task: &Task, response: &Response, actual: u64, out: &mut Vec<u8>) {
        let mut data = Vec::new();
        if let Some(sense) = &response.sense {
            data.extend_from_slice(&[0, 0]);
            sense.write_to(&mut data);
            let len = (data.len() - 2) as u16;
            data[..2].copy_from_slice(&len.to_be_bytes());
        }
        let answer = Answer::Response {
            response: 0,
            status: response.status as u8,
            residual: task.residual(actual),
            exp_data_sn: task.data.r2t_sn,
        };
        self.put(&answer, task.tag, &data, out);
    }

    /// A task's resources that others may use: memory, room for waiting data, its places in the
    /// queues.
    pub(super) fn let_go(&mut self, device: &mut Device, key: u32) {
        self.skip_rest(key);
        self.free(device, key);
    }

    /// The same, while data that come for it are still counted.
    pub(super) fn free(&mut self, device: &mut Device, key: u32) {
        self.waiting.wanting.retain(|it| *it != key);
        self.waiting.ready.retain(|it| *it != key);
        self.note_room(key, true);
        let task = self.task_mut(key);
        device.unhold(std::mem::take(&mut task.held));
        let unit = task.unit;
        let bytes = std::mem::take(&mut task.bytes);
        if let Sink::Memory(memory) = std::mem::replace(&mut task.sink, Sink::Nowhere) {
            let unit = unit.expect("memory is of a disk");
            self.waiting.released.push((unit, memory.buffer));
        }
        self.waiting.bytes -= bytes;
    }

    /// A task does nothing on the medium, and is answered when its data have come: those after it do not wait for these.
    pub(super) fn leave_order(&mut self, device: &mut Device, key: u32) {
        let task = self.task_mut(key);
        let stage = task.stage.take();
        device.leave_order(task.unit, stage);
    }

    /// A task is gone; what it was.
    pub fn retire(&mut self, device: &mut Device, key: u32) -> Task {
        self.leave(device, key);
        self.tasks.remove(key)
    }

    /// A task is gone, and nobody asks for more of it. To move it takes much of the time of a read.
    fn end_task(&mut self, device: &mut Device, key: u32) {
        self.leave(device, key);
        self.tasks.forget(key);
    }

    fn leave(&mut self, device: &mut Device, key: u32) {
        self.let_go(device, key);
        let Task { counted, unit, stage, .. } = self.task(key);
        if *counted == Counted::CacheOff {
            device.end_cache_off(*unit);
        }
        device.leave_order(*unit, *stage);
    }

    /// The engine has answered a task that was aborted. It has no answer by which an initiator whose window was full would
    /// learn that it may send again.
    pub fn retire_aborted(&mut self, device: &mut Device, key: u32, out: &mut Vec<u8>) {
        let was_full = self.is_window_full();
        self.retire(device, key);
        if was_full && !self.is_window_full() {
            self.tell_window(out);
        }
    }

    /// Whether the initiator may send no more numbered commands.
    pub(super) fn is_window_full(&self) -> bool {
        self.tasks.numbered() >= WINDOW
    }

    /// Says which commands the initiator may send.
    pub(super) fn tell_window(&mut self, out: &mut Vec<u8>) {
        self.put(&Answer::NopIn { transfer_tag: NO_TAG, lun: [0; 8] }, NO_TAG, &[], out);
    }

    /// The memory of the disk that a task has: whoever takes it gives it back.
    pub fn take_buffer(&mut self, key: u32) -> Option<Buffer> {
        match std::mem::replace(&mut self.task_mut(key).sink, Sink::Nowhere) {
            Sink::Memory(memory) => Some(memory.buffer),
            Sink::Nowhere | Sink::Bytes(_) => None,
        }
    }

    pub(super) fn on_nop(&mut self, pdu: &Pdu, data: &[u8], out: &mut Vec<u8>) {
        if pdu.tag != NO_TAG {
            let data = &data[..data.len().min(self.terms.rules.segment_max)];
            let answer = Answer::NopIn { transfer_tag: NO_TAG, lun: [0; 8] };
            self.put(&answer, pdu.tag, data, out);
        }
    }

    /// Asks whether the initiator is there.
    pub fn ping(&mut self, out: &mut Vec<u8>) {
        self.times.pinged = Some(self.times.now);
        let answer = Answer::NopIn { transfer_tag: 0, lun: [0; 8] };
        self.put(&answer, NO_TAG, &[], out);
    }

    /// Tells the initiator that the connection is about to be closed.
    pub fn say_goodbye(&mut self, out: &mut Vec<u8>) {
        let answer = Answer::Async {
            event: DROPS_CONNECTION,
            parameters: [self.terms.cid, TIME_TO_WAIT, 0],
        };
        self.put(&answer, NO_TAG, &[], out);
    }

    pub(super) fn on_text(
        &mut self,
        pdu: &Pdu,
        data: &[u8],
        goes_on: bool,
        transfer_tag: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        let targets = &self.terms.targets;
        let answered = self.exchange.take(data, goes_on, transfer_tag, |name, value, out| {
            // "All" is for discovery, but initiators ask for it here too; others may only be asked for by name.
            let is_own = targets.get(b"TargetName=".len()..).is_some_and(|list| {
                list.strip_prefix(value.as_bytes()).is_some_and(|rest| rest.starts_with(&[0]))
            });
            match (name, value) {
                ("SendTargets", "" | "All") => out.extend_from_slice(targets),
                ("SendTargets", _) if is_own => out.extend_from_slice(targets),
                ("SendTargets", _) => {}
                _ => text::put(out, name, "NotUnderstood"),
            }
        });
        let piece = answered.map_err(|_| Broken("a text that is none"))?;
        self.put(&piece.answer(), pdu.tag, &piece.text, out);
        Ok(())
    }

    pub(super) fn reject(&mut self, reason: u8, header: &[u8; HEADER], out: &mut Vec<u8>) {
        self.put(&Answer::Reject { reason }, NO_TAG, header, out);
    }

    /// Appends an answer; those that have a number of their own use one up.
    pub(super) fn put(&mut self, answer: &Answer, tag: u32, data: &[u8], out: &mut Vec<u8>) {
        self.put_header(answer, tag, data.len(), out);
        self.put_payload(data, out);
        let is_numbered = match answer {
            Answer::ReadyToTransfer { .. } => false,
            Answer::NopIn { .. } => tag != NO_TAG,
            Answer::DataIn { end, .. } => end.is_some(),
            Answer::Response { .. }
            | Answer::TaskManagement { .. }
            | Answer::Login { .. }
            | Answer::Text { .. }
            | Answer::Logout { .. }
            | Answer::Async { .. }
            | Answer::Reject { .. } => true,
        };
        self.counts.stat_sn = self.counts.stat_sn.wrapping_add(u32::from(is_numbered));
    }

    fn put_header(&mut self, answer: &Answer, tag: u32, data_len: usize, out: &mut Vec<u8>) {
        let start = out.len();
        let numbers: Numbers = self.numbers();
        answer.encode(tag, numbers, data_len, out);
        if let (Some(log), Some(header)) = (&self.terms.log, out[start..].first_chunk()) {
            log.sent(header);
        }
        if self.terms.rules.header_digest {
            let sum = digest::sum(&out[start..]);
            out.extend_from_slice(&sum.to_le_bytes());
        }
    }

    fn put_payload(&mut self, data: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(data);
        out.resize(out.len() + padding(data.len()), 0);
        if self.terms.rules.data_digest && !data.is_empty() {
            let sum = digest::sum(&out[start..]);
            out.extend_from_slice(&sum.to_le_bytes());
        }
    }
}
