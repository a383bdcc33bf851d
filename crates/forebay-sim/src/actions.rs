//! An administrator's actions on a disk, with one I/O in their way that fails: the first, the
//! second, the third, …
//!
//! ```text
//!  short run, half of its requests ─► the action begins; the n-th I/O from now on meets its fate
//!     ─► the action ends ─► (crash, or none) ─► the other half ─► compare
//!  n = 1, 2, 3, … until the action ends without reaching its I/O
//! ```
//! After any fate the action comes to its end, or the disk is as it was. Nothing acknowledged is
//! lost. The disk goes on, and starts again. The starts behind an orderly end may also die, after
//! any of their steps.

use forebay_core::action::Target;
use forebay_core::config::{FlashAdmission, Mode, SequentialBypass};
use forebay_core::engine::Growth;
use forebay_core::geometry::{PAGE, SECTOR};
use forebay_core::ids::Nanos;

use crate::coverage::Coverage;
use crate::device::Fate;
use crate::epochs::Trust;
use crate::log::Log;
use crate::planted::Planted;
use crate::recovery::{Death, Deaths};
use crate::rng::Rng;
use crate::run::caught;
use crate::setup::Setup;
use crate::short;
use crate::warm;
use crate::world::World;

/// What is done to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To a mode without the log.
    LeaveLog,
    /// To a mode with the log, from one without.
    EnterLog,
    /// There and back, before the first change has ended.
    ChangeMind,
    /// Waits until primary storage has everything.
    Flush,
    /// Stops destaging, and lets it go on later.
    Pause,
    /// SIGTERM, and a start.
    ShutDown,
    /// The same while destaging is paused and the log is full, or as full as it gets.
    ShutDownFull,
    /// Drops what is cached.
    DropCache,
    /// Has it grow to what primary storage has become.
    Grow,
    /// Destages everything and forgets the log.
    Detach,
}

impl Action {
    /// All of them.
    pub const ALL: [Action; 10] = [
        Action::LeaveLog,
        Action::EnterLog,
        Action::ChangeMind,
        Action::Flush,
        Action::Pause,
        Action::ShutDown,
        Action::ShutDownFull,
        Action::DropCache,
        Action::Grow,
        Action::Detach,
    ];
}

/// A run with an action and a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The short run.
    pub seed: u64,
    /// The action.
    pub action: Action,
    /// The I/O of this device,
    pub target: Target,
    /// with this number, from 1,
    pub nth: u64,
    /// meets this fate.
    pub fate: Fate,
    /// The end: a crash (with its host?), or none.
    pub crash: Option<bool>,
    /// The first two starts after the action die so.
    pub starts_die: Option<Death>,
}

/// A trial that broke a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The trial.
    pub trial: Trial,
    /// The rule.
    pub message: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.trial, self.message)
    }
}

impl std::error::Error for Failure {}

/// Runs one; whether the I/O was reached.
///
/// # Errors
/// A rule was broken.
pub fn run(trial: &Trial, planted: Planted, log: &Log) -> Result<(bool, Coverage), Failure> {
    caught(|| {
        let mut rng = Rng::new(trial.seed);
        let mut setup = short::setup(trial.seed, &mut rng);
        setup.quiet = false;
        setup.mode_changes = 0;
        setup.config.backend_timeout = Nanos::from_millis(40);
        setup.config.flash_timeout = Nanos::from_millis(10);
        setup.config.mode = Mode::WriteBack;
        if trial.action == Action::Grow {
            longer_storage(&mut rng, &mut setup);
        }
        if trial.starts_die.is_some() {
            long_writes(&mut setup);
        }
        if CACHE.contains(&trial.target) || trial.action == Action::DropCache {
            cache_on_flash(&mut rng, &mut setup);
        }
        log.line(Nanos(0), || format!("{trial:?}: {setup:?}"));
        let mut world = World::new(setup, planted, log, rng);
        world.deaths = Deaths::Planned(trial.starts_die.into_iter().cycle().take(2).collect());
        world.open_log();
        let reached = world.attempt(trial);
        world.coverage.note_engine(&world.engine);
        (reached, world.coverage)
    })
    .map_err(|message| Failure { trial: *trial, message })
}

/// I/Os that no action of a short run has.
const NTH_MAX: u64 = 5_000;

/// Devices whose I/Os fail with each fate: what they have is on no other one.
pub const DURABLE: [Target; 2] = [Target::Log, Target::Backend];
/// Devices of the cache, whose I/Os take turns with their fates.
pub const CACHE: [Target; 2] = [Target::Flash, Target::Ring];

