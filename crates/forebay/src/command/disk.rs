//! `forebay disk`: shows and changes disks that run.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use forebay_backends::size::rounded;
use forebay_core::stats::{LogState, LogStatistics};

use super::advise;
use super::client::{self, Found};
use super::list;
use super::observed;
use super::progress::Progress;
use super::table::count;
use crate::cli::disk::{
    ControlArgs, DiskCommand, EndArgs, FlushArgs, MoveShardArgs, NamedArgs, ShowArgs,
};
use crate::config::values::{Name, Span};
use crate::daemon::api::{DiskStats, Dropped, MovedShard, Resized};
use crate::messages;

mod quiesce;
mod settings;
mod shown;

/// Pause between two looks at how far something is.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Carries out a command.
pub(crate) fn disk(command: DiskCommand) -> Result<()> {
    client::block_on(async {
        match command {
            DiskCommand::Resolve(args) => super::resolve::resolve(&args).await,
            DiskCommand::Open(args) => super::resolve::open(&args).await,
            DiskCommand::List(args) => list::list(&args).await,
            DiskCommand::Show(args) => show(args).await,
            DiskCommand::Histogram(args) => print(&observed::histogram(args).await?),
            DiskCommand::Mrc(args) => print(&observed::mrc(args).await?),
            DiskCommand::Advise(args) => print(&advise::advise(args).await?),
            DiskCommand::Flush(args) => flush(args).await,
            DiskCommand::Set(args) => settings::set(*args).await,
            DiskCommand::Reset(args) => settings::reset(args).await,
            DiskCommand::Add(args) => settings::add(*args).await,
            DiskCommand::Remove(args) => settings::remove(args).await,
            DiskCommand::Pause(args) => change(args, "pause").await,
            DiskCommand::Resume(args) => change(args, "resume").await,
            DiskCommand::Quiesce(args) => quiesce::quiesce(args).await,
            DiskCommand::DropCache(args) => drop_cache(args).await,
            DiskCommand::Resize(args) => resize(args).await,
            DiskCommand::MoveShard(args) => move_shard(args).await,
            DiskCommand::Detach(args) => detach(args, "detach", "detached").await,
        }
    })
}

async fn find(disk: &Name, common: &ControlArgs) -> Result<Found> {
    client::find_one(disk, common.control.as_deref()).await
}

async fn show(args: ShowArgs) -> Result<()> {
    if args.origin {
        return settings::origins(&args.disk, &args.common).await;
    }
    let found = find(&args.disk, &args.common).await?;
    let stats = stats(&found).await?;
    let expectations = observed::expectations(&found, &stats).await;
    let advice = advise::kept(&found).await;
    if args.common.json {
        let mut shown = serde_json::to_value(&stats)?;
        shown["expected"] = serde_json::to_value(expectations.map(|known| known.curves))?;
        shown["advice"] = serde_json::to_value(&advice)?;
        return print(&format!("{shown}\n"));
    }
    print(&(shown::describe(&stats, expectations.as_ref()) + &advise::describe(&advice)))
}

/// Waits until what is written now is on primary storage, durably.
async fn flush(args: FlushArgs) -> Result<()> {
    let found = find(&args.disk, &args.common).await?;
    let began = Instant::now();
    let first = stats(&found).await?;
    let dirty = first.engine.log.as_ref().map_or(0, |log| log.dirty_bytes);
    let mut progress = Progress::new(&first, args.common.json, began);
    let work = async {
        destaged(async || stats(&found).await, &mut progress).await?;
        flushed(&found, &mut progress).await
    };
    in_time(args.timeout, work).await.unwrap_or_else(|_| {
        let line = progress.line(Instant::now());
        if args.common.json {
            let seconds = began.elapsed().as_secs_f64();
            let result = serde_json::json!({ "clean": false, "reason": line, "seconds": seconds });
            // The command fails, also where nobody reads that.
            let _ = print(&format!("{result}\n"));
        }
        bail!("time is over, and not everything is on primary storage; destaging goes on ({line})")
    })?;
    drop(progress);
    report(&args.common, "primary storage has everything", dirty, began, Some(true))
}

/// The work ended, or its time did.
async fn in_time<T>(
    limit: Option<Span>,
    work: impl Future<Output = Result<T>>,
) -> Result<Result<T>, tokio::time::error::Elapsed> {
    match limit {
        Some(Span(limit)) => tokio::time::timeout(limit, work).await,
        None => Ok(work.await),
    }
}

