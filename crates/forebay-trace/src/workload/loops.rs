//! Loops: areas that are read from their start to their end again and again, as tables that queries scan, beside a hot
//! set and with interruptions.
//!
//! The disk: the hot set, then the loops side by side, then what interruptions scan, which is not used again. One loop at a
//! time goes round; after some rounds another one has its turn. A round may be broken off anywhere, and may be followed
//! by a scan of a quarter of its length. All requests are reads.

use forebay_core::splitmix::Rng;

use super::skewed;
use crate::record::{Op, Record};

/// Blocks of a request of a loop or a scan.
const RUN: u64 = 16;

/// What to make up. Lengths are in blocks of 4 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loops {
    /// Length of each loop.
    pub lens: Vec<u64>,
    /// Rounds of a loop before another one has its turn, on the mean.
    pub rounds: u64,
    /// Of 100 rounds so many are broken off.
    pub broken_percent: u64,
    /// After so many of 100 rounds a scan follows.
    pub scan_percent: u64,
    /// Length of the hot set.
    pub hot_len: u64,
    /// Of 100 requests so many are for a block of the hot set; the others are for 16 blocks.
    pub hot_percent: u64,
    /// Blocks used in all, about.
    pub uses: u64,
    /// Another seed, other requests of the same make-up.
    pub seed: u64,
}

impl Loops {
    /// The requests.
    pub fn records(&self) -> Vec<Record> {
        let loops_end = self.hot_len + self.lens.iter().sum::<u64>();
        let mut run = Making {
            settings: self,
            random: Rng::new(self.seed),
            records: Vec::new(),
            used: 0,
            scanned_to: loops_end,
        };
        while run.used < self.uses {
            run.turn();
        }
        run.records
    }
}

struct Making<'a> {
    settings: &'a Loops,
    random: Rng,
    records: Vec<Record>,
    used: u64,
    /// Where the next scan begins.
    scanned_to: u64,
}

impl Making<'_> {
    /// Some rounds of one loop.
    fn turn(&mut self) {
        let at = self.random.below(self.settings.lens.len() as u64) as usize;
        let first = self.settings.hot_len + self.settings.lens[..at].iter().sum::<u64>();
        let len = self.settings.lens[at];
        for _ in 0..=self.random.below(2 * self.settings.rounds - 1) {
            let is_broken = self.random.below(100) < self.settings.broken_percent;
            let end = if is_broken { self.random.below(len) } else { len };
            self.read(first, end);
            if self.random.below(100) < self.settings.scan_percent {
                self.read(self.scanned_to, len / 4);
                self.scanned_to += len / 4;
            }
        }
    }

    /// Reads blocks in a row, and of the hot set between them.
    fn read(&mut self, first: u64, len: u64) {
        let Loops { hot_percent, hot_len, uses, .. } = *self.settings;
        let mut at = 0;
        while at < len && self.used < uses {
            if self.random.below(100) < hot_percent {
                let block = skewed(&mut self.random, hot_len);
                self.request(block, 1);
            } else {
                let run = RUN.min(len - at);
                self.request(first + at, run);
                at += run;
            }
        }
    }

    fn request(&mut self, block: u64, len: u64) {
        self.used += len;
        self.records.push(super::nth(self.records.len(), Op::Read, block, len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_go_round_beside_a_hot_set_and_scans_never_come_back() {
        let settings = Loops {
            lens: vec![1000, 2500],
            rounds: 4,
            broken_percent: 20,
            scan_percent: 30,
            hot_len: 300,
            hot_percent: 25,
            uses: 100_000,
            seed: 1,
        };
        let records = settings.records();
        assert_eq!(records, settings.records());
        assert_ne!(records, Loops { seed: 2, ..settings.clone() }.records());
        let (mut uses, mut hot, mut scanned_to) = (0, 0, 3800);
        for record in &records {
            let (block, len) = (record.offset / 4096, u64::from(record.len) / 4096);
            uses += len;
            hot += u64::from(block < 300);
            if block >= 3800 {
                assert_eq!(block, scanned_to, "each block of scans once");
                scanned_to += len;
            }
        }
        assert!((100_000..100_016).contains(&uses));
        let share = hot as f64 / records.len() as f64;
        assert!((0.23..0.27).contains(&share), "{share}");
        assert!(scanned_to > 3800);
    }
}
