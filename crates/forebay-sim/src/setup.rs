//! One seed decides everything: the disk, its cache, what goes wrong, how the clients behave.

use forebay_core::config::{
    BackendTraits, Config, DestageOrder, FlashAdmission, FlushSemantics, GridOffset, Mode,
    OnTimeout, SequentialBypass, WriteLogConfig,
};
use forebay_core::geometry::{PAGE, SECTOR};
use forebay_core::ids::Nanos;
use forebay_core::policy::PolicyKind;

use crate::device::{Discards, Faults};
use crate::rng::Rng;
use crate::workload::Load;

mod kinds;

use kinds::{crowd, discard_much, let_log_die, linger, mix, resize_flash, start_cold, tear_ring};
pub(crate) use kinds::{race, restart_often, switch_often};

/// A flight recorder of 128 requests, which are written over all the time.
const RECORDER_BYTES: u64 = 4 << 10;
/// Smallest area of request buffers that an engine takes.
const BUFFER_BYTES_MIN: u64 = 36 << 20;

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Decides what the generator that made this does not.
    pub seed: u64,
    /// The engine's configuration.
    pub config: Config,
    /// Faults of primary storage.
    pub backend: Faults,
    /// Faults of flash.
    pub flash: Faults,
    /// Primary storage starts with data (else with zeroes).
    pub stamped: bool,
    /// Events that hit everything, in order of time.
    pub disasters: u32,
    /// No faults and no disasters: no request may fail.
    pub quiet: bool,
    /// Faults of the write log's flash.
    pub log: Faults,
    /// Disasters are deaths of that flash, each followed by a crash, after which it is back.
    pub log_dies: bool,
    /// Bytes that primary storage has beyond the disk, for it to grow by.
    pub longer_by: u64,
    /// How often an administrator changes the mode.
    pub mode_changes: u32,
    /// How often an administrator changes other settings.
    pub tunings: u32,
    /// How often the flash cache gets another size at work.
    pub flash_changes: u32,
    /// How often an administrator pauses destaging, flushes primary storage or has the disk grow.
    pub visits: u32,
    /// After so many leases in the life of a process the pool cannot note any more.
    pub leases_max: Option<u32>,
    /// Segments of the pool that other disks leave to the log.
    pub segments_left: Option<u32>,
    /// That flash does not die but returns wrong bytes.
    pub log_rots: bool,
    /// The effect of discards on primary storage.
    pub discards: Discards,
    /// Bytes that the cache on flash has at most, where it has another size after each other restart.
    pub flash_max: Option<u64>,
    /// Power fails while several pages of the ring are on their way, and again soon after.
    pub ring_tears: bool,
    /// So many of 1000 starts cannot prove that the cache is current, and begin another ring.
    pub cold_starts: u32,
    /// What a dead process had sent may land so long after the next start, which holds its changes back until then.
    pub fence: Option<Nanos>,
    /// Usual latency of the ring at most.
    pub ring_latency_max: Nanos,
    /// Deadlines may be noticed so late.
    pub late_max: Nanos,
    /// The clients.
    pub load: Load,
    /// `check_invariants` after every so many events.
    pub check_every: u64,
}

/// Seeds from here on are of disks whose cache on flash fills and restarts, over and over.
pub const RESTARTING: u64 = 1 << 40;

/// Seeds from here on are of clients that race for a few sectors with compare-and-writes.
pub const COMPARING: u64 = 1 << 41;

/// Seeds from here on are of write-back disks whose flash with the log dies while they run.
pub const DYING: u64 = 1 << 42;

/// Seeds from here on are of write-back disks whose flash with the log returns wrong bytes for a while.
pub const ROTTING: u64 = 1 << 43;

/// Seeds from here on are of disks that restart over and over, and whose ring is torn by the loss of power.
pub const TEARING: u64 = 1 << 44;

/// Seeds from here on are of disks that are discarded much, on primary storage that does not do it.
pub const DISCARDING: u64 = 1 << 45;

