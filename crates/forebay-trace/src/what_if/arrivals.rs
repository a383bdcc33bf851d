//! When requests come: on the trace's clock, whether or not others were answered, or each when a place is free.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_core::ids::Nanos;

use super::Pacing;
use crate::record::Record;

/// See the module.
#[derive(Clone, Debug)]
pub(super) enum Arrivals {
    /// On the trace's clock, which does not go back: when it began, and the time of the last one.
    Trace { start: Nanos, last: Nanos },
    /// When each of the free places became so.
    Closed(BinaryHeap<Reverse<Nanos>>),
}

impl Arrivals {
    /// From this instant on.
    pub fn new(pacing: Pacing, start: Nanos) -> Arrivals {
        match pacing {
            Pacing::Trace => Arrivals::Trace { start, last: start },
            Pacing::Closed { queue_depth } => {
                Arrivals::Closed((0..queue_depth).map(|_| Reverse(start)).collect())
            }
        }
    }

    /// When this request, the next one, comes; [`Nanos::NEVER`]: after something has ended.
    pub fn next(&self, record: &Record) -> Nanos {
        match self {
            Arrivals::Trace { start, last } => start.plus(Nanos(record.time_ns)).max(*last),
            Arrivals::Closed(free) => free.peek().map_or(Nanos::NEVER, |Reverse(at)| *at),
        }
    }

    /// The next request has come at this time.
    pub fn came(&mut self, at: Nanos) {
        match self {
            Arrivals::Trace { last, .. } => *last = at,
            Arrivals::Closed(free) => drop(free.pop()),
        }
    }

    /// A request is over at this time, which may be in the future.
    pub fn ended(&mut self, at: Nanos) {
        match self {
            Arrivals::Trace { .. } => {}
            Arrivals::Closed(free) => free.push(Reverse(at)),
        }
    }
}
