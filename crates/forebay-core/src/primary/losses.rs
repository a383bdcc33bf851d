//! What guests know of acknowledged writes that primary storage may have lost.
//!
//! ```text
//!  acknowledged ─► fresh ──a guest asks for a flush──► pending ──flushed──► safe
//!                    │                                    │
//!                    └──────────── lost ──────────────────┴─► did somebody wait for a flush? ─┬─ yes ─► it fails
//!                                                                                            └─ no ──► unreported: the
//!                                                                                                      next flush fails, once
//! ```
//! A write that was acknowledged after the last flush was asked for is no news to anybody yet. So its loss fails the next
//! flush, even if a flush fails now. The same holds for a write whose acknowledgement is still on its way out.

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// A write was acknowledged since the last flush was asked for, or was then not heard of yet.
    is_fresh: bool,
    /// A write was acknowledged, and nobody has heard of it so far.
    is_unsent: bool,
    /// A write was acknowledged before that, and was neither flushed nor reported to be at risk.
    is_pending: bool,
    /// Acknowledged writes may be lost, and no flush has failed since: the next one has to.
    is_unreported: bool,
    /// Losses that a flush has reported by failing.
    reported: u64,
}

impl Losses {
    /// A write was acknowledged without having been flushed.
    pub(super) fn note_acknowledged(&mut self) {
        (self.is_fresh, self.is_unsent) = (true, true);
    }

    /// What was acknowledged is on its way to the guests.
    pub(super) fn note_sent(&mut self) {
        self.is_unsent = false;
    }

    /// A guest asks for a flush.
    pub(super) fn note_asked(&mut self) {
        self.is_pending |= self.is_fresh;
        // Whoever asks now need not know of it.
        self.is_fresh &= self.is_unsent;
    }

    /// A former run acknowledged writes that may be lost.
    pub(super) fn note_former(&mut self) {
        self.is_pending = true;
    }

    /// A flush ended well; `all`: nothing was written since it started.
    pub(super) fn note_flushed(&mut self, all: bool) {
        (self.is_fresh, self.is_pending) = (self.is_fresh && !all, self.is_pending && !all);
    }

    /// What was acknowledged and not flushed may be lost. `is_heard`: a flush of a guest fails because of it.
    pub(super) fn lose(&mut self, is_heard: bool) {
        self.is_unreported |= self.is_fresh || (self.is_pending && !is_heard);
        self.reported += u64::from(self.is_pending && is_heard);
        (self.is_fresh, self.is_pending) = (false, false);
    }

    /// The same at the end of a run, when no flush can report it.
    pub(super) fn lose_at_end(&mut self) {
        self.is_unreported |=
            std::mem::take(&mut self.is_fresh) | std::mem::take(&mut self.is_pending);
    }

    /// A loss is unreported: a flush fails because of it now.
    pub(super) fn report(&mut self) -> bool {
        let is_unreported = std::mem::take(&mut self.is_unreported);
        self.reported += u64::from(is_unreported);
        is_unreported
    }

    /// A former run knew of a loss and could report it to nobody.
    pub(super) fn remember(&mut self) {
        self.is_unreported = true;
    }

    pub(super) fn is_unreported(&self) -> bool {
        self.is_unreported
    }

    pub(super) fn reported(&self) -> u64 {
        self.reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Losses {
        let mut losses = Losses::default();
        losses.note_acknowledged();
        losses.note_sent();
        losses
    }

    #[test]
    fn a_write_whose_answer_is_on_its_way_is_reported_by_the_flush_behind_it() {
        let mut losses = Losses::default();
        losses.note_acknowledged();
        losses.note_asked();
        losses.note_sent();
        losses.lose(true);
        assert!(losses.report());
        assert_eq!(losses.reported(), 2);
    }

    #[test]
    fn a_loss_fails_one_flush() {
        let mut losses = written();
        losses.lose(false);
        assert_eq!([losses.report(), losses.report()], [true, false]);
        assert_eq!(losses.reported(), 1);
    }

    #[test]
    fn a_flush_that_waits_hears_of_what_was_written_before_it() {
        let mut losses = written();
        losses.note_asked();
        losses.lose(true);
        assert!(!losses.report());
        assert_eq!(losses.reported(), 1);
    }

    #[test]
    fn a_write_behind_a_flush_that_fails_is_reported_by_the_next_one() {
        let mut losses = written();
        losses.note_asked();
        losses.note_acknowledged();
        losses.lose(true);
        assert!(losses.report());
        assert_eq!(losses.reported(), 2);
    }

    #[test]
    fn what_is_flushed_cannot_be_lost() {
        let mut losses = written();
        losses.note_asked();
        losses.note_flushed(true);
        losses.lose(false);
        assert!(!losses.is_unreported());
    }

    #[test]
    fn a_write_during_a_flush_is_not_covered_by_it() {
        let mut losses = written();
        losses.note_flushed(false);
        losses.lose_at_end();
        assert!(losses.is_unreported());
    }
}
