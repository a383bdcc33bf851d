//! Writes that could be acknowledged as far as the log is concerned, and wait for the throttle.
//!
//! The throttle delays acknowledgements, in order, as the log fills (`destage/throttle.rs`). A compare-and-write goes
//! first and is not delayed.

use std::collections::VecDeque;

use super::WriteBack;
use super::destage::throttle::{Aim, TOGETHER};
use crate::config::DestageOrder;
use crate::ids::Nanos;
use crate::table::Key;

/// A write that could be acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledgeable {
    pub key: Key,
    pub ready: Nanos,
    pub bytes: u64,
    /// A compare-and-write: not throttled.
    pub at_once: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Acknowledgements {
    queue: VecDeque<Acknowledgeable>,
    /// What is due until then goes together with what was just acknowledged.
    joined: Nanos,
}

impl Acknowledgements {
    pub(super) fn new(requests_max: u32) -> Acknowledgements {
        let queue = VecDeque::with_capacity(requests_max as usize);
        Acknowledgements { queue, joined: Nanos(0) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

impl WriteBack {
    /// As far as the log is concerned this write may be acknowledged.
    pub(crate) fn may_acknowledge(&mut self, write: Acknowledgeable) {
        match write.at_once {
            true => self.acknowledgements.queue.push_front(write),
            false => self.acknowledgements.queue.push_back(write),
        }
    }

    /// A round of acknowledgements begins.
    pub(crate) fn begin_acknowledging(&mut self, now: Nanos) {
        self.acknowledgements.joined = now;
    }

    /// The next write that the throttle lets go, and when it was due.
    pub(crate) fn next_acknowledgement(&mut self, aim: Aim) -> Option<(Acknowledgeable, Nanos)> {
        let due = self.acknowledgement_due(aim);
        if due > self.acknowledgements.joined {
            return None;
        }
        Some((self.acknowledgements.queue.pop_front()?, due))
    }

    /// One of them was acknowledged.
    pub(crate) fn on_acknowledged(&mut self, write: Acknowledgeable, due: Nanos, now: Nanos) {
        if !write.at_once {
            self.destager.on_acknowledged(now, due);
        }
    }

    /// An acknowledgement promised durability: what is appended from now on belongs to the next epoch. In strict order
    /// what one acknowledgement follows upon another is another epoch, which costs the destager a round trip of its own;
    /// so those that are due one after the other are let go together.
    pub(crate) fn on_durable_acknowledged(&mut self, now: Nanos, aim: Aim) {
        self.log.raise_epoch();
        let joins = self.log.config.order == DestageOrder::Strict && aim == Aim::Room;
        self.acknowledgements.joined = if joins { now.plus(TOGETHER) } else { now };
    }

    /// When the next write is acknowledged that could be.
    pub(crate) fn acknowledgement_due(&self, aim: Aim) -> Nanos {
        match self.acknowledgements.queue.front() {
            None => Nanos::NEVER,
            Some(first) if first.at_once || self.is_lost() => first.ready,
            Some(first) => self.throttle_due(first.ready, first.bytes, aim),
        }
    }
}
