//! The work of tasks on the medium: what the engine is asked, one request of a task at a time.
//!
//! | medium | engine |
//! |---|---|
//! | Read, Flush, Prefetch, Allocation | the same |
//! | Write, CompareAndWrite | the same, from the memory into which the data were received |
//! | Verify, Compare | reads of [`CHUNK`] bytes |
//! | WriteSame | zeroes: WriteZeroes; otherwise writes of [`CHUNK`] bytes |
//! | OrWrite | a read into the heap, and a compare-and-write of that, until nobody came between |
//! | Zero, Unmap | WriteZeroes of each range |
//!
//! A task whose request the engine cannot take now stays at the front of those that are ready.

use forebay_core::action::{Reply, ReplyData, Span};
use forebay_core::geometry::{ByteRange, COMPARE_MAX};
use forebay_core::request::{Op, Request};
use forebay_core::status::IoStatus;

use super::super::device::Device;
use super::super::session::Passed;
use super::super::task::{Counted, Memory, Phase, Sink};
use super::{Connection, Phase as ConnectionPhase};
use crate::client::{Answer, Context, DiskId};
use crate::scsi::{Done, Medium};

/// Bytes of one request of a task that needs many.
const CHUNK: u64 = 1 << 20;
/// The same of zeroes. What is written in between, where storage cannot make holes, has to end before an abort can.
const ZERO_PIECE: u64 = 512 << 20;

/// How the next request of a task went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// The engine has it.
    Yes,
    /// Not now.
    Busy,
    /// Not while other tasks of the session have so much.
    NoRoom,
    /// There is nothing more to ask.
    Nothing,
    /// A reservation that came meanwhile forbids it.
    Reserved,
    /// It cannot be asked.
    Never,
}

/// The first `len` bytes of a range.
pub(super) fn first(range: ByteRange, len: u64) -> ByteRange {
    ByteRange::at(range.start, len.min(range.len()))
}

/// Memory for what is expected and what replaces it, if there is any now.
pub(super) fn compare_memory(
    cx: &mut Context<'_>,
    disk: DiskId,
    range: ByteRange,
) -> Option<Memory> {
    let buffer = cx.compare_buffer(disk, range)?;
    Some(Memory { buffer, first: buffer.expected(range), second: buffer.at(range) })
}

impl Connection {
    /// Carries out tasks that are ready; true when one was begun. One that has to wait is passed by those of other units, and
    /// by those that have memory: what it waits for may be theirs.
    pub(super) fn run_ready(&mut self, cx: &mut Context<'_>, device: &mut Device) -> bool {
        let (mut began, mut passed) = (false, Passed::default());
        while let Some(key) = self.session.ready(device, &passed) {
            if self.phase == ConnectionPhase::Closed || self.outbox.is_sending() {
                break;
            }
            match self.ask(cx, device, key) {
                Asked::Busy => self.session.pass(key, &mut passed),
                Asked::NoRoom => passed.for_room(self.session.task(key)),
                Asked::Yes | Asked::Nothing | Asked::Reserved | Asked::Never => began = true,
            }
        }
        began
    }

    /// Asks the engine for the next piece of a task's work, or ends the task.
    fn ask(&mut self, cx: &mut Context<'_>, device: &mut Device, key: u32) -> Asked {
        let asked = self.ask_engine(cx, device, key);
        match asked {
            Asked::Busy | Asked::NoRoom => {}
            Asked::Yes => {
                if self.session.task(key).phase == Phase::Queued {
                    self.session.start();
                }
            }
            Asked::Nothing => self.end(device, key, Done::Status(IoStatus::Ok)),
            Asked::Reserved => self.end(device, key, Done::Status(IoStatus::Reserved)),
            Asked::Never => self.end(device, key, Done::Status(IoStatus::Unsupported)),
        }
        asked
    }

