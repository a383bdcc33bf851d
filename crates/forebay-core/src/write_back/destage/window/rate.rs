//! The pace of destaging after a batch of the guest's reads, or after a time without: how it rises, falls, and ends.
//!
//! Where reads are too few to tell, nothing says what a write cache inside the storage has taken
//! and not yet written. As senders on a network do after a break, the pace begins where it was,
//! and doubles while it is used. The last pace beside reads is remembered for the time when they
//! are back.

const RISE: f64 = 1.1;
/// While it is not known what the storage bears.
const RISE_SEARCHING: f64 = 2.0;
const FALL_MAX: f64 = 0.5;
/// The floor: of what the storage bears, one part in so many.
const FLOOR_PART: u64 = 20;
/// ... or this share of it, where reads are slow at it.
const FLOOR_SHARE_MIN: f64 = 1e-3;
/// Not slower than about ten writes a second, whatever is known of the storage: a log always empties.
const FLOOR_MIN: u64 = 10 * (132 << 10);

/// The state for the next pace; all are work per second.
#[derive(Clone, Debug)]
pub(super) struct Rate {
    /// The pace began from nothing that is known, and no read has suffered from it yet.
    searches: bool,
    /// The pace when reads became too few to judge it; none: they are enough.
    before_absence: Option<u64>,
    /// A write cache took writes, so the capacity of the storage was measured too high: by this
    /// factor, as reads show.
    floor_share: f64,
}

impl Rate {
    pub(super) fn new() -> Rate {
        Rate { searches: false, before_absence: None, floor_share: 1.0 }
    }

    /// A pace begins, from nothing that is known or from the one before.
    pub(super) fn begin(&mut self, searches: bool) {
        self.searches = searches;
    }

    /// Two reads were late.
    pub(super) fn on_late_reads(&mut self) {
        self.searches = false;
    }

    /// True while reads are too few to judge the pace.
    pub(super) fn is_unheard(&self) -> bool {
        self.before_absence.is_some()
    }

    /// Destaging is not slower than this, where it was measured that the storage bears so much.
    pub(super) fn floor(&self, bears: u64) -> u64 {
        (((bears / FLOOR_PART) as f64 * self.floor_share) as u64).max(FLOOR_MIN)
    }

    /// The pace after `rate`, with reads that took `ratio` times as long as they may.
    pub(super) fn beside_reads(&mut self, rate: u64, ratio: f64, floor: u64) -> u64 {
        let is_slow = ratio > 1.0;
        let rate = match self.before_absence.take() {
            Some(before) if is_slow => before.min(rate),
            _ => rate,
        };
        if !is_slow {
            self.floor_share = (self.floor_share * RISE).min(1.0);
        } else if rate <= floor {
            self.floor_share = (self.floor_share * FALL_MAX).max(FLOOR_SHARE_MIN);
        }
        self.searches &= !is_slow;
        adjusted(rate, ratio, if self.searches { RISE_SEARCHING } else { RISE }).max(floor)
    }

    /// The pace after `rate`, with few reads, which may be slow, or none. It rises where it is what limits destaging.
    pub(super) fn without_reads(&mut self, rate: u64, are_slow: bool, is_used: bool) -> u64 {
        let before = *self.before_absence.get_or_insert(rate);
        if are_slow {
            rate.min(before)
        } else if is_used {
            adjusted(rate, 0.0, RISE_SEARCHING)
        } else {
            rate
        }
    }
}

/// The pace after a batch of reads that took `ratio` times as long as they may.
fn adjusted(rate: u64, ratio: f64, rise: f64) -> u64 {
    let factor = if ratio <= 1.0 { rise } else { (1.0 / (ratio * ratio)).max(FALL_MAX) };
    (rate as f64 * factor) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 100 << 20;

    #[test]
    fn without_reads_a_pace_that_is_used_doubles_and_slow_reads_bring_the_old_one_back() {
        let mut rate = Rate::new();
        assert_eq!(rate.without_reads(RATE, false, true), 2 * RATE);
        assert_eq!(rate.without_reads(2 * RATE, false, true), 4 * RATE);
        assert_eq!(rate.without_reads(4 * RATE, false, false), 4 * RATE);
        assert!(rate.is_unheard());
        assert_eq!(rate.beside_reads(4 * RATE, 2.0, FLOOR_MIN), RATE / 2);
        assert!(!rate.is_unheard());
    }

    #[test]
    fn reads_that_come_back_and_are_fast_leave_the_pace() {
        let mut rate = Rate::new();
        let doubled = rate.without_reads(RATE, false, true);
        assert_eq!(rate.beside_reads(doubled, 1.0, FLOOR_MIN), (doubled as f64 * RISE) as u64);
    }

    #[test]
    fn a_few_slow_reads_bring_destaging_back_to_the_pace_before_and_no_lower() {
        let mut rate = Rate::new();
        let doubled = rate.without_reads(RATE, false, true);
        assert_eq!(rate.without_reads(doubled, true, true), RATE);
        assert_eq!(rate.without_reads(RATE, true, true), RATE);
    }

    #[test]
    fn the_floor_gives_way_where_reads_are_slow_at_it_and_comes_back() {
        let bears = 1 << 33;
        let mut rate = Rate::new();
        let mut pace = rate.floor(bears);
        assert_eq!(pace, bears / FLOOR_PART);
        for _ in 0..10_000 {
            let floor = rate.floor(bears);
            pace = rate.beside_reads(pace, 3.0, floor);
        }
        assert_eq!((pace, rate.floor(bears)), (FLOOR_MIN, FLOOR_MIN));
        for _ in 0..400 {
            let floor = rate.floor(bears);
            pace = rate.beside_reads(pace, 0.9, floor);
        }
        assert_eq!(rate.floor(bears), bears / FLOOR_PART);
        assert!(pace >= bears / FLOOR_PART);
    }
}
