//! What the kinds of long runs have otherwise than an ordinary run.

use forebay_core::config::{FlashAdmission, GridOffset, Mode, SequentialBypass};
use forebay_core::geometry::PAGE;
use forebay_core::ids::Nanos;

use super::{Setup, write_log};
use crate::device::{Discards, Faults};
use crate::rng::Rng;
use crate::workload::Load;

/// Flash that gets another size at restarts, or at work.
pub(super) fn resize_flash(rng: &mut Rng, setup: &mut Setup) {
    match rng.chance(500) {
        true => setup.flash_max = Some(setup.config.flash_bytes),
        false => crate::tuning::share_flash(rng, setup),
    }
}

/// So many blocks that what a discard, a long write or a shrink changes fills several pages of the ring.
pub(super) fn crowd(rng: &mut Rng, setup: &mut Setup) {
    let config = &mut setup.config;
    config.backend.size = rng.between(4 << 20, 12 << 20) & !(PAGE - 1);
    config.block_size = PAGE;
    config.ram_bytes = rng.below(64) * PAGE;
    // Where it has room for nearly all of the disk, changes come together, instead of with each eviction.
    config.flash_bytes = config.backend.size / PAGE * rng.between(20, 110) / 100 * PAGE;
    config.backend.discard = rng.chance(800);
    config.ring = None;
    while config.ring.is_none() {
        crate::warm::ring(rng, config);
    }
    if let Some(ring) = &mut config.ring {
        ring.record_delay = Nanos::from_micros(rng.pick(&[500, 50_000]));
    }
    let size = config.backend.size;
    let load = &mut setup.load;
    load.requests = rng.between(200, 500);
    (load.weights[3], load.weights[4]) = (rng.between(1, 8), rng.below(3));
    load.length_max = rng.pick(&[128 << 10, 1 << 20, 8 << 20]);
    load.hot = rng.pick(&[0, 500]);
    load.spots = (0..rng.between(1, 8)).map(|_| rng.below(size / PAGE) * PAGE).collect();
    setup.check_every = 200;
    if rng.chance(300) {
        resize_flash(rng, setup);
    }
}

/// Several of what the other kinds have one of.
pub(super) fn mix(rng: &mut Rng, setup: &mut Setup) {
    match rng.below(4) {
        0 => restart_often(rng, setup),
        1 => switch_often(rng, setup),
        2 => crate::journal::windows(rng, setup),
        _ => {}
    }
    setup.quiet = false;
    setup.config.backend.read_only = false;
    // Those of a quiet disk are long.
    setup.config.backend_timeout = Nanos::from_millis(rng.between(20, 200));
    setup.config.flash_timeout = Nanos::from_millis(rng.between(5, 100));
    if rng.chance(400) {
        if setup.config.write_log.is_none() {
            write_log(rng, &mut setup.config);
        }
        setup.log_dies = true;
        setup.log_rots = rng.chance(300);
        setup.disasters = setup.disasters.max(rng.between(2, 10) as u32);
    }
    if rng.chance(400) {
        setup.mode_changes = rng.between(1, 12) as u32;
    }
    if rng.chance(300) {
        setup.tunings = rng.between(2, 30) as u32;
        setup.config.ram_room = setup.config.ram_bytes + rng.below(64) * setup.config.block_size;
    }
    if rng.chance(300) && setup.config.flash_bytes > 0 {
        resize_flash(rng, setup);
    }
    if rng.chance(200) {
        race(rng, &mut setup.load);
    }
    if rng.chance(300) {
        setup.discards = rng.pick(&[Discards::Ignored, Discards::Refused]);
        setup.load.weights[3] += 10;
    }
    if rng.chance(200) {
        setup.leases_max = Some(rng.between(1, 12) as u32);
    }
    if rng.chance(300) {
        setup.late_max = Nanos::from_millis(rng.pick(&[30, 300]));
    }
    if rng.chance(500) {
        crate::administrator::visit(rng, setup);
    }
    if rng.chance(300) {
        setup.segments_left = Some(rng.between(1, 3) as u32);
        // Longer ones take many times the log, each with an error on the way.
        setup.load.length_max = setup.load.length_max.min(128 << 10);
    }
}

