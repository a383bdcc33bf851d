//! Numbers for blocks, in order of appearance: the directory's block numbers have 32 bits, which is too few for several
//! disks.
//!
//! ```text
//! device 0, block / 32 ──table───┐
//! (device, block / 32) ──hash────┴► stretch ──► |n|n|·|n|…  the numbers of its 32 blocks, side by side
//! ```
//! Blocks in a row share a cache line. Blocks near the beginning of the first disk are found
//! without a hash; in most traces these are all.

use forebay_core::ids::BlockIndex;
use rustc_hash::FxHashMap;

use crate::error::{Error, ErrorKind};

/// Blocks of a stretch, as a power of two.
const SHIFT: u32 = 5;
const BLOCKS: usize = 1 << SHIFT;
/// The number of a block that has none.
const NONE: u32 = u32::MAX;

/// Stretches of device 0 that the table has at most, in 16 MiB: 512 GiB of blocks of 4 KiB.
const NEAR: u64 = 1 << 22;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// Which stretch it is, of those of device 0 that are near.
    near: Vec<u32>,
    /// Of the others.
    far: FxHashMap<(u32, u64), u32>,
    numbers: Vec<[u32; BLOCKS]>,
    /// Numbers given so far. A moved grid makes other blocks, which get new numbers.
    given: u32,
    /// Blocks that have one, of those since the last clear.
    blocks: u64,
}

impl Numbers {
    /// The number of a block of a disk.
    ///
    /// # Errors
    /// There are too many blocks.
    #[inline]
    pub fn of(&mut self, device: u32, block: u64) -> Result<BlockIndex, Error> {
        let place = block >> SHIFT;
        let stretch = match self.near.get(place as usize) {
            Some(&stretch) if device == 0 && stretch != NONE => stretch,
            _ => self.stretch(device, place),
        };
        let number = &mut self.numbers[stretch as usize][block as usize % BLOCKS];
        if *number == NONE {
            if self.given == NONE {
                let message = "the trace touches 2^32 blocks or more";
                return Err(Error::new(ErrorKind::Invalid, message));
            }
            *number = self.given;
            self.given += 1;
            self.blocks += 1;
        }
        Ok(BlockIndex(*number))
    }

    fn stretch(&mut self, device: u32, place: u64) -> u32 {
        // Fewer than blocks, of which there are less than 2^32.
        let next = self.numbers.len() as u32;
        let stretch = if device == 0 && place < NEAR {
            let place = place as usize;
            if place >= self.near.len() {
                self.near.resize((place + 1).next_power_of_two(), NONE);
            }
            self.near[place] = next;
            next
        } else {
            *self.far.entry((device, place)).or_insert(next)
        };
        if stretch == next {
            self.numbers.push([NONE; BLOCKS]);
        }
        stretch
    }

    /// Other blocks come from now on.
    pub fn clear(&mut self) {
        *self = self.cleared();
    }

    /// Numbers for other blocks, none of those given so far.
    pub fn cleared(&self) -> Numbers {
        Numbers { given: self.given, ..Numbers::default() }
    }

    /// Blocks that have a number, of those since the last clear.
    pub fn len(&self) -> u64 {
        self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_numbered_as_they_appear_and_keep_their_numbers() {
        let mut numbers = Numbers::default();
        let mut of = |device, block| numbers.of(device, block).expect("there are few").0;
        let far = u64::MAX;
        let all = [(0, 7), (0, 6), (1, 7), (0, far), (0, 31), (0, 3200), (0, 7), (1, 7), (0, far)];
        let found: Vec<u32> = all.iter().map(|&(device, block)| of(device, block)).collect();
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 0, 2, 3]);
        assert_eq!(numbers.len(), 6);
        numbers.clear();
        assert_eq!(numbers.len(), 0);
        assert_eq!(numbers.of(0, 7).expect("there are few").0, 6, "another block");
    }
}
