//! When the log slowed its writers, or let them wait for room: such waits are backpressure, and do not make a request late.

use std::collections::VecDeque;

use forebay_core::ids::Nanos;

/// See the module. Times of the log's state come in order, and so do arrivals.
#[derive(Debug, Default)]
pub(super) struct RoomWaits {
    /// Those that are over, and go on beyond the last arrival.
    over: VecDeque<(Nanos, Nanos)>,
    since: Option<Nanos>,
    /// Nanoseconds of all that are over, and of those that ended before the last arrival.
    sum_ns: u64,
    sum_ns_before: u64,
}

impl RoomWaits {
    /// The log slows its writers from now on, or lets them wait.
    pub fn begin(&mut self, at: Nanos) {
        self.since = self.since.or(Some(at));
    }

    /// It has room again.
    pub fn end(&mut self, at: Nanos) {
        if let Some(since) = self.since.take() {
            self.sum_ns += at.since(since).0;
            self.over.push_back((since, at));
        }
    }

    /// Nanoseconds until now.
    pub fn until(&self, now: Nanos) -> u64 {
        self.sum_ns + self.since.map_or(0, |since| now.since(since).0)
    }

    /// Nanoseconds until a request came, which may be in the past.
    pub fn until_arrival(&mut self, came: Nanos) -> u64 {
        while let Some((start, end)) = self.over.pop_front_if(|(_, end)| *end <= came) {
            self.sum_ns_before += end.since(start).0;
        }
        let next = self.over.front().map(|(start, _)| *start).or(self.since);
        self.sum_ns_before + next.map_or(0, |start| came.since(start).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_add_up_to_a_moment_that_may_be_past() {
        let mut waits = RoomWaits::default();
        waits.begin(Nanos(10));
        waits.begin(Nanos(15));
        assert_eq!((waits.until(Nanos(30)), waits.until_arrival(Nanos(5))), (20, 0));
        waits.end(Nanos(30));
        waits.end(Nanos(40));
        waits.begin(Nanos(50));
        assert_eq!((waits.until(Nanos(60)), waits.until_arrival(Nanos(20))), (30, 10));
        assert_eq!((waits.until_arrival(Nanos(30)), waits.until_arrival(Nanos(45))), (20, 20));
        assert_eq!(waits.until_arrival(Nanos(55)), 25);
    }
}
