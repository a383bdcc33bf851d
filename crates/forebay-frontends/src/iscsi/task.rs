//! One SCSI command of an initiator, and the data that come for it.
//!
//! ```text
//! Collecting ──all data──► Queued ──► Running ──engine──► answered
//!     ├────── aborted ───────┴──► gone      └─ aborted ──► Aborted ──engine──► gone
//!     └──all parameters──► Storing ──stored──► answered, or aborted: gone
//! ```
//! Data come in order (DataPDUInOrder, DataSequenceInOrder): with the command, then unsolicited
//! until a PDU says that it was the last, then as R2Ts ask for them. Data out of that order fail
//! the command.
//!
//! **Invariant:** no byte is taken beyond what the command asked for, what the initiator announced, and
//! what the R2T said.

use std::collections::VecDeque;

use forebay_core::action::{Buffer, Span};
use forebay_core::ids::Nanos;

use crate::scsi::{Cdb, Medium, Response};

use super::codec::{NO_TAG, Residual};
use super::order::Stage;

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its data are arriving.
    Collecting,
    /// It is to be carried out.
    Queued,
    /// The engine has it.
    Running,
    /// Its unit waits for something to be stored.
    Storing,
    /// It has no answer; the engine still has it, or data are on their way to its memory.
    Aborted,
}

/// What a unit counts of a task, for the order of cached writes and of whoever turns the write cache off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Nothing.
    No,
    /// The engine has a write of it that was begun with the write cache on.
    CachedWrite,
    /// It turns the write cache off.
    CacheOff,
}

/// A command.
#[derive(Debug)]
pub struct Task {
    /// The initiator's name of it; [`NO_TAG`] once aborted.
    pub tag: u32,
    /// Its place among the logical units of the target; `None`: there is no such unit.
    pub unit: Option<usize>,
    /// What was asked.
    pub wish: Wish,
    /// Where it is.
    pub phase: Phase,
    /// Its data.
    pub data: DataOut,
    /// Where they go.
    pub sink: Sink,
    /// What it has to do.
    pub work: Work,
    /// Its answer, while it cannot be sent.
    pub answer: Option<Response>,
    /// Bytes that count against the connection's limit.
    pub bytes: u64,
    /// Bytes that are set aside for its data, which the heap takes.
    pub held: usize,
    /// How many tasks of the session came before.
    pub number: u64,
    /// It has waited for room in the session since it was asked last.
    pub waits_for_room: bool,
    /// What its unit counts of it.
    pub counted: Counted,
    /// When all its data must have come.
    pub deadline: Nanos,
    /// When it may begin.
    pub stage: Stage,
}

/// A command, as it came.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The unit as it was sent.
    pub lun: [u8; 8],
    /// The command.
    pub cdb: Cdb,
    /// The initiator expects data.
    pub reads: bool,
    /// The initiator has data.
    pub writes: bool,
    /// Bytes that it expects to transfer.
    pub expected_len: u32,
    /// It does not count in the window.
    pub is_immediate: bool,
}

/// The work of a task.
#[derive(Debug, Default)]
pub struct Work {
    /// What it has to do on the medium.
    pub medium: Option<Medium>,
    /// Bytes of data that it takes, if the initiator has them.
    pub needed: u64,
    /// How far it is, in the words of whoever does it.
    pub progress: u64,
    /// What an ORWRITE has read, and is to replace.
    pub found: Vec<u8>,
}

impl Task {
    /// True when its data have memory of the disk.
    pub fn has_memory(&self) -> bool {
        matches!(self.sink, Sink::Memory(_))
    }

    /// True when it reads for the initiator, or its data wait for memory: that takes room in the session once it is begun.
    pub fn needs_room(&self) -> bool {
        let is_read = matches!(self.work.medium, Some(Medium::Read { .. }));
        is_read || self.phase == Phase::Collecting
    }

    /// True for a compare-and-write.
    pub fn is_compare(&self) -> bool {
        matches!(self.work.medium, Some(Medium::CompareAndWrite { .. }))
    }
}

/// Where the data of a command go.
#[derive(Debug)]
pub enum Sink {
    /// Nowhere.
    Nowhere,
    /// Here: parameters, blocks to compare with or to repeat, or data until there is memory.
    Bytes(Vec<u8>),
    /// Into memory of the disk.
    Memory(Memory),
}

/// Memory of the disk for the data of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The buffer.
    pub buffer: Buffer,
    /// Where the first bytes go.
    pub first: Span,
    /// Where those go that come after; may be empty.
    pub second: Span,
}

impl Memory {
    /// Where byte `at` goes, and as many after it as are in one piece.
    pub fn rest(&self, at: u32) -> Span {
        let (piece, at) = match at.checked_sub(self.first.len) {
            None => (self.first, at),
            Some(at) => (self.second, at),
        };
        piece.part(at.into(), u64::from(piece.len - at))
    }
}

