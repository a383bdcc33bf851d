//! The smallest number of outstanding writes that gets nearly all the throughput there is.
//!
//! # The law
//! Time is cut into *rounds*, each with a fixed limit. A round skips some completions, until
//! everything that started under the previous limit is gone. Then it measures throughput and mean
//! latency of the next ones. Limits are powers of two, the *levels*.
//! - **Gain.** Two successive rounds at neighbouring levels give one sample of what doubling the
//!   limit gains. Samples are averaged per pair of levels. While doubling gains more than
//!   [`GAIN_UP`] the level rises; when the last doubling gained less than [`GAIN_DOWN`] it falls.
//!   (In terms of latency: below the knee doubling leaves it alone, above it doubles.) Afterwards
//!   one round in four looks a level higher, and one a level lower. That ends when it is clear
//!   that neither is better. Rounds next to each other see the same storage, so slow changes
//!   cancel.
//! - **Climb.** At first the level rises from [`CLIMB_FROM`] after every round, *quick* ones as
//!   long as doubling nearly doubles. From the first that does not, it goes a level back, and on
//!   by longer rounds.
//! - **Others.** On loaded storage more outstanding writes always gain throughput, namely that of
//!   others; so the gain says nothing then. But latency has risen at an unchanged limit. The
//!   storage is loaded when the mean is more than [`LOADED`] above the least that this limit ever
//!   had. Then the limit is the level times the ratio of the two, at least a quarter of the
//!   level, and gains are not sampled. The least latency grows by a third of a percent per
//!   second. So storage that has become slower for good (or a tenant who stays) is accepted
//!   within minutes.
//! - A round changes nothing if less than three quarters of the limit were outstanding. Something
//!   else limits then: the order between epochs, a pace, or an empty log.

use crate::ids::Nanos;

const LEVELS: usize = 12;
const GAIN_UP: f64 = 0.055;
/// While guests read: their share of the storage looks like a gain.
const GAIN_UP_CAREFUL: f64 = 0.15;
const GAIN_DOWN_CAREFUL: f64 = 0.06;
const GAIN_DOWN: f64 = 0.025;
/// In the first climb, which decides on one sample.
const GAIN_CLIMB: f64 = 0.05;
/// Samples until a gain counts, and how many the newest is averaged with.
const SAMPLES_MIN: u32 = 6;
const SAMPLES_KEPT: u32 = 16;
const LOADED: f64 = 1.15;
const NEWEST_ROUND: f64 = 0.3;
/// Mean work per write differs by more: another workload.
const OTHER_WORK: f64 = 1.5;
const SHARE_MIN: f64 = 0.25;
const FORGET_SECONDS: f64 = 300.0;
const ROUND_WRITES_MIN: u32 = 128;
const CLIMB_WRITES_MIN: u32 = 64;
const QUICK_WRITES_MIN: u32 = 16;
/// A gain that a quick round is not mistaken about.
const GAIN_CLEAR: f64 = 0.5;
/// Storage that takes one write at a time is seldom; it is found soon enough.
const CLIMB_FROM: usize = 1;
/// Rounds in a cycle, and cycles until what is clear is measured again.
const CYCLE: u32 = 4;
const SELDOM: u32 = 32;
const ROUND_NS_MIN: u64 = 10_000_000;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Knee {
    outstanding_max: u32,
    level: usize,
    climb: Option<Climb>,
    /// Place in the cycle of probes.
    turn: u32,
    levels: [Level; LEVELS],
    /// Guests read: the level above is looked at as seldom as can be.
    is_careful: bool,
    /// Of the level, because others load the storage.
    share: f64,
    round: Round,
    paused_at: Option<Nanos>,
    /// Level and throughput of the round before, when it was a full one.
    before: Option<(usize, f64)>,
    /// Mean work of a write.
    work: f64,
}

/// The first climb.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Climb {
    is_quick: bool,
    /// Throughput a level below, once it was measured with all of its limit outstanding.
    below: Option<f64>,
}

/// What was measured at a level.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// Of doubling it.
    gain: Gain,
    /// Latency in nanoseconds, averaged over rounds; 0: never measured.
    usual: f64,
    /// The least that it was.
    least: f64,
}

/// An averaged gain.
#[derive(Clone, Copy, Debug, Default)]
struct Gain {
    mean: f64,
    samples: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Round {
    limit: u32,
    /// The level, when the limit is a whole one.
    level: Option<usize>,
    /// Completions to leave out before measuring.
    skip: u32,
    began: Nanos,
    writes: u32,
    work: u64,
    latency_ns: u64,
}

impl Knee {
    pub(super) fn new(outstanding_max: u32) -> Knee {
        let mut knee = Knee {
            outstanding_max: outstanding_max.clamp(1, 1 << (LEVELS - 1)),
            level: 0,
            climb: Some(Climb { is_quick: true, below: None }),
            turn: 0,
            levels: [Level::default(); LEVELS],
            is_careful: false,
            share: 1.0,
            round: Round::default(),
            paused_at: None,
            before: None,
            work: 0.0,
        };
        knee.level = CLIMB_FROM.min(knee.top());
        knee.begin(Nanos(0), 0);
        knee
    }

