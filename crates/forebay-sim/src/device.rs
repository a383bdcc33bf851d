//! Simulated primary storage and flash: real bytes in memory, latency and faults by chance.
//!
//! # Fault model
//! An I/O is *issued*, takes effect at one instant later (*executed*), and *completes* after
//! that. I/Os in flight are executed and complete in any order. The bytes of a write are captured
//! when it is issued.
//!
//! Primary storage:
//! - has a volatile write cache: a flush makes durable the writes that completed before it was
//!   issued, and perhaps more. The loss of its session, or of its power, may bring any unflushed
//!   sector back to its durable content. Each sector goes by itself, and never a part of it;
//! - fails any I/O. A failed write, zeroing or discard took effect in a prefix of whole sectors, all or none;
//!   a failed read leaves rubbish in memory. A failed flush may lose what is volatile and had completed;
//! - delays I/Os, and hangs: it completes, well or not, long after every time-out. It takes effect at any
//!   time until then;
//! - may refuse to write zeroes, or to do so fast, although it claims that it can. A discard
//!   zeroes each sector, or not. Extents are cut short anywhere, and never call data a hole;
//! - when its session is lost, ends every I/O in flight: with an error, or by doing it once more.
//!   Acknowledgements from then on are of the new session.
//!
//! When the engine's process dies and its host lives, I/Os in flight are executed, wholly, in
//! part or not, *before* the next engine starts: the kernel finishes or cancels the I/O of a
//! process. Where a run has a fence time, changes of primary storage may also land up to so long
//! afterwards. When the host dies, primary storage also loses its volatile data, and nothing lands
//! later.
//!
//! Flash fails reads, and writes after a prefix. It rots bits, on the medium or on the way. It
//! drops a write that it acknowledged, hangs, or dies for good. It has no volatile cache in the
//! model: nothing survives a restart.
//!
//! Not modelled: misdirected writes, primary storage that returns wrong bytes by itself, bytes torn within a
//! sector.

use std::collections::BTreeMap;

use forebay_core::action::{Io, IoOp};
use forebay_core::geometry::{ByteRange, SECTOR};
use forebay_core::ids::{Nanos, Sequence};
use forebay_core::status::IoStatus;

use crate::oracle::sectors;
use crate::rng::Rng;
use crate::stamp::{self, Version};

mod late;
mod rot;

pub use late::changes;

/// How often something goes wrong, per 1000 I/Os, and how long things take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// I/Os that fail.
    pub errors: u32,
    /// I/Os that take up to the time-out.
    pub delays: u32,
    /// I/Os that take several times the time-out.
    pub hangs: u32,
    /// Reads that return a flipped bit (flash).
    pub rot: u32,
    /// Writes that are acknowledged and dropped (flash).
    pub dropped: u32,
    /// Zeroing that turns out to be unsupported.
    pub unsupported: u32,
}

/// How much of an I/O takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// All.
    Whole,
    /// This many sectors from the start.
    Prefix(u64),
}

/// What befalls one I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It fails and does nothing.
    Fails,
    /// It fails, having done a part.
    Tears,
    /// It fails, having done everything.
    Lies,
    /// It hangs longer than anybody waits, and is done in the end.
    Hangs,
}

impl Fate {
    /// All of them.
    pub const ALL: [Fate; 4] = [Fate::Fails, Fate::Tears, Fate::Lies, Fate::Hangs];
}

/// What becomes of discards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discards {
    /// Each sector is zeroes afterwards, or as before.
    ByChance,
    /// They end well and do nothing.
    Ignored,
    /// Primary storage turns out not to know them.
    Refused,
}

/// An I/O in flight.
#[derive(Debug)]
pub struct Pending {
    /// What was asked for.
    pub io: Io,
    /// How it will end.
    pub status: IoStatus,
    /// What it does.
    pub effect: Effect,
    /// Flips a bit of what is read.
    pub rot: bool,
    /// Bytes captured (write) or read.
    pub data: Vec<u8>,
    /// Checksums of what was captured.
    pub checksums: Vec<u32>,
    /// It has taken effect.
    pub executed: bool,
    /// Completions of the device when it was issued.
    pub issued_after: u64,
}

/// When an I/O is executed and when it completes, from now.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Takes effect.
    pub execute: Nanos,
    /// Completes.
    pub complete: Nanos,
}