/// Seeds from here on are of disks whose mode changes often, under writes and zeroes in several pieces.
pub const SWITCHING: u64 = 1 << 46;

/// Seeds from here on are of write-back disks whose windows go through a journal.
pub const JOURNALED: u64 = 1 << 47;

/// Seeds from here on are of disks whose settings change while they are at work.
pub const TUNED: u64 = 1 << 48;

/// Seeds from here on are of disks that restart over and over, and get more or less flash when they do, or at work.
pub const RESIZED: u64 = 1 << 49;

/// Seeds from here on are of thousands of small blocks on flash, of which many change at once.
pub const CROWDED: u64 = 1 << 50;

/// Seeds from here on are of several of these at once.
pub const MIXED: u64 = 1 << 51;

/// Seeds from here on are of caches that hardly any start believes, and of rings that are slow to say anything.
pub const COLD: u64 = 1 << 52;

/// Seeds from here on are of primary storage that carries out late what a dead process had sent.
pub const UNSETTLED: u64 = 1 << 53;

/// The first seeds of all kinds of long runs.
pub const KINDS: [u64; 15] = [
    0, RESTARTING, COMPARING, DYING, ROTTING, TEARING, DISCARDING, SWITCHING, JOURNALED, TUNED,
    RESIZED, CROWDED, MIXED, COLD, UNSETTLED,
];

/// The setup of a seed, and the generator that the run goes on with.
pub fn of_seed(seed: u64) -> (Setup, Rng) {
    let mut rng = Rng::new(seed);
    let mut setup = setup(&mut rng);
    if seed >= UNSETTLED {
        linger(&mut rng, &mut setup);
    } else if seed >= COLD {
        restart_often(&mut rng, &mut setup);
        start_cold(&mut rng, &mut setup);
    } else if seed >= MIXED {
        mix(&mut rng, &mut setup);
    } else if seed >= CROWDED {
        restart_often(&mut rng, &mut setup);
        crowd(&mut rng, &mut setup);
    } else if seed >= RESIZED {
        restart_often(&mut rng, &mut setup);
        resize_flash(&mut rng, &mut setup);
    } else if seed >= TUNED {
        crate::tuning::tune_often(&mut rng, &mut setup);
    } else if seed >= JOURNALED {
        crate::journal::windows(&mut rng, &mut setup);
    } else if seed >= SWITCHING {
        switch_often(&mut rng, &mut setup);
    } else if seed >= DISCARDING {
        discard_much(&mut rng, &mut setup);
    } else if seed >= TEARING {
        restart_often(&mut rng, &mut setup);
        tear_ring(&mut rng, &mut setup);
    } else if seed >= ROTTING {
        let_log_die(&mut rng, &mut setup);
        setup.log_rots = true;
    } else if seed >= DYING {
        let_log_die(&mut rng, &mut setup);
    } else if seed >= COMPARING {
        race(&mut rng, &mut setup.load);
        setup.config.backend.read_only = false;
    } else if seed >= RESTARTING {
        restart_often(&mut rng, &mut setup);
    }
    (setup, rng)
}

