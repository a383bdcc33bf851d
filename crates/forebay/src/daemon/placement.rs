//! Which device of its pool the flash of a disk is on.
//!
//! ```text
//!   flash = "fast:64GiB" ─┬─ it is served from a device of 'fast' ──────────► there
//!                         ├─ a device of 'fast' has its record ─────────────► there
//!                         │    unless it was never served from there, or is known to have left, and some device of
//!                         │    'fast' cannot be looked at
//!                         ├─ some device of 'fast' cannot be looked at ─────► nowhere: the disk is refused
//!                         └─ else ─► where most is left, what other disks are to have taken off
//! ```
//! Where a disk is, is written nowhere but on the device itself. So a disk that moved, or was about to when the host
//! died, is found where it is.
//!
//! A restart may give a disk another device. Its record stays on the former one, with the reservations of then. The state folder
//! knows that this record is of the past: once another one was served, only a write log counts that it may have. Of the others
//! the one that was served last counts. A start that failed leaves a record that was never served.
//!
//! **Invariant:** a disk gets a device that it was not served from last only when no device of its pool has anything of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use anyhow::Result;
use forebay_backends::Uri;
use forebay_host::folders;
use forebay_host::pool::report::{self, Placed};
use forebay_host::pool::{self, Pool};

use super::control::ControlState;
use super::flash::OpenPool;
use super::questions::{About, FLASH_MAX, Questions, Silence};
use crate::config::pools::{PoolSpec, is_same};
use crate::config::{DaemonSpec, DiskSpec};

/// Gives each disk of a pool one of its devices; may wait for them. `served` are disks that a daemon serves, and `open`
/// the devices that it has open. What is wrong with devices that had to be looked at.
pub(crate) fn place(spec: &mut DaemonSpec, served: &[DiskSpec], open: &[OpenPool]) -> Vec<String> {
    keep(spec, served);
    let (known, state) = (known(open), state_folder(spec));
    let look_at = |path: PathBuf| {
        let found = look(&path, &known, state.as_deref());
        (path, found)
    };
    put_all(spec, Devices::of_looks(wanted(spec).into_iter().map(look_at)))
}

/// The same, where nothing is waited for longer than this: a device that does not answer in time cannot be looked at.
///
/// # Errors
/// It cannot be told which devices its disks are on.
pub(super) async fn place_in_time(
    questions: &Questions,
    spec: DaemonSpec,
    served: Vec<DiskSpec>,
    open: Vec<OpenPool>,
    patience: Duration,
) -> Result<(DaemonSpec, Vec<String>)> {
    let known = Arc::new(known(&open));
    drop(open);
    let mut spec = kept(questions, spec, served, patience).await?;
    let state = state_folder(&spec).map(Arc::new);
    let of = wanted(&spec).into_iter().map(|path| (path.clone(), About::Flash(path)));
    let look_at = |path: &PathBuf| {
        let (path, known, state) = (path.clone(), known.clone(), state.clone());
        move || look(&path, &known, state.as_deref().map(PathBuf::as_path))
    };
    let looks = questions.ask_each(of, patience, look_at).await.into_iter().map(|(path, found)| {
        let found = found.unwrap_or_else(|why| Look::silent(&path, why));
        (path, found)
    });
    let news = put_all(&mut spec, Devices::of_looks(looks));
    Ok((spec, news))
}

/// The same for the disks that are served alone, in time; no device is looked at.
///
/// # Errors
/// It cannot be told where paths lead.
pub(super) async fn kept(
    questions: &Questions,
    mut spec: DaemonSpec,
    served: Vec<DiskSpec>,
    patience: Duration,
) -> Result<DaemonSpec> {
    let keeping = move || {
        keep(&mut spec, &served);
        spec
    };
    follow(questions, patience, keeping).await
}

/// Does something for which it is asked where the paths of devices lead.
///
/// # Errors
/// A file system does not answer in time.
pub(super) async fn follow<T: Send + 'static>(
    questions: &Questions,
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let about = About::Path(PathBuf::new());
    let done = questions.ask(about, patience, work).await;
    done.map_err(|why| why.of("the file system of a device"))
}

