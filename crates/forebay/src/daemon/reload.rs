//! The configuration file, read again: by SIGHUP, or by whoever asks at the control socket.
//!
//! ```text
//!   file ──load──► DaemonSpec ──difference.rs──► what changes ──┬─ dry run: that is all
//!     └─ wrong: nothing changes                                 ▼
//!   disks that go are detached · modes change · in force ──► new disks are opened, clients find all where the file says
//! ```
//! What only a start can change is told, and stays as it is. Every disk that is served goes on meanwhile. Disks that were
//! refused are tried again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use forebay_host::events::Severity;

use super::api::{Change, RefusedDisk, Reloaded};
use super::control::{ControlState, Reply, lock, refuse};
use super::frontends::Missing;
use super::questions::{About, FLASH_MAX};
use super::settings::Keeping;
use super::{change, dry_run, http, placement, preflight, refused, reopen, systemd, unlisted};
use crate::config::difference::{self, Difference, differences};
use crate::config::iscsi::IscsiSpec;
use crate::config::pools::is_same;
use crate::config::settings::Setting;
use crate::config::sources::Sources;
use crate::config::values::Name;
use crate::config::{self, DaemonSpec, DiskSpec};

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    #[serde(default)]
    pub(super) dry_run: bool,
}

/// Reads the file again; answers with what changes.
pub(super) async fn asked(
    State(state): State<Arc<ControlState>>,
    Query(wish): Query<Wish>,
) -> Reply<Reloaded> {
    let reloaded = reload(&state, wish.dry_run).await;
    reloaded.map(Json).map_err(|error| refuse(StatusCode::CONFLICT, format!("{error:#}")))
}

/// Takes over what the file says by now; on a dry run only tells what that would change.
///
/// # Errors
/// There is no file, or it cannot be served: nothing changes.
pub(super) async fn reload(state: &Arc<ControlState>, dry_run: bool) -> Result<Reloaded> {
    let _one = state.turns.reloading.lock().await;
    if dry_run {
        return read_again(state, dry_run).await;
    }
    systemd::reloading();
    let reloaded = read_again(state, dry_run).await;
    systemd::ready(state);
    reloaded
}

async fn read_again(state: &Arc<ControlState>, dry_run: bool) -> Result<Reloaded> {
    let old = state.opener.spec();
    let file = old.file().map(Path::to_owned).context(
        "it was started without a configuration file; 'forebay serve' has one to read again",
    )?;
    let shown = file.display().to_string();
    let before = old.clone();
    let read = tokio::task::spawn_blocking(move || config::file::load_again(&file, &before)).await;
    let read = match read.map_err(anyhow::Error::from).flatten() {
        Ok(read) => match prepared(state, read).await {
            Ok(new) => {
                let before = old.clone();
                // Paths are followed for it.
                let about = About::Path(PathBuf::new());
                let check = move || check_devices_stay(&before, &new).map(|()| new);
                let checked = state.opener.questions.ask(about, FLASH_MAX, check).await;
                checked.unwrap_or_else(|why| Err(why.of("the file system of a device")))
            }
            wrong => wrong,
        },
        wrong => wrong,
    };
    let new = read.inspect_err(|error| {
        if !dry_run {
            let text = format!("reload: nothing changes until this is right: {error:#}");
            state.report(None, Severity::Error, &text);
        }
    })?;
    let mut found = differences(&listening(state, &new), &new);
    found.iter_mut().for_each(|difference| at_once_if_unserved(state, difference));
    let mut changes: Vec<Change> = found.iter().map(shown_as).collect();
    let overridden = new.sources.as_ref().map_or(Vec::new(), Sources::overridden);
    if dry_run {
        dry_run::try_out(state, &new, &found, &mut changes).await;
    } else {
        keep(state, &new).await;
        let told = match found.is_empty() && overridden.is_empty() {
            true => format!("reload: {shown} says what is in force"),
            false => format!("reload: {shown} was read again"),
        };
        state.report(None, Severity::Info, &told);
        unlisted::keep_listed(state, &new).await;
        let missing = take_over(state, &new, None, &found, &mut changes).await;
        refused::tell_missing(state, missing);
        tell_undone(state, &found, &changes);
    }
    changes.extend(read_secrets(state, &new, !dry_run).await);
    Ok(Reloaded { file: Some(shown), dry_run, changes, overridden })
}