/// The data of a command that are to come.
#[derive(Debug, Default)]
pub struct DataOut {
    /// Bytes that are taken.
    pub wanted: u32,
    /// Bytes that have come.
    pub arrived: u32,
    /// Bytes that came or were asked for.
    asked: u32,
    /// Unsolicited data follow.
    pub is_open: bool,
    /// Number of the next unsolicited PDU.
    data_sn: u32,
    /// Requested data that have not come, oldest first.
    asked_for: VecDeque<Asked>,
    /// R2Ts so far.
    pub r2t_sn: u32,
}

/// An R2T that was sent.
#[derive(Clone, Copy, Debug)]
struct Asked {
    tag: u32,
    end: u32,
    data_sn: u32,
}

/// What Data-Out PDU brings.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    /// The R2T that it answers, or [`NO_TAG`].
    pub transfer_tag: u32,
    /// Its number.
    pub data_sn: u32,
    /// Where it belongs.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// The last of its sequence.
    pub is_final: bool,
}

/// The fate of a Data-Out PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is taken.
    Take,
    /// It answers nothing that is known: it is skipped.
    Skip,
    /// It breaks the rules: the command fails.
    Fail,
}

/// An R2T to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Its name.
    pub transfer_tag: u32,
    /// Its number.
    pub r2t_sn: u32,
    /// Where the data begin.
    pub offset: u32,
    /// How many.
    pub len: u32,
}

impl DataOut {
    /// Data of a command that takes `wanted` bytes, of which `immediate` come with it.
    pub fn new(wanted: u32, immediate: u32, is_open: bool) -> DataOut {
        DataOut { wanted, asked: immediate, is_open, ..DataOut::default() }
    }

    /// Whether a PDU may come now. `limit`: bytes that may come unsolicited.
    pub fn admit(&mut self, pdu: &Sequence, limit: u32) -> Verdict {
        let end = u64::from(pdu.offset) + u64::from(pdu.len);
        if pdu.transfer_tag == NO_TAG {
            let in_order = pdu.data_sn == self.data_sn && pdu.offset == self.asked;
            if !self.is_open {
                return Verdict::Skip;
            }
            // Planted: unsolicited data are not bounded.
            if !in_order || (end > limit.into() && !cfg!(feature = "planted-bugs")) {
                return Verdict::Fail;
            }
            self.data_sn += 1;
            self.asked = end as u32;
            self.is_open = !pdu.is_final;
            return Verdict::Take;
        }
        let is_known = self.asked_for.iter().any(|asked| asked.tag == pdu.transfer_tag);
        let Some(asked) = self.asked_for.front_mut().filter(|_| is_known) else {
            return Verdict::Skip;
        };
        let in_order = asked.tag == pdu.transfer_tag && pdu.data_sn == asked.data_sn;
        let is_end = end == u64::from(asked.end);
        if !in_order
            || pdu.offset != self.arrived
            || end > asked.end.into()
            || pdu.is_final != is_end
        {
            return Verdict::Fail;
        }
        asked.data_sn += 1;
        if is_end {
            self.asked_for.pop_front();
        }
        Verdict::Take
    }

    /// The next R2T, when one is due. `tag` makes its name, given its number.
    pub fn ask(
        &mut self,
        burst: u32,
        outstanding: u32,
        tag: impl FnOnce(u32) -> u32,
    ) -> Option<Ready> {
        let is_due = !self.is_open
            && self.asked < self.wanted
            && self.asked_for.len() < outstanding as usize;
        if !is_due {
            return None;
        }
        let (offset, r2t_sn) = (self.asked, self.r2t_sn);
        let len = burst.min(self.wanted - offset);
        let transfer_tag = tag(r2t_sn);
        self.asked += len;
        self.r2t_sn += 1;
        self.asked_for.push_back(Asked { tag: transfer_tag, end: self.asked, data_sn: 0 });
        Some(Ready { transfer_tag, r2t_sn, offset, len })
    }

    /// True when the initiator still owes data: it has not said which are the last that come unsolicited, or an R2T
    /// is not answered.
    pub fn is_owed(&self) -> bool {
        self.is_open || !self.asked_for.is_empty()
    }

    /// True when nothing more comes.
    pub fn is_complete(&self) -> bool {
        !self.is_owed() && self.arrived >= self.wanted
    }

    /// Nothing more is taken or asked for; what is unsolicited still comes.
    pub fn give_up(&mut self) {
        self.wanted = self.wanted.min(self.arrived);
        self.asked_for.clear();
    }
}

impl Task {
    /// Bytes that a read has on the medium.
    pub fn medium_len(&self) -> u64 {
        match &self.work.medium {
            Some(Medium::Read { range, .. }) => range.len(),
            _ => 0,
        }
    }