/// A sector that was written and not flushed.
#[derive(Clone, Copy, Debug)]
struct Volatile {
    /// The I/O that wrote it last.
    writer: u64,
    /// The device's count of completions when that I/O completed.
    completed: Option<u64>,
    /// The same of an earlier write that it replaced.
    earlier: Option<u64>,
}

/// A device of one kind or the other.
#[derive(Debug)]
pub struct Device {
    bytes: Vec<u8>,
    /// The contents after a loss of power; empty: nothing is volatile.
    durable: Vec<u8>,
    volatile: BTreeMap<u64, Volatile>,
    completions: u64,
    /// Its faults; [`Faults::default`]: none.
    pub faults: Faults,
    /// Usual latency at most.
    pub latency_max: Nanos,
    /// The engine's time-out.
    pub timeout: Nanos,
    /// Every I/O fails.
    pub dead: bool,
    /// Reads return wrong bytes, more often than not; what is on the medium is right.
    pub rots: bool,
    /// It has returned wrong bytes, or may.
    pub has_rotted: bool,
    /// The I/O that is so many from now, the next being 1, meets this.
    pub fate: Option<(u64, Fate)>,
    /// What becomes of discards.
    pub discards: Discards,
    /// The destager's notes, which are durable when they are written.
    pub progress: (Sequence, Sequence),
    /// What the other copy of that says.
    pub progress_before: (Sequence, Sequence),
    /// What a dead process had sent and has not landed.
    late: BTreeMap<u64, Pending>,
    rng: Rng,
}

impl Device {
    /// Makes it longer, with zeroes, or shorter.
    pub fn resize(&mut self, size: u64) {
        self.volatile.retain(|sector, _| sector * SECTOR < size);
        self.bytes.resize(size as usize, 0);
        if !self.durable.is_empty() {
            self.durable.resize(size as usize, 0);
        }
    }

