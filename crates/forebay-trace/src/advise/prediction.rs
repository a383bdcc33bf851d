//! An advice's expectation of a disk, kept, and compared with the outcome.
//!
//! ```text
//! Advice ─► Prediction: a configuration and what it should do ─┐
//! reads that the disk answered in that configuration, warm ────┴─► Judgement: as predicted, better, worse, and why
//! ```
//! The hit ratio and the mean of reads are judged. p99 is shown beside its expectation, and not
//! judged: the model knows it only as that of the slowest tier that matters.

use forebay_backends::size::rounded;
use forebay_core::config::Mode;
use forebay_core::stats::{Latency as Histogram, Statistics, TierState};
use serde::{Deserialize, Serialize};

use super::{Advice, Latencies, Latency, Plan};
use crate::report::figures::{count, time};

/// Reads below which nothing is judged.
const READS_MIN: u64 = 1000;
/// A tier is of the advised size when it is at most this share off: pools lend whole segments.
const SIZE_ERROR: f64 = 1.0 / 16.0;
/// A share of reads, or of their latency, that explains something.
const MATTERS: f64 = 0.02;

/// The advised configuration of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Mode.
    pub mode: Mode,
    /// Bytes of RAM for cached data.
    pub ram: u64,
    /// Bytes of flash for cached data.
    pub flash: u64,
    /// Bytes of a cache block.
    pub block_size: u64,
    /// Byte offset of the grid.
    pub grid_offset: u64,
    /// Eviction policy by its name.
    pub policy: String,
    /// Which blocks go to flash; none: it has no flash for cached data, or was kept before this was.
    #[serde(default)]
    pub flash_admission: Option<String>,
    /// Which sequential streams pass the cache by; none: it was kept before this was.
    #[serde(default)]
    pub bypass_sequential: Option<String>,
    /// Bytes of the write log; none: it has none, or was kept before this was.
    #[serde(default)]
    pub write_log: Option<u64>,
}

/// What was expected of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// When, in milliseconds since 1970.
    pub made_ms: u64,
    /// The advice.
    pub sentence: String,
    /// Of what this is expected.
    pub configuration: Configuration,
    /// Reads that it was made from.
    pub reads: u64,
    /// Of all reads.
    pub hit_ratio_range: [f64; 2],
    /// Nanoseconds of a read, on average.
    pub read_mean_range_ns: [f64; 2],
    /// Nanoseconds that 99 % of the reads do not exceed.
    pub read_p99_range_ns: [f64; 2],
    /// The assumed latencies; that of primary storage is of the reads that miss.
    pub latencies: Latencies,
}

/// Reads of a disk by their slowest source.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// RAM.
    pub ram: Histogram,
    /// Flash.
    pub flash: Histogram,
    /// Primary storage, or the bytes of an earlier read in flight.
    pub backend: Histogram,
    /// Those that took such bytes.
    pub joined: u64,
    /// Those of sequential streams, which were not to be cached.
    pub bypassed: u64,
}

/// What came of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Too few reads yet.
    TooEarly,
    /// Hit ratio and mean are where they were expected.
    AsPredicted,
    /// One of them is better, none worse.
    Better,
    /// One of them is worse.
    Worse,
}

/// A prediction held against what happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// What came of it.
    pub outcome: Outcome,
    /// Why, where it is not as predicted.
    pub because: Vec<String>,
    /// Reads counted.
    pub reads: u64,
    /// Those that hit; none without reads.
    pub hit_ratio: Option<f64>,
    /// Nanoseconds of a read, on average.
    pub read_mean_ns: Option<f64>,
    /// Nanoseconds that 99 % of the reads do not exceed.
    pub read_p99_ns: Option<f64>,
}

