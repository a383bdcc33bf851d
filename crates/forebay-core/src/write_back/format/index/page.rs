//! Pages of the disk on the grid of the log, and their sectors.

use crate::geometry::{ByteRange, PAGE, SECTOR};

/// Every sector of a page.
pub const ALL: SectorMask = SectorMask(0xff);

/// Which of the eight sectors of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectorMask(pub u8);

impl SectorMask {
    /// No sector.
    pub const NONE: SectorMask = SectorMask(0);

    /// Sectors `first..end`.
    pub const fn span(first: u32, end: u32) -> SectorMask {
        assert!(first <= end && end <= 8);
        SectorMask((((1u16 << end) - 1) & !((1u16 << first) - 1)) as u8)
    }

    /// True without sectors.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Sectors of this one that `other` lacks.
    pub const fn without(self, other: SectorMask) -> SectorMask {
        SectorMask(self.0 & !other.0)
    }

    /// Sectors of both.
    pub const fn intersect(self, other: SectorMask) -> SectorMask {
        SectorMask(self.0 & other.0)
    }

    /// Sectors of either.
    pub const fn union(self, other: SectorMask) -> SectorMask {
        SectorMask(self.0 | other.0)
    }

    /// True when it has every sector of `other`.
    pub const fn contains(self, other: SectorMask) -> bool {
        self.0 & other.0 == other.0
    }

    /// The runs of neighbouring sectors as `first..end`, lowest first.
    pub fn runs(self) -> impl Iterator<Item = (u32, u32)> {
        let mut rest = u32::from(self.0);
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let first = rest.trailing_zeros();
            let end = first + (!(rest >> first)).trailing_zeros();
            rest &= !((1 << end) - 1);
            Some((first, end))
        })
    }
}

/// A page of the disk on the grid of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageIndex(pub u64);

/// How pages lie on the disk: page boundaries are at `phase + k × 4 KiB`, where the granules' are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageGrid {
    /// Disk position + `shift` = grid position.
    shift: u64,
}

impl PageGrid {
    /// Pages with a boundary at byte `phase`.
    pub fn new(phase: u64) -> PageGrid {
        PageGrid { shift: (PAGE - phase % PAGE) % PAGE }
    }

    /// Byte offset of the first page boundary of the disk, below a page.
    pub fn phase(self) -> u64 {
        (PAGE - self.shift) % PAGE
    }

    /// The page of the byte at `position`.
    pub fn page_of(self, position: u64) -> PageIndex {
        PageIndex((position + self.shift) / PAGE)
    }

    /// Bytes of `page`; the first page of the disk may be cut off at its start.
    pub fn range_of(self, page: PageIndex) -> ByteRange {
        let start = page.0 * PAGE;
        ByteRange::new(start.saturating_sub(self.shift), start + PAGE - self.shift)
    }

    /// Pages that `range` touches.
    pub fn pages(self, range: ByteRange) -> impl Iterator<Item = PageIndex> + Clone {
        let (first, end) = match range.is_empty() {
            true => (0, 0),
            false => (self.page_of(range.start).0, self.page_of(range.end - 1).0 + 1),
        };
        (first..end).map(PageIndex)
    }

    /// The sectors of `page` that `range` touches.
    pub fn sectors(self, page: PageIndex, range: ByteRange) -> SectorMask {
        let part = range.intersect(self.range_of(page));
        if part.is_empty() {
            return SectorMask::NONE;
        }
        let base = page.0 * PAGE;
        let first = (part.start + self.shift - base) / SECTOR;
        let end = (part.end + self.shift - base).div_ceil(SECTOR);
        SectorMask::span(first as u32, end as u32)
    }

    /// The bytes of sectors `first..end` of `page`.
    pub fn sector_range(self, page: PageIndex, first: u32, end: u32) -> ByteRange {
        let base = page.0 * PAGE;
        let at = |sector: u32| (base + u64::from(sector) * SECTOR).saturating_sub(self.shift);
        ByteRange::new(at(first), at(end))
    }
}
