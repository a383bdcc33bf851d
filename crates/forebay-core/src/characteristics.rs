//! The requests of a disk, counted as vscsiStats counts them: sixteen histograms, bucket for
//! bucket.
//!
//! | | all | reads | writes |
//! |---|---|---|---|
//! | length in bytes | ✓ | ✓ | ✓ |
//! | distance from the request before, in sectors | ✓ | ✓ | ✓ |
//! | the shortest distance from one of the last sixteen | ✓ | | |
//! | latency in µs | ✓ | ✓ | ✓ |
//! | outstanding when one comes, itself among them | ✓ | ✓ | ✓ |
//! | time since the one before, in µs | ✓ | ✓ | ✓ |
//!
//! A *distance* goes from the last sector of the request before to the first sector of this one: 1 when it follows. The one before a
//! read is, among reads, the read before. The first request has neither distance nor time since another.
//!
//! No clock, no allocation: told of each request when it comes and when it is answered.

use crate::geometry::{ByteRange, SECTOR};
use crate::ids::Nanos;

/// Upper bounds of the buckets, each in its bucket; one more bucket is for what is beyond the last.
const LENGTHS: &[i64] = &[
    512, 1024, 2048, 4095, 4096, 8191, 8192, 16383, 16384, 32768, 49152, 65535, 65536, 81920,
    131_072, 262_144, 524_288,
];
const DISTANCES: &[i64] = &[
    -500_000, -100_000, -50_000, -10_000, -5000, -1000, -500, -128, -64, -32, -16, -8, -6, -4, -2,
    -1, 0, 1, 2, 4, 6, 8, 16, 32, 64, 128, 500, 1000, 5000, 10_000, 50_000, 100_000, 500_000,
];
const MICROSECONDS: &[i64] = &[1, 10, 100, 500, 1000, 5000, 15_000, 30_000, 50_000, 100_000];
const OUTSTANDING: &[i64] = &[1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 64];
/// Buckets of the histogram that has most.
const BUCKETS_MAX: usize = DISTANCES.len() + 1;
/// Requests that the shortest distance looks back to.
const WINDOW: usize = 16;

/// Counts of numbers by ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    limits: &'static [i64],
    counts: [u64; BUCKETS_MAX],
    count: u64,
    sum: i128,
    min: i64,
    max: i64,
}

impl Histogram {
    fn new(limits: &'static [i64]) -> Histogram {
        Histogram {
            limits,
            counts: [0; BUCKETS_MAX],
            count: 0,
            sum: 0,
            min: i64::MAX,
            max: i64::MIN,
        }
    }

    fn add(&mut self, number: i64) {
        self.add_to(self.limits.partition_point(|&limit| limit < number), number);
    }

    /// Counts a number whose bucket is known.
    fn add_to(&mut self, bucket: usize, number: i64) {
        self.counts[bucket] += 1;
        self.count += 1;
        self.sum += i128::from(number);
        self.min = self.min.min(number);
        self.max = self.max.max(number);
    }

    /// Each bucket's upper bound, which is in it, and how many numbers are; the last has the bound of the one before, and what is
    /// beyond.
    pub fn buckets(&self) -> impl Iterator<Item = (i64, u64)> + '_ {
        let beyond = self.limits[self.limits.len() - 1];
        self.limits.iter().copied().chain([beyond]).zip(self.counts)
    }

    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest, if there is any.
    pub fn min(&self) -> Option<i64> {
        (self.count > 0).then_some(self.min)
    }

    /// The largest, if there is any.
    pub fn max(&self) -> Option<i64> {
        (self.count > 0).then_some(self.max)
    }

    /// The mean, the fraction cut off, if there is any.
    pub fn mean(&self) -> Option<i64> {
        (self.count > 0).then(|| (self.sum / i128::from(self.count)) as i64)
    }
}

/// The same of all requests, of reads, and of writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Reads and writes.
    pub all: Histogram,
    /// Reads.
    pub reads: Histogram,
    /// Writes.
    pub writes: Histogram,
}

impl Split {
    fn new(limits: &'static [i64]) -> Split {
        let empty = Histogram::new(limits);
        Split { all: empty.clone(), reads: empty.clone(), writes: empty }
    }

    /// Counts a number of a request of this kind.
    fn add(&mut self, kind: Kind, number: i64) {
        let bucket = self.all.limits.partition_point(|&limit| limit < number);
        for histogram in self.both(kind) {
            histogram.add_to(bucket, number);
        }
    }

