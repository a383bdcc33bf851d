//! The flight recorder: a ring of the last requests, in the order in which they came.
//!
//! ```text
//!   push ─► [ … oldest … | … older half … | … newer half … | newest ]  ◄─ answer: latency, in place
//!                 ▲ written over                    ▲
//!                 │                                 └ read: up to the first without an answer, here
//!                 └ who reads from before it is told where it begins, and so what was dropped
//! ```
//! Requests are numbered from 0, for good: the number says whether a request is still there. A
//! reader that records continuously reads on from the number where it stopped. The ring knows
//! nothing of readers, and waits for none. A ring that takes the place of another one goes on with
//! its numbers, and has none of its requests.
//!
//! Memory is reserved when it is made, and touched when requests come: an entry is [`ENTRY_BYTES`]. So a disk that is hardly used
//! takes little.

use crate::characteristics::Kind;
use crate::geometry::{ByteRange, REQUEST_MAX};
use crate::ids::Nanos;
use crate::stats::RecorderStatistics;

/// Bytes of an entry.
pub const ENTRY_BYTES: u64 = size_of::<Entry>() as u64;
/// Latency of a request that has no answer.
const UNANSWERED: u64 = u64::MAX;
/// Bit of an entry's length that says that it is a write.
const WRITE: u32 = 1 << 31;
const _: () = assert!(REQUEST_MAX < WRITE as u64 && ENTRY_BYTES == 32);

/// See the module.
#[derive(Debug)]
pub struct Recorder {
    /// Grows up to `entries` and never beyond, within memory that it has from the start.
    ring: Vec<Entry>,
    /// A power of two, or none.
    entries: usize,
    /// How many requests came.
    next: u64,
    /// How many came to the ring whose place it has taken: they have the first numbers, and are gone. Within the ring nothing
    /// knows of them.
    before: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    time: Nanos,
    start: u64,
    latency_ns: u64,
    len_and_kind: u32,
}

/// A request, as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// When it was taken.
    pub time: Nanos,
    /// What it was.
    pub kind: Kind,
    /// Which bytes.
    pub range: ByteRange,
    /// Time until its answer was sent; `None`: it was not by now.
    pub latency: Option<Nanos>,
}

impl Recorder {
    /// With as many entries as go into `bytes`, rounded down to a power of two; none below two.
    pub fn new(bytes: u64) -> Recorder {
        let entries = (bytes / ENTRY_BYTES).min(1 << 40);
        let entries = if entries < 2 { 0 } else { 1 << entries.ilog2() };
        Recorder { ring: Vec::with_capacity(entries), entries, next: 0, before: 0 }
    }

    /// Its numbers go on behind those of another one, whose place it takes.
    pub(super) fn number_from(&mut self, next: u64) {
        self.before = next;
    }

    /// A request comes; its place among those that came here.
    #[inline]
    pub(super) fn push(&mut self, time: Nanos, kind: Kind, range: ByteRange) -> u64 {
        let sequence = self.next;
        self.next += 1;
        let at = self.place(sequence);
        let len = range.len() as u32;
        let len_and_kind = if kind == Kind::Write { len | WRITE } else { len };
        let entry = Entry { time, start: range.start, latency_ns: UNANSWERED, len_and_kind };
        if let Some(place) = self.ring.get_mut(at) {
            *place = entry;
        } else if self.ring.len() < self.entries {
            self.ring.push(entry);
        }
        sequence
    }

    /// It was answered; nothing happens if it has been written over.
    #[inline]
    pub(super) fn answer(&mut self, sequence: u64, latency: Nanos) {
        if sequence < self.first_here() {
            return;
        }
        let at = self.place(sequence);
        if let Some(entry) = self.ring.get_mut(at) {
            entry.latency_ns = latency.0.min(UNANSWERED - 1);
        }
    }

    #[inline]
    fn place(&self, sequence: u64) -> usize {
        sequence as usize & self.entries.wrapping_sub(1)
    }

    /// The oldest request that is still there, among those that came here.
    #[inline]
    fn first_here(&self) -> u64 {
        self.next.saturating_sub(self.capacity())
    }

    /// How many requests came here.
    pub(super) fn came(&self) -> u64 {
        self.next
    }

