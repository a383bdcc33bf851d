//! The log I/Os under way, in the order of the groups that they are about.
//!
//! ```text
//!  nothing ─┬─► a flush, a write that needs one, or a segment's summary ─► nothing
//!           └─► a durable write ─► a second one beside it ─► … ─► nothing
//! ```
//! A durable write says nothing of the writes before it. So a second one goes beside the first only when all before
//! the first is durable, and a group counts when its own write and all earlier ones have ended, in whichever order they do.

use crate::ids::{GroupNumber, Nanos};
use crate::write_back::format::index::Place;

/// What an I/O does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogIo {
    Write { group: usize, durable: bool, has_ended: bool },
    Summary { place: Place },
    Flush { covers: GroupNumber },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    io: LogIo,
    /// When it has taken too long.
    until: Nanos,
    /// What it writes.
    pages: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    first: Option<Entry>,
    second: Option<Entry>,
}

impl UnderWay {
    pub(super) fn is_none(&self) -> bool {
        self.first.is_none()
    }

    /// When the first of them has taken too long.
    pub(super) fn until(&self) -> Nanos {
        self.first.map_or(Nanos::NEVER, |first| first.until)
    }

    /// Pages of the durable write that another one may go beside.
    pub(super) fn may_be_joined(&self) -> Option<u32> {
        let first = self.first.filter(|_| self.second.is_none())?;
        matches!(first.io, LogIo::Write { durable: true, .. }).then_some(first.pages)
    }

    pub(super) fn start_write(&mut self, until: Nanos, group: usize, pages: u32, durable: bool) {
        let entry = Entry { io: LogIo::Write { group, durable, has_ended: false }, until, pages };
        if self.first.is_none() {
            self.first = Some(entry);
        } else {
            assert!(durable && self.may_be_joined().is_some(), "beside {self:?}");
            self.second = Some(entry);
        }
    }

    pub(super) fn start_flush(&mut self, until: Nanos, covers: GroupNumber) {
        self.start_alone(until, LogIo::Flush { covers });
    }

    /// The summary that goes to `place`.
    pub(super) fn start_summary(&mut self, until: Nanos, place: Place) {
        self.start_alone(until, LogIo::Summary { place });
    }

    fn start_alone(&mut self, until: Nanos, io: LogIo) {
        assert!(self.first.is_none(), "beside {self:?}");
        self.first = Some(Entry { io, until, pages: 0 });
    }

    /// The write of this group has ended; [`UnderWay::take_ended`] tells when its turn has come.
    pub(super) fn end_write(&mut self, ended: usize) {
        let mut entries = [&mut self.first, &mut self.second].into_iter().flatten();
        let has_ended = entries.find_map(|entry| match &mut entry.io {
            LogIo::Write { group, has_ended, .. } if *group == ended => Some(has_ended),
            LogIo::Write { .. } | LogIo::Summary { .. } | LogIo::Flush { .. } => None,
        });
        *has_ended.expect("a write under way") = true;
    }

    /// The oldest write, once it has ended: its group, and whether it was durable.
    pub(super) fn take_ended(&mut self) -> Option<(usize, bool)> {
        let LogIo::Write { group, durable, has_ended: true } = self.first?.io else { return None };
        self.first = self.second.take();
        Some((group, durable))
    }

    /// The flush has ended: the last group that it covers.
    pub(super) fn end_flush(&mut self) -> GroupNumber {
        let Some(Entry { io: LogIo::Flush { covers }, .. }) = self.first.take() else {
            unreachable!("a log flush")
        };
        covers
    }

    /// The summary has ended: where it went.
    pub(super) fn end_summary(&mut self) -> Place {
        let Some(Entry { io: LogIo::Summary { place }, .. }) = self.first.take() else {
            unreachable!("a summary")
        };
        place
    }
}
