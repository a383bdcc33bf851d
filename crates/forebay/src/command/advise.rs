//! `forebay disk advise`: which cache a disk that runs should have, and what came of an advice that was kept.
//!
//! ```text
//! flight recorder ─► a trace in a folder of its own ─► study ─► advise ─► held against the live curve ─► kept, shown
//! statistics ──────► what each tier takes ─────────────┘
//! ```
//! The daemon hands out what it has; the work is done here.

use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail, ensure};
use forebay_core::stats::{LatencySummary, Statistics};
use forebay_host::date;
use forebay_trace::advise::{
    self, Advice, Beside, Disk, Known, LATENCIES_MIN, Latency, Prediction, Settings,
};
use forebay_trace::assumed::RAM_NS;
use forebay_trace::formats::{Options, Reader};
use forebay_trace::record::Record;
use forebay_trace::report::{self, DiskAdvice};
use forebay_trace::{Error, ErrorKind};

use super::client::{self, Found};
use super::observed;
use super::signals;
use super::table::{count, of, time};
use super::trace::{Passes, describe_advice, record_last};
use super::{page_file, write_page};
use crate::cli::disk::DiskAdviseArgs;
use crate::daemon::api::{AdviceInfo, AdviceStage, DiskStats, KeptAdvice};

/// An advice for a disk that runs.
struct Advised {
    advice: Advice,
    disk: Disk,
    /// Requests that it is from.
    recorded: u64,
    beside: Option<Beside>,
}

/// Advises, keeps or forgets: the text.
pub(super) async fn advise(args: DiskAdviseArgs) -> Result<String> {
    let found = client::find_one(&args.disk, args.common.control.as_deref()).await?;
    let path = format!("/v1/disks/{}/advice", found.disk);
    if args.forget {
        let now: AdviceInfo = client::tell(&found.control, &format!("{path}/forget")).await?;
        return Ok(match args.common.json {
            true => serde_json::to_string(&now)? + "\n",
            false => format!("disk {}: no advice is kept\n", found.disk),
        });
    }
    let page = page_file(&args.page)?;
    let of_disk = advised(&found, &args).await?;
    if args.keep {
        let prediction = Prediction::of(&of_disk.advice, date::now_ms()).with_context(|| {
            format!(
                "there is nothing to keep, since no cache is advised: {}",
                of_disk.advice.sentence
            )
        })?;
        let _: AdviceInfo = client::tell_of(&found.control, &path, &prediction).await?;
    }
    let kept = kept(&found).await;
    let notes = notes(&of_disk, &kept);
    write_page(page, || {
        report::advice(&[DiskAdvice {
            disk: &of_disk.disk,
            advice: &of_disk.advice,
            notes: &notes,
        }])
    })?;
    let Advised { advice, recorded, beside, disk } = of_disk;
    if args.common.json {
        let json = serde_json::json!({
            "disk": found.disk,
            "advice": advice,
            "recorded": recorded,
            "span_ns": disk.info.summary.duration_ns,
            "beside": beside,
            "kept": kept.kept,
            "trouble": kept.trouble,
        });
        return Ok(format!("{json}\n"));
    }
    let notes = notes.iter().map(|(name, text)| format!("  {name}: {text}\n"));
    Ok(describe_advice(&advice) + &notes.collect::<String>())
}

