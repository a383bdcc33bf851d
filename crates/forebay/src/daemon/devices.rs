//! Requests of the control socket that give a pool another device, or take one from it.
//!
//! ```text
//!   add ───► kept durably: new disks may have it
//!   drain ─► each disk of the device is opened again on another one ─► none is left ─► kept durably: the device is free
//!                                                              └─ one stays ─► the pool keeps the device
//! ```
//! **Invariant:** a device stays in the list that a start reads for as long as a disk is on it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forebay_host::events::Severity;
use forebay_host::pool;
use forebay_host::pool::report;

use super::api::{Change, DeviceChange, Reloaded};
use super::control::{ControlState, refuse};
use super::reload;
use super::settings::keep;
use crate::config::difference::{Difference, differences, is_same_pool};
use crate::config::values::Name;
use crate::config::{DaemonSpec, DiskSpec};

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    #[serde(default)]
    dry_run: bool,
}

/// Gives a pool a device, or takes one from it.
pub(super) async fn change(
    State(state): State<Arc<ControlState>>,
    Query(wish): Query<Wish>,
    change: Result<Json<DeviceChange>, JsonRejection>,
) -> Response {
    let change = match change {
        Ok(Json(change)) => change,
        Err(wrong) => return refuse(StatusCode::BAD_REQUEST, wrong.body_text()),
    };
    // On a task of its own: who asked may leave.
    let carried_out = tokio::spawn(async move { carry_out(&state, change, wish.dry_run).await });
    match carried_out.await {
        Ok(Ok(reloaded)) => Json(reloaded).into_response(),
        Ok(Err(error)) => refuse(StatusCode::CONFLICT, format!("{error:#}")),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

async fn carry_out(
    state: &Arc<ControlState>,
    change: DeviceChange,
    dry_run: bool,
) -> Result<Reloaded> {
    let _one = state.reloading.lock().await;
    let old = state.opener.spec();
    let before = old.sources.clone().context("it has no configuration that could change")?;
    let Pool { name, devices, leaves, text } = pool_after(&old, change)?;
    match &leaves {
        Some(device) => check_can_leave(state, &old, device)?,
        None => drop(devices.last().map(|device| report::placed_at(device)).transpose()?),
    }
    let mut after = before.clone();
    after.changes.set_devices(&name, &devices);
    let new = reload::prepared(state, after.spec_after(&old)?).await?;
    if let Some(device) = &leaves
        && let Some(disk) = new.disks.iter().find(|disk| is_on(disk, device))
    {
        bail!(
            "disk '{0}' is on {1} because its own settings say so: first 'forebay disk set {0} --flash {name}:SIZE'",
            disk.name,
            device.display()
        );
    }
    let moves = moves(&old, &new)?;
    let mut changes: Vec<Change> = moves.iter().map(reload::shown_as).collect();
    if !dry_run {
        reload::take_over(state, &new, &moves, &mut changes).await;
    }
    let mut done =
        Change { disk: None, kind: "devices".to_owned(), text: text.clone(), error: None };
    if changes.iter().any(|change| change.error.is_some()) {
        done.error = Some("a disk stays on it".to_owned());
    } else if !dry_run {
        done.error = keep(&after).await.err().map(|error| format!("{error:#}"));
    }
    match (dry_run, &done.error) {
        (true, _) => {}
        (false, None) => state.report(None, Severity::Info, &text),
        (false, Some(_)) => {
            // Disks that have moved are found where they are.
            let pools = old.pools.clone();
            let now = (*state.opener.spec()).clone();
            state.opener.change_spec(DaemonSpec { sources: Some(before), pools, ..now });
        }
    }
    changes.push(done);
    let file = after.file.as_ref().map(|file| file.display().to_string());
    Ok(Reloaded { file, dry_run, changes })
}

/// A pool, as it is to be.
struct Pool {
    name: Name,
    devices: Vec<PathBuf>,
    /// The device that its disks leave.
    leaves: Option<PathBuf>,
    /// What changes.
    text: String,
}

/// The pool that a change is about, with it.
///
/// # Errors
/// There is none, or it cannot be so.
fn pool_after(spec: &DaemonSpec, change: DeviceChange) -> Result<Pool> {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let is_same = |known: &Path, asked: &Path| real(known) == real(asked);
    match change {
        DeviceChange::Add { pool: name, device } => {
            let known = spec.pools.iter().find(|pool| pool.name == name).with_context(|| {
                format!("there is no pool '{name}': a [[pool]] of the configuration file has several devices")
            })?;
            if let Some(known) = known.devices.iter().find(|it| is_same(it, &device)) {
                bail!("the pool '{name}' has the device {} already", known.display());
            }
            let text = format!("the device {} joins the pool '{name}'", device.display());
            let devices = [&known.devices[..], &[device]].concat();
            Ok(Pool { name, devices, leaves: None, text })
        }
        DeviceChange::Drain { device } => {
            let is_it = |known: &PathBuf| is_same(known, &device);
            let of = spec.pools.iter().find(|pool| pool.devices.iter().any(is_it));
            let of = of.with_context(|| {
                format!(
                    "{} is no device of a [[pool]] of the configuration file: say with --to where its disks are to go",
                    device.display()
                )
            })?;
            let name = of.name.clone();
            let (leaves, devices): (Vec<_>, Vec<_>) = of.devices.iter().cloned().partition(is_it);
            ensure!(
                !devices.is_empty(),
                "the pool '{name}' has no other device: first 'forebay pool add-device {name} PATH'"
            );
            let text = format!("the device {} leaves the pool '{name}'", device.display());
            Ok(Pool { name, devices, leaves: leaves.into_iter().next(), text })
        }
    }
}

/// The disks that are to be on another device, as differences; what else waits in the configuration file is not of this.
///
/// # Errors
/// One of them cannot move at work.
fn moves(old: &DaemonSpec, new: &DaemonSpec) -> Result<Vec<Difference>> {
    let moves = |name: &Name| {
        let find = |spec: &DaemonSpec| spec.disks.iter().find(|it| it.name == *name).cloned();
        matches!((find(old), find(new)), (Some(old), Some(new)) if !is_same_pool(&old, &new))
    };
    let mut found = differences(old, new);
    found.retain(|it| it.disk().is_some_and(moves));
    for difference in &found {
        if let Difference::AtNextStart(Some(disk), _) = difference {
            bail!(
                "disk '{disk}' keeps its device until a restart, as a logical unit does: its device has its reservations. \
                 Nothing was moved"
            );
        }
    }
    Ok(found)
}

fn is_on(disk: &DiskSpec, device: &Path) -> bool {
    disk.flash.as_ref().is_some_and(|flash| flash.path == device)
}

/// Finds what a device has that would be left behind.
///
/// # Errors
/// That.
fn check_can_leave(state: &ControlState, spec: &DaemonSpec, device: &Path) -> Result<()> {
    for disk in spec.disks.iter().filter(|disk| is_on(disk, device)) {
        let name = &disk.name;
        ensure!(
            state.find(&name.0).is_ok(),
            "disk '{name}' is on it and is not served, so that it cannot move: 'forebay disk show {name}' says why"
        );
    }
    let open = state.opener.flash.pools().into_iter().find(|(path, _)| path == device);
    let (left, _) = match open {
        Some((_, open)) => report::placed(&pool::lock(&open)),
        None => report::placed_at(device).unwrap_or_default(),
    };
    let is_known = |name: &str| spec.disks.iter().any(|disk| disk.name.0 == name);
    match left.iter().find(|disk| disk.has_log && !is_known(&disk.name)) {
        Some(disk) => bail!(
            "{} has writes of the disk '{}' that may not be on its primary storage, and the configuration has no such disk: serve \
             it until they are destaged",
            device.display(),
            disk.name
        ),
        None => Ok(()),
    }
}
