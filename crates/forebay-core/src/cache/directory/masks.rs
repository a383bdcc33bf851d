//! Which granules of each slot are valid.

use super::resize::resize;
use crate::geometry::GranuleMask;
use crate::ids::SlotId;

/// The valid masks of all slots, each as wide as the granules of a block need.
#[derive(Debug)]
pub(super) enum Masks {
    /// A bit for each.
    One(Box<[u64]>),
    Upto8(Box<[u8]>),
    Upto16(Box<[u16]>),
    Upto32(Box<[u32]>),
    Upto64(Box<[u64]>),
}

impl Masks {
    pub(super) fn new(slots: u32, granules: u32) -> Masks {
        let bits = slots.div_ceil(64) as usize;
        let slots = slots as usize;
        match Self::bytes_per_slot(granules) {
            0 => Masks::One(vec![0; bits].into()),
            1 => Masks::Upto8(vec![0; slots].into()),
            2 => Masks::Upto16(vec![0; slots].into()),
            4 => Masks::Upto32(vec![0; slots].into()),
            _ => Masks::Upto64(vec![0; slots].into()),
        }
    }

    pub(super) fn memory_bytes_for(slots: u32, granules: u32) -> u64 {
        match Self::bytes_per_slot(granules) {
            0 => u64::from(slots.div_ceil(64)) * 8,
            bytes => bytes * u64::from(slots),
        }
    }

    /// Bytes for the mask of a slot; 0: a bit is enough.
    fn bytes_per_slot(granules: u32) -> u64 {
        match granules {
            0..=1 => 0,
            2..=8 => 1,
            9..=16 => 2,
            17..=32 => 4,
            33.. => 8,
        }
    }

    #[inline]
    pub(super) fn at(&self, slot: SlotId) -> GranuleMask {
        let slot = slot.0 as usize;
        GranuleMask(match self {
            Masks::One(bits) => bits[slot / 64] >> (slot % 64) & 1,
            Masks::Upto8(masks) => u64::from(masks[slot]),
            Masks::Upto16(masks) => u64::from(masks[slot]),
            Masks::Upto32(masks) => u64::from(masks[slot]),
            Masks::Upto64(masks) => masks[slot],
        })
    }

    pub(super) fn set(&mut self, slot: SlotId, mask: GranuleMask) {
        let slot = slot.0 as usize;
        match self {
            Masks::One(bits) => {
                let word = &mut bits[slot / 64];
                *word = *word & !(1 << (slot % 64)) | (mask.0 & 1) << (slot % 64);
            }
            Masks::Upto8(masks) => masks[slot] = mask.0 as u8,
            Masks::Upto16(masks) => masks[slot] = mask.0 as u16,
            Masks::Upto32(masks) => masks[slot] = mask.0 as u32,
            Masks::Upto64(masks) => masks[slot] = mask.0,
        }
    }

    /// Goes on with `slots` slots; those that are new have no valid granule, as those that go.
    pub(super) fn resize(&mut self, slots: u32) {
        match self {
            Masks::One(bits) => resize(bits, slots.div_ceil(64)),
            Masks::Upto8(masks) => resize(masks, slots),
            Masks::Upto16(masks) => resize(masks, slots),
            Masks::Upto32(masks) => resize(masks, slots),
            Masks::Upto64(masks) => resize(masks, slots),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Masks::One(bits) => size_of_val(&**bits),
            Masks::Upto8(masks) => size_of_val(&**masks),
            Masks::Upto16(masks) => size_of_val(&**masks),
            Masks::Upto32(masks) => size_of_val(&**masks),
            Masks::Upto64(masks) => size_of_val(&**masks),
        }
    }
}
