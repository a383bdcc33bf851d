//! `forebay disk set`, `reset`, `add` and `show --origin`: what a disk is configured to be.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};
use forebay_backends::size::rounded;
use forebay_core::config::Mode;
use forebay_core::stats::LogState;

use super::{LOOK_EVERY, can_go_on, client, in_time, print, stats};
use crate::cli::disk::{AddArgs, ControlArgs, EndArgs, ResetArgs, SetArgs};
use crate::command::client::Found;
use crate::command::progress::Progress;
use crate::command::reload;
use crate::command::table::Table;
use crate::config::values::{Address, Name};
use crate::config::{DiskOptions, sources};
use crate::daemon::api::{Change, DiskStats, Origin, Reloaded, Removed, SettingInfo};
use crate::messages;

/// Changes settings.
pub(super) async fn set(mut args: SetArgs) -> Result<()> {
    make_absolute(&mut args.settings);
    let settings = sources::settings(&args.settings)?;
    ensure!(
        !settings.is_empty(),
        "give at least one setting, such as --mode write-back; 'forebay disk set --help' has all"
    );
    let found = find(&args.disk, &args.common).await?;
    let path = format!("/v1/disks/{}/set?dry_run={}", found.disk, args.dry_run);
    let reloaded: Reloaded = client::tell_of_patiently(&found.control, &path, &settings).await?;
    let has_failed = reloaded.changes.iter().any(|change| change.error.is_some());
    let asked = args.settings.mode.filter(|_| !args.dry_run && !has_failed);
    let Some(mode) = asked else { return told(&args.disk, &reloaded, &args.common) };
    let mut now = match in_force(&found, mode.0).await {
        Ok(now) => now,
        // It is kept all the same.
        Err(why) => {
            let told = told(&args.disk, &reloaded, &args.common);
            return if args.wait { Err(why) } else { told };
        }
    };
    if args.wait {
        let mut progress = Progress::new(&now, args.common.json, Instant::now());
        let work = is_in_mode(&found, mode.0, &mut progress);
        now = in_time(args.timeout, work).await.unwrap_or_else(|_| {
            let line = progress.line(Instant::now());
            anyhow::bail!("time is over, and the mode has not changed; it goes on ({line})")
        })?;
    }
    if !args.common.json {
        print(&how_far(&now))?;
    }
    // The mode was said in one line already.
    let mut others = reloaded.clone();
    others.changes.retain(|change| !is_of_mode_alone(change, mode.0));
    match args.common.json {
        true => told(&args.disk, &reloaded, &args.common),
        false if others.changes.is_empty() => Ok(()),
        false => told(&args.disk, &others, &args.common),
    }
}

fn is_of_mode_alone(change: &Change, mode: Mode) -> bool {
    change.error.is_none() && change.text == format!("mode becomes {mode}")
}

/// In which mode a disk is, and which it waits for.
fn how_far(disk: &DiskStats) -> String {
    let engine = &disk.engine;
    if engine.mode == engine.mode_actual {
        return format!("disk {}: {}\n", disk.name, engine.mode);
    }
    let dirty = engine.log.as_ref().map_or(0, |log| log.dirty_bytes);
    format!(
        "disk {}: {} until {}, then {}; 'forebay disk show {0}' tells how far it is\n",
        disk.name,
        engine.mode_actual,
        awaited(engine.mode, dirty),
        engine.mode
    )
}

/// What a change to `mode` waits for.
fn awaited(mode: Mode, dirty: u64) -> String {
    match (mode.logs(), dirty) {
        (true, _) => "primary storage has flushed earlier writes".to_owned(),
        (false, 0) => "the write log is clean".to_owned(),
        (false, dirty) => format!("{} are destaged", rounded(dirty)),
    }
}

/// How a disk is that takes over at work that it is to be in that mode.
///
/// # Errors
/// It does not: it waits for a restart, or is not served.
async fn in_force(found: &Found, mode: Mode) -> Result<DiskStats> {
    let path = format!("/v1/disks/{}/settings", found.disk);
    let settings: Vec<SettingInfo> = client::ask(&found.control, &path).await?;
    let waits = settings.iter().any(|it| it.key == "mode" && it.requested.is_some());
    ensure!(!waits, "disk '{}' is in mode {mode} after a restart, and not before", found.disk);
    stats(found).await
}

