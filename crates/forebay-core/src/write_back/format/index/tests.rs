use super::*;
use crate::geometry::SECTOR;
use crate::splitmix;
use proptest::prelude::*;

const PLACES: u32 = 64;

fn index() -> LogIndex {
    LogIndex::new(PLACES, PageGrid::new(0))
}

fn insert(index: &mut LogIndex, place: u32, page: u64, sectors: u8, sequence: u64) {
    let epoch = FlushEpoch(0);
    index.insert(Place(place), PageIndex(page), SectorMask(sectors), Sequence(sequence), epoch);
}

fn zero(index: &mut LogIndex, range: ByteRange, sequence: u64) {
    let (sequence, epoch) = (Sequence(sequence), FlushEpoch(0));
    index.insert_zero(ZeroRecord { sequence, epoch, range, may_unmap: true });
}

#[test]
fn a_page_shows_the_newest_of_each_sector() {
    let mut index = index();
    insert(&mut index, 0, 7, 0xff, 1);
    insert(&mut index, 1, 7, 0x0f, 2);
    insert(&mut index, 2, 7, 0x01, 3);
    let shown: Vec<_> =
        index.layers(PageIndex(7)).iter().map(|l| (l.source, l.sectors.0)).collect();
    let place = |p| LayerSource::Place(Place(p));
    assert_eq!(shown, [(place(2), 0x01), (place(1), 0x0e), (place(0), 0xf0)]);
    index.remove(Place(0));
    assert_eq!(index.layers(PageIndex(7)).sectors(), SectorMask(0x0f));
    assert!(index.layers(PageIndex(8)).sectors().is_empty());
}

#[test]
fn a_page_that_is_rewritten_often_keeps_a_short_chain() {
    let mut index = index();
    for i in 0..PLACES {
        insert(&mut index, i, 7, 0x01, u64::from(i) + 1);
    }
    assert_eq!(index.layers(PageIndex(7)).iter().count(), 1);
    index.check_invariants();
}

#[test]
fn zeroes_hide_what_is_older_and_not_what_is_newer() {
    let mut index = index();
    insert(&mut index, 0, 0, 0xff, 1);
    zero(&mut index, ByteRange::new(512, 8192), 2);
    insert(&mut index, 1, 0, 0x04, 3);
    let layers = index.layers(PageIndex(0));
    assert_eq!(layers.single(SectorMask(0x01)), Some(LayerSource::Place(Place(0))));
    assert_eq!(layers.single(SectorMask(0x04)), Some(LayerSource::Place(Place(1))));
    assert_eq!(layers.single(SectorMask(0xfa)), Some(LayerSource::Zero));
    assert_eq!(index.layers(PageIndex(1)).single(ALL), Some(LayerSource::Zero));
    index.remove_zeroes(Sequence(2));
    assert_eq!(index.layers(PageIndex(1)).sectors(), SectorMask::NONE);
}

#[test]
fn zeroes_touch_their_sectors_after_what_came_before_them_alone() {
    let mut index = index();
    insert(&mut index, 0, 0, 0x0f, 1);
    zero(&mut index, ByteRange::new(512, 1024), 2);
    zero(&mut index, ByteRange::new(3072, 8192), 4);
    let after = |range, sequence| index.touches_after(range, Sequence(sequence));
    let (first, second) = (ByteRange::new(0, 2048), ByteRange::new(2048, 4096));
    assert!(after(first, 1) && !after(first, 2) && !after(ByteRange::new(0, 512), 1));
    assert!(after(second, 3) && !after(second, 4) && !after(ByteRange::new(0, 8192), 4));
}

#[test]
fn a_question_looks_at_few_entries_however_many_places_there_are() {
    const MIB: u64 = 1 << 20;
    let mut index = LogIndex::new(1 << 20, PageGrid::new(0));
    let looked_at = |index: &LogIndex, range| index.candidates(range).count();
    zero(&mut index, ByteRange::at(MIB << 20, MIB), 1);
    let (page, long) = (ByteRange::at(0, 4096), ByteRange::at(0, MIB << 20));
    for range in [page, long] {
        assert!(!index.touches(range));
        assert_eq!(looked_at(&index, range), 0, "none is there: {range:?}");
    }
    assert!(index.touches(ByteRange::at((MIB << 20) + 512, 512)));
    assert!(!index.touches(ByteRange::at((MIB << 20) + 512, 0)), "nothing is in no range");
    insert(&mut index, 7, 1 << 30, 0xff, 2);
    assert!(!index.touches(ByteRange::at(0, MIB)));
    assert_eq!(looked_at(&index, ByteRange::at(0, MIB)), 0, "none is of these pages");
    assert_eq!(looked_at(&index, ByteRange::at(1 << 42, MIB)), 1);
    assert!(index.touches(ByteRange::at((1 << 42) + 512, 512)));
    // More pages than places.
    assert!(!index.touches(long));
    assert_eq!(looked_at(&index, long), 1 << 20);
}

