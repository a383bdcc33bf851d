//! An advice is not given before the engine has shown in virtual time what it does.
//!
//! ```text
//! Advice, as curves propose it ─► search.rs: what the engine does with it, and with what lies around it
//!     the best ─► four times as fast, if it has a log ─► with room to grow, with all of a long trace ─┬► its figures are the advice's
//!                                     no better than no cache: the next one, else it is withdrawn ◄───┘
//! ```
//! The figures are those of `forebay trace simulate` with the advice's own options and the trace that it is from, in strict order if
//! the log needs no journal. Where they are expected at another time: `range.rs`.

use std::collections::VecDeque;

use serde::Serialize;

use super::search::Search;
use super::setup::Setup;
use super::trial::{Flaw, Trial, models};
use super::{Advice, Disk, Latency, Plan, Settings, Verdict, Writes, choose, range, setup, words};
use crate::error::Error;
use crate::record::Record;
use crate::what_if::{Answers, Hits, Log, Survey, Warm, Wear};

/// Requests of a long trace that setups are compared by.
const STRETCH: usize = 1 << 20;
/// A log has to do for a load that comes this many times as fast: another hour may be busier.
const STRESS: u64 = 4;
/// The same of strict order, in which primary storage writes one epoch after the other: what keeps up easily may be the
/// bottleneck an hour later.
const STRICT_STRESS: u64 = 16;
/// Setups of which it is seen whether they do, at most, and logs without a cache besides.
const WHOLE_MAX: usize = 8;

/// The engine's run of the trace, as advised.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proof {
    /// Setups that were run.
    pub trials: usize,
    /// Without Forebay.
    pub before: Answers,
    /// With it, from a cache that was empty at the beginning.
    pub after: Answers,
    /// Where reads were answered from.
    pub hits: Hits,
    /// The second half of the requests.
    pub warm: Warm,
    /// What was written to flash.
    pub flash: Option<Wear>,
    /// The write log.
    pub log: Option<Log>,
    /// Bytes of the larger tier beyond the best setup, for pages that are new after the trace.
    pub room_bytes: u64,
    /// The last part of a long trace, with which the others were compared.
    pub stretch: Option<Stretch>,
}

/// A part of a trace that stood for all of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stretch {
    /// Requests of it.
    pub requests: u64,
    /// Reads that hit, of its reads.
    pub hit_ratio: f64,
    /// Its mean of all requests.
    pub mean_ns: u64,
}

impl Proof {
    /// What was run, in a line.
    pub fn words(&self) -> String {
        words::proof(self)
    }
}

/// Runs `advice` and what lies around it, and gives the best as the engine did it. `open` reads the trace from its beginning, once, and of a
/// long one twice more for each of at most eight setups, and of logs without a cache; `done` is called after each trial.
///
/// # Errors
/// The trace's own.
pub fn prove<R>(
    disk: &Disk,
    advice: Advice,
    settings: &Settings,
    open: impl FnMut() -> Result<R, Error>,
    done: &(impl Fn() + Sync),
) -> Result<Advice, Error>
where
    R: Iterator<Item = Result<Record, Error>>,
{
    prove_on(STRETCH, disk, advice, settings, open, done)
}

