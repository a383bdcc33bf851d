//! Requests of the control socket that give a pool another device, or take one from it.
//!
//! ```text
//!   add ───► kept durably ─► disks that were refused for want of it are tried again
//!   drain ─► each disk of the device is opened again on another one ─► nothing is left ─► kept durably: it is free
//!                                                              └─ something stays ─► the pool keeps the device
//! ```
//! **Invariant:** a device stays in the list that a start reads for as long as anything on it is needed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use forebay_host::events::Severity;
use forebay_host::pool;
use forebay_host::pool::report::{self, Placed};

use super::api::{Change, DeviceChange, Reloaded};
use super::control::{ControlState, Reply, refuse};
use super::flash::OpenPool;
use super::opener::Opener;
use super::placement;
use super::questions::{About, FLASH_MAX};
use super::settings::keep;
use super::{dry_run, refused, reload};
use crate::config::difference::{Difference, differences, is_same_pool};
use crate::config::pools::is_same;
use crate::config::sources::Sources;
use crate::config::values::Name;
use crate::config::{DaemonSpec, DiskSpec};

/// Time that the other devices have to say what they hold; less than the one that is asked about.
const OTHERS_MAX: Duration = Duration::from_secs(5);
/// How often whether one is free is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Gives a pool a device, or takes one from it.
pub(super) async fn change(
    State(state): State<Arc<ControlState>>,
    Query(wish): Query<reload::Wish>,
    change: Result<Json<DeviceChange>, JsonRejection>,
) -> Reply<Reloaded> {
    let Json(change) = change?;
    let _one = state.turns.reloading.lock().await;
    let carried_out = match change {
        DeviceChange::Add { pool, device } => add(&state, &pool, device, wish.dry_run).await,
        DeviceChange::Drain { device } => drain(&state, device, wish.dry_run).await,
    };
    carried_out.map(Json).map_err(|error| refuse(StatusCode::CONFLICT, format!("{error:#}")))
}

async fn add(
    state: &Arc<ControlState>,
    name: &Name,
    device: PathBuf,
    dry_run: bool,
) -> Result<Reloaded> {
    let old = state.opener.spec();
    let known = old.pools.iter().find(|pool| pool.name == *name).with_context(|| {
        format!(
            "there is no pool '{name}': a [[pool]] of the configuration file has several devices"
        )
    })?;
    let devices = known.devices.clone();
    let looked_at = device.clone();
    let disks = placement::served(state, &old);
    ask(state, &device, move |_| {
        if let Some(known) = devices.iter().find(|it| is_same(it, &looked_at)) {
            bail!("the pool has the device {} already", known.display());
        }
        let found = report::placed_at(&looked_at);
        let (found, _) =
            found.with_context(|| format!("{} cannot be used", looked_at.display()))?;
        check_no_former_writes(&looked_at, &found, &disks)
    })
    .await?;
    let (mut after, known) = (sources(&old)?, old.clone());
    let (of, joining) = (name.clone(), device.clone());
    let (after, asked) = placement::follow(&state.opener.questions, FLASH_MAX, move || {
        after.changes.add_device(&of, &joining);
        let asked = after.spec_after(&known);
        (after, asked)
    })
    .await?;
    let new = reload::prepared(state, asked?).await?;
    // One that was refused for want of room has a device all the same, which is full.
    let joins =
        |disk: &DiskSpec| new.disks.iter().any(|it| it.name == disk.name && is_on(it, &device));
    let is_refused = |disk: &DiskSpec| state.find(&disk.name.0).is_err();
    let comes =
        moves(&old, &new, |disk| disk.unplaced.is_some() || is_refused(disk) && joins(disk));
    let mut changes: Vec<Change> = comes.iter().map(reload::shown_as).collect();
    let text = format!("the device {} joins the pool '{name}'", device.display());
    if !dry_run {
        keep(&after).await?;
        let missing = reload::take_over(state, &new, None, &comes, &mut changes).await;
        refused::tell_missing(state, missing);
        state.report(None, Severity::Info, &text);
    }
    changes.push(about_devices(text, None));
    Ok(Reloaded { file: shown(&after), dry_run, changes, overridden: Vec::new() })
}

/// Finds out something about a device; who changes something does not wait long for one that hangs.
///
/// # Errors
/// It does not answer in time, or what the question finds.
async fn ask<T: Send + 'static>(
    state: &ControlState,
    device: &Path,
    question: impl FnOnce(&Opener) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (opener, about) = (state.opener.clone(), About::Flash(device.to_owned()));
    let answer = state.opener.questions.ask(about, FLASH_MAX, move || question(&opener)).await;
    answer.unwrap_or_else(|why| Err(why.of(&format!("the flash {}", device.display()))))
}