#[test]
fn who_does_not_know_the_salt_cannot_choose_pages_of_one_bucket() {
    const PLACES: usize = 1024;
    let index = |salt| LogIndex::new(PLACES as u32, PageGrid::new(0)).salted(salt);
    let most_in_one = |salt, pages: &[u64]| {
        let index = index(salt);
        let mut buckets = [0; PLACES];
        pages.iter().for_each(|page| buckets[index.bucket(PageIndex(*page))] += 1);
        buckets.into_iter().max()
    };
    let known = index(0);
    let chosen: Vec<u64> =
        (0..).filter(|page| known.bucket(PageIndex(*page)) == 7).take(PLACES).collect();
    assert_eq!(most_in_one(0, &chosen), Some(PLACES));
    let spread = (0..64).map(|n| most_in_one(splitmix::hash(n), &chosen)).max();
    assert!(spread.flatten() < Some(PLACES / 16), "{spread:?} of {PLACES} in one bucket");
}

#[test]
fn a_page_grid_has_its_boundaries_at_the_phase() {
    let grid = PageGrid::new(63 * 512);
    assert_eq!(grid.phase(), 63 * 512 % 4096);
    let page = grid.page_of(63 * 512);
    assert_eq!(grid.range_of(page), ByteRange::at(63 * 512, 4096));
    assert_eq!(grid.sectors(page, ByteRange::at(63 * 512, 4096)), ALL);
    assert_eq!(grid.range_of(grid.page_of(0)), ByteRange::new(0, 7 * 512));
    assert_eq!(grid.sectors(grid.page_of(0), ByteRange::at(0, 512)), SectorMask::span(1, 2));
    assert_eq!(grid.sector_range(grid.page_of(0), 1, 8), ByteRange::new(0, 7 * 512));
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, u8),
    Zero(u64, u64),
    /// The oldest places are freed.
    Free(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u64..6, 1u8..).prop_map(|(page, sectors)| Step::Write(page, sectors)),
        1 => (0u64..40, 1u64..30).prop_map(|(first, len)| Step::Zero(first, len)),
        2 => (1u32..8).prop_map(Step::Free),
    ]
}

proptest! {
    #[test]
    fn it_agrees_with_a_list_of_all_records(steps in prop::collection::vec(step(), 1..200)) {
        let mut index = index();
        // (sequence, place, first sector on the disk, mask or length)
        let mut records: VecDeque<(u64, Option<u32>, u64, u64)> = VecDeque::new();
        let (mut next, mut sequence) = (0u32, 0u64);
        for step in steps {
            match step {
                Step::Write(page, sectors) => {
                    let used = records.iter().filter(|r| r.1.is_some()).count() as u32;
                    if used < PLACES {
                        sequence += 1;
                        insert(&mut index, next % PLACES, page, sectors, sequence);
                        records.push_back((sequence, Some(next % PLACES), page, u64::from(sectors)));
                        next += 1;
                    }
                }
                Step::Zero(first, len) => {
                    sequence += 1;
                    zero(&mut index, ByteRange::at(first * SECTOR, len * SECTOR), sequence);
                    records.push_back((sequence, None, first, len));
                }
                Step::Free(count) => {
                    for _ in 0..count {
                        match records.pop_front() {
                            Some((_, Some(place), ..)) => index.remove(Place(place)),
                            Some((sequence, None, ..)) => index.remove_zeroes(Sequence(sequence)),
                            None => {}
                        }
                    }
                }
            }
            index.check_invariants();
            for page in 0..6u64 {
                let layers = index.layers(PageIndex(page));
                for (first, end) in [(0, 1), (0, 8), (3, 5)] {
                    let held = layers.sectors().intersect(SectorMask::span(first, end));
                    let range = index.grid().sector_range(PageIndex(page), first, end);
                    prop_assert_eq!(index.touches(range), !held.is_empty());
                }
                for sector in 0..8u64 {
                    let expected = records.iter().rev().find_map(|&(_, place, at, what)| match place {
                        Some(place) if at == page && what >> sector & 1 == 1 => {
                            Some(LayerSource::Place(Place(place)))
                        }
                        Some(_) => None,
                        None => (at..at + what).contains(&(page * 8 + sector)).then_some(LayerSource::Zero),
                    });
                    prop_assert_eq!(layers.single(SectorMask(1 << sector)), expected);
                }
            }
        }
    }
}