/// Tells of settings that disks could not take over: nobody hears the answer of a SIGHUP. Of all else somebody has told.
fn tell_undone(state: &ControlState, found: &[Difference], changes: &[Change]) {
    for (difference, change) in found.iter().zip(changes) {
        let what = match difference {
            Difference::Changed(_, settings) | Difference::OpenedAgain(_, settings, _) => {
                difference::in_words(settings)
            }
            Difference::Unserved(..) => difference.to_string(),
            Difference::Added(_) | Difference::Removed(_) => continue,
            Difference::Listeners | Difference::AtNextStart(..) => continue,
        };
        if let (Some(disk), Some(why)) = (difference.disk(), &change.error) {
            let text = format!("reload: {what}: not done: {why}");
            state.report(Some(&disk.0), Severity::Error, &text);
        }
    }
}

/// A configuration with a device for each disk of a pool, and nothing in it that would keep this daemon from it.
///
/// # Errors
/// What would.
pub(super) async fn prepared(state: &Arc<ControlState>, spec: DaemonSpec) -> Result<DaemonSpec> {
    let (served, open) =
        (placement::served(state, &state.opener.spec()), state.opener.flash.pools());
    let questions = &state.opener.questions;
    let placed = placement::place_in_time(questions, spec, served, open, FLASH_MAX).await;
    let (spec, news) = placed?;
    preflight::check_flash_is_apart(questions, &spec, FLASH_MAX).await?;
    news.iter().for_each(|text| state.report(None, Severity::Warning, text));
    Ok(spec)
}

/// Refuses to take a device from a pool that a disk has its flash on: it would begin anew on another one after a restart.
///
/// # Errors
/// That.
fn check_devices_stay(old: &DaemonSpec, new: &DaemonSpec) -> Result<()> {
    let has = |spec: &DaemonSpec, path: &Path| {
        spec.pools.iter().any(|pool| placement::has_device(pool, path))
    };
    for disk in old.disks.iter().filter(|disk| disk.unplaced.is_none()) {
        let Some(flash) = disk.flash.as_ref().filter(|flash| has(old, &flash.path)) else {
            continue;
        };
        let after =
            new.disks.iter().find(|it| it.name == disk.name).and_then(|it| it.flash.as_ref());
        let leaves = after.is_some_and(|after| !is_same(&after.path, &flash.path));
        ensure!(
            !leaves || has(new, &flash.path),
            "the disk '{}' is on {1}, which the file takes from its pool: first 'forebay pool drain {1}'",
            disk.name,
            flash.path.display()
        );
    }
    Ok(())
}

/// Forgets changes made online that the file says by now, and tells of those that wait for a disk.
async fn keep(state: &Arc<ControlState>, new: &DaemonSpec) {
    let Some(sources) = new.sources.clone() else { return };
    for disk in sources.waiting() {
        let text = "reload: what was changed of this disk while Forebay ran waits: the configuration file has no such disk";
        state.report(Some(&disk.0), Severity::Warning, text);
    }
    for pool in sources.waiting_pools() {
        let text = format!(
            "reload: what was changed of the devices of pool '{pool}' while Forebay ran waits: the configuration file has no \
             such pool"
        );
        state.report(None, Severity::Warning, &text);
    }
    let kept = tokio::task::spawn_blocking(move || sources.keep()).await;
    if let Err(error) = kept.map_err(anyhow::Error::from).flatten() {
        state.report(None, Severity::Warning, &format!("reload: {error:#}"));
    }
}

