//! `forebay reload`: a daemon reads its configuration file again.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use forebay_host::folders;

use super::client;
use super::output::show;
use crate::cli::ReloadArgs;
use crate::daemon::api::Reloaded;

/// Asks a daemon, and tells what came of it.
pub(crate) fn reload(args: &ReloadArgs) -> Result<()> {
    client::block_on(async {
        let control = find(args.control.as_deref()).await?;
        let path = format!("/v1/reload?dry_run={}", args.dry_run);
        // New disks are opened, which may wait for storage.
        let reloaded: Reloaded = client::tell_patiently(&control, &path).await?;
        match args.json {
            true => show(serde_json::to_string(&reloaded)? + "\n")?,
            false => show(text(&reloaded))?,
        }
        let failed = reloaded.changes.iter().filter(|change| change.error.is_some()).count();
        ensure!(failed == 0, "{failed} of {} changes could not be made", reloaded.changes.len());
        Ok(())
    })
}

/// The control socket of the daemon that has a configuration file.
async fn find(control: Option<&Path>) -> Result<PathBuf> {
    let mut found = Vec::new();
    for (socket, heard) in client::daemons(control).await {
        match heard {
            Err(error) if control.is_some() => return Err(error),
            Ok(daemon) if daemon.file.is_some() || control.is_some() => found.push(socket),
            Ok(_) | Err(_) => {}
        }
    }
    match &found[..] {
        [one] => Ok(one.clone()),
        [] => bail!(
            "no daemon with a configuration file runs (looked in {}); give --control PATH if it is elsewhere",
            folders::folder().display()
        ),
        several => {
            let list: Vec<String> = several.iter().map(|it| it.display().to_string()).collect();
            bail!(
                "several daemons have a configuration file; give --control, one of {}",
                list.join(", ")
            )
        }
    }
}

fn text(reloaded: &Reloaded) -> String {
    let Reloaded { file, dry_run, changes } = reloaded;
    if changes.is_empty() {
        return format!("{file} says what is in force\n");
    }
    let mut out = match dry_run {
        true => format!("{file} would change this:\n"),
        false => format!("{file} was read again:\n"),
    };
    for change in changes {
        let of = change.disk.as_ref().map_or("daemon".to_owned(), |disk| format!("disk '{disk}'"));
        let _ = writeln!(out, "  {of}: {}", change.text);
        if let Some(error) = &change.error {
            let _ = writeln!(out, "    NOT DONE: {error}");
        }
    }
    out
}
