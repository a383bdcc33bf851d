//! The segments of one disk's log, oldest first, and the places in them.
//!
//! A position in the log is counted in pages from the engine's first segment on ([`Position`]); a *slot* is
//! where a segment's entries stand in the index, reused when the segment is freed. The last segment
//! is the one that groups are appended to.

use std::collections::VecDeque;

use crate::config::WriteLogConfig;
use crate::geometry::{ByteRange, PAGE};
use crate::ids::{Nanos, SegmentId, Sequence};
use crate::write_back::format::index::Place;
use crate::write_back::format::summary;

/// Pause after a lease that was not to be had.
const LEASE_PAUSE: Nanos = Nanos::from_millis(100);

/// A page in the log, counted from the first segment that this engine knew of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::write_back) struct Position(pub u64);

impl Position {
    pub(in crate::write_back) fn plus(self, pages: u32) -> Position {
        Position(self.0 + u64::from(pages))
    }
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    id: SegmentId,
    /// The last record in it; the latest possible until there is one.
    last: Sequence,
    /// Reads under way.
    readers: u32,
    /// Writes under way, and the summary that is due.
    writers: u32,
}

/// What is asked of the pool, and when the answer is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leasing {
    Nothing,
    /// A segment.
    Another(Nanos),
    /// One that was freed, anew.
    Renewal(Nanos),
}

/// How segments are taken out of use.
#[derive(Debug)]
struct Freeing {
    /// How many were.
    count: u64,
    /// No more are before this time: to forget what is in one takes long.
    after: Nanos,
    /// Reads under way, in all segments.
    readers: u32,
}

#[derive(Debug)]
pub(in crate::write_back) struct Segments {
    pages: u32,
    /// The page where groups end.
    groups_end: u32,
    /// Segments that it may take.
    max: u32,
    slots: Vec<Segment>,
    free_slots: Vec<u32>,
    /// Slots of the segments in use.
    order: VecDeque<u32>,
    freeing: Freeing,
    /// Leased, and not in use, with their ordinals.
    spare: VecDeque<(SegmentId, u64)>,
    /// What is asked of the pool.
    leasing: Leasing,
    /// The pool had none when it was asked last.
    is_short: bool,
    /// It is not asked again before this time.
    lease_after: Nanos,
    /// The next free page of the last segment.
    next_page: u32,
}

impl Segments {
    pub(in crate::write_back) fn new(config: &WriteLogConfig) -> Segments {
        let (pages, max, slots) = (config.segment_pages, config.segments_max, config.slots());
        let none = Segment { id: SegmentId(0), last: Sequence(0), readers: 0, writers: 0 };
        Segments {
            pages,
            groups_end: summary::first_page(pages),
            max,
            slots: vec![none; slots as usize],
            free_slots: (0..slots).rev().collect(),
            order: VecDeque::with_capacity(slots as usize),
            freeing: Freeing { count: 0, after: Nanos(0), readers: 0 },
            spare: VecDeque::with_capacity(2),
            leasing: Leasing::Nothing,
            is_short: false,
            lease_after: Nanos(0),
            next_page: pages,
        }
    }

    /// Segments in use and spare ones, and the one that is leased anew.
    pub(in crate::write_back) fn leased(&self) -> u32 {
        let renewed = usize::from(matches!(self.leasing, Leasing::Renewal(_)));
        (self.order.len() + self.spare.len() + renewed) as u32
    }

    pub(in crate::write_back) fn in_use(&self) -> u32 {
        self.order.len() as u32
    }

    /// Pages that the log may take.
    pub(in crate::write_back) fn pages_max(&self) -> u64 {
        u64::from(self.pages) * u64::from(self.max)
    }

    /// Pages of those that it can have at the moment.
    pub(in crate::write_back) fn pages_there(&self) -> u64 {
        match self.is_short {
            true => u64::from(self.pages) * u64::from(self.leased()),
            false => self.pages_max(),
        }
    }

    /// The next page to be written.
    pub(in crate::write_back) fn head(&self) -> Position {
        let last = self.freeing.count + self.order.len() as u64;
        Position(last * u64::from(self.pages) - u64::from(self.pages - self.next_page))
    }

    /// The first page of the oldest segment.
    pub(in crate::write_back) fn oldest(&self) -> Position {
        Position(self.freeing.count * u64::from(self.pages))
    }

