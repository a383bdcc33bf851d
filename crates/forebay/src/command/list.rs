//! `forebay disk list`: a line for each disk, also of those that are refused or being opened.

use std::fmt::Write as _;

use anyhow::Result;
use forebay_backends::size::rounded;

use forebay_core::stats::LogState;

use super::client::{self, Found};
use super::disk::stats;
use crate::cli::disk::ListArgs;
use crate::daemon::api::{DaemonInfo, DiskInfo, DiskStats, PrimaryState};
use crate::messages;

/// What is listed of all daemons, or of one.
///
/// # Errors
/// There is none, or the one does not answer.
pub(super) async fn list(args: &ListArgs) -> Result<String> {
    let (common, mut out) = (&args.common, String::new());
    let heard = client::daemons(common.control.as_deref()).await;
    if heard.is_empty() {
        // It says where it looked.
        client::find(None, common.control.as_deref()).await?;
    }
    let mut behind = String::new();
    for (control, heard) in heard {
        match heard {
            Ok(daemon) => {
                behind += &not_running(&daemon, common.json)?;
                for info in daemon.disks {
                    let found = Found { control: control.clone(), disk: info.name.clone() };
                    let stats = stats(&found).await?;
                    let _ = match common.json {
                        true => writeln!(out, "{}", listed_for_programs(&info, &stats)?),
                        false => writeln!(out, "{}", listed(&info, &stats)),
                    };
                }
            }
            Err(error) if common.control.is_some() => return Err(error),
            Err(error) if common.json => eprintln!("forebay: {error:#}"),
            Err(error) => {
                let _ = writeln!(behind, "?  NO ANSWER  {error:#}");
            }
        }
    }
    Ok(out + &behind)
}

/// The disks of a daemon that clients do not find.
fn not_running(daemon: &DaemonInfo, json: bool) -> Result<String> {
    let mut out = String::new();
    for disk in &daemon.refused {
        let _ = match json {
            true => writeln!(out, "{}", serde_json::to_string(disk)?),
            false => writeln!(out, "{}  NOT SERVED  {}  {}", disk.name, disk.backend, disk.reason),
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
    line + "  " + &info.backend
}

/// What was configured, with the mode that is asked for now and the actual one, state and dirty bytes.
fn listed_for_programs(info: &DiskInfo, stats: &DiskStats) -> Result<serde_json::Value> {
    let mut shown = serde_json::to_value(info)?;
    let log = stats.engine.log.as_ref();
    shown["mode"] = serde_json::to_value(stats.engine.mode)?;
    shown["is_detaching"] = stats.is_detaching.into();
    shown["mode_actual"] = serde_json::to_value(stats.engine.mode_actual)?;
    shown["primary_storage"] = serde_json::to_value(stats.primary_storage)?;
    shown["log_state"] = serde_json::to_value(log.map(|log| log.state))?;
    shown["dirty_bytes"] = log.map_or(0, |log| log.dirty_bytes).into();
    Ok(shown)
}
