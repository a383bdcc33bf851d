//! Short runs, crashed at each of their points; see `forebay_sim::short`.

use std::time::{Duration, Instant};

use forebay_sim::setup::COMPARING;
use forebay_sim::{Coverage, Planted, short};

/// Writers that never flush, durable ones whose groups go two at a time, and many segments.
const FIRST: [u64; 5] = [8, 19, 1, 2, 16];
/// Runs that are swept however slow the machine is.
const RUNS_MIN: usize = 10;
/// More of them while there is time.
const RUNS_MAX: u64 = 48;
const TIME_MAX: Duration = Duration::from_secs(25);

#[test]
fn a_crash_at_every_point_of_short_runs_loses_nothing() {
    let began = Instant::now();
    let mut coverage = Coverage::default();
    let others = (0..RUNS_MAX).filter(|seed| !FIRST.contains(seed));
    for (run, seed) in FIRST.into_iter().chain(others).enumerate() {
        if run >= RUNS_MIN && began.elapsed() > TIME_MAX {
            break;
        }
        let found = short::sweep(seed, 1, 32, Planted::Nothing);
        coverage.add(&found.unwrap_or_else(|failure| panic!("{failure}")));
    }
    assert!(coverage.hosts_lost > 0 && coverage.recoveries_cut > 0 && coverage.records_staged > 0);
    assert!(coverage.log_writes_beside > 0 && coverage.segments_summarized > 1000);
}

#[test]
fn a_crash_at_every_point_of_compare_and_writes_loses_and_misjudges_nothing() {
    let mut coverage = Coverage::default();
    for seed in (COMPARING..).take(4) {
        let found = short::sweep(seed, 2, 32, Planted::Nothing);
        coverage.add(&found.unwrap_or_else(|failure| panic!("{failure}")));
    }
    assert!(coverage.compares_written > 100 && coverage.miscompares > 100, "{coverage:?}");
}

#[test]
fn planted_bugs_are_found_by_a_crash() {
    for planted in Planted::BY_CRASH {
        let found = (0..16).find(|&seed| short::sweep(seed, 1, 4, planted).is_err());
        assert!(found.is_some(), "{planted:?} was not found");
    }
}
