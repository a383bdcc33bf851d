//! Pools of several devices: a disk whose flash is in one has its share on one of its devices.
//!
//! ```toml
//! [[pool]]
//! name = "fast"
//! devices = ["/dev/nvme0n1", "/dev/nvme1n1"]
//!
//! [[disk]]
//! flash = "fast:64GiB"
//! ```
//! Which device that is, is no setting: `daemon/placement.rs` finds it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::DiskSpec;
use super::values::{Flash, Name, ValueError};

/// A pool of several devices.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "pool")]
pub struct PoolSpec {
    /// Name of the pool: what disks give in place of a path, as in `flash = "NAME:64GiB"`
    pub name: Name,
    /// Files and block devices with absolute paths. Each disk has its flash on one of them
    pub devices: Vec<PathBuf>,
}

impl PoolSpec {
    /// Whether a share of flash is to be on any device of this pool.
    pub fn is_asked_for(&self, flash: &Flash) -> bool {
        flash.path.as_os_str() == self.name.0.as_str()
    }
}

/// Whether two paths lead to one place.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path);
    one == other || matches!((real(one), real(other)), (Ok(one), Ok(other)) if one == other)
}

/// Finds what cannot work, whatever the devices are.
///
/// # Errors
/// What is wrong, and with which pool.
pub(super) fn check(pools: &[PoolSpec], disks: &[DiskSpec]) -> Result<(), ValueError> {
    let (mut names, mut devices) = (BTreeSet::new(), BTreeSet::new());
    for PoolSpec { name, devices: of_pool } in pools {
        let wrong = |why: &str| Err(ValueError(format!("[[pool]] '{name}' {why}")));
        if !names.insert(name) {
            return wrong("is there twice; names must differ");
        }
        if of_pool.is_empty() {
            return wrong("has no device: give devices = [\"/dev/nvme0n1\"]");
        }
        for device in of_pool {
            let shown = device.display();
            if !device.is_absolute() {
                return wrong(&format!("has the device '{shown}': give its absolute path"));
            }
            if !devices.insert(device) {
                return wrong(&format!("has the device {shown}, which is there twice"));
            }
        }
    }
    if pools.is_empty() {
        return Ok(());
    }
    for disk in disks {
        let Some(flash) = &disk.flash else { continue };
        let is_path = flash.path.as_os_str().as_encoded_bytes().contains(&b'/');
        if !is_path && !pools.iter().any(|pool| pool.is_asked_for(flash)) {
            let known: Vec<&str> = names.iter().map(|name| name.0.as_str()).collect();
            return Err(ValueError(format!(
                "disk '{}': there is no pool '{}'; pools: {}. A file in this folder is ./{1}",
                disk.name,
                flash.path.display(),
                known.join(", ")
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