/// Many discards and zeroes, beside reads that look at what became of them, and restarts.
pub(super) fn discard_much(rng: &mut Rng, setup: &mut Setup) {
    setup.discards = rng.pick(&[Discards::Ignored, Discards::Refused]);
    let config = &mut setup.config;
    config.backend.read_only = false;
    config.backend.discard = true;
    config.backend.write_zeroes = rng.chance(800);
    setup.quiet = false;
    setup.disasters = rng.between(2, 8) as u32;
    let load = &mut setup.load;
    (load.weights[0], load.weights[3]) = (60, 20);
    load.requests = load.requests.max(200);
}

/// Changes of mode one after the other, on primary storage that zeroes are written to piece by piece.
pub(crate) fn switch_often(rng: &mut Rng, setup: &mut Setup) {
    let config = &mut setup.config;
    config.backend.size = rng.between(2 << 20, 6 << 20) & !(PAGE - 1);
    config.backend.read_only = false;
    config.backend.write_zeroes = rng.chance(200);
    config.grid_offset = GridOffset::Fixed(0);
    let mode = config.mode;
    write_log(rng, config);
    config.mode = rng.pick(&[mode, Mode::WriteThrough, Mode::WriteBack]);
    setup.quiet = false;
    setup.mode_changes = rng.between(4, 24) as u32;
    setup.disasters = rng.between(1, 6) as u32;
    setup.leases_max = rng.chance(200).then(|| rng.between(1, 12) as u32);
    let load = &mut setup.load;
    load.requests = rng.between(100, 300);
    load.weights[1] = load.weights[1].max(10);
    load.weights[2] = load.weights[2].max(4);
    load.weights[4] = rng.between(4, 12);
    load.length_max = rng.pick(&[64 << 10, 1 << 20, 3 << 20]);
    load.pages_left = rng.chance(400).then(|| rng.between(256, 600));
}

/// A log whose flash dies, over and over.
pub(super) fn let_log_die(rng: &mut Rng, setup: &mut Setup) {
    let config = &mut setup.config;
    config.backend.read_only = false;
    write_log(rng, config);
    config.mode = rng.pick(&[Mode::WriteBack, Mode::WriteBack, Mode::WriteOnly]);
    setup.quiet = false;
    setup.log_dies = true;
    setup.disasters = rng.between(2, 10) as u32;
    setup.mode_changes = rng.below(3) as u32;
    let load = &mut setup.load;
    load.weights[1] = load.weights[1].max(10);
}

/// Many small blocks on flash, many regions, a few places read and written again, and crashes.
pub(crate) fn restart_often(rng: &mut Rng, setup: &mut Setup) {
    let config = &mut setup.config;
    config.backend.size = rng.between(1 << 20, 4 << 20) & !(PAGE - 1);
    config.backend.read_only = false;
    config.block_size = PAGE << rng.below(3);
    config.grid_offset = GridOffset::Fixed(0);
    config.ram_bytes = rng.below(3) * config.block_size;
    config.flash_bytes = rng.between(16, 200) * config.block_size;
    config.flash_admission = FlashAdmission::Always;
    config.sequential_bypass = SequentialBypass::Off;
    if !config.mode.caches() {
        config.mode = Mode::WriteThrough;
    }
    let few =
        |faults: &mut Faults| *faults = Faults { dropped: faults.dropped, ..Faults::default() };
    few(&mut setup.flash);
    few(&mut setup.log);
    setup.backend.hangs = 0;
    setup.quiet = false;
    setup.disasters = rng.between(6, 20) as u32;
    let size = config.backend.size;
    let load = &mut setup.load;
    load.requests = rng.between(200, 600);
    load.weights[0] = 40;
    load.weights[1] = rng.between(2, 20);
    load.length_max = 4 * PAGE;
    load.hot = 900;
    load.paged = 800;
    load.phase = 0;
    load.sequential = 0;
    load.spots = (0..rng.between(8, 40)).map(|_| rng.below(size / PAGE) * PAGE).collect();
    crate::warm::ring(rng, config);
    if let Some(ring) = &mut config.ring {
        ring.record_delay = Nanos::from_micros(rng.pick(&[50, 500, 2_000]));
        ring.mark_delay = Nanos::from_micros(rng.pick(&[100, 1_000, 10_000]));
    }
    setup.check_every = 1 + (config.ram_bytes + config.flash_bytes) / config.block_size / 8;
    // A sweep of the cache goes on at ticks: let much happen between two of them.
    setup.late_max = Nanos::from_millis(rng.pick(&[3, 30, 300]));
}

