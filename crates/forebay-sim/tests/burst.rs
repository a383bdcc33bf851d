//! The two published experiments with bursts of writes, and what they have to show.

use forebay_core::config::DestageOrder;
use forebay_core::stats::DestageLimit;
use forebay_sim::burst::{BURST, Experiment, Outcome, Slice};

/// As many as the guest tries.
const ALL: u64 = 300_000;

fn check_flash_speed(outcome: &Outcome) {
    assert_eq!(outcome.lost, 0);
    assert!(outcome.burst_writes >= ALL, "{} acknowledged", outcome.burst_writes);
    let (calm, burst) = (outcome.calm_p99_us, outcome.burst_p99_us);
    assert!(burst <= 2.0 * calm, "p99 {calm:.0} us outside, {burst:.0} us in the burst");
    assert_eq!(outcome.recovery_ms, None, "the log was never above its threshold");
}

fn in_burst(slice: &&Slice) -> bool {
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    seconds(BURST.0.0) < slice.seconds && slice.seconds <= seconds(BURST.1.0)
}

#[test]
fn a_burst_that_storage_keeps_up_with_runs_at_flash_speed() {
    let outcome = Experiment::i(DestageOrder::Window).run();
    check_flash_speed(&outcome);
    let behind = outcome.slices.iter().map(|s| s.occupancy_percent).fold(0.0, f64::max);
    assert!(behind < 5.0, "{behind:.1} % of the log dirty");
}

#[test]
fn a_burst_that_the_log_has_room_for_runs_at_flash_speed() {
    let outcome = Experiment::ii(DestageOrder::Window, 2 << 30).run();
    check_flash_speed(&outcome);
    // From the second second on; the first finds out what storage bears.
    let slices: Vec<_> = outcome.slices.iter().filter(in_burst).skip(10).collect();
    let mean = slices.iter().map(|s| s.destage_per_second).sum::<f64>() / slices.len() as f64;
    assert!(mean > 0.9 * 11_000.0, "{mean:.0} writes/s destaged of 11,000");
}

#[test]
fn writers_over_a_log_that_fills_settle_between_flash_and_primary_storage() {
    let outcome = Experiment::ii(DestageOrder::Window, 128 << 20).run();
    assert_eq!(outcome.lost, 0);
    assert!(outcome.burst_p99_us <= 2.0 * outcome.calm_p99_us, "{}", outcome.burst_p99_us);
    assert!(outcome.gap_ms_max < 100.0, "{} ms without acknowledgement", outcome.gap_ms_max);
    assert!(outcome.recovery_ms.expect("it fills") <= 1000.0, "{:?}", outcome.recovery_ms);
    let burst: Vec<_> = outcome.slices.iter().filter(in_burst).collect();
    for slice in &burst {
        let (flash, primary) = (slice.flash_us, slice.primary_us);
        assert!((flash..=primary).contains(&slice.effective_us), "{slice:?}");
    }
    for pair in burst.windows(2) {
        // No jump: at most a third of primary storage's latency in a tenth of a second.
        let step = (pair[1].effective_us - pair[0].effective_us).abs();
        assert!(step < pair[1].primary_us / 3.0, "{pair:?}");
    }
    // Settled: as fast as destaging.
    let settled = &burst[100..];
    let mean = settled.iter().map(|s| s.guest_per_second).sum::<f64>() / settled.len() as f64;
    assert!((0.9 * 11_000.0..11_000.0).contains(&mean), "{mean:.0} writes/s");
}

#[test]
fn strict_order_acknowledges_everything_too_without_a_pause() {
    for log_bytes in [2 << 30, 128 << 20] {
        let outcome = Experiment::ii(DestageOrder::Strict, log_bytes).run();
        assert_eq!(outcome.lost, 0);
        assert!(outcome.gap_ms_max < 100.0, "{} ms", outcome.gap_ms_max);
        assert!(outcome.burst_p99_us <= 2.0 * outcome.calm_p99_us, "{}", outcome.burst_p99_us);
        assert_eq!(outcome.limited_by, Some(DestageLimit::EpochOrder));
    }
}
