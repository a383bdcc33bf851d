//! Virtual time: what will happen, in order; of what happens at the same instant, in the order it
//! was planned.

use std::collections::BTreeMap;

use forebay_core::ids::Nanos;

/// Events to come.
#[derive(Debug)]
pub struct Queue<E> {
    events: BTreeMap<(Nanos, u64), E>,
    planned: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Queue { events: BTreeMap::new(), planned: 0 }
    }
}

impl<E> Queue<E> {
    /// Plans `event` for the instant `at`.
    pub fn plan(&mut self, at: Nanos, event: E) {
        self.events.insert((at, self.planned), event);
        self.planned += 1;
    }

    /// When the next event happens, [`Nanos::NEVER`] without one.
    pub fn next(&self) -> Nanos {
        self.events.first_key_value().map_or(Nanos::NEVER, |((at, _), _)| *at)
    }

    /// Takes the next event out.
    pub fn pop(&mut self) -> Option<(Nanos, E)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }

    /// Forgets the events that `keep` says no to.
    pub fn retain(&mut self, mut keep: impl FnMut(&E) -> bool) {
        self.events.retain(|_, event| keep(event));
    }
}
