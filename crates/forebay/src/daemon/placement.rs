//! Which device of its pool the flash of a disk is on.
//!
//! ```text
//!   flash = "fast:64GiB" ─┬─ a device of 'fast' has the disk's record ─► there, where it was opened last
//!                         ├─ it is in force on one of them ───────────► there
//!                         └─ neither ─► where most is left, what other disks are to have taken off
//! ```
//! Where a disk is, is written nowhere but on the device itself. So a disk that moved, or was about to when the host
//! died, is found where it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use forebay_host::pool::report::{self, Placed};
use forebay_host::pool::{self, SharedPool};

use crate::config::pools::PoolSpec;
use crate::config::{DaemonSpec, DiskSpec};

/// Gives each disk of a pool one of its devices; may wait for them. `in_force` are the disks of a daemon that runs, and
/// `open` the devices that it has open. What is worth telling.
pub(crate) fn place(
    spec: &mut DaemonSpec,
    in_force: &[DiskSpec],
    open: &[(PathBuf, SharedPool)],
) -> Vec<String> {
    let mut devices = Devices::default();
    let mut news = Vec::new();
    let asked = spec.disks.iter().filter_map(|disk| pool_of(&spec.pools, disk));
    let asked: Vec<PoolSpec> = asked.cloned().collect();
    for path in asked.iter().flat_map(|pool| &pool.devices) {
        news.extend(devices.look(path, open));
    }
    for disk in &mut spec.disks {
        if let Some(pool) = pool_of(&asked, disk) {
            let found = devices.with(pool, disk).or_else(|| in_force_on(pool, disk, in_force));
            put(disk, found);
        }
    }
    devices.take(&spec.disks);
    for disk in &mut spec.disks {
        if let Some(pool) = pool_of(&asked, disk) {
            let emptiest = devices.emptiest(pool);
            put(disk, emptiest);
            devices.take(std::slice::from_ref(disk));
        }
    }
    news
}

/// Gives each disk of a pool the device that it has in a daemon that runs, as far as it has one; looks at no device.
pub(super) fn keep(spec: &mut DaemonSpec, in_force: &[DiskSpec]) {
    for disk in &mut spec.disks {
        if let Some(pool) = pool_of(&spec.pools, disk) {
            let known = in_force_on(pool, disk, in_force);
            put(disk, known);
        }
    }
}

/// The pool that a disk asks for, as long as it has no device of it.
fn pool_of<'a>(pools: &'a [PoolSpec], disk: &DiskSpec) -> Option<&'a PoolSpec> {
    let flash = disk.flash.as_ref()?;
    pools.iter().find(|pool| pool.is_asked_for(flash))
}

fn in_force_on(pool: &PoolSpec, disk: &DiskSpec, in_force: &[DiskSpec]) -> Option<PathBuf> {
    let known = in_force.iter().find(|it| it.name == disk.name)?.flash.as_ref()?;
    pool.devices.contains(&known.path).then(|| known.path.clone())
}

fn put(disk: &mut DiskSpec, device: Option<PathBuf>) {
    if let (Some(flash), Some(device)) = (&mut disk.flash, device) {
        flash.path = device;
    }
}

#[derive(Debug, Default)]
struct Devices(BTreeMap<PathBuf, Device>);

/// A device of a pool, as it was found.
#[derive(Debug)]
struct Device {
    disks: Vec<Placed>,
    /// Bytes that no disk is to have; negative: they are to have more than there is. `None`: it cannot be looked at.
    left: Option<i128>,
}

impl Devices {
    /// Looks at a device, once. What is wrong with it.
    fn look(&mut self, path: &Path, open: &[(PathBuf, SharedPool)]) -> Option<String> {
        if self.0.contains_key(path) {
            return None;
        }
        let known = open.iter().find(|(at, _)| at == path);
        let found = match known {
            Some((_, known)) => Ok(report::placed(&pool::lock(known))),
            None => report::placed_at(path),
        };
        let (device, wrong) = match found {
            Ok((disks, room)) => (Device { disks, left: Some(room.into()) }, None),
            Err(error) => {
                let text = format!(
                    "the flash {} cannot be looked at: {error:#}. A disk that no other device of its pool has begins anew on one \
                     of them; it is refused if it has writes that are not on primary storage yet",
                    path.display()
                );
                (Device { disks: Vec::new(), left: None }, Some(text))
            }
        };
        self.0.insert(path.to_owned(), device);
        wrong
    }

    /// The device that has a disk's record; of several the one where it was opened last.
    fn with(&self, pool: &PoolSpec, disk: &DiskSpec) -> Option<PathBuf> {
        let known = pool.devices.iter().filter_map(|path| Some((path, self.0.get(path)?)));
        let records = known.flat_map(|(path, device)| {
            let of_disk = device.disks.iter().filter(|it| it.name == disk.name.0);
            of_disk.map(move |it| ((it.opened, it.has_log), path))
        });
        records.max_by_key(|(last, _)| *last).map(|(_, path)| path.clone())
    }

    /// Takes off what disks are to have.
    fn take(&mut self, disks: &[DiskSpec]) {
        for flash in disks.iter().filter_map(|disk| disk.flash.as_ref()) {
            if let Some(left) = self.0.get_mut(&flash.path).and_then(|it| it.left.as_mut()) {
                *left -= i128::from(flash.bytes);
            }
        }
    }

    /// The device where most is left; the first one, when none can be looked at.
    fn emptiest(&self, pool: &PoolSpec) -> Option<PathBuf> {
        let left = |path: &&PathBuf| self.0.get(*path).and_then(|device| device.left);
        // Of several with as much, the one that comes first.
        pool.devices.iter().rev().max_by_key(left).cloned()
    }
}

#[cfg(test)]
mod tests;
