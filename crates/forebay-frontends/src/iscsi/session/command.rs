//! The way of a command: from its header, over the unit's wish and the incoming data, to its end
//! here. At the end it is answered, is to be carried out, or waits for something to be stored.
//!
//! ```text
//! on_command ──► unit ──► act ──► answer │ Storing │ parameters ─┐
//!                          └──► act_on_medium ──► memory ──► go_on ──all there──► ready
//!                                                on_data_out ──┘
//! ```

use forebay_core::geometry::COMPARE_MAX;
use forebay_core::ids::Nanos;

use super::super::codec::{Answer, Command, NO_TAG, Pdu};
use super::super::task::{Counted, DataOut, Phase, Sequence, Sink, Task, Verdict, Wish, Work};
use super::{Broken, Device, Session, Step, answer};
use crate::scsi::{Cdb, Code, Key, Medium, Outcome, Response, Sense, Status};

impl Session {
    pub(super) fn on_command(
        &mut self,
        device: &mut Device,
        pdu: &Pdu,
        command: &Command,
        out: &mut Vec<u8>,
    ) -> Result<Step, Broken> {
        let is_next = self.is_next(pdu)?;
        let is_open = command.writes && !command.is_final;
        self.expect(None, pdu.data_len);
        if !is_next {
            return Ok(Step::Done);
        }
        if pdu.tag == NO_TAG || self.tasks.has(pdu.tag) {
            self.reject(answer::TASK_IN_PROGRESS, &pdu.encode(), out);
            return Ok(Step::Done);
        }
        if pdu.is_immediate && self.tasks.is_full_of_immediate() {
            self.reject(answer::TOO_MANY_IMMEDIATE, &pdu.encode(), out);
            return Ok(Step::Done);
        }
        let unit = device.find(pdu.lun);
        let wish = Wish {
            lun: pdu.lun,
            cdb: Cdb(command.cdb),
            reads: command.reads,
            writes: command.writes,
            expected_len: command.expected_len,
            is_immediate: pdu.is_immediate,
        };
        let task = Task {
            tag: pdu.tag,
            unit,
            wish,
            phase: Phase::Collecting,
            data: DataOut::new(0, pdu.data_len as u32, is_open),
            sink: Sink::Nowhere,
            work: Work::default(),
            answer: None,
            bytes: 0,
            held: 0,
            number: self.waiting.count(),
            waits_for_room: false,
            counted: Counted::No,
            deadline: Nanos::NEVER,
            stage: unit.and_then(|unit| device.enter(unit, command.attribute)),
        };
        let key = self.tasks.insert(task);
        if is_open {
            self.wait_for_data(key);
        }
        self.expect(Some(key), pdu.data_len);
        let unasked = pdu.data_len > self.terms.rules.immediate_max()
            || pdu.data_len as u64 > u64::from(command.expected_len)
            || (pdu.data_len > 0 && !command.writes)
            || (is_open && self.terms.rules.initial_r2t);
        if unasked {
            let sense = Sense::new(Key::AbortedCommand, Code(0x0c, 0x0c));
            self.answer(device, key, Response::check(sense), out);
            return Ok(Step::Done);
        }
        let outcome = self.ask_unit(device, key, None);
        Ok(self.act(device, key, outcome, out))
    }

    /// The logical unit's answer to a command, or to its parameters.
    pub(super) fn ask_unit(
        &mut self,
        device: &mut Device,
        key: u32,
        list: Option<&[u8]>,
    ) -> Outcome {
        let task = self.task(key);
        // REPORT LUNS is the target's. Hosts look for all units with an INQUIRY of the first one.
        let is_of_target = match task.wish.cdb.opcode() {
            0xa0 => true,
            0x03 | 0x12 => task.wish.lun == [0; 8],
            _ => false,
        };
        if task.unit.is_none() && device.awaits(task.wish.lun) && !is_of_target {
            return Outcome::Done(Response::of(Status::Busy));
        }
        let data_out = if task.wish.writes { task.wish.expected_len } else { 0 };
        device.ask(self.member, task.unit, task.wish.cdb, data_out, list)
    }

    /// Does what an outcome says.
    pub(super) fn act(
        &mut self,
        device: &mut Device,
        key: u32,
        outcome: Outcome,
        out: &mut Vec<u8>,
    ) -> Step {
        match outcome {
            Outcome::Done(response) => self.answer(device, key, response, out),
            Outcome::DataOut(len) => {
                let task = self.task_mut(key);
                task.work.needed = len.into();
                let wanted = if task.wish.writes { len.min(task.wish.expected_len) } else { 0 };
                task.data.wanted = wanted;
                if !self.set_aside(device, key, wanted, true) {
                    self.answer(device, key, Response::of(Status::Busy), out);
                    return Step::Done;
                }
                self.wait_for_data(key);
                self.go_on(device, key, out);
            }
            Outcome::Medium(medium) => return self.act_on_medium(device, key, medium, out),
            Outcome::Store(state) => {
                let unit = self.task(key).unit.expect("a unit said so");
                self.task_mut(key).phase = Phase::Storing;
                device.store(self.member, unit, state);
            }
            Outcome::Settle { response, abort } => {
                let unit = self.task(key).unit.expect("a unit said so");
                if device.abort_nexuses(self.member, unit, &abort) {
                    let tag = self.task(key).tag;
                    self.abort_where(device, |task| task.unit == Some(unit) && task.tag != tag);
                }
                self.answer(device, key, response, out);
            }
        }
        Step::Done
    }

