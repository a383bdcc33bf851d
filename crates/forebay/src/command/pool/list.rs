//! `forebay pool list`: the pools that daemons use.

use anyhow::Result;
use forebay_backends::size::rounded;
use forebay_host::pool::report::PoolReport;

use super::health;
use crate::cli::pool::PoolListArgs;
use crate::command::client;
use crate::command::output::show;
use crate::command::table::Table;

/// A line for each pool.
pub(super) async fn list(args: &PoolListArgs) -> Result<()> {
    let control = args.common.control.as_deref();
    let (mut pools, mut silent) = (Vec::<PoolReport>::new(), Vec::new());
    for (socket, heard) in client::ask_all::<Vec<PoolReport>>(control, "/v1/pools").await {
        match heard {
            Ok(heard) => pools.extend(heard),
            Err(error) if control.is_some() => return Err(error),
            Err(error) => silent.push(format!("{}: {error:#}", socket.display())),
        }
    }
    if pools.is_empty() && silent.is_empty() {
        // It says where it looked.
        client::find(None, control).await?;
    }
    silent.iter().for_each(|silent| eprintln!("forebay: {silent}"));
    if args.common.json {
        let lines: Result<Vec<String>, _> = pools.iter().map(serde_json::to_string).collect();
        return show(lines?.iter().map(|line| format!("{line}\n")).collect::<String>());
    }
    if pools.is_empty() {
        return show("no pool is in use\n");
    }
    let mut table = Table::new(&["pool", "size", "free", "disks", "dirty", "health"]);
    for pool in &pools {
        let bytes = |segments: u32| rounded(u64::from(segments) * pool.segment_size).to_string();
        let dirty: u64 = pool.disks.iter().map(|disk| disk.dirty_bytes).sum();
        table.row(vec![
            pool.path.clone(),
            bytes(pool.segments.all),
            bytes(pool.segments.free),
            pool.disks.len().to_string(),
            rounded(dirty).to_string(),
            health(&pool.faults),
        ]);
    }
    show(table.text(0))
}
