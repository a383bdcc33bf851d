//! `forebay disk list`: a line for each disk, also of those that are refused or being opened.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Result, ensure};
use forebay_backends::size::rounded;

use forebay_core::stats::LogState;
use forebay_host::folders::option_for;
use serde::de::DeserializeOwned;

use super::client;
use crate::cli::disk::ListArgs;
use crate::daemon::api::{
    AllStats, BriefStats, DaemonInfo, DiskInfo, DiskStats, PrimaryState, RefusedDisk,
};
use crate::messages;

/// What is listed of all daemons, or of one. Of a daemon that does not answer people see a line. Programs see the others.
///
/// # Errors
/// There is none, or the one does not answer; for programs also one of several.
pub(super) async fn list(args: &ListArgs) -> Result<()> {
    let (common, mut out) = (&args.common, String::new());
    let heard = client::daemons(common.control.as_deref()).await;
    if heard.is_empty() {
        // It says where it looked.
        client::find(None, common.control.as_deref()).await?;
    }
    let (mut behind, mut silent) = (String::new(), Vec::new());
    for (control, heard) in heard {
        // It may end before it has said all.
        let listed = match heard {
            Ok(daemon) => {
                behind += &not_running(&daemon, &control, common.json)?;
                match common.json {
                    true => for_programs(&daemon, &control).await,
                    false => for_people(&daemon, &control).await,
                }
            }
            Err(error) => Err(error),
        };
        match listed {
            Ok(listed) => out += &listed,
            Err(error) if common.control.is_some() => return Err(error),
            Err(error) if common.json => silent.push(format!("{error:#}")),
            Err(error) => {
                let _ = writeln!(behind, "?  NO ANSWER  {error:#}");
            }
        }
    }
    out += &behind;
    if out.is_empty() && !common.json {
        out = "no disk is configured\n".to_owned();
    }
    let shown = super::print(&out);
    ensure!(silent.is_empty(), "not all daemons answer: {}", silent.join("; "));
    shown
}

/// A line for each disk that is served.
async fn for_people(daemon: &DaemonInfo, control: &Path) -> Result<String> {
    let all = ask::<DiskStats>(daemon, control, "/v1/stats").await?;
    let stats: BTreeMap<_, _> = all.disks.iter().map(|it| (&it.name, it)).collect();
    let mut out = String::new();
    for info in &daemon.disks {
        let is_silent = all.silent.contains(&info.name);
        let _ = match stats.get(&info.name) {
            Some(stats) if !is_silent => writeln!(out, "{}", listed(info, stats)),
            _ if is_silent => writeln!(out, "{}  NO ANSWER  its shard hangs", info.name),
            // It has ended meanwhile.
            _ => Ok(()),
        };
    }
    Ok(out)
}

/// The same as JSON.
async fn for_programs(daemon: &DaemonInfo, control: &Path) -> Result<String> {
    let all = ask::<BriefStats>(daemon, control, "/v1/stats?brief=true").await?;
    let stats: BTreeMap<_, _> = all.disks.iter().map(|it| (&it.name, it)).collect();
    let mut out = String::new();
    for info in &daemon.disks {
        let (is_silent, known) = (all.silent.contains(&info.name), stats.get(&info.name));
        if is_silent || known.is_some() {
            let shown = listed_for_programs(info, known.copied(), is_silent)?;
            let _ = writeln!(out, "{shown}");
        }
    }
    Ok(out)
}

/// What the disks of a daemon say. One that starts has none yet, and answers nothing else.
async fn ask<T: DeserializeOwned>(
    daemon: &DaemonInfo,
    control: &Path,
    path: &str,
) -> Result<AllStats<T>> {
    match daemon.disks.is_empty() {
        true => Ok(AllStats::default()),
        false => client::ask(control, path).await,
    }
}

/// The disks of a daemon that clients do not find.
fn not_running(daemon: &DaemonInfo, control: &Path, json: bool) -> Result<String> {
    let mut out = String::new();
    for disk in &daemon.refused {
        let _ = match json {
            true => writeln!(out, "{}", serde_json::to_string(disk)?),
            false => writeln!(out, "{}", not_served(disk, &option_for(control))),
        };
    }
    for name in &daemon.starting {
        let _ = match json {
            true => writeln!(out, "{}", serde_json::json!({ "name": name, "is_starting": true })),
            false => writeln!(out, "{name}  STARTING"),
        };
    }
    Ok(out)
}

