//! What an administrator, or the daemon, asks of a disk at work, and what it tells the engine of.

use super::{ConfigError, Engine, Growth, Parts, RestoredCache};
use crate::action::{Actions, NoLease, Voided};
use crate::cache_index::header::RingHeader;
use crate::cache_index::recover::{Cold, RingReader};
use crate::config::Mode;
use crate::cx::Cx;
use crate::geometry::ByteRange;
use crate::ids::{Nanos, SegmentId};
use crate::status::IoStatus;
use crate::write_back::WriteBack;
use crate::write_back::format::recover::RecoveredLog;
use crate::write_back::format::reopen::Tail;

impl Engine {
    /// Takes over what recovery found, after it was opened again (`write_back/format/reopen.rs`): everything is on flash, durable,
    /// and the log goes on at `tail`. Call it before the first request.
    ///
    /// # Errors
    /// The log is larger than this disk may have, or was laid out for another block grid.
    pub fn restore(&mut self, found: &RecoveredLog, tail: Tail) -> Result<(), ConfigError> {
        self.parts.restore(found, tail)
    }

    /// Takes over what the ring with this header says is on flash; the engine has seen no request yet, and its
    /// log, if any, is restored. `logged`: what the write log has records of that may not be on primary storage.
    ///
    /// # Errors
    /// The cache must not be believed. Then neither must this engine: make a new one, and a new ring.
    pub fn restore_cache(
        &mut self,
        header: &RingHeader,
        reader: &mut dyn RingReader,
        logged: impl Iterator<Item = ByteRange>,
    ) -> Result<RestoredCache, Cold> {
        self.parts.restore_cache(header, reader, logged, &mut self.shared)
    }

    /// No RAM slot is used before [`Engine::have_memory`] says that its memory is there. Call it before the first
    /// request. Where the slots are in the disk's memory; `None`: there is no RAM tier.
    pub fn withhold_ram(&mut self) -> Option<ByteRange> {
        self.parts.cache.withhold_ram();
        self.parts.cache.ram_place()
    }

    /// All of the disk's memory up to `end`, in bytes from its start, is there.
    pub fn have_memory(&mut self, end: u64) {
        self.parts.cache.have_memory(end);
    }

    /// Asks for a mode; [`Engine::mode`] is it some time later. One without log needs everything destaged: if that
    /// was paused, it goes on.
    ///
    /// # Errors
    /// The mode needs a write log and the disk has none.
    pub fn set_mode(
        &mut self,
        now: Nanos,
        mode: Mode,
        actions: &mut Actions,
    ) -> Result<(), ConfigError> {
        let (parts, mut cx) = self.at(now, actions);
        parts.set_mode(mode, &mut cx)
    }

    /// The mode that the disk is in.
    pub fn mode(&self) -> Mode {
        self.parts.mode
    }

    /// True when zeroes may be holes of primary storage, as far as is known: what a guest unmaps need not be written.
    pub fn makes_holes(&self) -> bool {
        self.shared.makes_holes()
    }

    /// From now on new requests are answered with [`IoStatus::ShuttingDown`]; what is in flight
    /// finishes.
    ///
    /// What is in the log is made durable and stays there, but for what is destaged already: that is flushed and noted.
    /// What waits for room is answered so, too. Where flushes are deferred, or the log has failed, all is destaged first.
    /// Neither is begun after [`Engine::stop_destaging`].
    pub fn shut_down(&mut self, now: Nanos, actions: &mut Actions) {
        let (parts, mut cx) = self.at(now, actions);
        parts.shut_down(&mut cx);
    }

    /// True while a disk that is shut down carries its log to primary storage.
    pub fn destages_at_end(&self) -> bool {
        self.parts.destages_at_end()
    }

    /// True when its log failed, and no later start may go on with that.
    pub fn log_is_revoked(&self) -> bool {
        self.parts.write_back.as_ref().is_some_and(WriteBack::is_revoked)
    }

    /// True while a disk that is shut down flushes and notes what it has destaged.
    pub fn settles_at_end(&self) -> bool {
        self.parts.settles_at_end()
    }

    /// What is not destaged stays in the log. `is_away`: primary storage is, and nobody may hear any more that it lost what was
    /// not flushed; that is noted as if it had.
    pub fn stop_destaging(&mut self, now: Nanos, is_away: bool, actions: &mut Actions) {
        let (parts, mut cx) = self.at(now, actions);
        if parts.write_back.as_mut().is_some_and(|write_back| write_back.stop_destaging(is_away)) {
            parts.run(&mut cx);
        }
    }

