//! A group: one header page that describes records, followed by their data pages.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | magic `FBLOGGRP` |
//! | 8 | 4 | CRC32C of the page, zero until it is sealed |
//! | 12 | 2 | entries; written last |
//! | 14 | 2 | data pages |
//! | 16 | 16 | UUID of the disk |
//! | 32 | 8 | generation, as in the segment header |
//! | 40 | 8 | group number, +1 each |
//! | 48 | 8 | sequence of the first entry; entry *i* has this plus *i* |
//! | 56 | 8 | durable: records up to this sequence were durable when the group was sealed |
//! | 64 | 8 | nonce, as in the segment header |
//! | 72 | 2 | phase of the page grid |
//! | 74 | 22 | zero |
//! | 96 | 32 each | entries |
//! | … | | zero |
//! | 4096 − 4 × data pages | 4 each | CRC32C of the data pages, the first one's last: page *k* at 4092 − 4 × *k* |
//!
//! An entry:
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | first byte on the disk, a multiple of 512 |
//! | 8 | 8 | length in bytes, a multiple of 512 |
//! | 16 | 8 | flush epoch, never lower than the entry's before |
//! | 24 | 2 | first data page, from 0 |
//! | 26 | 1 | kind: 1 write, 2 zero |
//! | 27 | 1 | flags: bit 0, the next record belongs to the same request |
//! | 28 | 4 | zero |
//!
//! Entries grow upwards and checksums downwards, so that neither moves while a group fills. The
//! same page stands in the staging file before it reaches flash: [`append`] writes an entry and
//! its checksums first, and the count last. So a process that dies at any instant leaves whole
//! entries. The count is below 256, thus changes by a single byte. On flash a header counts when
//! its checksum is right ([`GroupView::sealed`]), in the staging file when its count does
//! ([`GroupView::staged`]).

use std::sync::atomic::{Ordering, fence};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::segment::phase_is_sane;
use super::{COUNT_MAX, DISK_SIZE_MAX, data_pages};
use crate::geometry::{ByteRange, SECTOR};
use crate::ids::{FlushEpoch, Generation, GroupNumber, Sequence, Uuid};
use crate::sealed::{self, PAGE_LEN, Page};

/// First bytes of a group header.
pub const MAGIC: &[u8; 8] = b"FBLOGGRP";
/// Where entries begin.
const ENTRIES: usize = 96;
/// Bytes of an entry.
const ENTRY: usize = 32;
/// Most entries of a group.
pub const ENTRIES_MAX: u32 = ((PAGE_LEN - ENTRIES) / ENTRY) as u32;
/// Most data pages of a group: those of a single record.
pub const DATA_PAGES_MAX: u32 = ((PAGE_LEN - ENTRIES - ENTRY) / 4) as u32;

/// How full a group is, and what still fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupLayout {
    /// Records.
    pub entries: u32,
    /// Pages of data.
    pub data_pages: u32,
}

impl GroupLayout {
    /// True when `entries` more with `data_pages` more in all fit into the header page.
    pub const fn fits(self, entries: u32, data_pages: u32) -> bool {
        let entries = self.entries as u64 + entries as u64;
        let data_pages = self.data_pages as u64 + data_pages as u64;
        ENTRIES as u64 + entries * ENTRY as u64 + data_pages * 4 <= PAGE_LEN as u64
    }

    /// Counts one record with `data_pages` in.
    ///
    /// # Panics
    /// When it does not fit.
    pub fn add(&mut self, data_pages: u32) {
        assert!(self.fits(1, data_pages), "the group is full");
        self.entries += 1;
        self.data_pages += data_pages;
    }

    /// Pages that the group takes on flash, its header included.
    pub const fn pages(self) -> u32 {
        1 + self.data_pages
    }
}

/// The bytes of a header page for a record with `data_pages`.
pub(super) fn record_bytes(data_pages: u32) -> u64 {
    ENTRY as u64 + 4 * u64::from(data_pages)
}

/// The most groups that records fill one after the other, if they take `bytes` of header pages.
/// Two neighbours are more than one page together, or they would be one group.
pub(super) fn headers_max(bytes: u64) -> u32 {
    (2 * bytes / (PAGE_LEN - ENTRIES) as u64 + 1) as u32
}

