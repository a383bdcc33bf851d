//! Requests from the events of a block layer's trace: what was issued, and how long until it completed.
//!
//! ```text
//!  issue ──► queue, in order ──► front: completed, or too many behind it ──► request
//!  completion ──► latency of the oldest that began at the same place
//!  requeue ──► the newest that began at the same place is taken back: it is issued again
//! ```
//! The requests of a trace are its issues to the device (D). A trace without them has those that
//! were queued (Q). One without either has its completions, which have no latency.

use std::collections::VecDeque;

use super::Raw;

/// Requests that wait for their completion; the oldest goes without when there are more.
const WAITING_MAX: usize = 4096;

/// What can happen to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Queued,
    Issued,
    /// The device did not take what was issued to it.
    Requeued,
    Completed,
}

impl Event {
    /// Those that are the requests of a trace in which these occur.
    pub(super) fn of_requests(occurring: impl Iterator<Item = Event>) -> Event {
        let rank = |event: &Event| match event {
            Event::Requeued => 0,
            Event::Completed => 1,
            Event::Queued => 2,
            Event::Issued => 3,
        };
        let of_most = occurring.max_by_key(rank).filter(|event| *event != Event::Requeued);
        of_most.unwrap_or(Event::Issued)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pairing {
    requests: Event,
    /// With whether it is complete.
    waiting: VecDeque<(Raw, bool)>,
}

impl Pairing {
    /// Of a trace whose requests are these events.
    pub(super) fn new(requests: Event) -> Pairing {
        Pairing { requests, waiting: VecDeque::new() }
    }

    /// An event; true when it stands for a request, completes one or takes one back.
    pub(super) fn add(&mut self, event: Event, raw: Raw) -> bool {
        if event == self.requests {
            self.waiting.push_back((raw, event == Event::Completed));
            return true;
        }
        let is_it = |(issued, complete): &(Raw, bool)| {
            !*complete && (issued.device, issued.offset) == (raw.device, raw.offset)
        };
        let place = match event {
            Event::Completed => self.waiting.iter().position(is_it),
            // What was queued stays so.
            Event::Requeued if self.requests == Event::Issued => {
                self.waiting.iter().rposition(is_it)
            }
            Event::Queued | Event::Issued | Event::Requeued => None,
        };
        let Some(place) = place else { return false };
        if event == Event::Requeued {
            self.waiting.remove(place);
            return true;
        }
        let (issued, complete) = &mut self.waiting[place];
        *complete = true;
        // One that took no time is one whose clock does not tell.
        issued.latency_ns = raw.time_ns.checked_sub(issued.time_ns).filter(|&ns| ns > 0);
        true
    }

    /// The next request, if it is known whether it completed.
    pub(super) fn next(&mut self) -> Option<Raw> {
        let &(raw, is_complete) = self.waiting.front()?;
        (is_complete || self.waiting.len() > WAITING_MAX).then(|| {
            self.waiting.pop_front();
            raw
        })
    }

    /// The next request, whether it completed or not.
    pub(super) fn kept_back(&mut self) -> Option<Raw> {
        self.waiting.pop_front().map(|(raw, _)| raw)
    }
}