    /// The bytes not transferred when the command has `actual` bytes of data.
    pub fn residual(&self, actual: u64) -> Residual {
        match self.wish.reads || self.wish.writes {
            true => Residual::of(self.wish.expected_len.into(), actual),
            false => Residual::of(0, actual),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pdu(transfer_tag: u32, data_sn: u32, offset: u32, len: u32, is_final: bool) -> Sequence {
        Sequence { transfer_tag, data_sn, offset, len, is_final }
    }

    #[test]
    fn unsolicited_data_come_in_order_and_up_to_a_limit() {
        let check = |pdus: &[(Sequence, Verdict)]| {
            let mut data = DataOut::new(4096, 512, true);
            for (pdu, expect) in pdus {
                assert_eq!(data.admit(pdu, 2048), *expect, "{pdu:?}");
            }
        };
        let good = (pdu(NO_TAG, 0, 512, 512, false), Verdict::Take);
        check(&[good, (pdu(NO_TAG, 1, 1024, 1024, true), Verdict::Take)]);
        check(&[good, (pdu(NO_TAG, 0, 1024, 512, true), Verdict::Fail)]);
        check(&[good, (pdu(NO_TAG, 1, 512, 512, true), Verdict::Fail)]);
        check(&[(pdu(NO_TAG, 0, 0, 512, true), Verdict::Fail)]);
        check(&[(pdu(NO_TAG, 0, u32::MAX, u32::MAX, true), Verdict::Fail)]);
        #[cfg(not(feature = "planted-bugs"))]
        check(&[good, (pdu(NO_TAG, 1, 1024, 1025, true), Verdict::Fail)]);
        let last = (pdu(NO_TAG, 0, 512, 512, true), Verdict::Take);
        check(&[last, (pdu(NO_TAG, 1, 1024, 512, true), Verdict::Skip)]);
        check(&[(pdu(7, 0, 512, 512, true), Verdict::Skip)]);
    }

    #[test]
    fn solicited_data_come_as_they_were_asked_for() {
        let check = |pdus: &[(Sequence, Verdict)]| {
            let mut data = DataOut::new(3000, 0, false);
            let first = data.ask(1024, 2, |sn| 100 + sn);
            let ready = Ready { transfer_tag: 100, r2t_sn: 0, offset: 0, len: 1024 };
            assert_eq!(first, Some(ready));
            assert!(data.ask(1024, 2, |sn| 100 + sn).is_some());
            assert_eq!(data.ask(1024, 2, |sn| 100 + sn), None, "two at a time");
            for (pdu, expect) in pdus {
                assert_eq!(data.admit(pdu, 0), *expect, "{pdu:?}");
                data.arrived += if *expect == Verdict::Take { pdu.len } else { 0 };
            }
            data
        };
        let first = (pdu(100, 0, 0, 512, false), Verdict::Take);
        let second = (pdu(100, 1, 512, 512, true), Verdict::Take);
        let mut data = check(&[first, second, (pdu(101, 0, 1024, 1024, true), Verdict::Take)]);
        assert!(!data.is_complete());
        let last = data.ask(1024, 2, |sn| 100 + sn).unwrap();
        assert_eq!((last.offset, last.len), (2048, 952));
        assert_eq!(data.admit(&pdu(102, 0, 2048, 952, true), 0), Verdict::Take);
        data.arrived += 952;
        assert!(data.is_complete());
        check(&[first, (pdu(100, 0, 512, 512, true), Verdict::Fail)]);
        check(&[first, (pdu(100, 27, 512, 512, true), Verdict::Fail)]);
        check(&[first, (pdu(100, 1, 512, 511, true), Verdict::Fail)]);
        check(&[first, (pdu(100, 1, 512, 512, false), Verdict::Fail)]);
        check(&[first, (pdu(100, 1, 512, 513, true), Verdict::Fail)]);
        check(&[(pdu(101, 0, 1024, 1024, true), Verdict::Fail)]);
        check(&[(pdu(99, 0, 0, 1024, true), Verdict::Skip)]);
        check(&[first, second, (pdu(100, 2, 1024, 512, true), Verdict::Skip)]);
    }

    #[test]
    fn memory_may_be_in_two_pieces() {
        let span = |offset, len| Span { offset, len };
        let buffer =
            Buffer { span: span(0, 4096), window: forebay_core::geometry::ByteRange::at(0, 512) };
        let memory = Memory { buffer, first: span(512, 512), second: span(0, 512) };
        assert_eq!(memory.rest(0), span(512, 512));
        assert_eq!(memory.rest(500), span(1012, 12));
        assert_eq!(memory.rest(512), span(0, 512));
        assert_eq!(memory.rest(1000), span(488, 24));
    }
}