async fn advised(found: &Found, args: &DiskAdviseArgs) -> Result<Advised> {
    let stats: DiskStats =
        client::ask(&found.control, &format!("/v1/disks/{}/stats", found.disk)).await?;
    let (engine, block) = (&stats.engine, stats.engine.block_size);
    // Without a cache each request of the recording tells what primary storage takes for it.
    let is_cached = engine.mode_actual.caches();
    let log = engine.log.as_ref().map_or(0, |log| log.capacity_bytes);
    let settings = Settings {
        ram: args.ram.map_or(engine.ram.slots * block, |size| size.0),
        flash: args.flash.map_or(engine.flash.slots * block + log, |size| size.0),
        known: known(&stats, is_cached, args.latencies.known()),
    };
    ensure!(
        settings.ram > 0 || settings.flash > 0,
        "disk '{}' has neither RAM nor flash for a cache: say how much --ram or --flash there could be",
        found.disk
    );
    let wants_end = signals::wants_end()?;
    let folder = tempfile::Builder::new().prefix("forebay-advise-").tempdir()?;
    let trace = folder.path().join("last.fbt");
    let recorded = record_last(found, &trace).await?;
    if recorded == 0 {
        bail!(
            "disk '{}' was not asked for anything yet: there is nothing to advise from",
            found.disk
        );
    }
    let passes = Passes::new(args.common.json);
    passes.begin_trace(&found.disk);
    let mut open = || {
        let (passes, wants_end) = (passes.clone(), wants_end.clone());
        passes.begin_reading();
        // What it took is as it is cached now: the disk's own statistics know what each tier takes.
        let untimed = move |record: Record| Record {
            latency_ns: record.latency_ns.filter(|_| !is_cached),
            ..record
        };
        let records = Reader::open(&trace, &Options::default())?;
        Ok(records.map(move |record| {
            passes.step();
            match wants_end.load(Ordering::Relaxed) {
                true => Err(Error::new(ErrorKind::Io, "interrupted: nothing was advised")),
                false => record.map(untimed),
            }
        }))
    };
    let disk = advise::study(&found.disk, &mut open, &settings)?;
    let proposed = advise::advise(std::slice::from_ref(&disk), &settings)?.remove(0);
    passes.begin_trials(&found.disk);
    let mut advice = advise::prove(&disk, proposed, &settings, open, &passes.trial())?;
    drop(passes);
    // The trials may have read nothing again.
    ensure!(!wants_end.load(Ordering::Relaxed), "interrupted: nothing was advised");
    let size = advise::compared_size(&disk, &advice, settings.ram, settings.flash);
    let observed = engine.recorder.map_or(recorded, |recorder| recorder.observed.max(recorded));
    let curves = observed::curves(found, &[size]).await.ok();
    let curve = curves.as_ref().and_then(|curves| curves.curves.first());
    let beside = curve.and_then(|all| advise::beside(&disk, &mut advice, observed, all));
    Ok(Advised { advice, disk, recorded, beside })
}

/// What is told of what each tier takes, and what the disk measured itself of the others, as far as the recording does not say
/// it.
fn known(stats: &DiskStats, is_cached: bool, told: Known) -> Known {
    let of = |taken: &LatencySummary| {
        let (mean_ns, p99_ns) = (taken.mean_ns as f64, taken.p99_ns as f64);
        (taken.count >= LATENCIES_MIN).then_some(Latency { mean_ns, p99_ns })
    };
    let (engine, taken) = (&stats.engine, &stats.engine.latency);
    let destaged = engine.log.as_ref().map(|log| log.destage_latency_ns).filter(|&ns| ns > 0);
    let backend_write = match engine.mode_actual.logs() {
        true => destaged.map(|ns| Latency::of_mean(ns as f64)),
        false => written_through(engine).filter(|_| is_cached),
    };
    let ram = told.ram.or(of(&taken.read_ram));
    // A write takes what every request takes besides its I/Os, as the other figures have it, and the I/O.
    let of_request = ram.map_or(RAM_NS, |ram| ram.mean_ns);
    let written = |Latency { mean_ns, p99_ns }| Latency {
        mean_ns: mean_ns + of_request,
        p99_ns: p99_ns + of_request,
    };
    let measured = Known {
        ram,
        flash: of(&taken.read_flash),
        // What writes into the log took is no measure: they wait for room, too, and for the throttle.
        flash_write: of(&taken.log_io).map(written),
        backend: of(&taken.read_backend).filter(|_| is_cached),
        backend_write,
    };
    told.or(measured)
}

/// What primary storage takes for a write, without what it waits for before. Nobody knows where some went into a log, in
/// another mode: these do not wait for primary storage.
fn written_through(engine: &Statistics) -> Option<Latency> {
    let writes = engine.latency.write.count;
    let is_known = writes >= LATENCIES_MIN && engine.counters.log_writes == 0;
    let mean = engine.time.write.primary_ns as f64 / writes.max(1) as f64;
    is_known.then_some(Latency::of_mean(mean))
}

/// The advice that was kept for a disk, if its daemon keeps any.
pub(super) async fn kept(found: &Found) -> AdviceInfo {
    let path = format!("/v1/disks/{}/advice", found.disk);
    client::ask(&found.control, &path).await.unwrap_or_default()
}

/// What `disk show` says of a kept advice.
pub(super) fn describe(info: &AdviceInfo) -> String {
    let lines = of_kept(info);
    lines.iter().map(|(name, text)| format!("  {name:<18}{text}\n")).collect()
}