    /// Where a request of this kind counts.
    fn both(&mut self, kind: Kind) -> [&mut Histogram; 2] {
        match kind {
            Kind::Read => [&mut self.all, &mut self.reads],
            Kind::Write => [&mut self.all, &mut self.writes],
        }
    }
}

/// The kinds of requests that have histograms of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A read.
    Read,
    /// A write.
    Write,
}

/// The request before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Before {
    /// When it came, and its last sector.
    last: Option<(Nanos, i64)>,
    outstanding: i64,
}

/// See the module. One disk's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Characteristics {
    /// Bytes of a request.
    pub lengths: Split,
    /// Sectors between the end of the request before and the start of this one.
    pub distances: Split,
    /// The distance that is nearest to 0, from one of the last sixteen; of two as near, from the later one.
    pub closest: Histogram,
    /// Microseconds until it was answered.
    pub latencies: Split,
    /// How many were under way when it came, with itself.
    pub outstanding: Split,
    /// Microseconds since the one before came.
    pub interarrivals: Split,
    all: Before,
    reads: Before,
    writes: Before,
    /// Last sectors of the latest requests, in a ring.
    window: [i64; WINDOW],
    seen: u64,
}

impl Default for Characteristics {
    fn default() -> Self {
        Characteristics {
            lengths: Split::new(LENGTHS),
            distances: Split::new(DISTANCES),
            closest: Histogram::new(DISTANCES),
            latencies: Split::new(MICROSECONDS),
            outstanding: Split::new(OUTSTANDING),
            interarrivals: Split::new(MICROSECONDS),
            all: Before::default(),
            reads: Before::default(),
            writes: Before::default(),
            window: [0; WINDOW],
            seen: 0,
        }
    }
}

impl Characteristics {
    /// A request comes. `range` is not empty; `is_answered`: it will be told when, so that it counts as outstanding until then.
    pub fn on_request(&mut self, now: Nanos, kind: Kind, range: ByteRange, is_answered: bool) {
        let (first, last) = (sector(range.start), sector(range.end - 1));
        self.lengths.add(kind, range.len() as i64);
        let of_kind = match kind {
            Kind::Read => &mut self.reads,
            Kind::Write => &mut self.writes,
        };
        let counted = self.distances.both(kind).into_iter().zip(self.interarrivals.both(kind));
        let counted = counted.zip(self.outstanding.both(kind));
        for (before, ((distances, interarrivals), outstanding)) in
            [&mut self.all, of_kind].into_iter().zip(counted)
        {
            if let Some((came, end)) = before.last.replace((now, last)) {
                distances.add(first - end);
                interarrivals.add(micros(now.since(came)));
            }
            if is_answered {
                before.outstanding += 1;
                outstanding.add(before.outstanding);
            }
        }
        if let Some(closest) = self.closest_to(first) {
            self.closest.add(closest);
        }
        self.window[self.seen as usize % WINDOW] = last;
        self.seen += 1;
    }

    /// The distance nearest to 0 of the last requests.
    fn closest_to(&self, first: i64) -> Option<i64> {
        let next = self.seen as usize % WINDOW;
        let (newer, older) = self.window[..self.seen.min(WINDOW as u64) as usize].split_at(next);
        let (mut closest, mut least) = (None, u64::MAX);
        let mut look = |last: &i64| {
            let distance = first - last;
            if distance.unsigned_abs() < least {
                (closest, least) = (Some(distance), distance.unsigned_abs());
            }
        };
        newer.iter().rev().for_each(&mut look);
        older.iter().rev().for_each(&mut look);
        closest
    }

    /// One was answered.
    pub fn on_answer(&mut self, kind: Kind, latency: Nanos) {
        self.latencies.add(kind, micros(latency));
        self.all.outstanding -= 1;
        match kind {
            Kind::Read => self.reads.outstanding -= 1,
            Kind::Write => self.writes.outstanding -= 1,
        }
    }
}

fn sector(byte: u64) -> i64 {
    (byte / SECTOR) as i64
}

