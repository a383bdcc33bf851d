//! An advice as sentences for people.

use forebay_backends::size::rounded;

use super::choose::GAIN_MIN;
use super::writes::FLASH_MIN;
use super::{Advice, Beside, Plan, Proof, Share, Verdict, Winner, Writes};
use crate::report::figures::{count, of, time};

/// Disks that are named one by one.
const NAMED_MAX: usize = 3;

pub(super) fn sentence(advice: &Advice) -> String {
    let reads = match (&advice.plan, advice.verdict) {
        (Some(plan), _) => cache(advice, plan),
        (None, Verdict::DoesNotFit { needed }) => does_not_fit(advice, needed),
        (None, Verdict::GoesToOthers) => goes_to_others(advice),
        (None, Verdict::Empty) => return "the trace has no reads or writes".to_owned(),
        (None, Verdict::TooLittle { wanted }) if advice.is_empty() => {
            return format!(
                "too little to advise from: {} and {}, and it takes {wanted} of either at least. A longer trace, of a time when \
                 the disk has something to do, says more",
                of(advice.reads, "read"),
                of(advice.write_requests, "write")
            );
        }
        (None, Verdict::TooLittle { wanted }) => format!(
            "no read cache, since {} reads are too few to tell what it would gain (it takes {wanted})",
            advice.reads
        ),
        (None, Verdict::NoReads) => "no read cache, since hardly anything is read".to_owned(),
        (None, Verdict::Scan) => {
            "no read cache, since hardly anything is read a second time".to_owned()
        }
        (None, Verdict::Disproved) => disproved(advice),
        (None, Verdict::NoGain | Verdict::Cache) => {
            "no read cache, since reads would hardly be faster".to_owned()
        }
    };
    format!("{reads}. {}{}.", writes(advice), unused(advice))
}

/// The useless part of a reservation.
fn unused(advice: &Advice) -> String {
    let (used, Share { ram, flash }) = (advice.used(), advice.reserved);
    let idle = [(ram, used.ram, "RAM"), (flash, used.flash, "flash")].into_iter();
    let idle = idle.filter(|(reserved, used, _)| used < reserved).map(|(reserved, used, tier)| {
        format!(
            "; of the {} of {tier} that are reserved {} are of no use to it",
            rounded(reserved),
            rounded(reserved - used)
        )
    });
    idle.collect()
}

/// The run, and its result.
pub(super) fn proof(of: &Proof) -> String {
    let percent = |ratio: f64| format!("{:.1} %", ratio * 100.0);
    let mut text = format!("run in the engine, {} setups", of.trials);
    if of.after.reads.count > 0 {
        text += &format!(
            ": from an empty cache {} of reads hit, in the second half {} ({} on average)",
            percent(of.hits.ratio),
            percent(of.warm.hit_ratio),
            time(of.warm.read_mean_ns)
        );
    }
    if let Some(stretch) = &of.stretch {
        text += &format!(
            "; compared by the last {} requests, of whose reads {} hit; the figures of other setups are of these",
            count(stretch.requests),
            percent(stretch.hit_ratio)
        );
    }
    text
}

/// How a recording stands to the whole.
pub(super) fn beside(of: &Beside) -> String {
    let percent = |ratio: f64| format!("{:.0} %", ratio * 100.0);
    if of.recorded >= of.observed {
        return format!("all {} requests since the start", count(of.recorded));
    }
    let [cold, warm] = of.recorded_hit_ratio.map(percent);
    let judged = if of.is_alike {
        "so the recording is like the whole"
    } else {
        "so the recording is too short, or of an unusual time: a larger --recorder, or an advice at another time, says more"
    };
    format!(
        "{} of {} requests since the start; LRU with {} would have hit {} of all that was read, {cold} to {warm} of the recording, {judged}",
        count(of.recorded),
        count(of.observed),
        rounded(of.cache_size),
        percent(of.all_hit_ratio),
    )
}

/// A mean, to the precision that figures have.
fn ns(ns: f64) -> String {
    time(ns.round() as u64)
}