    /// Outstanding writes allowed now.
    pub(super) fn limit(&self) -> u32 {
        self.round.limit
    }

    /// The first climb is over.
    pub(super) fn has_climbed(&self) -> bool {
        self.climb.is_none()
    }

    /// Least mean latency that is known.
    #[cfg(test)]
    pub(super) fn baseline(&self) -> f64 {
        self.levels.iter().map(|level| level.least).find(|least| *least > 0.0).unwrap_or(0.0)
    }

    /// Whether guests read from the same storage.
    pub(super) fn be_careful(&mut self, is_careful: bool) {
        self.is_careful = is_careful;
    }

    /// Something went wrong: what the round has measured so far is void.
    pub(super) fn restart_round(&mut self, now: Nanos) {
        self.before = None;
        self.begin(now, 0);
    }

    /// Nothing is left to write: the time until the next start does not count.
    pub(super) fn pause(&mut self, now: Nanos) {
        self.paused_at.get_or_insert(now);
    }

    /// A write starts.
    pub(super) fn on_start(&mut self, now: Nanos) {
        if let Some(paused_at) = self.paused_at.take() {
            let paused_at = paused_at.max(self.round.began);
            self.round.began = self.round.began.plus(now.since(paused_at));
        }
    }

    /// A write completed.
    pub(super) fn on_write(&mut self, now: Nanos, latency: Nanos, work: u64, outstanding: u32) {
        let round = &mut self.round;
        if round.skip > 0 {
            round.skip -= 1;
            round.began = now;
            return;
        }
        round.writes += 1;
        round.work = round.work.saturating_add(work);
        round.latency_ns = round.latency_ns.saturating_add(latency.0);
        let writes_min = match self.climb {
            Some(Climb { is_quick: true, .. }) => QUICK_WRITES_MIN,
            Some(Climb { is_quick: false, .. }) => CLIMB_WRITES_MIN,
            None => ROUND_WRITES_MIN,
        };
        let elapsed = now.since(round.began);
        if round.writes >= writes_min.max(2 * round.limit) && elapsed.0 >= ROUND_NS_MIN {
            self.end_round(now, elapsed, outstanding);
        }
    }

    fn end_round(&mut self, now: Nanos, elapsed: Nanos, outstanding: u32) {
        let round = self.round;
        let elapsed_ns = elapsed.0 as f64;
        let latency = round.latency_ns as f64 / f64::from(round.writes);
        let is_full = 4.0 * round.latency_ns as f64 >= 3.0 * f64::from(round.limit) * elapsed_ns;
        if is_full {
            self.forget(elapsed_ns / 1e9);
            self.judge_work(round.work as f64 / f64::from(round.writes));
            let throughput = round.work as f64 / elapsed_ns;
            match self.climb {
                Some(climb) if climb.is_quick => self.climb_quickly(climb, throughput),
                _ => {
                    self.judge_load(round, latency);
                    match round.level {
                        Some(level) if self.share == 1.0 => self.sample(level, throughput),
                        _ => self.before = None,
                    }
                    self.choose_level(throughput);
                }
            }
        } else {
            self.before = None;
        }
        self.begin(now, outstanding);
    }

    /// Raises the least latencies a little; a higher level's is never less than a lower one's.
    fn forget(&mut self, seconds: f64) {
        let grow = 1.0 + seconds / FORGET_SECONDS;
        let mut bound = f64::MAX;
        for level in (0..LEVELS).rev() {
            if self.levels[level].least > 0.0 {
                self.levels[level].least = (self.levels[level].least * grow).min(bound);
                bound = self.levels[level].least;
            }
        }
    }

    /// Writes of another size take another time and scale otherwise: all is to be learnt again.
    fn judge_work(&mut self, work: f64) {
        if self.work > 0.0 && (work > self.work * OTHER_WORK || work * OTHER_WORK < self.work) {
            self.levels = [Level::default(); LEVELS];
            self.before = None;
            self.share = 1.0;
            self.work = work;
            if let Some(climb) = &mut self.climb {
                climb.below = None;
            }
        }
        self.work = if self.work == 0.0 { work } else { self.work + (work - self.work) / 8.0 };
    }

    fn judge_load(&mut self, round: Round, latency: f64) {
        let mut latency = latency;
        if let Some(level) = round.level {
            let Level { usual, least, .. } = &mut self.levels[level];
            let weight = if *usual == 0.0 { 1.0 } else { NEWEST_ROUND };
            *usual += (latency - *usual) * weight;
            latency = *usual;
            if *least == 0.0 || latency < *least {
                *least = latency;
            }
        }
        let least = self.least_at(round.limit);
        let ratio = if least > 0.0 { latency / least } else { 1.0 };
        let share = if ratio > LOADED { (LOADED / ratio).max(SHARE_MIN) } else { 1.0 };
        // Half way there: a smaller limit lowers the latency, too.
        self.share = (self.share + share) / 2.0;
        if share == 1.0 && self.share > 0.9 {
            self.share = 1.0;
        }
    }

