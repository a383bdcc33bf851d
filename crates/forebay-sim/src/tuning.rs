//! An administrator changes settings of a disk at work, or the size of its cache in RAM or on flash.

use forebay_core::action::Span;
use forebay_core::config::{FlashAdmission, Limits, OnTimeout, SequentialBypass, Tuning};
use forebay_core::geometry::PAGE;
use forebay_core::ids::Nanos;
use forebay_core::policy::PolicyKind;

use crate::memory::Memory;
use crate::rng::Rng;
use crate::setup::{self, Setup};
use crate::world::{Event, World};

/// Settings that change often, in runs of several kinds.
pub(crate) fn tune_often(rng: &mut Rng, setup: &mut Setup) {
    match rng.below(5) {
        0 => setup::switch_often(rng, setup),
        1 => setup::restart_often(rng, setup),
        2 => crate::journal::windows(rng, setup),
        _ => {}
    }
    setup.tunings = rng.between(2, 30) as u32;
    let config = &mut setup.config;
    config.ram_room = config.ram_bytes + rng.below(64) * config.block_size;
    // The policy changes at ticks: let much happen between two of them.
    setup.late_max = Nanos::from_millis(rng.pick(&[3, 30, 300]));
}

/// A flash cache whose size changes at work, on flash that never returns wrong bytes.
pub(crate) fn share_flash(rng: &mut Rng, setup: &mut Setup) {
    let config = &mut setup.config;
    let (block, room) = (config.block_size, config.flash_bytes);
    config.flash_room = room;
    config.flash_bytes = rng.between(1, room / block) * block;
    (setup.flash.rot, setup.flash.dropped) = (0, 0);
    setup.flash_changes = rng.between(2, 60) as u32;
}

/// Other settings than `now`, as far as chance will have it. `quiet`: no request may fail.
fn tuned(now: Tuning, has_log: bool, quiet: bool, rng: &mut Rng) -> Tuning {
    let mut tuning = now;
    if rng.chance(500) {
        tuning.policy =
            rng.pick(&[PolicyKind::Fifo, PolicyKind::Lru, PolicyKind::S3Fifo, PolicyKind::Auto]);
    }
    if rng.chance(300) {
        tuning.flash_admission = rng.pick(&[FlashAdmission::Always, FlashAdmission::History]);
        tuning.flash_bytes_per_day = rng.chance(500).then(|| rng.between(1 << 30, 1 << 40));
    }
    if rng.chance(300) {
        let longer = SequentialBypass::Longer(rng.between(PAGE, 256 << 10));
        tuning.sequential_bypass =
            rng.pick(&[SequentialBypass::Off, longer, SequentialBypass::Auto]);
    }
    if rng.chance(300) && !quiet {
        tuning.backend_timeout = Nanos::from_millis(rng.between(20, 200));
        tuning.on_timeout = rng.pick(&[OnTimeout::Fail, OnTimeout::Fail, OnTimeout::Wait]);
    }
    if rng.chance(300) && has_log {
        tuning.destage_rate_max = rng.chance(500).then(|| rng.between(1 << 20, 1 << 30));
    }
    if rng.chance(400) {
        tuning.limits = Limits {
            iops: rng.chance(500).then(|| rng.between(1_000, 100_000)),
            bandwidth: rng.chance(500).then(|| rng.between(8 << 20, 1 << 30)),
            burst: Nanos::from_millis(rng.pick(&[0, 1, 100])),
        };
    }
    tuning
}

impl World<'_> {
    pub(crate) fn on_tune(&mut self) {
        let config = self.setup.config;
        let (before, has_log) = (config.tuning(), config.write_log.is_some());
        let tuning = tuned(before, has_log, self.setup.quiet, &mut self.rng);
        self.log.line(self.now, || format!("tune {tuning:?}"));
        self.coverage.tunings += 1;
        self.coverage.policies_changed += u64::from(tuning.policy != before.policy);
        self.setup.config = config.tuned(&tuning);
        self.backend.timeout = tuning.backend_timeout;
        for _ in 0..2 {
            self.engine
                .tune(self.now, tuning, &mut self.actions)
                .expect("a disk can have these settings");
            assert_eq!(self.engine.config().tuning(), tuning);
            self.engine.check_invariants();
        }
    }
}