/// Waits until the log has nothing of before that primary storage lacks.
pub(super) async fn destaged(
    stats: impl AsyncFn() -> Result<DiskStats>,
    progress: &mut Progress,
) -> Result<()> {
    loop {
        let now = stats().await?;
        progress.note(&now, Instant::now());
        let Some(log) = &now.engine.log else { return Ok(()) };
        if progress.is_reached(log) {
            return Ok(());
        }
        can_go_on(&now.name, log)?;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn can_go_on(disk: &str, log: &LogStatistics) -> Result<()> {
    if log.state == LogState::Lost {
        bail!("the write log of '{disk}' is {}", messages::log(log));
    }
    if log.is_paused {
        bail!("destaging of '{disk}' is paused: forebay disk resume {disk}");
    }
    Ok(())
}

/// Has primary storage flushed, where a mode without log leaves that to the guest.
async fn flushed(found: &Found, progress: &mut Progress) -> Result<()> {
    let path = format!("/v1/disks/{}/flush", found.disk);
    let mut ended =
        std::pin::pin!(client::tell_patiently::<serde_json::Value>(&found.control, &path));
    loop {
        tokio::select! {
            answer = &mut ended => return answer.map(drop),
            () = tokio::time::sleep(LOOK_EVERY) => {
                if let Ok(now) = stats(found).await {
                    progress.note(&now, Instant::now());
                }
            }
        }
    }
}

/// `clean`: whether primary storage has everything, where that is known.
fn report(
    common: &ControlArgs,
    text: &str,
    bytes: u64,
    began: Instant,
    clean: Option<bool>,
) -> Result<()> {
    let seconds = began.elapsed().as_secs_f64();
    if common.json {
        let line =
            serde_json::json!({ "clean": clean, "destaged_bytes": bytes, "seconds": seconds });
        return print(&format!("{line}\n"));
    }
    print(&format!("{text} ({} in {seconds:.1} s)\n", rounded(bytes)))
}

async fn change(args: NamedArgs, what: &str) -> Result<()> {
    let found = find(&args.disk, &args.common).await?;
    let path = format!("/v1/disks/{}/{what}", found.disk);
    let now: DiskStats = client::tell(&found.control, &path).await?;
    if args.common.json {
        return print(&(serde_json::to_string(&now)? + "\n"));
    }
    print(&format!("disk {}: {}\n", now.name, destaging(&now)))
}

/// Whether a disk destages, after it was told to stop or to go on.
fn destaging(disk: &DiskStats) -> String {
    match &disk.engine.log {
        None => "it has no write log, so that nothing is destaged".to_owned(),
        Some(log) if log.state == LogState::Unused => {
            "nothing is to be destaged in this mode".to_owned()
        }
        Some(log) => messages::log(log),
    }
}

async fn drop_cache(args: NamedArgs) -> Result<()> {
    let found = find(&args.disk, &args.common).await?;
    let path = format!("/v1/disks/{}/drop-cache", found.disk);
    let dropped: Dropped = client::tell_patiently(&found.control, &path).await?;
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

async fn resize(args: NamedArgs) -> Result<()> {
    let found = find(&args.disk, &args.common).await?;
    let path = format!("/v1/disks/{}/resize", found.disk);
    let resized: Resized = client::tell_patiently(&found.control, &path).await?;
    let Resized { before, after } = resized;
    let is_longer = before != after;
    let shown = match (args.common.json, is_longer) {
        (true, _) => print(&(serde_json::to_string(&resized)? + "\n")),
        (false, true) => print(&format!(
            "disk {}: resized from {} to {} ({after} bytes)\n",
            found.disk,
            rounded(before),
            rounded(after)
        )),
        (false, false) => Ok(()),
    };
    ensure!(
        is_longer,
        "disk {}: unchanged, primary storage still has {} ({after} bytes); make it longer, then try again. An NBD server has to \
         start again before Forebay sees its new size",
        found.disk,
        rounded(after)
    );
    shown
}

async fn move_shard(args: MoveShardArgs) -> Result<()> {
    let found = find(&args.disk, &args.common).await?;
    let to = args.to.map_or(String::new(), |to| format!("?to={to}"));
    let path = format!("/v1/disks/{}/move-shard{to}", found.disk);
    let moved: MovedShard = client::tell_patiently(&found.control, &path).await?;
    if args.common.json {
        return print(&(serde_json::to_string(&moved)? + "\n"));
    }
    let MovedShard { disks, from, to, waited_ms } = moved;
    if from == to {
        return print(&format!("disk {}: it is on shard {to} already\n", found.disk));
    }
    print(&format!(
        "{}: went from shard {from} to shard {to}; clients waited for {waited_ms} ms\n",
        match disks.as_slice() {
            [disk] => format!("disk {disk}"),
            disks => format!("disks {}, of one iSCSI target", disks.join(", ")),
        }
    ))
}

/// Has a disk destaged and ended, until the next start or for good: `how` is what the daemon is told, `done` what it has done.
async fn detach(args: EndArgs, how: &str, done: &str) -> Result<()> {
    let found = find(&args.disk, &args.common).await?;
    let began = Instant::now();
    let first = stats(&found).await?;
    let dirty = first.engine.log.as_ref().map_or(0, |log| log.dirty_bytes);
    let mut progress = Progress::new(&first, args.common.json, began);
    let path = format!("/v1/disks/{}/{how}?force={}", found.disk, args.force);
    // With --force the image may not be where it was, or not what it was.
    let (done, clean) = match args.force {
        true => (format!("{done} with --force"), None),
        false => (format!("{done}: primary storage has everything"), Some(true)),
    };
    let mut ended =
        std::pin::pin!(client::tell_patiently::<serde_json::Value>(&found.control, &path));
    loop {
        tokio::select! {
            answer = &mut ended => {
                drop(progress);
                answer?;
                return report(&args.common, &done, dirty, began, clean);
            }
            _ = tokio::signal::ctrl_c() => {
                drop(progress);
                bail!(
                    "the detach of '{0}' goes on without this command: 'forebay disk show {0}' tells how far it is, \
                     'forebay disk resume {0}' cancels it",
                    found.disk
                );
            }
            () = tokio::time::sleep(LOOK_EVERY) => {
                if let Ok(now) = stats(&found).await {
                    progress.note(&now, Instant::now());
                }
            }
        }
    }
}

pub(super) async fn stats(found: &Found) -> Result<DiskStats> {
    client::ask(&found.control, &format!("/v1/disks/{}/stats", found.disk)).await
}

fn print(text: &str) -> Result<()> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
