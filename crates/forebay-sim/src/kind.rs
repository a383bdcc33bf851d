//! The kinds of runs that there are, to run any of them by its name and a seed.

use clap::ValueEnum;
use forebay_core::action::Target;

use crate::actions::{self, Trial};
use crate::device::Fate;
use crate::log::Log;
use crate::planted::Planted;
use crate::run::caught;
use crate::short::{self, Crash};
use crate::trace::TraceHash;
use crate::{setup, world};

/// A kind of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// All that may happen to a disk: faults, kills, losses of power.
    Disaster,
    /// Caches that restart often.
    Warm,
    /// Clients that compare and write.
    Compare,
    /// Logs whose flash dies.
    DeadFlash,
    /// Logs whose flash gives back other bytes.
    RottenFlash,
    /// Power that fails while the index of the cache is written.
    TornIndex,
    /// Much that is discarded.
    Discard,
    /// Modes that change often.
    Switch,
    /// Windows that go through a journal.
    Journal,
    /// Settings that change while the disk is at work.
    Tune,
    /// Restarts with another size of flash.
    Resize,
    /// Thousands of small blocks on flash.
    Crowd,
    /// Several of these at once.
    Mixed,
    /// Caches that hardly any start believes.
    Cold,
    /// Primary storage that carries out late what a dead process had sent.
    Unsettled,
    /// Short runs without a crash.
    Short,
    /// Short runs that crash once, and once more while they recover.
    Crash,
    /// An administrator's actions, with an I/O that fails.
    Administrator,
}

impl Kind {
    /// Runs it, and tells what the engine did; a rule that was broken is said beside.
    pub fn run(self, seed: u64, log: &Log) -> (TraceHash, Result<(), String>) {
        let long = |first: u64| {
            caught(|| world::run(first + seed, Planted::Nothing, log)).map(|_coverage| ())
        };
        let came = match self {
            Kind::Disaster => long(0),
            Kind::Warm => long(setup::RESTARTING),
            Kind::Compare => long(setup::COMPARING),
            Kind::DeadFlash => long(setup::DYING),
            Kind::RottenFlash => long(setup::ROTTING),
            Kind::TornIndex => long(setup::TEARING),
            Kind::Discard => long(setup::DISCARDING),
            Kind::Switch => long(setup::SWITCHING),
            Kind::Journal => long(setup::JOURNALED),
            Kind::Tune => long(setup::TUNED),
            Kind::Resize => long(setup::RESIZED),
            Kind::Crowd => long(setup::CROWDED),
            Kind::Mixed => long(setup::MIXED),
            Kind::Cold => long(setup::COLD),
            Kind::Unsettled => long(setup::UNSETTLED),
            Kind::Short => short_run(seed, None, log),
            Kind::Crash => crash(seed, log),
            Kind::Administrator => administrator(seed, log),
        };
        (log.trace_hash(), came)
    }
}

fn short_run(seed: u64, crash: Option<&Crash>, log: &Log) -> Result<(), String> {
    let came = short::run(seed, crash, Planted::Nothing, log);
    came.map(|_passed| ()).map_err(|failure| failure.message)
}

fn crash(seed: u64, log: &Log) -> Result<(), String> {
    let whole = short::run(seed, None, Planted::Nothing, &Log::default());
    let points = whole.map_err(|failure| failure.message)?.points.max(1);
    // Primes, so that seeds next to each other die in different places.
    let point = 1 + seed.wrapping_mul(7919) % points;
    let again = Some((seed.wrapping_mul(104_729) % 12, seed.is_multiple_of(3)));
    short_run(seed, Some(&Crash { point, power: seed.is_multiple_of(2), again }), log)
}

fn administrator(seed: u64, log: &Log) -> Result<(), String> {
    let targets = [Target::Backend, Target::Log, Target::Flash, Target::Ring];
    let at = |count: usize, stride: u64| (seed / stride) as usize % count;
    let trial = Trial {
        seed,
        action: actions::Action::ALL[at(actions::Action::ALL.len(), 1)],
        target: targets[at(targets.len(), 10)],
        nth: 1 + seed.wrapping_mul(7919) % 24,
        fate: Fate::ALL[at(Fate::ALL.len(), 40)],
        crash: [None, Some(false), Some(true)][at(3, 1)],
        starts_die: None,
    };
    let came = actions::run(&trial, Planted::Nothing, log);
    came.map(|_reached| ()).map_err(|failure| failure.message)
}
