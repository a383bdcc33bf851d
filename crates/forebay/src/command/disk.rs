//! `forebay disk`: shows and changes disks that run.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use forebay_backends::size::rounded;
use forebay_core::stats::LogStatistics;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::client::{self, Found};
use super::table::{count, percent, time};
use crate::cli::disk::{ControlArgs, DiskCommand, ListArgs, NamedArgs, SetArgs};
use crate::config::values::Name;
use crate::daemon::api::{DiskInfo, DiskStats, Dropped, VhostUserInfo};

/// Pause between two looks at how far something is.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Carries out a command.
pub(crate) fn disk(command: DiskCommand) -> Result<()> {
    client::block_on(async {
        match command {
            DiskCommand::Resolve(args) => super::resolve::resolve(&args),
            DiskCommand::List(args) => list(args).await,
            DiskCommand::Show(args) => show(args).await,
            DiskCommand::Flush(args) => flush(args).await,
            DiskCommand::Set(args) => set(args).await,
            DiskCommand::Pause(args) => change(args, "pause").await,
            DiskCommand::Resume(args) => change(args, "resume").await,
            DiskCommand::DropCache(args) => drop_cache(args).await,
            DiskCommand::Detach(args) => detach(args).await,
        }
    })
}

async fn find(disk: &Name, common: &ControlArgs) -> Result<Found> {
    let mut found = client::find(Some(disk), common.control.as_deref()).await?;
    if found.len() > 1 {
        bail!("{} daemons serve a disk '{disk}'; say which with --control PATH", found.len());
    }
    Ok(found.remove(0))
}

async fn list(args: ListArgs) -> Result<()> {
    let mut out = String::new();
    let all = client::find(None, args.common.control.as_deref()).await?;
    let refused = client::refused(&all).await;
    for found in all {
        let path = format!("/v1/disks/{}", found.disk);
        let info: DiskInfo = client::ask(&found.control, &path).await?;
        if args.common.json {
            let _ = writeln!(out, "{}", serde_json::to_string(&info)?);
            continue;
        }
        let (name, size, mode) = (&info.name, rounded(info.size), &info.mode);
        let detaching = if stats(&found).await?.is_detaching { " (DETACHING)" } else { "" };
        let _ = writeln!(out, "{name}  {size}  {mode}{detaching}  {}", info.backend);
    }
    for disk in refused {
        let _ = match args.common.json {
            true => writeln!(out, "{}", serde_json::to_string(&disk)?),
            false => writeln!(out, "{}  NOT SERVED  {}  {}", disk.name, disk.backend, disk.reason),
        };
    }
    print(&out)
}

async fn show(args: NamedArgs) -> Result<()> {
    let found = find(&args.disk, &args.common).await?;
    let stats = stats(&found).await?;
    if args.common.json {
        return print(&(serde_json::to_string(&stats)? + "\n"));
    }
    let info: DiskInfo = client::ask(&found.control, &format!("/v1/disks/{}", found.disk)).await?;
    print(&describe(&stats, info.evidence.as_deref()))
}

