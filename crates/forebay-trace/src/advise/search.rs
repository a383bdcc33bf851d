//! From what a model proposes to what the engine does best: setups around the proposal are run, as long as one of them is better.
//!
//! ```text
//! proposal ─► without its log, with it, its log alone if both fail, larger logs if it fills ─► the best ─┐
//!        ┌──────────────────────────────────────────────────────────────────────────────────────────────┘
//!        └► larger and smaller tiers, logs and blocks, the other policy, no bypass ─► the best ─► … ─► the cheapest of the best
//! ```
//! Curves know nothing of time, of writes, of admission and of fetches (`choose.rs`). Their
//! proposal is near the best as a rule. Only a run shows how near, and what it is worth. A long
//! trace is tried on its last requests. The choice then runs with all of it (`prove.rs`).

use std::cell::OnceCell;
use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

use forebay_core::config::{FlashAdmission, SequentialBypass};

use super::pages::Pages;
use super::setup::Setup;
use super::trial::{Flaw, Trial};
use super::{BLOCK_MAX, BLOCK_SIZES, Disk, POLICIES, Share};
use crate::error::Error;
use crate::record::Record;
use crate::what_if::{Models, Survey, Wear};

/// Requests that all trials together run, and trials, at least and at most.
const REQUESTS_MAX: u64 = 16 << 20;
const TRIALS: std::ops::RangeInclusive<u64> = 8..=32;
/// A gain below this counts as none.
const KNEE: f64 = 0.02;
/// A setup that spares the flash may be slower by so much.
const SPARING: f64 = 0.1;

/// So many times what the second half of a trace adds to its footprint there should be room for.
const GROWTH: f64 = 4.0;

/// Trials of one disk.
#[derive(Debug)]
pub(super) struct Search<'a> {
    pub disk: &'a Disk,
    /// What the disk may have.
    pub share: Share,
    /// Flash whose wear is this disk's.
    pub flash_to_wear: u64,
    pub records: &'a [Record],
    pub survey: &'a Survey,
    pub models: Models,
    tried: Vec<Trial>,
    /// Of the records, see [`growth`].
    growth: OnceCell<f64>,
}

