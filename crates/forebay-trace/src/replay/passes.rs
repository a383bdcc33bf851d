//! A trace several times in a row.

use crate::error::Error;
use crate::record::{Record, Summary};

/// The records of `open`, `passes` times, one after the other. Each pass begins as long after the
/// last request of the one before as requests are apart on the mean. `summary` is of one pass.
///
/// # Errors
/// Those of the trace, as items.
pub fn passes<I>(
    mut open: impl FnMut() -> Result<I, Error>,
    passes: u32,
    summary: Summary,
) -> impl Iterator<Item = Result<Record, Error>>
where
    I: Iterator<Item = Result<Record, Error>>,
{
    let period = period(&summary);
    (0..u64::from(passes)).flat_map(move |pass| {
        let (records, error) = match open() {
            Ok(records) => (Some(records), None),
            Err(error) => (None, Some(Err(error))),
        };
        let later = period.saturating_mul(pass);
        let moved = move |record: Result<Record, Error>| {
            record.map(|record| Record { time_ns: record.time_ns.saturating_add(later), ..record })
        };
        records.into_iter().flatten().map(moved).chain(error)
    })
}

/// How long so many passes take on the trace's clock.
pub fn duration_ns(passes: u32, summary: &Summary) -> u64 {
    let others = u64::from(passes.saturating_sub(1));
    period(summary).saturating_mul(others).saturating_add(summary.duration_ns)
}

/// From the beginning of a pass to that of the next.
fn period(summary: &Summary) -> u64 {
    let requests = summary.reads + summary.writes;
    let apart = summary.duration_ns / requests.saturating_sub(1).max(1);
    summary.duration_ns.saturating_add(apart)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Op;

    #[test]
    fn a_pass_follows_the_one_before_as_a_request_follows_a_request() {
        let record = |time_ns| Record {
            time_ns,
            op: Op::Read,
            offset: 0,
            len: 512,
            device: 0,
            latency_ns: None,
        };
        let trace = [record(0), record(10), record(20)];
        let all = trace.map(Ok::<_, Error>);
        let summary = Summary::of(all.into_iter()).unwrap();
        let found = passes(|| Ok(trace.into_iter().map(Ok)), 3, summary);
        let times: Vec<u64> = found.map(|record| record.unwrap().time_ns).collect();
        assert_eq!(times, [0, 10, 20, 30, 40, 50, 60, 70, 80]);
        assert_eq!(duration_ns(3, &summary), 80);
    }

    #[test]
    fn a_trace_that_cannot_be_opened_again_is_an_error() {
        let mut opened = 0;
        let open = || {
            opened += 1;
            match opened {
                1 => Ok(std::iter::empty()),
                _ => Err(Error::new(crate::ErrorKind::Io, "gone")),
            }
        };
        let mut found = passes(open, 2, Summary::default());
        assert_eq!(found.next().unwrap().unwrap_err().to_string(), "gone");
        assert!(found.next().is_none());
    }
}
