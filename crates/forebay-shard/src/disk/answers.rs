//! Operations on a disk that take several turns of its shard, and whoever waits for their end.
//!
//! After each turn the shard lets a disk answer ([`ShardDisk::answer`]). Whoever waits for a disk that has ended hears that by
//! the answer that never comes: its sender is dropped.

use forebay_core::ids::Nanos;
use tokio::sync::oneshot;

use super::ShardDisk;
use crate::{Drained, Dropped};

/// Those who wait.
#[derive(Default)]
pub(super) struct Waiting {
    detached: Vec<oneshot::Sender<Result<Drained, String>>>,
    dropped: Vec<oneshot::Sender<Dropped>>,
    /// With the number of the flush that each waits for.
    flushed: Vec<(u64, oneshot::Sender<bool>)>,
}

impl Waiting {
    /// True when somebody waits.
    pub(super) fn is_any(&self) -> bool {
        !(self.detached.is_empty() && self.dropped.is_empty() && self.flushed.is_empty())
    }
}

impl ShardDisk {
    /// Flushes primary storage; at once where what is acknowledged is the log's. The answer: whether that ended well. A disk
    /// that ends does not answer: one flush after the other would keep it from its end.
    pub(crate) fn flush(&mut self, now: Nanos, answer: oneshot::Sender<bool>) {
        if self.is_ending() {
            return;
        }
        match self.port.engine.flush_primary_storage(now, &mut self.port.actions) {
            Some(flush) => self.waiting.flushed.push((flush, answer)),
            None => drop(answer.send(true)),
        }
    }

    /// True when a loss of acknowledged writes is yet to be told of.
    pub(crate) fn has_untold_loss(&self) -> bool {
        self.port.engine.has_untold_loss()
    }

    /// Drops what is cached. A disk that ends does not answer: nobody knows whether what it leaves on flash says so.
    pub(crate) fn drop_cache(&mut self, now: Nanos, answer: oneshot::Sender<Dropped>) {
        if self.is_ending() {
            return;
        }
        // What was changed is to count, also when primary storage comes back after a loss.
        self.storage.backend.forget_samples();
        self.port.engine.drop_cache(now, &mut self.port.actions);
        self.waiting.dropped.push(answer);
    }

    /// Ends beneath its clients, whom it owes nothing; to leave its pool, nothing may be dirty.
    pub(crate) fn end_beneath(
        &mut self,
        now: Nanos,
        leaves_pool: bool,
        answer: oneshot::Sender<Result<Drained, String>>,
    ) {
        match self.begin_end_beneath(now, leaves_pool) {
            Ok(()) => self.waiting.detached.push(answer),
            Err(why) => drop(answer.send(Err(why))),
        }
    }

    /// Lets everything be destaged and ends then, unless one of `clients` is attached.
    pub(crate) fn detach(
        &mut self,
        now: Nanos,
        clients: usize,
        answer: oneshot::Sender<Result<Drained, String>>,
    ) {
        match self.begin_detach(now, clients) {
            Ok(()) => self.waiting.detached.push(answer),
            Err(why) => drop(answer.send(Err(why))),
        }
    }

    /// Answers those whose time has come.
    pub(crate) fn answer(&mut self) {
        self.answer_detached();
        self.answer_dropped();
        self.answer_flushed();
    }

    /// It has ended, or will not.
    fn answer_detached(&mut self) {
        if self.waiting.detached.is_empty() {
            return;
        }
        let outcome = match self.drained() {
            Some(drained) => Some(Ok(drained)),
            None if self.is_ending() => None,
            None => self.not_detached().map(Err),
        };
        if let Some(outcome) = outcome {
            for answer in self.waiting.detached.drain(..) {
                let _ = answer.send(outcome.clone());
            }
        }
    }

    /// The cache is empty.
    fn answer_dropped(&mut self) {
        if self.is_ending() {
            self.waiting.dropped.clear();
        }
        if self.waiting.dropped.is_empty() {
            return;
        }
        let Some(blocks) = self.port.engine.dropped() else { return };
        let dropped = Dropped { blocks, block_size: self.port.engine.config().block_size };
        for answer in self.waiting.dropped.drain(..) {
            let _ = answer.send(dropped);
        }
    }

    /// The flush has ended.
    fn answer_flushed(&mut self) {
        if self.is_done() {
            self.waiting.flushed.clear();
        }
        let engine = &self.port.engine;
        let has_ended = |flush: u64| engine.flushed_primary_storage(flush);
        let ended = |(flush, _): &mut (u64, _)| has_ended(*flush).is_some();
        for (flush, answer) in self.waiting.flushed.extract_if(.., ended) {
            let _ = answer.send(has_ended(flush) == Some(true));
        }
    }
}
