//! `forebay pool`: looks into a flash pool that nobody uses.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::{Result, bail};
use forebay_backends::size::rounded;

use super::table::count;
use crate::cli::disk::{PoolArgs, PoolCommand};
use crate::daemon::pool::report::{self, DiskReport, PoolReport};
use crate::daemon::pool::survey::RingReport;
use crate::date::utc;

/// Carries out a command.
pub(crate) fn pool(command: PoolCommand) -> Result<()> {
    match command {
        PoolCommand::Show(args) => show(&args),
        PoolCommand::Check(args) => check(&args),
    }
}

fn show(args: &PoolArgs) -> Result<()> {
    let report = report::show(&args.path)?;
    let text = match args.json {
        true => serde_json::to_string(&report)? + "\n",
        false => describe(&report),
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn describe(pool: &PoolReport) -> String {
    let segments = &pool.segments;
    let mut text = String::new();
    let _ = writeln!(text, "pool {}: {}, made {}", pool.path, pool.uuid, utc(pool.created * 1000));
    let _ = writeln!(
        text,
        "  {} segments of {}: {} free, {} of logs, {} of caches, {} of the pool itself",
        segments.all,
        rounded(pool.segment_size),
        segments.free,
        segments.log,
        segments.cache,
        segments.metadata
    );
    if pool.disks.is_empty() {
        text += "  no disk\n";
    }
    for disk in &pool.disks {
        describe_disk(disk, &mut text);
    }
    text
}

fn describe_disk(disk: &DiskReport, text: &mut String) {
    let _ = writeln!(text, "disk {}: {}, {}", disk.name, rounded(disk.size), disk.mode);
    let _ = writeln!(text, "  primary storage  {}", disk.backend);
    let _ = writeln!(text, "  UUID             {}", disk.uuid);
    let closed = match disk.closed {
        0 => String::new(),
        closed => format!(", closed {}", utc(closed * 1000)),
    };
    let _ = writeln!(
        text,
        "  session          {}, opened {}{closed}",
        disk.session,
        utc(disk.opened * 1000)
    );
    let _ = writeln!(
        text,
        "  generation       {} ({} pending)",
        disk.generation, disk.generation_pending
    );
    if let Some(evidence) = &disk.evidence {
        let _ = writeln!(text, "  evidence         {evidence}");
    }
    if disk.flushes_deferred {
        let _ = writeln!(
            text,
            "  flushes          deferred: a loss of power may have lost flushed writes"
        );
    }
    match &disk.error {
        Some(error) => {
            let _ = writeln!(text, "  write log        CANNOT BE USED: {error}");
        }
        None => {
            let _ = writeln!(
                text,
                "  write log        {} segments, {} writes ({}) not on primary storage, {} of them in the staging file",
                disk.log_segments,
                count(disk.dirty_records),
                rounded(disk.dirty_bytes),
                count(disk.staged_records)
            );
        }
    }
    if let Some(fault) = &disk.staging_fault {
        let _ = writeln!(text, "  staging file     {fault}");
    }
    if let Some(ring) = &disk.ring {
        let _ = writeln!(text, "  cache on flash   {}", describe_ring(ring));
    }
}

fn describe_ring(ring: &RingReport) -> String {
    if let Some(why) = &ring.cold {
        return format!("starts empty: {why}");
    }
    let share = (ring.kept * 100).checked_div(ring.blocks).unwrap_or(100);
    let end = if ring.closed { "ended in order" } else { "not ended in order" };
    format!(
        "{} blocks recorded by generation {}, {end}; a start on unchanged primary storage keeps {} ({share} %)",
        count(ring.blocks),
        ring.generation,
        count(ring.kept)
    )
}

fn check(args: &PoolArgs) -> Result<()> {
    let report = report::check(&args.path)?;
    let mut text = String::new();
    if args.json {
        text = serde_json::to_string(&report)? + "\n";
    } else {
        for line in &report.warnings {
            let _ = writeln!(text, "warning: {line}");
        }
        for line in &report.errors {
            let _ = writeln!(text, "error: {line}");
        }
        let _ = writeln!(
            text,
            "{} pages of tables, {} of data and {} of cache indices checked: {} errors, {} warnings",
            count(report.table_pages),
            count(report.data_pages),
            count(report.ring_pages),
            report.errors.len(),
            report.warnings.len()
        );
    }
    std::io::stdout().write_all(text.as_bytes())?;
    if !report.errors.is_empty() {
        bail!("{} is damaged", args.path.display());
    }
    Ok(())
}