impl Prediction {
    /// The expectation of an advice that was given at `made_ms`; `None`: it has no cache.
    pub fn of(advice: &Advice, made_ms: u64) -> Option<Prediction> {
        let plan: &Plan = advice.plan.as_ref()?;
        let setup = &advice.setup;
        Some(Prediction {
            made_ms,
            sentence: advice.sentence.clone(),
            configuration: Configuration {
                mode: advice.mode,
                ram: plan.ram,
                flash: plan.flash,
                block_size: plan.block_size,
                grid_offset: plan.grid_offset,
                policy: plan.policy.clone(),
                flash_admission: (plan.flash > 0).then(|| setup.admission.name().to_owned()),
                bypass_sequential: Some(setup.bypass.to_string()),
                write_log: setup.logs().then_some(setup.log),
            },
            reads: advice.reads,
            hit_ratio_range: plan.hit_ratio_range,
            read_mean_range_ns: plan.read_mean_range_ns,
            read_p99_range_ns: plan.read_p99_range_ns,
            latencies: Latencies { backend: missed(plan, &advice.latencies), ..advice.latencies },
        })
    }

    /// Whether its figures can be; of one that comes from outside.
    pub fn is_sound(&self) -> bool {
        let Latencies {
            ram,
            flash,
            flash_write,
            backend,
            backend_first,
            backend_again,
            backend_far,
            backend_write,
        } = self.latencies;
        let latencies = [
            ram,
            flash,
            flash_write,
            backend,
            backend_first,
            backend_again,
            backend_far,
            backend_write,
        ];
        let latencies = latencies.iter().flat_map(|of| [of.mean_ns, of.p99_ns]);
        let times = self.read_mean_range_ns.into_iter().chain(self.read_p99_range_ns);
        let is_range = |[low, high]: [f64; 2]| low <= high;
        let is_ratio = |ratio: f64| (0.0..=1.0).contains(&ratio);
        let configuration = &self.configuration;
        latencies.chain(times).all(|ns| ns.is_finite() && ns >= 0.0)
            && self.hit_ratio_range.into_iter().all(is_ratio)
            && [self.hit_ratio_range, self.read_mean_range_ns, self.read_p99_range_ns]
                .into_iter()
                .all(is_range)
            && configuration.block_size.is_power_of_two()
            && [&self.sentence, &configuration.policy]
                .into_iter()
                .chain(&configuration.flash_admission)
                .chain(&configuration.bypass_sequential)
                .all(|text| !text.chars().any(char::is_control))
    }

    /// What it expects, in a few words.
    pub fn words(&self) -> String {
        let percent = self.hit_ratio_range.map(|ratio| (ratio * 100.0).round());
        let [mean, p99] = [self.read_mean_range_ns, self.read_p99_range_ns].map(range);
        format!("{:.0}–{:.0} % of reads hit, {mean} on average, p99 {p99}", percent[0], percent[1])
    }

    /// Judges it by the reads that came in its configuration. `lru` is the hit ratio of 4
    /// KiB pieces of LRU with as large a cache, since the daemon began, where that is known.
    pub fn judge(&self, reads: &Reads, lru: Option<f64>) -> Judgement {
        let mut judgement = Judgement {
            outcome: Outcome::TooEarly,
            because: Vec::new(),
            reads: reads.count(),
            hit_ratio: reads.hit_ratio(),
            read_mean_ns: reads.all().mean_ns(),
            read_p99_ns: (reads.count() > 0).then(|| reads.all().summary().p99_ns as f64),
        };
        let (Some(hits), Some(mean)) = (judgement.hit_ratio, judgement.read_mean_ns) else {
            return judgement;
        };
        if judgement.reads < READS_MIN {
            return judgement;
        }
        // No range is narrower than chance.
        let chance = 2.0 * (hits * (1.0 - hits) / judgement.reads as f64).sqrt();
        let [low, high] = self.hit_ratio_range;
        let [fast, slow] = self.read_mean_range_ns;
        let fewer = hits < low - chance;
        let slower = mean > slow && !self.is_within_chance(mean, slow, chance);
        let better =
            hits > high + chance || mean < fast && !self.is_within_chance(mean, fast, chance);
        judgement.outcome = match (fewer || slower, better) {
            (true, _) => Outcome::Worse,
            (false, true) => Outcome::Better,
            (false, false) => Outcome::AsPredicted,
        };
        if judgement.outcome != Outcome::AsPredicted {
            judgement.because = self.reasons(reads, hits, lru);
        }
        judgement
    }

