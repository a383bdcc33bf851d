//! What a dead process had sent to primary storage, and what of it takes effect after the next start.

use forebay_core::action::{Io, IoOp};
use forebay_core::geometry::{ByteRange, SECTOR};

use super::{Device, Effect, Pending};
use crate::oracle::sectors;
use crate::stamp::{self, Version};

/// True for what changes bytes.
pub fn changes(io: &Io) -> bool {
    matches!(io.op, IoOp::Write { .. } | IoOp::Discard | IoOp::WriteZeroes { .. })
}

impl Pending {
    /// Its sectors, and what each of them will read as if it takes effect there.
    pub fn versions(&self) -> Vec<(u64, Option<Version>)> {
        let all = sectors(self.io.range);
        match self.io.op {
            IoOp::Write { .. } => {
                let bytes = self.data.chunks_exact(SECTOR as usize);
                all.zip(bytes).map(|(at, bytes)| (at, stamp::read(bytes, at))).collect()
            }
            _ => all.map(|at| (at, Some(stamp::ZEROES))).collect(),
        }
    }
}

impl Device {
    /// A dead process had sent it: it lands later.
    pub fn leave(&mut self, number: u64, mut pending: Pending) {
        if self.rng.chance(300) {
            pending.effect = Effect::Prefix(self.rng.below(pending.io.range.len() / SECTOR + 1));
        }
        self.late.insert(number, pending);
    }

    /// True while something of a dead process may land.
    pub fn is_unsettled(&self) -> bool {
        !self.late.is_empty()
    }

    /// It lands, unless it has: where.
    pub fn land_late(&mut self, number: u64) -> Option<ByteRange> {
        let mut pending = self.late.remove(&number)?;
        self.execute(number, &mut pending);
        self.complete(number, &pending);
        Some(pending.io.range)
    }

    /// Some of what has not landed does so now, and nothing afterwards.
    pub fn settle(&mut self) {
        while let Some((&number, _)) = self.late.first_key_value() {
            match self.rng.chance(500) {
                true => drop(self.land_late(number)),
                false => drop(self.late.remove(&number)),
            }
        }
    }
}
