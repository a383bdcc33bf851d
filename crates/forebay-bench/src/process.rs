//! CPU time of processes.

use std::time::Duration;

use anyhow::Context;
use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// CPU time that `pid` has used so far, ended threads included, in steps of a clock tick (10 ms).
///
/// # Errors
/// There is no such process.
pub(crate) fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("no process {pid}"))?;
    let ticks = ticks(&stat).with_context(|| format!("/proc/{pid}/stat is not understood"))?;
    Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

/// CPU time that this process has used so far.
pub(crate) fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// `utime` + `stime`, fields 14 and 15; the name before them may itself have blanks and brackets.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) (b) c) S 1 7 7 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 1 0 9 0 0";
        assert_eq!(super::ticks(stat), Some(175));
    }
}