/// Reads the CHAP secrets again of targets that have them from the same files as before, and looks at those of others. What
/// changes, or why it could not.
async fn read_secrets(
    state: &Arc<ControlState>,
    new: &DaemonSpec,
    takes_over: bool,
) -> Vec<Change> {
    let in_force = state.opener.spec();
    let is_known = |target: &IscsiSpec| {
        let mut known = in_force.targets.iter().filter(|it| it.target == target.target);
        known.any(|it| (&it.chap, &it.mutual_chap) == (&target.chap, &target.mutual_chap))
    };
    let asked = new.targets.iter().map(|spec| {
        let (state, of, counts) = (state.clone(), spec.clone(), takes_over && is_known(spec));
        let read = async move { state.frontends.read_secrets(&of, counts).await };
        (spec, tokio::spawn(read))
    });
    let mut told = Vec::new();
    for (spec, read) in asked.collect::<Vec<_>>() {
        let target = &spec.target;
        let (text, error) = match read.await.map_err(anyhow::Error::from).flatten() {
            Ok(has_others) if has_others && is_known(spec) => (
                format!(
                    "iSCSI target {target} has other CHAP secrets: they count from the next login on"
                ),
                None,
            ),
            Ok(_) => continue,
            Err(why) => (
                format!("the CHAP secrets of iSCSI target {target} cannot be used"),
                Some(format!("{why:#}")),
            ),
        };
        if takes_over {
            let severity = if error.is_some() { Severity::Error } else { Severity::Info };
            let why = error.as_ref().map_or(String::new(), |why| format!(": {why}"));
            state.report(None, severity, &format!("reload: {text}{why}"));
        }
        told.push(Change { disk: None, kind: "secrets".to_owned(), text, error });
    }
    told
}

pub(super) fn shown_as(difference: &Difference) -> Change {
    Change {
        disk: difference.disk().map(ToString::to_string),
        kind: difference.kind().to_owned(),
        text: difference.to_string(),
        error: None,
    }
}

/// What is in force, but for listeners that do not listen: these are made as `new` says, with nobody there to go on as before.
fn listening(state: &ControlState, new: &DaemonSpec) -> DaemonSpec {
    let mut spec = (*state.opener.spec()).clone();
    for listener in &mut spec.listeners {
        let place = listener.place();
        let wanted = new.listeners.iter().find(|it| it.place() == place);
        if let Some(wanted) = wanted.filter(|_| !state.frontends.listens_at(&place)) {
            listener.address.clone_from(&wanted.address);
            listener.connections_max = wanted.connections_max;
        }
    }
    spec
}

/// What a start alone can change of disks at work comes at once for one that is refused.
fn at_once_if_unserved(state: &ControlState, difference: &mut Difference) {
    if let Difference::AtNextStart(Some(name), keys) = difference
        && state.may_be_tried().iter().any(|refused| refused.name == name.0)
        && state.find(&name.0).is_err()
    {
        *difference = Difference::Unserved(name.clone(), std::mem::take(keys));
    }
}

/// Disks change their settings; when it is dropped they are opened again.
struct Changing<'a>(&'a ControlState);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        lock(&self.0.turns.changing).clear();
    }
}