/// What a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// The range holds the record's data.
    Write,
    /// The range reads as zeroes: written so, or discarded. It has no data pages.
    Zero,
}

/// One record of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The bytes of the disk, whole sectors.
    pub range: ByteRange,
    /// The epoch that it belongs to.
    pub epoch: FlushEpoch,
    /// What it does.
    pub kind: RecordKind,
    /// The next record belongs to the same request: either both survive a crash or none.
    pub more: bool,
}

impl Entry {
    /// Data pages that it takes. Page *k* holds the disk's bytes from `page_start(range.start) + 4096 k`;
    /// what lies outside the range in the first and last page is undefined, but under the checksum.
    pub fn data_pages(&self, phase: u16) -> u64 {
        match self.kind {
            RecordKind::Write => data_pages(self.range, phase),
            RecordKind::Zero => 0,
        }
    }
}

/// What a group says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// Whose log it is.
    pub disk: Uuid,
    /// The same as in the segment's header.
    pub generation: Generation,
    /// One more than the group's before.
    pub number: GroupNumber,
    /// Sequence of the first entry.
    pub first_sequence: Sequence,
    /// Records up to this one were known to be durable when the group was sealed.
    pub durable: Sequence,
    /// The same as in the segment's header.
    pub nonce: u64,
    /// Offset of the disk's page grid.
    pub phase: u16,
}

impl GroupHeader {
    /// The fields of `page` as they stand there, whatever they are.
    pub(super) fn read(page: &Page) -> GroupHeader {
        let (raw, _) = sealed::record::<RawHeader>(page);
        GroupHeader {
            disk: Uuid(raw.disk),
            generation: Generation(raw.generation.get()),
            number: GroupNumber(raw.number.get()),
            first_sequence: Sequence(raw.first_sequence.get()),
            durable: Sequence(raw.durable.get()),
            nonce: raw.nonce.get(),
            phase: raw.phase.get(),
        }
    }
}

/// Starts a group in `page`, with no entries.
///
/// # Panics
/// When `header` has a phase that is none.
pub fn begin(page: &mut Page, header: &GroupHeader) {
    assert!(phase_is_sane(header.phase));
    let raw = RawHeader {
        magic: [0; 8],
        checksum: U32::ZERO,
        entries: U16::ZERO,
        data_pages: U16::ZERO,
        disk: header.disk.0,
        generation: header.generation.0.into(),
        number: header.number.0.into(),
        first_sequence: header.first_sequence.0.into(),
        durable: header.durable.0.into(),
        nonce: header.nonce.into(),
        phase: header.phase.into(),
        zero: [0; 22],
    };
    // A process may die anywhere in here: what was here before goes first, the magic comes last, so that
    // the page has the old group without entries, no group, or the new one.
    page[12] = 0;
    fence(Ordering::Release);
    page[..8].fill(0);
    fence(Ordering::Release);
    page.fill(0);
    sealed::put_record(page, &raw);
    fence(Ordering::Release);
    page[..8].copy_from_slice(MAGIC);
}

