//! The disk's memory: how it is laid out, and the request buffers in it.
//!
//! ```text
//!   0                 buffers         RAM slots         ring              destager         summary   groups of the log
//!   +-----------------+---------------+-----------------+-----------------+----------------+--------------------+
//!   | request buffers | cached blocks | pages to record | runs to destage | log's summary  | staged records     |
//!   +-----------------+---------------+-----------------+-----------------+----------------+--------------------+
//!                                                                                    staging_start: survives the process
//! ```

use super::destage::Destager;
use super::inflight::{Job, Stage};
use super::log::WriteLog;
use super::warm::Ring;
use super::{Engine, write};
use crate::action::{Actions, Buffer, Span};
use crate::geometry::{ByteRange, PAGE, REQUEST_MAX};
use crate::ids::Nanos;
use crate::log::GROUPS_IN_MEMORY;
use crate::table::Key;

impl Engine {
    /// Bytes of page-aligned memory that the executor provides: request buffers, RAM slots, the
    /// destager's, the log's summary, and from [`Engine::staging_start`] on the groups of the write log.
    pub fn memory_size(&self) -> u64 {
        let groups = self.config.write_log.as_ref().map_or(0, WriteLog::memory_pages);
        self.staging_start() + groups * PAGE
    }

    /// Where the memory begins that has to survive the process when the log's configuration says that staged
    /// records do.
    pub fn staging_start(&self) -> u64 {
        let log = self.config.write_log.as_ref();
        let before = log.map_or(0, |log| Destager::memory_pages() + WriteLog::summary_pages(log));
        self.cache_memory_size() + before * PAGE
    }

    /// Memory of the write log's groups, in which staged records survive: a page for the header of
    /// a segment, a page for the header of the group, its data pages. Empty without a log.
    pub fn staged_groups(&self) -> Option<[Span; GROUPS_IN_MEMORY]> {
        self.log.as_ref().map(WriteLog::group_memory)
    }

    fn cache_memory_size(&self) -> u64 {
        let ring = Ring::memory_pages(&self.config) * PAGE;
        let slots = self.ram.as_ref().map_or(0, |ram| u64::from(ram.dir.slots()));
        u64::from(self.buffers.pages()) * PAGE + slots * self.config.block_size + ring
    }

    /// Bytes of flash that the executor provides.
    pub fn flash_size(&self) -> u64 {
        self.flash.as_ref().map_or(0, |f| u64::from(f.dir.slots()) * self.config.block_size)
    }

    /// The buffer for the bytes of a write to `range`; `None`: no memory now, ask again after a
    /// completion. The caller fills `buffer.at(range)` and passes it to [`Engine::submit`], or gives
    /// it back with [`Engine::release`].
    ///
    /// Panics when the range is empty, not on the disk or longer than [`REQUEST_MAX`]: the frontend
    /// checks what its client says.
    pub fn write_buffer(&mut self, range: ByteRange) -> Option<Buffer> {
        self.client_buffer(range, 0)
    }

    /// A buffer to write `range` from, with `extra` pages before those for its edges.
    pub(super) fn client_buffer(&mut self, range: ByteRange, extra: u64) -> Option<Buffer> {
        assert!(
            !range.is_empty()
                && range.len() <= REQUEST_MAX
                && range.end <= self.config.backend.size
        );
        if !self.buffer_waiters.is_empty() {
            return None;
        }
        let whole = self.align_to_backend(range) == range;
        let edges = if whole { 0 } else { write::EDGE_PAGES };
        let buffer = self.take_buffer_with(range, extra + edges)?;
        self.lent += 1;
        Some(buffer)
    }

    /// The executor is done with a buffer: the data of a reply were sent, or a write buffer was not
    /// submitted.
    pub fn release(&mut self, now: Nanos, buffer: Buffer, actions: &mut Actions) {
        self.now = now;
        self.lent -= 1;
        let (first, count) = pages_of(buffer);
        self.buffers.give(first, count);
        self.run(now, actions);
    }

    /// Makes sure that the request has a buffer; false: it waits for one, without its range, because
    /// writes that wait for the range have buffers. It enters again behind them.
    pub(super) fn ensure_buffer(&mut self, key: Key) -> bool {
        if self.requests[key].buffer.is_some() {
            return true;
        }
        if self.buffer_waiters.is_empty() {
            self.requests[key].buffer = self.take_buffer(self.buffer_range(key));
        }
        let entry = &mut self.requests[key];
        if entry.buffer.is_none() {
            entry.stage = Stage::Buffer;
            self.overlap.leave(key, &mut self.ready);
            self.buffer_waiters.push_back(key);
            self.counters.buffer_waits += 1;
            return false;
        }
        true
    }

    /// The part of the disk that the buffer of a request has to mirror now.
    pub(super) fn buffer_range(&self, key: Key) -> ByteRange {
        let entry = &self.requests[key];
        match entry.job {
            Job::Zero(job) => self.align_to_backend(job.piece),
            Job::Read(_) | Job::Write(_) | Job::Flush | Job::Allocation => entry.range,
        }
    }

    /// A buffer that mirrors `range` grown to granules.
    pub(super) fn take_buffer(&mut self, range: ByteRange) -> Option<Buffer> {
        self.take_buffer_with(range, 0)
    }

    /// A buffer that mirrors `range` grown to granules, with `extra` pages behind it.
    pub(super) fn take_buffer_with(&mut self, range: ByteRange, extra: u64) -> Option<Buffer> {
        let window = self.grid.align_to_granules(range);
        // A window cut off by the start of the disk begins within a page, so that its granules meet
        // page boundaries in memory, too.
        let lead = self.grid.offset_in_block(window.start) % PAGE;
        let len = (lead + window.len()).next_multiple_of(PAGE) + extra * PAGE;
        let first = self.buffers.take((len / PAGE) as u32)?;
        let span = buffer_span(first, len).part(lead, len - lead);
        Some(Buffer { span, window })
    }

    /// The engine is done with a buffer, but copies from it may still have to be made.
    pub(super) fn free_buffer(&mut self, buffer: Buffer) {
        let (first, count) = pages_of(buffer);
        self.buffers.spend(first, count);
    }
}

/// The first page of a buffer, and how many it has.
pub(super) fn pages_of(buffer: Buffer) -> (u32, u32) {
    let first = buffer.span.offset / PAGE;
    let end = (buffer.span.offset + u64::from(buffer.span.len)) / PAGE;
    (first as u32, (end - first) as u32)
}

/// The memory of a buffer whose first page is `first`.
pub(super) fn buffer_span(first: u32, len: u64) -> Span {
    Span { offset: u64::from(first) * PAGE, len: len as u32 }
}
