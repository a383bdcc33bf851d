//! A hostile ring: whatever its pages say, what recovery believes is what they say when they are read forwards.

use std::collections::BTreeMap;

use crate::cache_index::header::RingHeader;
use crate::cache_index::page::{self, Claim, PageFlags, PageHeader, PageWriter, Record};
use crate::cache_index::recover::{Claims, RecoverRing, RecoveredRing, RingReader};
use crate::cache_index::survey::{self, Surveyor};
use crate::geometry::{ByteRange, GranuleMask, Grid};
use crate::ids::{BlockIndex, Generation, SlotId, Uuid};
use crate::sealed::{self, PAGE_LEN, Page};

const DISK: Uuid = Uuid([5; 16]);
const NONCE: u64 = 7;
const BLOCK: u32 = 64 << 10;
const DISK_SIZE: u64 = 1 << 26;
const SLOTS: u32 = 64;
/// Of the ring the header and so many pages are kept, the others are zero.
const PAGES: usize = 7;

/// A file of changes to a valid ring: each is a page (its lowest bit says whether the page is sealed again), an offset and
/// a byte.
pub fn ring_format(data: &[u8]) {
    let mut ring = Ring([[0; PAGE_LEN]; PAGES + 1]);
    let template = header();
    template.encode(&mut ring.0[0]);
    for (number, page) in (1..).zip(&mut ring.0[1..]) {
        fill(number, page);
    }
    for change in data.chunks_exact(4) {
        let page = &mut ring.0[usize::from(change[0] >> 1) % (PAGES + 1)];
        page[usize::from(u16::from_le_bytes([change[1], change[2]])) % PAGE_LEN] = change[3];
        if change[0] & 1 == 1 {
            sealed::seal(page);
        }
    }
    let Some(header) = RingHeader::decode(&ring.0[0]) else { return };
    let Some(geometry) = survey::geometry(&header) else { return };
    let pending = Generation(3);
    let surveyor = Surveyor { header: &header, disk_size: header.disk_size, pending };
    let surveyed = surveyor.survey(&mut ring.reader(), std::iter::empty());
    for pages in [1, u64::MAX] {
        let sample = surveyor.sample(&mut ring.reader(), std::iter::empty(), (pages, 5));
        let sampled = sample.unwrap_or_default();
        let is_on_disk = |range: ByteRange| !range.is_empty() && range.end <= header.disk_size;
        assert!(sampled.len() <= 5 && sampled.iter().all(|granule| is_on_disk(granule.range)));
    }
    if let Ok(found) = &surveyed {
        assert!(found.kept <= found.found && found.found <= header.slots.into());
        assert!(found.pages <= header.pages.into() && found.marked <= geometry.regions.into());
    }
    if header != template {
        return;
    }
    let mut told = Told::default();
    let ask = RecoverRing { header: &header, geometry, pending, pages_max: u64::MAX };
    let recovered = ask.recover(&mut ring.reader(), &mut told);
    if let Ok(recovered) = recovered {
        assert_eq!(told.slots, ring.forwards(&recovered), "not what the pages say");
        assert_eq!(surveyed.expect("the same pages").found, told.slots.len() as u64);
    }
}

struct Ring([Page; PAGES + 1]);

/// Reads it.
struct Reader<'a> {
    ring: &'a Ring,
    loaded: (u32, u32),
}

impl RingReader for Reader<'_> {
    fn load(&mut self, first: u32, count: u32, _: Option<(u32, u32)>) -> Result<(), String> {
        self.loaded = (first, count);
        Ok(())
    }

    fn page(&self, index: u32) -> &Page {
        let (first, count) = self.loaded;
        assert!(index < count);
        self.ring.0[1..].get((first + index) as usize).unwrap_or(&[0; PAGE_LEN])
    }
}

