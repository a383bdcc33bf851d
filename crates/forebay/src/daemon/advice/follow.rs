//! Which reads of a disk count for its kept advice.
//!
//! ```text
//!   not in force ──configured as advised──► warming up ──full, or as many reads──► counting
//!        ▲                                      ▲        as the advice is from        │
//!        ├─────────────configured otherwise─────┴─────────────────────────────────────┤
//!        └──────────────────────────the cache was dropped, the daemon ended───────────┘
//! ```
//! No clock and no I/O. Counts of several times in force add up.

use forebay_trace::advise::{Prediction, Reads};

use crate::daemon::api::AdviceStage;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Follower {
    stage: Stage,
    /// When counting began first, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// What was counted.
    pub counted: Reads,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Unknown,
    NotInForce(String),
    /// From so many reads on.
    WarmingUp {
        from: u64,
        reads: u64,
    },
    /// Up to these reads.
    Counting(Box<Reads>),
}

/// How a disk is.
#[derive(Debug)]
pub(super) struct Seen {
    /// In milliseconds since 1970.
    pub now_ms: u64,
    /// How it is not configured as advised.
    pub difference: Option<String>,
    /// Its larger tier has no room left.
    pub is_full: bool,
    /// Reads since the daemon began.
    pub reads: Reads,
}

impl Follower {
    /// Goes on with what was counted before.
    pub fn new(since_ms: Option<u64>, counted: Reads) -> Follower {
        Follower { stage: Stage::Unknown, since_ms, counted }
    }

    /// Counts what came since the last look, where it counts; true when that changed anything to keep.
    pub fn look(&mut self, prediction: &Prediction, seen: Seen) -> bool {
        if let Some(difference) = seen.difference {
            self.stage = Stage::NotInForce(difference);
            return false;
        }
        if let Stage::Counting(last) = &mut self.stage {
            // Nothing is counted twice, should an older look come later.
            let Some(new) = seen.reads.since(last) else { return false };
            **last = seen.reads;
            self.counted.merge(&new);
            return new.count() > 0;
        }
        let reads = seen.reads.count();
        let from = match self.stage {
            Stage::WarmingUp { from, .. } => from,
            Stage::Unknown | Stage::NotInForce(_) | Stage::Counting(_) => reads,
        };
        if !seen.is_full && reads < from.saturating_add(prediction.reads) {
            self.stage = Stage::WarmingUp { from, reads: reads.saturating_sub(from) };
            return false;
        }
        self.stage = Stage::Counting(Box::new(seen.reads));
        self.since_ms.get_or_insert(seen.now_ms);
        true
    }

    /// The cache was emptied: it has to become warm again.
    pub fn cooled(&mut self) {
        self.stage = Stage::Unknown;
    }

    /// What is told of it.
    pub fn stage(&self, prediction: &Prediction) -> AdviceStage {
        match &self.stage {
            Stage::Unknown => AdviceStage::WarmingUp { reads: 0, of: prediction.reads },
            Stage::NotInForce(difference) => {
                AdviceStage::NotInForce { difference: difference.clone() }
            }
            Stage::WarmingUp { reads, .. } => {
                AdviceStage::WarmingUp { reads: *reads, of: prediction.reads }
            }
            Stage::Counting(_) => AdviceStage::Counting,
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::config::Mode;
    use forebay_core::ids::Nanos;
    use forebay_trace::advise::{Configuration, Latencies, Latency};

    use super::*;

    fn prediction() -> Prediction {
        let [ram, flash, backend] = [1.0, 2.0, 3.0].map(Latency::of_mean);
        Prediction {
            made_ms: 1,
            sentence: String::new(),
            configuration: Configuration {
                mode: Mode::WriteThrough,
                ram: 0,
                flash: 0,
                block_size: 4096,
                grid_offset: 0,
                policy: "auto".into(),
                flash_admission: None,
                bypass_sequential: None,
                write_log: None,
            },
            reads: 100,
            hit_ratio_range: [0.0, 1.0],
            read_mean_range_ns: [1.0, 2.0],
            read_p99_range_ns: [1.0, 2.0],
            latencies: Latencies {
                ram,
                flash,
                flash_write: flash,
                backend,
                backend_first: backend,
                backend_again: backend,
                backend_far: backend,
                backend_write: backend,
            },
        }
    }

    fn seen(reads: u64, difference: Option<&str>, is_full: bool) -> Seen {
        let mut all = Reads::default();
        all.ram.record(Nanos(1000), reads);
        Seen { now_ms: reads, difference: difference.map(str::to_owned), is_full, reads: all }
    }

    #[test]
    fn reads_count_when_the_disk_is_as_advised_and_warm() {
        let (prediction, mut follower) = (prediction(), Follower::default());
        let mut look = |reads, difference, is_full| {
            let changed = follower.look(&prediction, seen(reads, difference, is_full));
            (follower.stage(&prediction), follower.counted.count(), follower.since_ms, changed)
        };
        let not = AdviceStage::NotInForce { difference: "mode monitor".into() };
        let warming = |reads| AdviceStage::WarmingUp { reads, of: 100 };
        assert_eq!(look(50, Some("mode monitor"), false), (not.clone(), 0, None, false));
        assert_eq!(look(60, None, false), (warming(0), 0, None, false));
        assert_eq!(look(159, None, false), (warming(99), 0, None, false));
        assert_eq!(look(160, None, false), (AdviceStage::Counting, 0, Some(160), true));
        assert_eq!(look(200, None, false), (AdviceStage::Counting, 40, Some(160), true));
        assert_eq!(look(190, None, false), (AdviceStage::Counting, 40, Some(160), false));
        // What came while it was something else does not count.
        assert_eq!(look(250, Some("mode monitor"), false), (not, 40, Some(160), false));
        assert_eq!(look(260, None, true), (AdviceStage::Counting, 40, Some(160), true));
        assert_eq!(look(261, None, true), (AdviceStage::Counting, 41, Some(160), true));
    }

    #[test]
    fn a_dropped_cache_and_a_restart_begin_with_warming_up() {
        let prediction = prediction();
        let mut follower = Follower::default();
        follower.look(&prediction, seen(0, None, true));
        follower.look(&prediction, seen(7, None, true));
        follower.cooled();
        follower.look(&prediction, seen(9, None, false));
        assert_eq!(follower.stage(&prediction), AdviceStage::WarmingUp { reads: 0, of: 100 });
        let mut again = Follower::new(follower.since_ms, follower.counted);
        again.look(&prediction, seen(0, None, true));
        again.look(&prediction, seen(3, None, true));
        assert_eq!((again.counted.count(), again.since_ms), (10, Some(0)));
    }
}