    /// Destages nothing until told to go on, or goes on. A log that failed goes on: writes wait for its end.
    pub fn pause_destaging(&mut self, now: Nanos, pause: bool, actions: &mut Actions) {
        let (parts, mut cx) = self.at(now, actions);
        if let Some(write_back) = &mut parts.write_back
            && !(pause && write_back.failed().is_some())
        {
            write_back.pause_destaging(pause);
            parts.run(&mut cx);
        }
    }

    /// Begins no destaging before `until`, nor before a time that was given earlier, and finishes what has begun. [`Engine::stands_still`] tells when that is done.
    pub fn hold_destaging(&mut self, now: Nanos, until: Nanos, actions: &mut Actions) {
        let (parts, mut cx) = self.at(now, actions);
        if let Some(write_back) = &mut parts.write_back {
            write_back.hold_destaging(until);
            parts.run(&mut cx);
        }
    }

    /// Goes on with destaging; true when it was held.
    pub fn end_hold(&mut self, now: Nanos, actions: &mut Actions) -> bool {
        let (parts, mut cx) = self.at(now, actions);
        let was_held = parts.write_back.as_mut().is_some_and(|log| log.end_hold(now));
        parts.run(&mut cx);
        was_held
    }

    /// True while destaging is held, and nothing that has begun is left to do: primary storage alone is a crash-consistent
    /// image, without its destage journal, and stays as it is.
    pub fn stands_still(&self, now: Nanos) -> bool {
        self.stillness(now).is_some()
    }

    /// A number while primary storage stands still. It is the same later if it has stood still all the time in between.
    pub fn stillness(&self, now: Nanos) -> Option<u64> {
        let log = self.parts.write_back.as_ref().filter(|_| self.parts.mode.logs())?;
        log.stillness(now)
    }

    /// True while destaging is held.
    pub fn is_held(&self, now: Nanos) -> bool {
        self.parts.write_back.as_ref().is_some_and(|log| log.is_held(now))
    }

    /// A lease that was asked for came, with its ordinal, or does not come. [`NoLease::Now`]: it is asked for again
    /// after a moment. [`NoLease::Ever`]: the log fails, for it could free nothing and get nothing.
    pub fn leased(
        &mut self,
        now: Nanos,
        lease: Result<(SegmentId, u64), NoLease>,
        actions: &mut Actions,
    ) {
        let (parts, mut cx) = self.at(now, actions);
        if let Some(write_back) = &mut parts.write_back {
            let event = write_back.on_leased(now, lease);
            parts.on_log_event(event, &mut cx);
        }
        parts.run(&mut cx);
    }

    /// The answer to [`Action::GrowStaging`](crate::action::Action::GrowStaging): whether there is memory for all of the
    /// groups. If not, each stays as small as it is.
    pub fn staging_grown(&mut self, now: Nanos, is_there: bool, actions: &mut Actions) {
        let (parts, mut cx) = self.at(now, actions);
        if let Some(write_back) = &mut parts.write_back {
            write_back.on_staging_grown(is_there);
        }
        parts.run(&mut cx);
    }

    /// The answer to [`Action::Revoke`](crate::action::Action::Revoke): whether it is durably known that no later start
    /// may go on with the log.
    pub fn revoked(&mut self, now: Nanos, known: bool, actions: &mut Actions) {
        let (parts, mut cx) = self.at(now, actions);
        parts.revoked(known, &mut cx);
    }

    /// The answer to [`Action::RevokeJournal`](crate::action::Action::RevokeJournal): whether it is durably known that
    /// the destage journal does not count any more.
    pub fn journal_revoked(&mut self, now: Nanos, known: bool, actions: &mut Actions) {
        let (parts, mut cx) = self.at(now, actions);
        parts.journal_revoked(known, &mut cx);
    }

    /// The session of the destage journal ended; what was written there and not flushed may be gone.
    pub fn on_journal_session_lost(&mut self, now: Nanos, actions: &mut Actions) {
        let (parts, mut cx) = self.at(now, actions);
        if let Some(write_back) = &mut parts.write_back {
            write_back.on_journal_session_lost();
        }
        parts.run(&mut cx);
    }

    /// Flushes primary storage for an administrator; which flush covers everything acknowledged before. `None`: what
    /// is acknowledged is the log's, which flushes what it destages.
    pub fn flush_primary_storage(&mut self, now: Nanos, actions: &mut Actions) -> Option<u64> {
        let (parts, mut cx) = self.at(now, actions);
        parts.flush_primary_storage(&mut cx)
    }

    /// Whether the flush of that number ended well; `None`: it has not ended.
    pub fn flushed_primary_storage(&self, number: u64) -> Option<bool> {
        self.parts.primary.has_flushed(number)
    }

    /// The session of primary storage ended: writes since the last flush may be lost. Whoever waits
    /// for a flush of them is told; if nobody does, the next flush fails.
    pub fn on_session_lost(&mut self, now: Nanos, actions: &mut Actions) {
        let (parts, mut cx) = self.at(now, actions);
        parts.on_session_lost(&mut cx);
    }

