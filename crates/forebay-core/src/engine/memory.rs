//! The disk's memory: how it is laid out, and the request buffers in it.
//!
//! ```text
//!   0                 buffers         RAM slots         index    zeroes            destager        summary              groups
//!   +-----------------+---------------+-----------------+--------+-----------------+---------------+----------------+
//!   | request buffers | cached blocks | pages to record | zeroes | runs to destage | log's summary | staged records |
//!   +-----------------+---------------+-----------------+--------+-----------------+---------------+----------------+
//!                                                                                  staging_start: survives the process
//! ```

use super::flow::write;
use super::{Engine, Parts};
use crate::action::{Buffer, Span};
use crate::cache::Cache;
use crate::cache_index::CacheIndex;
use crate::cx::{Cx, Shared};
use crate::geometry::{ByteRange, PAGE, REQUEST_MAX};
use crate::requests::in_flight::Stage;
use crate::requests::zero_memory::ZeroMemory;
use crate::table::Key;
use crate::write_back::WriteBack;
use crate::write_back::format::GROUPS_IN_MEMORY;

/// Lending buffers to whoever brings bytes.
impl Engine {
    /// The buffer for the bytes of a write to `range`; `None`: no memory now, or others come first. Ask again whenever
    /// something happened, after [`Engine::proceed`] and before the next one. The caller fills `buffer.at(range)` and
    /// passes it to [`Engine::submit`], or gives it back with [`Engine::release`].
    ///
    /// Panics when the range is empty, not on the disk or longer than
    /// [`REQUEST_MAX`]: the frontend checks what its client says.
    pub fn write_buffer(&mut self, range: ByteRange) -> Option<Buffer> {
        self.parts.client_buffer(range, 0, &mut self.shared)
    }

    /// The buffer for what a compare-and-write of `range` brings: the bytes to write go to `buffer.at(range)`, those
    /// that it expects to `buffer.expected(range)`. `None`, and what becomes of it: as for [`Engine::write_buffer`].
    ///
    /// Panics when the range is empty, not on the disk or longer than
    /// [`COMPARE_MAX`](crate::geometry::COMPARE_MAX).
    pub fn compare_buffer(&mut self, range: ByteRange) -> Option<Buffer> {
        self.parts.compare_buffer(range, &mut self.shared)
    }

    /// Memory of request buffers that may be given back to the host: nothing was in it since the last call, or is. The last
    /// of it, at most `max` bytes; it reads as anything from now on. `max` and both ends are multiples
    /// of 2 MiB.
    pub fn idle_buffers(&mut self, max: u64) -> Option<ByteRange> {
        let pages = self.shared.buffers.idle((max / PAGE) as u32)?;
        Some(ByteRange::new(u64::from(pages.start) * PAGE, u64::from(pages.end) * PAGE))
    }

    /// True when [`Engine::idle_buffers`] finds memory once it is not in use.
    pub fn has_touched_buffers(&self) -> bool {
        self.shared.buffers.has_touched()
    }
}

impl Parts {
    pub(in crate::engine) fn memory_size(&self, shared: &Shared) -> u64 {
        let groups = shared.config.write_log.as_ref().map_or(0, WriteBack::group_pages);
        self.staging_start(shared) + groups * PAGE
    }

    pub(in crate::engine) fn staging_start(&self, shared: &Shared) -> u64 {
        let log = shared.config.write_log.as_ref();
        let before = log.map_or(0, WriteBack::pages_before_groups);
        self.cache_memory_size(shared) + before * PAGE
    }

    pub(in crate::engine) fn staged_groups(&self) -> Option<[Span; GROUPS_IN_MEMORY]> {
        self.write_back.as_ref().map(WriteBack::groups)
    }

    fn cache_memory_size(&self, shared: &Shared) -> u64 {
        let index = CacheIndex::memory_pages(&shared.config) * PAGE;
        let slots = Cache::memory_bytes_for(&shared.config);
        u64::from(shared.buffers.pages()) * PAGE + slots + index + ZeroMemory::BYTES
    }

    pub(in crate::engine) fn flash_size(&self, shared: &Shared) -> u64 {
        self.cache.flash_bytes(&shared.grid)
    }

    /// A buffer to write `range` from, with `extra` pages before those for its edges.
    pub(super) fn client_buffer(
        &mut self,
        range: ByteRange,
        extra: u64,
        shared: &mut Shared,
    ) -> Option<Buffer> {
        assert!(
            !range.is_empty()
                && range.len() <= REQUEST_MAX
                && range.end <= shared.config.backend.size
        );
        let whole = shared.align_to_backend(range) == range;
        let edges = if whole { 0 } else { write::EDGE_PAGES };
        let queue = &mut self.requests.buffer_queue;
        let buffer = match queue.admits_clients() {
            true => shared.take_buffer_with(range, extra + edges),
            false => None,
        };
        match buffer {
            Some(_) => queue.note_lent(),
            None => queue.note_refused(shared.now, shared.buffers.pages_free()),
        }
        shared.lent += u32::from(buffer.is_some());
        buffer
    }

    /// Makes sure that a read has a buffer; false: it waits for one, without its range, because
    /// writes that wait for the range have buffers. It enters again behind them.
    pub(super) fn ensure_buffer(&mut self, key: Key, cx: &mut Cx<'_>) -> bool {
        if self.requests.table[key].buffer.is_some() {
            return true;
        }
        if self.requests.buffer_queue.is_empty() {
            let range = self.requests.table[key].range;
            self.requests.table[key].buffer = cx.take_buffer(range);
        }
        let entry = &mut self.requests.table[key];
        if entry.buffer.is_none() {
            entry.enter(Stage::Buffer, cx.now);
            self.requests.overlap.leave(key, &mut cx.ready);
            self.requests.buffer_queue.join(key);
            cx.counters.buffer_waits += 1;
            return false;
        }
        true
    }
}
