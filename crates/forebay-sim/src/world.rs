//! One simulated disk: the real engine, its devices, its clients, and the order of events.
//!
//! ```text
//!  clients ──submit──► engine ──actions──► executor.rs ──issue──► device.rs
//!     ▲                  ▲                     │                     │ execute, complete
//!     └── client.rs ◄────┼──────replies────────┘                     │
//!         oracle.rs      └───────────────complete────────────────────┘
//! ```
//! Time is virtual. One thing happens at a time; what is due first happens first.

use std::collections::BTreeMap;

use forebay_core::action::{Actions, Target};
use forebay_core::engine::Engine;
use forebay_core::ids::{IoId, Nanos, SegmentId};
use forebay_core::stats::TimeStatistics;
use forebay_core::write_back::format::build::LogBuilder;

use crate::administrator::AskedFlush;
use crate::client::Clients;
use crate::coverage::Coverage;
use crate::device::{Device, Faults, Pending};
use crate::epochs::Epochs;
use crate::journal::JournalMedium;
use crate::log::Log;
use crate::memory::Memory;
use crate::oracle::Oracle;
use crate::planted::Planted;
use crate::pool::{DISK, NONCE, Pool};
use crate::recovery::Deaths;
use crate::rng::Rng;
use crate::setup::{self, Setup};
use crate::short::Points;
use crate::stamp;
use crate::unsettled::Former;
use crate::warm::{Dropped, RingMedium};
use crate::workload::Workload;
use forebay_timed::queue::Queue;

/// Events without which a run has lost its way.
const EVENTS_MAX: u64 = 2_000_000;

/// Sets the chances of a journal apart.
const JOURNAL: u64 = 0x6a6f_7572_6e61_6c00;

/// Idle memory of requests goes back after so many events.
const GIVE_BACK_EVERY: u64 = 512;

/// Actions are carried out at the latest before nothing happens for this long.
const ROUND_MAX: Nanos = Nanos::from_micros(10);

/// What happens next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The I/O takes effect. The second number is the attempt.
    Execute(u64, u32),
    /// The I/O completes.
    Complete(u64, u32),
    /// The engine gets the result of a comparison.
    Compared(IoId, Option<u64>),
    /// Clients make requests.
    Clients,
    /// Something hits everything.
    Disaster,
    /// A client is done with the data of a reply.
    Release(u64),
    /// The pool answers a request for a segment.
    Lease,
    /// The pool leases a segment of the log to it anew.
    Renewal(SegmentId),
    /// There is memory for the rest of the groups, or none.
    Staging,
    /// That the ring must not be believed is noted.
    Void,
    /// That nothing on the log's flash is to be believed is noted, or cannot be.
    Revoke,
    /// That the journal does not count is noted beside primary storage, or cannot be.
    RevokeJournal,
    /// A write in place takes effect that was reported before (planted bug).
    Late(u64),
    /// An administrator wants another mode.
    Mode,
    /// An administrator wants other settings.
    Tune,
    /// An administrator wants another size of the RAM cache.
    Resize,
    /// The flash cache is to have another size.
    ResizeFlash,
    /// Memory is there up to this place, of what was wanted after so many resizes.
    Memory(u64, u64),
    /// An administrator drops the cache.
    DropCache,
    /// Power fails.
    PowerLoss,
    /// An administrator pauses destaging, flushes primary storage, or has the disk grow.
    Visit,
    /// Destaging that was paused goes on.
    Resume,
    /// What a dead process had sent takes effect.
    Land(u64),
    /// Nothing of a former process can do so any more.
    Settled,
    /// The process dies.
    Death,
}

/// An I/O in flight on a device.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub target: Target,
    pub pending: Pending,
    /// An I/O is tried again on a new session.
    pub attempt: u32,
}

