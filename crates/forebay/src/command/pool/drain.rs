//! `forebay pool drain`: every disk of a pool goes to another one, with its guest at work.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use toml::{Table, Value};

use super::used_at;
use crate::cli::disk::PoolDrainArgs;
use crate::command::{client, reload};
use crate::daemon::api::{DiskInfo, Reloaded};

/// Moves one disk after the other. A disk that cannot be moved stays, and the others go all the same.
pub(super) async fn drain(args: &PoolDrainArgs) -> Result<()> {
    let (control, pool) = used_at(&args.path, args.common.control.as_deref()).await?;
    let to = std::path::absolute(&args.to)?;
    ensure!(to != Path::new(&pool.path), "the disks are to go to another pool than they are in");
    ensure!(
        to.exists(),
        "there is nothing at {}, and a file would be made as large as the first disk wants: give a block device, or a pool that \
         has room for all of them",
        to.display()
    );
    let disks: Vec<DiskInfo> = client::ask_patiently(&control, "/v1/disks").await?;
    let mut all = Reloaded { file: None, dry_run: args.dry_run, changes: Vec::new() };
    for disk in disks {
        let Some((path, size)) = disk.flash.as_deref().and_then(|flash| flash.rsplit_once(':'))
        else {
            continue;
        };
        if std::path::absolute(path)? != Path::new(&pool.path) {
            continue;
        }
        if !args.common.json && !args.dry_run {
            eprintln!("disk '{}': moves {size} to {}", disk.name, to.display());
        }
        let flash = Value::String(format!("{}:{size}", to.display()));
        let settings = Table::from_iter([("flash".to_owned(), flash)]);
        let path = format!("/v1/disks/{}/set?dry_run={}", disk.name, args.dry_run);
        let moved: Reloaded = client::tell_of_patiently(&control, &path, &settings)
            .await
            .with_context(|| format!("disk '{}'", disk.name))?;
        all.changes.extend(moved.changes);
    }
    let text = match (&all.changes[..], args.dry_run) {
        ([], _) => format!("no disk is in {}\n", pool.path),
        (changes, true) => format!("this would change:\n{}", reload::list(changes)),
        (changes, false) => format!("this changed:\n{}", reload::list(changes)),
    };
    reload::tell(&all, args.common.json, text)
}
