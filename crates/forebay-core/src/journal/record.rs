//! The header of a record of the journal.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | magic `FBJRNLWI` |
//! | 8 | 4 | CRC32C of the page |
//! | 12 | 2 | format, 1 |
//! | 14 | 2 | phase: where pages begin on the disk, below 4096 |
//! | 16 | 16 | UUID of the disk |
//! | 32 | 8 | nonce |
//! | 40 | 8 | generation: the session of the disk that wrote it |
//! | 48 | 8 | window, from 1 |
//! | 56 | 8 | through: it has the log up to this sequence |
//! | 64 | 8 | date: when it was written, seconds since 1970 |
//! | 72 | 4 | entries of zeroes |
//! | 76 | 4 | entries of payload |
//! | 80 | 4 | CRC32C of all entries |
//! | 84 | … | zero |
//! | 4096 | 16 each | zeroes: first byte, bytes |
//! | behind | 16 each | payload: page of the disk (8), CRC32C of the payload page (4), its sectors that count (1), zero (3) |
//!
//! Zeroes come first in place, pages over them. The checksums of the payload are in the entries, that of the entries is on
//! the first page, and that has its own: so one checksum covers all.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::superblock::NUMBER_MAX;
use super::{ENTRY, Owner, Shape};
use crate::geometry::{ByteRange, PAGE, SECTOR};
use crate::ids::{Generation, Sequence, Uuid};
use crate::sealed::{self, PAGE_LEN, Page, crc32c};
use crate::write_back::format::index::{PageGrid, PageIndex, SectorMask};

const MAGIC: &[u8; 8] = b"FBJRNLWI";
const FORMAT: u16 = 1;

/// What stands in the first page of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Whose record it is.
    pub owner: Owner,
    /// The session that wrote it.
    pub generation: Generation,
    /// The window.
    pub window: u64,
    /// It has the log up to this sequence.
    pub through: Sequence,
    /// When it was written, seconds since 1970.
    pub date: u64,
    /// Where pages begin on the disk, below 4096.
    pub phase: u16,
    zeroes: u32,
    pages: u32,
    entries: u32,
}

/// One page of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The page of the disk.
    pub page: PageIndex,
    /// Its sectors that count.
    pub sectors: SectorMask,
    /// Of the whole payload page.
    pub checksum: u32,
}

/// The contents of a header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Ranges that read as zeroes, unless a page says otherwise.
    pub zeroes: Vec<ByteRange>,
    /// The pages, in the order of the payload.
    pub pages: Vec<Entry>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    checksum: U32,
    format: U16,
    phase: U16,
    disk: [u8; 16],
    nonce: U64,
    generation: U64,
    window: U64,
    through: U64,
    date: U64,
    zeroes: U32,
    pages: U32,
    entries: U32,
}

const _: () = assert!(size_of::<Raw>() == 84);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    page: U64,
    checksum: U32,
    sectors: u8,
    zero: [u8; 3],
}

impl Head {
    /// The head of a record, whose counts and checksum [`Contents::encode`] fills in.
    pub fn new(owner: Owner, generation: Generation, window: u64, through: Sequence) -> Head {
        Head {
            owner,
            generation,
            window,
            through,
            date: 0,
            phase: 0,
            zeroes: 0,
            pages: 0,
            entries: 0,
        }
    }

    /// Its pages begin there on the disk, below 4096.
    pub fn on_pages_from(self, phase: u16) -> Head {
        Head { phase, ..self }
    }

    fn put(&self, page: &mut Page) {
        let raw = Raw {
            magic: *MAGIC,
            checksum: U32::ZERO,
            format: FORMAT.into(),
            phase: self.phase.into(),
            disk: self.owner.disk.0,
            nonce: self.owner.nonce.into(),
            generation: self.generation.0.into(),
            window: self.window.into(),
            through: self.through.0.into(),
            date: self.date.into(),
            zeroes: self.zeroes.into(),
            pages: self.pages.into(),
            entries: self.entries.into(),
        };
        page.fill(0);
        sealed::put_record(page, &raw);
        sealed::seal(page);
    }

