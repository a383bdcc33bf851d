//! A session in full feature phase, without I/O: bytes become commands, answers become bytes.
//!
//! ```text
//! initiator ──next──► Command ──► LogicalUnit ──► answer, or Task
//!                     Data-Out ─► Task ── all there ──► ready ──► driver ──► engine
//!                     NOP, text, task management, logout: answered here
//! initiator ◄── out ◄── answer ◄── driver ◄── engine
//! ```
//! Numbers: commands come in order (one connection), at most [`WINDOW`] of them are unanswered, and what
//! is outside of the window is ignored, as the protocol wants. Every answer with a status has the next
//! StatSN.
//!
//! An initiator's error costs the command while the stream can be followed. Otherwise it costs
//! the connection: an impossible header, a wrong digest, a PDU longer than was agreed on.
//!
//! Limits: [`WINDOW`] commands and [`IMMEDIATE_MAX`] immediate ones, [`BYTES_MAX`] of memory, or
//! [`WITH_OTHERS_MAX`] where units wait for each other, PDUs of [`SEGMENT_MAX`] bytes of data.
//!
//! Follows RFC 7143 with error recovery level 0.

use forebay_core::action::{Buffer, Span};
use forebay_core::geometry::REQUEST_MAX;
use forebay_core::ids::Nanos;

use crate::scsi::{Response, Status};

use super::codec::{DIGEST, HEADER, Numbers, Pdu, Request, padding};
use super::device::{Device, Note};
use super::digest;
use super::login::Established;
use super::negotiate::{Rules, SEGMENT_MAX};
use super::pdu_log::PduLog;
use super::task::{Phase, Sequence, Task};
use super::text;
use super::text_exchange::Exchange;
use management::Late;
use queue::Waiting;
use tasks::Tasks;

mod answer;
mod command;
mod management;
mod payload;
mod queue;
mod tasks;

pub use answer::DataInPiece;
pub use queue::Passed;

/// Commands in the window.
pub const WINDOW: u32 = 128;
/// Immediate commands beside them.
pub const IMMEDIATE_MAX: u32 = 16;
/// Bytes of the disks' memory that the tasks of a session have, unless one task alone has more.
pub const BYTES_MAX: u64 = 16 << 20;
/// The same with one task of each unit that has nothing of those: whatever one unit has, there is room for the longest of
/// another.
pub const WITH_OTHERS_MAX: u64 = 2 * REQUEST_MAX;
/// Time for all data of a command.
pub const DATA_TIME_MAX: Nanos = Nanos::from_millis(30_000);

/// The stream cannot be followed, or must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub &'static str);

/// What [`Session::next`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many bytes are needed at the front of the input.
    NeedMore(usize),
    /// Something was consumed, or came to its end.
    Done,
    /// A task management function was carried out, which may have looked at all tasks of all sessions: others have their turn.
    Managed,
    /// This task has data and wants memory for them: [`Session::give`] or [`Session::hold`].
    Memory(u32),
    /// The next bytes of the input go here: [`Session::arrived`].
    Payload(u32, Span),
    /// The initiator leaves; what is queued is still sent.
    Leave,
}

/// What a session is made of.
#[derive(Clone, Debug)]
pub struct Start {
    /// The result of the login; its leftover is not looked at.
    pub established: Established,
    /// The session's number at its [`Device`].
    pub member: usize,
    /// The answer to SendTargets.
    pub targets: Vec<u8>,
    /// Where its PDUs are logged.
    pub log: Option<PduLog>,
}

/// See the module.
#[derive(Debug)]
pub struct Session {
    member: usize,
    terms: Terms,
    counts: Counts,
    tasks: Tasks,
    waiting: Waiting,
    incoming: Option<payload::Incoming>,
    /// A receive goes to memory of the task whose data are arriving.
    pub is_receiving_direct: bool,
    exchange: Exchange,
    times: Times,
    is_over: bool,
    /// The messages about events from outside.
    late: Vec<Late>,
    /// Tasks that were to be aborted, each with the function's tag: that is answered when the task has ended.
    aborts: Vec<(u32, u32)>,
}

/// What is so from the login on.
#[derive(Debug)]
struct Terms {
    cid: u16,
    targets: Vec<u8>,
    rules: Rules,
    log: Option<PduLog>,
}

/// The numbers of what comes, and goes.
#[derive(Debug)]
struct Counts {
    exp_cmd_sn: u32,
    stat_sn: u32,
    transfer_serial: u16,
}

#[derive(Debug)]
struct Times {
    now: Nanos,
    /// When a ping was sent, if nothing was heard since.
    pinged: Option<Nanos>,
    /// No task must have its data before.
    data_deadline: Nanos,
}