/// The folder that knows which disks went on elsewhere.
fn state_folder(spec: &DaemonSpec) -> Option<PathBuf> {
    spec.state_dir.clone().or_else(folders::state_folder)
}

/// The devices of pools from which a disk is to have one that it does not have yet.
fn wanted(spec: &DaemonSpec) -> Vec<PathBuf> {
    let pools = spec.disks.iter().filter_map(|disk| pool_of(&spec.pools, disk));
    let mut known = BTreeSet::new();
    // Of a device with two paths the one that comes first counts.
    pools.flat_map(|pool| &pool.devices).filter(|it| known.insert(*it)).cloned().collect()
}

/// Gives each disk that has no device of its pool one of those that were looked at. What is wrong with these.
fn put_all(spec: &mut DaemonSpec, mut devices: Devices) -> Vec<String> {
    let pools = spec.pools.clone();
    for disk in &mut spec.disks {
        let Some(pool) = pool_of(&pools, disk) else { continue };
        match devices.with(pool, disk) {
            Ok(Some(device)) => put(disk, &device),
            Ok(None) => disk.unplaced = devices.unreadable(pool),
            Err(why) => disk.unplaced = Some(why),
        }
    }
    devices.take(&spec.disks);
    for disk in &mut spec.disks {
        if let Some(pool) = pool_of(&pools, disk).filter(|_| disk.unplaced.is_none()) {
            match devices.emptiest(pool).cloned() {
                Some(device) => put(disk, &device),
                None => {
                    disk.unplaced =
                        Some(format!("the devices of '{}' are of another pool", pool.name))
                }
            }
            devices.take(std::slice::from_ref(disk));
        }
    }
    devices.0.iter().filter_map(|(path, found)| Some(told(path, found.as_ref().err()?))).collect()
}

/// Tries again to give a device to those disks that have none; they are served soon. It may wait for the devices.
pub(super) async fn place_again(state: &Arc<ControlState>) {
    let Ok(_one) = state.turns.placing.try_lock() else { return };
    let old = state.opener.spec();
    let mut spec = (*old).clone();
    let mut without = Vec::new();
    for disk in spec.disks.iter_mut().filter(|disk| disk.unplaced.is_some()) {
        if pool_of(&old.pools, disk).is_some() {
            disk.unplaced = None;
            without.push(disk.name.to_string());
        }
    }
    let questions = &state.opener.questions;
    let of = wanted(&spec).into_iter().map(|device| (device.clone(), About::Path(device)));
    let exists = |device: &PathBuf| {
        let device = device.clone();
        move || device.exists()
    };
    let there = questions.ask_each(of, FLASH_MAX, exists).await;
    let is_there = |device| there.iter().any(|(it, found)| it == device && *found == Ok(true));
    let mut asked_for = spec.disks.iter().filter_map(|disk| pool_of(&old.pools, disk));
    if !asked_for.any(|pool| pool.devices.iter().all(is_there)) {
        return;
    }
    let (served, open) = (served(state, &spec), state.opener.flash.pools());
    let placing = place_in_time(questions, spec, served, open, FLASH_MAX).await;
    let Ok((spec, _)) = placing else { return };
    let has_none = |name: &String| {
        spec.disks.iter().any(|disk| disk.name.0 == *name && disk.unplaced.is_some())
    };
    without.retain(|name| !has_none(name));
    // Who opens one of them has the spec of before.
    let Ok(_nobody_opens) = state.opening_turn().await else { return };
    let Ok(_no_change) = state.turns.reloading.try_lock() else { return };
    if without.is_empty() || !Arc::ptr_eq(&old, &state.opener.spec()) {
        return;
    }
    state.opener.change_spec(spec);
    state.try_again_soon(&without);
}

/// The disks that a daemon serves, as a configuration that is in force has them.
pub(super) fn served(state: &ControlState, spec: &DaemonSpec) -> Vec<DiskSpec> {
    let is_served = |disk: &&DiskSpec| state.find(&disk.name.0).is_ok();
    spec.disks.iter().filter(is_served).cloned().collect()
}

