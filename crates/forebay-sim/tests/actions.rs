//! Every management action with its first, second, third, … I/O failing; see `forebay_sim::actions`.

use forebay_sim::actions::{self, Action};
use forebay_sim::{Coverage, Planted};

/// Runs of each action: as many on a slow machine as on a fast one.
const RUNS: u64 = 16;

#[test]
fn every_action_ends_and_loses_nothing_whichever_of_its_ios_fails() {
    let mut busy_ends = 0;
    for seed in 0..RUNS {
        let last = (1 + seed as usize) % Action::ALL.len();
        for (n, action) in Action::ALL.into_iter().enumerate() {
            // The cache fails under one that is about it, and under another one in each run.
            let is_of_cache = action == Action::DropCache || n == last;
            let targets = [actions::DURABLE, actions::CACHE];
            for targets in &targets[..1 + usize::from(is_of_cache)] {
                let found = actions::sweep(seed, action, targets, Planted::Nothing);
                let found = found.unwrap_or_else(|failure| panic!("{failure}"));
                let least = if action == Action::DropCache { 3 } else { 1 };
                busy_ends += found.busy_ends;
                assert!(found.trials >= least, "{action:?} of {seed}: no I/O on {targets:?}");
            }
        }
    }
    assert!(busy_ends > 0, "no disk grew with something in flight at its end");
}

#[test]
fn starts_that_die_after_an_orderly_end_with_half_writes_lose_nothing_and_refuse_nothing() {
    let mut coverage = Coverage::default();
    for seed in 0..8 {
        for action in [Action::ShutDown, Action::ShutDownFull] {
            let found = actions::sweep_starts(seed, action, Planted::Nothing);
            coverage.add(&found.unwrap_or_else(|failure| panic!("{failure}")));
        }
    }
    assert!(coverage.recoveries_cut > 100 && coverage.parts_left_out > 10, "{coverage:?}");
}

#[test]
fn an_error_that_nobody_hears_of_is_found() {
    let planted = Planted::UnheardError;
    let is_found = |action| {
        (0..8).any(|seed| actions::sweep(seed, action, &actions::DURABLE, planted).is_err())
    };
    for action in [Action::LeaveLog, Action::Pause, Action::ShutDown, Action::Detach] {
        assert!(is_found(action), "{action:?}");
    }
}
