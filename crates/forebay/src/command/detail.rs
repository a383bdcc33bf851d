//! One disk in lines of at most 80 columns: what it does now, and what it did since it was opened.

use forebay_backends::size::rounded;
use forebay_core::stats::{LatencySummary, TierState, TierStatistics};

use super::rates::Rates;
use super::table::{Table, count, of, percent, time};
use super::time as spent;
use crate::daemon::api::DiskStats;
use crate::messages;

/// Columns of the longest line.
const WIDTH: usize = 80;

/// A disk, with what it did in the last interval where that is known.
pub(super) fn lines(stats: &DiskStats, rates: Option<&Rates>) -> Vec<String> {
    let engine = &stats.engine;
    let mode = match engine.mode == engine.mode_actual {
        true => format!("mode {}", engine.mode),
        false => format!("mode {} ({} was asked for)", engine.mode_actual, engine.mode),
    };
    let mut out = vec![
        format!("disk {}: {}, {mode}", stats.name, rounded(engine.disk_size)),
        format!(
            "  {} ({} waiting), {} in flight, {} failed, {} out of time",
            of(stats.connections.into(), "client"),
            count(stats.connections_waiting.into()),
            of(engine.requests_in_flight, "request"),
            count(engine.counters.requests_failed),
            count(engine.counters.requests_timed_out)
        ),
        format!("  primary storage {}", messages::primary_storage(stats)),
        String::new(),
    ];
    out.extend(requests(stats, rates));
    out.push(String::new());
    out.extend(latencies(stats, rates));
    out.extend(time_spent(stats, rates));
    out.push(String::new());
    out.extend(tier("RAM", &engine.ram, engine.block_size));
    out.extend(tier("flash", &engine.flash, engine.block_size));
    out.extend(log(stats, rates));
    out.iter_mut().for_each(cut);
    out
}

/// Shortens a line that is too long.
fn cut(line: &mut String) {
    if line.chars().count() > WIDTH {
        *line = line.chars().take(WIDTH - 1).chain(['…']).collect();
    }
}

fn requests(stats: &DiskStats, rates: Option<&Rates>) -> Vec<String> {
    let counters = &stats.engine.counters;
    let mut table = Table::new(&["", "reads", "writes", "flushes", "read", "written", "hits"]);
    if let Some(now) = rates {
        table.row(vec![
            "  per second, now".to_owned(),
            count(now.reads),
            count(now.writes),
            count(now.flushes),
            rounded(now.read_bytes).to_string(),
            rounded(now.write_bytes).to_string(),
            percent(now.hits.0, now.hits.1),
        ]);
    }
    table.row(vec![
        "  since the start".to_owned(),
        count(counters.reads),
        count(counters.writes),
        count(counters.flushes),
        rounded(counters.read_bytes).to_string(),
        rounded(counters.write_bytes).to_string(),
        percent(counters.read_hits(), counters.reads),
    ]);
    let mut lines: Vec<String> = table.text(0).lines().map(str::to_owned).collect();
    let part = |hits| percent(hits, counters.reads);
    lines.push(format!(
        "  hits: RAM {}, flash {}, reads in flight {}; in part {}",
        part(counters.read_hits_ram),
        part(counters.read_hits_flash),
        part(counters.read_hits_joined),
        part(counters.read_hits_partial)
    ));
    lines
}

fn latencies(stats: &DiskStats, rates: Option<&Rates>) -> Vec<String> {
    let latency = &stats.engine.latency;
    let now = |of: fn(&Rates) -> Option<u64>| rates.and_then(of);
    let rows: [(&str, Option<u64>, &LatencySummary); 5] = [
        ("  guest reads", now(|it| it.guest_reads), &latency.read),
        ("  guest writes", now(|it| it.guest_writes), &latency.write),
        ("  flash I/O, cache", now(|it| it.cache_io), &latency.flash_io),
        ("  flash I/O, write log", now(|it| it.log_io), &latency.log_io),
        ("  primary storage I/O", now(|it| it.primary), &latency.backend_io),
    ];
    let mut table = Table::new(&["latency", "mean now", "mean", "p50", "p99", "max"]);
    for (name, now, since) in rows {
        let known = |ns: u64| if since.count > 0 { time(ns) } else { "-".to_owned() };
        let mut row = vec![name.to_owned(), now.map_or("-".to_owned(), time)];
        row.extend([since.mean_ns, since.p50_ns, since.p99_ns, since.max_ns].map(known));
        table.row(row);
    }
    table.text(0).lines().map(str::to_owned).collect()
}

/// Where time goes now, or went since the start, and why reads miss.
fn time_spent(stats: &DiskStats, rates: Option<&Rates>) -> Vec<String> {
    let (read, write, misses) = match rates {
        Some(now) => (now.read_time, now.write_time, now.misses),
        None => (stats.engine.time.read, stats.engine.time.write, stats.engine.misses),
    };
    let of = |name: &str, split| match spent::parts(split) {
        parts if parts.is_empty() => format!("  {name}: -"),
        parts => format!("  {name}: {parts}"),
    };
    let head = if rates.is_some() { "where time goes now" } else { "where time went" };
    let mut lines = vec![head.to_owned(), of("reads", &read), of("writes", &write)];
    lines.extend(spent::misses(&misses).map(|reasons| format!("  misses: {reasons}")));
    lines
}

fn tier(name: &str, tier: &TierStatistics, block: u64) -> Option<String> {
    (tier.state != TierState::None).then(|| {
        format!(
            "{name}: {}, {} of {} used ({})",
            messages::tier(tier),
            rounded(tier.slots_used * block),
            rounded(tier.slots * block),
            percent(tier.slots_used, tier.slots)
        )
    })
}

fn log(stats: &DiskStats, rates: Option<&Rates>) -> Vec<String> {
    let Some(log) = &stats.engine.log else { return Vec::new() };
    let age = match (log.is_clean, log.primary_age_is_at_least) {
        (true, _) => "none is waiting".to_owned(),
        (false, true) => {
            format!("the oldest has waited for {} or longer", time(log.primary_age_ns))
        }
        (false, false) => format!("the oldest has waited for {}", time(log.primary_age_ns)),
    };
    let destaged = rates.map_or("-".to_owned(), |now| rounded(now.destaged_bytes).to_string());
    vec![
        format!(
            "write log: {}, {} of {} occupied ({})",
            messages::log(log),
            rounded(log.occupied_bytes),
            rounded(log.capacity_bytes),
            percent(log.occupied_bytes, log.capacity_bytes)
        ),
        format!("  dirty data: {}, {age}", rounded(log.dirty_bytes)),
        format!(
            "  destaging: {destaged} a second; limited by: {}",
            messages::limit(log.limited_by)
        ),
        format!(
            "  throttle: each write is delayed by {}; waiting for room: {}",
            time(log.injected_latency_ns),
            of(log.writes_waiting, "write")
        ),
    ]
}