/// Another size of the flash cache.
impl World<'_> {
    pub(crate) fn on_resize_flash(&mut self) {
        let before = *self.engine.config();
        let (block, room) = (before.block_size, before.flash_room.max(before.flash_bytes));
        if room == 0 {
            assert!(self.engine.check_flash(block).is_err(), "there is no tier");
            return;
        }
        assert!(self.engine.check_flash(room + block).is_err(), "there is no room");
        let bytes = match self.rng.below(4) {
            0 => block,
            1 => room,
            _ => self.rng.between(1, room / block) * block,
        };
        if self.engine.check_flash(bytes).is_err() {
            return;
        }
        self.log.line(self.now, || format!("flash {} to {bytes} of {room}", before.flash_bytes));
        self.coverage.flash_resizes += 1;
        if bytes > before.flash_bytes {
            // What another disk had there.
            self.flash.resize(self.engine.flash_size());
            self.flash.resize(bytes);
        }
        self.engine.resize_flash(self.now, bytes, &mut self.actions).expect("it can be had");
        self.engine.check_invariants();
        let config = &mut self.setup.config;
        (config.flash_bytes, config.flash_room) = (bytes, room);
    }

    /// The end of flash is given up: another disk may have it from now on, or it stays for a while.
    pub(crate) fn on_flash_shrunk(&mut self) {
        let end = self.engine.flash_size();
        if self.rng.chance(700) {
            self.flash.resize(end);
            self.trusted.split_off(&end);
        }
    }
}

/// Another size of the RAM cache.
impl World<'_> {
    pub(crate) fn on_resize(&mut self) {
        let Some(room) = self.engine.ram_room() else {
            let refused = self.engine.resize_ram(self.now, 1 << 20, &mut self.actions);
            assert!(refused.is_err(), "there is no tier");
            return;
        };
        let (block, before) = (self.setup.config.block_size, self.setup.config.ram_bytes);
        let bytes = match self.rng.below(4) {
            0 => block,
            1 => room.len(),
            _ => self.rng.between(1, room.len() / block) * block,
        };
        assert!(self.engine.check_ram(room.len() + block).is_err(), "there is no room");
        self.log.line(self.now, || format!("RAM {before} to {bytes} of {}", room.len()));
        self.coverage.resizes += 1;
        self.resizes += 1;
        (self.setup.config.ram_bytes, self.setup.config.ram_room) = (bytes, room.len());
        let missing = self.engine.resize_ram(self.now, bytes, &mut self.actions);
        self.engine.check_invariants();
        let Some(missing) = missing.expect("there is room") else { return };
        // It comes in two parts.
        let mut at = self.now;
        for end in [self.rng.between(missing.start, missing.end), missing.end] {
            at = at.plus(Nanos(self.rng.below(20_000_000)));
            self.queue.plan(at, Event::Memory(self.resizes, end));
        }
    }

    /// Memory for RAM slots came.
    pub(crate) fn on_memory(&mut self, resizes: u64, end: u64) {
        if resizes != self.resizes {
            return;
        }
        let room = self.engine.ram_room().expect("it was wanted");
        self.memory.miss(end..room.end);
        self.engine.have_memory(end);
        self.engine.check_invariants();
    }

    /// Memory for a new engine.
    pub(crate) fn begin_memory(&mut self) {
        self.resizes += 1;
        self.memory = Memory::new(self.engine.memory_size());
        self.note_missing();
        self.unstage();
    }

    /// The staging file has memory for the first pages of each group.
    pub(crate) fn unstage(&mut self) {
        let log = self.setup.config.write_log.filter(|log| log.staging);
        let (Some(log), Some(groups)) = (log, self.engine.staged_groups()) else { return };
        let first = (2 + u64::from(log.group_pages_first)) * PAGE;
        let rest = |group: Span| {
            let end = group.offset + u64::from(group.len);
            end.min(group.offset + first)..end
        };
        self.memory.unstage(groups.into_iter().map(rest).filter(|rest| !rest.is_empty()));
    }

    /// There is memory for the rest of them, or none.
    pub(crate) fn on_staging(&mut self) {
        let is_there = self.chance.chance(800);
        if is_there {
            self.memory.unstage(std::iter::empty());
        }
        self.engine.staging_grown(self.now, is_there, &mut self.actions);
    }

    /// What no RAM slot takes, or waits for, is not there.
    pub(crate) fn note_missing(&mut self) {
        let Some(room) = self.engine.ram_room() else { return };
        let missing = self.engine.ram_missing().or(self.engine.ram_spare());
        self.memory.miss(missing.map_or(room.end, |missing| missing.start)..room.end);
    }
}
