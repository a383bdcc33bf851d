//! Short runs, crashed everywhere. A crash comes at each instant at which something of the log or
//! of primary storage changes or completes. Another comes at each step of the recovery that
//! follows.
//!
//! ```text
//!  run whole ─► points 1..n        look at primary storage alone at each (loss of all flash)
//!  for each point, for each kind of death (process, host):
//!      run, crash there, recover, go on to the end, compare
//!      now and then: crash the recovery, too, after each of its steps
//! ```
//! A run is the same up to its crash, because nothing before it depends on the crash. A crash
//! takes back a random set of writes, another one at each point.

use forebay_core::action::{Io, IoOp, Target};
use forebay_core::config::{DestageOrder, FlushSemantics, GridOffset, Mode, WriteLogConfig};
use forebay_core::geometry::{PAGE, SECTOR};
use forebay_core::ids::Nanos;

use crate::coverage::Coverage;
use crate::device::Faults;
use crate::log::Log;
use crate::planted::Planted;
use crate::recovery::{Death, Deaths};
use crate::rng::Rng;
use crate::run::caught;
use crate::setup::{self, Setup};
use crate::world::World;

/// Where a run is at: the instants at which it may be crashed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Points {
    passed: u64,
    is_new: bool,
    /// The run is being compared by now.
    pub are_over: bool,
    /// Primary storage is looked at, at each of them.
    looks: bool,
    crash: Option<(u64, bool)>,
}

impl Points {
    /// An I/O takes effect, or completes.
    pub(crate) fn note(&mut self, io: &Io) {
        let changes = match io.op {
            IoOp::Write { .. }
            | IoOp::Flush
            | IoOp::Discard
            | IoOp::WriteZeroes { .. }
            | IoOp::Progress { .. } => io.target != Target::Flash,
            IoOp::Read { .. } | IoOp::Extents => false,
        };
        self.is_new |= changes && !self.are_over;
    }
}

/// A crash of a short run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// At this point, the first being 1.
    pub point: u64,
    /// The host dies, not just the process.
    pub power: bool,
    /// After so many of its steps the recovery dies; with its host?
    pub again: Option<(u64, bool)>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Passed {
    /// Points that it had.
    pub points: u64,
    /// Steps of its last recovery.
    pub steps: u64,
    /// What was exercised.
    pub coverage: Coverage,
}

/// A run that broke a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The run.
    pub seed: u64,
    /// Its crash.
    pub crash: Option<Crash>,
    /// The rule.
    pub message: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Failure { seed, crash, message } = self;
        write!(f, "short run {seed}: {message}; replay: soak --short --seed {seed} --verbose")?;
        match crash {
            None => Ok(()),
            Some(crash) => write!(f, " --crash {crash}"),
        }
    }
}

impl std::error::Error for Failure {}

impl std::fmt::Display for Crash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = |power| if power { "power" } else { "process" };
        write!(f, "{}:{}", self.point, kind(self.power))?;
        match self.again {
            None => Ok(()),
            Some((after, power)) => write!(f, ",{after}:{}", kind(power)),
        }
    }
}

/// Runs one, whole or crashed.
///
/// # Errors
/// A rule was broken.
pub fn run(
    seed: u64,
    crash: Option<&Crash>,
    planted: Planted,
    log: &Log,
) -> Result<Passed, Failure> {
    caught(|| {
        let mut rng = Rng::new(seed);
        let setup = setup(seed, &mut rng);
        log.line(Nanos(0), || format!("short run {seed}: {setup:?}"));
        let mut world = World::new(setup, planted, log, rng);
        let again = crash.and_then(|crash| crash.again);
        let deaths = again.map(|(after, power)| Death { after, power });
        world.deaths = Deaths::Planned(deaths.into_iter().collect());
        world.points.looks = crash.is_none();
        world.points.crash = crash.map(|crash| (crash.point, crash.power));
        world.open_log();
        world.run_through();
        Passed { points: world.points.passed, steps: world.pool.steps, coverage: world.coverage }
    })
    .map_err(|message| Failure { seed, crash: crash.cloned(), message })
}

