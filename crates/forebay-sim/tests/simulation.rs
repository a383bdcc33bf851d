//! The engine under simulation, as a part of `make test`; `make soak` goes on from there.

use std::time::{Duration, Instant};

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
    for (name, count) in coverage.rows() {
        assert!(count > 0, "no run had any {name}");
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
    for planted in Planted::ALL {
        let found = (0..1000).find(|&seed| run_seed(seed, planted).is_err());
        assert!(found.is_some(), "{planted:?} was not found");
    }
}

/// Seeds that once broke a rule.
#[test]
fn seeds_that_found_bugs_pass() {
    let told_late = [7, 54, 61, 72];
    let pinned_slot_changed = [0, 93, 119, 158];
    let memory_off_page_boundaries = [71, 115, 211];
    // Of zeroes in pieces, after a failed flush, of what an earlier engine wrote.
    let losses_kept_in_cache = [113, 449, 1091, 1168, 1655, 2667];
    let read_and_writes_waited_for_each_other = [2048];
    let all = told_late
        .into_iter()
        .chain(pinned_slot_changed)
        .chain(memory_off_page_boundaries)
        .chain(losses_kept_in_cache)
        .chain(read_and_writes_waited_for_each_other);
    for seed in all {
        pass(seed);
    }
}