    /// As far off as so many hits more or less make it.
    fn is_within_chance(&self, mean: f64, bound: f64, chance: f64) -> bool {
        (mean - bound).abs() <= chance * self.latencies.backend.mean_ns
    }

    fn reasons(&self, reads: &Reads, hits: f64, lru: Option<f64>) -> Vec<String> {
        let mut because = Vec::new();
        let bypassed = reads.bypassed as f64 / reads.count().max(1) as f64;
        let [low, high] = self.hit_ratio_range;
        let percent = |ratio: f64| format!("{:.0} %", ratio * 100.0);
        if hits < low && bypassed > MATTERS {
            because.push(format!(
                "{} of the reads belonged to sequential streams, which are not cached",
                percent(bypassed)
            ));
        }
        match lru {
            Some(lru) if hits < low && lru < low => because.push(format!(
                "the disk is asked for other things than it was: LRU of this size would have hit {}",
                percent(lru)
            )),
            Some(lru) if hits > high && lru > high => because.push(format!(
                "the disk is asked for fewer things than it was: LRU of this size would have hit {}",
                percent(lru)
            )),
            _ if hits < low => because.push(format!("fewer reads hit than {}", percent(low))),
            _ if hits > high => because.push(format!("more reads hit than {}", percent(high))),
            _ => {}
        }
        let Latencies { ram, flash, backend, .. } = self.latencies;
        let tiers = [
            ("a hit in RAM", &reads.ram, ram),
            ("a hit on flash", &reads.flash, flash),
            ("primary storage", &reads.backend, backend),
        ];
        let mean = reads.all().mean_ns().unwrap_or(0.0);
        for (what, measured, reckoned) in tiers {
            let Some(took) = measured.mean_ns() else { continue };
            let share = measured.count() as f64 / reads.count() as f64;
            if ((took - reckoned.mean_ns) * share).abs() > MATTERS * mean {
                because.push(format!(
                    "{what} took {} instead of {}",
                    time(took as u64),
                    time(reckoned.mean_ns as u64)
                ));
            }
        }
        if because.is_empty() && self.latencies.ram != self.latencies.flash {
            because.push("the hits divide otherwise between RAM and flash".to_owned());
        }
        because
    }
}

impl Configuration {
    /// How a disk is not as it was advised to be; `None`: it is.
    pub fn difference(&self, now: &Statistics) -> Option<String> {
        let is_about = |bytes: u64, advised: u64| {
            (bytes as f64 - advised as f64).abs() <= advised as f64 * SIZE_ERROR
        };
        let is_size = |slots: u64, advised: u64| is_about(slots * now.block_size, advised);
        let size = |bytes: u64| rounded(bytes).to_string();
        // A tier that failed still has its slots, and answers nothing.
        let has_failed = self.flash > 0 && now.flash.state == TierState::Failed;
        let checks = [
            (
                "mode",
                now.mode_actual == self.mode,
                now.mode_actual.to_string(),
                self.mode.to_string(),
            ),
            (
                "block size",
                now.block_size == self.block_size,
                size(now.block_size),
                size(self.block_size),
            ),
            (
                "RAM",
                is_size(now.ram.slots, self.ram),
                size(now.ram.slots * now.block_size),
                size(self.ram),
            ),
            (
                "flash",
                is_size(now.flash.slots, self.flash) || has_failed,
                size(now.flash.slots * now.block_size),
                size(self.flash),
            ),
            ("policy", now.policy == self.policy, now.policy.clone(), self.policy.clone()),
            (
                "grid offset",
                now.grid_offset == self.grid_offset,
                now.grid_offset.to_string(),
                self.grid_offset.to_string(),
            ),
        ];
        let named = [
            ("flash admission", &now.flash_admission, &self.flash_admission),
            ("bypass of streams", &now.bypass_sequential, &self.bypass_sequential),
        ];
        let named = named.into_iter().filter_map(|(what, now, advised)| {
            let advised = advised.as_ref()?;
            Some((what, now == advised, in_units(now), in_units(advised)))
        });
        let log = self.write_log.map(|advised| {
            let now = now.log.as_ref().map_or(0, |log| log.capacity_bytes);
            // A larger one serves as well, and a log of few large segments may be no smaller.
            let is_enough = now >= advised || is_about(now, advised);
            ("write log", is_enough, size(now), size(advised))
        });
        let differ = checks.into_iter().chain(named).chain(log).filter(|(_, is_same, ..)| !is_same);
        let words = differ.map(|(what, _, is, advised)| format!("{what} {is}, advised {advised}"));
        let failed = has_failed.then(|| "flash has failed".to_owned());
        let words: Vec<String> = failed.into_iter().chain(words).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }
}

