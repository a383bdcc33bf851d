//! Short runs, crashed at each of their points; see `forebay_sim::short`.

use forebay_sim::setup::COMPARING;
use forebay_sim::{Coverage, Planted, short};

/// Runs that are swept: as many on a slow machine as on a fast one. Among the first are writers
/// that never flush, durable ones whose groups go two at a time, and many segments.
const RUNS: u64 = 48;

#[test]
fn a_crash_at_every_point_of_short_runs_loses_nothing() {
    let mut coverage = Coverage::default();
    for seed in 0..RUNS {
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
