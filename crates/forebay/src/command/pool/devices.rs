//! Devices of a pool that come, and that go when their disks have left them.

use std::path::Path;

use anyhow::Result;

use crate::cli::pool::{PoolAddDeviceArgs, PoolDrainArgs};
use crate::command::{client, reload};
use crate::daemon::api::{DeviceChange, Reloaded};

/// Gives a pool a device.
pub(super) async fn add(args: &PoolAddDeviceArgs) -> Result<()> {
    let control = client::with_file(args.common.control.as_deref()).await?;
    let change =
        DeviceChange::Add { pool: args.pool.parse()?, device: std::path::absolute(&args.device)? };
    carry_out(&control, &change, args.dry_run, args.common.json).await
}

/// Has the disks on a device go to others of its pool, and the device leave the pool.
pub(super) async fn drain(args: &PoolDrainArgs) -> Result<()> {
    let control = args.common.control.as_deref();
    let control = match super::used_at(&args.path, control).await {
        Ok((control, _)) => control,
        // Without a disk on it nobody has it open.
        Err(_) => client::with_file(control).await?,
    };
    let change = DeviceChange::Drain { device: std::path::absolute(&args.path)? };
    carry_out(&control, &change, args.dry_run, args.common.json).await
}

async fn carry_out(control: &Path, change: &DeviceChange, dry_run: bool, json: bool) -> Result<()> {
    let path = format!("/v1/devices?dry_run={dry_run}");
    // Disks that move empty their log first.
    let reloaded: Reloaded = client::tell_of_patiently(control, &path, change).await?;
    let began = if dry_run { "this would change" } else { "this changed" };
    let text = format!("{began}:\n{}", reload::list(&reloaded.changes));
    reload::tell(&reloaded, json, text)
}
