//! `forebay stats`: what a disk does, once or every second.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use forebay_backends::size::rounded;
use forebay_core::stats::{LatencySummary, Statistics, TierState, TierStatistics};
use ratatui::crossterm::event::KeyCode;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use tokio::time::MissedTickBehavior;

use super::client::{self, Found};
use super::detail;
use super::history::history;
use super::rates::Rates;
use super::screen::{Input, Screen, ended};
use super::table::{Table, count, of, percent, time};
use super::time as spent;
use crate::cli::StatsArgs;
use crate::daemon::api::DiskStats;
use crate::messages;

/// Disks that are asked side by side: fewer than a socket lets wait.
const ASKED_MAX: usize = 32;
/// Pause of `--watch`.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Prints the statistics of one disk or of all.
pub(crate) fn stats(args: StatsArgs) -> Result<()> {
    client::block_on(async {
        let found = client::find(args.disk.as_ref(), args.control.as_deref()).await?;
        if args.history {
            for found in &found {
                super::print(&history(found, args.json).await?)?;
            }
            return Ok(());
        }
        if args.watch && !args.json && Screen::is_possible() {
            return watch(found).await;
        }
        let mut watched: Vec<Watched> = found.iter().map(|_| Watched::default()).collect();
        loop {
            let mut text = String::new();
            let answers = ask_each(&found).await?;
            for ((found, watched), answer) in found.iter().zip(&mut watched).zip(answers) {
                let stats = match answer {
                    Ok(stats) => stats,
                    Err(error) if args.watch => {
                        eprintln!("disk {}: {error:#}", found.disk);
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                if args.json {
                    let _ = writeln!(text, "{}", serde_json::to_string(&stats)?);
                } else if args.watch {
                    // As on a screen: of the second, once there was one.
                    watched.take(Ok(stats));
                    text += &(watched.lines(&found.disk).join("\n") + "\n\n");
                } else {
                    text += &describe(&stats);
                }
            }
            super::print(&text)?;
            if !args.watch {
                return Ok(());
            }
            tokio::time::sleep(WATCH_EVERY).await;
        }
    })
}

/// What each disk answers, asked side by side. One that ends, or hangs, ends nothing while others answer.
///
/// # Errors
/// None does.
async fn ask_each(found: &[Found]) -> Result<Vec<Result<DiskStats>>> {
    let mut answers = Vec::with_capacity(found.len());
    for found in found.chunks(ASKED_MAX) {
        let asked = found.iter().cloned().map(|Found { control, disk }| {
            let path = format!("/v1/disks/{disk}/stats");
            tokio::spawn(async move { client::ask(&control, &path).await })
        });
        for asked in asked.collect::<Vec<_>>() {
            answers.push(asked.await?);
        }
    }
    match answers.iter().any(Result::is_ok) {
        true => Ok(answers),
        false => Err(answers.into_iter().find_map(Result::err).expect("a disk was found")),
    }
}

/// A disk on the screen.
#[derive(Default)]
struct Watched {
    /// What it answered last, and when.
    last: Option<(Instant, DiskStats)>,
    rates: Option<Rates>,
    /// Why it did not answer since.
    trouble: Option<String>,
}

impl Watched {
    fn take(&mut self, answer: Result<DiskStats>) {
        match answer {
            Ok(now) => {
                let between =
                    |(at, last): &(Instant, DiskStats)| Rates::between(last, &now, at.elapsed());
                self.rates = self.last.as_ref().map(between);
                (self.last, self.trouble) = (Some((Instant::now(), now)), None);
            }
            Err(error) => (self.rates, self.trouble) = (None, Some(format!("{error:#}"))),
        }
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let trouble = self.trouble.as_ref().map(|why| format!("disk {name}: NO FIGURES: {why}"));
        let last = self.last.iter().flat_map(|(_, it)| detail::lines(it, self.rates.as_ref()));
        trouble.into_iter().chain(last).collect()
    }
}

/// Shows disks in a full screen, one below the other, until a user has seen enough.
async fn watch(found: Vec<Found>) -> Result<()> {
    let found: Arc<[Found]> = found.into();
    let mut disks: Vec<Watched> = found.iter().map(|_| Watched::default()).collect();
    let take = |disks: &mut [Watched], answers: Vec<Result<DiskStats>>| {
        disks.iter_mut().zip(answers).for_each(|(disk, answer)| disk.take(answer));
    };
    take(&mut disks, ask_each(&found).await?);
    let mut screen = Screen::open()?;
    let mut ticks = tokio::time::interval(WATCH_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let (mut first_line, mut asking) = (0u16, None);
    loop {
        let shown = disks.iter().zip(&*found).map(|(disk, found)| disk.lines(&found.disk));
        let lines: Vec<String> = shown.collect::<Vec<_>>().join(&String::new());
        first_line = first_line.min((lines.len() as u16).saturating_sub(1));
        let text: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
        screen.draw(|frame| {
            frame.render_widget(Paragraph::new(text).scroll((first_line, 0)), frame.area());
        })?;
        tokio::select! {
            input = screen.input() => match input {
                Input::End | Input::Key(KeyCode::Char('q')) => return Ok(()),
                Input::Key(KeyCode::Down) => first_line += 1,
                Input::Key(KeyCode::Up) => first_line = first_line.saturating_sub(1),
                Input::Key(_) | Input::Resized => {}
            },
            // The keys work while a daemon hangs.
            _ = ticks.tick(), if asking.is_none() => {
                let found = found.clone();
                asking = Some(tokio::spawn(async move { ask_each(&found).await }));
            }
            answers = ended(&mut asking) => {
                asking = None;
                take(&mut disks, answers??);
            }
        }
    }
}

/// The statistics of one disk for people.
fn describe(stats: &DiskStats) -> String {
    let engine = &stats.engine;
    let counters = &engine.counters;
    let hits = counters.read_hits();
    let mut text = String::new();
    let _ = writeln!(
        text,
        "disk {}: {}, {}, {} blocks, policy {}, grid offset {}",
        stats.name,
        rounded(engine.disk_size),
        engine.mode_actual,
        rounded(engine.block_size),
        engine.policy,
        engine.grid_offset
    );
    let _ = writeln!(
        text,
        "  primary storage {}; {} ({} waiting), {} in flight",
        messages::primary_storage(stats),
        of(stats.connections.into(), "client"),
        stats.connections_waiting,
        of(engine.requests_in_flight, "request")
    );
    if let Some(what) = &stats.storage_changed {
        let _ = writeln!(text, "  PRIMARY STORAGE: {what}");
    }
    if let Some(log) = &engine.log {
        let deferred = if log.deferred_ns > 0 { ", FLUSHES DEFERRED" } else { "" };
        let _ = writeln!(
            text,
            "  write log {}{deferred}, {} dirty of {}; 'forebay disk show {}' has more",
            messages::log(log),
            rounded(log.dirty_bytes),
            rounded(log.capacity_bytes),
            stats.name
        );
    }
    let _ = writeln!(
        text,
        "  hit ratio {} of {} reads (RAM {}, flash {}, from reads in flight {}; in part {})",
        percent(hits, counters.reads),
        count(counters.reads),
        percent(counters.read_hits_ram, counters.reads),
        percent(counters.read_hits_flash, counters.reads),
        percent(counters.read_hits_joined, counters.reads),
        percent(counters.read_hits_partial, counters.reads)
    );
    text += &latencies(engine);
    text += &time_spent(engine);
    text += &tier("RAM", &engine.ram, engine.block_size);
    text += &tier("flash", &engine.flash, engine.block_size);
    let _ = writeln!(text, "  metadata {} of RAM", rounded(engine.metadata_bytes));
    text += &counts(engine);
    let vfrc = &engine.vfrc;
    let _ = writeln!(text, "  vFRC's names:");
    let _ = writeln!(text, "    numBlocks                   {}", count(vfrc.num_blocks));
    let _ = writeln!(
        text,
        "    numBlocksCurrentlyCached    {}",
        count(vfrc.num_blocks_currently_cached)
    );
    let _ =
        writeln!(text, "    Evict:avgNumBlocksPerOp     {:.2}", vfrc.evict_avg_num_blocks_per_op);
    let _ = writeln!(text, "    vFlash:cacheHitPercentage   {:.1}", vfrc.cache_hit_percentage);
    text
}

fn latencies(engine: &Statistics) -> String {
    let latency = &engine.latency;
    let rows: [(&str, &LatencySummary); 11] = [
        ("reads", &latency.read),
        ("  from RAM", &latency.read_ram),
        ("  from flash", &latency.read_flash),
        ("  from primary storage", &latency.read_backend),
        ("writes", &latency.write),
        ("compare-and-writes", &latency.compare_and_write),
        ("discards and zeroes", &latency.zero),
        ("flushes", &latency.flush),
        ("flash I/O", &latency.flash_io),
        ("write log I/O", &latency.log_io),
        ("primary storage I/O", &latency.backend_io),
    ];
    let mut table = Table::new(&["latency", "count", "mean", "p50", "p90", "p99", "p99.9", "max"]);
    for (name, summary) in rows.into_iter().filter(|(_, summary)| summary.count > 0) {
        let mut row = vec![name.to_owned(), count(summary.count)];
        let figures = [
            summary.mean_ns,
            summary.p50_ns,
            summary.p90_ns,
            summary.p99_ns,
            summary.p999_ns,
            summary.max_ns,
        ];
        row.extend(figures.map(time));
        table.row(row);
    }
    table.text(2)
}

/// Where time went, and why reads missed.
fn time_spent(engine: &Statistics) -> String {
    let mut text = String::new();
    let kinds = [
        ("reads", &engine.time.read),
        ("writes", &engine.time.write),
        ("flushes", &engine.time.flush),
    ];
    for (name, split) in kinds.into_iter().filter(|(_, split)| split.total_ns > 0) {
        let _ = writeln!(text, "  time of {name}: {}", spent::parts(split));
    }
    if let Some(reasons) = spent::misses(&engine.misses) {
        let _ = writeln!(text, "  misses, {reasons}");
    }
    let slowest = engine.slowest.iter().max_by_key(|slow| slow.time.total_ns);
    if let Some(slow) = slowest {
        let _ = writeln!(text, "  slowest of the last hour: {}", spent::slow(slow));
    }
    text
}

fn tier(name: &str, tier: &TierStatistics, block: u64) -> String {
    if tier.slots == 0 && tier.state != TierState::Failed {
        return String::new();
    }
    let waits = match tier.slots - tier.slots_ready {
        0 => String::new(),
        missing => format!("; {} wait for memory", rounded(missing * block)),
    };
    format!(
        "  {name}: {}, {} of {} blocks used ({} of {}{waits})\n",
        messages::tier(tier),
        count(tier.slots_used),
        count(tier.slots),
        rounded(tier.slots_used * block),
        rounded(tier.slots * block)
    )
}

fn counts(engine: &Statistics) -> String {
    let c = &engine.counters;
    let spared = c.read_hits();
    let mut text = format!(
        "  reads {} ({}), writes {} ({}), flushes {}; primary storage was spared {}\n",
        count(c.reads),
        rounded(c.read_bytes),
        count(c.writes),
        rounded(c.write_bytes),
        count(c.flushes),
        of(spared, "read")
    );
    let _ = writeln!(
        text,
        "  primary storage: {} ({}), {} ({}, of them destaged {}), flushes {}, {}",
        of(c.backend_reads, "read"),
        rounded(c.backend_read_bytes),
        of(c.backend_writes + c.destage_writes, "write"),
        rounded(c.backend_write_bytes + c.destage_write_bytes),
        rounded(c.destage_write_bytes),
        count(c.backend_flushes),
        of(c.backend_errors, "error")
    );
    if engine.flash.slots > 0 {
        let _ = writeln!(
            text,
            "  flash: {} of cached data and {} of the index written, {} read; {} blocks admitted, {} refused, fills skipped: {} for want of memory, {} overtaken by writes",
            rounded(c.flash_write_bytes),
            rounded(c.ring_write_bytes),
            rounded(c.flash_read_bytes),
            count(c.flash_admitted),
            count(c.flash_refused),
            count(c.flash_fills_skipped_staging),
            count(c.flash_fills_skipped_busy)
        );
    }
    let _ = writeln!(
        text,
        "  evicted {} from RAM, {} from flash; bypassed {}, {}",
        count(c.ram_evicted),
        count(c.flash_evicted),
        of(c.reads_bypassed, "read"),
        of(c.writes_bypassed, "write")
    );
    // Only what went wrong, and only if it did.
    let troubles = [
        ("requests failed", c.requests_failed),
        ("requests timed out", c.requests_timed_out),
        ("flash errors", c.flash_errors),
        ("flash checksum errors", c.flash_checksum_errors),
        ("flash slots quarantined", c.flash_slots_quarantined),
        ("blocks dropped because unflushed writes may be lost", c.blocks_dropped_at_risk),
    ];
    for (what, number) in troubles.into_iter().filter(|(_, number)| *number > 0) {
        let _ = writeln!(text, "  {what}: {}", count(number));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primary_storage_that_changed_is_shown() {
        let mut stats = DiskStats::default();
        assert!(!describe(&stats).contains("PRIMARY STORAGE"));
        stats.storage_changed = Some("the image was removed".to_owned());
        assert!(describe(&stats).contains("  PRIMARY STORAGE: the image was removed\n"));
    }

    #[test]
    fn what_goes_to_flash_is_shown_with_the_index() {
        let mut stats = DiskStats::default();
        stats.engine.flash.slots = 8;
        stats.engine.counters.ring_write_bytes = 3 << 20;
        let text = describe(&stats);
        let expect = "  flash: 0 B of cached data and 3 MiB of the index written, 0 B read; ";
        assert!(text.contains(expect), "{text}");
    }
}