impl<'a> Search<'a> {
    pub fn new(
        disk: &'a Disk,
        (share, flash_to_wear): (Share, u64),
        (records, survey): (&'a [Record], &'a Survey),
        models: Models,
    ) -> Search<'a> {
        let (tried, growth) = (Vec::new(), OnceCell::new());
        Search { disk, share, flash_to_wear, records, survey, models, tried, growth }
    }

    /// Tries `proposal`, cut to what there is beside its log, and what lies around it; `done` is called after each trial.
    ///
    /// # Errors
    /// The trace's own.
    pub fn run(&mut self, proposal: Setup, done: &(impl Fn() + Sync)) -> Result<(), Error> {
        let flash = proposal.flash;
        let room = self.share.flash.saturating_sub(proposal.log);
        let mut proposal = Setup { flash: proposal.flash.min(room), ..proposal };
        // Small blocks of a large cache or disk may be more than an engine takes.
        while !self.is_possible(&proposal) && proposal.block_size < BLOCK_MAX {
            proposal.block_size *= 2;
        }
        let without = Setup { flash, log: 0, ..proposal };
        let alone = Setup { ram: 0, flash: 0, ..proposal };
        self.try_all(&[proposal, without], done)?;
        if self.best().is_none() {
            self.try_log_alone(proposal, done)?;
        }
        for with_log in [proposal, alone] {
            let mut setup = Some(with_log);
            while let Some(full) = setup.filter(|setup| self.fills(setup)) {
                setup = self.try_larger_log(full, done)?;
            }
        }
        let requests = self.records.len().max(1) as u64;
        let most = (REQUESTS_MAX / requests).clamp(*TRIALS.start(), *TRIALS.end());
        while (self.tried.len() as u64) < most {
            let Some(best) = self.best() else { break };
            let mut around = self.around(best);
            around.truncate(most as usize - self.tried.len());
            if !self.try_all(&around, done)? {
                break;
            }
        }
        Ok(())
    }

    /// Tries a setup with a log twice as large; which, if there is room.
    ///
    /// # Errors
    /// The trace's own.
    pub fn try_larger_log(
        &mut self,
        setup: Setup,
        done: &(impl Fn() + Sync),
    ) -> Result<Option<Setup>, Error> {
        let log = setup.log * 2;
        if log == 0 || log > self.share.flash / 2 {
            return Ok(None);
        }
        let larger = Setup { log, flash: setup.flash.min(self.share.flash - log), ..setup };
        self.try_all(&[larger], done)?;
        Ok(Some(larger))
    }

    /// Tries the log of `setup` without its cache; false: that was run, or there is none.
    ///
    /// # Errors
    /// The trace's own.
    pub fn try_log_alone(
        &mut self,
        setup: Setup,
        done: &(impl Fn() + Sync),
    ) -> Result<bool, Error> {
        self.try_all(&[Setup { ram: 0, flash: 0, ..setup }], done)
    }

    /// True when it was seen to do no good, as its log filled or slowed its writers.
    fn fills(&self, setup: &Setup) -> bool {
        let was_full = |trial: &Trial| {
            let slows = trial.outcome.log.is_some_and(|log| log.acknowledgements_delayed > 0);
            matches!(trial.flaw(), Some(Flaw::LogFull | Flaw::Writes)) && slows
        };
        self.tried.iter().any(|trial| trial.setup == *setup && was_full(trial))
    }

    /// All that were run.
    pub fn tried(&self) -> &[Trial] {
        &self.tried
    }

    /// The cheapest of the nearly fastest without a flaw.
    pub fn best(&self) -> Option<&Trial> {
        self.best_of(|trial| trial.flaw().is_none())
    }

    /// The same among those of which `may` is true. A setup that wears out the flash has to be faster by more.
    pub fn best_of(&self, may: impl Fn(&Trial) -> bool) -> Option<&Trial> {
        let cheapest = |is_one: &dyn Fn(&Trial) -> bool| {
            let all = || self.tried.iter().filter(|trial| may(trial) && is_one(trial));
            let fastest = all().map(Trial::mean_ns).min_by(f64::total_cmp)?;
            let near = all().filter(|trial| trial.mean_ns() <= fastest * (1.0 + KNEE));
            // The default policy follows a workload that changes; a trace may not show that.
            let is_other = |trial: &Trial| trial.setup.policy != POLICIES[0];
            near.min_by_key(|trial| {
                (is_other(trial), trial.cost(), trial.outcome.after.all.mean_ns)
            })
        };
        let any = cheapest(&|_| true)?;
        let spares = |trial: &Trial| !trial.wears_out(self.flash_to_wear);
        let sparing = cheapest(&spares);
        let sparing = sparing.filter(|of| of.mean_ns() <= any.mean_ns() * (1.0 + SPARING));
        sparing.or(Some(any))
    }

    /// All of the trace wears out the flash with a setup whose trial on a part did not: tries one that spares it.
    ///
    /// # Errors
    /// The trace's own.
    pub fn learn_wear(
        &mut self,
        setup: Setup,
        wear: Option<Wear>,
        done: &(impl Fn() + Sync),
    ) -> Result<(), Error> {
        for trial in self.tried.iter_mut().filter(|trial| trial.setup == setup) {
            trial.outcome.flash = wear;
        }
        if setup.flash > 0 {
            self.try_all(&[Setup { admission: FlashAdmission::History, ..setup }], done)?;
        }
        Ok(())
    }

    /// The setup of `trial` with room for more of the same trace. First uses go on as in its
    /// second half, and old blocks stay of use.
    pub fn with_room(&self, trial: &Trial) -> Setup {
        let setup = trial.setup;
        if !setup.caches() {
            return setup;
        }
        let growth = self.growth.get_or_init(|| growth(self.records));
        let grown = 1.0 + GROWTH * growth;
        let grow = |size: u64, most: u64| {
            let wanted = (size as f64 * grown) as u64 / BLOCK_MAX * BLOCK_MAX;
            wanted.min(most / BLOCK_MAX * BLOCK_MAX).max(size)
        };
        match setup.flash {
            0 => Setup { ram: grow(setup.ram, self.share.ram), ..setup },
            flash => {
                Setup { flash: grow(flash, self.share.flash.saturating_sub(setup.log)), ..setup }
            }
        }
    }

    /// Runs those that were not run yet, on all CPUs; false: there were none.
    fn try_all(&mut self, setups: &[Setup], done: &(impl Fn() + Sync)) -> Result<bool, Error> {
        let mut new: Vec<Setup> = Vec::new();
        for setup in setups {
            let was_run = self.tried.iter().any(|trial| trial.setup == *setup);
            if !was_run && !new.contains(setup) && self.fits(setup) {
                new.push(*setup);
            }
        }
        let (records, survey, models) = (self.records, self.survey, self.models);
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(new.len());
        let (waiting, found) = (Mutex::new(new.iter().enumerate()), Mutex::new(Vec::new()));
        let next = || waiting.lock().expect("nobody panics with it").next();
        let work = || {
            while let Some((at, setup)) = next() {
                let open = || Ok(records.iter().copied().map(Ok));
                let trial = Trial::run(*setup, models, survey, open);
                found.lock().expect("nobody panics with it").push((at, trial));
                done();
            }
        };
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        let mut found = found.into_inner().expect("nobody panicked with it");
        found.sort_by_key(|(at, _)| *at);
        for (_, trial) in found {
            self.tried.push(trial?);
        }
        Ok(!new.is_empty())
    }

    fn fits(&self, setup: &Setup) -> bool {
        let Share { ram, flash } = self.share;
        let is_something = setup.caches() || setup.log > 0;
        let has_room = setup.ram <= ram && setup.flash.saturating_add(setup.log) <= flash;
        is_something && has_room && self.is_possible(setup)
    }

    /// True when an engine takes it with the settings that are not advised.
    pub fn is_possible(&self, setup: &Setup) -> bool {
        setup.config(self.survey.traits()).check().is_ok()
    }

    /// One step from `of` in each direction.
    fn around(&self, of: &Trial) -> Vec<Setup> {
        let setup = of.setup;
        let mut around = Vec::new();
        for is_up in [true, false] {
            // A log serves reads of what was written lately; a short trace would need no cache beside it.
            let may_step = is_up || setup.log == 0;
            if setup.flash > 0 && may_step {
                let size = self.next_size(setup.flash, is_up);
                around.extend(size.map(|flash| Setup { flash, ..setup }));
            }
            if setup.ram > 0 && may_step {
                let size = self.next_size(setup.ram, is_up);
                around.extend(size.map(|ram| Setup { ram, ..setup }));
            }
            let block_size = if is_up { setup.block_size * 2 } else { setup.block_size / 2 };
            if setup.caches() && BLOCK_SIZES.contains(&block_size) {
                around.push(Setup { block_size, ..setup });
            }
        }
        if setup.log > 0 {
            around.push(Setup { log: setup.log * 2, ..setup });
            around.push(Setup { log: 0, ..setup });
        }
        if setup.caches() {
            around.extend(POLICIES.map(|policy| Setup { policy, ..setup }));
            around.push(Setup { bypass: SequentialBypass::Off, ..setup });
        }
        if setup.flash > 0 && of.wears_out(self.flash_to_wear) {
            around.push(Setup { admission: FlashAdmission::History, ..setup });
        }
        around
    }

    /// The next size of a tier, of those that the curves know.
    fn next_size(&self, size: u64, is_up: bool) -> Option<u64> {
        let sizes = self.disk.curves.first().map_or(&[][..], |curve| &curve.points);
        let mut sizes = sizes.iter().map(|point| point.cache_size);
        match is_up {
            true => sizes.find(|&of| of > size),
            false => sizes.rfind(|&of| of < size),
        }
    }
}