impl Ring {
    fn reader(&self) -> Reader<'_> {
        Reader { ring: self, loaded: (0, 0) }
    }

    /// The blocks in slots and the marked regions, after the pages that count, from the oldest
    /// on.
    fn forwards(&self, ring: &RecoveredRing) -> BTreeMap<u32, (u32, u64)> {
        let geometry = survey::geometry(&header()).expect("it is ours");
        let mut slots = BTreeMap::new();
        let mut marks = vec![0; geometry.words() as usize];
        for number in ring.tail..=ring.last {
            let at = (number - 1) % u64::from(header().pages);
            let page = &self.0[1..][at as usize];
            let found = page::decode(page, DISK, NONCE).expect("recovery read it");
            assert_eq!(found.number, number);
            if found.flags.has(PageFlags::EMPTY) {
                slots.clear();
            }
            if found.flags.has(PageFlags::UNMARKED) {
                marks.fill(0);
            }
            if found.flags.has(PageFlags::MARKED) {
                marks.fill(u64::MAX);
            }
            // Within a page the first word counts: its records are of one instant.
            let records: Vec<_> = page::records(page, geometry.granules).collect();
            for record in records.into_iter().rev() {
                match record.expect("recovery read it") {
                    Record::Claim(Claim { slot, block, valid, .. }) => {
                        slots.insert(slot.0, Some((block.0, valid.0)));
                    }
                    Record::Free(slot) => {
                        slots.insert(slot.0, None);
                    }
                    Record::Marks { word, bits } => marks[word as usize] = bits,
                }
            }
        }
        assert_eq!(marks, ring.marks, "not what the pages say");
        slots.into_iter().filter_map(|(slot, held)| Some((slot, held?))).collect()
    }
}

/// What recovery says of slots.
#[derive(Default)]
struct Told {
    grid: Option<Grid>,
    slots: BTreeMap<u32, (u32, u64)>,
}

impl Claims for Told {
    fn on_grid(&mut self, offset: u64) -> bool {
        let fits = offset < BLOCK.into() && offset.is_multiple_of(512);
        self.grid = fits.then(|| Grid::new(DISK_SIZE, BLOCK.into(), offset));
        fits
    }

    fn prefetch(&mut self, coming: &[(SlotId, BlockIndex)]) {
        assert!(coming.iter().all(|(slot, _)| slot.0 < SLOTS));
    }

    fn claim(&mut self, claim: &Claim<'_>) -> bool {
        assert!(claim.slot.0 < SLOTS && !claim.valid.is_empty());
        assert_eq!(claim.checksums().count() as u32, claim.valid.count());
        let known = self.slots.insert(claim.slot.0, (claim.block.0, claim.valid.0));
        assert_eq!(known, None, "a slot is told of once");
        let grid = self.grid.as_ref().expect("it was told of the grid");
        claim.block <= grid.block_of(DISK_SIZE - 1)
    }
}

fn header() -> RingHeader {
    let granules = 16;
    let geometry = crate::cache_index::RingGeometry::new(SLOTS, granules, BLOCK.into(), DISK_SIZE);
    RingHeader {
        disk: DISK,
        generation: Generation(1),
        nonce: NONCE,
        disk_size: DISK_SIZE,
        block_size: BLOCK,
        slots: SLOTS,
        pages: geometry.pages(),
    }
}

/// Six slots, of which the later ones were in the page before, a free slot, and marks.
fn fill(number: u64, page: &mut Page) {
    let mut writer = PageWriter::new(page);
    let checksums = [number as u32; 16];
    for slot in 0..6 {
        let block = BlockIndex(number as u32 * 16 + slot);
        let slot = SlotId(number as u32 * 3 + slot);
        writer.claim(
            slot,
            block,
            GranuleMask::span(0, 1 + slot.0 % 16),
            slot.0.is_multiple_of(2),
            &checksums,
        );
    }
    writer.free(SlotId(number as u32));
    writer.marks(number as u32, 1 << number);
    let flags = match number {
        1 => PageFlags::EMPTY.with(PageFlags::MARKED),
        4 => PageFlags::UNMARKED,
        _ => PageFlags::default(),
    };
    writer.finish(&PageHeader {
        disk: DISK,
        generation: Generation(1 + number / 4),
        nonce: NONCE,
        number,
        durable: number - 1,
        tail: 1,
        walk: (number as u32, number as u32 + 1),
        grid_offset: 0,
        flags,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(feature = "planted-bugs"))]
    proptest::proptest! {
        #[test]
        fn a_hostile_ring_is_believed_as_it_stands_or_not_at_all(
            changes in proptest::collection::vec(
                (proptest::prelude::any::<u8>(), 0..400_u16, proptest::prelude::any::<u8>()), 0..20),
        ) {
            let bytes = changes.iter().flat_map(|(page, at, byte)| {
                let [low, high] = at.to_le_bytes();
                [*page, low, high, *byte]
            });
            ring_format(&bytes.collect::<Vec<u8>>());
        }
    }

    /// The first record of page 7 is of a slot that the cache does not have, sealed again.
    const BEYOND: [u8; 4] = [15, 96, 0, SLOTS as u8];

    #[cfg(not(feature = "planted-bugs"))]
    #[test]
    fn a_slot_that_the_cache_does_not_have_is_refused() {
        ring_format(&[]);
        ring_format(&BEYOND);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn the_planted_bug_is_found() {
        ring_format(&BEYOND);
    }
}
