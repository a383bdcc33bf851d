//! The rings of caches as version 1 wrote them: they must always be taken over, and the encoder must go on writing the same
//! bytes.
//!
//! `golden/ring-v1.hex` is the image of three rings at 1 MiB each (`common/image.rs`), of blocks of one, 16 and 64 granules: the
//! three ways to write a claim. It is never generated again: a change of the format is a new version with a
//! new image.

#[path = "common/image.rs"]
mod image;

use std::collections::BTreeMap;

use forebay_core::cache_index::RingGeometry;
use forebay_core::cache_index::header::RingHeader;
use forebay_core::cache_index::page::{Claim, PageFlags, PageHeader, PageWriter};
use forebay_core::cache_index::recover::{Claims, RecoverRing, RingReader};
use forebay_core::cache_index::survey::{CachedGranule, Survey, Surveyor};
use forebay_core::geometry::{ByteRange, GranuleMask, Grid};
use forebay_core::ids::{BlockIndex, Generation, SlotId, Uuid};
use forebay_core::sealed::{PAGE_LEN, Page};
use image::Image;

const GOLDEN: &str = include_str!("golden/ring-v1.hex");
const DISK: Uuid = Uuid(*b"disk-uuid-golden");
const DISK_SIZE: u64 = 1 << 30;
/// What lies between the starts of two rings.
const RING: u64 = 1 << 20;
const GRID_OFFSET: u32 = 3584;
const BLOCKS: [u32; 3] = [4 << 10, 64 << 10, 1 << 20];

fn geometry(block_size: u32) -> RingGeometry {
    let granules = Grid::new(DISK_SIZE, block_size.into(), 0).granules_per_block();
    RingGeometry::new(100, granules, block_size.into(), DISK_SIZE)
}

fn header(block_size: u32) -> RingHeader {
    RingHeader {
        disk: DISK,
        generation: Generation(2),
        nonce: 0x0123_4567_89ab_cdef,
        disk_size: DISK_SIZE,
        block_size,
        slots: 100,
        pages: geometry(block_size).pages(),
    }
}

fn page_header(number: u64, flags: PageFlags) -> PageHeader {
    PageHeader {
        disk: DISK,
        generation: Generation(1 + number),
        nonce: 0x0123_4567_89ab_cdef,
        number,
        durable: number - 1,
        tail: 1,
        walk: (10 * (number as u32 - 1), 10 * number as u32),
        grid_offset: GRID_OFFSET,
        flags,
    }
}

/// Granules of a block, every third of them.
fn some(granules: u32) -> GranuleMask {
    let of = |granule| GranuleMask::span(granule, granule + 1);
    (0..granules).step_by(3).map(of).fold(GranuleMask::NONE, GranuleMask::union)
}

fn written() -> Image {
    let mut image = Image::default();
    for (at, block_size) in (0..).step_by(RING as usize).zip(BLOCKS) {
        header(block_size).encode(image.at(at));
        let granules = geometry(block_size).granules;
        let checksums: Vec<u32> = (0..granules).map(|n| 0x1000_0000 + n).collect();
        let mut page = PageWriter::new(image.at(at + PAGE_LEN as u64));
        page.claim(SlotId(5), BlockIndex(3), GranuleMask::span(0, granules), false, &checksums);
        page.claim(SlotId(6), BlockIndex(40), some(granules), true, &checksums);
        page.claim(SlotId(7), BlockIndex(50), GranuleMask::span(0, 1), false, &checksums);
        page.finish(&page_header(1, PageFlags::EMPTY.with(PageFlags::MARKED)));
        let mut page = PageWriter::new(image.at(at + 2 * PAGE_LEN as u64));
        page.free(SlotId(7));
        page.claim(SlotId(8), BlockIndex(1000), some(granules), true, &checksums);
        page.marks(1, 0x8000_0000_0000_0001);
        page.finish(&page_header(2, PageFlags::UNMARKED.with(PageFlags::CLOSED)));
    }
    image
}

struct Reader<'a> {
    image: &'a Image,
    start: u64,
    first: u32,
}