fn micros(time: Nanos) -> i64 {
    (time.0 / 1000) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(histogram: &Histogram) -> Vec<(i64, u64)> {
        histogram.buckets().filter(|(_, count)| *count > 0).collect()
    }

    fn at(start: u64, len: u64) -> ByteRange {
        ByteRange::at(start * SECTOR, len * SECTOR)
    }

    #[test]
    fn a_bound_is_in_its_bucket_and_what_is_beyond_in_the_last() {
        let mut histogram = Histogram::new(OUTSTANDING);
        for number in [0, 1, 2, 3, 4, 64, 65, 1000] {
            histogram.add(number);
        }
        assert_eq!(counts(&histogram), [(1, 2), (2, 1), (4, 2), (64, 1), (64, 2)]);
        assert_eq!(histogram.buckets().count(), OUTSTANDING.len() + 1);
        assert_eq!((histogram.min(), histogram.max()), (Some(0), Some(1000)));
        assert_eq!((histogram.count(), histogram.mean()), (8, Some(1139 / 8)));
        let mut distances = Histogram::new(DISTANCES);
        for number in [i64::MIN, -500_000, -499_999, -1, 0, 1, 500_001] {
            distances.add(number);
        }
        let expect = [(-500_000, 2), (-100_000, 1), (-1, 1), (0, 1), (1, 1), (500_000, 1)];
        assert_eq!(counts(&distances), expect);
        assert_eq!(Histogram::new(LENGTHS).mean(), None);
    }

    #[test]
    fn a_sequential_stream_has_distance_one_and_each_kind_its_own() {
        let mut disk = Characteristics::default();
        for n in 0..10 {
            disk.on_request(Nanos(n * 2_000_000), Kind::Read, at(n * 8, 8), true);
            disk.on_request(Nanos(n * 2_000_000 + 5000), Kind::Write, at(1000 + n * 2, 2), true);
        }
        assert_eq!(counts(&disk.distances.reads), [(1, 9)]);
        assert_eq!(counts(&disk.distances.writes), [(1, 9)]);
        assert_eq!(disk.distances.all.count(), 19);
        // The first of each has nothing near it; the write is 1000 - 7 away.
        assert_eq!(counts(&disk.closest), [(1, 18), (1000, 1)]);
        assert_eq!(counts(&disk.interarrivals.all), [(10, 10), (5000, 9)]);
        assert_eq!(counts(&disk.interarrivals.reads), [(5000, 9)]);
        assert_eq!(counts(&disk.lengths.all), [(1024, 10), (4096, 10)]);
    }

    #[test]
    fn the_closest_is_looked_for_among_sixteen_and_no_more() {
        let mut disk = Characteristics::default();
        disk.on_request(Nanos(0), Kind::Read, at(50, 1), true);
        for n in 0..16 {
            disk.on_request(Nanos(0), Kind::Read, at(1_000_000 * (n + 1), 1), true);
        }
        // Request 0 is the seventeenth before.
        disk.on_request(Nanos(0), Kind::Read, at(51, 1), true);
        assert_eq!(disk.closest.min(), Some(51 - 1_000_000));
        disk.on_request(Nanos(0), Kind::Read, at(49, 1), true);
        assert_eq!(counts(&disk.closest).iter().find(|(limit, _)| *limit == -2), Some(&(-2, 1)));
    }

    #[test]
    fn of_two_as_near_the_later_one_counts() {
        let mut disk = Characteristics::default();
        for sector in [90, 110, 100] {
            disk.on_request(Nanos(0), Kind::Read, at(sector, 1), true);
        }
        assert_eq!(disk.closest.min(), Some(-10));
    }

    #[test]
    fn outstanding_counts_the_one_that_comes() {
        let mut disk = Characteristics::default();
        for _ in 0..3 {
            disk.on_request(Nanos(0), Kind::Read, at(0, 1), true);
        }
        disk.on_request(Nanos(0), Kind::Write, at(0, 1), true);
        disk.on_answer(Kind::Read, Nanos(40_000));
        disk.on_answer(Kind::Read, Nanos(600_000));
        disk.on_request(Nanos(0), Kind::Read, at(0, 1), true);
        assert_eq!(counts(&disk.outstanding.reads), [(1, 1), (2, 2), (4, 1)]);
        assert_eq!(counts(&disk.outstanding.all), [(1, 1), (2, 1), (4, 3)]);
        assert_eq!(counts(&disk.latencies.reads), [(100, 1), (1000, 1)]);
        assert_eq!(disk.latencies.writes.count(), 0);
    }
}