    /// A device of `size` bytes that are all zero; `volatile`: with a volatile cache.
    pub fn new(size: u64, volatile: bool, rng: Rng) -> Device {
        Device {
            bytes: vec![0; size as usize],
            durable: if volatile { vec![0; size as usize] } else { Vec::new() },
            volatile: BTreeMap::new(),
            completions: 0,
            faults: Faults::default(),
            latency_max: Nanos::from_micros(500),
            timeout: Nanos::from_millis(100),
            dead: false,
            rots: false,
            has_rotted: false,
            fate: None,
            discards: Discards::ByChance,
            progress: (Sequence(0), Sequence(0)),
            progress_before: (Sequence(0), Sequence(0)),
            late: BTreeMap::new(),
            rng,
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What the loss of power can leave at worst: its bytes, less all that is volatile.
    pub fn durable(&self) -> &[u8] {
        if self.durable.is_empty() { &self.bytes } else { &self.durable }
    }

    /// Makes it read as `version` everywhere, durably.
    pub fn stamp_all(&mut self, version: Version) {
        stamp::write(&mut self.bytes, 0, version);
        self.durable.copy_from_slice(&self.bytes);
    }

    /// Decides what will become of an I/O.
    pub fn issue(&mut self, io: Io, data: Vec<u8>, checksums: Vec<u32>) -> (Pending, Timing) {
        let faults = self.faults;
        let rng = &mut self.rng;
        let length = io.range.len() / SECTOR;
        let mut status = IoStatus::Ok;
        let mut effect = Effect::Whole;
        if let IoOp::WriteZeroes { fast_only, .. } = io.op
            && rng.chance(faults.unsupported * if fast_only { 4 } else { 1 })
        {
            (status, effect) = (IoStatus::Unsupported, Effect::Prefix(0));
        }
        if io.op == IoOp::Discard && self.discards == Discards::Refused {
            (status, effect) = (IoStatus::Unsupported, Effect::Prefix(0));
        }
        if self.dead || rng.chance(faults.errors) {
            status = if rng.chance(100) { IoStatus::NoSpace } else { IoStatus::IoError };
            effect = match rng.below(4) {
                0 => Effect::Whole,
                1 => Effect::Prefix(0),
                _ => Effect::Prefix(rng.below(length + 1)),
            };
        } else if matches!(io.op, IoOp::Write { .. }) && rng.chance(faults.dropped) {
            effect = Effect::Prefix(rng.below(length + 1));
            self.has_rotted = true;
        }
        let rot = if self.rots { 700 } else { faults.rot };
        let rot = matches!(io.op, IoOp::Read { .. }) && rng.chance(rot);
        let timeout = self.timeout.0;
        let fate = self.fate.as_mut().and_then(|(left, fate)| {
            *left -= 1;
            (*left == 0).then_some(*fate)
        });
        if let Some(fate) = fate {
            self.fate = None;
            (status, effect) = match fate {
                Fate::Fails => (IoStatus::IoError, Effect::Prefix(0)),
                Fate::Tears => (IoStatus::IoError, Effect::Prefix(length / 2)),
                Fate::Lies => (IoStatus::IoError, Effect::Whole),
                Fate::Hangs => (status, effect),
            };
        }
        let complete = if fate == Some(Fate::Hangs) {
            rng.between(timeout * 3, timeout * 5)
        } else if rng.chance(faults.hangs) {
            rng.between(timeout, timeout * 5)
        } else if rng.chance(faults.delays) {
            rng.between(0, timeout)
        } else {
            rng.between(1000, self.latency_max.0)
        };
        let execute = match rng.below(4) {
            0 => 0,
            1 => complete,
            _ => rng.between(0, complete),
        };
        let timing = Timing { execute: Nanos(execute), complete: Nanos(complete) };
        let issued_after = self.completions;
        let pending =
            Pending { io, status, effect, rot, data, checksums, executed: false, issued_after };
        (pending, timing)
    }

    /// The I/O takes effect.
    pub fn execute(&mut self, number: u64, pending: &mut Pending) {
        assert!(!std::mem::replace(&mut pending.executed, true), "executed once");
        let range = pending.io.range;
        let part = match pending.effect {
            Effect::Whole => range,
            Effect::Prefix(sectors) => ByteRange::at(range.start, sectors * SECTOR),
        };
        let place = part.start as usize..part.end as usize;
        match pending.io.op {
            IoOp::Read { .. } => {
                pending.data.clear();
                pending.data.extend_from_slice(&self.bytes[place]);
                // What a failed read left undone is rubbish.
                pending.data.resize(range.len() as usize, 0xa5);
                if pending.rot {
                    self.rot(range, &mut pending.data);
                }
            }
            IoOp::Write { durable, .. } => {
                let len = part.len() as usize;
                self.bytes[place].copy_from_slice(&pending.data[..len]);
                self.note_volatile(number, part);
                if durable && pending.status.is_ok() {
                    self.make_durable(part);
                }
            }
            IoOp::Progress { flushed, through } => {
                // A page pair: the old note or the new one, whatever happens.
                if pending.effect == Effect::Whole {
                    self.progress_before =
                        std::mem::replace(&mut self.progress, (flushed, through));
                }
            }
            IoOp::WriteZeroes { .. } => {
                self.bytes[place].fill(0);
                self.note_volatile(number, part);
            }
            IoOp::Discard if self.discards != Discards::ByChance => {}
            IoOp::Discard => {
                let all = self.rng.chance(500);
                for sector in sectors(part) {
                    if all || self.rng.chance(500) {
                        let start = (sector * SECTOR) as usize;
                        self.bytes[start..start + SECTOR as usize].fill(0);
                        self.note_volatile(number, ByteRange::at(sector * SECTOR, SECTOR));
                    }
                }
            }
            IoOp::Flush if pending.status.is_ok() => self.flush(pending.issued_after),
            IoOp::Flush | IoOp::Extents => {}
        }
    }

    /// The I/O completed.
    pub fn complete(&mut self, number: u64, pending: &Pending) {
        assert!(pending.executed);
        self.completions += 1;
        if self.durable.is_empty() || matches!(pending.io.op, IoOp::Read { .. }) {
            return;
        }
        for sector in sectors(pending.io.range) {
            if let Some(volatile) = self.volatile.get_mut(&sector)
                && volatile.writer == number
            {
                volatile.completed = Some(self.completions);
            }
        }
    }

    fn make_durable(&mut self, range: ByteRange) {
        if self.durable.is_empty() {
            return;
        }
        for sector in sectors(range) {
            self.volatile.remove(&sector);
        }
        let place = range.start as usize..range.end as usize;
        self.durable[place.clone()].copy_from_slice(&self.bytes[place]);
    }

    /// Makes everything durable.
    pub fn flush_all(&mut self) {
        for (sector, _) in std::mem::take(&mut self.volatile) {
            let place = (sector * SECTOR) as usize..((sector + 1) * SECTOR) as usize;
            self.durable[place.clone()].copy_from_slice(&self.bytes[place]);
        }
    }

    /// Overwrites bytes at once, for somebody who waits for it; not durably.
    pub fn overwrite(&mut self, number: u64, start: u64, bytes: &[u8]) {
        self.bytes[start as usize..][..bytes.len()].copy_from_slice(bytes);
        self.note_volatile(number, ByteRange::at(start, bytes.len() as u64));
        self.completions += 1;
        for sector in sectors(ByteRange::at(start, bytes.len() as u64)) {
            if let Some(volatile) = self.volatile.get_mut(&sector) {
                volatile.completed = Some(self.completions);
            }
        }
    }

    /// These bytes are durably there, whatever becomes of the rest of their write.
    pub fn land(&mut self, start: u64, bytes: &[u8]) {
        self.bytes[start as usize..][..bytes.len()].copy_from_slice(bytes);
        self.make_durable(ByteRange::at(start, bytes.len() as u64));
    }

    /// Sectors come back as what is durable, each by chance: the loss of power.
    pub fn lose_power(&mut self) {
        let permille = self.rng.pick(&[1000, 500, 100]);
        for (sector, _) in std::mem::take(&mut self.volatile) {
            let place = (sector * SECTOR) as usize..((sector + 1) * SECTOR) as usize;
            if self.rng.chance(permille) {
                self.bytes[place.clone()].copy_from_slice(&self.durable[place.clone()]);
            } else {
                self.durable[place.clone()].copy_from_slice(&self.bytes[place]);
            }
        }
    }

    fn note_volatile(&mut self, writer: u64, range: ByteRange) {
        if self.durable.is_empty() {
            return;
        }
        for sector in sectors(range) {
            let before = self.volatile.get(&sector);
            let earlier = before.and_then(|v| v.earlier.or(v.completed));
            self.volatile.insert(sector, Volatile { writer, completed: None, earlier });
        }
    }

    /// Makes durable what completed up to completion number `issued_after`, and by chance more.
    fn flush(&mut self, issued_after: u64) {
        let (bytes, durable, rng) = (&self.bytes, &mut self.durable, &mut self.rng);
        let generous = rng.chance(500);
        self.volatile.retain(|&sector, volatile| {
            // What was there before the last write may be all that is covered: the model keeps one old
            // version, so then the last write becomes durable with it.
            let covered =
                volatile.earlier.or(volatile.completed).is_some_and(|at| at <= issued_after);
            if !(covered || generous && rng.chance(500)) {
                return true;
            }
            let place = (sector * SECTOR) as usize..((sector + 1) * SECTOR) as usize;
            durable[place.clone()].copy_from_slice(&bytes[place]);
            false
        });
    }

    /// Volatile sectors come back as what is durable, each by chance; `all_done`: also those whose write
    /// has not completed. Returns the sectors that did, and what they hold now.
    pub fn lose(&mut self, all_done: bool) -> Vec<(u64, Option<Version>)> {
        let (bytes, durable, rng) = (&mut self.bytes, &mut self.durable, &mut self.rng);
        let permille = rng.pick(&[1000, 1000, 500, 100]);
        let mut reverted = Vec::new();
        self.volatile.retain(|&sector, volatile| {
            if volatile.completed.is_none() && !all_done {
                return true;
            }
            let place = (sector * SECTOR) as usize..((sector + 1) * SECTOR) as usize;
            if rng.chance(permille) {
                bytes[place.clone()].copy_from_slice(&durable[place.clone()]);
                reverted.push((sector, stamp::read(&bytes[place], sector)));
            } else {
                durable[place.clone()].copy_from_slice(&bytes[place]);
            }
            false
        });
        reverted
    }

    /// The contents after a loss of everything volatile, each sector by chance.
    pub fn after_loss(&self, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let permille = rng.pick(&[1000, 500, 100]);
        for sector in self.volatile.keys().filter(|_| rng.chance(permille)) {
            let place = (sector * SECTOR) as usize..((sector + 1) * SECTOR) as usize;
            bytes[place.clone()].copy_from_slice(&self.durable[place]);
        }
        bytes
    }

    /// The content of `sector` on primary storage.
    pub fn version(&self, sector: u64) -> Option<Version> {
        let place = (sector * SECTOR) as usize..((sector + 1) * SECTOR) as usize;
        stamp::read(&self.bytes[place], sector)
    }

    /// True when `sector` is all zeroes.
    pub fn is_zero(&self, sector: u64) -> bool {
        self.version(sector) == Some(stamp::ZEROES)
    }
}