/// A disk that is not served in a line; `disk show` has the whole reason.
fn not_served(disk: &RefusedDisk, control: &str) -> String {
    let RefusedDisk { name, backend, reason, .. } = disk;
    let line = reason.lines().next().unwrap_or_default();
    let sentence = line.split_once(". ").map_or(line, |(first, _)| first);
    let sentence = sentence.trim_end_matches(['.', ':']);
    let more = match sentence.len() + 1 < reason.len() {
        true => format!("; more: forebay disk show {name}{control}"),
        false => String::new(),
    };
    format!("{name}  NOT SERVED  {backend}  {sentence}{more}")
}

/// A disk in a line: what it is now, and what about it is not as it should be.
fn listed(info: &DiskInfo, stats: &DiskStats) -> String {
    let engine = &stats.engine;
    let mut line = format!("{}  {}  {}", info.name, rounded(info.size), engine.mode_actual);
    if engine.mode != engine.mode_actual {
        let _ = write!(line, " ({} was asked for)", engine.mode);
    }
    if stats.is_detaching {
        line += " (DETACHING)";
    }
    if let Some(log) =
        engine.log.as_ref().filter(|log| log.state != LogState::Unused || !log.is_clean)
    {
        let _ = write!(line, "  log {}, {} dirty", messages::log(log), rounded(log.dirty_bytes));
        if log.deferred_ns > 0 {
            line += "  DEFERRED FLUSHES";
        }
    }
    if stats.primary_storage != PrimaryState::Connected {
        let _ = write!(line, "  primary storage {}", messages::primary_storage(stats));
    }
    if let Some(trouble) = messages::flash_trouble(engine) {
        line += "  ";
        line += trouble;
    }
    if stats.unguarded.is_some() {
        line += "  NOT LOCKED";
    }
    if info.is_unattached {
        line += "  NOT FOUND EVERYWHERE";
    }
    if stats.storage_changed.is_some() {
        // The text is long, and `disk show` has it.
        line += "  PRIMARY STORAGE CHANGED";
    }
    line + "  " + &info.backend
}

/// What was configured, with the mode that is asked for now and the actual one, state and dirty bytes, as far as the disk told.
fn listed_for_programs(
    info: &DiskInfo,
    stats: Option<&BriefStats>,
    is_silent: bool,
) -> Result<serde_json::Value> {
    let mut shown = serde_json::to_value(info)?;
    shown["is_silent"] = is_silent.into();
    let Some(stats) = stats else { return Ok(shown) };
    let log = stats.log.as_ref();
    shown["mode"] = serde_json::to_value(stats.mode)?;
    shown["is_detaching"] = stats.is_detaching.into();
    shown["mode_actual"] = serde_json::to_value(stats.mode_actual)?;
    shown["primary_storage"] = serde_json::to_value(stats.primary_storage)?;
    shown["storage_changed"] = serde_json::to_value(&stats.storage_changed)?;
    shown["log_state"] = serde_json::to_value(log.map(|log| log.state))?;
    shown["dirty_bytes"] = log.map_or(0, |log| log.dirty_bytes).into();
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use forebay_core::stats::TierState;

    use super::*;

    #[test]
    fn a_disk_whose_primary_storage_changed_is_marked() {
        let info = DiskInfo { name: "db".to_owned(), ..DiskInfo::default() };
        let mut stats = DiskStats::default();
        assert!(!listed(&info, &stats).contains("CHANGED"));
        stats.storage_changed = Some("the image was removed".to_owned());
        assert!(listed(&info, &stats).contains("  PRIMARY STORAGE CHANGED"));
    }

    #[test]
    fn a_disk_without_its_flash_or_its_lock_is_marked() {
        let info = DiskInfo { name: "db".to_owned(), ..DiskInfo::default() };
        let mut stats = DiskStats::default();
        stats.engine.flash.state = TierState::Failed;
        assert!(listed(&info, &stats).contains("  NO FLASH"));
        assert!(!listed(&info, &stats).contains("NOT LOCKED"));
        stats.unguarded = Some("this user has no state folder".to_owned());
        assert!(listed(&info, &stats).contains("  NO FLASH  NOT LOCKED"));
    }

    #[test]
    fn a_disk_that_is_not_served_takes_one_line() {
        let listed = |reason: &str| {
            let (name, backend) = ("db".to_owned(), "file:/x".to_owned());
            let (reason, pool) = (reason.to_owned(), None);
            not_served(&RefusedDisk { name, backend, reason, pool, is_tried_again: false }, "")
        };
        let more = "; more: forebay disk show db";
        for (reason, line) in [
            ("its pool is in use", "its pool is in use".to_owned()),
            ("the log is lost.", "the log is lost".to_owned()),
            ("it is an image:\n  qemu-nbd x", format!("it is an image{more}")),
            ("one. Two /a.b c.\nThree", format!("one{more}")),
        ] {
            assert_eq!(listed(reason), format!("db  NOT SERVED  file:/x  {line}"));
        }
    }
}
