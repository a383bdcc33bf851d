//! Rows: sectors one after the other over neighbouring pages of a batch, which one I/O can write as they lie in memory.
//!
//! ```text
//!   .......8|12345678|123.....    one row of three pages
//!   ......78|1234.678|12......    a gap: a row of two sectors, a page in parts, a row of two
//!   ......78|12AABB..|            two records in a page: it is in parts
//! ```

use super::batch::Item;
use super::run::RUN_PAGES_MAX;
use crate::config::Config;
use crate::geometry::{ByteRange, PAGE, SECTOR};
use crate::write_back::format::index::{PageGrid, SectorMask};

/// Finds rows on a disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    disk: ByteRange,
    grid: PageGrid,
    /// A part of a page can be written by itself.
    takes_parts: bool,
}

impl Rows {
    pub(super) fn new(config: &Config, grid: PageGrid) -> Rows {
        let takes_parts = u64::from(config.backend.logical_block) <= SECTOR;
        Rows { disk: config.disk(), grid, takes_parts }
    }

    /// How many items are a row from the first one on; 0: its page is one in parts. They are sorted by page.
    pub(super) fn len(self, items: &[Item]) -> u32 {
        let mut len = 0;
        for (n, item) in items.iter().enumerate().take(RUN_PAGES_MAX as usize) {
            let is_neighbour = item.page.0 == items[0].page.0 + n as u64;
            let is_alone = items.get(n + 1).is_none_or(|next| next.page != item.page);
            let all = self.grid.sectors(item.page, self.disk);
            let is_written = item.sectors == all || self.takes_parts;
            let (Some((first, end)), Some((page_first, page_end))) =
                (sole(item.sectors), sole(all))
            else {
                break;
            };
            let follows = n == 0 || first == page_first;
            if !(is_neighbour && is_alone && is_written && follows) {
                break;
            }
            len += 1;
            if end != page_end {
                break;
            }
        }
        len
    }

    /// The bytes of a row.
    pub(super) fn range(self, row: &[Item]) -> ByteRange {
        let of = |item: &Item| {
            let (first, end) = sole(item.sectors).expect("it is in a row");
            self.grid.sector_range(item.page, first, end)
        };
        ByteRange::new(of(&row[0]).start, of(&row[row.len() - 1]).end)
    }
}

/// The only run of sectors that there is.
fn sole(sectors: SectorMask) -> Option<(u32, u32)> {
    let mut runs = sectors.runs();
    runs.next().filter(|_| runs.next().is_none())
}

/// Where in its page a range begins.
pub(super) fn lead_of(grid: PageGrid, range: ByteRange) -> u64 {
    (range.start + PAGE - grid.phase()) % PAGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_back::format::index::PageIndex;

    /// Pages drawn by their sectors, `-` where there is none to write and a capital for one of another record; how many items are a
    /// row, and its first and last sector.
    fn check(takes_parts: bool, drawn: &str, len: u32, sectors: (u64, u64)) {
        let disk = ByteRange::new(0, 1 << 20);
        let rows = Rows { disk, grid: PageGrid::new(0), takes_parts };
        let mut items = Vec::new();
        for (page, drawn) in (2..).map(PageIndex).zip(drawn.split('|')) {
            for of in [char::is_lowercase as fn(char) -> bool, char::is_uppercase] {
                let marked = drawn.chars().zip(0..).filter(|&(it, _)| of(it));
                let sectors = marked.fold(0, |all, (_, sector)| all | 1 << sector);
                if sectors != 0 {
                    items.push(Item::of(page, SectorMask(sectors)));
                }
            }
        }
        assert_eq!(rows.len(&items), len, "{drawn}");
        if len > 0 {
            let range = rows.range(&items[..len as usize]);
            assert_eq!((range.start / SECTOR - 16, range.end / SECTOR - 16), sectors, "{drawn}");
        }
    }

    #[test]
    fn a_row_goes_on_until_a_gap_or_a_page_of_several_records() {
        check(true, "xxxxxxxx", 1, (0, 8));
        check(true, "xxxxxxxx|xxxxxxxx|--------|xxxxxxxx", 2, (0, 16));
        check(true, "-------x|xxxxxxx-", 2, (7, 15));
        check(true, "-------x|xxxxxxxx|x-------|xxxxxxxx", 3, (7, 17));
        check(true, "-------x|-xxxxxxx", 1, (7, 8));
        check(true, "xxxxxxx-|xxxxxxxx", 1, (0, 7));
        check(true, "--xx----|xxxxxxxx", 1, (2, 4));
        check(true, "x-xxxxxx|xxxxxxxx", 0, (0, 0));
        check(true, "xxxxxxxX|xxxxxxxx", 0, (0, 0));
        check(true, "xxxxxxxx|xxxxxxxX", 1, (0, 8));
        check(true, "xxxxxxxx|xx-xxxxx", 1, (0, 8));
    }

    #[test]
    fn on_large_blocks_only_whole_pages_are_rows() {
        check(false, "xxxxxxxx|xxxxxxxx|x-------", 2, (0, 16));
        check(false, "-------x|xxxxxxxx", 0, (0, 0));
    }

    #[test]
    fn a_row_is_of_so_many_pages_at_most_and_the_ends_of_the_disk_are_whole_pages() {
        let grid = PageGrid::new(3584);
        let rows = Rows { disk: ByteRange::new(0, 1 << 20), grid, takes_parts: false };
        let pages = || (0..257).map(PageIndex);
        let items: Vec<Item> =
            pages().map(|page| Item::of(page, grid.sectors(page, rows.disk))).collect();
        assert_eq!(rows.len(&items), RUN_PAGES_MAX);
        assert_eq!(rows.range(&items[..2]), ByteRange::new(0, 3584 + 4096));
        assert_eq!(lead_of(grid, rows.range(&items[..2])), 512);
        assert_eq!(rows.len(&items[255..]), 2);
        assert_eq!(rows.range(&items[255..]).end, 1 << 20);
    }
}
