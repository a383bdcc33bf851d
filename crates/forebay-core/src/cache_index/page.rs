//! A page of the ring.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | magic `FBRINGPG` |
//! | 8 | 4 | CRC32C |
//! | 12 | 2 | version, 1 |
//! | 14 | 2 | bytes of records |
//! | 16 | 16 | UUID of the disk |
//! | 32 | 8 | generation: the run that wrote it; never lower than that of the page before |
//! | 40 | 8 | nonce, as in the ring's header |
//! | 48 | 8 | number of the page, +1 each, from 1 |
//! | 56 | 8 | *durable*: pages up to this number were durable when it was written |
//! | 64 | 8 | *tail*: nothing in pages below this number counts any more |
//! | 72 | 4 | position of the walk before this page |
//! | 76 | 4 | position of the walk behind it |
//! | 80 | 4 | offset of the block grid |
//! | 84 | 4 | flags, see [`PageFlags`] |
//! | 96 | … | records |
//!
//! A record begins with a word whose two highest bits say what it is:
//! ```text
//!   00, 01  slot, block, [mask], a CRC32C per valid granule    what the slot holds; 01: it was used since it came
//!   10      slot                                               it holds nothing
//!   11      word, 8 bytes                                      which of its 64 regions are marked
//! ```
//! The mask is there when a block has several granules: 4 bytes up to 32 of them, else 8. All pages of a batch are
//! of one instant: no two of their records contradict each other, and the flags are of before them.

use crate::geometry::GranuleMask;
use crate::ids::{BlockIndex, Generation, SlotId, Uuid};
use crate::sealed::{PAGE_LEN, Page, has_seal, seal, u32_at, u64_at};
use crate::write_back::format::COUNT_MAX;

use super::header::VERSION;

const MAGIC: &[u8; 8] = b"FBRINGPG";
/// Where records begin.
const RECORDS: usize = 96;
/// Bytes of records at most.
pub const RECORDS_MAX: usize = PAGE_LEN - RECORDS;
/// Bytes of a record of marks.
pub const MARKS_LEN: usize = 12;
/// Bytes of the record of a free slot.
pub const FREE_LEN: usize = 4;

const KIND: u32 = 3 << 30;
const REFERENCED: u32 = 1 << 30;
const FREE: u32 = 2 << 30;
const MARKS: u32 = 3 << 30;

/// Facts about everything at once, of the instant before a page's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageFlags(pub u32);

impl PageFlags {
    /// No slot holds anything.
    pub const EMPTY: PageFlags = PageFlags(1);
    /// No region is marked.
    pub const UNMARKED: PageFlags = PageFlags(2);
    /// Every region is marked.
    pub const MARKED: PageFlags = PageFlags(4);
    /// The disk ended in order: this is the last page of its run.
    pub const CLOSED: PageFlags = PageFlags(8);