impl Reads {
    /// All of them.
    pub fn all(&self) -> Histogram {
        let mut all = self.ram.clone();
        all.merge(&self.flash);
        all.merge(&self.backend);
        all
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.ram.count() + self.flash.count() + self.backend.count()
    }

    /// Those for which primary storage was not asked.
    pub fn hit_ratio(&self) -> Option<f64> {
        let count = self.count();
        let hits = self.ram.count() + self.flash.count() + self.joined;
        (count > 0).then(|| hits as f64 / count as f64)
    }

    /// Adds those of `other`.
    pub fn merge(&mut self, other: &Reads) {
        self.ram.merge(&other.ram);
        self.flash.merge(&other.flash);
        self.backend.merge(&other.backend);
        self.joined += other.joined;
        self.bypassed += other.bypassed;
    }

    /// The reads since `earlier`; `None`: these are not a continuation of it.
    pub fn since(&self, earlier: &Reads) -> Option<Reads> {
        Some(Reads {
            ram: self.ram.since(&earlier.ram)?,
            flash: self.flash.since(&earlier.flash)?,
            backend: self.backend.since(&earlier.backend)?,
            joined: self.joined.checked_sub(earlier.joined)?,
            bypassed: self.bypassed.checked_sub(earlier.bypassed)?,
        })
    }
}

impl Judgement {
    /// The counts, in a few words; `None`: nothing.
    pub fn words(&self) -> Option<String> {
        let (hits, mean, p99) = (self.hit_ratio?, self.read_mean_ns?, self.read_p99_ns?);
        let mut text = format!(
            "{:.1} % of {} reads hit, {} on average, p99 {}: ",
            hits * 100.0,
            count(self.reads),
            time(mean as u64),
            time(p99 as u64)
        );
        text += match self.outcome {
            Outcome::TooEarly => "too few to judge",
            Outcome::AsPredicted => "as predicted",
            Outcome::Better => "better than predicted",
            Outcome::Worse => "worse than predicted",
        };
        if !self.because.is_empty() {
            text += &format!(", because {}", self.because.join("; "));
        }
        Some(text)
    }
}

/// What reads take that miss.
fn missed(plan: &Plan, latencies: &Latencies) -> Latency {
    let missed = 1.0 - plan.hit_ratio;
    let [_, _, kinds @ ..] = latencies.kinds(plan.hit_ratio, 0.0, plan.first_ratio);
    match missed > 0.0 {
        true => Latency::mixture(&kinds.map(|(share, of)| (share / missed, of))),
        false => latencies.backend_again,
    }
}

/// A setting that may be a number of bytes.
fn in_units(setting: &str) -> String {
    setting.parse().map_or_else(|_| setting.to_owned(), |bytes| rounded(bytes).to_string())
}

fn range([low, high]: [f64; 2]) -> String {
    let (low, high) = (time(low.round() as u64), time(high.round() as u64));
    if low == high { low } else { format!("{low} to {high}") }
}

#[cfg(test)]
mod tests;
