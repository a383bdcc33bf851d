//! Pages of the log that are read back, for a guest or for the destager, and checked.
//!
//! A page that the log holds in parts is read through one page of memory, which such reads take in turn.

use std::collections::VecDeque;

use super::WriteLog;
use crate::action::{Event, Span};
use crate::config::Config;
use crate::cx::{Cx, Shared};
use crate::geometry::ByteRange;
use crate::ids::Nanos;
use crate::status::IoStatus;
use crate::table::Key;
use crate::write_back::format::index::Place;

/// Time-outs of flash after which reads of the log hang, if none of them ends.
const HANG: u64 = 8;

/// The page that overlays are read through.
#[derive(Debug)]
pub(crate) struct OverlayState {
    scratch: Span,
    user: Option<Key>,
    waiting: VecDeque<Key>,
}

impl OverlayState {
    pub(super) fn new(scratch: Span, requests_max: u32) -> OverlayState {
        let waiting = VecDeque::with_capacity(requests_max as usize);
        OverlayState { scratch, user: None, waiting }
    }

    /// The page, for this read; `None`: another read has it, and this one is woken when its turn may have come.
    pub(crate) fn take(&mut self, key: Key) -> Option<Span> {
        match self.user {
            None => self.user = Some(key),
            Some(user) if user == key => {}
            Some(_) => {
                self.waiting.push_back(key);
                return None;
            }
        }
        Some(self.scratch)
    }

    /// Gives the page back; wakes all who wait for it: the first may not need it any more.
    pub(crate) fn give(&mut self, shared: &mut Shared) -> Span {
        self.user = None;
        shared.ready.extend(self.waiting.drain(..));
        self.scratch
    }

    /// Nothing is laid over anything any more, whoever has the page: wakes all who wait for it.
    pub(in crate::write_back) fn end(&mut self, shared: &mut Shared) {
        shared.ready.extend(self.waiting.drain(..));
    }

    /// A read that waits for its turn went away.
    pub(crate) fn leave(&mut self, key: Key) {
        self.waiting.retain(|&k| k != key);
    }
}

impl WriteLog {
    /// Pages of the log are being read: they stay. Where they lie.
    pub(in crate::write_back) fn begin_read(
        &mut self,
        place: Place,
        pages: u32,
        shared: &mut Shared,
    ) -> ByteRange {
        // Others that begin do not say that these will end.
        if self.segments.has_no_reader() {
            self.stir_reads(shared);
        }
        self.segments.hold(place);
        let range = self.segments.bytes(place, pages);
        shared.counters.log_read_bytes += range.len();
        range
    }

    /// The reads that are under way have their time from now on.
    pub(in crate::write_back) fn stir_reads(&mut self, shared: &Shared) {
        self.reading.until = hang_at(shared);
    }

    /// Lets pages of the log go that were read; an error when they are not what was written, or the log has not waited for
    /// them.
    pub(in crate::write_back) fn end_read(
        &mut self,
        (place, pages): (Place, u32),
        status: IoStatus,
        checksums: &[u32],
        cx: &mut Cx<'_>,
    ) -> IoStatus {
        self.segments.unhold(place);
        self.stir_reads(cx);
        if self.index.entry(place).is_none() {
            return IoStatus::TimedOut;
        }
        let wrong = (0..pages).find_map(|n| {
            let entry = self.index.entry(Place(place.0 + n)).expect("it is held");
            let is_right = status.is_ok() && checksums[n as usize] == entry.checksum;
            (!is_right).then_some(entry.page)
        });
        let Some(page) = wrong else { return IoStatus::Ok };
        let range = self.index.grid().range_of(page);
        self.reading.unread = self.last_sequence();
        // One that failed is counted where every I/O ends.
        cx.counters.log_errors += u64::from(status.is_ok());
        cx.event(Event::LogCorrupt { range });
        IoStatus::IoError
    }
}

/// How long a read of the log may take.
pub(crate) fn hang_time(config: &Config) -> Nanos {
    Nanos(config.flash_timeout.0.saturating_mul(HANG))
}

/// When reads hang that are under way now.
pub(in crate::write_back) fn hang_at(shared: &Shared) -> Nanos {
    shared.now.plus(hang_time(&shared.config))
}