/// Brings the differences about; what cannot be is noted with its change, of which one disk may be `asked` alone. The disks
/// that clients do not find everywhere. Where one disk is asked about, the places of before are open still.
pub(super) async fn take_over(
    state: &Arc<ControlState>,
    new: &DaemonSpec,
    asked: Option<&Name>,
    found: &[Difference],
    changes: &mut [Change],
) -> Vec<(String, Missing)> {
    let old = listening(state, new);
    let mut spec = difference::in_force(&old, new);
    let is_at_once = |it: &&Difference| match it {
        Difference::Changed(..) | Difference::OpenedAgain(..) | Difference::Unserved(..) => true,
        Difference::Added(_) | Difference::Removed(_) => false,
        Difference::Listeners | Difference::AtNextStart(..) => false,
    };
    let at_once = found.iter().filter(is_at_once).filter_map(Difference::disk);
    *lock(&state.turns.changing) = at_once.map(ToString::to_string).collect();
    let changing = Changing(state);
    let of_command = |_| Keeping { before: old.sources.clone(), after: new.sources.clone() };
    let kept = asked.map_or_else(Keeping::default, of_command);
    // A command takes back what else it has changed.
    let rest = if asked.is_none() { "; the rest is in force" } else { "" };
    for (difference, change) in found.iter().zip(&mut *changes) {
        let done = match difference {
            Difference::Changed(disk, settings) => {
                let of_disk = spec.disks.iter_mut().find(|it| it.name == *disk);
                let asked = new.disks.iter().find(|it| it.name == *disk);
                match (of_disk, asked) {
                    (Some(of_disk), Some(asked)) => {
                        change_settings(state, of_disk, asked, settings, rest).await
                    }
                    _ => Ok(()),
                }
            }
            Difference::OpenedAgain(name, settings, _) => {
                let asked = new.disks.iter().find(|it| it.name == *name);
                match (spec.disks.iter().position(|it| it.name == *name), asked) {
                    (Some(at), Some(asked)) => {
                        let wanted = (asked, settings.as_slice());
                        reopen::reopen(state, &mut spec.disks, at, wanted, &kept).await
                    }
                    _ => Ok(()),
                }
            }
            Difference::Unserved(name, _) => {
                let of_disk = spec.disks.iter_mut().find(|it| it.name == *name);
                let asked = new.disks.iter().find(|it| it.name == *name);
                match (of_disk, asked) {
                    (Some(of_disk), Some(asked)) => {
                        change_unserved(state, of_disk, asked, difference).await
                    }
                    _ => Ok(()),
                }
            }
            Difference::AtNextStart(disk, _) => {
                let disk = disk.as_ref().map(|disk| disk.0.as_str());
                state.report(disk, Severity::Warning, &difference.to_string());
                Ok(())
            }
            Difference::Added(_) | Difference::Removed(_) | Difference::Listeners => Ok(()),
        };
        change.error = done.err().map(|error| format!("{error:#}"));
    }
    state.opener.change_spec(spec);
    drop(changing);
    let may_leave_flash =
        |it: &Difference| matches!(it, Difference::OpenedAgain(..) | Difference::Unserved(..));
    if found.iter().any(may_leave_flash) {
        // What one of them has left may have been of another one by then.
        state.close_unused_flash().await;
    }
    for (difference, change) in found.iter().zip(&mut *changes) {
        if let Difference::Removed(name) = difference
            && let Some(disk) = old.disks.iter().find(|disk| disk.name == *name)
            && let Err(error) = unlisted::remove(state, disk).await
        {
            change.error = Some(format!("{error:#}"));
        }
    }
    let is_added =
        |name: &str| found.iter().any(|it| matches!(it, Difference::Added(disk) if disk.0 == name));
    let added = new.disks.iter().filter(|disk| is_added(&disk.name.0)).cloned().collect();
    // An event tells whether one is served, or why not.
    let served = refused::serve_each(state, added).await;
    let mut not_everywhere = BTreeSet::new();
    for change in &mut *changes {
        let Some((name, served)) = change.disk.as_ref().and_then(|name| served.get_key_value(name))
        else {
            continue;
        };
        change.error = match served {
            Ok(served) if served.warnings.is_empty() => None,
            Ok(served) => {
                not_everywhere.insert(name.clone());
                Some(served.warnings.join("; "))
            }
            Err(error) => Some(format!("{error:#}")),
        };
    }
    let mut missing = state.attach_all().await;
    if asked.is_none() {
        state.close_unused_places().await;
        if !missing.is_empty() {
            // What was in the way may have been an address of before.
            missing = state.attach_all().await;
        }
        not_everywhere.retain(|name| missing.iter().all(|(disk, _)| disk != name));
        for change in &mut *changes {
            if change.disk.as_ref().is_some_and(|name| not_everywhere.contains(name)) {
                change.error = None;
                state.report(change.disk.as_deref(), Severity::Info, refused::EVERYWHERE);
            }
        }
    }
    let is_new = |place: &String, name| {
        !old.listeners.iter().any(|it| it.place() == *place && it.disks.contains(name))
    };
    let is_of_change = |(disk, missing): &&(String, Missing)| {
        !is_added(disk)
            && asked.is_none_or(|it| {
                it.0 == *disk && missing.places.iter().any(|place| is_new(place, it))
            })
    };
    if let Some(at) = found.iter().position(|it| matches!(it, Difference::Listeners)) {
        let said = missing.iter().filter(is_of_change);
        let said: Vec<_> =
            said.map(|(disk, missing)| format!("disk '{disk}': {:#}", missing.why)).collect();
        changes[at].error = (!said.is_empty()).then(|| said.join("; "));
    }
    http::open(state).await;
    // Those that are new were tried a moment ago. Whoever asks about one disk does not wait for storage of others.
    let is_tried = |disk: &RefusedDisk| {
        !is_added(&disk.name) && asked.is_none_or(|asked| asked.0 == disk.name)
    };
    refused::try_again(state, is_tried).await;
    missing
}

