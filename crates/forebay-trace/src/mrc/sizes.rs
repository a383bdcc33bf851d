//! Which cache sizes to show when nobody says.

/// Doublings between the smallest size and the footprint.
const DOUBLINGS: u32 = 7;

/// Sizes from about 1/128 of the smallest footprint up to the first that holds the largest: powers of two, and one
/// and a half times them. Of `footprints` each is a block size and bytes.
pub(crate) fn chosen(footprints: impl Iterator<Item = (u64, u64)>) -> Vec<u64> {
    let (mut least, mut largest, mut block_max) = (u64::MAX, 0, 1);
    for (block, bytes) in footprints {
        (least, largest) = (least.min(bytes), largest.max(bytes));
        block_max = block_max.max(block);
    }
    let mut sizes = Vec::new();
    let mut size = (least >> DOUBLINGS).next_power_of_two().max(block_max);
    loop {
        for size in [size, size / 2 * 3] {
            if size % block_max == 0 {
                sizes.push(size);
            }
            if size >= largest {
                return sizes;
            }
        }
        size *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::chosen;

    const MIB: u64 = 1 << 20;

    #[test]
    fn they_are_round_and_end_with_one_that_holds_everything() {
        let sizes = chosen([(4096, 1000 * MIB)].into_iter());
        let mib: Vec<u64> = sizes.iter().map(|size| size / MIB).collect();
        assert_eq!(mib, [8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]);
        assert_eq!(chosen([(MIB, 0)].into_iter()), [MIB]);
        assert_eq!(chosen([(4096, 8192), (MIB, 2 * MIB)].into_iter()), [MIB, 2 * MIB]);
    }
}
