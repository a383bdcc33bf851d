//! Primary storage with its journal, looked at after every step of random runs.

use super::*;

struct Bytes(Vec<u8>);

impl Medium for Bytes {
    type Error = std::convert::Infallible;

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), Self::Error> {
        bytes.copy_from_slice(&self.0[at as usize..][..bytes.len()]);
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Self::Error> {
        self.0[at as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn zero(&mut self, range: ByteRange) -> Result<(), Self::Error> {
        self.0[range.start as usize..range.end as usize].fill(0);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// Primary storage as a start finds it that puts the journal in place.
fn repaired(rig: &Rig) -> Vec<u8> {
    let (mut journal, mut primary) = (Bytes(rig.journal.clone()), Bytes(rig.backend.clone()));
    let size = rig.backend.len() as u64;
    journal::repair(&mut journal, &mut primary, OWNER, size).expect("a journal");
    primary.0
}

/// Epochs of one page each, and what primary storage is after each of them.
struct Run {
    rig: Rig,
    chance: crate::splitmix::Rng,
    epochs: Vec<Vec<u8>>,
    is_revoked: bool,
}

impl Run {
    const EPOCHS: usize = 60;
    const PLACES: u64 = 11;

    fn new(seed: u64) -> Run {
        let mut rig = write_back(journaled(seed.is_multiple_of(2)));
        let mut page = [0; PAGE_LEN];
        let (version, retired) = (1, 0);
        Superblock { owner: OWNER, shape: shape(), version, retired }.encode(&mut page);
        rig.journal[PAGE_LEN..2 * PAGE_LEN].copy_from_slice(&page);
        let (chance, epochs) = (crate::splitmix::Rng::new(seed), vec![rig.backend.clone()]);
        Run { rig, chance, epochs, is_revoked: false }
    }

    fn is_one_in(&mut self, many: u64) -> bool {
        self.chance.below(many) == 0
    }

    fn is_at_its_end(&self) -> bool {
        self.epochs.len() > Run::EPOCHS
    }

    /// Writes another epoch, ends an I/O, or lets time pass; one I/O in `fails` fails.
    fn step(&mut self, fails: u64) {
        let written = self.epochs.len() as u64 - 1;
        let may_write = !self.is_at_its_end() && (written == 0 || self.rig.has_reply(written));
        if may_write && (self.rig.pending.is_empty() || self.is_one_in(3)) {
            let (at, byte) = (self.chance.below(Run::PLACES) * 24576, 101 + written as u8);
            let mut image = self.epochs[written as usize].clone();
            image[at as usize..at as usize + 4096].fill(byte);
            self.epochs.push(image);
            self.rig.write_with(written + 1, at, 4096, byte, true);
        } else if self.rig.pending.is_empty() || self.is_one_in(30) {
            // The log does not run out of time.
            self.rig.log();
            let millis = [1, 10, 1_000, 20_000][self.chance.below(4) as usize];
            self.rig.tick(millis);
        } else {
            let index = self.chance.below(self.rig.pending.len() as u64) as usize;
            let of_log = self.rig.pending[index].target == Target::Log;
            let fails = !of_log && fails > 0 && self.is_one_in(fails);
            self.rig.complete(index, if fails { IoStatus::IoError } else { IoStatus::Ok });
        }
        self.rig.grant();
    }

    /// Answers the question for a revocation, if there is one.
    fn answer(&mut self) {
        if std::mem::take(&mut self.rig.journal_revocations) > 0 {
            self.is_revoked = self.is_one_in(2);
            self.rig.answer_revocation(self.is_revoked);
        }
    }

    /// The epoch after which primary storage was what it is now with its journal.
    fn epoch(&self) -> usize {
        let image = repaired(&self.rig);
        let epoch = self.epochs.iter().rposition(|epoch| *epoch == image);
        epoch.unwrap_or_else(|| panic!("no epoch: {:?}", self.rig.drawn()))
    }

    /// Nothing fails any more.
    fn end(&mut self) {
        self.rig.settle_log();
        while self.rig.journal_revocations > 0 {
            self.answer();
            self.rig.settle_log();
        }
        assert!(self.rig.engine.log_is_clean());
        assert!(self.rig.backend == self.epochs[Run::EPOCHS]);
    }
}

#[test]
fn primary_storage_with_its_journal_is_at_every_instant_what_it_was_after_an_epoch() {
    for seed in 0..16 {
        let (mut run, mut shown) = (Run::new(seed), 0);
        while !run.is_at_its_end() {
            run.step(0);
            let epoch = run.epoch();
            assert!(epoch >= shown, "seed {seed}: from epoch {shown} back to {epoch}");
            shown = epoch;
        }
        run.end();
        assert!(run.rig.counters().journal_windows > 0, "seed {seed}");
    }
}

/// A window that is given up after its record was whole is there no more, so that an earlier epoch may come back. And a
/// journal that is revoked with a window half in place leaves it so until all of it is.
#[test]
fn it_is_so_while_the_journal_and_primary_storage_fail() {
    let (mut windows, mut revoked) = (0, 0);
    for seed in 0..24 {
        let mut run = Run::new(seed);
        let fails = [3, 10, 40][seed as usize % 3];
        while !run.is_at_its_end() {
            run.step(fails);
            if run.is_one_in(100) {
                run.rig.lose_session();
            }
            if run.is_one_in(100) {
                run.rig.lose_journal_session();
            }
            run.answer();
            if !run.is_revoked {
                run.epoch();
            }
        }
        run.end();
        windows += run.rig.counters().journal_windows;
        revoked += u32::from(run.is_revoked);
    }
    assert!(windows > 24 && revoked > 1, "{windows} windows, {revoked} journals revoked");
}