/// See the module.
pub(crate) struct World<'a> {
    pub now: Nanos,
    pub setup: Setup,
    pub engine: Engine,
    pub actions: Actions,
    pub memory: Memory,
    pub builder: LogBuilder,
    pub queue: Queue<Event>,
    pub backend: Device,
    pub flash: Device,
    pub pool: Pool,
    pub ring: RingMedium,
    pub journal: Option<JournalMedium>,
    /// Writes in place that were reported and not made (planted bug).
    pub late: BTreeMap<u64, Pending>,
    pub dropped: Dropped,
    pub former: Former,
    pub asked_flush: Option<AskedFlush>,
    pub ios: BTreeMap<u64, InFlight>,
    pub ios_issued: u64,
    pub clients: Clients,
    pub oracle: Oracle,
    pub epochs: Epochs,
    pub log: &'a Log,
    pub coverage: Coverage,
    pub planted: Planted,
    /// Comparisons of the actions that are being carried out: told when all are.
    pub comparisons: Vec<(IoId, Option<u64>)>,
    /// The result of the last comparison, for an executor that mixes them up (planted bug).
    pub compared_last: Option<u64>,
    /// Checksums of what was written to flash, for an executor that does not look (planted bug).
    pub trusted: BTreeMap<u64, u32>,
    pub rng: Rng,
    /// For what came later: with it, older seeds do what they always did up to there.
    pub chance: Rng,
    pub deaths: Deaths,
    pub points: Points,
    /// How often the RAM cache got another size, or began anew.
    pub resizes: u64,
    /// Crashes to come while primary storage is dead.
    pub crashes_left: u64,
    pub events: u64,
    /// The process ends in order.
    pub is_ending: bool,
}

/// Runs one seed to its end; panics when a rule was broken.
pub fn run(seed: u64, planted: Planted, log: &Log) -> Coverage {
    let (setup, rng) = setup::of_seed(seed);
    log.line(Nanos(0), || format!("seed {seed}: {setup:?}"));
    let mut world = World::new(setup, planted, log, rng);
    world.open_log();
    world.run_through();
    world.coverage
}

impl<'a> World<'a> {
    /// The whole run.
    pub(crate) fn run_through(&mut self) {
        self.live();
        if self.setup.log_dies {
            while self.is_saving() && self.step() {}
            self.crash_and_revive();
        }
        self.drain();
        self.points.are_over = true;
        if self.chance.chance(500) {
            self.restart_in_order();
        }
        self.read_everything();
        self.coverage.note_engine(&self.engine);
    }