/// Runs an action of a seed with each of its I/Os on these devices failing.
///
/// # Errors
/// A rule was broken.
pub fn sweep(
    seed: u64,
    action: Action,
    targets: &[Target],
    planted: Planted,
) -> Result<Coverage, Failure> {
    let log = Log::default();
    let mut coverage = Coverage::default();
    for &target in targets {
        let takes_turns = CACHE.contains(&target);
        let passes = if takes_turns { 1 } else { Fate::ALL.len() };
        for kind in 0..passes {
            for nth in 1.. {
                let turn = if takes_turns { (nth + seed) as usize } else { kind };
                let fate = Fate::ALL[turn % Fate::ALL.len()];
                let crash = [None, Some(false), Some(true)][(nth as usize + kind) % 3];
                let trial = Trial { seed, action, target, nth, fate, crash, starts_die: None };
                assert!(nth < NTH_MAX, "no action has so many I/Os: {trial:?}");
                let (reached, seen) = run(&trial, planted, &log)?;
                coverage.add(&seen);
                coverage.trials += 1;
                if !reached {
                    break;
                }
            }
        }
    }
    Ok(coverage)
}

/// Runs an action after which the first two starts die after each of their steps, with and without their host; no I/O
/// fails.
///
/// # Errors
/// A rule was broken.
pub fn sweep_starts(seed: u64, action: Action, planted: Planted) -> Result<Coverage, Failure> {
    let log = Log::default();
    let mut coverage = Coverage::default();
    let (target, nth, fate) = (Target::Log, u64::MAX, Fate::ALL[0]);
    for after in 0..NTH_MAX {
        for power in [false, true] {
            let starts_die = Some(Death { after, power });
            let trial = Trial { seed, action, target, nth, fate, crash: None, starts_die };
            let (_, seen) = run(&trial, planted, &log)?;
            coverage.add(&seen);
            coverage.trials += 1;
            if seen.recoveries_cut == 0 {
                return Ok(coverage);
            }
        }
    }
    panic!("no start has so many steps");
}

/// Writes of more than a group, of which a full log has the first part while all of them wait.
fn long_writes(setup: &mut Setup) {
    setup.config.requests_max = 64;
    setup.load.length_max = setup.config.backend.size;
    setup.load.weights[1] = 100;
}

/// A cache on flash with a ring, which short runs do not have otherwise, and reads that fill it.
fn cache_on_flash(rng: &mut Rng, setup: &mut Setup) {
    let config = &mut setup.config;
    config.flash_bytes = rng.between(2, 24) * config.block_size;
    config.flash_admission = FlashAdmission::Always;
    config.sequential_bypass = SequentialBypass::Off;
    while config.ring.is_none() {
        warm::ring(rng, config);
    }
    if let Some(ring) = &mut config.ring {
        ring.record_delay = Nanos::from_micros(rng.pick(&[50, 500, 5_000]));
        ring.mark_delay = Nanos::from_micros(rng.pick(&[100, 2_000, 20_000]));
    }
    setup.load.weights[0] = 10;
}

/// Primary storage that has become longer, under a disk that ends anywhere and is used most at its end.
fn longer_storage(rng: &mut Rng, setup: &mut Setup) {
    let backend = &mut setup.config.backend;
    let logical = u64::from(backend.logical_block);
    setup.longer_by = rng.between(1, backend.size / logical / 2) * logical;
    backend.size -= setup.longer_by;
    setup.load.spots = vec![backend.size.saturating_sub(2 * PAGE)];
    setup.load.hot = 700;
}