impl Session {
    /// A session that begins.
    pub fn new(start: Start) -> Session {
        let Established { cid, rules, exp_cmd_sn, stat_sn, .. } = start.established;
        Session {
            member: start.member,
            counts: Counts { exp_cmd_sn, stat_sn, transfer_serial: 0 },
            tasks: Tasks::default(),
            waiting: Waiting::default(),
            incoming: None,
            is_receiving_direct: false,
            exchange: Exchange::new(rules.segment_max),
            terms: Terms { cid, targets: start.targets, rules, log: start.log },
            times: Times { now: Nanos(0), pinged: None, data_deadline: Nanos::NEVER },
            is_over: false,
            late: Vec::new(),
            aborts: Vec::new(),
        }
    }

    /// What was agreed on.
    pub fn rules(&self) -> &Rules {
        &self.terms.rules
    }

    /// Tasks that are not gone.
    pub fn in_flight(&self) -> usize {
        self.tasks.len()
    }

    /// True when every task that has an answer was answered.
    pub fn is_answered(&self) -> bool {
        self.tasks.iter().all(|(_, task)| task.phase == Phase::Aborted)
    }

    /// When a ping was sent, if nothing was heard since.
    pub fn pinged(&self) -> Option<Nanos> {
        self.times.pinged
    }

    /// The initiator is there.
    pub fn hear(&mut self) {
        self.times.pinged = None;
    }

    /// True while the data of a PDU are arriving.
    pub fn is_mid_pdu(&self) -> bool {
        self.incoming.is_some()
    }

    /// True when another session took this one's place, or a reset ended it.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// When the first task must have all its data, [`Nanos::NEVER`] when none waits for any.
    /// It may be too early until [`Session::settle_deadline`].
    pub fn data_deadline(&self) -> Nanos {
        self.times.data_deadline
    }

    /// Finds out when the first task must have all its data.
    pub fn settle_deadline(&mut self) {
        let tasks = self.tasks.iter().map(|(_, task)| task);
        let waiting = tasks.filter(|task| task.phase == Phase::Collecting);
        let first = waiting.map(|task| task.deadline).min();
        self.times.data_deadline = first.unwrap_or(Nanos::NEVER);
    }

    /// It was away for a while: what has to come in time has all of it from now on.
    pub fn come_back(&mut self, now: Nanos) {
        self.times.now = now;
        self.times.pinged = self.times.pinged.map(|_| now);
        for task in self.tasks.iter_mut().filter(|task| task.deadline != Nanos::NEVER) {
            task.deadline = now.plus(DATA_TIME_MAX);
        }
        self.settle_deadline();
    }

    /// Nothing was received for so long, which counts for nobody.
    pub fn skip_time(&mut self, span: Nanos) {
        self.times.pinged = self.times.pinged.map(|at| at.plus(span));
        for task in self.tasks.iter_mut().filter(|task| task.deadline != Nanos::NEVER) {
            task.deadline = task.deadline.plus(span);
        }
        self.settle_deadline();
    }

    /// The data of a task must have come in time from now.
    fn wait_for_data(&mut self, key: u32) {
        let deadline = self.times.now.plus(DATA_TIME_MAX);
        self.task_mut(key).deadline = deadline;
        self.times.data_deadline = self.times.data_deadline.min(deadline);
    }

    /// Takes what happened to the session from outside; to be called before anything else, each time.
    pub fn begin(&mut self, now: Nanos, device: &mut Device) {
        self.times.now = now;
        for note in device.notes(self.member) {
            match note {
                Note::Aborted(unit, cause) => self.abort_by_another(device, unit, cause),
                Note::Stored(unit, response) => {
                    let waits =
                        |task: &Task| task.phase == Phase::Storing && task.unit == Some(unit);
                    let found = self.tasks.iter().find(|(_, task)| waits(task));
                    self.late.extend(found.map(|(key, _)| Late::Stored(key, response)));
                }
                Note::Ended => {
                    self.is_over = true;
                    self.abort_where(device, |_| true);
                }
            }
        }
    }