    fn ask_engine(&mut self, cx: &mut Context<'_>, device: &mut Device, key: u32) -> Asked {
        let task = self.session.task(key);
        let unit = task.unit.expect("work on the medium is of a unit");
        let disk = device.units[unit].disk;
        let (progress, taken, limit) = (task.work.progress, task.data.wanted, self.read_limit(key));
        let Some(medium) = &self.session.task(key).work.medium else { return Asked::Never };
        let (range, op) = match *medium {
            Medium::Read { range, no_admit } => {
                let range = first(range, limit);
                if range.is_empty() {
                    return Asked::Nothing;
                }
                if !self.session.has_room(key, range.len()) {
                    return Asked::NoRoom;
                }
                (range, Op::Read { no_admit })
            }
            Medium::Verify { range, no_admit } => {
                (rest(range, progress, CHUNK), Op::Read { no_admit })
            }
            Medium::Compare { range, .. } => {
                (rest(range, progress, CHUNK), Op::Read { no_admit: false })
            }
            Medium::OrWrite { range, fua } => {
                let range = rest(range, progress, COMPARE_MAX);
                if !task.work.found.is_empty() {
                    return self.or_write(cx, device, (disk, key), range, fua);
                }
                (range, Op::Read { no_admit: false })
            }
            Medium::Write { range, fua } => {
                let range = first(range, taken.into());
                let op = |buffer| Op::Write { buffer, fua };
                return self.submit_memory(cx, device, (disk, key), range, op);
            }
            Medium::CompareAndWrite { range, fua } => {
                let op = |buffer| Op::CompareAndWrite { buffer, fua };
                return self.submit_memory(cx, device, (disk, key), range, op);
            }
            Medium::WriteSame { range, may_unmap } => {
                let Sink::Bytes(block) = &task.sink else { return Asked::Never };
                if block.iter().all(|byte| *byte == 0) {
                    let range = rest(range, progress, ZERO_PIECE);
                    (range, Op::WriteZeroes { may_unmap, fast_only: false, fua: false })
                } else {
                    let range = rest(range, progress, CHUNK);
                    return self.write_same(cx, device, (disk, key), range);
                }
            }
            Medium::Zero { range, may_unmap } => {
                let op = Op::WriteZeroes { may_unmap, fast_only: false, fua: false };
                (rest(range, progress, ZERO_PIECE), op)
            }
            // Blocks may stay mapped. Without holes all that a guest trims would be written.
            Medium::Unmap { may_unmap: true, .. } if !cx.port(disk).engine.makes_holes() => {
                return Asked::Nothing;
            }
            Medium::Unmap { ref ranges, may_unmap } => {
                let op = Op::WriteZeroes { may_unmap, fast_only: false, fua: false };
                let left = ranges.iter().skip(progress as usize);
                let range = left.copied().find(|range| !range.is_empty());
                (range.unwrap_or(ByteRange::at(0, 0)), op)
            }
            Medium::Flush | Medium::CacheOff => match progress {
                0 => (ByteRange::at(0, 0), Op::Flush),
                _ => return Asked::Nothing,
            },
            Medium::Prefetch { range, .. } => (rest(range, progress, u64::MAX), Op::Prefetch),
            Medium::Allocation { range, .. } => (range, Op::Allocation),
        };
        if range.is_empty() && op != Op::Flush {
            return Asked::Nothing;
        }
        let charge = if matches!(op, Op::Read { .. }) { range.len() } else { 0 };
        let asked = self.submit(cx, device, (disk, key), range, op);
        if asked == Asked::Yes {
            self.session.charge(key, charge);
        }
        asked
    }

    /// Hands a request to the engine, unless a reservation forbids it by now, and durable when the write cache is off by
    /// now. It is as if it had ended before one that comes later.
    fn submit(
        &mut self,
        cx: &mut Context<'_>,
        device: &mut Device,
        (disk, key): (DiskId, u32),
        range: ByteRange,
        op: Op,
    ) -> Asked {
        let task = self.session.task(key);
        let (unit, medium) = (task.unit, task.work.medium.as_ref());
        if let (Some(unit), Some(medium)) = (unit, medium)
            && device.forbids(self.session.member(), unit, medium)
        {
            return Asked::Reserved;
        }
        let request = Request { tag: self.link.tag(key), range, op };
        match unit.filter(|_| op.is_volatile()) {
            Some(unit) => self.submit_volatile(cx, device, (disk, unit, key), request),
            None if cx.submit_unchecked(disk, request).is_ok() => Asked::Yes,
            None => Asked::Busy,
        }
    }

    /// The same of what may be acknowledged before it is durable, if the write cache is on.
    fn submit_volatile(
        &mut self,
        cx: &mut Context<'_>,
        device: &mut Device,
        (disk, unit, key): (DiskId, usize, u32),
        request: Request,
    ) -> Asked {
        let is_off = device.is_write_through(unit);
        let op = if is_off { request.op.durable() } else { request.op };
        if cx.submit_unchecked(disk, Request { op, ..request }).is_err() {
            return Asked::Busy;
        }
        if !is_off {
            device.begin_cached(unit);
            self.session.task_mut(key).counted = Counted::CachedWrite;
        }
        Asked::Yes
    }

    /// The engine has answered a task. If that was a write that was begun with the write cache on, it has ended.
    fn end_cached(&mut self, device: &mut Device, key: u32) {
        let task = self.session.task_mut(key);
        if task.counted == Counted::CachedWrite
            && let Some(unit) = task.unit
        {
            task.counted = Counted::No;
            device.end_cached(unit);
        }
    }

    /// Bytes that are read for a task: what the initiator takes, in whole blocks.
    fn read_limit(&self, key: u32) -> u64 {
        let task = self.session.task(key);
        let expected = if task.wish.reads { u64::from(task.wish.expected_len) } else { 0 };
        expected.next_multiple_of(super::super::BLOCK.into())
    }

