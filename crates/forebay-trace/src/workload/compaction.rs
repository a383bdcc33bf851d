//! A key-value store on files that are merged: an LSM tree with levels (O'Neil et al., Acta Informatica 1996; as LevelDB).
//!
//! ```text
//!  memory ─flush─► level 0: up to 4 files, each over all keys
//!                     │ 4 files and all of level 1 are read and merged
//!                  level 1: files, each over its part of the keys ──┐ one file, in turn, and those of the next level
//!                  level 2: `fanout` times as many             ◄────┘ over the same keys are read and merged
//! ```
//! A merge reads its files in turns, a request of each. It writes as many anew, one after the
//! other, and the old ones are deleted. The store is full: new values replace old ones, so no
//! level grows. Files end up to a quarter before the length that they may have. Between the
//! requests of merges there are lookups, most of recent data (half in level 0, three quarters of
//! the rest in level 1). Some keys are looked up more often than others. A lookup reads one
//! block.
//!
//! New files get the addresses of deleted ones, the lowest first, or new ones for ever (as on a log-structured file system).

use std::collections::BTreeSet;

use forebay_core::splitmix::Rng;

use super::skewed;
use crate::record::{Op, Record};

/// Blocks of a request of a flush or a merge.
const RUN: u64 = 32;
/// Files in level 0 that begin a merge.
const LEVEL_0_MAX: usize = 4;

/// What to make up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// Blocks of 4 KiB of a file at most, four at least.
    pub file_len: u64,
    /// Files of level 1.
    pub level_1: usize,
    /// So many times as many has each level behind it.
    pub fanout: usize,
    /// Levels behind level 0, one at least.
    pub levels: usize,
    /// Of 100 uses of blocks so many are by lookups.
    pub lookup_percent: u64,
    /// Whether new files lie where deleted ones were.
    pub reuses: bool,
    /// Blocks used in all, about.
    pub uses: u64,
    /// Another seed, other requests of the same make-up.
    pub seed: u64,
}

impl Compaction {
    /// The requests.
    pub fn records(&self) -> Vec<Record> {
        let mut store = Store::new(self);
        while store.used < self.uses {
            store.flush();
        }
        store.records
    }
}

/// Where a file is, counted in lengths of files, and how long it is.
type File = (u64, u64);

struct Store<'a> {
    settings: &'a Compaction,
    random: Rng,
    records: Vec<Record>,
    used: u64,
    /// The oldest first.
    level_0: Vec<File>,
    /// By keys.
    levels: Vec<Vec<File>>,
    /// Which file of each level is merged next.
    next: Vec<usize>,
    free: BTreeSet<u64>,
    files: u64,
}