/// Gives each disk of a pool the device that it is served from; looks at no device.
fn keep(spec: &mut DaemonSpec, served: &[DiskSpec]) {
    for disk in &mut spec.disks {
        let Some(pool) = pool_of(&spec.pools, disk) else { continue };
        let known = served.iter().find(|it| it.name == disk.name);
        let known = known.and_then(|known| known.flash.as_ref()).map(|flash| flash.path.clone());
        if let Some(device) = known.filter(|path| has_device(pool, path)) {
            put(disk, &device);
        }
    }
}

/// Whether a pool has this device, by whatever path.
pub(super) fn has_device(pool: &PoolSpec, path: &Path) -> bool {
    // Who does not have to ask the file system does not: it may hang.
    pool.devices.iter().any(|device| device == path)
        || pool.devices.iter().any(|device| is_same(device, path))
}

/// The pool that a disk asks for, as long as it has no device of it.
fn pool_of<'a>(pools: &'a [PoolSpec], disk: &DiskSpec) -> Option<&'a PoolSpec> {
    let flash = disk.flash.as_ref()?;
    pools.iter().find(|pool| pool.is_asked_for(flash))
}

fn put(disk: &mut DiskSpec, device: &Path) {
    if let Some(flash) = &mut disk.flash {
        flash.path = device.to_owned();
    }
}

fn told(path: &Path, why: &str) -> String {
    format!("the flash {} cannot be looked at: {why}", path.display())
}

/// The devices that were looked at, by their paths in the configuration.
#[derive(Debug, Default)]
struct Devices(BTreeMap<PathBuf, Result<Device, String>>);

/// A device of a pool, as it was found.
#[derive(Debug)]
struct Device {
    /// The path by which it is open, or would be.
    path: PathBuf,
    records: Vec<Record>,
    /// Bytes that no disk is to have; negative: they are to have more than there is.
    left: i128,
}

/// What a device has of a disk.
#[derive(Debug)]
struct Record {
    placed: Placed,
    /// The disk was detached, or went on elsewhere.
    is_of_the_past: bool,
}

impl Record {
    /// True when a session of the disk was served from here, and nobody knows of a later one elsewhere.
    fn is_sure(&self) -> bool {
        !self.is_of_the_past && self.placed.opened > 0
    }
}

/// What a look at a device has found.
struct Look {
    /// Where its path leads.
    real: PathBuf,
    found: Result<Device, String>,
}

impl Look {
    fn silent(path: &Path, why: Silence) -> Look {
        Look { real: path.to_owned(), found: Err(format!("{:#}", why.of("it"))) }
    }
}

/// A pool that was open when looks began. It is let go of meanwhile, however long one of them takes.
struct Known {
    path: PathBuf,
    real: PathBuf,
    pool: Weak<Mutex<Pool>>,
}

fn known(open: &[OpenPool]) -> Vec<Known> {
    let known = |OpenPool { path, real, pool, .. }: &OpenPool| {
        let (path, real) = (path.clone(), real.clone());
        Known { path, real, pool: Arc::downgrade(pool) }
    };
    open.iter().map(known).collect()
}

fn look(path: &Path, known: &[Known], state: Option<&Path>) -> Look {
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let known = known.iter().find(|open| open.path == path || open.real == real);
    let found = match known.and_then(|open| open.pool.upgrade()) {
        Some(open) => Ok(report::placed(&pool::lock(&open))),
        None => report::placed_at(path),
    };
    let at = known.map_or(path, |open| &open.path).to_owned();
    let record = |placed: Placed| {
        let is_of_the_past = placed.is_of_the_past(state);
        Record { placed, is_of_the_past }
    };
    let found = found.map(|(disks, room)| {
        let records = disks.into_iter().map(record).collect();
        Device { path: at, records, left: room.into() }
    });
    Look { real, found: found.map_err(|error| format!("{error:#}")) }
}

impl Devices {
    /// Those that were looked at, each once, whatever paths lead to it.
    fn of_looks(looks: impl Iterator<Item = (PathBuf, Look)>) -> Devices {
        let mut known = BTreeSet::new();
        let new = looks.filter(|(_, look)| known.insert(look.real.clone()));
        Devices(new.map(|(path, look)| (path, look.found)).collect())
    }