fn notes(of_disk: &Advised, kept: &AdviceInfo) -> Vec<(&'static str, String)> {
    let from = match &of_disk.beside {
        Some(beside) => beside.words(),
        None => of(of_disk.recorded, "request"),
    };
    let span = time(of_disk.disk.info.summary.duration_ns);
    let mut notes = vec![("advised from", format!("{from}; they came in {span}"))];
    notes.extend(of_kept(kept));
    notes
}

fn of_kept(info: &AdviceInfo) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(kept) = &info.kept {
        let day = |ms| date::utc(ms)[..16].replace('T', " ");
        let made = day(kept.prediction.made_ms);
        lines.push(("kept advice", format!("of {made}: {}", kept.prediction.words())));
        lines.push(("what came of it", came_of(kept, day)));
    }
    if let Some(trouble) = &info.trouble {
        lines.push(("kept advice", trouble.clone()));
    }
    lines
}

fn came_of(kept: &KeptAdvice, day: impl Fn(u64) -> String) -> String {
    let counted = kept.judgement.words().zip(kept.since_ms);
    let counted = counted.map(|(words, since)| format!("since {}: {words}", day(since)));
    match (&kept.stage, counted) {
        (AdviceStage::Counting, Some(counted)) => counted,
        (AdviceStage::Counting, None) => "the cache is warm, and nothing was read since".to_owned(),
        (AdviceStage::NotInForce { difference }, None) => {
            format!("nothing yet, since the disk is not as advised: {difference}")
        }
        (AdviceStage::NotInForce { difference }, Some(counted)) => {
            format!("{counted}. Not counted now, since the disk is not as advised: {difference}")
        }
        (AdviceStage::WarmingUp { reads, of }, counted) => {
            let so_far = counted.map_or(String::new(), |counted| format!("{counted}. "));
            format!(
                "{so_far}The cache is warming up: {} of {} reads, or until it is full",
                count(*reads),
                count(*of)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::config::Mode;
    use forebay_core::stats::LogStatistics;

    const MS: u64 = 1_000_000;

    fn taken(count: u64, mean_ns: u64) -> LatencySummary {
        LatencySummary { count, mean_ns, ..LatencySummary::default() }
    }

    #[test]
    fn waits_for_the_throttle_are_no_cost_of_flash() {
        let mut stats = DiskStats::default();
        stats.engine.mode_actual = Mode::WriteBack;
        stats.engine.latency.write = taken(1000, 40 * MS);
        let p99_ns = 300_000;
        stats.engine.latency.log_io = LatencySummary { p99_ns, ..taken(300, 90_000) };
        let log = LogStatistics { destage_latency_ns: 5 * MS, ..LogStatistics::default() };
        stats.engine.log = Some(log);
        let write = |told| known(&stats, true, told);
        assert_eq!(write(Known::default()).backend_write.unwrap().mean_ns, 5e6);
        // What a request takes besides the I/O comes on top: 11 µs, unless that is told, or measured.
        let flash_write = |told| write(told).flash_write.unwrap();
        let assumed = flash_write(Known::default());
        assert_eq!((assumed.mean_ns, assumed.p99_ns), (101e3, 311e3));
        let ram = Some(Latency::of_mean(5e3));
        assert_eq!(flash_write(Known { ram, ..Known::default() }).mean_ns, 95e3);
        let told = Some(Latency::of_mean(70e3));
        assert_eq!(flash_write(Known { flash_write: told, ..Known::default() }).mean_ns, 70e3);
        stats.engine.latency.read_ram = taken(100, 7_000);
        assert_eq!(known(&stats, true, Known::default()).flash_write.unwrap().mean_ns, 97e3);
    }

    #[test]
    fn writes_into_a_log_are_no_measure_of_primary_storage() {
        let mut stats = DiskStats::default();
        stats.engine.mode_actual = Mode::WriteThrough;
        stats.engine.latency.write = taken(500, 20 * MS);
        stats.engine.time.write.primary_ns = 500 * 4 * MS;
        assert_eq!(known(&stats, true, Known::default()).backend_write.unwrap().mean_ns, 4e6);
        stats.engine.counters.log_writes = 1;
        assert_eq!(
            known(&stats, true, Known::default()).backend_write,
            None,
            "some went into a log before"
        );
        stats.engine.counters.log_writes = 0;
        stats.engine.latency.write.count = LATENCIES_MIN - 1;
        assert_eq!(known(&stats, true, Known::default()).backend_write, None, "too few");
    }
}