/// Appends a record to the group that was begun in `page` and publishes it. `checksums` are the CRC32C of its
/// data pages, which are in place before this is called. Returns the number of the record's first
/// data page, from 0; on flash it lies that many pages after the header page plus one.
///
/// # Panics
/// The record does not fit or is not whole sectors, or `checksums` lacks one for a page.
pub fn append(page: &mut Page, entry: &Entry, checksums: &[u32]) -> u32 {
    let (header, _) = sealed::record::<RawHeader>(page);
    let count = usize::from(header.entries.get());
    let first_page = u32::from(header.data_pages.get());
    let pages = entry.data_pages(header.phase.get());
    assert!(!entry.range.is_empty() && entry.range.is_aligned(SECTOR), "{:?}", entry.range);
    assert_eq!(pages, checksums.len() as u64, "checksums of {entry:?}");
    let layout = GroupLayout { entries: count as u32, data_pages: first_page };
    assert!(layout.fits(1, checksums.len() as u32), "the group is full");
    let raw = RawEntry {
        start: entry.range.start.into(),
        len: entry.range.len().into(),
        epoch: entry.epoch.0.into(),
        first_page: (first_page as u16).into(),
        kind: match entry.kind {
            RecordKind::Write => 1,
            RecordKind::Zero => 2,
        },
        flags: u8::from(entry.more),
        zero: U32::ZERO,
    };
    let at = ENTRIES + count * ENTRY;
    page[at..at + ENTRY].copy_from_slice(raw.as_bytes());
    for (index, checksum) in checksums.iter().enumerate() {
        let at = checksum_at(first_page as usize + index);
        page[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
    }
    page[14..16].copy_from_slice(&(first_page as u16 + checksums.len() as u16).to_le_bytes());
    fence(Ordering::Release);
    page[12] = count as u8 + 1;
    first_page
}

/// Appends the CRC32C of the group's data pages, as its records were appended, to `out`.
pub fn checksums(page: &Page, out: &mut Vec<u32>) {
    let (header, _) = sealed::record::<RawHeader>(page);
    out.extend((0..usize::from(header.data_pages.get())).map(|index| checksum_of(page, index)));
}

/// The part of the group in `page` that a summary has: its entries, the number of its data pages,
/// its phase.
pub(super) fn parts(page: &Page) -> (&[RawEntry], U16, U16) {
    let (header, rest) = sealed::record::<RawHeader>(page);
    let count = usize::from(header.entries.get());
    let (entries, _) = <[RawEntry]>::ref_from_prefix_with_elems(rest, count).expect("they fit");
    (entries, header.data_pages, header.phase)
}

/// CRC32C of data page `index` of the group in `page`.
pub(super) fn checksum_of(page: &Page, index: usize) -> u32 {
    let at = checksum_at(index);
    sealed::u32_at(page, at)
}

/// Completes a group for flash: says what is durable and puts the checksum in its place. Nothing may be
/// appended afterwards.
///
/// # Panics
/// When the group has no entry, or claims that its own records are durable.
pub fn seal(page: &mut Page, durable: Sequence) {
    let mut header = *sealed::record::<RawHeader>(page).0;
    assert!(header.entries.get() > 0, "an empty group");
    assert!(durable.0 < header.first_sequence.get(), "a group is not durable before it is written");
    header.durable = durable.0.into();
    sealed::put_record(page, &header);
    sealed::seal(page);
}

/// Why a page is not a group header that can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupInvalid {
    /// No magic, or (on flash) a wrong checksum: never written, torn or rotten.
    #[error("there is no valid group header")]
    Absent,
    /// Checksum right, but with a field that cannot be.
    #[error("the group header has an impossible {0}")]
    Field(&'static str),
}

/// A group header that was checked, over its page.
#[derive(Clone, Copy, Debug)]
pub struct GroupView<'a> {
    page: &'a Page,
    header: GroupHeader,
    layout: GroupLayout,
}