fn size_of(plan: &Plan) -> String {
    match (plan.ram, plan.flash) {
        (ram, 0) => format!("{} of RAM", rounded(ram)),
        (0, flash) => format!("{} of flash", rounded(flash)),
        (ram, flash) => format!("{} of flash below {} of RAM", rounded(flash), rounded(ram)),
    }
}

/// The engine did not do what curves promised.
fn disproved(advice: &Advice) -> String {
    let Some(plan) = &advice.forgone else {
        return match advice.writes.log_bytes() {
            0 => "no read cache, since no setup that could be simulated was better than none",
            _ => "no read cache, since a write log alone serves all requests faster",
        }
        .to_owned();
    };
    let slow = advice.latencies.backend.mean_ns;
    // Reads are not to blame for every setup that failed.
    let gains = plan.read.mean_ns <= slow * (1.0 - GAIN_MIN);
    format!(
        "no read cache: in a simulation with {} {:.0} % of reads hit, and reads took {} → {} on average{}",
        size_of(plan),
        plan.hit_ratio * 100.0,
        ns(slow),
        ns(plan.read.mean_ns),
        if gains { ", but writes took too long" } else { "" }
    )
}

/// The effect of a cache that is not advised.
fn would(advice: &Advice, plan: &Plan) -> String {
    format!(
        "{:.0} % of reads would hit, {} → {} on average",
        plan.hit_ratio * 100.0,
        ns(advice.latencies.backend.mean_ns),
        ns(plan.read.mean_ns)
    )
}

fn does_not_fit(advice: &Advice, needed: u64) -> String {
    let needed = rounded(needed);
    let Some(plan) = &advice.forgone else {
        return format!(
            "no read cache, since what is used again does not fit; {needed} would begin to help"
        );
    };
    format!(
        "no read cache, since reads go anywhere in what does not fit: with {} {}, p99 would still be {}, and who waits for several reads \
         would hardly gain; it takes {needed}",
        size_of(plan),
        would(advice, plan),
        ns(plan.read.p99_ns)
    )
}

fn goes_to_others(advice: &Advice) -> String {
    let gain = advice
        .forgone
        .as_ref()
        .map_or(String::new(), |plan| format!("; with {} {}", size_of(plan), would(advice, plan)));
    let others = advice.goes_to.iter().take(NAMED_MAX).map(winner);
    let mut others: Vec<String> = others.collect();
    let more = advice.goes_to.len() - others.len();
    if more > 0 {
        others.push(format!("{more} more"));
    }
    let last = others.pop().unwrap_or_default();
    let others = match others.is_empty() {
        true => last,
        false => format!("{} and {last}", others.join(", ")),
    };
    format!("no read cache, since what there is goes to {others}{gain}")
}

fn winner(of: &Winner) -> String {
    let why = match share(of.reserved) {
        Some(_) if of.reserved == of.has => "reserved".to_owned(),
        Some(reserved) => format!("of which {reserved} are reserved"),
        None => "gains more".to_owned(),
    };
    format!("{} ({}, {why})", of.name, share(of.has).unwrap_or_default())
}

/// `None`: nothing.
pub(super) fn share(Share { ram, flash }: Share) -> Option<String> {
    let has = [(ram, "RAM"), (flash, "flash")].into_iter().filter(|&(bytes, _)| bytes > 0);
    let has: Vec<_> = has.map(|(bytes, tier)| format!("{} of {tier}", rounded(bytes))).collect();
    (!has.is_empty()).then(|| has.join(", "))
}

/// Where hits are expected, or how many there were where nobody can tell.
fn expected(plan: &Plan) -> String {
    match plan.is_steady {
        true => {
            let [low, high] = plan.hit_ratio_range.map(|ratio| (ratio * 100.0).round());
            format!("{low:.0}–{high:.0} %")
        }
        false => format!("{:.0} %", plan.hit_ratio * 100.0),
    }
}

