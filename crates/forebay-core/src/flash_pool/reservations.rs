//! The persistent reservations of a disk that are to outlive a restart, as its frontend wrote them down.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 64 | header of a page pair |
//! | 64 | 16 | UUID of the disk |
//! | 80 | 4 | bytes of the state, 0 to 4008; 0: there are none |
//! | 84 | 4 | zero |
//! | 88 | … | the state; zero behind it |
//!
//! The state is the frontend's. It has a magic, a version and a checksum of its own. A change is
//! durable before its answer.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::pair::{self, CONTENTS, PairInvalid};
use super::superblock::Superblock;
use super::{DiskNumber, PairId};
use crate::ids::Uuid;
use crate::sealed::{self, PAGE_LEN, Page};

/// Bytes that a state has at most.
pub const STATE_MAX: usize = PAGE_LEN - CONTENTS - size_of::<Raw>();

/// A disk's reservations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservations {
    /// The disk. Another one's reservations in this place must not be believed.
    pub disk: Uuid,
    /// The bytes of its frontend; empty: there are none.
    pub state: Vec<u8>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    disk: [u8; 16],
    len: U32,
    zero: U32,
}

impl Reservations {
    /// The page for version `version` of the pair.
    ///
    /// Panics when the state is longer than [`STATE_MAX`].
    pub fn encode(&self, pool: &Superblock, number: DiskNumber, version: u64, page: &mut Page) {
        assert!(self.state.len() <= STATE_MAX);
        let len = (self.state.len() as u32).into();
        let raw = Raw { disk: self.disk.0, len, zero: U32::ZERO };
        let contents = [raw.as_bytes(), &self.state].concat();
        pair::encode(pool, PairId::Reservations(number), version, &contents[..], page);
    }

    /// The reservations and their version.
    ///
    /// # Errors
    /// Neither copy is valid, or the newer one makes no sense.
    pub fn decode(
        pool: &Superblock,
        number: DiskNumber,
        copies: [&Page; 2],
    ) -> Result<(u64, Reservations), PairInvalid> {
        let (version, page) = pair::choose(pool, PairId::Reservations(number), copies)?;
        let (raw, rest) = sealed::record::<Raw>(pair::contents(page));
        let state = usize::try_from(raw.len.get()).ok().and_then(|len| rest.split_at_checked(len));
        match state {
            Some((state, behind)) if behind.iter().all(|byte| *byte == 0) => {
                let reservations = Reservations { disk: Uuid(raw.disk), state: state.to_vec() };
                Ok((version, reservations))
            }
            Some(_) | None => Err(PairInvalid::Field("length of its state")),
        }
    }
}