impl<'a> GroupView<'a> {
    /// Reads a group header from flash. The caller compares its owner and its number.
    ///
    /// # Errors
    /// There is none, or its fields contradict each other.
    pub fn sealed(page: &'a Page) -> Result<GroupView<'a>, GroupInvalid> {
        if !sealed::has_seal(page, MAGIC) {
            return Err(GroupInvalid::Absent);
        }
        let view = GroupView::decode(page)?;
        let (raw, _) = sealed::record::<RawHeader>(page);
        if u32::from(raw.data_pages.get()) != view.layout.data_pages {
            return Err(GroupInvalid::Field("number of data pages"));
        }
        if view.header.durable >= view.header.first_sequence {
            return Err(GroupInvalid::Field("durable sequence"));
        }
        if view.layout.entries == 0 {
            return Err(GroupInvalid::Field("number of entries"));
        }
        Ok(view)
    }

    /// Reads a group header from the staging file, where it may not have been sealed: its entries are
    /// those that were published. There may be none.
    ///
    /// # Errors
    /// There is no header, or its fields contradict each other.
    pub fn staged(page: &'a Page) -> Result<GroupView<'a>, GroupInvalid> {
        if page[..8] != MAGIC[..] {
            return Err(GroupInvalid::Absent);
        }
        GroupView::decode(page)
    }

    fn decode(page: &'a Page) -> Result<GroupView<'a>, GroupInvalid> {
        let (raw, _) = sealed::record::<RawHeader>(page);
        let header = GroupHeader::read(page);
        let impossible = |what| Err(GroupInvalid::Field(what));
        if !phase_is_sane(header.phase) {
            return impossible("phase");
        }
        if header.number.0 > COUNT_MAX {
            return impossible("number");
        }
        if !(1..=COUNT_MAX).contains(&header.first_sequence.0) {
            return impossible("first sequence");
        }
        let count = u32::from(raw.entries.get());
        if count > ENTRIES_MAX {
            return impossible("number of entries");
        }
        let mut layout = GroupLayout::default();
        let mut epoch = FlushEpoch(0);
        for index in 0..count {
            let raw = raw_entry(page, index);
            let entry = raw.decode().map_err(GroupInvalid::Field)?;
            if u32::from(raw.first_page.get()) != layout.data_pages {
                return impossible("first data page of an entry");
            }
            if entry.epoch < epoch || entry.epoch.0 > COUNT_MAX {
                return impossible("epoch of an entry");
            }
            epoch = entry.epoch;
            let pages = entry.data_pages(header.phase);
            let fits = pages <= u64::from(DATA_PAGES_MAX) && layout.fits(1, pages as u32);
            if !fits && !cfg!(feature = "planted-bugs") {
                return impossible("length of an entry");
            }
            layout.add(pages as u32);
        }
        Ok(GroupView { page, header, layout })
    }

    /// The group's description of itself.
    pub fn header(&self) -> &GroupHeader {
        &self.header
    }

    /// Its entries and data pages.
    pub fn layout(&self) -> GroupLayout {
        self.layout
    }

    /// Its records in order, each with its sequence and first data page.
    pub fn entries(&self) -> impl Iterator<Item = (Sequence, u32, Entry)> + use<'a> {
        let GroupView { page, header, layout } = *self;
        (0..layout.entries).map(move |index| {
            let raw = raw_entry(page, index);
            let entry = raw.decode().expect("checked when the view was made");
            let first_page = u32::from(raw.first_page.get());
            (header.first_sequence.plus(u64::from(index)), first_page, entry)
        })
    }

    /// CRC32C of data page `index`.
    ///
    /// # Panics
    /// When the group does not have it.
    pub fn checksum(&self, index: u32) -> u32 {
        assert!(index < self.layout.data_pages);
        checksum_of(self.page, index as usize)
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    checksum: U32,
    entries: U16,
    data_pages: U16,
    disk: [u8; 16],
    generation: U64,
    number: U64,
    first_sequence: U64,
    durable: U64,
    nonce: U64,
    phase: U16,
    zero: [u8; 22],
}

/// An entry as it stands on flash.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawEntry {
    start: U64,
    len: U64,
    epoch: U64,
    first_page: U16,
    kind: u8,
    flags: u8,
    zero: U32,
}

const _: () = assert!(size_of::<RawHeader>() == ENTRIES && size_of::<RawEntry>() == ENTRY);
// The count fits into its low byte.
const _: () = assert!(ENTRIES_MAX < 256);

impl RawEntry {
    /// Its first data page, from 0.
    pub(super) fn first_page(&self) -> u16 {
        self.first_page.get()
    }

    pub(super) fn decode(&self) -> Result<Entry, &'static str> {
        let (start, len) = (self.start.get(), self.len.get());
        let end = start.checked_add(len).filter(|end| *end <= DISK_SIZE_MAX);
        let Some(end) = end else { return Err("range of an entry") };
        let range = ByteRange { start, end };
        if range.is_empty() || !range.is_aligned(SECTOR) {
            return Err("range of an entry");
        }
        let kind = match self.kind {
            1 => RecordKind::Write,
            2 => RecordKind::Zero,
            _ => return Err("kind of an entry"),
        };
        if self.flags > 1 {
            return Err("flag of an entry");
        }
        Ok(Entry { range, epoch: FlushEpoch(self.epoch.get()), kind, more: self.flags == 1 })
    }
}

fn raw_entry(page: &Page, index: u32) -> &RawEntry {
    let at = ENTRIES + index as usize * ENTRY;
    sealed::record(&page[at..]).0
}

fn checksum_at(index: usize) -> usize {
    PAGE_LEN - 4 * (index + 1)
}

#[cfg(test)]
mod tests;
