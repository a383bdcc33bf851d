use super::*;
use crate::stamp::ZEROES;

const SECTOR_ONE: ByteRange = ByteRange { start: SECTOR, end: 2 * SECTOR };

fn oracle() -> Oracle {
    Oracle::new(4 * SECTOR, ZEROES)
}

fn read(oracle: &mut Oracle, arrival: u64, version: Version) -> Result<(), String> {
    let mut bytes = [0; SECTOR as usize];
    stamp::write(&mut bytes, 1, version);
    oracle.observe(arrival, SECTOR_ONE, &bytes)
}

#[test]
fn an_acknowledged_write_must_be_read() {
    let mut oracle = oracle();
    oracle.begin(1, 5, SECTOR_ONE, false);
    oracle.acknowledge(1, SECTOR_ONE, false);
    assert!(read(&mut oracle, 2, ZEROES).is_err());
    assert!(read(&mut oracle, 2, 5).is_ok());
}

#[test]
fn a_failed_write_may_be_there_or_not_but_does_not_change_its_mind() {
    for (first, second) in [(5, ZEROES), (ZEROES, 5)] {
        let mut oracle = oracle();
        oracle.begin(1, 5, SECTOR_ONE, false);
        assert!(read(&mut oracle, 2, first).is_ok());
        assert!(read(&mut oracle, 3, first).is_ok());
        assert!(read(&mut oracle, 4, second).is_err());
    }
}

#[test]
fn zeroes_that_a_later_write_overtook_may_be_last_or_not() {
    for last in [5, ZEROES] {
        let mut oracle = Oracle::new(4 * SECTOR, 3);
        oracle.begin(1, ZEROES, SECTOR_ONE, true);
        oracle.begin(2, 5, SECTOR_ONE, false);
        oracle.acknowledge(2, SECTOR_ONE, false);
        oracle.acknowledge(1, SECTOR_ONE, false);
        assert!(read(&mut oracle, 3, 3).is_err());
        assert!(read(&mut oracle, 3, last).is_ok());
        assert!(read(&mut oracle, 4, 5 - last).is_err());
    }
}

#[test]
fn a_loss_brings_back_what_was_not_flushed_and_the_next_flush_must_fail_once() {
    let mut oracle = oracle();
    oracle.begin(1, 5, SECTOR_ONE, false);
    oracle.acknowledge(1, SECTOR_ONE, false);
    assert!(oracle.lose(2, [(1, Some(ZEROES))]).is_ok());
    assert!(read(&mut oracle, 3, ZEROES).is_ok());
    let mark = oracle.flush_mark();
    assert!(oracle.flushed(mark, false).is_err());
    oracle.flush_failed(mark, true);
    assert!(oracle.flushed(mark, false).is_ok());
}

#[test]
fn what_was_flushed_cannot_be_lost() {
    let mut oracle = oracle();
    oracle.begin(1, 5, SECTOR_ONE, false);
    oracle.acknowledge(1, SECTOR_ONE, false);
    let mark = oracle.flush_mark();
    assert!(oracle.flushed(mark, false).is_ok());
    assert!(oracle.lose(2, [(1, Some(ZEROES))]).is_err());
}

#[test]
fn a_flush_covers_only_what_was_acknowledged_before_it() {
    let mut oracle = oracle();
    let mark = oracle.flush_mark();
    oracle.begin(1, 5, SECTOR_ONE, false);
    oracle.acknowledge(1, SECTOR_ONE, false);
    assert!(oracle.flushed(mark, false).is_ok());
    assert!(oracle.lose(2, [(1, Some(ZEROES))]).is_ok());
}

#[test]
fn what_was_open_between_zeroes_and_zeroes_may_come_back() {
    let mut oracle = oracle();
    oracle.begin(1, 5, SECTOR_ONE, false);
    oracle.begin(2, ZEROES, SECTOR_ONE, false);
    assert!(read(&mut oracle, 3, ZEROES).is_ok());
    assert!(oracle.lose(4, [(1, Some(5))]).is_ok());
}

