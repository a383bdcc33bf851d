//! What others see of a disk: figures, states, and what its memory holds.

use super::Engine;
use crate::action::Span;
use crate::cache_index::CacheIndex;
use crate::ids::{Nanos, Sequence};
use crate::observer::Observer;
use crate::sealed::Page;
use crate::stats::{Latencies, LogStatistics, Statistics};
use crate::write_back::WriteBack;
use crate::write_back::format::GROUPS_IN_MEMORY;

impl Engine {
    /// A snapshot of everything that is shown of the disk, as it is `now`: that may be long after the last call.
    pub fn statistics(&self, now: Nanos) -> Statistics {
        self.parts.statistics(now, &self.shared)
    }

    /// The write log and its destaging, as they are `now`; `None` without a log.
    pub fn log_statistics(&self, now: Nanos) -> Option<LogStatistics> {
        self.parts.log_statistics(now, &self.shared)
    }

    /// Latencies of requests and of devices.
    pub fn latencies(&self) -> &Latencies {
        &self.parts.requests.ledger.latencies
    }

    /// What it observed of its requests.
    pub fn observer(&self) -> &Observer {
        &self.parts.requests.ledger.observer
    }

    /// The same, to begin anew with some of it; nothing else depends on it.
    pub fn observer_mut(&mut self) -> &mut Observer {
        &mut self.parts.requests.ledger.observer
    }

    /// Bytes of the disk in the log that primary storage does not have yet; those that were written twice count twice.
    pub fn dirty_bytes(&self) -> u64 {
        self.parts.write_back.as_ref().map_or(0, WriteBack::dirty_bytes)
    }

    /// True when primary storage has, durably, everything that the log holds.
    pub fn log_is_clean(&self) -> bool {
        self.parts.write_back.as_ref().is_none_or(WriteBack::is_clean)
    }

    /// True when dirty data of the log cannot be read any more.
    pub fn log_is_lost(&self) -> bool {
        self.parts.write_back.as_ref().is_some_and(WriteBack::is_lost)
    }

    /// The last record of the log, where there is one.
    pub fn log_end(&self) -> Option<Sequence> {
        self.parts.write_back.as_ref().map(WriteBack::last_sequence)
    }

    /// True when acknowledged writes may be lost and no flush has told so yet: the next one fails.
    pub fn has_untold_loss(&self) -> bool {
        self.parts.primary.has_unreported_loss()
    }

    /// Losses that flushes have told of by failing; whether the answer has arrived nobody knows.
    pub fn losses_told(&self) -> u64 {
        self.parts.primary.losses_reported()
    }

    /// Flushes of clients that ended well.
    pub fn flushes(&self) -> u64 {
        self.shared.counters.flushes
    }

    /// Flushes of clients that were asked for, and have not ended.
    pub fn flushes_under_way(&self) -> u64 {
        self.parts.requests.flushes()
    }

    /// True when the ring is written no more: closed, or given up.
    pub fn is_ring_closed(&self) -> bool {
        self.parts.cache_index.as_ref().is_none_or(CacheIndex::is_closed)
    }

    /// The pages that [`Action::Ring`](crate::action::Action::Ring) is about.
    pub fn ring_pages(&self) -> &[Page] {
        self.parts.ring_pages()
    }

    /// The bytes that [`Action::Journal`](crate::action::Action::Journal) is about.
    pub fn journal_bytes(&self) -> &[u8] {
        self.parts.write_back.as_ref().map_or(&[], WriteBack::journal_bytes)
    }

    /// Bytes of page-aligned memory that the executor provides: request buffers, RAM slots, the
    /// destager's, the log's summary, and from [`Engine::staging_start`] on the groups of the write log.
    pub fn memory_size(&self) -> u64 {
        self.parts.memory_size(&self.shared)
    }

    /// Where the memory begins that has to survive the process when the log's configuration says that staged
    /// records do.
    pub fn staging_start(&self) -> u64 {
        self.parts.staging_start(&self.shared)
    }

    /// Memory of the write log's groups, in which staged records survive: a page for the header of
    /// a segment, a page for the header of the group, its data pages. Empty without a log.
    pub fn staged_groups(&self) -> Option<[Span; GROUPS_IN_MEMORY]> {
        self.parts.staged_groups()
    }

    /// Bytes of flash that the executor provides.
    pub fn flash_size(&self) -> u64 {
        self.parts.flash_size(&self.shared)
    }
}