impl RingReader for Reader<'_> {
    fn load(&mut self, first: u32, _: u32, _: Option<(u32, u32)>) -> Result<(), String> {
        self.first = first;
        Ok(())
    }

    fn page(&self, index: u32) -> &Page {
        let number = u64::from(1 + self.first + index);
        self.image.page(self.start + number * PAGE_LEN as u64)
    }
}

/// What each slot holds.
#[derive(Default, PartialEq, Debug)]
struct Told(BTreeMap<u32, Held>);

/// Block, granules, whether it was used, checksums.
type Held = (u32, GranuleMask, bool, Vec<(u32, u32)>);

impl Claims for Told {
    fn on_grid(&mut self, offset: u64) -> bool {
        offset == u64::from(GRID_OFFSET)
    }

    fn prefetch(&mut self, _: &[(SlotId, BlockIndex)]) {}

    fn claim(&mut self, claim: &Claim<'_>) -> bool {
        let checksums = claim.checksums().collect();
        let told = (claim.block.0, claim.valid, claim.referenced, checksums);
        self.0.insert(claim.slot.0, told).is_none()
    }
}

#[test]
fn the_golden_rings_are_taken_over() {
    let image = Image::parse(GOLDEN);
    for (start, block_size) in (0..).step_by(RING as usize).zip(BLOCKS) {
        let reader = || Reader { image: &image, start, first: 0 };
        let geometry = geometry(block_size);
        let found = RingHeader::decode(image.page(start)).unwrap();
        assert_eq!(found, header(block_size));

        let mut told = Told::default();
        let ask =
            RecoverRing { header: &found, geometry, pending: Generation(3), pages_max: u64::MAX };
        let ring = ask.recover(&mut reader(), &mut told).unwrap();
        let with_sums = |mask: GranuleMask| {
            let there = (0..geometry.granules).filter(|&granule| mask.has(granule));
            there.map(|granule| (granule, 0x1000_0000 + granule)).collect::<Vec<_>>()
        };
        let (all, some) = (GranuleMask::span(0, geometry.granules), some(geometry.granules));
        let expect = [
            (5, (3, all, false, with_sums(all))),
            (6, (40, some, true, with_sums(some))),
            (8, (1000, some, true, with_sums(some))),
        ];
        assert_eq!(told, Told(BTreeMap::from(expect)));
        assert_eq!((ring.last, ring.tail, ring.walk, ring.closed), (2, 1, 20, true));
        assert_eq!(ring.walked, [(2, 10, 20), (1, 0, 10)]);
        let mut marks = vec![0; geometry.words() as usize];
        marks[1] = 0x8000_0000_0000_0001;
        assert_eq!(ring.marks, marks);

        // The log has something of block 3, all of it where it is one granule.
        let block =
            Grid::new(DISK_SIZE, block_size.into(), GRID_OFFSET.into()).range_of(BlockIndex(3));
        let logged = [ByteRange::at(block.start, 4096)];
        let surveyor =
            Surveyor { header: &found, disk_size: found.disk_size, pending: Generation(3) };
        let seen = surveyor.survey(&mut reader(), logged.into_iter()).unwrap();
        let kept = if geometry.granules == 1 { 2 } else { 3 };
        let expect =
            Survey { generation: Generation(3), pages: 2, found: 3, kept, marked: 2, closed: true };
        assert_eq!(seen, expect, "{block_size}");

        let grid = Grid::new(DISK_SIZE, block_size.into(), GRID_OFFSET.into());
        let of = |block| {
            let (first, _) = some.first_run().unwrap();
            let range = grid.granule_range(BlockIndex(block), first, first + 1);
            CachedGranule { range, checksum: 0x1000_0000 + first }
        };
        let sample = |most| surveyor.sample(&mut reader(), logged.into_iter(), most).unwrap();
        // The log has the one of block 3 that would be taken.
        assert_eq!(sample((u64::MAX, 9)), [of(40), of(1000)], "{block_size}");
        assert_eq!(sample((u64::MAX, 1)), [of(40)], "{block_size}");
        // The newest page has the claim of this one, and says that its region is not marked.
        assert_eq!(sample((1, 9)), [of(1000)], "{block_size}");
    }
}

#[test]
fn the_same_rings_are_written_today() {
    assert_eq!(written().text(), GOLDEN, "the format changed without a new version");
}