/// Waits until the disk is in that mode.
async fn is_in_mode(found: &Found, mode: Mode, progress: &mut Progress) -> Result<DiskStats> {
    loop {
        let now = stats(found).await?;
        if now.engine.mode_actual == mode && now.engine.mode == mode {
            return Ok(now);
        }
        if now.engine.mode != mode {
            anyhow::bail!(
                "somebody has asked for mode {} of '{}' meanwhile",
                now.engine.mode,
                found.disk
            );
        }
        if let Some(log) = &now.engine.log {
            can_go_on(&found.disk, log)?;
            if log.state == LogState::Failed && now.engine.mode_actual == Mode::WriteThrough {
                let state = messages::log(log);
                anyhow::bail!("the write log of '{}' {state}: start the disk again", found.disk);
            }
        }
        progress.note(&now, Instant::now());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Takes changes back.
pub(super) async fn reset(args: ResetArgs) -> Result<()> {
    // A disk that was removed is not there: whoever has a file knows it.
    let control = match find(&args.disk, &args.common).await {
        Ok(found) => found.control,
        Err(error) => client::with_file(args.common.control.as_deref()).await.map_err(|_| error)?,
    };
    let keys = args.keys.join(",");
    let path = format!("/v1/disks/{}/reset?dry_run={}&keys={keys}", args.disk, args.dry_run);
    let reloaded = client::tell_patiently(&control, &path).await?;
    told(&args.disk, &reloaded, &args.common)
}

/// Adds a disk.
pub(super) async fn add(mut args: AddArgs) -> Result<()> {
    make_absolute(&mut args.settings);
    let control = client::with_file(args.common.control.as_deref()).await?;
    let mut settings = sources::settings(&args.settings)?;
    settings.insert("backend".to_owned(), toml::Value::String(absolute(&args.backend)));
    let path = format!("/v1/disks/{}/add?dry_run={}", args.disk, args.dry_run);
    let reloaded = client::tell_of_patiently(&control, &path, &settings).await?;
    told(&args.disk, &reloaded, &args.common)
}

/// Removes a disk for good.
pub(super) async fn remove(args: EndArgs) -> Result<()> {
    let served = client::find_one(&args.disk, args.common.control.as_deref()).await;
    if served.is_ok() {
        return super::detach(args, "remove", "removed").await;
    }
    let found = find(&args.disk, &args.common).await?;
    let path = format!("/v1/disks/{}/remove", found.disk);
    let removed: Removed = client::tell_patiently(&found.control, &path).await?;
    if args.common.json {
        return print(&(serde_json::to_string(&removed)? + "\n"));
    }
    let left = removed.left.map_or(String::new(), |left| format!("; {left}"));
    print(&format!("disk '{}', which was not served, was removed{left}\n", args.disk))
}

/// Makes paths those that the daemon understands, whose folder is another one.
fn make_absolute(settings: &mut DiskOptions) {
    let make = |path: &mut PathBuf| {
        if let Ok(found) = std::path::absolute(&*path) {
            *path = found;
        }
    };
    // Without a slash it may be the name of a pool.
    if let Some(flash) = settings.flash.as_mut().filter(|flash| flash.path.components().count() > 1)
    {
        make(&mut flash.path);
    }
    for address in &mut settings.nbd {
        if let Address::Unix(path, _) = address {
            make(path);
        }
    }
    if let Some(socket) = &mut settings.vhost_user {
        make(&mut socket.path);
    }
    if let Some(journal) = &mut settings.destage_journal {
        *journal = absolute(journal);
    }
}

/// The URI of a file as the daemon understands it, whose folder is another one.
fn absolute(backend: &str) -> String {
    let Some(path) = backend.strip_prefix("file:").filter(|path| !path.starts_with('/')) else {
        return backend.to_owned();
    };
    std::path::absolute(path).map_or(backend.to_owned(), |path| format!("file:{}", path.display()))
}

/// The settings of a disk, as a table or as JSON.
pub(super) async fn origins(disk: &Name, common: &ControlArgs) -> Result<()> {
    let found = find(disk, common).await?;
    let path = format!("/v1/disks/{}/settings", found.disk);
    let settings: Vec<SettingInfo> = client::ask(&found.control, &path).await?;
    match common.json {
        true => print(&(serde_json::to_string(&settings)? + "\n")),
        false => print(&table(&settings)),
    }
}

fn table(settings: &[SettingInfo]) -> String {
    let mut table = Table::new(&["setting", "is", "from", ""]);
    // Who has no file has its primary storage from the command line, at least.
    let has_file = settings.iter().all(|setting| setting.origin != Origin::CommandLine);
    let who = if has_file { "file" } else { "command line" };
    for SettingInfo { key, value, requested, origin, replaces } in settings {
        let from = match origin {
            Origin::Default => "default",
            Origin::File => "file",
            Origin::CommandLine => "command line",
            Origin::Online => "online",
        };
        let mut more = Vec::new();
        if let Some(requested) = requested {
            more.push(format!("after a restart: {requested}"));
        }
        if let Some(said) = replaces {
            more.push(format!("the {who} says {said}"));
        }
        table.row(vec![key.clone(), value.clone(), from.to_owned(), more.join("; ")]);
    }
    table.text(0)
}

/// The daemon that has a disk in its configuration, served or not.
async fn find(disk: &Name, common: &ControlArgs) -> Result<Found> {
    client::find_configured(disk, common.control.as_deref()).await
}

fn told(disk: &Name, reloaded: &Reloaded, common: &ControlArgs) -> Result<()> {
    let text = match (&reloaded.changes[..], reloaded.dry_run) {
        ([], _) => format!("disk '{disk}': it is so already\n"),
        (changes, true) => format!("this would change:\n{}", reload::list(changes)),
        (changes, false) => format!("this changed:\n{}", reload::list(changes)),
    };
    reload::tell(reloaded, common.json, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_mode_says_what_it_waits_for() {
        let flushed = "primary storage has flushed earlier writes";
        assert_eq!(awaited(Mode::WriteBack, 0), flushed);
        assert_eq!(awaited(Mode::WriteOnly, 4096), flushed);
        assert_eq!(awaited(Mode::WriteThrough, 4096), "4 KiB are destaged");
        assert_eq!(awaited(Mode::PassThrough, 0), "the write log is clean");
    }

    #[test]
    fn a_file_is_named_from_the_root() {
        assert_eq!(absolute("file:/san/db.raw"), "file:/san/db.raw");
        assert_eq!(absolute("mem:1MiB"), "mem:1MiB");
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute("file:db.raw"), format!("file:{}/db.raw", here.display()));
    }

    #[test]
    fn settings_are_a_table_with_what_waits_and_what_is_replaced() {
        let setting = |key: &str, requested: Option<&str>, origin, replaces: Option<&str>| {
            let (requested, replaces) = (requested.map(Into::into), replaces.map(Into::into));
            SettingInfo { key: key.into(), value: "8KiB".into(), requested, origin, replaces }
        };
        let shown = table(&[
            setting("block-size", Some("4KiB"), Origin::Online, Some("8KiB")),
            setting("ram", None, Origin::Default, None),
        ]);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[1].ends_with("after a restart: 4KiB; the file says 8KiB"), "{shown}");
        assert!(lines[2].ends_with("default"), "{shown}");
        let shown = table(&[
            setting("backend", None, Origin::CommandLine, None),
            setting("ram", None, Origin::Online, Some("4MiB")),
        ]);
        assert!(shown.trim_end().ends_with("the command line says 4MiB"), "{shown}");
    }

    #[test]
    fn relative_paths_are_those_of_whoever_asks() {
        let here = std::env::current_dir().unwrap();
        let with = |flash: &str| {
            let mut settings = DiskOptions {
                flash: Some(flash.parse().unwrap()),
                nbd: vec!["unix:n.sock".parse().unwrap()],
                destage_journal: Some("file:j".to_owned()),
                ..Default::default()
            };
            make_absolute(&mut settings);
            settings
        };
        let path = |settings: &DiskOptions| settings.flash.as_ref().unwrap().path.clone();
        let found = with("./pool:4MiB");
        assert_eq!(path(&found), here.join("pool"));
        assert_eq!(found.nbd[0].to_string(), format!("unix:{}", here.join("n.sock").display()));
        let journal = format!("file:{}", here.join("j").display());
        assert_eq!(found.destage_journal, Some(journal));
        assert_eq!(path(&with("pool:4MiB")), PathBuf::from("pool"), "the name of a pool");
    }
}
