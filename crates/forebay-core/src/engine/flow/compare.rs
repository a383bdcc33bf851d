//! Compare-and-write: the newest bytes of a range are compared with what a client expects, and only when
//! they are the same others are written, with no access of anybody in between.
//!
//! ```text
//!  hold the range ─► fetch, as a read (read.rs, read_log.rs) ─► compare ─┬─ the same ─► a write (write.rs, append.rs)
//!                     │ failed                                           └─ differ ──► reply: where; nothing changed
//!                     └► reply: the error; nothing changed
//! ```
//! It is one request that is a read first and a write afterwards. From its arrival to its reply it holds its range as
//! a write does, so that it is atomic against everything else on the disk, keeps its place in the order of arrival, and
//! what it found is still so when it writes. What it fetches may be kept, and is held grown to granules until it was
//! compared, as that of a read; of what is in RAM, or is not cached, only the logical blocks are held
//! ([`ReadJob::exact`]), so that writes of neighbours, which may wait for the throttle, are not waited for. An exact
//! fetch leaves flash alone: its granules are not held.
//!
//! As a write it is whatever the mode makes of one, but for the throttle, which does not delay it
//! (`acknowledge.rs`): hosts that share a disk tell each other by it that they live. With a log it waits for
//! the commit in flight and its own, and for no flush of primary storage. It waits for the destager only where a log
//! is full, or to be left, and behind writes to the same bytes.
//!
//! **Invariants**
//! - It has all its memory when it arrives and waits for none: what the client sent and what is fetched lie in one
//!   buffer. Requests that wait for memory hold none.
//! - Whose time is over before the comparison came back writes nothing; its range is free then. From there on
//!   it is answered when it has ended, however long that takes.
//!
//! Limits: [`COMPARE_MAX`](crate::geometry::COMPARE_MAX) bytes. When flash hangs under a fetch and no other
//! buffer is free, it fails.

use crate::action::{Action, Buffer, ReplyData, Source};
use crate::cx::io::{IoEntry, IoKind, RequestIo};
use crate::cx::{Cx, Shared};
use crate::engine::Parts;
use crate::geometry::{ByteRange, COMPARE_MAX, PAGE};
use crate::ids::IoId;
use crate::request::Request;
use crate::requests::in_flight::{FoundHere, Job, ReadFor, ReadJob, WriteJob};
use crate::requests::ledger::LatencyOf;
use crate::requests::overlap::Access;
use crate::status::IoStatus;
use crate::table::Key;

impl Parts {
    /// The buffer for what a compare-and-write of `range` brings: the bytes to write go to `buffer.at(range)`, those that
    /// it expects to `buffer.expected(range)`. `None`, and what becomes of it: as for [`Engine::write_buffer`].
    ///
    /// Panics when the range is empty, not on the disk or longer than [`COMPARE_MAX`].
    pub(in crate::engine) fn compare_buffer(
        &mut self,
        range: ByteRange,
        shared: &mut Shared,
    ) -> Option<Buffer> {
        assert!(range.len() <= COMPARE_MAX);
        let window = shared.grid.align_to_granules(range);
        let fetched = shared.grid.offset_in_block(window.start) % PAGE + window.len();
        let expected = range.len().next_multiple_of(PAGE);
        self.client_buffer(range, (expected + fetched.next_multiple_of(PAGE)) / PAGE, shared)
    }

    pub(in crate::engine) fn submit_compare(
        &mut self,
        request: Request,
        buffer: Buffer,
        fua: bool,
        cx: &mut Cx<'_>,
    ) {
        let range = request.range;
        let grown = cx.grid.align_to_granules(range);
        // The grid may have moved since the client got its buffer.
        let use_cache = self.mode.caches() && buffer.window.contains(grown);
        let exact = !use_cache || self.cache.has_in_ram(range, &cx.grid);
        let target = if exact { cx.align_to_backend(range) } else { grown };
        let job = ReadJob {
            purpose: ReadFor::Compare { fua },
            admit: !exact && self.mode.keeps_reads() && !cx.is_unsettled,
            is_doubtful: cx.is_unsettled,
            is_stream: false,
            use_cache,
            exact,
            target,
            cursor: target.start,
            source: Source::Ram,
            found: FoundHere::Nothing,
            partial: None,
            overlay: (target.start, 0),
        };
        self.enter(request, Access::Write, target, Job::Read(job), cx);
    }

    /// The newest bytes are there.
    pub(in crate::engine) fn compare(
        &mut self,
        key: Key,
        buffer: Buffer,
        fua: bool,
        cx: &mut Cx<'_>,
    ) {
        let entry = &mut self.requests.table[key];
        entry.outstanding += 1;
        let range = entry.range;
        let found = buffer.at(range);
        let expected = entry.brought.expect("what the client sent").expected(range);
        let kind = IoKind::Request(key, RequestIo::Compare { fua });
        let compared = IoEntry { issued: cx.now, range, kind, is_optional: false };
        let id = IoId(cx.ios.insert(compared).0);
        cx.push(Action::Compare { id, found, expected });
    }

    /// Two pieces of memory were compared; `difference`: the first byte that differs, from their start.
    ///
    /// Panics when the engine did not ask for it, or was told before.
    pub(in crate::engine) fn compared(
        &mut self,
        id: IoId,
        difference: Option<u64>,
        cx: &mut Cx<'_>,
    ) {
        let entry = cx.end(id);
        let IoKind::Request(key, RequestIo::Compare { fua }) = entry.kind else {
            panic!("an I/O that is no comparison");
        };
        self.requests.end_io(key, IoStatus::Ok, cx);
        if self.requests.table[key].answered {
            self.requests.forget(key, cx);
        } else if let Some(offset) = difference {
            assert!(offset < entry.range.len(), "a difference beyond what was compared");
            cx.counters.miscompares += 1;
            let data = ReplyData::Difference { offset };
            let of = Some(LatencyOf::CompareAndWrite);
            self.requests.answer(key, IoStatus::Miscompare, data, of, cx);
            self.requests.forget(key, cx);
        } else {
            self.write_compared(key, fua, cx);
        }
        self.run(cx);
    }

    /// From here on it is a write, which has its range already.
    fn write_compared(&mut self, key: Key, fua: bool, cx: &mut Cx<'_>) {
        let entry = &mut self.requests.table[key];
        let range = entry.range;
        let job =
            WriteJob { fua, compared: true, is_stream: false, bypass: false, cursor: range.start };
        entry.job = Job::Write(job);
        let fetched = std::mem::replace(&mut entry.buffer, entry.brought.take());
        if let Some(fetched) = fetched {
            cx.free_buffer(fetched);
        }
        let held = cx.align_to_backend(range);
        self.requests.overlap.narrow(key, held, &mut cx.ready);
        cx.ready.push_back(key);
    }
}