    /// Hands a task's memory to the engine.
    fn submit_memory(
        &mut self,
        cx: &mut Context<'_>,
        device: &mut Device,
        (disk, key): (DiskId, u32),
        range: ByteRange,
        op: impl FnOnce(forebay_core::action::Buffer) -> Op,
    ) -> Asked {
        let Sink::Memory(memory) = self.session.task(key).sink else { return Asked::Nothing };
        let asked = self.submit(cx, device, (disk, key), range, op(memory.buffer));
        if asked == Asked::Yes {
            self.session.take_buffer(key);
        }
        asked
    }

    /// Writes one block again and again.
    fn write_same(
        &mut self,
        cx: &mut Context<'_>,
        device: &mut Device,
        (disk, key): (DiskId, u32),
        range: ByteRange,
    ) -> Asked {
        if range.is_empty() {
            return Asked::Nothing;
        }
        if cx.port(disk).engine.is_full() {
            // Memory that is taken and given back would tell everybody to try again.
            return Asked::Busy;
        }
        let Some(buffer) = cx.write_buffer(disk, range) else { return Asked::Busy };
        let Sink::Bytes(block) = &self.session.task(key).sink else { return Asked::Never };
        let span = buffer.at(range);
        let memory = &cx.port(disk).memory;
        for at in (0..u64::from(span.len)).step_by(block.len()) {
            memory.write_at(span.offset + at, block);
        }
        let op = Op::Write { buffer, fua: false };
        let asked = self.submit(cx, device, (disk, key), range, op);
        if asked != Asked::Yes {
            cx.release(disk, buffer);
        }
        asked
    }

    /// The engine answered a request of a task.
    pub(super) fn on_engine(
        &mut self,
        cx: &mut Context<'_>,
        device: &mut Device,
        answer: Answer<'_>,
    ) {
        let Answer { disk, reply, slices, .. } = answer;
        let key = reply.tag.0 as u32;
        let task = self.session.task(key);
        if task.phase == Phase::Aborted {
            self.end_cached(device, key);
            release(cx, disk, reply);
            let session = &mut self.session;
            self.outbox.append(|out| session.retire_aborted(device, key, out));
            return;
        }
        if reply.status.is_ok() && matches!(task.work.medium, Some(Medium::Read { .. })) {
            let spans = spans_of(reply, slices);
            return self.send_read(cx, device, key, (disk, reply), spans);
        }
        self.on_no_data_to_send(cx, device, answer);
    }

    /// The same of all but a read that succeeded.
    #[inline(never)]
    fn on_no_data_to_send(
        &mut self,
        cx: &mut Context<'_>,
        device: &mut Device,
        answer: Answer<'_>,
    ) {
        let Answer { disk, reply, slices, extents } = answer;
        let key = reply.tag.0 as u32;
        let task = self.session.task(key);
        let medium = task.work.medium.as_ref().expect("the engine has work on the medium");
        let spans = spans_of(reply, slices);
        match medium {
            Medium::OrWrite { .. } if has_data(reply) => {
                let memory = &cx.port(disk).memory;
                let found = &mut self.session.task_mut(key).work.found;
                spans.for_each(|span| memory.append_to(span.offset, span.len, found));
                release(cx, disk, reply);
                self.session.discharge(key);
                // Not now: it waits with what it has read among those that are ready.
                if self.ask(cx, device, key) == Asked::Busy {
                    self.session.requeue(key);
                }
                return;
            }
            _ => self.end_cached(device, key),
        }
        let medium = self.session.task(key).work.medium.as_ref().expect("as before");
        let outcome = match (medium, reply.data) {
            // Somebody came between the read and the write: both again.
            (Medium::OrWrite { .. }, _) if reply.status == IoStatus::Miscompare => Ok(false),
            _ if reply.status == IoStatus::Miscompare => Err(difference(reply)),
            (Medium::Compare { .. }, _) if reply.status.is_ok() => {
                self.compare(cx, disk, key, spans).map(|()| true)
            }
            (Medium::Allocation { .. }, ReplyData::Extents { first, count }) => {
                Err(Done::Extents(&extents[first as usize..][..count as usize]))
            }
            _ if reply.status.is_ok() => Ok(true),
            _ => Err(Done::Status(reply.status)),
        };
        release(cx, disk, reply);
        match outcome {
            Err(done) => self.end(device, key, done),
            Ok(is_done) => {
                self.session.discharge(key);
                if is_done {
                    self.advance(key);
                }
                // Not now: it waits among those that are ready.
                if self.ask(cx, device, key) == Asked::Busy {
                    self.session.requeue(key);
                }
            }
        }
    }