impl World<'_> {
    fn attempt(&mut self, trial: &Trial) -> bool {
        let requests = self.setup.load.requests;
        self.live_until(requests / 2);
        if trial.action == Action::EnterLog {
            self.change_mode(Mode::WriteThrough);
            self.until("write-through", |world| !world.engine.mode().logs());
        }
        let device = match trial.target {
            Target::Backend => &mut self.backend,
            Target::Flash => &mut self.flash,
            Target::Log => &mut self.pool.device,
            Target::Ring => &mut self.ring.device,
            Target::Journal => &mut self.journal.as_mut().expect("it has one").device,
        };
        device.fate = Some((trial.nth, trial.fate));
        self.act(trial.action);
        let device = match trial.target {
            Target::Backend => &mut self.backend,
            Target::Flash => &mut self.flash,
            Target::Log => &mut self.pool.device,
            Target::Ring => &mut self.ring.device,
            Target::Journal => &mut self.journal.as_mut().expect("it has one").device,
        };
        let reached = device.fate.take().is_none();
        if trial.action == Action::Detach {
            self.check_detached();
            return reached;
        }
        if let Some(power) = trial.crash {
            self.crash(power);
        }
        self.live_until(requests);
        self.drain();
        self.read_everything();
        reached
    }

    fn act(&mut self, action: Action) {
        let is_out = |world: &World<'_>| !world.engine.mode().logs();
        match action {
            Action::LeaveLog => {
                self.change_mode(Mode::WriteThrough);
                self.until("write-through", is_out);
            }
            Action::EnterLog => {
                self.change_mode(Mode::WriteBack);
                self.until("write-back", |world| {
                    world.engine.mode().logs() || world.coverage.log_failed > 0
                });
            }
            Action::ChangeMind => {
                self.change_mode(Mode::WriteThrough);
                self.live_until(self.clients.made + 1);
                self.change_mode(Mode::WriteBack);
                self.until("write-back", |world| {
                    world.engine.mode().logs() || world.coverage.log_failed > 0
                });
            }
            Action::Flush => self.until("everything destaged", |world| {
                world.log_statistics().is_clean && world.clients.asked.is_empty()
            }),
            Action::Pause => {
                self.engine.pause_destaging(self.now, true, &mut self.actions);
                self.live_while_paused(self.clients.made + 4);
                self.engine.pause_destaging(self.now, false, &mut self.actions);
            }
            Action::DropCache => {
                self.engine.drop_cache(self.now, &mut self.actions);
                self.dropped.ask();
                self.until("an empty cache", |world| !world.dropped.is_awaited());
            }
            Action::Grow => {
                self.grow();
                // Those who knew of the old end are answered at the new one.
                self.live_until(self.clients.made + 8);
            }
            Action::ShutDown => self.shut_down_and_start(),
            Action::ShutDownFull => {
                self.engine.pause_destaging(self.now, true, &mut self.actions);
                self.live_while_paused(self.setup.load.requests);
                self.setup.load.requests += 4;
                self.shut_down_and_start();
            }
            Action::Detach => {
                self.clients.are_away = true;
                self.change_mode(Mode::WriteThrough);
                self.until("write-through", is_out);
                self.engine.shut_down(self.now, &mut self.actions);
                self.until("the end", |world| world.engine.is_idle());
                // The last thing that the shard does.
                self.backend.flush_all();
            }
        }
    }

    /// The disk has what primary storage has, when nothing is in flight at its end any more.
    fn grow(&mut self) {
        let size = self.setup.config.backend.size + std::mem::take(&mut self.setup.longer_by);
        self.log.line(self.now, || format!("grow to {size}"));
        loop {
            self.carry_out();
            match self.engine.grow(self.now, size, &mut self.actions).expect("it is longer") {
                Growth::Done => break,
                Growth::Busy => assert!(self.step(), "its end is never at rest"),
            }
            self.coverage.busy_ends += 1;
        }
        self.setup.config.backend.size = size;
        self.pool.disk_size = size;
        self.clients.workload.grow(size);
    }

    /// Ends the process in order, as SIGTERM does, and starts it again.
    pub(crate) fn shut_down_and_start(&mut self) {
        self.clients.are_away = true;
        self.engine.shut_down(self.now, &mut self.actions);
        self.until("the end", |world| world.engine.is_idle());
        self.send();
        let is_durable = self.log_statistics().is_durable;
        self.start_again(is_durable);
        self.clients.are_away = false;
    }

    fn change_mode(&mut self, mode: Mode) {
        self.log.line(self.now, || format!("mode {mode:?}"));
        self.coverage.mode_changes += 1;
        self.epochs.trust = Trust::Nothing;
        self.setup.config.mode = mode;
        self.engine.set_mode(self.now, mode, &mut self.actions).expect("there is a log");
    }

    pub(crate) fn log_statistics(&self) -> forebay_core::stats::LogStatistics {
        self.engine.log_statistics(self.now).expect("there is a log")
    }

    fn live_until(&mut self, requests: u64) {
        self.live_unless(requests, |_| false);
    }

    /// The same while destaging is paused: when the log fails, writers wait until it goes on.
    fn live_while_paused(&mut self, requests: u64) {
        self.live_unless(requests, |world| world.coverage.log_failed > 0);
    }

    fn live_unless(&mut self, requests: u64, is_over: impl Fn(&World<'_>) -> bool) {
        let requests = requests.min(self.setup.load.requests);
        if self.clients.made < requests {
            self.queue.plan(self.now, crate::world::Event::Clients);
        }
        while self.clients.made < requests && !is_over(self) {
            assert!(self.step(), "nothing happens, and clients are not done");
        }
    }

    /// Waits for something that has to come.
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&World<'_>) -> bool) {
        self.carry_out();
        while !is_so(self) {
            assert!(self.step(), "it never comes to this: {what}");
            self.carry_out();
        }
    }

    /// The disk has no log any more, and primary storage no power.
    fn check_detached(&mut self) {
        let disk = self.setup.config.disk();
        let bytes = self.backend.after_loss(&mut self.rng);
        assert!(disk.len() == bytes.len() as u64 && disk.is_aligned(SECTOR));
        let arrival = self.clients.arrive();
        let seen = self.oracle.observe(arrival, disk, &bytes);
        seen.unwrap_or_else(|wrong| panic!("primary storage of a detached disk: {wrong}"));
    }
}