/// The same, where setups are compared by the last `stretch` requests.
pub(super) fn prove_on<R>(
    stretch: usize,
    disk: &Disk,
    advice: Advice,
    settings: &Settings,
    mut open: impl FnMut() -> Result<R, Error>,
    done: &(impl Fn() + Sync),
) -> Result<Advice, Error>
where
    R: Iterator<Item = Result<Record, Error>>,
{
    let log = advice.writes.log_to_try(advice.share.flash);
    let proposal = setup(disk, advice.plan.as_ref(), log);
    if !proposal.caches() && proposal.log == 0 {
        return Ok(advice);
    }
    let mut last = VecDeque::new();
    let survey = Survey::of(open()?.inspect(|record| {
        if let Ok(record) = record {
            if last.len() == stretch {
                last.pop_front();
            }
            last.push_back(*record);
        }
    }))?;
    let models = models(settings, &survey);
    let is_whole = survey.requests() <= stretch as u64;
    let records = last.make_contiguous();
    let of_end = if is_whole { survey.clone() } else { survey.of_end(records) };
    let records = &*records;
    let flash = advice.flash_to_wear;
    let share = (advice.share, flash);
    let mut search = Search::new(disk, share, (records, &of_end), models);
    search.run(proposal, done)?;
    let mut failures = Failures::default();
    let mut worn = 0;
    loop {
        // Beyond these there is the log without a cache, which is not to fall with it.
        let is_over = failures.refused.len() + worn >= WHOLE_MAX;
        let may = |trial: &Trial| {
            let is_let = !is_over || !trial.setup.caches();
            is_let && trial.flaw().is_none() && failures.of(&trial.setup).is_none()
        };
        let Some(best) = search.best_of(may) else {
            if search.try_log_alone(proposal, done)? {
                continue;
            }
            break;
        };
        let compared = Stretch {
            requests: best.outcome.after.all.count,
            hit_ratio: best.outcome.hits.ratio,
            mean_ns: best.outcome.after.all.mean_ns,
        };
        let (setup, spares) = (best.setup, !best.wears_out(flash));
        let roomy = search.with_room(best);
        let roomy = if search.is_possible(&roomy) { roomy } else { setup };
        let stressed = |times| move || Ok(records.iter().map(move |it| Ok(faster(it, times))));
        if setup.log > 0 {
            let trial = Trial::run(setup, models, &of_end, stressed(STRESS))?;
            if trial.flaw() == Some(Flaw::Reads) {
                // That speaks against the cache, and not against the log beside it.
                failures.refused.push((setup, trial));
                continue;
            }
            if trial.flaw().is_some() {
                failures.weak.push(trial);
                search.try_larger_log(setup, done)?;
                continue;
            }
        }
        let whole = match is_whole && roomy == setup {
            true => best.clone(),
            false => Trial::run(roomy, models, &survey, &mut open)?,
        };
        done();
        if spares && whole.wears_out(flash) {
            // The end of the trace spares the flash, all of it does not: another setup may be better then.
            search.learn_wear(setup, whole.outcome.flash, done)?;
            worn += 1;
            let is_other = search.best_of(may).is_some_and(|other| other.setup != setup);
            if is_other && failures.refused.len() + worn < WHOLE_MAX {
                continue;
            }
        }
        if whole.flaw().is_none() {
            let room = (roomy.flash + roomy.ram).saturating_sub(setup.flash + setup.ram);
            // Where the journal was not used, that is how it ran.
            let strict = match whole.uses_journal() {
                true => Trial::run_in_strict_order(roomy, models, &survey, &mut open)?,
                false => whole.clone(),
            };
            let fails_under_load = || -> Result<bool, Error> {
                let open = stressed(STRICT_STRESS);
                let flaw = Trial::run_in_strict_order(setup, models, &of_end, open)?.flaw();
                // The order is not to blame for others.
                Ok(matches!(flaw, Some(Flaw::LogFull | Flaw::Writes)))
            };
            let needs_journal = setup.log > 0 && (strict.flaw().is_some() || fails_under_load()?);
            // A disk that is not told to have a journal may have none.
            let whole = if needs_journal { whole } else { strict };
            let stretch = (!is_whole).then_some(compared);
            let drive_writes = whole.drive_writes(settings.flash);
            let ran = Ran { whole: &whole, stretch, room, drive_writes, needs_journal };
            return Ok(proven(disk, advice, &Seen { search, failures }, ran));
        }
        failures.refused.push((setup, whole));
    }
    Ok(withdrawn(disk, advice, &Seen { search, failures }))
}

/// Runs of setups that had no flaw on what they were compared by.
#[derive(Default)]
struct Failures {
    /// As they were compared, and their runs of the whole trace.
    refused: Vec<(Setup, Trial)>,
    /// Their runs under a load several times as high.
    weak: Vec<Trial>,
}