impl Store<'_> {
    fn new(settings: &Compaction) -> Store<'_> {
        let mut files = 0;
        let mut levels = Vec::new();
        for level in 0..settings.levels {
            let len = settings.level_1 * settings.fanout.pow(level as u32);
            levels.push((files..files + len as u64).map(|at| (at, settings.file_len)).collect());
            files += len as u64;
        }
        Store {
            settings,
            random: Rng::new(settings.seed),
            records: Vec::new(),
            used: 0,
            level_0: Vec::new(),
            levels,
            next: vec![0; settings.levels],
            free: BTreeSet::new(),
            files,
        }
    }

    /// A new file in level 0, and the merges that this leads to.
    fn flush(&mut self) {
        let file = self.write();
        self.level_0.push(file);
        if self.level_0.len() < LEVEL_0_MAX {
            return;
        }
        let old: Vec<File> = self.level_0.iter().chain(&self.levels[0]).copied().collect();
        self.read(&old);
        self.levels[0] = (0..self.levels[0].len()).map(|_| self.write()).collect();
        self.level_0.clear();
        self.delete(&old);
        for level in 1..self.settings.levels {
            // As much as came in has to go on.
            for _ in 0..LEVEL_0_MAX {
                self.merge(level);
            }
        }
    }

    /// Merges a file of the level before `level` into it; another one, with what came in, takes its place.
    fn merge(&mut self, level: usize) {
        let from = self.next[level - 1] % self.levels[level - 1].len();
        self.next[level - 1] += 1;
        let fanout = self.settings.fanout;
        let over = from * fanout..(from + 1) * fanout;
        let mut old = self.levels[level][over.clone()].to_vec();
        old.push(self.levels[level - 1][from]);
        self.read(&old);
        for at in over {
            self.levels[level][at] = self.write();
        }
        self.levels[level - 1][from] = self.write();
        self.delete(&old);
    }

    fn read(&mut self, files: &[File]) {
        for at in (0..self.settings.file_len).step_by(RUN as usize) {
            files.iter().for_each(|&file| self.go_on(Op::Read, file, at));
        }
    }

    fn write(&mut self) -> File {
        let len = self.settings.file_len - self.random.below(self.settings.file_len / 4);
        let number = self.free.pop_first().unwrap_or_else(|| {
            self.files += 1;
            self.files - 1
        });
        for at in (0..self.settings.file_len).step_by(RUN as usize) {
            self.go_on(Op::Write, (number, len), at);
        }
        (number, len)
    }

    fn delete(&mut self, files: &[File]) {
        if self.settings.reuses {
            self.free.extend(files.iter().map(|file| file.0));
        }
    }

    /// A request of a flush or a merge, and the lookups beside it.
    fn go_on(&mut self, op: Op, file: File, at: u64) {
        if at >= file.1 {
            return;
        }
        let len = RUN.min(file.1 - at);
        self.request(op, file.0 * self.settings.file_len + at, len);
        let lookups = self.settings.lookup_percent * len;
        let others = 100 - self.settings.lookup_percent;
        for _ in 0..(lookups + self.random.below(others)) / others {
            self.look_up();
        }
    }

    fn look_up(&mut self) {
        let mut files = &self.level_0;
        if files.is_empty() || self.random.below(2) == 0 {
            let deeper = (1..self.levels.len()).find(|_| self.random.below(4) > 0);
            files = &self.levels[deeper.unwrap_or(self.levels.len()) - 1];
        }
        let len = self.settings.file_len;
        let at = skewed(&mut self.random, files.len() as u64 * len);
        let file = files[(at / len) as usize];
        self.request(Op::Read, file.0 * len + at % file.1, 1);
    }

    fn request(&mut self, op: Op, block: u64, len: u64) {
        self.used += len;
        self.records.push(super::nth(self.records.len(), op, block, len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Compaction = Compaction {
        file_len: 64,
        level_1: 4,
        fanout: 4,
        levels: 2,
        lookup_percent: 30,
        reuses: true,
        uses: 100_000,
        seed: 1,
    };

    #[test]
    fn merges_read_and_write_about_as_much_beside_the_lookups_asked_for() {
        let records = SETTINGS.records();
        assert_eq!(records, SETTINGS.records());
        assert_ne!(records, Compaction { seed: 2, ..SETTINGS }.records());
        let blocks = |is: &dyn Fn(&Record) -> bool| {
            let chosen = records.iter().filter(|record| is(record));
            chosen.map(|record| u64::from(record.len) / 4096).sum::<u64>() as f64
        };
        let all = blocks(&|_| true);
        let lookups = blocks(&|record| record.len == 4096 && record.op == Op::Read) / all;
        assert!((0.27..0.35).contains(&lookups), "{lookups}");
        let written = blocks(&|record| record.op == Op::Write) / (all * (1.0 - lookups));
        assert!((0.45..0.6).contains(&written), "{written}");
    }

    #[test]
    fn addresses_of_deleted_files_are_used_again_only_when_asked_for() {
        let end = |settings: Compaction| {
            settings.records().iter().map(|record| record.end()).max().expect("there are some")
        };
        // 20 files that live, 4 of level 0, and those that a merge writes meanwhile.
        assert!(end(SETTINGS) <= 40 * 64 * 4096);
        assert!(end(Compaction { reuses: false, ..SETTINGS }) > 10_000 * 4096);
    }
}