    /// The head on the first page of a slot of a journal; nothing where none of this owner's is.
    pub fn decode(page: &Page, owner: Owner, shape: Shape) -> Option<Head> {
        if !sealed::has_seal(page, MAGIC) {
            return None;
        }
        let (raw, _) = sealed::record::<Raw>(page);
        let head = Head {
            owner: Owner { disk: Uuid(raw.disk), nonce: raw.nonce.get() },
            generation: Generation(raw.generation.get()),
            window: raw.window.get(),
            through: Sequence(raw.through.get()),
            date: raw.date.get(),
            phase: raw.phase.get(),
            zeroes: raw.zeroes.get(),
            pages: raw.pages.get(),
            entries: raw.entries.get(),
        };
        let count = u64::from(head.zeroes) + u64::from(head.pages);
        let is_sound = raw.format == FORMAT
            && head.owner == owner
            && u64::from(head.phase) < PAGE
            && u64::from(head.phase).is_multiple_of(SECTOR)
            && head.window > 0
            && head.window < NUMBER_MAX
            && head.pages <= shape.capacity()
            && count <= shape.entries_max() as u64;
        is_sound.then_some(head)
    }

    /// Pages of the header, the first one included.
    pub fn header_pages(&self) -> u32 {
        let entries = u64::from(self.zeroes) + u64::from(self.pages);
        1 + (entries * ENTRY).div_ceil(PAGE) as u32
    }

    /// Pages of payload.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// The pages of the disk.
    pub fn grid(&self) -> PageGrid {
        PageGrid::new(u64::from(self.phase))
    }
}

impl Contents {
    /// Pages of its header.
    pub fn header_pages(&self) -> u32 {
        let entries = (self.zeroes.len() + self.pages.len()) as u64;
        1 + (entries * ENTRY).div_ceil(PAGE) as u32
    }

    /// Puts the header of a record with this head into whole pages, as many as [`Contents::header_pages`] says.
    pub fn encode(&self, head: Head, bytes: &mut [u8]) {
        let (first, rest) = bytes.split_first_chunk_mut::<PAGE_LEN>().expect("a page at least");
        rest.fill(0);
        let mut places = rest.chunks_exact_mut(ENTRY as usize);
        let mut put = |entry: RawEntry| {
            let place = places.next().expect("as many as the header has pages for");
            sealed::put_record(place, &entry);
        };
        for zero in &self.zeroes {
            let len = zero.len().to_le_bytes();
            put(RawEntry {
                page: zero.start.into(),
                checksum: sealed::u32_at(&len, 0).into(),
                sectors: len[4],
                zero: sealed::bytes_at(&len, 5),
            });
        }
        for entry in &self.pages {
            put(RawEntry {
                page: entry.page.0.into(),
                checksum: entry.checksum.into(),
                sectors: entry.sectors.0,
                zero: [0; 3],
            });
        }
        let used = (self.zeroes.len() + self.pages.len()) * ENTRY as usize;
        let head = Head {
            zeroes: self.zeroes.len() as u32,
            pages: self.pages.len() as u32,
            entries: crc32c(&rest[..used]),
            ..head
        };
        head.put(first);
    }

    /// What the entries behind a head say, of a disk of `size` bytes; nothing where they are not those of the head.
    pub fn decode(head: &Head, rest: &[u8], size: u64) -> Option<Contents> {
        let (zeroes, pages) = (head.zeroes as usize, head.pages as usize);
        let used = rest.get(..(zeroes + pages) * ENTRY as usize)?;
        if crc32c(used) != head.entries {
            return None;
        }
        let (first, second) = used.split_at(zeroes * ENTRY as usize);
        let disk = ByteRange::new(0, size);
        let grid = head.grid();
        let zeroes = first.chunks_exact(ENTRY as usize).map(|bytes| {
            let (start, len) = (sealed::u64_at(bytes, 0), sealed::u64_at(bytes, 8));
            let range = ByteRange { start, end: start.checked_add(len)? };
            let is_sound = len > 0 && range.is_aligned(SECTOR) && disk.contains(range);
            is_sound.then_some(range)
        });
        let pages = second.chunks_exact(ENTRY as usize).map(|bytes| {
            let (raw, _) = sealed::record::<RawEntry>(bytes);
            let page = PageIndex(raw.page.get());
            let sectors = SectorMask(raw.sectors);
            let is_near = page.0 <= size / PAGE + 1;
            let all = is_near.then(|| grid.sectors(page, disk))?;
            let is_sound = !sectors.is_empty() && all.contains(sectors);
            is_sound.then_some(Entry { page, sectors, checksum: raw.checksum.get() })
        });
        Some(Contents {
            zeroes: zeroes.collect::<Option<_>>()?,
            pages: pages.collect::<Option<_>>()?,
        })
    }
}

/// Says in a header when it is written: seconds since 1970. Its first page is whole, and is again.
pub fn date(first: &mut Page, seconds: u64) {
    let (raw, _) = Raw::mut_from_prefix(first).expect("a record is shorter than a page");
    raw.date = seconds.into();
    sealed::seal(first);
}
