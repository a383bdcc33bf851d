//! The clock of the shards.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`: never goes back, has no meaning outside of this boot.
pub fn now_nanos() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The same, a few milliseconds late at most, for a tenth of its price.
pub fn coarse_nanos() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of the thread that calls this.
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The time of [`now_nanos`] after `wait` from now, `u64::MAX` when that is too far.
pub(crate) fn nanos_after(wait: Duration) -> u64 {
    now_nanos().saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::now_nanos;

    #[test]
    fn time_does_not_go_back() {
        let mut last = now_nanos();
        assert!(last > 0);
        for _ in 0..1000 {
            let now = now_nanos();
            assert!(now >= last);
            last = now;
        }
    }
}
