use super::*;
use crate::sealed::PAGE_LEN;

fn header() -> SegmentHeader {
    SegmentHeader {
        disk: Uuid([7; 16]),
        generation: Generation(3),
        ordinal: 9,
        first_group: GroupNumber(120),
        first_sequence: Sequence(4000),
        durable: Sequence(3990),
        epoch: FlushEpoch(55),
        nonce: 0xdead_beef,
        segment: SegmentId(17),
        phase: 3584,
    }
}

#[test]
fn a_header_reads_back_as_it_was_written() {
    let mut page = [0xff; PAGE_LEN];
    header().encode(&mut page);
    assert_eq!(SegmentHeader::decode(&page), Ok(header()));
}

#[test]
fn every_flipped_bit_and_every_truncation_is_detected() {
    let mut page = [0; PAGE_LEN];
    header().encode(&mut page);
    for bit in 0..PAGE_LEN * 8 {
        page[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(SegmentHeader::decode(&page), Err(SegmentInvalid::Absent), "bit {bit}");
        page[bit / 8] ^= 1 << (bit % 8);
    }
    // What follows the last byte that is not zero cannot be told from zeroes, so cut before it.
    let len = page.iter().rposition(|byte| *byte != 0).unwrap();
    for cut in 0..=len {
        let mut cut_off = page;
        cut_off[cut..].fill(0);
        assert_eq!(SegmentHeader::decode(&cut_off), Err(SegmentInvalid::Absent), "cut at {cut}");
    }
}

#[test]
fn impossible_fields_and_other_versions_are_refused() {
    let check = |change: &dyn Fn(&mut SegmentHeader), expect: &str| {
        let (mut page, mut changed) = ([0; PAGE_LEN], header());
        change(&mut changed);
        changed.encode(&mut page);
        assert_eq!(SegmentHeader::decode(&page).unwrap_err().to_string(), expect);
    };
    check(&|h| h.phase = 100, "the segment header has an impossible phase");
    check(&|h| h.phase = 4096, "the segment header has an impossible phase");
    check(&|h| h.first_sequence.0 = 0, "the segment header has an impossible first sequence");
    check(
        &|h| h.first_sequence.0 = u64::MAX,
        "the segment header has an impossible first sequence",
    );
    check(&|h| h.first_group.0 = u64::MAX, "the segment header has an impossible first group");
    check(&|h| h.epoch.0 = u64::MAX, "the segment header has an impossible epoch");
    check(&|h| h.durable.0 = u64::MAX, "the segment header has an impossible durable sequence");
    let mut page = [0; PAGE_LEN];
    header().encode(&mut page);
    page[12] = 2;
    sealed::seal(&mut page);
    assert_eq!(SegmentHeader::decode(&page), Err(SegmentInvalid::Version(2)));
}