    fn of<'a>(&'a self, pool: &'a PoolSpec) -> impl Iterator<Item = &'a Device> {
        pool.devices.iter().filter_map(|path| self.0.get(path)?.as_ref().ok())
    }

    /// The device that has a disk's record: one of its name, or else of its primary storage, so that opening it there
    /// tells of the other name. None where another device that cannot be looked at may have the one that counts.
    ///
    /// # Errors
    /// Two have one, and the other one is needed.
    fn with(&self, pool: &PoolSpec, disk: &DiskSpec) -> Result<Option<PathBuf>, String> {
        let shares_memory =
            disk.backend.parse::<Uri>().is_ok_and(|uri| !uri.outlives_its_opening());
        let is_it = |placed: &Placed| placed.name == disk.name.0;
        let is_other = |placed: &Placed| placed.uri == disk.backend && !shares_memory;
        let mut found: Vec<(&Record, &Device)> = self
            .of(pool)
            .flat_map(|device| device.records.iter().map(move |record| (record, device)))
            .filter(|(record, _)| is_it(&record.placed) || is_other(&record.placed))
            .collect();
        let is_both = |placed: &Placed| is_it(placed) && is_other(placed);
        // The start that moves a disk says so before it serves it, and may fail then.
        let records: Vec<&Record> = found.iter().map(|(record, _)| *record).collect();
        let is_over = |record: &Record| {
            let is_served = |it: &Record| record.placed.was_served_at(&it.placed);
            record.is_of_the_past && records.iter().any(|it| !it.is_of_the_past && is_served(it))
        };
        found.sort_by_key(|(record, _)| {
            let placed = &record.placed;
            let opened = if is_both(placed) { placed.opened } else { 0 };
            let is_needed = placed.is_needed();
            (!is_over(record), is_both(placed), is_it(placed), opened, is_needed, placed.opened)
        });
        let Some((record, chosen)) = found.pop() else { return Ok(None) };
        if !record.is_sure() && self.unreadable(pool).is_some() {
            return Ok(None);
        }
        let is_passed_by = |(record, device): &&(&Record, &Device)| {
            let placed = &record.placed;
            let is_needed = placed.has_log || placed.is_needed() && !is_over(record);
            is_needed && is_other(placed) && device.path != chosen.path
        };
        match found.iter().find(is_passed_by) {
            None => Ok(Some(chosen.path.clone())),
            Some((_, device)) => Err(format!(
                "both {} and {} have it, and the second one has writes that are not on primary storage, or reservations: say \
                 with a path in 'flash' which one is right",
                chosen.path.display(),
                device.path.display()
            )),
        }
    }

    /// Why a disk without a record may have one all the same.
    fn unreadable(&self, pool: &PoolSpec) -> Option<String> {
        let wrong = |path: &PathBuf| Some(told(path, self.0.get(path)?.as_ref().err()?));
        let why = pool.devices.iter().find_map(wrong)?;
        Some(format!(
            "{why}. The disk is on no other device of the pool '{0}' for sure, and may be on that one. When that device is back, \
             Forebay serves the disk within seconds. If it is gone for ever, take it out of the pool's devices in the \
             configuration file",
            pool.name
        ))
    }

    /// Takes off what disks are to have.
    fn take(&mut self, disks: &[DiskSpec]) {
        for flash in disks.iter().filter_map(|disk| disk.flash.as_ref()) {
            let devices = self.0.values_mut().filter_map(|found| found.as_mut().ok());
            for device in devices.filter(|device| device.path == flash.path) {
                device.left -= i128::from(flash.bytes);
            }
        }
    }

    /// The device where most is left.
    fn emptiest<'a>(&'a self, pool: &'a PoolSpec) -> Option<&'a PathBuf> {
        // Of several with as much, the one that comes first.
        self.of(pool).min_by_key(|device| -device.left).map(|device| &device.path)
    }
}

#[cfg(test)]
mod tests;