/// The setup of a seed below [`RESTARTING`].
pub fn setup(rng: &mut Rng) -> Setup {
    let big = rng.chance(4);
    let moves_grid = !big && rng.chance(60);
    let mut config = disk(rng, big);
    cache(rng, &mut config);
    if moves_grid {
        settle_late(rng, &mut config);
    }
    let quiet = rng.chance(200);
    if quiet {
        config.backend_timeout = Nanos::from_millis(100_000);
        config.flash_timeout = Nanos::from_millis(100_000);
    }
    let often = |rng: &mut Rng, max: u64| if quiet { 0 } else { rng.skewed(max) as u32 };
    let backend = Faults {
        errors: often(rng, 150),
        delays: often(rng, 300),
        hangs: often(rng, 60),
        unsupported: often(rng, 300),
        ..Faults::default()
    };
    let flash = Faults {
        errors: often(rng, 150),
        delays: often(rng, 100),
        hangs: if rng.chance(300) { often(rng, 30) } else { 0 },
        rot: often(rng, 300),
        dropped: often(rng, 100),
        unsupported: 0,
    };
    let mut load = load(rng, &config, big);
    if moves_grid {
        load.paged = 900;
        load.phase = 3584;
        load.requests = 500;
        load.hot = 950;
        load.length_max = 8 * PAGE;
        load.spots.truncate(2);
    }
    let log = Faults {
        errors: if rng.chance(100) { often(rng, 20) } else { 0 },
        delays: often(rng, 50),
        hangs: if rng.chance(150) { often(rng, 20) } else { 0 },
        ..Faults::default()
    };
    if !config.backend.read_only && rng.chance(600) {
        write_log(rng, &mut config);
    }
    let mode_changes = match config.write_log {
        Some(_) if rng.chance(300) => rng.below(4) as u32,
        Some(_) => 0,
        None => rng.clone().fork().skewed(4) as u32,
    };
    crate::warm::ring(&mut rng.clone().fork(), &mut config);
    let slots = (config.ram_bytes + config.flash_bytes) / config.block_size;
    Setup {
        seed: rng.clone().next_u64(),
        config,
        backend,
        flash,
        quiet,
        log,
        mode_changes,
        tunings: 0,
        flash_max: None,
        flash_changes: 0,
        visits: 0,
        longer_by: 0,
        log_dies: false,
        log_rots: false,
        leases_max: None,
        segments_left: None,
        discards: Discards::ByChance,
        ring_tears: false,
        cold_starts: 0,
        fence: None,
        ring_latency_max: Nanos::from_micros(100),
        late_max: Nanos::from_millis(3),
        stamped: rng.chance(700),
        disasters: if quiet { 0 } else { rng.skewed(6) as u32 },
        load,
        check_every: 1 + slots / 8,
    }
}

fn disk(rng: &mut Rng, big: bool) -> Config {
    let logical_block = rng.pick(&[512, 512, 4096, 4096, 1024]);
    let size = match big {
        true => rng.between(40 << 20, 64 << 20),
        false => {
            let size_max = 1 << rng.between(17, 23);
            rng.between(64 << 10, size_max)
        }
    };
    let size = size & !(u64::from(logical_block) - 1);
    let backend = BackendTraits {
        size,
        logical_block,
        read_only: rng.chance(15),
        discard: rng.chance(700),
        write_zeroes: rng.chance(600),
        extents: rng.chance(600),
    };
    let mut config = Config { recorder_bytes: RECORDER_BYTES, ..Config::for_disk(backend) };
    config.mode = match rng.below(20) {
        0 => Mode::PassThrough,
        1 => Mode::Monitor,
        2..=4 => Mode::WriteAround,
        _ => Mode::WriteThrough,
    };
    config.backend_timeout = Nanos::from_millis(rng.between(20, 200));
    config.flash_timeout = Nanos::from_millis(rng.between(5, 100));
    config.on_timeout = if rng.chance(750) { OnTimeout::Fail } else { OnTimeout::Wait };
    config.requests_max = rng.pick(&[1, 2, 5, 16, 32, 64]);
    config.buffer_bytes = BUFFER_BYTES_MIN;
    config
}