/// Finds what a device has that is needed and of a disk that is `served` from elsewhere: a start would find the disk twice.
///
/// # Errors
/// That.
fn check_no_former_writes(device: &Path, found: &[Placed], served: &[DiskSpec]) -> Result<()> {
    let is_it = |disk: &DiskSpec, placed: &Placed| {
        placed.is_needed() && (placed.name == disk.name.0 || placed.uri == disk.backend)
    };
    let former = served.iter().find(|disk| found.iter().any(|placed| is_it(disk, placed)));
    former.map_or(Ok(()), |disk| {
        bail!(
            "{0} has writes or reservations of the disk '{1}' from before it began anew elsewhere: a start would find it twice. \
             If nobody needs them, make {0} blank ('blkdiscard', or a new file), and add it then",
            device.display(),
            disk.name
        )
    })
}

async fn drain(state: &Arc<ControlState>, device: PathBuf, dry_run: bool) -> Result<Reloaded> {
    let old = state.opener.spec();
    let (known, asked) = (old.clone(), device.clone());
    let served = placement::served(state, &old);
    let (name, device) = ask(state, &device, move |opener| {
        let (name, device) = found(&known, &asked)?;
        // Those that are served from it can leave it.
        let stays = served.iter().filter(|disk| is_on(disk, &device));
        let stays: Vec<_> = stays.map(|disk| disk.name.to_string()).collect();
        check_nothing_else(opener, &device, &stays)?;
        Ok((name, device))
    })
    .await?;
    let before = sources(&old)?;
    let (sources, known) = (before.clone(), old.clone());
    let (of, leaving) = (name.clone(), device.clone());
    let (after, asked) = placement::follow(&state.opener.questions, FLASH_MAX, move || {
        let mut after = sources;
        after.changes.drain_device(&of, &leaving);
        let asked = after.spec_after(&known);
        (after, asked)
    })
    .await?;
    let new = reload::prepared(state, asked?).await?;
    let (known, to_be) = (old.clone(), new.clone());
    let (of, leaving) = (name.clone(), device.clone());
    let moves = ask(state, &device, move |_| {
        check_leaves(&known, &to_be, (&of, &leaving))?;
        Ok(moves(&known, &to_be, |disk| is_on(disk, &leaving)))
    })
    .await?;
    for difference in &moves {
        if let Difference::AtNextStart(Some(disk), keys) = difference {
            bail!(
                "disk '{disk}' cannot change {} at work, as a logical unit cannot leave its flash: nothing was moved. 'forebay \
                 disk set {disk} --flash PATH:SIZE' and a restart move it to another device, without its reservations",
                keys.join(" and ")
            );
        }
    }
    let mut changes: Vec<Change> = moves.iter().map(reload::shown_as).collect();
    let text = format!("the device {} leaves the pool '{name}'", device.display());
    let mut error = None;
    if dry_run {
        dry_run::try_out(state, &new, &moves, &mut changes).await;
        error = check_moved(&changes).err().map(|why| format!("{why:#}"));
    } else {
        let missing = reload::take_over(state, &new, None, &moves, &mut changes).await;
        refused::tell_missing(state, missing);
        let left = device.clone();
        let done = match check_moved(&changes) {
            Ok(()) => {
                ask(state, &device, move |opener| check_nothing_else(opener, &left, &[])).await
            }
            stays => stays,
        };
        let done = match done {
            Ok(()) => keep(&after).await,
            stays => stays,
        };
        match done {
            Ok(()) => state.report(None, Severity::Info, &text),
            Err(why) => {
                // Disks that have moved are found where they are.
                let now = (*state.opener.spec()).clone();
                let pools = old.pools.clone();
                state.opener.change_spec(DaemonSpec { sources: Some(before), pools, ..now });
                error = Some(format!("{why:#}"));
            }
        }
    }
    changes.push(about_devices(text, error));
    Ok(Reloaded { file: shown(&after), dry_run, changes, overridden: Vec::new() })
}

fn check_moved(changes: &[Change]) -> Result<()> {
    ensure!(changes.iter().all(|change| change.error.is_none()), "a disk stays on it");
    Ok(())
}

fn sources(spec: &DaemonSpec) -> Result<Sources> {
    spec.sources.clone().context("it has no configuration that could change")
}

fn shown(sources: &Sources) -> Option<String> {
    sources.file.as_ref().map(|file| file.display().to_string())
}

fn about_devices(text: String, error: Option<String>) -> Change {
    Change { disk: None, kind: "devices".to_owned(), text, error }
}

/// The pool that has a device, and its path there.
fn found(spec: &DaemonSpec, asked: &Path) -> Result<(Name, PathBuf)> {
    for pool in &spec.pools {
        if let Some(device) = pool.devices.iter().find(|device| is_same(device, asked)) {
            ensure!(
                pool.devices.len() > 1,
                "the pool '{0}' has no other device: first 'forebay pool add-device {0} PATH'",
                pool.name
            );
            return Ok((pool.name.clone(), device.clone()));
        }
    }
    bail!(
        "{} is no device of a [[pool]] of the configuration file: say with --to where its disks are to go",
        asked.display()
    )
}

