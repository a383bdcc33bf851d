//! `forebay stats`: what a disk does, once or every second.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use forebay_backends::size::rounded;
use forebay_core::stats::{LatencySummary, Statistics, TierState, TierStatistics};

use super::client::{self, Found};
use super::table::{Table, count, of, percent, time};
use crate::cli::StatsArgs;
use crate::daemon::api::DiskStats;
use crate::messages;

/// Pause of `--watch`.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Prints the statistics of one disk or of all.
pub(crate) fn stats(args: StatsArgs) -> Result<()> {
    client::block_on(async {
        let found = client::find(args.disk.as_ref(), args.control.as_deref()).await?;
        let mut before: Vec<Option<DiskStats>> = vec![None; found.len()];
        loop {
            let mut text = String::new();
            for (found, before) in found.iter().zip(&mut before) {
                let stats = ask(found).await?;
                if args.json {
                    let _ = writeln!(text, "{}", serde_json::to_string(&stats)?);
                } else {
                    text += &describe(&stats);
                    if let Some(before) = before {
                        text += &rates(&before.engine, &stats.engine);
                    }
                }
                *before = Some(stats);
            }
            print(&text, args.watch && !args.json)?;
            if !args.watch {
                return Ok(());
            }
            tokio::time::sleep(WATCH_EVERY).await;
        }
    })
}

async fn ask(found: &Found) -> Result<DiskStats> {
    client::ask(&found.control, &format!("/v1/disks/{}/stats", found.disk)).await
}

/// Prints `text`, over what was there before when `in_place` and somebody looks.
fn print(text: &str, in_place: bool) -> Result<()> {
    use std::io::IsTerminal;
    let mut out = std::io::stdout().lock();
    if in_place && out.is_terminal() {
        write!(out, "\x1b[H\x1b[2J")?;
    }
    write!(out, "{text}")?;
    out.flush()?;
    Ok(())
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
    let rows: [(&str, &LatencySummary); 10] = [
        ("reads", &latency.read),
        ("  from RAM", &latency.read_ram),
        ("  from flash", &latency.read_flash),
        ("  from primary storage", &latency.read_backend),
        ("writes", &latency.write),
        ("compare-and-writes", &latency.compare_and_write),
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
        "  reads {} ({}), writes {} ({}), flushes {}; primary storage was spared {} reads\n",
        count(c.reads),
        rounded(c.read_bytes),
        count(c.writes),
        rounded(c.write_bytes),
        count(c.flushes),
        count(spared)
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
            "  flash: {} written, {} read; {} blocks admitted, {} refused, fills skipped: {} for want of memory, {} overtaken by writes",
            rounded(c.flash_write_bytes),
            rounded(c.flash_read_bytes),
            count(c.flash_admitted),
            count(c.flash_refused),
            count(c.flash_fills_skipped_staging),
            count(c.flash_fills_skipped_busy)
        );
    }
    let _ = writeln!(
        text,
        "  evicted {} from RAM, {} from flash; bypassed {} reads, {} writes",
        count(c.ram_evicted),
        count(c.flash_evicted),
        count(c.reads_bypassed),
        count(c.writes_bypassed)
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

/// What happened in the last second.
fn rates(before: &Statistics, now: &Statistics) -> String {
    let (b, n) = (&before.counters, &now.counters);
    let reads = n.reads.saturating_sub(b.reads);
    let hits = n.read_hits().saturating_sub(b.read_hits());
    format!(
        "  last second: {} reads ({}), {} writes ({}), hit ratio {}\n",
        count(reads),
        rounded(n.read_bytes.saturating_sub(b.read_bytes)),
        count(n.writes.saturating_sub(b.writes)),
        rounded(n.write_bytes.saturating_sub(b.write_bytes)),
        percent(hits, reads)
    )
}
