use super::*;

const SEED: u64 = 9;
const WHERE: ByteRange = ByteRange::at(4096, 1024);

/// Both sectors of [`WHERE`] as a write left them.
fn of(version: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    pattern::fill(SEED, version, WHERE.start, WHERE.len(), &mut bytes);
    bytes
}

/// The findings of a read that begins and ends now: (stale, lost, misplaced, torn).
fn read(verifier: &mut Verifier, bytes: &[u8]) -> (u64, u64, u64, u64) {
    let before = verifier.found.clone();
    verifier.read_began(100, WHERE);
    verifier.read_ended(100, Some(0), Some(bytes));
    let after = &verifier.found;
    (
        after.stale - before.stale,
        after.lost - before.lost,
        after.misplaced - before.misplaced,
        after.torn - before.torn,
    )
}

fn write(verifier: &mut Verifier, version: u64) {
    verifier.write_began(1, WHERE, version);
    verifier.write_ended(1, true);
}

const WELL: (u64, u64, u64, u64) = (0, 0, 0, 0);

#[test]
fn the_last_write_that_ended_is_what_a_read_has_to_find() {
    let mut verifier = Verifier::new(SEED);
    // What was there before is not known.
    assert_eq!(read(&mut verifier, &[7; 1024]), WELL);
    assert_eq!(verifier.found.checked, 0);
    write(&mut verifier, 1);
    assert_eq!(read(&mut verifier, &of(1)), WELL);
    assert_eq!(read(&mut verifier, &[7; 1024]), (0, 2, 0, 0));
    write(&mut verifier, 2);
    assert_eq!(read(&mut verifier, &of(2)), WELL);
    assert_eq!(read(&mut verifier, &of(1)), (2, 0, 0, 0));
    assert_eq!(read(&mut verifier, &[&of(2)[..512], &of(1)[512..]].concat()), (1, 0, 0, 0));
    let torn = [&of(2)[..256], &of(1)[256..512], &of(2)[512..]].concat();
    assert_eq!(read(&mut verifier, &torn), (0, 0, 0, 1));
    assert_eq!(read(&mut verifier, &[&of(2)[512..], &of(2)[512..]].concat()), (0, 0, 1, 0));
    assert_eq!(verifier.found.wrong(), 7);
    let first = &verifier.found.findings[2];
    assert_eq!(first, "request 0, sector at byte 4096: stale: write 1, where write 2 had ended");
}

#[test]
fn a_read_that_overlaps_a_write_in_time_may_find_either() {
    let mut verifier = Verifier::new(SEED);
    write(&mut verifier, 1);
    verifier.write_began(2, WHERE, 2);
    assert_eq!(read(&mut verifier, &of(1)), WELL);
    assert_eq!(read(&mut verifier, &of(2)), WELL);
    // The write ends while this read is under way, and another one with it.
    verifier.read_began(3, WHERE);
    verifier.read_began(4, WHERE);
    verifier.write_ended(2, true);
    verifier.read_ended(3, Some(0), Some(&of(1)));
    verifier.read_ended(4, Some(0), Some(&of(2)));
    assert_eq!(verifier.found.wrong(), 0);
    assert_eq!(read(&mut verifier, &of(1)), (2, 0, 0, 0));
}

#[test]
fn of_writes_that_race_any_may_last_until_a_later_one() {
    let mut verifier = Verifier::new(SEED);
    write(&mut verifier, 1);
    for version in [2, 3] {
        verifier.write_began(version as u32, WHERE, version);
    }
    verifier.write_ended(3, true);
    verifier.write_ended(2, true);
    assert_eq!(read(&mut verifier, &of(2)), WELL);
    assert_eq!(read(&mut verifier, &of(3)), WELL);
    assert_eq!(read(&mut verifier, &of(1)), (2, 0, 0, 0));
    write(&mut verifier, 4);
    assert_eq!(read(&mut verifier, &of(4)), WELL);
    assert_eq!(read(&mut verifier, &of(3)), (2, 0, 0, 0));
    assert!(verifier.racing.is_empty() && verifier.rivals.is_empty());
}

#[test]
fn a_write_that_failed_may_be_there_or_not() {
    let mut verifier = Verifier::new(SEED);
    write(&mut verifier, 1);
    verifier.write_began(1, WHERE, 2);
    verifier.write_ended(1, false);
    assert_eq!(read(&mut verifier, &of(1)), WELL);
    assert_eq!(read(&mut verifier, &of(2)), WELL);
    write(&mut verifier, 3);
    assert_eq!(read(&mut verifier, &of(2)), (2, 0, 0, 0));
}

#[test]
fn what_was_written_is_told_in_pieces() {
    let mut verifier = Verifier::new(SEED);
    for range in [ByteRange::at(8192, 8192), ByteRange::at(4096, 4096), ByteRange::at(512, 512)] {
        verifier.write_began(1, range, 1);
        verifier.write_ended(1, true);
    }
    let expect = [ByteRange::at(512, 512), ByteRange::at(4096, 8192), ByteRange::at(12_288, 4096)];
    assert_eq!(verifier.written(8192), expect);
}
