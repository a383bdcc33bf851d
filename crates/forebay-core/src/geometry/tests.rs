use super::*;
use proptest::prelude::*;

/// Draws the granules of a mask of `n`: `x` in it, `.` not.
fn draw(mask: GranuleMask, n: u32) -> String {
    (0..n).map(|i| if mask.has(i) { 'x' } else { '.' }).collect()
}

#[test]
fn touched_and_covered_granules_of_a_block() {
    let grid = Grid::new(1 << 20, 32 << 10, 0);
    let check = |start, end, touched: &str, covered: &str| {
        let range = ByteRange::new(start, end);
        let block = BlockIndex(1);
        assert_eq!(draw(grid.touched(block, range), 8), touched, "touched by {range:?}");
        assert_eq!(draw(grid.covered(block, range), 8), covered, "covered by {range:?}");
    };
    check(0, 32768, "........", "........");
    check(0, 32769, "x.......", "........");
    check(32768, 36864, "x.......", "x.......");
    check(33280, 45056, "xxx.....", ".xx.....");
    check(33280, 33792, "x.......", "........");
    check(60000, 70000, "......xx", ".......x");
    check(0, 1 << 20, "xxxxxxxx", "xxxxxxxx");
}

#[test]
fn a_shifted_grid_has_a_short_first_block_and_a_short_last_one() {
    let grid = Grid::new(64 << 10, 16 << 10, 3584);
    assert_eq!(grid.offset(), 3584);
    assert_eq!(grid.range_of(BlockIndex(0)), ByteRange::new(0, 3584));
    assert_eq!(grid.range_of(BlockIndex(1)), ByteRange::new(3584, 19968));
    assert_eq!(grid.range_of(BlockIndex(4)), ByteRange::new(52736, 65536));
    let first = grid.touched(BlockIndex(0), ByteRange::new(0, 512));
    assert_eq!(draw(first, 4), "...x");
    assert_eq!(grid.covered(BlockIndex(0), ByteRange::new(0, 3584)), first);
    assert_eq!(grid.covered(BlockIndex(0), ByteRange::new(0, 512)), GranuleMask::NONE);
    let last = grid.covered(BlockIndex(4), ByteRange::new(65024, 65536));
    assert_eq!(draw(last, 4), "...x", "512 bytes are all that granule has on the disk");
}

#[test]
fn granules_are_a_64th_of_a_block_and_at_least_a_page() {
    for (block, granule, count) in
        [(4 << 10, 4096, 1), (64 << 10, 4096, 16), (256 << 10, 4096, 64), (1 << 20, 16384, 64)]
    {
        let grid = Grid::new(1 << 30, block, 0);
        assert_eq!((grid.granule_size(), grid.granules_per_block()), (granule, count));
    }
}

#[test]
fn runs_of_a_mask() {
    assert_eq!(GranuleMask::NONE.first_run(), None);
    assert_eq!(GranuleMask(0b0110).first_run(), Some((1, 3)));
    assert_eq!(GranuleMask(u64::MAX).first_run(), Some((0, 64)));
    assert_eq!(GranuleMask(1 << 63).first_run(), Some((63, 64)));
    assert_eq!(GranuleMask::span(0, 64), GranuleMask(u64::MAX));
    assert_eq!(GranuleMask::run(3, 5), GranuleMask::span(3, 6));
    assert_eq!(GranuleMask::run(0, 63), GranuleMask(u64::MAX));
}

prop_compose! {
    fn grid_and_range()(
        block_shift in 12u32..21,
        sectors in 1u64..20_000,
        phase in 0u64..4096,
        a in 0u64..20_000,
        b in 0u64..20_000,
    ) -> (Grid, ByteRange) {
        let block = 1u64 << block_shift;
        let grid = Grid::new(sectors * SECTOR, block, phase * SECTOR % block);
        let (a, b) = (a.min(b) % sectors, a.max(b));
        let end = b.clamp(a + 1, sectors);
        (grid, ByteRange::new(a * SECTOR, end * SECTOR))
    }
}

proptest! {
    #[test]
    fn blocks_tile_the_disk((grid, range) in grid_and_range()) {
        let mut position = range.start;
        for block in grid.blocks(range) {
            let whole = grid.range_of(block);
            prop_assert!(whole.start <= position && position < whole.end);
            prop_assert_eq!(grid.block_of(whole.start), block);
            prop_assert_eq!(grid.block_of(whole.end - 1), block);
            position = whole.end;
        }
        prop_assert!(position >= range.end);
    }

    #[test]
    fn masks_agree_with_a_byte_by_byte_count((grid, range) in grid_and_range()) {
        for block in grid.blocks(range) {
            let (touched, covered) = (grid.touched(block, range), grid.covered(block, range));
            for granule in 0..grid.granules_per_block() {
                let bytes = grid.granule_range(block, granule, granule + 1);
                prop_assert_eq!(touched.has(granule), bytes.overlaps(range) && !bytes.is_empty());
                let whole = !bytes.is_empty() && range.contains(bytes);
                prop_assert_eq!(covered.has(granule), whole, "granule {}", granule);
            }
        }
    }

    #[test]
    fn pieces_are_the_range_cut_at_block_boundaries((grid, range) in grid_and_range()) {
        let mut position = range.start;
        while position < range.end {
            let piece = grid.piece(position, range.end);
            prop_assert_eq!(piece.block, grid.block_of(position));
            prop_assert_eq!(piece.offset, grid.offset_in_block(position));
            let bytes = ByteRange::at(position, piece.len);
            prop_assert_eq!(bytes, range.intersect(grid.range_of(piece.block)));
            prop_assert_eq!(piece.touched, grid.touched(piece.block, range));
            position += piece.len;
        }
        prop_assert_eq!(position, range.end);
    }

    #[test]
    fn a_range_grown_to_granules_is_covered_by_its_granules((grid, range) in grid_and_range()) {
        let grown = grid.align_to_granules(range);
        prop_assert!(grown.contains(range) && grown.end <= grid.disk_size());
        prop_assert!(grown.len() < range.len() + 2 * grid.granule_size());
        for block in grid.blocks(grown) {
            prop_assert_eq!(grid.touched(block, grown), grid.covered(block, grown));
            prop_assert_eq!(grid.touched(block, grown), grid.touched(block, range));
        }
    }
}