/// Crashes a run at every `stride`-th point, and its recoveries at each step for every `again`-th of those.
///
/// # Errors
/// A rule was broken.
pub fn sweep(seed: u64, stride: u64, again: u64, planted: Planted) -> Result<Coverage, Failure> {
    let log = Log::default();
    let whole = run(seed, None, planted, &log)?;
    let mut coverage = whole.coverage;
    for point in (1 + seed % stride..=whole.points).step_by(stride as usize) {
        for power in [false, true] {
            let crash = Crash { point, power, again: None };
            let once = run(seed, Some(&crash), planted, &log)?;
            coverage.add(&once.coverage);
            if (point + u64::from(power)) % again != 0 {
                continue;
            }
            for (after, power) in (0..once.steps).flat_map(|n| [(n, false), (n, true)]) {
                let crash = Crash { again: Some((after, power)), ..crash.clone() };
                coverage.add(&run(seed, Some(&crash), planted, &log)?.coverage);
            }
        }
    }
    Ok(coverage)
}

/// A small disk under few writes, with one of the ways to use a log for each seed in turn.
pub(crate) fn setup(seed: u64, rng: &mut Rng) -> Setup {
    let mut setup = setup::setup(rng);
    let config = &mut setup.config;
    config.backend.size = (64 << 10) + rng.below(8) * 8192;
    config.backend.read_only = false;
    config.block_size = PAGE << rng.below(3);
    let logical = u64::from(config.backend.logical_block);
    let offset = rng.below(config.block_size / logical) * logical;
    config.grid_offset = GridOffset::Fixed(if rng.chance(500) { offset } else { 0 });
    config.ram_bytes = rng.below(4) * config.block_size;
    (config.flash_bytes, config.ring) = (0, None);
    config.requests_max = rng.pick(&[2, 8, 32]);
    config.mode = rng.pick(&[Mode::WriteBack, Mode::WriteBack, Mode::WriteOnly]);
    let mut log = WriteLogConfig::new(16, rng.between(3, 6) as u32);
    log.staging = true;
    log.destage_delay = Nanos::from_micros(rng.pick(&[0, 100, 2000]));
    log.destage_yield = log.destage_yield.min(log.destage_delay);
    setup.mode_changes = 0;
    match seed % 8 {
        0 | 1 => {}
        2 => log.barrier = true,
        3 => log.order = DestageOrder::Window,
        4 => {
            let dirty_age_max = Nanos::from_micros(rng.between(500, 20_000));
            log.flush = FlushSemantics::Deferred { dirty_age_max };
        }
        5 => log.staging = false,
        6 => setup.mode_changes = rng.between(1, 3) as u32,
        _ => config.mode = Mode::WriteThrough,
    }
    config.write_log = Some(log);
    config.backend_timeout = Nanos::from_millis(100_000);
    config.flash_timeout = Nanos::from_millis(100_000);
    setup.quiet = true;
    (setup.backend, setup.flash, setup.log) =
        (Faults::default(), Faults::default(), Faults::default());
    setup.disasters = 0;
    setup.check_every = 16;
    if seed >= setup::COMPARING {
        setup.load.compares = rng.pick(&[300, 700]);
    }
    let load = &mut setup.load;
    load.requests = rng.between(10, 24);
    load.weights = [3, 40, 8, 2, 3, 0, 0, 0, 0];
    load.length_max = SECTOR << rng.between(2, 6);
    load.pause_max = Nanos::from_micros(rng.pick(&[10, 200, 1000]));
    load.spots = vec![0, 24 << 10];
    load.pages_left = None;
    if seed % 16 == 3 {
        // Durable writers, whose groups go two at a time.
        (load.fua, load.burst_max, load.weights) = (1000, 1, [3, 40, 0, 0, 0, 0, 0, 0, 0]);
        (load.hot, load.length_max, load.pause_max) = (0, PAGE, Nanos::from_micros(50));
        setup.config.requests_max = 32;
    }
    if seed % 16 == 8 {
        // Writers that never flush: segments fill, and others begin behind them, before anything is durable.
        (load.fua, load.weights) = (0, [3, 40, 0, 0, 3, 0, 0, 0, 0]);
        load.length_max = 8 * PAGE;
        let log = setup.config.write_log.as_mut().expect("a log");
        log.destage_delay = Nanos::from_millis(1_000);
    }
    if load.compares > 0 {
        (load.hot, load.sequential) = (1000, 0);
    }
    setup
}

impl World<'_> {
    /// Perhaps something happens at the point that was just reached.
    pub(crate) fn look_at_point(&mut self) {
        if !std::mem::take(&mut self.points.is_new) {
            return;
        }
        self.points.passed += 1;
        if self.points.looks {
            self.check_prefix();
            self.check_prefix_after_loss(&mut Rng::new(self.points.passed));
        }
        if let Some((_, power)) =
            self.points.crash.take_if(|(point, _)| *point == self.points.passed)
        {
            self.crash(power);
        }
    }
}