#[test]
fn a_discard_with_fua_may_have_changed_the_sector_or_not_but_a_loss_changes_nothing_back() {
    for (seen, other) in [(ZEROES, 3), (3, ZEROES)] {
        let mut oracle = Oracle::new(4 * SECTOR, 3);
        oracle.begin(1, ZEROES, SECTOR_ONE, false);
        oracle.discarded_durably(1, SECTOR_ONE);
        assert!(read(&mut oracle, 2, seen).is_ok());
        assert!(oracle.lose(3, [(1, Some(other))]).is_err());
    }
}

#[test]
fn a_discard_with_fua_says_nothing_of_a_later_write_that_was_acknowledged_before_it() {
    for (lost, is_allowed) in [(4, true), (ZEROES, true), (3, false)] {
        let mut oracle = Oracle::new(4 * SECTOR, 3);
        oracle.begin(1, 4, SECTOR_ONE, false);
        oracle.acknowledge(1, SECTOR_ONE, false);
        oracle.begin(2, ZEROES, SECTOR_ONE, false);
        oracle.begin(3, 5, SECTOR_ONE, false);
        oracle.acknowledge(3, SECTOR_ONE, false);
        oracle.discarded_durably(2, SECTOR_ONE);
        assert_eq!(oracle.lose(4, [(1, Some(lost))]).is_ok(), is_allowed, "{lost}");
    }
}

/// A dead process had sent version 5, which may land.
fn with_late() -> Oracle {
    let mut oracle = oracle();
    oracle.begin(1, 5, SECTOR_ONE, false);
    oracle.expect_late([(1, Some(5))]);
    oracle
}

#[test]
fn what_a_dead_process_had_sent_may_land_after_a_read_and_stays_then() {
    let mut oracle = with_late();
    assert!(read(&mut oracle, 2, ZEROES).is_ok());
    oracle.landed(4, SECTOR_ONE);
    assert!(read(&mut oracle, 5, 5).is_ok());
    assert!(read(&mut oracle, 3, ZEROES).is_ok(), "it arrived before");
    assert!(read(&mut oracle, 6, ZEROES).is_err());
}

#[test]
fn what_has_not_landed_in_time_is_there_at_the_next_read_or_never() {
    let mut oracle = with_late();
    assert!(read(&mut oracle, 2, ZEROES).is_ok());
    oracle.settled();
    assert!(read(&mut oracle, 3, ZEROES).is_ok());
    assert!(read(&mut oracle, 4, 5).is_err());
}

#[test]
fn nothing_lands_over_a_write_that_was_acknowledged() {
    let mut oracle = with_late();
    oracle.begin(2, 6, SECTOR_ONE, false);
    oracle.acknowledge(2, SECTOR_ONE, false);
    assert!(read(&mut oracle, 3, 5).is_err());
}

#[test]
fn what_nobody_was_answered_for_may_be_lost_behind_a_flush_of_the_log_alone() {
    let after_a_flush = |acknowledged: bool, of_log: bool| {
        let mut oracle = with_late();
        oracle.landed(2, SECTOR_ONE);
        assert!(read(&mut oracle, 3, 5).is_ok());
        if acknowledged {
            oracle.begin(4, 6, SECTOR_ONE, false);
            oracle.acknowledge(4, SECTOR_ONE, false);
        }
        let mark = oracle.flush_mark();
        oracle.flushed(mark, of_log).unwrap();
        oracle.lose(5, [(1, Some(ZEROES))])
    };
    assert!(after_a_flush(false, true).is_ok());
    assert!(after_a_flush(false, false).is_err(), "a flush of primary storage covers it");
    assert!(after_a_flush(true, true).is_err(), "the log has what was written over it");
}

#[test]
fn what_lands_beneath_an_acknowledged_write_excuses_no_read() {
    let mut oracle = with_late();
    oracle.begin(2, 6, SECTOR_ONE, false);
    oracle.acknowledge(2, SECTOR_ONE, false);
    oracle.landed(4, SECTOR_ONE);
    assert!(read(&mut oracle, 3, 5).is_err());
}