    /// The flush of primary storage that its executor ends the disk with has failed: what was acknowledged and nobody
    /// has flushed may be lost, and no flush of this life can tell. What the cache holds of it is
    /// [`Engine::close_ring`]'s matter.
    pub fn on_last_flush_failed(&mut self) {
        self.parts.primary.on_last_flush_failed();
    }

    /// A former run knew of such a loss and could tell nobody: the next flush fails.
    pub fn remember_untold_loss(&mut self) {
        self.parts.primary.remember_unreported_loss();
    }

    /// Whether primary storage may still carry out what a former process sent. What is read there meanwhile is not cached.
    pub fn set_unsettled(&mut self, is_unsettled: bool) {
        let was_unsettled = std::mem::replace(&mut self.shared.is_unsettled, is_unsettled);
        if was_unsettled && !is_unsettled {
            self.parts.note_settled(&self.shared);
        }
    }

    /// As it was said last.
    pub fn is_unsettled(&self) -> bool {
        self.shared.is_unsettled
    }

    /// Begins to drop everything that is cached; [`Engine::dropped`] tells when that is done.
    pub fn drop_cache(&mut self, now: Nanos, actions: &mut Actions) {
        let (parts, mut cx) = self.at(now, actions);
        parts.drop_cache(&mut cx);
    }

    /// How many blocks were dropped, once, when everything is.
    pub fn dropped(&mut self) -> Option<u64> {
        self.parts.dropped()
    }

    /// Whether the disk can have `size` bytes.
    ///
    /// # Errors
    /// It cannot, or it has more.
    pub fn check_growth(&self, size: u64) -> Result<(), ConfigError> {
        super::grow::check_growth(&self.shared.config, size)
    }

    /// The disk is to have `size` bytes, which primary storage has. Nothing else changes: what is cached stays.
    ///
    /// # Errors
    /// As of [`Engine::check_growth`].
    pub fn grow(
        &mut self,
        now: Nanos,
        size: u64,
        actions: &mut Actions,
    ) -> Result<Growth, ConfigError> {
        self.check_growth(size)?;
        let (parts, mut cx) = self.at(now, actions);
        Ok(parts.grow(size, &mut cx))
    }

    /// Says, when it knows, which grid would fit the guest better than the one that it was given.
    pub fn watch_alignment(&mut self) {
        self.parts.cache.watch_alignment();
    }

    /// That the ring must not be believed is durably known now, or cannot be. Where that is known of the log, too, what
    /// is dirty is destaged from now on, and the disk goes on without a log.
    pub fn voided(&mut self, now: Nanos, voided: Voided, actions: &mut Actions) {
        let (parts, mut cx) = self.at(now, actions);
        parts.voided(voided, &mut cx);
    }

    /// Records what is listed and ends the ring, so that the next run finds it. `flushed`: primary storage was
    /// flushed after the last write to it. Call it when the engine is idle; [`Engine::is_idle`] tells when it is done.
    pub fn close_ring(&mut self, now: Nanos, flushed: bool, actions: &mut Actions) {
        let (parts, mut cx) = self.at(now, actions);
        parts.close_ring(flushed, &mut cx);
    }
}

impl Parts {
    /// True while a disk that is shut down carries its log to primary storage.
    pub(super) fn destages_at_end(&self) -> bool {
        let is_ending = self.refuses == Some(IoStatus::ShuttingDown);
        is_ending && self.write_back.as_ref().is_some_and(|log| log.goes_on() && !log.is_clean())
    }

    /// True while a disk that is shut down flushes and notes what it has destaged.
    pub(super) fn settles_at_end(&self) -> bool {
        let is_ending = self.refuses == Some(IoStatus::ShuttingDown);
        is_ending && self.write_back.as_ref().is_some_and(WriteBack::has_to_settle)
    }

    fn shut_down(&mut self, cx: &mut Cx<'_>) {
        self.release_all_held(cx);
        self.refuses = Some(IoStatus::ShuttingDown);
        self.primary.flush_first_no_more();
        if let Some(write_back) = &mut self.write_back {
            write_back.close();
            self.refuse_waiting(IoStatus::ShuttingDown, cx);
        }
        self.run(cx);
    }

    fn restore(&mut self, found: &RecoveredLog, tail: Tail) -> Result<(), ConfigError> {
        let write_back = self.write_back.as_mut().expect("the disk has a log");
        write_back.restore(found, tail)?;
        if !write_back.is_clean() && !self.mode.logs() {
            // What is dirty is destaged before the disk is in a mode without a log.
            self.mode = Mode::WriteBack;
        }
        Ok(())
    }
}