    pub(in crate::write_back) fn place(&self, position: Position) -> Place {
        let segment = position.0 / u64::from(self.pages) - self.freeing.count;
        let page = (position.0 % u64::from(self.pages)) as u32;
        Place(self.order[segment as usize] * self.pages + page)
    }

    /// Where the summary of the segment of `place` goes.
    pub(in crate::write_back) fn summary_place(&self, place: Place) -> Place {
        Place(place.0 - place.0 % self.pages + self.groups_end)
    }

    /// Where `count` pages from `place` on lie on the device.
    pub(in crate::write_back) fn bytes(&self, place: Place, count: u32) -> ByteRange {
        let (slot, page) = (place.0 / self.pages, place.0 % self.pages);
        assert!(page + count <= self.pages);
        let segment = u64::from(self.slots[slot as usize].id.0) * u64::from(self.pages);
        ByteRange::at((segment + u64::from(page)) * PAGE, u64::from(count) * PAGE)
    }

    /// True when the two places are neighbours in one segment.
    pub(in crate::write_back) fn are_neighbours(&self, a: Place, b: Place) -> bool {
        a.0 + 1 == b.0 && !b.0.is_multiple_of(self.pages)
    }

    /// Pages left for groups in the last segment.
    pub(in crate::write_back) fn pages_left(&self) -> u32 {
        self.groups_end.saturating_sub(self.next_page)
    }

    /// Takes `count` pages of the last segment; they begin at [`Segments::head`].
    pub(in crate::write_back) fn take_pages(&mut self, count: u32) {
        self.next_page += count;
        assert!(self.next_page <= self.groups_end);
    }

    /// Begins the next segment; which, and its ordinal; `None` when none is leased.
    pub(in crate::write_back) fn begin(&mut self) -> Option<(SegmentId, u64)> {
        let (id, ordinal) = self.spare.pop_front()?;
        self.push(Segment { id, last: Sequence(u64::MAX), readers: 0, writers: 0 });
        Some((id, ordinal))
    }

    /// Adds a segment that an earlier run wrote.
    pub(in crate::write_back) fn restore(&mut self, id: SegmentId, last: Sequence) {
        self.push(Segment { id, last, readers: 0, writers: 0 });
        self.next_page = self.pages;
    }

    /// Goes on in the last segment, from page `next` on; not while there are more segments than there may be: those
    /// who write wait for room.
    pub(in crate::write_back) fn go_on(&mut self, next: u32) {
        let may_append = self.in_use() <= self.max;
        self.next_page = if may_append { next } else { self.pages };
    }

    fn push(&mut self, segment: Segment) {
        let slot = self.free_slots.pop().expect("no more segments than were configured");
        self.slots[slot as usize] = segment;
        self.order.push_back(slot);
        self.next_page = 0;
    }

    /// Nothing more is written to the last segment.
    pub(in crate::write_back) fn end_last(&mut self) {
        self.next_page = self.pages;
    }

    /// The segment of `position` now ends with this record.
    pub(in crate::write_back) fn note_last(&mut self, position: Position, last: Sequence) {
        let slot = self.place(position).0 / self.pages;
        self.slots[slot as usize].last = last;
    }

    /// True when a lease should be asked for.
    pub(in crate::write_back) fn wants_lease(&self, now: Nanos) -> bool {
        self.lacks_spare() && now >= self.lease_after
    }

    /// A lease is asked for; an answer after `late` is late.
    pub(in crate::write_back) fn begin_lease(&mut self, late: Nanos) {
        self.leasing = Leasing::Another(late);
    }

    /// When a lease that was refused is asked for again.
    pub(in crate::write_back) fn lease_deadline(&self, since: Nanos) -> Nanos {
        let waits = self.lacks_spare() && self.lease_after > since;
        if waits { self.lease_after } else { Nanos::NEVER }
    }

    /// When the answer of the pool is late.
    pub(in crate::write_back) fn lease_hangs_at(&self) -> Nanos {
        match self.leasing {
            Leasing::Nothing => Nanos::NEVER,
            Leasing::Another(late) | Leasing::Renewal(late) => late,
        }
    }

    /// True when there is no further segment to be had: the log has all that it may, or the pool has none.
    pub(in crate::write_back) fn can_have_no_more(&self) -> bool {
        // Also while it is asked for again.
        self.spare.is_empty() && (self.leased() >= self.max || self.is_short)
    }