    /// True when [`Session::answer_late`] has something to say.
    pub fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// Takes one thing off the front of `input`; answers what it is and how many bytes it was.
    ///
    /// # Errors
    /// The connection cannot go on.
    pub fn next(
        &mut self,
        device: &mut Device,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Step), Broken> {
        if self.incoming.is_some() {
            return self.take_payload(device, input, out);
        }
        let Some(header) = input.first_chunk::<HEADER>() else {
            return Ok((0, Step::NeedMore(HEADER)));
        };
        let pdu = Pdu::decode(header);
        // Planted: the announced length is believed.
        if pdu.data_len > SEGMENT_MAX && !cfg!(feature = "planted-bugs") {
            return Err(Broken("a PDU is longer than was agreed on"));
        }
        let covered = HEADER + pdu.ahs_len;
        let start = covered + if self.terms.rules.header_digest { DIGEST } else { 0 };
        if input.len() < start {
            return Ok((0, Step::NeedMore(start)));
        }
        if self.terms.rules.header_digest && !digest::is_right(&input[..covered], &input[covered..])
        {
            return Err(Broken("the digest of a header is wrong"));
        }
        if let Some(log) = &self.terms.log {
            let is_whole = !matches!(pdu.request, Request::Command(_) | Request::DataOut { .. });
            // What is looked at as a whole comes here again until it is there.
            if !is_whole || input.len() >= self.whole_len(&pdu, start) {
                log.received(&pdu, header);
            }
        }
        match pdu.request {
            Request::Command(command) => {
                let step = self.on_command(device, &pdu, &command, out)?;
                Ok((start, step))
            }
            Request::DataOut { is_final, transfer_tag, data_sn, offset } => {
                let len = pdu.data_len as u32;
                let sequence = Sequence { transfer_tag, data_sn, offset, len, is_final };
                self.on_data_out(device, &pdu, &sequence, out)?;
                Ok((start, Step::Done))
            }
            _ => self.take_whole(device, &pdu, header, start, input, out),
        }
    }

    /// Bytes of a PDU whose data begin at `start`.
    fn whole_len(&self, pdu: &Pdu, start: usize) -> usize {
        let has_digest = self.terms.rules.data_digest && pdu.data_len > 0;
        start + pdu.data_len + padding(pdu.data_len) + if has_digest { DIGEST } else { 0 }
    }

    /// A PDU whose data are looked at as a whole.
    fn take_whole(
        &mut self,
        device: &mut Device,
        pdu: &Pdu,
        header: &[u8; HEADER],
        start: usize,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Step), Broken> {
        let padded = start + pdu.data_len + padding(pdu.data_len);
        let has_digest = self.terms.rules.data_digest && pdu.data_len > 0;
        let end = self.whole_len(pdu, start);
        if input.len() < end {
            return Ok((0, Step::NeedMore(end)));
        }
        if has_digest && !digest::is_right(&input[start..padded], &input[padded..]) {
            return Err(Broken("the digest of data is wrong"));
        }
        let data = &input[start..start + pdu.data_len];
        let is_numbered = !matches!(pdu.request, Request::Unknown(_) | Request::Login(_));
        if is_numbered && !self.is_next(pdu)? {
            return Ok((end, Step::Done));
        }
        let mut step = Step::Done;
        match pdu.request {
            Request::NopOut { .. } => self.on_nop(pdu, data, out),
            Request::TaskManagement { function, referenced, .. } => {
                step = match self.manage(device, pdu, function, referenced, out) {
                    true => Step::Leave,
                    false => Step::Managed,
                };
            }
            Request::Text { goes_on, transfer_tag, .. } => {
                self.on_text(pdu, data, goes_on, transfer_tag, out)?;
            }
            Request::Logout { reason, cid } => {
                if self.on_logout(device, pdu, reason, cid, out) {
                    step = Step::Leave;
                }
            }
            Request::Login(_) => return Err(Broken("a login within a session")),
            Request::Unknown(opcode) => {
                let reason =
                    if opcode == 0x10 { answer::SNACK_REJECT } else { answer::NOT_SUPPORTED };
                self.reject(reason, header, out);
            }
            Request::Command(_) | Request::DataOut { .. } => unreachable!("taken in pieces"),
        }
        Ok((end, step))
    }

    /// Counts a PDU; false when it is outside of the window, and so ignored.
    fn is_next(&mut self, pdu: &Pdu) -> Result<bool, Broken> {
        if pdu.is_immediate {
            return Ok(true);
        }
        let ahead = pdu.cmd_sn.wrapping_sub(self.counts.exp_cmd_sn);
        let window = self.numbers().max_cmd_sn.wrapping_sub(self.counts.exp_cmd_sn).wrapping_add(1);
        if ahead >= window {
            return Ok(false);
        }
        if ahead != 0 {
            return Err(Broken("a command number was left out"));
        }
        self.counts.exp_cmd_sn = self.counts.exp_cmd_sn.wrapping_add(1);
        Ok(true)
    }

    /// A task. Panics when it is gone.
    pub fn task(&self, key: u32) -> &Task {
        &self.tasks[key]
    }

    /// A task. Panics when it is gone.
    pub fn task_mut(&mut self, key: u32) -> &mut Task {
        &mut self.tasks[key]
    }

    /// The session's number at its device.
    pub fn member(&self) -> usize {
        self.member
    }

    fn numbers(&self) -> Numbers {
        Numbers {
            stat_sn: self.counts.stat_sn,
            exp_cmd_sn: self.counts.exp_cmd_sn,
            max_cmd_sn: self
                .counts
                .exp_cmd_sn
                .wrapping_add(WINDOW - self.tasks.numbered())
                .wrapping_sub(1),
        }
    }
}

#[cfg(test)]
mod tests;
