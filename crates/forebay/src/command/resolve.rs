//! `forebay disk resolve` and `open`: decides about the log or the reservations of a disk that was refused, and has it served.
//!
//! The daemon that refused it does that. Where none has the pool, this process locks pool and primary storage and does it
//! itself; the disk can be started then.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use forebay_host::fence::resolve::{self, Decision};
use forebay_host::folders::state_folder;

use super::client;
use crate::cli::disk::{NamedArgs, ResolveArgs};
use crate::daemon::api::{DiskInfo, Resolved, Sides};

/// Shows both sides, or carries out what was decided.
pub(super) async fn resolve(args: &ResolveArgs) -> Result<()> {
    let decision = match (&args.discard_log, args.use_log, args.discard_reservations) {
        (Some(amount), _, _) => Some(Decision::DiscardLog(amount.clone())),
        (None, true, _) => Some(Decision::UseLog),
        (None, false, true) => Some(Decision::DiscardReservations),
        (None, false, false) => None,
    };
    match (daemon_of(args).await?, &args.pool) {
        (Some(control), _) => through_daemon(args, &control, decision).await,
        (None, Some(pool)) => alone(args, pool, decision),
        (None, None) => bail!(
            "no daemon that runs here refuses a disk '{}'. When its daemon is stopped: --pool PATH, the flash that has its \
             write log; when the daemon is elsewhere: --control PATH",
            args.disk
        ),
    }
}

/// The daemon that refuses the disk, or has it and cannot open it again beneath its clients.
async fn daemon_of(args: &ResolveArgs) -> Result<Option<PathBuf>> {
    let (disk, control) = (&args.disk, args.common.control.as_deref());
    let (control, its_pool) = match client::find_refusing(disk, control).await? {
        Some((control, refused)) => (control, refused.pool),
        None => {
            let Ok(found) = client::find_one(disk, control).await else { return Ok(None) };
            let disks: Vec<DiskInfo> = client::ask(&found.control, "/v1/disks").await?;
            let disk = disks.into_iter().find(|it| it.name == disk.0);
            let flash = disk.and_then(|disk| disk.flash);
            let pool = flash.and_then(|flash| Some(flash.rsplit_once(':')?.0.to_owned()));
            (found.control, pool)
        }
    };
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let is_asked = args
        .pool
        .as_ref()
        .is_none_or(|asked| its_pool.is_some_and(|pool| real(Path::new(&pool)) == real(asked)));
    Ok(is_asked.then_some(control))
}

/// The daemon at `control` does it, and serves the disk.
async fn through_daemon(
    args: &ResolveArgs,
    control: &Path,
    decision: Option<Decision>,
) -> Result<()> {
    let path = format!("/v1/disks/{}", args.disk);
    let choice = match &decision {
        Some(Decision::DiscardReservations) => "discard_reservations=true".to_owned(),
        Some(Decision::UseLog) => "use_log=true".to_owned(),
        Some(Decision::DiscardLog(amount)) => format!("discard_log={}", without_spaces(amount)?),
        None => {
            let sides: Sides = client::ask_patiently(control, &format!("{path}/sides")).await?;
            return match args.common.json {
                true => print(&format!("{}\n", serde_json::to_string(&sides.shown)?)),
                false => print(&sides.text),
            };
        }
    };
    let resolved: Resolved =
        client::tell_patiently(control, &format!("{path}/resolve?{choice}")).await?;
    let done = decision.as_ref().map_or("", Decision::done);
    report(&args.disk.0, &resolved, args.common.json, &format!("{done}, and the disk is served"))
}

/// An amount as it can be part of a path.
fn without_spaces(amount: &str) -> Result<String> {
    let amount: String = amount.split_whitespace().collect();
    let is_plain = amount.chars().all(|it| it.is_ascii_alphanumeric() || it == '.');
    anyhow::ensure!(is_plain, "'{amount}' is no amount: type what 'forebay disk resolve' shows");
    Ok(amount)
}

/// No daemon has the pool: it is done here.
fn alone(args: &ResolveArgs, path: &Path, decision: Option<Decision>) -> Result<()> {
    let state = args.state_dir.clone().or_else(state_folder);
    let (pool, name) = (resolve::open_pool(path)?, &args.disk.0);
    let Some(decision) = decision else {
        let sides = resolve::Sides::open(pool, name, state.as_deref())?;
        return match args.common.json {
            true => print(&format!("{}\n", serde_json::to_string(&sides.shown())?)),
            false => print(&sides.describe()),
        };
    };
    let warnings = resolve::decide(pool, name, state.as_deref(), &decision)?;
    let resolved = Resolved { decided: Some(decision.name().to_owned()), warnings };
    let text = format!("{}: the disk can be started", decision.done());
    report(name, &resolved, args.common.json, &text)
}

/// Tries again to serve a disk, or to serve it everywhere.
pub(super) async fn open(args: &NamedArgs) -> Result<()> {
    let common = &args.common;
    let refusing = client::find_refusing(&args.disk, common.control.as_deref()).await?;
    let control = match refusing {
        Some((control, _)) => control,
        // One that is served may be missing somewhere.
        None => client::find_configured(&args.disk, common.control.as_deref()).await?.control,
    };
    let path = format!("/v1/disks/{}/open", args.disk);
    let resolved: Resolved = client::tell_patiently(&control, &path).await?;
    report(&args.disk.0, &resolved, common.json, "the disk is served")
}

fn report(disk: &str, resolved: &Resolved, json: bool, text: &str) -> Result<()> {
    if json {
        let mut shown = serde_json::to_value(resolved)?;
        shown["disk"] = disk.into();
        return print(&format!("{shown}\n"));
    }
    for warning in &resolved.warnings {
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    print(&format!("disk {disk}: {text}\n"))
}

fn print(text: &str) -> Result<()> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