    /// Number of the oldest request that is still there, if there is any.
    pub fn oldest(&self) -> u64 {
        self.before + self.first_here()
    }

    /// Number of the next request: how many came so far, here and before.
    pub fn next(&self) -> u64 {
        self.before + self.next
    }

    /// How many it holds at most.
    pub fn capacity(&self) -> u64 {
        self.entries as u64
    }

    /// Its state at `now`, for display; `None`: it holds nothing.
    pub(crate) fn statistics(&self, now: Nanos) -> Option<RecorderStatistics> {
        if self.entries == 0 {
            return None;
        }
        let at = |sequence| self.ring.get(self.place(sequence));
        let ends = at(self.first_here()).zip(self.next.checked_sub(1).and_then(at));
        let (span, idle) = ends.map_or((Nanos(0), Nanos(0)), |(oldest, newest)| {
            (newest.time.since(oldest.time), now.since(newest.time))
        });
        Some(RecorderStatistics {
            bytes: self.capacity() * ENTRY_BYTES,
            requests: self.next - self.first_here(),
            span_ns: span.0,
            idle_ns: idle.0,
            observed: self.next,
        })
    }

    /// Appends requests from number `from` on (or the oldest after it that is still there) to `into`, `max` at
    /// most: the number of the first. Ends before one without an answer, which may come yet; but not in the older half of the
    /// ring, nor with `unanswered`.
    pub fn read(&self, from: u64, max: u64, unanswered: bool, into: &mut Vec<Recorded>) -> u64 {
        let first = from.saturating_sub(self.before).clamp(self.first_here(), self.next);
        let newer = self.next.saturating_sub(self.capacity() / 2);
        for sequence in first..self.next.min(first.saturating_add(max)) {
            let Some(entry) = self.ring.get(self.place(sequence)) else { break };
            let latency = (entry.latency_ns != UNANSWERED).then_some(Nanos(entry.latency_ns));
            if latency.is_none() && sequence >= newer && !unanswered {
                break;
            }
            into.push(entry.recorded(latency));
        }
        self.before + first
    }

    /// How many of those that are there have no latency. Slow.
    pub(super) fn without_latency(&self) -> u64 {
        let there = (self.first_here()..self.next).filter_map(|n| self.ring.get(self.place(n)));
        there.filter(|entry| entry.latency_ns == UNANSWERED).count() as u64
    }
}

impl Entry {
    fn recorded(&self, latency: Option<Nanos>) -> Recorded {
        let kind = if self.len_and_kind & WRITE != 0 { Kind::Write } else { Kind::Read };
        let range = ByteRange::at(self.start, u64::from(self.len_and_kind & !WRITE));
        Recorded { time: self.time, kind, range, latency }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u64) -> ByteRange {
        ByteRange::at(n * 4096, 4096)
    }

    fn ring(entries: u64) -> Recorder {
        Recorder::new(entries * ENTRY_BYTES)
    }

    fn read(recorder: &Recorder, from: u64, unanswered: bool) -> (u64, Vec<u64>) {
        let mut into = Vec::with_capacity(100);
        let first = recorder.read(from, 100, unanswered, &mut into);
        (first, into.iter().map(|recorded| recorded.range.start / 4096).collect())
    }

    #[test]
    fn what_was_written_over_is_known_to_be() {
        let mut recorder = ring(8);
        for n in 0..20 {
            let sequence = recorder.push(Nanos(n * 10), Kind::Read, at(n));
            recorder.answer(sequence, Nanos(5));
        }
        assert_eq!((recorder.oldest(), recorder.next(), recorder.capacity()), (12, 20, 8));
        let statistics =
            RecorderStatistics { bytes: 256, requests: 8, span_ns: 70, idle_ns: 10, observed: 20 };
        assert_eq!(recorder.statistics(Nanos(200)), Some(statistics));
        let later = RecorderStatistics { idle_ns: 810, ..statistics };
        assert_eq!(recorder.statistics(Nanos(1000)), Some(later), "what it has does not grow");
        assert_eq!(read(&recorder, 0, false), (12, (12..20).collect()));
        assert_eq!(read(&recorder, 15, false), (15, (15..20).collect()));
        assert_eq!(read(&recorder, 20, false), (20, vec![]));
        assert_eq!(read(&recorder, u64::MAX, true), (20, vec![]));
        // An answer that comes too late changes nothing of who has the place now.
        recorder.answer(7, Nanos(1_000_000));
        let mut into = Vec::new();
        assert_eq!(recorder.read(15, 1, false, &mut into), 15);
        let expect =
            Recorded { time: Nanos(150), kind: Kind::Read, range: at(15), latency: Some(Nanos(5)) };
        assert_eq!(into, [expect]);
    }