impl Failures {
    /// The run in which `setup` failed, or a log that is as strong.
    fn of(&self, setup: &Setup) -> Option<&Trial> {
        let refused = self.refused.iter().find(|(of, _)| of == setup).map(|(_, whole)| whole);
        refused.or_else(|| self.weak.iter().find(|weak| is_no_stronger(setup, &weak.setup)))
    }
}

/// All that was seen of setups.
struct Seen<'a> {
    search: Search<'a>,
    failures: Failures,
}

impl Seen<'_> {
    /// Those that `is_one` is true of, each in the run in which it failed, if it did.
    fn all(&self, is_one: fn(&Setup) -> bool) -> impl Iterator<Item = &Trial> {
        let all = self.search.tried().iter().filter(move |trial| is_one(&trial.setup));
        all.map(|trial| self.failures.of(&trial.setup).unwrap_or(trial))
    }

    /// One of these did.
    fn is_any_good(&self, is_one: fn(&Setup) -> bool) -> bool {
        self.all(is_one).any(|trial| trial.flaw().is_none())
    }

    /// A cache would do, as far as all that were run whole say.
    fn has_good_cache(&self) -> bool {
        let is_refused = self.failures.refused.iter().any(|(setup, _)| setup.caches());
        !is_refused && self.is_any_good(Setup::caches)
    }

    /// The cache that is the least bad, by reads if one fails by them: it is told of with them.
    fn bad_cache(&self) -> Option<&Trial> {
        self.least_bad(Setup::caches, |flaw| flaw == Flaw::Reads)
    }

    /// The log that is the least bad, by something else than the reads of a cache beside it.
    fn bad_log(&self) -> Option<&Trial> {
        self.least_bad(Setup::logs, |flaw| flaw != Flaw::Reads)
    }

    /// The fastest of those that failed, for such a reason where there are any.
    fn least_bad(&self, is_one: fn(&Setup) -> bool, is_reason: fn(Flaw) -> bool) -> Option<&Trial> {
        let bad = self.all(is_one).filter_map(|trial| Some((!is_reason(trial.flaw()?), trial)));
        let least = bad.min_by(|(a, one), (b, other)| {
            a.cmp(b).then(one.mean_ns().total_cmp(&other.mean_ns()))
        });
        least.map(|(_, trial)| trial)
    }
}

/// Whether the log of `setup` would do no better than `log`.
fn is_no_stronger(setup: &Setup, log: &Setup) -> bool {
    setup.log > 0 && setup.log <= log.log
}

/// The same, as if time went faster.
fn faster(record: &Record, times: u64) -> Record {
    Record { time_ns: record.time_ns / times, ..*record }
}

/// The last run.
struct Ran<'a> {
    whole: &'a Trial,
    stretch: Option<Stretch>,
    room: u64,
    /// Times a day that it writes all flash there is.
    drive_writes: Option<f64>,
    /// Without the journal it would not do.
    needs_journal: bool,
}

fn proven(disk: &Disk, advice: Advice, seen: &Seen<'_>, ran: Ran<'_>) -> Advice {
    let trial = ran.whole;
    let Setup { log, .. } = trial.setup;
    let outcome = &trial.outcome;
    let plan = trial.setup.caches().then(|| plan(disk, trial));
    let verdict = match (&plan, advice.verdict) {
        (Some(_), _) => Verdict::Cache,
        (None, Verdict::Cache) => Verdict::Disproved,
        (None, verdict) => verdict,
    };
    let is_alternative = |other: &&Trial| {
        let same = Setup {
            ram: other.setup.ram,
            flash: other.setup.flash,
            block_size: other.setup.block_size,
            ..trial.setup
        };
        other.setup == same && other.setup != trial.setup && other.setup.caches()
    };
    let alternatives = seen.search.tried().iter().filter(is_alternative);
    let forgone = match verdict {
        // The log alone is faster than a cache that would do.
        Verdict::Disproved if seen.has_good_cache() => None,
        Verdict::Disproved => seen.bad_cache().map(|of| self::plan(disk, of)),
        _ => advice.forgone,
    };
    let writes = match log {
        0 => without_log(advice.writes, seen, true),
        bytes => Writes::Log { bytes },
    };
    let mut advice = Advice {
        verdict,
        writes,
        setup: trial.setup,
        mode: trial.setup.mode(),
        options: trial.setup.options(),
        alternatives: alternatives.map(|of| self::plan(disk, of)).collect(),
        before: latency(&outcome.before.all),
        after: latency(&outcome.after.all),
        flash_written_per_day: outcome.flash.and_then(|wear| wear.bytes_per_day),
        drive_writes_per_day: ran.drive_writes,
        needs_journal: ran.needs_journal,
        proof: Some(Proof {
            trials: seen.search.tried().len(),
            before: outcome.before,
            after: outcome.after,
            hits: outcome.hits,
            warm: outcome.warm,
            flash: outcome.flash,
            log: outcome.log,
            room_bytes: ran.room,
            stretch: ran.stretch,
        }),
        plan,
        forgone,
        ..advice
    };
    advice.sentence = words::sentence(&advice);
    advice
}

