//! Every management action with its first, second, third, … I/O failing; see `forebay_sim::actions`.

use std::time::{Duration, Instant};

use forebay_sim::Planted;
use forebay_sim::actions::{self, Action};

/// Runs of each action however slow the machine is.
const RUNS_MIN: u64 = 1;
/// More of them while there is time.
const RUNS_MAX: u64 = 16;
const TIME_MAX: Duration = Duration::from_secs(20);

#[test]
fn every_action_ends_and_loses_nothing_whichever_of_its_ios_fails() {
    let began = Instant::now();
    for seed in 0..RUNS_MAX {
        if seed >= RUNS_MIN && began.elapsed() > TIME_MAX {
            break;
        }
        for action in Action::ALL {
            let found = actions::sweep(seed, action, Planted::Nothing);
            let found = found.unwrap_or_else(|failure| panic!("{failure}"));
            assert!(found.trials > 0, "{action:?} of {seed} has no I/O");
        }
    }
}

#[test]
fn an_error_that_nobody_hears_of_is_found() {
    let is_found =
        |action| (0..8).any(|seed| actions::sweep(seed, action, Planted::UnheardError).is_err());
    for action in [Action::LeaveLog, Action::Pause, Action::ShutDown, Action::Detach] {
        assert!(is_found(action), "{action:?}");
    }
}
