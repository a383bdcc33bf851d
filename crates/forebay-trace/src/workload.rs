//! Made-up workloads, for tests and benchmarks: the same settings give the same requests. [`loops`] and [`compaction`] have
//! what one kind of application does, this file a mixture:
//!
//! The disk is divided into a hot area (1/16 of it), a loop area (1/8), and the rest, which is cold:
//!
//! | part | share | what | length | writes |
//! |---|---|---|---|---|
//! | hot | 60 % | blocks of the hot area, skewed: the eighth that is used most gets half | 4, 8 (mostly), 16 KiB | 30 % |
//! | loop | 20 % | the loop area from its start to its end, over and over | 64 KiB | none |
//! | scan | 8 % | the cold area once, from a random start, round | 256 KiB | none |
//! | random | 12 % | anywhere in the cold area | 8 KiB | 30 % |
//!
//! So about a fifth of the requests are writes. A cache gains on the hot and the loop part, if
//! the scan does not drive them out. Requests arrive at random: the time between two is evenly
//! spread between zero and twice the mean.

pub mod compaction;
pub mod loops;

use forebay_core::splitmix::Rng;

use crate::record::{Op, Record};

const KIB: u64 = 1 << 10;
/// Smallest disk that the areas fit on.
pub const DISK_MIN: u64 = 16 << 20;

/// What to make up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of the disk, [`DISK_MIN`] at least; what is beyond a multiple of 4 MiB is not used.
    pub disk_bytes: u64,
    /// Number of requests.
    pub requests: u64,
    /// Mean time between two requests.
    pub interval_ns_mean: u64,
    /// Another seed, other requests of the same make-up.
    pub seed: u64,
}

/// The requests, in order of time.
#[derive(Clone, Debug)]
pub struct Workload {
    settings: Settings,
    disk: u64,
    made: u64,
    time_ns: u64,
    loop_at: u64,
    scan_at: u64,
    random: Rng,
}

impl Workload {
    /// Panics when the disk is smaller than [`DISK_MIN`].
    pub fn new(settings: Settings) -> Workload {
        assert!(settings.disk_bytes >= DISK_MIN, "the disk is too small for the areas");
        let disk = settings.disk_bytes >> 22 << 22;
        let mut random = Rng::new(settings.seed);
        let scan_at = random.below(disk / (256 * KIB)) * 256 * KIB;
        Workload { settings, disk, made: 0, time_ns: 0, loop_at: 0, scan_at, random }
    }

    fn hot_len(&self) -> u64 {
        self.disk / 16
    }

    fn loop_len(&self) -> u64 {
        self.disk / 8
    }

    fn cold_start(&self) -> u64 {
        self.hot_len() + self.loop_len()
    }

    /// A block of the hot area.
    fn hot(&mut self) -> (Op, u64, u64) {
        let blocks = self.hot_len() / (16 * KIB);
        let block = skewed(&mut self.random, blocks);
        let len = [4, 8, 8, 8, 8, 16][self.random.below(6) as usize] * KIB;
        (self.read_or_write(), block * 16 * KIB, len)
    }

    fn next_in_loop(&mut self) -> (Op, u64, u64) {
        let offset = self.hot_len() + self.loop_at;
        self.loop_at = (self.loop_at + 64 * KIB) % self.loop_len();
        (Op::Read, offset, 64 * KIB)
    }

    fn next_in_scan(&mut self) -> (Op, u64, u64) {
        let cold = self.disk - self.cold_start();
        let offset = self.cold_start() + self.scan_at % cold;
        self.scan_at = (self.scan_at + 256 * KIB) % cold;
        (Op::Read, offset, 256 * KIB)
    }

    fn anywhere_cold(&mut self) -> (Op, u64, u64) {
        let blocks = (self.disk - self.cold_start()) / (8 * KIB);
        let offset = self.cold_start() + self.random.below(blocks) * 8 * KIB;
        (self.read_or_write(), offset, 8 * KIB)
    }

    fn read_or_write(&mut self) -> Op {
        if self.random.below(100) < 30 { Op::Write } else { Op::Read }
    }
}

