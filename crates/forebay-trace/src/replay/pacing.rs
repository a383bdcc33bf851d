//! When the next request may be issued.
//!
//! A dependent request waits for those that had ended in the trace when it was issued. The trace
//! does not say which of them it needed. The one that ended last is assumed to be the one that
//! its guest waited for. The time between that end and the request is the guest's own (think
//! time). It passes in the replay as well, counted from that end there. When a request without
//! a latency ended is not known: nobody waits for it.

use std::collections::BTreeMap;

use forebay_core::ids::Nanos;

use super::Pace;
use crate::error::{Error, ErrorKind, UNDER_WAY_MAX};
use crate::record::Record;

/// When a request may be issued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Turn {
    /// At this time.
    At(Nanos),
    /// As soon as there is room.
    Now,
    /// When another one has ended.
    AfterAnEnd,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pacing {
    pace: Pace,
    start: Nanos,
    /// Those that had not ended in the trace by the last request, but did later, by the time at which they did, and number: when they ended here.
    window: BTreeMap<(u64, u64), Option<Nanos>>,
    /// The one that ended last in the trace before the last request: when in the trace, and when here.
    anchor: Option<(u64, Nanos)>,
    /// The trace has told when a request ended.
    has_latencies: bool,
}

impl Pacing {
    pub(super) fn new(pace: Pace, start: Nanos) -> Pacing {
        Pacing { pace, start, window: BTreeMap::new(), anchor: None, has_latencies: false }
    }

    /// The turn of a record; may be asked again.
    pub(super) fn turn(&mut self, record: &Record) -> Turn {
        // Saturates for absurd times and speeds.
        let scaled = |nanos: u64, speed: f64| Nanos((nanos as f64 / speed) as u64);
        match self.pace {
            Pace::Clock { speed } => Turn::At(self.start.plus(scaled(record.time_ns, speed))),
            Pace::Closed { .. } => Turn::Now,
            Pace::Dependent { speed } => {
                if !self.has_what_it_waits_for(record.time_ns) {
                    return Turn::AfterAnEnd;
                }
                let Some(speed) = speed else { return Turn::Now };
                let (trace, here) = self.anchor.unwrap_or((0, self.start));
                Turn::At(here.plus(scaled(record.time_ns.saturating_sub(trace), speed)))
            }
        }
    }

    /// Whether all that had ended in the trace by `time_ns` have ended here.
    fn has_what_it_waits_for(&mut self, time_ns: u64) -> bool {
        while let Some(first) = self.window.first_entry() {
            let trace = first.key().0;
            if trace > time_ns {
                break;
            }
            let Some(here) = *first.get() else { return false };
            self.anchor = Some((trace, here));
            first.remove();
        }
        true
    }

    /// A request was issued; gives its name for [`Pacing::ended`].
    ///
    /// # Errors
    /// Requests depend on others, and the trace has not said of any when it ended, or keeps too many under way.
    pub(super) fn issued(&mut self, number: u64, record: &Record) -> Result<(u64, u64), Error> {
        if !matches!(self.pace, Pace::Dependent { .. }) {
            return Ok((0, number));
        }
        let Some(latency) = record.latency_ns else {
            if self.has_latencies {
                // Not in the window: nobody waits for it.
                return Ok((u64::MAX, number));
            }
            let message = format!(
                "request {number} of the trace has no latency: a request can only wait for what had ended before it where \
                 the trace says when requests ended; replay it on its clock (--speed) or --as-fast-as-possible"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        };
        if self.window.len() == UNDER_WAY_MAX {
            return Err(Error::too_many_under_way(number));
        }
        self.has_latencies = true;
        let key = (record.time_ns.saturating_add(latency), number);
        self.window.insert(key, None);
        Ok(key)
    }

    /// A request ended, well or not.
    pub(super) fn ended(&mut self, key: (u64, u64), now: Nanos) {
        if let Some(end) = self.window.get_mut(&key) {
            *end = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Op;

    fn record(time_ns: u64, latency_ns: Option<u64>) -> Record {
        Record { time_ns, op: Op::Read, offset: 0, len: 512, device: 0, latency_ns }
    }

    fn pacing(speed: Option<f64>) -> Pacing {
        Pacing::new(Pace::Dependent { speed }, Nanos(1000))
    }

    #[test]
    fn a_request_waits_for_all_that_had_ended_and_for_nobody_else() {
        let mut pacing = pacing(None);
        let issue = |pacing: &mut Pacing, n: u64, time, latency| {
            let record = record(time, Some(latency));
            assert_eq!(pacing.turn(&record), Turn::Now, "{n}");
            pacing.issued(n, &record).unwrap()
        };
        // |--0--|
        //    |-----1-----|
        //          |2|
        //                   |3|
        let first = issue(&mut pacing, 0, 0, 50);
        let second = issue(&mut pacing, 1, 30, 100);
        let third = record(100, Some(10));
        assert_eq!(pacing.turn(&third), Turn::AfterAnEnd);
        pacing.ended(first, Nanos(2000));
        let third = issue(&mut pacing, 2, 100, 10);
        let last = record(200, Some(10));
        pacing.ended(third, Nanos(2100));
        assert_eq!(pacing.turn(&last), Turn::AfterAnEnd);
        pacing.ended(second, Nanos(2200));
        assert_eq!(pacing.turn(&last), Turn::Now);
        assert!(pacing.window.is_empty());
    }

    #[test]
    fn the_guests_own_time_passes_between_an_end_and_what_follows() {
        let mut pacing = pacing(Some(2.0));
        let first = record(10, Some(50));
        assert_eq!(pacing.turn(&first), Turn::At(Nanos(1005)));
        let key = pacing.issued(0, &first).unwrap();
        pacing.ended(key, Nanos(5000));
        // 40 later than the end, at twice the speed.
        assert_eq!(pacing.turn(&record(100, Some(1))), Turn::At(Nanos(5020)));
        assert_eq!(pacing.turn(&record(100, Some(1))), Turn::At(Nanos(5020)));
    }

    #[test]
    fn nobody_waits_for_a_request_that_had_not_ended_in_the_trace() {
        let mut pacing = pacing(None);
        let first = pacing.issued(0, &record(0, Some(10))).unwrap();
        pacing.ended(first, Nanos(2000));
        let open = pacing.issued(1, &record(20, None)).unwrap();
        let last = record(u64::MAX, Some(10));
        assert_eq!(pacing.turn(&last), Turn::Now);
        pacing.issued(2, &last).unwrap();
        // Its end here is not what the guest thought after.
        pacing.ended(open, Nanos(9000));
        assert_eq!(pacing.anchor, Some((10, Nanos(2000))));
        assert_eq!(pacing.window.len(), 1);
    }

    #[test]
    fn a_trace_without_latencies_is_refused() {
        let mut pacing = pacing(None);
        assert_eq!(pacing.turn(&record(0, None)), Turn::Now);
        let error = pacing.issued(7, &record(0, None)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("request 7 of the trace has no latency"), "{error}");
    }
}