    pub(super) fn act_on_medium(
        &mut self,
        device: &mut Device,
        key: u32,
        medium: Medium,
        out: &mut Vec<u8>,
    ) -> Step {
        let taken = medium.data_out(super::super::BLOCK);
        let task = self.task_mut(key);
        if matches!(medium, Medium::CacheOff) {
            task.counted = Counted::CacheOff;
            device.begin_cache_off(task.unit.expect("a unit said so"));
        }
        // The unit has cut a write to the blocks that the initiator has data for; the residual is of the command's.
        let is_cut = taken < task.wish.cdb.write_len()
            && u64::from(task.wish.expected_len) < task.wish.cdb.write_len()
            && matches!(medium, Medium::Write { .. } | Medium::OrWrite { .. });
        let needed = if is_cut { task.wish.cdb.write_len() } else { taken };
        // The parameters before it were transferred as well.
        task.work.needed = task.work.needed.max(needed);
        let announced = if task.wish.writes { task.wish.expected_len } else { 0 };
        let offered = taken.min(announced.into()) as u32;
        let is_write = matches!(medium, Medium::Write { .. });
        // A write of less data than blocks writes the blocks for which there are data.
        let wanted = if is_write { offered - offered % super::super::BLOCK } else { offered };
        if u64::from(wanted) < taken && !is_write {
            let sense = Sense::illegal(Code::INVALID_FIELD_IN_CDB);
            self.answer(device, key, Response::check(sense), out);
            return Step::Done;
        }
        let wants_memory = matches!(medium, Medium::Write { .. } | Medium::CompareAndWrite { .. });
        task.data.wanted = wanted;
        task.work.medium = Some(medium);
        if wanted == 0 {
            self.go_on(device, key, out);
            return Step::Done;
        }
        self.wait_for_data(key);
        if wants_memory {
            return Step::Memory(key);
        }
        // A part of it is read to be combined with the data, and waits for memory of the disk on the heap.
        let reads = match self.task(key).work.medium {
            Some(Medium::OrWrite { .. }) => wanted.min(COMPARE_MAX as u32),
            _ => 0,
        };
        if !self.set_aside(device, key, wanted + reads, false) {
            self.answer(device, key, Response::of(Status::Busy), out);
            return Step::Done;
        }
        self.go_on(device, key, out);
        Step::Done
    }

    pub(super) fn on_data_out(
        &mut self,
        device: &mut Device,
        pdu: &Pdu,
        sequence: &Sequence,
        out: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        let key = self.tasks.find(pdu.tag);
        self.expect(None, pdu.data_len);
        // Data of a task that is gone, aborted for instance, are skipped.
        let Some(key) = key else { return Ok(()) };
        let first_burst = self.terms.rules.first_burst;
        let task = self.task_mut(key);
        let limit = first_burst.min(task.wish.expected_len);
        let verdict = task.data.admit(sequence, limit);
        match verdict {
            Verdict::Take => self.expect(Some(key), pdu.data_len),
            Verdict::Skip => {}
            Verdict::Fail => {
                task.data.is_open = task.data.is_open && !sequence.is_final;
                let sense = Sense::new(Key::AbortedCommand, Code(0x0c, 0x0d));
                self.answer(device, key, Response::check(sense), out);
            }
        }
        // Without data there is no payload whose end would be noticed.
        if verdict == Verdict::Take && pdu.data_len == 0 {
            self.incoming = None;
            self.go_on(device, key, out);
        }
        Ok(())
    }

    /// A task has all its data, or asks for more, or its answer can be sent.
    pub(super) fn go_on(&mut self, device: &mut Device, key: u32, out: &mut Vec<u8>) {
        if self.task(key).answer.is_some() {
            if !self.task(key).data.is_owed() && !self.is_arriving(key) {
                let response = self.task_mut(key).answer.take().expect("there is one");
                self.answer(device, key, response, out);
            }
            return;
        }
        if self.waiting.wanting.contains(&key) || self.task(key).phase != Phase::Collecting {
            return;
        }
        self.ask_for_data(key, out);
        if !self.task(key).data.is_complete() || self.is_arriving(key) {
            return;
        }
        let task = self.task_mut(key);
        task.deadline = Nanos::NEVER;
        if task.work.medium.is_some() {
            task.phase = Phase::Queued;
            match task.stage {
                Some(_) => self.waiting.ready.push_back(key),
                None => self.waiting.ready.push_front(key),
            }
            return;
        }
        let Sink::Bytes(list) = std::mem::replace(&mut task.sink, Sink::Nowhere) else {
            unreachable!("a task without work on the medium collects parameters");
        };
        device.unhold(std::mem::take(&mut task.held));
        let outcome = self.ask_unit(device, key, Some(&list));
        let step = self.act(device, key, outcome, out);
        debug_assert_eq!(step, Step::Done, "what follows parameters takes no more data");
    }

    pub(super) fn ask_for_data(&mut self, key: u32, out: &mut Vec<u8>) {
        let (burst, outstanding) = (self.terms.rules.max_burst, self.terms.rules.outstanding_r2t);
        loop {
            let serial = self.counts.transfer_serial;
            let task = self.task_mut(key);
            let name = |_| u32::from(serial) << 16 | key;
            let Some(ready) = task.data.ask(burst, outstanding, name) else { return };
            let answer = Answer::ReadyToTransfer {
                lun: task.wish.lun,
                transfer_tag: ready.transfer_tag,
                r2t_sn: ready.r2t_sn,
                offset: ready.offset,
                len: ready.len,
            };
            let tag = task.tag;
            self.counts.transfer_serial = self.counts.transfer_serial.wrapping_add(1) & 0x7fff;
            self.put(&answer, tag, &[], out);
        }
    }
}