/// The disks of these that are to be on another device, as differences; what else waits in the configuration file is not of
/// this.
fn moves(
    old: &DaemonSpec,
    new: &DaemonSpec,
    is_of_these: impl Fn(&DiskSpec) -> bool,
) -> Vec<Difference> {
    let moves = |name: &Name| {
        let find = |spec: &DaemonSpec| spec.disks.iter().find(|it| it.name == *name).cloned();
        let moves = |old, new| !is_same_pool(old, new) && is_of_these(old);
        matches!((find(old), find(new)), (Some(old), Some(new)) if moves(&old, &new))
    };
    let is_of_it = |difference: &Difference| match difference {
        Difference::AtNextStart(_, keys) => keys.contains(&"flash"),
        _ => true,
    };
    let mut found = differences(old, new);
    found.retain(|it| it.disk().is_some_and(moves) && is_of_it(it));
    found
}

fn is_on(disk: &DiskSpec, device: &Path) -> bool {
    let flash = disk.flash.as_ref().filter(|_| disk.unplaced.is_none());
    flash.is_some_and(|flash| is_same(&flash.path, device))
}

/// Finds a disk on a device of a pool that stays there when the pool has it no more.
///
/// # Errors
/// That.
fn check_leaves(old: &DaemonSpec, new: &DaemonSpec, (name, device): (&Name, &Path)) -> Result<()> {
    if let Some(disk) = new.disks.iter().find(|disk| is_on(disk, device)) {
        bail!(
            "disk '{0}' is on {1} because its own settings say so: first 'forebay disk set {0} --flash {name}:SIZE'",
            disk.name,
            device.display()
        );
    }
    let is_listed = |disk: &&DiskSpec| new.disks.iter().any(|it| it.name == disk.name);
    if let Some(disk) = old.disks.iter().filter(|it| is_on(it, device)).find(|it| !is_listed(it)) {
        bail!(
            "disk '{0}' is on {1}, and the configuration file does not list it any more: first 'forebay disk remove {0}'. Nothing \
             was moved",
            disk.name,
            device.display()
        );
    }
    Ok(())
}

/// Finds what a device has that is needed and not of `disks`: nobody would find it when the device has left.
///
/// # Errors
/// That, or the device cannot be looked at.
fn check_nothing_else(opener: &Opener, device: &Path, disks: &[String]) -> Result<()> {
    let real = std::fs::canonicalize(device).unwrap_or_else(|_| device.to_owned());
    let pools = opener.flash.pools();
    let open = pools.iter().find(|open| open.path == device || open.real == real);
    let (found, _) = match &open {
        Some(open) => report::placed(&pool::lock(&open.pool)),
        None => report::placed_at(device).with_context(|| {
            format!(
                "{} cannot be looked at, and may have writes that are nowhere else. When it is gone for ever, give 'forebay \
                 config save', take it out of the configuration file and start Forebay again",
                device.display()
            )
        })?,
    };
    // The reservations of before it was served elsewhere are nobody's.
    let is_of_the_past = |disk: &Placed| disk.is_of_the_past(opener.state());
    let may_be_over = |disk: &Placed| disk.is_needed() && !disk.has_log && is_of_the_past(disk);
    let others = match found.iter().any(may_be_over) {
        true => Others::look(pools.iter().filter(|open| open.real != real), OTHERS_MAX),
        false => Others::default(),
    };
    let is_over = |disk: &Placed| {
        let mut others = others.disks.iter().filter(|it| !is_of_the_past(it));
        may_be_over(disk) && others.any(|it| disk.was_served_at(it))
    };
    let is_left =
        |disk: &&Placed| disk.is_needed() && !is_over(disk) && !disks.contains(&disk.name);
    match (found.iter().find(is_left), &others.silent) {
        (Some(disk), Some(silent)) if may_be_over(disk) => bail!(
            "{} has reservations of the disk '{}', which nobody needs if it is served from another device by now; {} did not \
             say so within {} s. Try again when it answers",
            device.display(),
            disk.name,
            silent.display(),
            OTHERS_MAX.as_secs()
        ),
        (Some(disk), _) => bail!(
            "{} has writes of the disk '{}' that may not be on its primary storage, or reservations: first serve it until they \
             are destaged ('forebay disk show {1}' says why it is not served)",
            device.display(),
            disk.name
        ),
        (None, _) => Ok(()),
    }
}

/// What other devices have.
#[derive(Debug, Default)]
struct Others {
    disks: Vec<Placed>,
    /// One that did not answer.
    silent: Option<PathBuf>,
}

impl Others {
    /// Looks at pools that are open. Whoever writes to one has it for a moment; one that hangs is not waited for any longer.
    fn look<'a>(pools: impl Iterator<Item = &'a OpenPool>, patience: Duration) -> Others {
        let give_up = Instant::now() + patience;
        let mut others = Others::default();
        for open in pools {
            let found = loop {
                match open.pool.try_lock() {
                    Ok(pool) => break Some(report::placed(&pool).0),
                    // As whoever locks it does.
                    Err(TryLockError::Poisoned(pool)) => {
                        break Some(report::placed(&pool.into_inner()).0);
                    }
                    Err(TryLockError::WouldBlock) if Instant::now() >= give_up => break None,
                    Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK_AGAIN),
                }
            };
            match found {
                Some(found) => others.disks.extend(found),
                None => others.silent = Some(open.path.clone()),
            }
        }
        others
    }
}

#[cfg(test)]
mod tests;