    /// The least latency at a limit, on the line between the levels around it.
    fn least_at(&self, limit: u32) -> f64 {
        let above = (0..LEVELS).find(|&level| self.size(level) >= limit).unwrap_or(LEVELS - 1);
        if self.size(above) == limit || above == 0 || self.levels[above - 1].least == 0.0 {
            return self.levels[above].least;
        }
        let (low, high) = (
            self.levels[above - 1].least,
            self.levels[above].least.max(self.levels[above - 1].least),
        );
        let (from, to) = (f64::from(self.size(above - 1)), f64::from(self.size(above)));
        low + (high - low) * (f64::from(limit) - from) / (to - from)
    }

    fn sample(&mut self, level: usize, throughput: f64) {
        if let Some((other, before)) = self.before {
            let (low, gain) = if other < level {
                (other, throughput / before - 1.0)
            } else {
                (level, before / throughput - 1.0)
            };
            if other.abs_diff(level) == 1 {
                self.levels[low].gain.add(gain);
            }
        }
        self.before = Some((level, throughput));
    }

    fn climb_quickly(&mut self, climb: Climb, throughput: f64) {
        let is_clear = climb.below.is_none_or(|below| throughput > below * (1.0 + GAIN_CLEAR));
        self.climb = if is_clear && self.level < self.top() {
            self.level += 1;
            Some(Climb { below: Some(throughput), ..climb })
        } else {
            self.level = self.level.saturating_sub(1);
            Some(Climb { is_quick: false, below: None })
        };
    }

    fn choose_level(&mut self, throughput: f64) {
        if self.share < 1.0 {
            return;
        }
        if let Some(climb) = self.climb {
            let gained = climb.below.is_none_or(|below| throughput > below * (1.0 + GAIN_CLIMB));
            if gained && self.level < self.top() {
                self.level += 1;
                self.climb = Some(Climb { below: Some(throughput), ..climb });
                return;
            }
            self.climb = None;
            self.level -= usize::from(!gained);
            self.turn = 0;
        }
        let (up, down) = if self.is_careful {
            (GAIN_UP_CAREFUL, GAIN_DOWN_CAREFUL)
        } else {
            (GAIN_UP, GAIN_DOWN)
        };
        if self.level < self.top() && self.levels[self.level].gain.is_above(up) {
            self.level += 1;
        } else if self.level > 0 && self.levels[self.level - 1].gain.is_below(down) {
            self.level -= 1;
        }
    }

    /// Starts the next round; `outstanding` writes were started under the limit before.
    fn begin(&mut self, now: Nanos, outstanding: u32) {
        let (limit, level) = if self.share < 1.0 {
            let limit = (self.share * f64::from(self.size(self.level))) as u32;
            (limit.max(1), None)
        } else {
            let level = if self.climb.is_some() { self.level } else { self.next_turn() };
            (self.size(level), Some(level))
        };
        let skip = if limit == self.round.limit { 0 } else { outstanding.max(limit) };
        self.round = Round { limit, level, skip, began: now, ..Round::default() };
    }

    /// The level of the next round: mostly the chosen one, sometimes a neighbour; seldom one of
    /// which it is clear that it is no better.
    fn next_turn(&mut self) -> usize {
        self.turn = (self.turn + 1) % (CYCLE * SELDOM);
        let is_any_cycle = self.turn >= CYCLE;
        match self.turn % CYCLE {
            1 if self.level < self.top() => {
                let gain = &self.levels[self.level].gain;
                let is_clear =
                    gain.is_below(if self.is_careful { GAIN_UP_CAREFUL } else { GAIN_DOWN });
                self.level + usize::from(!(is_any_cycle && is_clear))
            }
            3 if self.level > 0 => {
                let is_clear = self.levels[self.level - 1].gain.is_above(2.0 * GAIN_UP);
                self.level - usize::from(!(is_any_cycle && is_clear))
            }
            _ => self.level,
        }
    }

    fn size(&self, level: usize) -> u32 {
        (1 << level).min(self.outstanding_max)
    }

    fn top(&self) -> usize {
        self.outstanding_max.next_power_of_two().trailing_zeros() as usize
    }
}

impl Gain {
    fn add(&mut self, gain: f64) {
        self.samples = (self.samples + 1).min(SAMPLES_KEPT);
        self.mean += (gain - self.mean) / f64::from(self.samples);
    }

    fn is_above(&self, bound: f64) -> bool {
        self.samples >= SAMPLES_MIN && self.mean > bound
    }

    fn is_below(&self, bound: f64) -> bool {
        self.samples >= SAMPLES_MIN && self.mean < bound
    }
}
