//! The engine under simulation, as a part of `make test`; `make soak` goes on from there.

use std::time::{Duration, Instant};

use forebay_sim::setup::{
    COMPARING, DISCARDING, DYING, JOURNALED, RESTARTING, ROTTING, SWITCHING, TEARING,
};
use forebay_sim::{Coverage, Outcome, Planted, run_seed};

/// Seeds that must pass however slow the machine is.
const SEEDS_MIN: u64 = 1000;
/// More of them while there is time.
const SEEDS_MAX: u64 = 4000;
const TIME_MAX: Duration = Duration::from_secs(45);

fn pass(seed: u64) -> Outcome {
    run_seed(seed, Planted::Nothing).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Runs every second seed from `first` on.
fn pass_every_second(first: u64, began: Instant) -> Coverage {
    let mut coverage = Coverage::default();
    for seed in (first..SEEDS_MAX).step_by(2) {
        if seed >= SEEDS_MIN && began.elapsed() > TIME_MAX {
            break;
        }
        coverage.add(&pass(seed).coverage);
    }
    coverage
}

#[test]
fn thousands_of_seeds_break_no_rule_and_reach_every_state() {
    let began = Instant::now();
    let other = std::thread::spawn(move || pass_every_second(1, began));
    let mut coverage = pass_every_second(0, began);
    coverage.add(&other.join().expect("no seed fails"));
    // Actions with a fault in their way have runs of their own: `actions.rs`.
    // And clients that compare and write: seeds from `COMPARING` on, logs that die: from `DYING` on, and
    // journals: from `JOURNALED` on.
    let elsewhere = [
        "trials",
        "busy_ends",
        "compares_written",
        "miscompares",
        "compares_late",
        "log_pages_wrong",
        "rings_torn",
        "logs_died",
        "logs_lost",
        "logs_revoked",
        "journal_writes",
        "journal_windows",
        "windows_repaired",
        "records_torn",
        "journals_revoked",
        "stood_still",
    ];
    for (name, count) in coverage.rows().into_iter().filter(|(name, _)| !elsewhere.contains(name)) {
        assert!(count > 0, "no run had any {name}");
    }
}

#[test]
fn a_cache_that_restarts_often_never_serves_a_stale_block() {
    let mut coverage = Coverage::default();
    for seed in (RESTARTING..).take(300) {
        coverage.add(&pass(seed).coverage);
    }
    assert!(coverage.blocks_kept > 1000 && coverage.blocks_dropped > 100, "{coverage:?}");
    for planted in Planted::BY_RESTART {
        // One run in about 260 comes upon a ring that is not durable.
        let found = (RESTARTING..).take(3000).find(|&seed| run_seed(seed, planted).is_err());
        assert!(found.is_some(), "{planted:?} was not found");
    }
}

#[test]
fn of_compare_and_writes_that_race_none_loses_an_update_or_misjudges() {
    let mut coverage = Coverage::default();
    for seed in (COMPARING..).take(150) {
        coverage.add(&pass(seed).coverage);
    }
    assert!(coverage.compares_written > 1000 && coverage.miscompares > 1000, "{coverage:?}");
    assert!(coverage.compares_late > 1000, "{coverage:?}");
    for planted in Planted::BY_RACE {
        let found = (COMPARING..).take(400).find(|&seed| run_seed(seed, planted).is_err());
        assert!(found.is_some(), "{planted:?} was not found");
    }
}

#[test]
fn a_log_whose_flash_dies_and_comes_back_has_lost_nothing() {
    let mut coverage = Coverage::default();
    for seed in (DYING..).take(250) {
        coverage.add(&pass(seed).coverage);
    }
    assert!(coverage.logs_died > 400 && coverage.logs_lost > 5, "{coverage:?}");
    assert!(coverage.logs_revoked > 25, "{coverage:?}");
    for planted in Planted::BY_DEATH {
        let found = (DYING..).take(250).find(|&seed| run_seed(seed, planted).is_err());
        assert!(found.is_some(), "{planted:?} was not found");
    }
}

#[test]
fn a_log_whose_flash_returns_wrong_bytes_serves_none_of_them_and_loses_nothing() {
    let mut coverage = Coverage::default();
    for seed in (ROTTING..).take(40) {
        coverage.add(&pass(seed).coverage);
    }
    assert!(coverage.log_pages_wrong > 100 && coverage.logs_died > 50, "{coverage:?}");
    for planted in Planted::BY_ROT {
        let found = (ROTTING..).take(40).find(|&seed| run_seed(seed, planted).is_err());
        assert!(found.is_some(), "{planted:?} was not found");
    }
}

#[test]
fn what_a_discard_left_as_it_was_or_zeroed_stays_so_where_primary_storage_discards_nothing() {
    let mut coverage = Coverage::default();
    for seed in (DISCARDING..).take(400) {
        coverage.add(&pass(seed).coverage);
    }
    assert!(coverage.crashes > 400 && coverage.records_recovered > 400, "{coverage:?}");
    assert!(coverage.mode_changes > 20 && coverage.warm_restarts > 20, "{coverage:?}");
    for planted in Planted::BY_DISCARD {
        let found = (DISCARDING..).take(100).find(|&seed| run_seed(seed, planted).is_err());
        assert!(found.is_some(), "{planted:?} was not found");
    }
}

#[test]
fn a_mode_that_changes_often_loses_nothing_of_what_is_under_way() {
    let mut coverage = Coverage::default();
    for seed in (SWITCHING..).take(300).chain([SWITCHING + 639]) {
        coverage.add(&pass(seed).coverage);
    }
    assert!(coverage.mode_changes > 3000 && coverage.crashes > 400, "{coverage:?}");
    assert!(coverage.records_recovered > 400, "{coverage:?}");
}

#[test]
fn pages_of_the_ring_beyond_one_that_power_took_never_count_again() {
    let mut coverage = Coverage::default();
    for seed in (TEARING..).take(60) {
        coverage.add(&pass(seed).coverage);
    }
    assert!(coverage.rings_torn > 5 && coverage.warm_restarts > 50, "{coverage:?}");
    for planted in Planted::BY_TEARING {
        let found = (TEARING..).take(600).find(|&seed| run_seed(seed, planted).is_err());
        assert!(found.is_some(), "{planted:?} was not found");
    }
}

#[test]
fn primary_storage_with_its_journal_is_a_consistent_image_whenever_a_run_ends() {
    let mut coverage = Coverage::default();
    for seed in (JOURNALED..).take(300) {
        coverage.add(&pass(seed).coverage);
    }
    assert!(coverage.journal_windows > 2000 && coverage.prefix_checks > 5000, "{coverage:?}");
    assert!(coverage.windows_repaired > 200 && coverage.records_torn > 15, "{coverage:?}");
    assert!(coverage.journals_revoked > 0 && coverage.stood_still > 20, "{coverage:?}");
}

#[test]
fn planted_bugs_of_the_journal_are_found() {
    for planted in Planted::BY_WINDOW {
        let found = (JOURNALED..).take(400).find(|&seed| run_seed(seed, planted).is_err());
        assert!(found.is_some(), "{planted:?} was not found");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..40 {
        assert_eq!(pass(seed), pass(seed));
    }
}

#[test]
fn planted_bugs_are_found() {
    for planted in Planted::BY_CHANCE {
        let found = (0..1000).find(|&seed| run_seed(seed, planted).is_err());
        assert!(found.is_some(), "{planted:?} was not found");
    }
}

/// Seeds that once broke a rule.
#[test]
fn seeds_that_found_bugs_pass() {
    let segment_freed_under_a_group_in_flight = [0, 3, 23];
    let old_bytes_below_a_page_in_parts = [12, 41, 92];
    let two_records_of_one_page_written_side_by_side = [54];
    let turn_at_the_overlay_lost = [94, 235];
    let read_laid_out_for_another_mode_or_grid = [30, 420, 984];
    let half_a_request_seen_and_then_left_out = [22, 351, 360];
    let failed_log_not_drained_or_seen_too_early = [37, 3248, 4035];
    let batch_that_never_ends_under_errors = [2289, 2707];
    let flushed_beside_the_log_too_late = [1653];
    let change_of_mode_and_epochs = [252, 279, 639, 715];
    let flush_of_an_earlier_session_fails_late = [920_387];
    let comparison_that_raced = [2_199_023_255_669];
    let seen_after_the_log_was_lost = [DYING + 580];
    let forgotten_half_in_the_log = [DYING + 671];
    let frozen_without_notes = [DYING + 899];
    let discard_that_nobody_follows = [DYING + 1396];
    let kept_of_a_request_that_no_recovery_takes = [TEARING + 44];
    let written_without_a_mark_after_a_restart = [TEARING + 75];
    let all = segment_freed_under_a_group_in_flight
        .into_iter()
        .chain(old_bytes_below_a_page_in_parts)
        .chain(two_records_of_one_page_written_side_by_side)
        .chain(turn_at_the_overlay_lost)
        .chain(read_laid_out_for_another_mode_or_grid)
        .chain(half_a_request_seen_and_then_left_out)
        .chain(failed_log_not_drained_or_seen_too_early)
        .chain(batch_that_never_ends_under_errors)
        .chain(flushed_beside_the_log_too_late)
        .chain(change_of_mode_and_epochs)
        .chain(flush_of_an_earlier_session_fails_late)
        .chain(comparison_that_raced)
        .chain(seen_after_the_log_was_lost)
        .chain(forgotten_half_in_the_log)
        .chain(frozen_without_notes)
        .chain(discard_that_nobody_follows)
        .chain(kept_of_a_request_that_no_recovery_takes)
        .chain(written_without_a_mark_after_a_restart);
    for seed in all {
        pass(seed);
    }
}
