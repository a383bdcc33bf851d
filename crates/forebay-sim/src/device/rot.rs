//! Bits that flip, on the medium or on the way.

use forebay_core::geometry::ByteRange;

use super::Device;

impl Device {
    /// Flips a bit of what was read; half of the times it is wrong on the medium, too.
    pub(super) fn rot(&mut self, range: ByteRange, data: &mut [u8]) {
        self.has_rotted = true;
        let at = self.rng.below(range.len()) as usize;
        let bit = 1 << self.rng.below(8);
        data[at] ^= bit;
        if !self.rots && self.rng.chance(500) {
            self.bytes[range.start as usize + at] ^= bit;
        }
    }

    /// Flips a bit somewhere.
    pub fn rot_anywhere(&mut self) {
        self.has_rotted = true;
        let at = self.rng.below(self.bytes.len() as u64) as usize;
        self.bytes[at] ^= 1 << self.rng.below(8);
    }

    /// Flips a bit in these bytes.
    pub fn rot_within(&mut self, range: ByteRange) {
        let at = range.start + self.rng.below(range.len());
        self.bytes[at as usize] ^= 1 << self.rng.below(8);
    }
}