/// How a disk is, for people.
fn describe(stats: &DiskStats, evidence: Option<&str>) -> String {
    let engine = &stats.engine;
    let mut text = format!("disk {}: {}", stats.name, engine.mode_actual);
    if engine.mode != engine.mode_actual {
        let _ = write!(text, " ({} was asked for)", engine.mode);
    }
    let _ = writeln!(text, ", {}", rounded(engine.disk_size));
    if stats.is_detaching {
        let _ = writeln!(
            text,
            "  DETACHING         no client may attach, and it ends when everything is destaged; 'forebay disk resume {}' \
             cancels that",
            stats.name
        );
    }
    let _ = writeln!(text, "  primary storage   {}", stats.primary_storage);
    if let Some(evidence) = evidence {
        let _ = writeln!(text, "  evidence at start {evidence}");
    }
    if let Some(device) = &stats.vhost_user {
        describe_device(device, &mut text);
    }
    let Some(log) = &engine.log else {
        let _ = writeln!(text, "  write log         none");
        return text;
    };
    let _ = writeln!(text, "  write log         {}", log.state);
    if log.deferred_ns > 0 {
        let _ = writeln!(
            text,
            "  DEFERRED FLUSHES  a loss of power loses up to {} of flushed writes; agreed to when it was started",
            time(log.deferred_ns)
        );
    }
    let _ = writeln!(
        text,
        "  dirty             {}; primary storage is {} behind, order {}",
        rounded(log.dirty_bytes),
        time(log.primary_age_ns),
        log.order
    );
    let _ = writeln!(
        text,
        "  occupancy         {} of {} ({} leased)",
        percent(log.dirty_bytes, log.capacity_bytes),
        rounded(log.capacity_bytes),
        rounded(log.leased_bytes)
    );
    let _ = writeln!(
        text,
        "  destaging         {}/s, {} a write; {} of {} writes outstanding",
        rounded(log.destage_bytes_per_second),
        time(log.destage_latency_ns),
        log.outstanding,
        log.outstanding_limit
    );
    let _ = writeln!(text, "  limited by        {}", limit(log));
    let _ = writeln!(
        text,
        "  injected latency  {} now; {} writes wait for room",
        time(log.injected_latency_ns),
        log.writes_waiting
    );
    let c = &engine.counters;
    let _ = writeln!(
        text,
        "  since the start   {} destaged in {} writes, {} errors; {} flushes of the log",
        rounded(c.destage_write_bytes),
        c.destage_writes,
        c.destage_errors,
        c.log_flushes
    );
    text
}

fn describe_device(device: &VhostUserInfo, text: &mut String) {
    let is_there = if device.is_connected { "attached" } else { "not attached" };
    let _ = writeln!(
        text,
        "  vhost-user        {is_there}, {}; {} queues, {} hypervisors so far",
        device.socket, device.queues, device.sessions
    );
    let _ = writeln!(
        text,
        "                    {} requests ({} replayed after a kill), {} kicks, {} calls",
        count(device.requests),
        count(device.replayed),
        count(device.kicks),
        count(device.calls)
    );
    if device.broken > 0 {
        let _ = writeln!(text, "  BROKEN RINGS      {} queues were stopped", device.broken);
    }
}

/// What limits destaging, with what could be done.
fn limit(log: &LogStatistics) -> String {
    match (log.limited_by.as_str(), log.order.as_str()) {
        ("epoch-bound", "strict") => format!(
            "epoch-bound: {} epochs/s at {}; --destage-order window would destage {}{} writes/s",
            log.epochs_per_second,
            time(log.epoch_ns),
            if log.without_order_is_at_least { "at least " } else { "" },
            log.without_order_writes_per_second
        ),
        (limited_by, _) => limited_by.to_owned(),
    }
}

/// Waits until what is written now is on primary storage.
async fn flush(args: NamedArgs) -> Result<()> {
    let found = find(&args.disk, &args.common).await?;
    let began = Instant::now();
    let Some(first) = stats(&found).await?.engine.log else {
        let text = "the disk has no write log: primary storage has everything";
        return report(&args.common, text, 0, began);
    };
    let goal = first.last_sequence;
    let bar = progress_bar(args.common.json, first.dirty_bytes);
    loop {
        let Some(log) = stats(&found).await?.engine.log else { break };
        if log.is_clean || log.flushed_sequence >= goal {
            break;
        }
        if log.state == "paused" {
            bar.abandon();
            bail!("destaging of '{0}' is paused: forebay disk resume {0}", args.disk);
        }
        if log.state.starts_with("lost") {
            bar.abandon();
            bail!("the write log of '{}' is {}", args.disk, log.state);
        }
        // What is written meanwhile is not waited for.
        bar.set_position(first.dirty_bytes.saturating_sub(log.dirty_bytes).min(first.dirty_bytes));
        bar.set_message(log.limited_by);
        tokio::time::sleep(LOOK_EVERY).await;
    }
    bar.finish_and_clear();
    report(&args.common, "primary storage has everything", first.dirty_bytes, began)
}

fn progress_bar(json: bool, bytes: u64) -> ProgressBar {
    let target = if json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style =
        "{bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}, {eta} left ({msg})";
    let style = ProgressStyle::with_template(style).expect("a template that is right");
    ProgressBar::with_draw_target(Some(bytes), target).with_style(style)
}