    /// True when all of `other` are set.
    pub fn has(self, other: PageFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both.
    pub fn with(self, other: PageFlags) -> PageFlags {
        PageFlags(self.0 | other.0)
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// The disk.
    pub disk: Uuid,
    /// The run.
    pub generation: Generation,
    /// Of the ring.
    pub nonce: u64,
    /// From 1.
    pub number: u64,
    /// Pages up to this one were durable.
    pub durable: u64,
    /// The first page that counts.
    pub tail: u64,
    /// Where the walk was before and behind it.
    pub walk: (u32, u32),
    /// Byte offset of the block grid.
    pub grid_offset: u32,
    /// Flags that hold before the records.
    pub flags: PageFlags,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// What a slot holds.
    Claim(Claim<'a>),
    /// A slot holds nothing.
    Free(SlotId),
    /// Which regions of a word are marked.
    Marks {
        /// Regions from 64 × this on.
        word: u32,
        /// Bit *i*: region *i* of them.
        bits: u64,
    },
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// The slot.
    pub slot: SlotId,
    /// The block.
    pub block: BlockIndex,
    /// Its granules that are there; at least one.
    pub valid: GranuleMask,
    /// It was used since it came.
    pub referenced: bool,
    /// The CRC32C of each valid granule, little-endian, lowest granule first.
    pub checksums: &'a [u8],
}

impl Claim<'_> {
    /// The checksums with the numbers of their granules.
    pub fn checksums(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut rest = self.valid.0;
        self.checksums.chunks_exact(4).map(move |bytes| {
            let granule = rest.trailing_zeros();
            rest &= rest - 1;
            (granule, u32_at(bytes, 0))
        })
    }
}

/// Bytes of a claim of `valid` granules of a block of `granules`.
pub fn claim_len(granules: u32, valid: u32) -> usize {
    8 + mask_len(granules) + 4 * valid as usize
}

fn mask_len(granules: u32) -> usize {
    match granules {
        0..=1 => 0,
        2..=32 => 4,
        33.. => 8,
    }
}

/// A page that is being filled.
#[derive(Debug)]
pub struct PageWriter<'a> {
    page: &'a mut Page,
    used: usize,
}

impl<'a> PageWriter<'a> {
    /// Begins a page without records.
    pub fn new(page: &'a mut Page) -> PageWriter<'a> {
        PageWriter { page, used: 0 }
    }

    /// Bytes of records so far.
    pub fn used(&self) -> usize {
        self.used
    }

    /// True when `len` more bytes fit.
    pub fn fits(&self, len: usize) -> bool {
        self.used + len <= RECORDS_MAX
    }

    /// Says what a slot holds; `checksums` are those of all granules of the block.
    pub fn claim(
        &mut self,
        slot: SlotId,
        block: BlockIndex,
        valid: GranuleMask,
        referenced: bool,
        checksums: &[u32],
    ) {
        let kind = if referenced { REFERENCED } else { 0 };
        self.put(&(slot.0 | kind).to_le_bytes());
        self.put(&block.0.to_le_bytes());
        let mask = valid.0.to_le_bytes();
        self.put(&mask[..mask_len(checksums.len() as u32)]);
        let mut rest = valid.0;
        while rest != 0 {
            let granule = rest.trailing_zeros();
            rest &= rest - 1;
            self.put(&checksums[granule as usize].to_le_bytes());
        }
    }

    /// Says that a slot holds nothing.
    pub fn free(&mut self, slot: SlotId) {
        self.put(&(slot.0 | FREE).to_le_bytes());
    }

    /// Says which regions of a word are marked.
    pub fn marks(&mut self, word: u32, bits: u64) {
        self.put(&(word | MARKS).to_le_bytes());
        self.put(&bits.to_le_bytes());
    }

    /// Completes the page.
    pub fn finish(self, header: &PageHeader) {
        let PageWriter { page, used } = self;
        page[RECORDS + used..].fill(0);
        page[..RECORDS].fill(0);
        page[..8].copy_from_slice(MAGIC);
        page[12..14].copy_from_slice(&VERSION.to_le_bytes());
        page[14..16].copy_from_slice(&(used as u16).to_le_bytes());
        page[16..32].copy_from_slice(&header.disk.0);
        page[32..40].copy_from_slice(&header.generation.0.to_le_bytes());
        page[40..48].copy_from_slice(&header.nonce.to_le_bytes());
        page[48..56].copy_from_slice(&header.number.to_le_bytes());
        page[56..64].copy_from_slice(&header.durable.to_le_bytes());
        page[64..72].copy_from_slice(&header.tail.to_le_bytes());
        page[72..76].copy_from_slice(&header.walk.0.to_le_bytes());
        page[76..80].copy_from_slice(&header.walk.1.to_le_bytes());
        page[80..84].copy_from_slice(&header.grid_offset.to_le_bytes());
        page[84..88].copy_from_slice(&header.flags.0.to_le_bytes());
        seal(page);
    }

    fn put(&mut self, bytes: &[u8]) {
        let at = RECORDS + self.used;
        self.page[at..at + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }
}

/// A page of the ring with this disk and nonce; `None` when `page` is none, or is torn.
pub fn decode(page: &Page, disk: Uuid, nonce: u64) -> Option<PageHeader> {
    let (u32_at, u64_at) = (|at| u32_at(page, at), |at| u64_at(page, at));
    // Cheap questions first: most of a ring may be of another time.
    let is_ours = page[16..32] == disk.0 && u64_at(40) == nonce;
    if !is_ours || !has_seal(page, MAGIC) || page[12..14] != VERSION.to_le_bytes() {
        return None;
    }
    if !(1..=COUNT_MAX).contains(&u64_at(48)) {
        return None;
    }
    Some(PageHeader {
        disk,
        generation: Generation(u64_at(32)),
        nonce,
        number: u64_at(48),
        durable: u64_at(56),
        tail: u64_at(64),
        walk: (u32_at(72), u32_at(76)),
        grid_offset: u32_at(80),
        flags: PageFlags(u32_at(84)),
    })
}

/// The records of a page that [`decode`] knows, for blocks of `granules` granules; an error ends them.
pub fn records(page: &Page, granules: u32) -> Records<'_> {
    let used = usize::from(u16::from_le_bytes([page[14], page[15]]));
    let rest = page[RECORDS..].get(..used).ok_or(Malformed);
    Records { rest, granules }
}

/// A record that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// See [`records`].
#[derive(Debug)]
pub struct Records<'a> {
    rest: Result<&'a [u8], Malformed>,
    granules: u32,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = match self.rest {
            Ok([]) => return None,
            Ok(rest) => rest,
            Err(malformed) => {
                self.rest = Ok(&[]);
                return Some(Err(malformed));
            }
        };
        let parsed = parse(rest, self.granules);
        self.rest = Ok(parsed.map_or(&[], |(_, rest)| rest));
        Some(parsed.map(|(record, _)| record).ok_or(Malformed))
    }
}

fn parse(bytes: &[u8], granules: u32) -> Option<(Record<'_>, &[u8])> {
    let (head, rest) = bytes.split_at_checked(4)?;
    let head = u32::from_le_bytes(head.try_into().ok()?);
    let number = head & !KIND;
    match head & KIND {
        FREE => Some((Record::Free(SlotId(number)), rest)),
        MARKS => {
            let (bits, rest) = rest.split_at_checked(8)?;
            let bits = u64::from_le_bytes(bits.try_into().ok()?);
            Some((Record::Marks { word: number, bits }, rest))
        }
        kind => {
            let (block, rest) = rest.split_at_checked(4)?;
            let block = BlockIndex(u32::from_le_bytes(block.try_into().ok()?));
            let (bytes, rest) = rest.split_at_checked(mask_len(granules))?;
            let mut mask = [0; 8];
            mask[..bytes.len()].copy_from_slice(bytes);
            let valid = match bytes.len() {
                0 => GranuleMask(1),
                _ => GranuleMask(u64::from_le_bytes(mask)),
            };
            if valid.is_empty() || !GranuleMask::span(0, granules).contains(valid) {
                return None;
            }
            let (checksums, rest) = rest.split_at_checked(4 * valid.count() as usize)?;
            let (slot, referenced) = (SlotId(number), kind == REFERENCED);
            Some((Record::Claim(Claim { slot, block, valid, referenced, checksums }), rest))
        }
    }
}