/// Why there is no log, where the best setup is a cache, or nothing at all.
fn without_log(proposed: Writes, seen: &Seen<'_>, caches: bool) -> Writes {
    let is_beaten =
        || caches && (proposed == Writes::CacheGainsMore || seen.is_any_good(Setup::logs));
    match proposed {
        _ if !seen.failures.weak.is_empty() => Writes::NoReserve,
        Writes::Log { .. } | Writes::CacheGainsMore if is_beaten() => Writes::CacheGainsMore,
        Writes::Log { .. } | Writes::CacheGainsMore => match seen.bad_log() {
            Some(trial) if !caches || trial.flaw() != Some(Flaw::Reads) => Writes::Disproved {
                mean_ns: trial.outcome.after.writes.mean_ns,
                is_full: trial.flaw() == Some(Flaw::LogFull),
            },
            _ if caches => Writes::CacheGainsMore,
            // None was tried, as what the disk may have is too little for one.
            _ => Writes::NoFlash,
        },
        other => other,
    }
}

/// Nothing, since nothing is better than that.
fn withdrawn(disk: &Disk, advice: Advice, seen: &Seen<'_>) -> Advice {
    let verdict = match advice.verdict {
        Verdict::Cache => Verdict::Disproved,
        other => other,
    };
    let forgone = match verdict {
        Verdict::Disproved => seen.bad_cache().map(|of| plan(disk, of)),
        _ => advice.forgone,
    };
    let writes = without_log(advice.writes, seen, false);
    let nothing = Setup { ram: 0, flash: 0, log: 0, ..advice.setup };
    let mut advice = Advice {
        writes,
        verdict,
        setup: nothing,
        mode: nothing.mode(),
        options: nothing.options(),
        plan: None,
        forgone,
        alternatives: Vec::new(),
        after: advice.before,
        flash_written_per_day: None,
        ..advice
    };
    advice.sentence = words::sentence(&advice);
    advice
}

/// The engine's run with a cache.
fn plan(disk: &Disk, trial: &Trial) -> Plan {
    let (setup, outcome) = (&trial.setup, &trial.outcome);
    let reads = outcome.hits.reads().max(1) as f64;
    let (range, is_steady) = range::of(outcome);
    let mut plan = Plan {
        ram: setup.ram,
        flash: setup.flash,
        block_size: setup.block_size,
        grid_offset: setup.grid_offset,
        policy: setup.policy.to_string(),
        ram_hit_ratio: outcome.hits.ram as f64 / reads,
        flash_hit_ratio: outcome.hits.flash as f64 / reads,
        hit_ratio: outcome.hits.ratio,
        first_ratio: choose::first_uses_of(disk, setup.block_size),
        hit_ratio_range: [0.0; 2],
        is_steady,
        read: latency(&outcome.after.reads),
        read_mean_range_ns: [0.0; 2],
        read_p99_range_ns: [0.0; 2],
        metadata_bytes: outcome.metadata_bytes,
    };
    plan.expect(range, &disk.latencies);
    plan
}

fn latency(of: &forebay_core::stats::LatencySummary) -> Latency {
    Latency { mean_ns: of.mean_ns as f64, p99_ns: of.p99_ns as f64 }
}

#[cfg(test)]
mod tests;