fn report(common: &ControlArgs, text: &str, bytes: u64, began: Instant) -> Result<()> {
    let seconds = began.elapsed().as_secs_f64();
    if common.json {
        let line =
            serde_json::json!({ "clean": true, "destaged_bytes": bytes, "seconds": seconds });
        return print(&format!("{line}\n"));
    }
    print(&format!("{text} ({} in {seconds:.1} s)\n", rounded(bytes)))
}

async fn set(args: SetArgs) -> Result<()> {
    let found = find(&args.disk, &args.common).await?;
    let path = format!("/v1/disks/{}/mode?mode={}", found.disk, args.mode);
    let mut now: DiskStats = client::tell(&found.control, &path).await?;
    while args.wait && now.engine.mode_actual != args.mode.to_string() {
        tokio::time::sleep(LOOK_EVERY).await;
        now = stats(&found).await?;
    }
    if args.common.json {
        return print(&(serde_json::to_string(&now)? + "\n"));
    }
    let engine = &now.engine;
    if engine.mode == engine.mode_actual {
        return print(&format!("disk {}: {}\n", now.name, engine.mode));
    }
    let dirty = engine.log.as_ref().map_or(0, |log| log.dirty_bytes);
    print(&format!(
        "disk {}: {} until {} are destaged, then {}; 'forebay disk show {0}' tells how far it is\n",
        now.name,
        engine.mode_actual,
        rounded(dirty),
        engine.mode
    ))
}

async fn change(args: NamedArgs, what: &str) -> Result<()> {
    let found = find(&args.disk, &args.common).await?;
    let path = format!("/v1/disks/{}/{what}", found.disk);
    let now: DiskStats = client::tell(&found.control, &path).await?;
    if args.common.json {
        return print(&(serde_json::to_string(&now)? + "\n"));
    }
    let state = now.engine.log.map_or("no write log".to_owned(), |log| log.state);
    print(&format!("disk {}: {state}\n", now.name))
}

async fn drop_cache(args: NamedArgs) -> Result<()> {
    let found = find(&args.disk, &args.common).await?;
    let path = format!("/v1/disks/{}/drop-cache", found.disk);
    let dropped: Dropped = client::tell(&found.control, &path).await?;
    if args.common.json {
        return print(&(serde_json::to_string(&dropped)? + "\n"));
    }
    let size = rounded(dropped.blocks * dropped.block_size);
    print(&format!(
        "disk {}: {} cached blocks (up to {size}) were dropped; what is dirty stays in the log\n",
        found.disk,
        count(dropped.blocks)
    ))
}

async fn detach(args: NamedArgs) -> Result<()> {
    let found = find(&args.disk, &args.common).await?;
    let began = Instant::now();
    let dirty = stats(&found).await?.engine.log.map_or(0, |log| log.dirty_bytes);
    let path = format!("/v1/disks/{}/detach", found.disk);
    let bar = progress_bar(args.common.json, dirty);
    let mut ended =
        std::pin::pin!(client::tell_patiently::<serde_json::Value>(&found.control, &path));
    loop {
        tokio::select! {
            answer = &mut ended => {
                bar.finish_and_clear();
                answer?;
                return report(&args.common, "detached: primary storage has everything", dirty, began);
            }
            _ = tokio::signal::ctrl_c() => {
                bar.abandon();
                bail!(
                    "the detach of '{0}' goes on without this command: 'forebay disk show {0}' tells how far it is, \
                     'forebay disk resume {0}' cancels it",
                    found.disk
                );
            }
            () = tokio::time::sleep(LOOK_EVERY) => {
                if let Ok(DiskStats { engine, .. }) = stats(&found).await
                    && let Some(log) = engine.log
                {
                    bar.set_position(dirty.saturating_sub(log.dirty_bytes));
                    bar.set_message(log.limited_by);
                }
            }
        }
    }
}

async fn stats(found: &Found) -> Result<DiskStats> {
    client::ask(&found.control, &format!("/v1/disks/{}/stats", found.disk)).await
}

fn print(text: &str) -> Result<()> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