impl Iterator for Workload {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.made == self.settings.requests {
            return None;
        }
        if self.made > 0 {
            self.time_ns += self.random.below(2 * self.settings.interval_ns_mean + 1);
        }
        self.made += 1;
        let (op, offset, len) = match self.random.below(100) {
            0..60 => self.hot(),
            60..80 => self.next_in_loop(),
            80..88 => self.next_in_scan(),
            _ => self.anywhere_cold(),
        };
        Some(Record {
            time_ns: self.time_ns,
            op,
            offset,
            len: len as u32,
            device: 0,
            latency_ns: None,
        })
    }
}

/// The `nth` request of a workload of requests that are a millisecond apart, for blocks of 4 KiB.
fn nth(nth: usize, op: Op, block: u64, len: u64) -> Record {
    Record {
        time_ns: nth as u64 * 1_000_000,
        op,
        offset: block * 4 * KIB,
        len: (len * 4 * KIB) as u32,
        device: 0,
        latency_ns: None,
    }
}

/// A number below `bound`, some often. The cube of an even number below one is below 1/8 half of
/// the time. An odd factor scatters the most frequent numbers.
fn skewed(random: &mut Rng, bound: u64) -> u64 {
    let even = random.below(1 << 16);
    let skewed = (((even * even * even) >> 24) * bound) >> 24;
    skewed * 0x9E3B % bound
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Summary;

    const SETTINGS: Settings =
        Settings { disk_bytes: 1 << 30, requests: 50_000, interval_ns_mean: 1_000_000, seed: 3 };

    #[test]
    fn the_same_settings_give_the_same_requests_and_another_seed_others() {
        let all = |seed| Workload::new(Settings { seed, ..SETTINGS }).collect::<Vec<_>>();
        assert_eq!(all(3), all(3));
        assert_ne!(all(3), all(4));
    }

    #[test]
    fn the_make_up_is_as_documented() {
        let all: Vec<_> = Workload::new(SETTINGS).collect();
        let share = |is: &dyn Fn(&Record) -> bool| {
            all.iter().filter(|record| is(record)).count() as f64 / all.len() as f64
        };
        let near = |found: f64, expect: f64| (found - expect).abs() < 0.01;
        let hot_end = SETTINGS.disk_bytes / 16;
        let loop_end = hot_end + SETTINGS.disk_bytes / 8;
        assert!(near(share(&|r| r.offset < hot_end), 0.6));
        assert!(near(share(&|r| (hot_end..loop_end).contains(&r.offset)), 0.2));
        assert!(near(share(&|r| u64::from(r.len) == 256 * KIB), 0.08));
        assert!(near(share(&|r| r.op == Op::Write), 0.72 * 0.3));
        let mut uses = std::collections::HashMap::new();
        for record in all.iter().filter(|record| record.offset < hot_end) {
            *uses.entry(record.offset).or_insert(0) += 1;
        }
        let mut uses: Vec<u32> = uses.into_values().collect();
        uses.sort_unstable_by(|a, b| b.cmp(a));
        let blocks = (hot_end / (16 * KIB)) as usize;
        let most_used: u32 = uses[..blocks / 8].iter().sum();
        let all_used: u32 = uses.iter().sum();
        let half = f64::from(most_used) / f64::from(all_used);
        assert!((0.45..0.58).contains(&half), "{half}");
    }

    #[test]
    fn requests_stay_on_the_disk_and_come_in_order_of_time() {
        for disk_bytes in [DISK_MIN, DISK_MIN + 12_345, 3 << 30] {
            let settings = Settings { disk_bytes, ..SETTINGS };
            let summary = Summary::of(Workload::new(settings).map(Ok)).unwrap();
            assert!(summary.span_bytes <= disk_bytes);
            let mean = summary.duration_ns / settings.requests;
            assert!(mean.abs_diff(1_000_000) < 20_000, "{mean}");
            assert!(Workload::new(settings).is_sorted_by_key(|record| record.time_ns));
        }
    }
}