    fn lacks_spare(&self) -> bool {
        self.spare.is_empty() && !self.waits_for_lease() && self.leased() < self.max
    }

    /// True when the pool had no segment, and the log has no other to go on in.
    pub(in crate::write_back) fn needs_own(&self) -> bool {
        self.is_short && self.spare.is_empty()
    }

    /// True when it is not known yet whether a segment comes.
    pub(in crate::write_back) fn waits_for_lease(&self) -> bool {
        self.leasing != Leasing::Nothing
    }

    /// A lease of one that was freed is asked for; an answer after `late` is late.
    pub(in crate::write_back) fn begin_renewal(&mut self, late: Nanos) {
        self.leasing = Leasing::Renewal(late);
    }

    /// A lease that was asked for came, or not.
    pub(in crate::write_back) fn on_leased(&mut self, now: Nanos, id: Option<(SegmentId, u64)>) {
        let asked = std::mem::replace(&mut self.leasing, Leasing::Nothing);
        match id {
            None => (self.is_short, self.lease_after) = (true, now.plus(LEASE_PAUSE)),
            // Of one of its own nobody knows whether the pool has another.
            Some(_) if matches!(asked, Leasing::Renewal(_)) => {}
            Some(_) => (self.is_short, self.lease_after) = (false, Nanos(0)),
        }
        self.spare.extend(id);
    }

    /// The last record of the oldest segment, when everything in it is `flushed`, and nobody reads it or writes to it. The
    /// last segment stays, unless it is full and to be `renewed`.
    pub(in crate::write_back) fn oldest_is_free(
        &self,
        flushed: Sequence,
        renewed: bool,
    ) -> Option<Sequence> {
        let oldest = self.oldest_without(flushed, renewed)?;
        (oldest.readers == 0 && oldest.writers == 0).then_some(oldest.last)
    }

    /// True when the log can go on without what is in the oldest segment, whoever reads it.
    pub(in crate::write_back) fn oldest_is_needless(
        &self,
        flushed: Sequence,
        renewed: bool,
    ) -> bool {
        self.oldest_without(flushed, renewed).is_some()
    }

    /// True when the oldest segment could be free, would nobody read it.
    pub(in crate::write_back) fn oldest_waits_for_reads(
        &self,
        flushed: Sequence,
        renewed: bool,
    ) -> bool {
        self.oldest_without(flushed, renewed).is_some_and(|oldest| oldest.readers > 0)
    }

    /// The oldest segment, when the log can go on without what is in it.
    fn oldest_without(&self, flushed: Sequence, renewed: bool) -> Option<&Segment> {
        // Once it has ended no group is open in it: of each that it has the write was begun.
        let has_ended = self.next_page == self.pages;
        if self.order.len() <= 1 && !(renewed && has_ended) {
            return None;
        }
        let oldest = &self.slots[*self.order.front()? as usize];
        (oldest.last <= flushed).then_some(oldest)
    }

    /// Takes the oldest segment out of use.
    pub(in crate::write_back) fn free_oldest(&mut self) -> SegmentId {
        let slot = self.order.pop_front().expect("there is an oldest segment");
        self.free_slots.push(slot);
        self.freeing.count += 1;
        self.slots[slot as usize].id
    }

    pub(in crate::write_back) fn has_no_reader(&self) -> bool {
        self.freeing.readers == 0
    }

    /// When segments may be freed again.
    pub(in crate::write_back) fn frees_at(&self) -> Nanos {
        self.freeing.after
    }

    /// No more are freed before this time.
    pub(in crate::write_back) fn pause_freeing(&mut self, until: Nanos) {
        self.freeing.after = until;
    }

    pub(in crate::write_back) fn hold(&mut self, place: Place) {
        self.slots[(place.0 / self.pages) as usize].readers += 1;
        self.freeing.readers += 1;
    }

    pub(in crate::write_back) fn unhold(&mut self, place: Place) {
        self.slots[(place.0 / self.pages) as usize].readers -= 1;
        self.freeing.readers -= 1;
    }

    /// Something will be written there: the segment stays, also when nobody waits for that any more.
    pub(in crate::write_back) fn begin_write(&mut self, place: Place) {
        self.slots[(place.0 / self.pages) as usize].writers += 1;
    }

    pub(in crate::write_back) fn end_write(&mut self, place: Place) {
        self.slots[(place.0 / self.pages) as usize].writers -= 1;
    }
}
