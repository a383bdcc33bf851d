//! `forebay pool`: looks into flash pools, and empties one.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, bail, ensure};
use forebay_backends::size::rounded;
use forebay_host::date::utc;
use forebay_host::fence::is_in_use;
use forebay_host::folders;
use forebay_host::pool::check;
use forebay_host::pool::report::{self, DiskReport, PoolReport, SessionState};
use forebay_host::pool::survey::RingReport;

use super::table::{count, of};
use super::{client, output};
use crate::cli::pool::{PoolArgs, PoolCommand, PoolShowArgs};
use crate::messages;

mod devices;
mod drain;
mod list;

/// Carries out a command.
pub(crate) fn pool(command: PoolCommand) -> Result<()> {
    match command {
        PoolCommand::List(args) => client::block_on(list::list(&args)),
        PoolCommand::Show(args) => show(&args),
        PoolCommand::AddDevice(args) => client::block_on(devices::add(&args)),
        PoolCommand::Drain(args) => client::block_on(drain::drain(&args)),
        PoolCommand::Check(args) => verify(&args),
    }
}

fn show(args: &PoolShowArgs) -> Result<()> {
    let control = args.common.control.as_deref();
    let report = match control {
        Some(_) => client::block_on(used(&args.path, control))?,
        None => report::show(&args.path).or_else(|error| match is_in_use(&error) {
            true => client::block_on(used(&args.path, None)).map_err(|why| elsewhere(error, &why)),
            false => Err(error),
        })?,
    };
    let text = match args.common.json {
        true => serde_json::to_string(&report)? + "\n",
        false => describe(&report),
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// What the daemon tells that uses the pool at `path`: the one at `control`, or any of this user.
async fn used(path: &Path, control: Option<&Path>) -> Result<PoolReport> {
    Ok(used_at(path, control).await?.1)
}

/// The same, with the daemon's control socket.
async fn used_at(path: &Path, control: Option<&Path>) -> Result<(PathBuf, PoolReport)> {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut trouble = None;
    for socket in client::sockets(control)? {
        match client::ask_patiently::<Vec<PoolReport>>(&socket, "/v1/pools").await {
            Ok(pools) => {
                let is_it = |pool: &PoolReport| real(Path::new(&pool.path)) == real(path);
                if let Some(found) = pools.into_iter().find(is_it) {
                    return Ok((socket, found));
                }
            }
            // One left behind by a daemon that was killed, for instance.
            Err(error) => trouble = Some(error),
        }
    }
    match (control, trouble) {
        (Some(_), Some(error)) => Err(error),
        (Some(control), None) => {
            bail!("the daemon at {} does not use {}", control.display(), path.display())
        }
        (None, _) => bail!(
            "no daemon whose control socket is in {} uses it; if its daemon was started with --control PATH, give the same \
             --control PATH",
            folders::folder().display()
        ),
    }
}

/// Nobody who was asked knows of a pool that somebody uses.
fn elsewhere(in_use: Error, why: &Error) -> Error {
    Error::msg(format!("{in_use:#}; {why:#}"))
}

fn describe(pool: &PoolReport) -> String {
    let segments = &pool.segments;
    let mut text = String::new();
    let used = pool.used_by.as_ref().map_or(String::new(), |by| format!(", used by daemon {by}"));
    let made = utc(pool.created.saturating_mul(1000));
    let of = pool.device_of.as_ref().map_or(String::new(), |of| format!(", a device of '{of}'"));
    let _ = writeln!(text, "pool {}: {}, made {made}{of}{used}", pool.path, pool.uuid);
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
    let _ = writeln!(text, "  health: {}", health(&pool.faults));
    if pool.disks.is_empty() {
        text += "  no disk\n";
    }
    for disk in &pool.disks {
        describe_disk(disk, &mut text);
    }
    text
}

fn health(faults: &[String]) -> String {
    if faults.is_empty() { "good".to_owned() } else { faults.join("; ") }
}

fn describe_disk(disk: &DiskReport, text: &mut String) {
    let _ = writeln!(text, "disk {}: {}, {}", disk.name, rounded(disk.size), disk.mode);
    let _ = writeln!(text, "  primary storage  {}", disk.backend);
    let _ = writeln!(text, "  UUID             {}", disk.uuid);
    let closed = match disk.closed {
        0 => String::new(),
        closed => format!(", closed {}", utc(closed.saturating_mul(1000))),
    };
    let _ = writeln!(
        text,
        "  session          {}, opened {}{closed}",
        messages::session(disk.session),
        utc(disk.opened.saturating_mul(1000))
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
        let what = match disk.session {
            SessionState::Closed => "deferred; it ended in order, and nothing is lost by that",
            SessionState::Running => "deferred: a loss of power loses flushed writes",
            SessionState::RunningOrCrashed => {
                "deferred: a loss of power may have lost flushed writes"
            }
        };
        let _ = writeln!(text, "  flushes          {what}");
    }
    match &disk.error {
        Some(error) => {
            let _ = writeln!(text, "  write log        CANNOT BE USED: {error}");
        }
        None => {
            let _ = writeln!(
                text,
                "  write log        {}, {} ({}) not on primary storage, {} of them in the staging file",
                of(disk.log_segments.into(), "segment"),
                of(disk.dirty_records, "write"),
                rounded(disk.dirty_bytes),
                count(disk.staged_records)
            );
        }
    }
    if let Some(fault) = &disk.staging_fault {
        let _ = writeln!(text, "  staging file     {fault}");
    }
    if let Some(ring) = &disk.ring {
        let is_running = disk.session == SessionState::Running;
        let _ = writeln!(text, "  cache on flash   {}", describe_ring(ring, is_running));
    }
    let _ = writeln!(text, "  health           {}", health(&disk.faults));
}

fn describe_ring(ring: &RingReport, is_running: bool) -> String {
    if let Some(why) = &ring.cold {
        return format!("starts empty: {why}");
    }
    if is_running {
        return format!("{}; an end in order keeps them", of(ring.blocks, "block"));
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

fn verify(args: &PoolArgs) -> Result<()> {
    let report = check::check(&args.path).map_err(|error| match is_in_use(&error) {
        true => error.context(
            "a pool in use cannot be checked: stop its daemon first ('forebay pool show' works meanwhile)",
        ),
        false => error,
    })?;
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
            "{} pages of tables, {} of data and {} of cache indices checked: {}, {}",
            count(report.table_pages),
            count(report.data_pages),
            count(report.ring_pages),
            of(report.errors.len() as u64, "error"),
            of(report.warnings.len() as u64, "warning")
        );
    }
    let shown = output::show(text);
    ensure!(report.errors.is_empty(), "{} is damaged", args.path.display());
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_beyond_all_calendars_is_told() {
        let disk = serde_json::json!({
            "name": "db", "uuid": "", "backend": "", "size": 0, "mode": "", "session": "closed", "opened": u64::MAX,
            "closed": u64::MAX, "generation": 0, "generation_pending": 0, "flushes_deferred": false, "log_segments": 0,
            "dirty_records": 0, "dirty_bytes": 0, "staged_records": 0, "error": null,
        });
        let disks = vec![serde_json::from_value(disk).unwrap()];
        let pool = PoolReport { created: u64::MAX, disks, ..PoolReport::default() };
        let told = describe(&pool);
        assert_eq!(told.matches("9999-12-31").count(), 3, "{told}");
    }
}