/// Many changes at a time, so that a batch of the ring has several pages.
pub(super) fn tear_ring(rng: &mut Rng, setup: &mut Setup) {
    let config = &mut setup.config;
    config.backend.size = 8 << 20;
    config.block_size = 64 * PAGE;
    config.ram_bytes = 0;
    config.flash_bytes = rng.between(20, 32) * config.block_size;
    setup.ring_tears = true;
    setup.disasters = rng.below(3) as u32;
    let load = &mut setup.load;
    (load.hot, load.paged, load.length_max) = (0, 1000, 64 * PAGE);
    load.pause_max = Nanos::from_micros(100);
    config.ring = None;
    while config.ring.is_none() {
        crate::warm::ring(rng, config);
    }
    if let Some(ring) = &mut config.ring {
        ring.record_delay = Nanos::from_micros(rng.pick(&[5_000, 50_000]));
    }
}

/// Many compare-and-writes, on sectors next to each other, in whatever the rest of the setup is.
pub(crate) fn race(rng: &mut Rng, load: &mut Load) {
    load.compares = rng.pick(&[100, 300, 700]);
    load.hot = rng.pick(&[900, 1000]);
    load.spots.truncate(rng.between(1, 3) as usize);
    load.burst_max = rng.pick(&[2, 4, 16]);
    load.sequential = load.sequential.min(100);
    // Not only where nothing else happens.
    (load.weights[0], load.weights[1]) = (load.weights[0].max(20), load.weights[1].max(10));
}

/// Starts of which most begin another ring, and few places that are read, and written while a batch of the ring is under way.
pub(super) fn start_cold(rng: &mut Rng, setup: &mut Setup) {
    setup.cold_starts = 700;
    // Much comes while a batch is under way.
    setup.ring_latency_max = Nanos::from_micros(rng.pick(&[500, 5_000, 5_000]));
    let config = &mut setup.config;
    // Beside a log nobody looks at what the ring says.
    config.write_log = None;
    config.mode = rng.pick(&[Mode::WriteThrough, Mode::WriteAround]);
    // What a start believes is looked at by the first granule of each block.
    config.block_size = PAGE;
    config.ram_bytes = rng.below(2) * PAGE;
    config.flash_bytes = rng.between(16, 100) * PAGE;
    config.ring = None;
    while config.ring.is_none() {
        crate::warm::ring(rng, config);
    }
    if let Some(ring) = &mut config.ring {
        ring.record_delay = Nanos::from_micros(rng.pick(&[2_000, 20_000, 100_000]));
    }
    setup.mode_changes = 0;
    let load = &mut setup.load;
    load.requests = rng.between(100, 300);
    load.weights[1] = rng.between(4, 20);
    // The first flush of a life often ends before anything is cached or written.
    load.pause_max = Nanos::from_micros(rng.pick(&[500, 1_000]));
    load.burst_max = rng.pick(&[1, 4]);
    load.spots.truncate(rng.between(1, 2) as usize);
}

/// Primary storage that is slow, and carries out late what a dead process had sent, under processes that die often.
pub(super) fn linger(rng: &mut Rng, setup: &mut Setup) {
    match rng.below(4) {
        0 | 1 => restart_often(rng, setup),
        2 => switch_often(rng, setup),
        _ => mix(rng, setup),
    }
    setup.fence = Some(Nanos::from_micros(rng.pick(&[500, 5_000, 50_000, 300_000])));
    if setup.mode_changes == 0 && !setup.log_dies && rng.chance(500) {
        setup.config.write_log = None;
        setup.config.mode = rng.pick(&[Mode::WriteThrough, Mode::WriteThrough, Mode::WriteAround]);
    }
    // Those of a quiet disk are long.
    setup.config.backend_timeout = Nanos::from_millis(rng.between(20, 200));
    setup.config.flash_timeout = Nanos::from_millis(rng.between(5, 100));
    setup.disasters = setup.disasters.max(rng.between(3, 12) as u32);
    setup.backend.delays = setup.backend.delays.max(rng.pick(&[20, 200, 500]));
    let load = &mut setup.load;
    load.weights[1] = load.weights[1].max(10);
    if rng.chance(300) {
        // Much less than a granule: what lies around it is fetched.
        (load.length_max, load.paged, load.hot) = (PAGE / 2, 0, 900);
        setup.config.ram_bytes = setup.config.ram_bytes.max(16 * setup.config.block_size);
    }
    if rng.chance(200) {
        race(rng, &mut setup.load);
    }
}