/// Has a disk at work take over settings that are otherwise. `rest` is what to say of those that it has, when one is missing.
///
/// # Errors
/// The size of RAM, or the mode, cannot be had. All else is in force.
async fn change_settings(
    state: &ControlState,
    disk: &mut DiskSpec,
    asked: &DiskSpec,
    settings: &[Setting],
    rest: &str,
) -> Result<()> {
    let before = disk.clone();
    let mut taken = before.clone();
    taken.take_over_online(asked);
    // One that is refused has them when it is opened.
    let Some(served) = state.find_or_opened(&disk.name.0).await? else {
        *disk = taken;
        return Ok(());
    };
    served.handle.tune(taken.tuning()).await?;
    let mut missing = Vec::new();
    if taken.ram_bytes != before.ram_bytes
        && let Err(why) = state.opener.resize_ram(&served, taken.ram_bytes).await
    {
        (taken.ram_bytes, taken.ram_sharing) = (before.ram_bytes, before.ram_sharing);
        missing.push(("ram", why));
    }
    if settings.iter().any(|(key, _)| *key == "mode")
        && let Err(why) = change::ask_for_mode(state, &served, taken.mode).await
    {
        taken.mode = before.mode;
        missing.push(("mode", why));
    }
    *disk = taken;
    // What RAM it keeps, and has at most, goes with how much it is.
    let is_missing = |key: &str| missing.iter().any(|(of, _)| key.starts_with(of));
    let done: Vec<&Setting> = settings.iter().filter(|(key, _)| !is_missing(key)).collect();
    // Who asks for a mode tells of it.
    let of_others = done.iter().filter(|(key, _)| *key != "mode");
    let said: Vec<String> = of_others.map(|(key, value)| format!("{key} {value}")).collect();
    if !said.is_empty() {
        let text = format!("its settings were changed at work: {}", said.join(", "));
        state.report(Some(&disk.name.0), Severity::Info, &text);
    }
    let why = missing.iter().map(|(key, why)| match done.is_empty() && missing.len() == 1 {
        true => format!("{why:#}"),
        false => format!("{key}: {why:#}"),
    });
    let why = why.collect::<Vec<_>>().join("; ");
    let rest = if done.is_empty() { "" } else { rest };
    ensure!(missing.is_empty(), "{why}{rest}");
    Ok(())
}

/// A disk that is not served is to be opened with other settings. An opening that is under way with those of before comes to
/// nothing.
async fn change_unserved(
    state: &ControlState,
    disk: &mut DiskSpec,
    asked: &DiskSpec,
    difference: &Difference,
) -> Result<()> {
    let served = state.find_or_opened(&disk.name.0).await?;
    ensure!(served.is_none(), "the disk is served by now: that is in force after a restart");
    *disk = asked.clone();
    state.report(Some(&disk.name.0), Severity::Info, &difference.to_string());
    Ok(())
}