/// Pages that only the second half of the requests uses, of all that are used.
fn growth(records: &[Record]) -> f64 {
    let (first, second) = records.split_at(records.len() / 2);
    let mut pages = Pages::default();
    for record in first {
        pages.add(record);
    }
    let of_first = pages.clone();
    for record in second {
        pages.add(record);
    }
    let (before, all) = pages.known_to(&of_first);
    (all - before) as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::growth;
    use crate::record::{Op, Record};

    /// Requests of so many bytes, side by side.
    fn side_by_side(len: u32, places: impl Iterator<Item = u64>) -> Vec<Record> {
        let record = |(n, place): (u64, u64)| Record {
            time_ns: n,
            op: Op::Read,
            offset: place * u64::from(len),
            len,
            device: 0,
            latency_ns: None,
        };
        (0..).zip(places).map(record).collect()
    }

    #[test]
    fn growth_is_what_the_second_half_adds_to_the_pages() {
        assert_eq!(growth(&[]), 0.0);
        assert_eq!(growth(&side_by_side(4096, 0..1000)), 0.5);
        assert_eq!(growth(&side_by_side(4096, (0..1000).chain(0..1000))), 0.0);
        // 1000 pages, then 250 new ones.
        let quarter = side_by_side(4096, (0..1000).chain(250..1250));
        assert_eq!(growth(&quarter), 0.2);
        // The same of so much that only a sample of it is looked at.
        let (few, many) = (0..32_u64, 8..40_u64);
        let growth = growth(&side_by_side(1 << 28, few.chain(many)));
        assert!((growth - 0.2).abs() < 0.002, "{growth}");
    }
}