    /// Combines what was read with a task's data, to be written if it is still what is there.
    fn or_write(
        &mut self,
        cx: &mut Context<'_>,
        device: &mut Device,
        (disk, key): (DiskId, u32),
        range: ByteRange,
        fua: bool,
    ) -> Asked {
        if cx.port(disk).engine.is_full() {
            // Memory that is taken and given back would tell everybody to try again.
            return Asked::Busy;
        }
        let task = self.session.task(key);
        let Sink::Bytes(data) = &task.sink else { return Asked::Never };
        let Some(memory) = compare_memory(cx, disk, range) else { return Asked::Busy };
        let (found, combined) = (&task.work.found, &mut self.scratch);
        let data = &data[task.work.progress as usize..][..found.len()];
        combined.clear();
        combined.extend(found.iter().zip(data).map(|(byte, more)| byte | more));
        let arena = &cx.port(disk).memory;
        arena.write_at(memory.first.offset, found);
        arena.write_at(memory.second.offset, combined);
        let op = Op::CompareAndWrite { buffer: memory.buffer, fua };
        let asked = self.submit(cx, device, (disk, key), range, op);
        match asked {
            // If somebody came between, it is read anew.
            Asked::Yes => self.session.task_mut(key).work.found.clear(),
            _ => cx.release(disk, memory.buffer),
        }
        asked
    }

    /// The request that was answered is done.
    fn advance(&mut self, key: u32) {
        let task = self.session.task_mut(key);
        let step = match task.work.medium.as_ref().expect("it had work") {
            Medium::Verify { range, .. } | Medium::Compare { range, .. } => {
                rest(*range, task.work.progress, CHUNK).len()
            }
            Medium::OrWrite { range, .. } => rest(*range, task.work.progress, COMPARE_MAX).len(),
            Medium::WriteSame { range, .. } => {
                let has_any = |block: &[u8]| block.iter().any(|byte| *byte != 0);
                let is_pattern = matches!(&task.sink, Sink::Bytes(block) if has_any(block));
                rest(*range, task.work.progress, if is_pattern { CHUNK } else { ZERO_PIECE }).len()
            }
            Medium::Zero { range, .. } => rest(*range, task.work.progress, ZERO_PIECE).len(),
            Medium::Prefetch { range, .. } => range.len(),
            Medium::Unmap { ranges, .. } => {
                let empty = |range: &&ByteRange| range.is_empty();
                let skipped =
                    ranges.iter().skip(task.work.progress as usize).take_while(empty).count();
                skipped as u64 + 1
            }
            Medium::Read { .. }
            | Medium::Write { .. }
            | Medium::CompareAndWrite { .. }
            | Medium::Flush
            | Medium::CacheOff
            | Medium::Allocation { .. } => 1,
        };
        task.work.progress += step;
    }

    /// Ends a task after its work.
    fn end(&mut self, device: &mut Device, key: u32, done: Done<'_>) {
        let task = self.session.task(key);
        let unit = task.unit.expect("work on the medium is of a unit");
        let member = self.session.member();
        let medium = task.work.medium.as_ref().expect("it had work");
        let response = device.medium_done(member, unit, medium, done);
        let session = &mut self.session;
        self.outbox.append(|out| session.answer(device, key, response, out));
    }
}

/// The rest of a range, at most `len` bytes.
fn rest(range: ByteRange, progress: u64, len: u64) -> ByteRange {
    let start = range.start.saturating_add(progress).min(range.end);
    ByteRange::at(start, (range.end - start).min(len))
}

/// The memory that a reply's data lie in.
fn spans_of<'a>(reply: &Reply, slices: &'a [Span]) -> impl Iterator<Item = Span> + Clone + 'a {
    let (slices, one) = match reply.data {
        ReplyData::Slots { first, count } => (&slices[first as usize..][..count as usize], None),
        ReplyData::Buffer { data, .. } => (&slices[..0], Some(data)),
        ReplyData::None | ReplyData::Extents { .. } | ReplyData::Difference { .. } => {
            (&slices[..0], None)
        }
    };
    slices.iter().copied().chain(one)
}

/// True when a reply brings bytes of the disk.
fn has_data(reply: &Reply) -> bool {
    matches!(reply.data, ReplyData::Slots { .. } | ReplyData::Buffer { .. })
}

/// Where what was expected and what was found differ.
fn difference(reply: &Reply) -> Done<'static> {
    match reply.data {
        ReplyData::Difference { offset } => Done::Miscompare(offset),
        ReplyData::None
        | ReplyData::Slots { .. }
        | ReplyData::Buffer { .. }
        | ReplyData::Extents { .. } => Done::Status(IoStatus::IoError),
    }
}

/// Gives the memory of a reply back.
fn release(cx: &mut Context<'_>, disk: DiskId, reply: &Reply) {
    if let ReplyData::Buffer { buffer, .. } = reply.data {
        cx.release(disk, buffer);
    }
}