fn cache(advice: &Advice, plan: &Plan) -> String {
    let what = size_of(plan);
    let mut text = format!(
        "{what} at {}: {} of reads hit, {} → {} on average",
        rounded(plan.block_size),
        expected(plan),
        ns(advice.uncached_read_ns()),
        ns(plan.read.mean_ns),
    );
    if plan.is_steady {
        let [fast, slow] = plan.read_mean_range_ns.map(ns);
        text += &format!(" ({fast} to {slow})");
    } else {
        text += " here; what is asked for differs too much from time to time to tell what comes";
    }
    let (size, tier) = plan.larger();
    let room = advice.proof.as_ref().map_or(0, |proof| proof.room_bytes);
    if room > 0 {
        text += &format!(
            "; {} do for this trace, and {} are room for the new pages that it still brings",
            rounded(size - room),
            rounded(room)
        );
    }
    let larger = advice.alternatives.iter().find(|other| {
        other.block_size == plan.block_size && other.larger().1 == tier && other.larger().0 > size
    });
    if let Some(larger) = larger {
        // The other one ran no more than the stretch.
        let stretch = advice.proof.as_ref().and_then(|proof| proof.stretch);
        let hit_ratio = stretch.map_or(plan.hit_ratio, |stretch| stretch.hit_ratio);
        let points = (larger.hit_ratio - hit_ratio) * 100.0;
        let points =
            if points < 0.05 { "nothing".to_owned() } else { format!("{points:.1} points") };
        text += &format!("; {} would add {points}", rounded(larger.larger().0));
    }
    text
}

/// The effect of the log, as far as it was simulated.
fn with_log(advice: &Advice, bytes: u64) -> String {
    let Some((proof, log)) = advice.proof.as_ref().and_then(|proof| Some((proof, proof.log?)))
    else {
        return format!("Writes: a log of {} on flash", rounded(bytes));
    };
    let [slow, fast] = [proof.before, proof.after].map(|of| time(of.writes.mean_ns));
    let journal = if advice.needs_journal {
        ". It needs a destage journal: an image file has it beside it, other primary storage with --destage-journal URI"
    } else {
        ""
    };
    let filled = 100 * log.occupied_bytes_max / log.capacity_bytes.max(1);
    format!(
        "Writes: a log of {} on flash, {slow} → {fast} on average; it was at most {filled} % full{journal}",
        rounded(bytes)
    )
}

fn writes(advice: &Advice) -> String {
    let slow = ns(advice.latencies.backend_write.mean_ns);
    match advice.writes {
        Writes::Log { bytes } => with_log(advice, bytes),
        Writes::NoReserve => {
            "Writes: as before; a log would not do if the load were four times as high".to_owned()
        }
        Writes::Disproved { mean_ns, is_full } => format!(
            "Writes: as before; in a simulation a log made them {slow} → {}{}",
            time(mean_ns),
            if is_full { ", since it filled" } else { "" }
        ),
        Writes::Few => "Writes: hardly any".to_owned(),
        Writes::TooLittle { wanted } => format!(
            "Writes: as before, {} are too few to tell how often they come (it takes {wanted})",
            advice.write_requests
        ),
        Writes::NoFlash => format!(
            "Writes: as before, a write log needs flash, {} or more",
            rounded(FLASH_MIN)
        ),
        Writes::NoGain => {
            "Writes: as before, flash is hardly faster than primary storage".to_owned()
        }
        Writes::NoTimes => {
            "Writes: as before; the trace has no times, so that nobody knows whether primary storage would keep up with a log"
                .to_owned()
        }
        Writes::TooMany => {
            "Writes: as before, primary storage would not keep up with a log in the long run"
                .to_owned()
        }
        Writes::CacheGainsMore if advice.plan.as_ref().is_some_and(|plan| plan.flash > 0) => {
            "Writes: as before, the flash of a log gains more as read cache".to_owned()
        }
        Writes::CacheGainsMore => {
            "Writes: as before, the cache does better without a log".to_owned()
        }
        Writes::NoRoom { needed } => {
            format!("Writes: as before, bursts would need a log of {}", rounded(needed))
        }
    }
}