pub(crate) fn cache(rng: &mut Rng, config: &mut Config) {
    config.block_size = PAGE << rng.skewed(8);
    let slots_max = (24 << 20) / config.block_size;
    let slots = |rng: &mut Rng, none: u32| match rng.chance(none) {
        true => 0,
        false => 1 + rng.skewed(slots_max.min(64)),
    };
    config.ram_bytes = slots(rng, 250) * config.block_size;
    (config.flash_bytes, config.flash_room) = (slots(rng, 300) * config.block_size, 0);
    config.flash_logical_block = rng.pick(&[512, 4096]);
    config.policy =
        rng.pick(&[PolicyKind::Fifo, PolicyKind::Lru, PolicyKind::S3Fifo, PolicyKind::Auto]);
    config.flash_admission =
        if rng.chance(600) { FlashAdmission::Always } else { FlashAdmission::History };
    config.sequential_bypass = match rng.between(0, 3) {
        0 => SequentialBypass::Off,
        1 => SequentialBypass::Longer(rng.between(PAGE, 256 << 10)),
        _ => SequentialBypass::Auto,
    };
    config.flash_bytes_per_day = rng.chance(200).then(|| rng.between(1 << 30, 1 << 40));
    // Nothing follows from it: a run is the same with any.
    config.index_salt = rng.clone().next_u64();
    config.grid_offset = match rng.below(3) {
        0 => {
            let logical = u64::from(config.backend.logical_block);
            GridOffset::Fixed(rng.below(config.block_size / logical) * logical)
        }
        1 => GridOffset::Fixed(0),
        _ => GridOffset::Auto,
    };
}

/// A cache that is large against the hot places, so that it is hardly filled when the detector speaks.
fn settle_late(rng: &mut Rng, config: &mut Config) {
    config.backend.logical_block = 512;
    config.block_size = PAGE << rng.below(3);
    config.grid_offset = GridOffset::Auto;
    let slots = rng.between(300, 600);
    if config.ram_bytes > 0 {
        config.ram_bytes = slots * config.block_size;
    }
    if config.flash_bytes > 0 {
        config.flash_bytes = slots * config.block_size;
    }
}

pub(crate) fn write_log(rng: &mut Rng, config: &mut Config) {
    config.mode = rng.pick(&[Mode::WriteBack, Mode::WriteBack, Mode::WriteOnly, config.mode]);
    let mut log = WriteLogConfig::new(rng.pick(&[16, 32, 64]), rng.between(3, 12) as u32);
    log.staging = rng.chance(700);
    log.group_pages_first = log.segment_pages / 8;
    log.order = rng.pick(&[
        DestageOrder::Strict,
        DestageOrder::Strict,
        DestageOrder::Strict,
        DestageOrder::Window,
        DestageOrder::Throughput,
    ]);
    if rng.chance(150) {
        let dirty_age_max = Nanos::from_micros(rng.between(500, 50_000));
        log.flush = FlushSemantics::Deferred { dirty_age_max };
    }
    log.barrier = rng.chance(200);
    log.destage_delay = Nanos::from_micros(rng.pick(&[0, 100, 10_000, 1_000_000]));
    log.destage_yield = log.destage_yield.min(log.destage_delay);
    log.throttle_percent = rng.pick(&[50, 10, 90]);
    config.write_log = Some(log);
}

fn load(rng: &mut Rng, config: &Config, big: bool) -> Load {
    let size = config.backend.size;
    let length_max = if big { 32 << 20 } else { SECTOR << rng.between(1, 11) };
    let spots = (0..rng.between(1, 6)).map(|_| rng.below(size / SECTOR) * SECTOR).collect();
    let phase = rng.pick(&[0, 0, 3584, 512, 2048]);
    let weights = [
        rng.between(5, 60),
        rng.between(0, 40),
        rng.skewed(10),
        rng.skewed(8),
        rng.skewed(8),
        rng.skewed(6),
        rng.skewed(5),
        rng.skewed(3),
        rng.skewed(2),
    ];
    Load {
        requests: if big { 30 } else { rng.between(40, 400) },
        pause_max: Nanos::from_micros(rng.pick(&[10, 200, 1000, 10_000])),
        burst_max: rng.pick(&[1, 2, 4, 16]),
        weights,
        compares: 0,
        length_max: length_max.min(size),
        hot: rng.pick(&[0, 500, 900]),
        sequential: rng.pick(&[0, 0, 100, 700]),
        paged: rng.pick(&[0, 500, 1000]),
        phase,
        spots,
        fua: rng.pick(&[0, 50, 500]),
        send: rng.pick(&[1000, 500, 100, 20]),
        carry_out: rng.pick(&[1000, 1000, 300]),
        pages_left: (!big && rng.chance(150)).then(|| rng.skewed(600)),
    }
}
