//! `forebay pool drain`: every disk of a pool goes to another one, with its guest at work.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use forebay_host::pool::report::PoolReport;
use toml::{Table, Value};

use super::used_at;
use crate::cli::pool::PoolDrainArgs;
use crate::command::{client, reload};
use crate::daemon::api::{Change, DiskInfo, Reloaded};

/// Moves one disk after the other. A disk that cannot be moved stays, and the others go all the same.
pub(super) async fn drain(args: &PoolDrainArgs) -> Result<()> {
    let Some(to) = &args.to else { return super::devices::drain(args).await };
    let (control, pool) = used_at(&args.path, args.common.control.as_deref()).await?;
    if let Some(of) = &pool.device_of {
        bail!(
            "{} is a device of the pool '{of}', whose other devices its disks go to: leave --to out",
            pool.path
        );
    }
    let real = |path: &Path| std::fs::canonicalize(path);
    let (to, pool_path) = (std::path::absolute(to)?, real(Path::new(&pool.path))?);
    ensure!(
        to.exists(),
        "there is nothing at {}, and a file would be made as large as the first disk wants: give a block device, or a pool that \
         has room for all of them",
        to.display()
    );
    ensure!(real(&to)? != pool_path, "the disks are to go to another pool than they are in");
    let disks: Vec<DiskInfo> = client::ask_patiently(&control, "/v1/disks").await?;
    let (changes, overridden) = (Vec::new(), Vec::new());
    let mut all = Reloaded { file: None, dry_run: args.dry_run, changes, overridden };
    let of_pool = disks.iter().filter_map(|disk| {
        let (path, size) = disk.flash.as_deref()?.rsplit_once(':')?;
        real(Path::new(path)).is_ok_and(|path| path == pool_path).then_some((&disk.name, size))
    });
    let of_pool: Vec<(&String, &str)> = of_pool.collect();
    let set = async |(name, size): (&String, &str), dry_run: bool| -> Result<Vec<Change>> {
        let flash = Value::String(format!("{}:{size}", to.display()));
        let settings = Table::from_iter([("flash".to_owned(), flash)]);
        let path = format!("/v1/disks/{name}/set?dry_run={dry_run}");
        let set: Reloaded = client::tell_of_patiently(&control, &path, &settings).await?;
        Ok(set.changes)
    };
    for disk in &of_pool {
        let changes = set(*disk, true).await.with_context(|| format!("disk '{}'", disk.0))?;
        let stays = changes.iter().find(|change| change.kind == "at-next-start");
        ensure!(
            stays.is_none(),
            "disk '{}' keeps its pool until a restart, as a logical unit does: its pool has its reservations. Nothing was moved",
            disk.0
        );
        if args.dry_run {
            all.changes.extend(changes);
        }
    }
    for disk in of_pool.iter().filter(|_| !args.dry_run) {
        if !args.common.json {
            eprintln!("disk '{}': moves {} to {}", disk.0, disk.1, to.display());
        }
        all.changes.extend(set(*disk, false).await.unwrap_or_else(|error| {
            let (kind, text) = ("opened-again".to_owned(), format!("moves to {}", to.display()));
            vec![Change {
                disk: Some(disk.0.clone()),
                kind,
                text,
                error: Some(format!("{error:#}")),
            }]
        }));
    }
    let text = match (&all.changes[..], args.dry_run) {
        ([], _) => format!("no disk is in {}\n", pool.path),
        (changes, true) => format!("this would change:\n{}", reload::list(changes)),
        (changes, false) => format!("this changed:\n{}", reload::list(changes)),
    };
    let told = reload::tell(&all, args.common.json, text);
    if all.changes.iter().any(|change| change.error.is_some()) {
        return told;
    }
    let pools: Vec<PoolReport> = client::ask_patiently(&control, "/v1/pools").await?;
    let is_left = |it: &PoolReport| it.path == pool.path;
    ensure!(
        args.dry_run || !pools.iter().any(is_left),
        "{} is still in use: a disk that is not served may have it ('forebay disk list' shows which)",
        pool.path
    );
    told
}