    #[test]
    fn who_follows_waits_for_answers_but_not_for_ever() {
        let mut recorder = ring(8);
        for n in 0..4 {
            let sequence = recorder.push(Nanos(n), Kind::Write, at(n));
            if n != 1 {
                recorder.answer(sequence, Nanos(1));
            }
        }
        assert_eq!(read(&recorder, 0, false), (0, vec![0]));
        assert_eq!(read(&recorder, 0, true), (0, vec![0, 1, 2, 3]));
        for n in 4..6 {
            let sequence = recorder.push(Nanos(n), Kind::Write, at(n));
            recorder.answer(sequence, Nanos(1));
        }
        assert_eq!(read(&recorder, 1, false), (1, vec![1, 2, 3, 4, 5]), "in the older half now");
    }

    #[test]
    fn a_ring_in_the_place_of_another_one_goes_on_with_its_numbers() {
        let mut recorder = ring(8);
        recorder.number_from(13);
        assert_eq!((recorder.oldest(), recorder.next()), (13, 13));
        assert_eq!(read(&recorder, 5, true), (13, vec![]));
        for n in 0..10 {
            let sequence = recorder.push(Nanos(n), Kind::Read, at(n));
            recorder.answer(sequence, Nanos(5));
        }
        assert_eq!((recorder.oldest(), recorder.next()), (15, 23));
        assert_eq!(read(&recorder, 0, false), (15, (2..10).collect()));
        assert_eq!(read(&recorder, 20, false), (20, (7..10).collect()));
        assert_eq!(read(&recorder, u64::MAX, true), (23, vec![]));
        // What is shown is of what came here.
        let shown = recorder.statistics(Nanos(9)).expect("it holds something");
        assert_eq!((shown.requests, shown.observed), (8, 10));
    }

    #[test]
    fn a_batch_is_no_larger_than_wanted() {
        let mut recorder = ring(16);
        for n in 0..10 {
            recorder.push(Nanos(n), Kind::Read, at(n));
        }
        let mut into = Vec::new();
        assert_eq!(recorder.read(3, 4, true, &mut into), 3);
        assert_eq!(into.len(), 4);
        assert_eq!(recorder.read(7, 0, true, &mut into), 7);
        assert_eq!(into.len(), 4);
        assert_eq!(recorder.read(7, u64::MAX, true, &mut into), 7);
        assert_eq!(into.len(), 7);
    }

    #[test]
    fn a_ring_of_nothing_counts_and_holds_nothing() {
        for bytes in [0, 1, ENTRY_BYTES, 2 * ENTRY_BYTES - 1] {
            let mut recorder = Recorder::new(bytes);
            let sequence = recorder.push(Nanos(1), Kind::Read, at(0));
            recorder.answer(sequence, Nanos(1));
            assert_eq!((recorder.capacity(), recorder.next(), recorder.oldest()), (0, 1, 1));
            assert_eq!(recorder.statistics(Nanos(5)), None);
            assert_eq!(read(&recorder, 0, true), (1, vec![]));
        }
        assert_eq!(Recorder::new(3 * ENTRY_BYTES).capacity(), 2);
    }

    #[test]
    fn the_longest_request_and_the_longest_latency_come_back() {
        let mut recorder = ring(2);
        let range = ByteRange::at((1 << 60) - REQUEST_MAX, REQUEST_MAX);
        let sequence = recorder.push(Nanos(7), Kind::Write, range);
        recorder.answer(sequence, Nanos::NEVER);
        let mut into = Vec::new();
        recorder.read(0, 1, false, &mut into);
        let latency = Some(Nanos(u64::MAX - 1));
        assert_eq!(into, [Recorded { time: Nanos(7), kind: Kind::Write, range, latency }]);
    }
}