    pub(crate) fn new(setup: Setup, planted: Planted, log: &'a Log, mut rng: Rng) -> World<'a> {
        let engine = Engine::new(setup.config).expect("a configuration that works");
        let disk = setup.config.backend.size;
        let size = disk + setup.longer_by;
        let mut backend = Device::new(size, true, rng.fork());
        if setup.stamped {
            backend.stamp_all(stamp::INITIAL);
        }
        backend.faults = setup.backend;
        backend.discards = setup.discards;
        backend.timeout = setup.config.backend_timeout;
        let flash = flash(&setup, &engine, rng.fork());
        let pool = Pool::new(&setup, planted, rng.fork());
        let version = if setup.stamped { stamp::INITIAL } else { stamp::ZEROES };
        World {
            now: Nanos(1),
            memory: Memory::new(engine.memory_size()),
            builder: LogBuilder::new(DISK, NONCE),
            queue: Queue::default(),
            ios: BTreeMap::new(),
            ios_issued: 0,
            clients: Clients::new(Workload::new(setup.load.clone(), disk, rng.fork())),
            oracle: Oracle::new(size, version),
            epochs: Epochs::new(size, version),
            actions: Actions::with_capacity(64),
            coverage: Coverage::default(),
            deaths: Deaths::ByChance,
            points: Points::default(),
            crashes_left: 0,
            resizes: 0,
            events: 0,
            is_ending: false,
            engine,
            backend,
            flash,
            pool,
            journal: JournalMedium::new(&setup, Rng::new(setup.seed ^ JOURNAL).fork()),
            late: BTreeMap::new(),
            dropped: Dropped::default(),
            former: Former::default(),
            asked_flush: None,
            ring: RingMedium::new(Rng::new(setup.seed).fork()),
            log,
            planted,
            comparisons: Vec::new(),
            compared_last: None,
            trusted: BTreeMap::new(),
            chance: Rng::new(setup.seed),
            rng,
            setup,
        }
    }

    /// Clients at work, until they asked for everything they wanted.
    fn live(&mut self) {
        self.queue.plan(self.now, Event::Clients);
        let span = self.setup.load.requests * self.setup.load.pause_max.0;
        for _ in 0..self.setup.disasters {
            let at = Nanos(self.rng.below(span.max(1)));
            self.queue.plan(at, Event::Disaster);
        }
        for _ in 0..self.setup.mode_changes {
            let at = Nanos(self.rng.below(span.max(1)));
            self.queue.plan(at, Event::Mode);
        }
        for _ in 0..self.setup.tunings {
            let at = Nanos(self.rng.below(span.max(1)));
            self.queue.plan(at, Event::Tune);
            let at = Nanos(self.rng.below(span.max(1)));
            self.queue.plan(at, Event::Resize);
        }
        for _ in 0..self.setup.flash_changes {
            let at = Nanos(self.rng.below(span.max(1)));
            self.queue.plan(at, Event::ResizeFlash);
        }
        for _ in 0..self.setup.visits {
            let at = Nanos(self.rng.below(span.max(1)));
            self.queue.plan(at, Event::Visit);
        }
        // With chance of its own: seeds of before do what they did, but for this.
        let mut chance = Rng::new(!self.setup.seed);
        if chance.chance(200) {
            let at = Nanos(chance.below(span.max(1)));
            self.queue.plan(at, Event::DropCache);
        }
        while self.clients.made < self.setup.load.requests {
            self.step();
        }
    }

    /// No new requests and no new faults: everything has to come to an end.
    pub(crate) fn drain(&mut self) {
        self.backend.faults = Faults::default();
        self.flash.faults = Faults::default();
        self.ring.device.faults = Faults::default();
        self.pool.device.faults = Faults::default();
        self.pool.device.fate = None;
        self.backend.fate = None;
        self.backend.dead = false;
        if let Some(journal) = &mut self.journal {
            (journal.device.faults, journal.device.dead) = (Faults::default(), false);
            journal.device.fate = None;
        }
        self.give_back_held_buffers();
        // Nobody may have to wait for the other disks of the pool, but a log asks for segments until it has them.
        while !self.clients.asked.is_empty() && self.step() {}
        self.setup.segments_left = None;
        while self.step() {}
        self.carry_out();
        self.send();
        assert!(self.clients.asked.is_empty(), "unanswered: {:?}", self.clients.asked);
        assert!(self.ios.is_empty(), "I/Os without end: {:?}", self.ios);
        assert!(self.engine.is_idle(), "the engine is not idle: {:?}", self.engine);
        assert_eq!(self.memory.claims(), [], "memory is still claimed");
        assert!(!self.dropped.is_awaited(), "a cache is dropped without end");
        let statistics = self.engine.statistics(self.now);
        assert_eq!(statistics.buffer_bytes, statistics.buffer_bytes_free, "buffers leaked");
        let log = self.engine.log_statistics(self.now);
        let has_failed = log.is_some_and(|log| log.failure.is_some() || log.is_lost);
        let (mode, actual) = (statistics.mode, statistics.mode_actual);
        assert!(mode == actual || has_failed, "the mode stays {actual:?} instead of {mode:?}");
        let TimeStatistics { read, write, flush } = statistics.time;
        for split in [read, write, flush] {
            let parts: u64 = split.parts().iter().map(|(_, ns)| ns).sum();
            assert_eq!(
                parts, split.total_ns,
                "the parts of a latency are not the whole: {split:?}"
            );
        }
        self.engine.check_invariants();
    }

    /// Reads the whole disk through the engine and behind its back.
    pub(crate) fn read_everything(&mut self) {
        let disk = self.setup.config.disk();
        let mut start = 0;
        while start < disk.end {
            let len = self.rng.between(1, 512) * forebay_core::geometry::SECTOR;
            let len = if self.setup.load.length_max > 1 << 20 { 4 << 20 } else { len };
            let range = forebay_core::geometry::ByteRange::new(start, (start + len).min(disk.end));
            self.read_now(range);
            start = range.end;
        }
        self.drain();
        self.check_destaged();
        // It may be longer than the disk.
        let bytes = self.backend.bytes()[..disk.end as usize].to_vec();
        let arrival = self.clients.arrive();
        let seen = self.oracle.observe(arrival, disk, &bytes);
        seen.unwrap_or_else(|wrong| panic!("primary storage at the end: {wrong}"));
    }

    /// One event; false when nothing is left to happen.
    pub(crate) fn step(&mut self) -> bool {
        self.events += 1;
        assert!(self.events < EVENTS_MAX, "the run does not end");
        if self.queue.next() > self.now.plus(ROUND_MAX) {
            self.carry_out();
        }
        let deadline = self.engine.next_deadline();
        let next = self.queue.next();
        if deadline == Nanos::NEVER && next == Nanos::NEVER {
            return false;
        }
        if deadline < next {
            // What is due may be noticed a little late.
            let late_max = self.setup.late_max.0;
            let often = if late_max > 3_000_000 { 800 } else { 200 };
            let late = Nanos(if self.rng.chance(often) { self.rng.below(late_max) } else { 0 });
            self.now = self.now.max(deadline.plus(late).min(next));
            self.log.line(self.now, || "tick".into());
            self.engine.tick(self.now, &mut self.actions);
            self.coverage.ticks += 1;
        } else {
            let (at, event) = self.queue.pop().expect("there is a next event");
            self.now = self.now.max(at);
            self.on_event(event);
        }
        self.after_call();
        self.begin_order_anew();
        true
    }

    fn on_event(&mut self, event: Event) {
        match event {
            // Nobody asks for anything any more.
            Event::Disaster | Event::Mode | Event::Tune | Event::PowerLoss if self.is_ending => {}
            Event::Resize | Event::ResizeFlash | Event::DropCache if self.is_ending => {}
            Event::Visit | Event::Resume | Event::Death if self.is_ending => {}
            Event::Execute(number, attempt) => self.execute(number, attempt, false),
            Event::Complete(number, attempt) => self.complete(number, attempt),
            Event::Compared(id, found) => {
                self.engine.compared(self.now, id, found, &mut self.actions);
            }
            Event::Clients => self.on_clients(),
            Event::Disaster => self.on_disaster(),
            Event::Release(number) => self.on_release(number),
            Event::Lease => self.on_lease(),
            Event::Renewal(segment) => self.on_renewal(segment),
            Event::Staging => self.on_staging(),
            Event::Void => self.on_void(),
            Event::Revoke => self.on_revocation(),
            Event::RevokeJournal => self.on_journal_revocation(),
            Event::Late(number) => self.land_late(number),
            Event::Mode => self.on_mode(),
            Event::Tune => self.on_tune(),
            Event::Resize => self.on_resize(),
            Event::ResizeFlash => self.on_resize_flash(),
            Event::Memory(resizes, end) => self.on_memory(resizes, end),
            Event::DropCache => self.on_drop_cache(),
            Event::PowerLoss => self.tear_ring(),
            Event::Visit => self.on_visit(),
            Event::Resume => self.on_resume(),
            Event::Land(number) => self.on_land(number),
            Event::Settled => self.on_settled(),
            Event::Death => self.die_soon(),
        }
    }

    /// The cache is to be dropped, with requests and fills under way.
    fn on_drop_cache(&mut self) {
        self.engine.drop_cache(self.now, &mut self.actions);
        self.dropped.ask();
    }

    /// The cache is empty, or not yet.
    fn look_at_drop(&mut self) {
        if !self.dropped.is_awaited() {
            return;
        }
        let dropped = match self.planted {
            Planted::EarlyDrop => Some(1),
            _ => self.engine.dropped(),
        };
        if let Some(blocks) = dropped {
            self.log.line(self.now, || format!("drop-cache: {blocks} blocks"));
            self.coverage.caches_dropped += u64::from(blocks > 0);
            self.dropped.end();
        }
    }

    /// The engine was called: carry out what it wants, now or together with what comes next.
    fn after_call(&mut self) {
        self.look_at_drop();
        self.look_at_flush();
        if self.rng.chance(self.setup.load.carry_out) {
            self.carry_out();
            if self.rng.chance(self.setup.load.send) {
                self.send();
            }
        }
        if self.rng.chance(20) {
            self.check_prefix();
        }
        if self.events.is_multiple_of(self.setup.check_every) {
            self.engine.check_invariants();
        }
        if self.events.is_multiple_of(GIVE_BACK_EVERY) {
            self.give_buffers_back();
        }
        self.look_at_point();
    }
}

/// Flash for an engine.
pub(crate) fn flash(setup: &Setup, engine: &Engine, rng: Rng) -> Device {
    let mut flash = Device::new(engine.flash_size(), true, rng);
    flash.faults = setup.flash;
    flash.timeout = setup.config.flash_timeout;
    flash.latency_max = Nanos::from_micros(100);
    flash
}
