//! Write-back: the log that acknowledges writes, the destager that empties it, and the acknowledgements between them.
//!
//! ```text
//!            append                    commit                    destage
//!  a write ─────────► WriteLog (memory) ─────► WriteLog (flash) ─────────► Destager ─────► primary storage
//!                        │                        │                           │ flushed, noted
//!                        └──► Acknowledgements ◄──┘                           └──► segments are free
//!                               throttle ─► reply
//! ```
//! A disk without a write log has no `WriteBack`. Replicas on peers will be another owner of acknowledgements here.
//!
//! The part knows primary storage, flash and clients by the I/Os that it starts and by keys of requests. It answers nobody:
//! what a flow has to do comes back as a `LogEvent`. What it wants to know of the cache it asks `Beside`.
//!
//! **Invariants**
//! - What is not durable in the log is never sent to primary storage.
//! - A segment is used again only after primary storage has its records, flushed, and that is noted durably.
//! - The first error of a log write or flush is final.

mod acknowledgements;
mod beside;
pub mod destage;
mod door;
pub mod format;
mod io;
pub(crate) mod log;
mod restore;
mod statistics;

use crate::config::{Config, WriteLogConfig};
use crate::ids::Nanos;
use crate::status::IoStatus;
use crate::write_back::format::index::PageGrid;

pub(crate) use acknowledgements::Acknowledgeable;
use acknowledgements::Acknowledgements;
pub(crate) use beside::Beside;
use destage::Destager;
pub(crate) use destage::{Drive, LateNote};
pub(crate) use door::{GuestFlush, Waiter};
pub(crate) use io::{DestageIo, LogIo};
use log::WriteLog;

/// See the module.
#[derive(Debug)]
pub(crate) struct WriteBack {
    log: WriteLog,
    destager: Destager,
    acknowledgements: Acknowledgements,
}

/// What a flow has to do after something happened in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum LogEvent {
    Nothing,
    /// More is written, or durable: some who wait may be acknowledged.
    Advanced,
    /// The log cannot be written any more.
    Fails(IoStatus),
    /// Dirty bytes cannot be read any more, or cannot be destaged safely.
    Lost,
}

impl WriteBack {
    /// An empty log. The destager's memory begins at `runs`, the log's own behind it.
    pub(crate) fn new(
        log: WriteLogConfig,
        config: &Config,
        runs: u64,
        pages: PageGrid,
    ) -> WriteBack {
        let requests = config.requests_max;
        let log_base = runs + Destager::memory_pages() * crate::geometry::PAGE;
        WriteBack {
            destager: Destager::new(&log, runs, config.backend_timeout),
            log: WriteLog::new(log, log_base, pages, config),
            acknowledgements: Acknowledgements::new(requests),
        }
    }

    /// I/Os of the destager and of reads of the log, at most.
    pub(crate) fn ios_max(config: &Config) -> u32 {
        Destager::ios_max() + config.requests_max * 8
    }

    /// Goes on as `config` says, of what can change.
    pub(crate) fn tune(&mut self, now: Nanos, config: &Config) {
        let rate_max = config.write_log.and_then(|log| log.destage_rate_max);
        self.destager.tune(now, rate_max, config.backend_timeout);
    }

    /// Metadata that a log needs, in bytes.
    pub(crate) fn metadata_bytes_for(config: &WriteLogConfig) -> u64 {
        WriteLog::metadata_bytes_for(config)
    }

    /// Pages of memory before those that survive the process: the destager's, and the log's summary.
    pub(crate) fn pages_before_groups(config: &WriteLogConfig) -> u64 {
        Destager::memory_pages() + WriteLog::summary_pages(config)
    }

    /// Pages of memory that survive the process, where staged records do.
    pub(crate) fn group_pages(config: &WriteLogConfig) -> u64 {
        WriteLog::memory_pages(config)
    }

    /// Panics when the part contradicts itself. For tests; slow.
    pub(crate) fn check_invariants(&self) {
        self.log.check_invariants();
        self.destager.check_invariants();
    }
}

#[cfg(test)]
mod tests;
