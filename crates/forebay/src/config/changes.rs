//! Changes that were made while a daemon ran, kept in its state folder. They count more than the configuration file.
//!
//! ```text
//!   disk add, set, reset, remove ─┐
//!   pool add-device, drain ───────┴► Changes ──► NAME.changes.toml
//!   forebay.toml ──┐                    │
//!                  └──── merged with ◄──┘──► DaemonSpec, at a start and at a reload
//! ```
//! The file has the shape of a configuration file: a `[[disk]]` table has the settings of a disk that were changed, or all
//! of a disk that was added; `removed` lists disks that the configuration file has and that are not served. A `[[pool]]`
//! table has the devices that a pool has gained, and those that were drained. A `[[unit]]` table has the number of a logical
//! unit, where the place of its disk in the configuration file does not say it: so no unit gets the number of another one, also
//! of one that has gone, before all 256 were used. Those that have gone come first, in the order in which they went.
//!
//! What the configuration file says as well is no change: it is dropped when the file is read again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use toml::{Table, Value};

use super::iscsi::{IscsiName, IscsiSpec};
use super::name_from_backend;
use super::pools::is_same;
use super::values::Name;

/// What the file begins with.
const HEAD: &str = "\
# Changes that were made while Forebay ran. They count more than its configuration file.
# 'forebay config save' writes them there. 'forebay disk reset' takes those of a disk back.
";

/// Settings that are for one value of another one alone.
const BESIDE: [(&str, &str, &[&str]); 2] = [
    ("flush-semantics", "deferred", &["max-dirty-age", "accept-data-loss"]),
    ("destage-order", "journaled", &["destage-journal"]),
];

/// The settings of a disk that a change leaves without a meaning. Given before it, they go; given with it, they are a mistake.
pub(super) fn left_idle(change: &Table) -> impl Iterator<Item = &'static str> {
    let is_other = |key, value| change.get(key).is_some_and(|it| it.as_str() != Some(value));
    BESIDE
        .into_iter()
        .filter(move |&(key, value, _)| is_other(key, value))
        .flat_map(|it| it.2)
        .copied()
}

/// Lays a change of a disk over the settings that it has.
fn lay_over(disk: &mut Table, change: &Table) {
    for key in left_idle(change) {
        disk.remove(key);
    }
    disk.extend(change.clone());
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Changes {
    /// Names of disks of the configuration file that are not served.
    removed: Vec<Name>,
    /// Settings of disks, each with its name.
    disk: Vec<Table>,
    /// Pools whose devices were changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pool: Vec<PoolChange>,
    /// Numbers of logical units of targets that have all disks, also of disks that have gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unit: Vec<UnitNumber>,
}

/// The number of a logical unit.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct UnitNumber {
    /// Name of its target.
    target: String,
    disk: Name,
    lun: u16,
}

/// Devices of a pool that came and went.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolChange {
    name: Name,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    added: Vec<PathBuf>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    drained: Vec<PathBuf>,
}

impl Changes {
    /// What the file at `path` has; nothing where there is none.
    ///
    /// # Errors
    /// It cannot be read, or is not such a file.
    pub fn load(path: &Path) -> Result<Changes> {
        let read = || -> Result<Changes> {
            let text = match fs::read_to_string(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Changes::default());
                }
                text => text?,
            };
            let changes: Changes = super::file::from_toml(&text)?;
            let is_named = |table: &Table| name_in(table).is_some();
            ensure!(changes.disk.iter().all(is_named), "a [[disk]] table has no name");
            Ok(changes)
        };
        read().with_context(|| {
            format!(
                "the changes that were made while Forebay ran, in {}, cannot be used; to start without them, move that file away",
                path.display()
            )
        })
    }

    /// Keeps them at `path`, durably; without changes there is no file.
    ///
    /// # Errors
    /// The kernel's.
    pub fn store(&self, path: &Path) -> io::Result<()> {
        if self.is_nothing() {
            return forebay_host::fence::remove(path);
        }
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        let text = self.text().map_err(io::Error::other)?;
        forebay_host::fence::replace(path, text.as_bytes()).map(drop)
    }

    /// The file's text.
    ///
    /// # Errors
    /// A value has no form in such a file.
    pub fn text(&self) -> Result<String, toml::ser::Error> {
        Ok(HEAD.to_owned() + &toml::to_string(self)?)
    }

    /// True when nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.disk.is_empty() && self.pool.is_empty()
    }

    /// The numbers of units of a target that their places in a list do not say; the one whose disk has gone first comes first.
    pub fn units_of(&self, target: &IscsiName) -> Vec<(Name, u16)> {
        let units = self.unit.iter().filter(|unit| unit.target == target.0);
        units.map(|unit| (unit.disk.clone(), unit.lun)).collect()
    }

    /// True when there is nothing in it, not even the number of a unit.
    pub fn is_nothing(&self) -> bool {
        *self == Changes::default()
    }

    /// True when units have other numbers than their places in a list say.
    pub fn has_units(&self) -> bool {
        !self.unit.is_empty()
    }

    /// Notes which numbers units of `targets` have, where `file` does not say so: they keep them. Who had one before has it no
    /// more.
    pub fn note_units(&mut self, file: &Table, targets: &[IscsiSpec]) {
        for target in targets.iter().filter(|target| has_all_disks(file, &target.target)) {
            let has = |unit: &UnitNumber| {
                target.luns.iter().any(|(lun, disk)| *lun == unit.lun || *disk == unit.disk)
            };
            let is_here = |unit: &mut UnitNumber| unit.target == target.target.0 && has(unit);
            let here: Vec<UnitNumber> = self.unit.extract_if(.., is_here).collect();
            for (&lun, disk) in &target.luns {
                let is_known = here.iter().any(|unit| unit.disk == *disk);
                if is_known || place_of(file, disk) != Some(lun.into()) {
                    let target = target.target.0.clone();
                    self.unit.push(UnitNumber { target, disk: disk.clone(), lun });
                }
            }
        }
    }

    /// Pool `name` has this device, too.
    pub fn add_device(&mut self, name: &Name, device: &Path) {
        let pool = self.pool(name);
        let was_drained = pool.drained.len();
        pool.drained.retain(|it| !is_same(it, device));
        if pool.drained.len() == was_drained {
            pool.added.push(device.to_owned());
        }
        self.tidy();
    }

    /// Pool `name` has this device no more.
    pub fn drain_device(&mut self, name: &Name, device: &Path) {
        let pool = self.pool(name);
        let was_added = pool.added.len();
        pool.added.retain(|it| !is_same(it, device));
        if pool.added.len() == was_added {
            pool.drained.push(device.to_owned());
        }
        self.tidy();
    }

    fn pool(&mut self, name: &Name) -> &mut PoolChange {
        let at = self.pool.iter().position(|pool| pool.name == *name).unwrap_or_else(|| {
            let (added, drained) = (Vec::new(), Vec::new());
            self.pool.push(PoolChange { name: name.clone(), added, drained });
            self.pool.len() - 1
        });
        &mut self.pool[at]
    }

    /// True when the devices of pool `name` were changed.
    pub fn has_pool(&self, name: &Name) -> bool {
        self.pool.iter().any(|pool| pool.name == *name)
    }

    /// Pools whose devices were changed, and that the configuration file does not have.
    pub fn waiting_pools(&self, file: &Table) -> Vec<Name> {
        let names = self.pool.iter().map(|pool| pool.name.clone());
        names.filter(|name| find_in(file, "pool", name).is_none()).collect()
    }

    /// Disk `name` has these settings; others keep what they are.
    pub fn set(&mut self, name: &Name, settings: &Table) {
        lay_over(self.entry(name), settings);
    }

    /// Disk `name` is new. What was changed of another one of that name is not of it.
    pub fn add(&mut self, name: &Name, settings: &Table) {
        self.reset(name, &[]);
        self.set(name, settings);
    }

    /// Disk `name` is not served any more. `is_listed`: the configuration file has it.
    pub fn remove(&mut self, name: &Name, is_listed: bool) {
        self.disk.retain(|table| name_in(table).as_ref() != Some(name));
        if is_listed && !self.removed.contains(name) {
            self.removed.push(name.clone());
        }
    }

    /// Takes back what was changed of disk `name`: all, or these settings; false when nothing was.
    pub fn reset(&mut self, name: &Name, keys: &[String]) -> bool {
        let before = self.clone();
        if keys.is_empty() {
            self.removed.retain(|it| it != name);
            self.disk.retain(|table| name_in(table).as_ref() != Some(name));
        } else {
            let of_disk =
                self.disk.iter_mut().filter(|table| name_in(table).as_ref() == Some(name));
            of_disk.for_each(|table| {
                table.retain(|key, _| key == "name" || !keys.iter().any(|it| it == key))
            });
        }
        self.tidy();
        *self != before
    }

    /// The settings of disk `name` that were changed.
    pub fn of(&self, name: &Name) -> Option<&Table> {
        self.disk.iter().find(|table| name_in(table).as_ref() == Some(name))
    }

    /// The disks of which settings were changed, with these.
    pub fn disks(&self) -> impl Iterator<Item = (Name, &Table)> {
        self.disk.iter().filter_map(|table| Some((name_in(table)?, table)))
    }

    /// The disks of the configuration file that were removed.
    pub fn removed(&self) -> &[Name] {
        &self.removed
    }

    /// Drops what `file`, a configuration file, says as well.
    pub fn settle(&mut self, file: &Table) {
        self.removed.retain(|name| find(file, name).is_some());
        for table in &mut self.disk {
            if let Some(listed) = name_in(table).and_then(|name| find(file, &name)) {
                table.retain(|key, value| key == "name" || listed.get(key) != Some(value));
            }
        }
        self.unit.retain(|unit| {
            let target = IscsiName(unit.target.clone());
            let by_place = place_of(file, &unit.disk) == Some(unit.lun.into());
            !(says_numbers(file, &target) || by_place && has_all_disks(file, &target))
        });
        for pool in &mut self.pool {
            if let Some(listed) = find_in(file, "pool", &pool.name) {
                let listed = devices(listed);
                let is_listed = |device: &PathBuf| listed.iter().any(|it| is_same(it, device));
                pool.added.retain(|device| !is_listed(device));
                pool.drained.retain(is_listed);
            }
        }
        self.tidy();
    }

    /// Changes of disks that the configuration file does not have, so that they wait for it.
    pub fn waiting(&self, file: &Table) -> Vec<Name> {
        let is_waiting = |table: &&Table| {
            let is_listed = name_in(table).is_some_and(|name| find(file, &name).is_some());
            !is_listed && !table.contains_key("backend")
        };
        self.disk.iter().filter(is_waiting).filter_map(name_in).collect()
    }

    /// The configuration file with what was changed laid over it. Disks that were removed are still in it.
    pub fn merged(&self, file: &Table) -> Table {
        let mut merged = file.clone();
        let disks = merged.entry("disk").or_insert_with(|| Value::Array(Vec::new()));
        let Value::Array(disks) = disks else { return merged };
        for change in &self.disk {
            let name = name_in(change);
            let is_it = |disk: &&mut Value| disk.as_table().and_then(name_in) == name;
            match disks.iter_mut().find(is_it).and_then(Value::as_table_mut) {
                Some(disk) => lay_over(disk, change),
                None if change.contains_key("backend") => disks.push(Value::Table(change.clone())),
                None => {}
            }
        }
        let pools = merged.get_mut("pool").and_then(Value::as_array_mut).into_iter().flatten();
        for table in pools.filter_map(Value::as_table_mut) {
            let name = name_in(table);
            for change in self.pool.iter().filter(|pool| name.as_ref() == Some(&pool.name)) {
                let mut all = devices(table);
                all.retain(|device| !change.drained.iter().any(|it| is_same(it, device)));
                all.extend(change.added.iter().cloned());
                let shown = |path: PathBuf| Value::String(path.display().to_string());
                let all = Value::Array(all.into_iter().map(shown).collect());
                table.insert("devices".to_owned(), all);
            }
        }
        merged
    }

    /// A table with nothing but a name says nothing.
    fn tidy(&mut self) {
        self.disk.retain(|table| table.keys().any(|key| key != "name"));
        self.pool.retain(|pool| !pool.added.is_empty() || !pool.drained.is_empty());
    }

    fn entry(&mut self, name: &Name) -> &mut Table {
        let found = self.disk.iter().position(|table| name_in(table).as_ref() == Some(name));
        let at = found.unwrap_or_else(|| {
            let named = ("name".to_owned(), Value::String(name.to_string()));
            self.disk.push(Table::from_iter([named]));
            self.disk.len() - 1
        });
        &mut self.disk[at]
    }
}

/// The devices of a `[[pool]]` table.
fn devices(pool: &Table) -> Vec<PathBuf> {
    let devices = pool.get("devices").and_then(Value::as_array).into_iter().flatten();
    devices.filter_map(|device| device.as_str().map(PathBuf::from)).collect()
}

/// The disk called `name` of a configuration file.
pub fn find<'a>(file: &'a Table, name: &Name) -> Option<&'a Table> {
    find_in(file, "disk", name)
}

/// The table called `name` among those that a configuration file has under `key`.
fn find_in<'a>(file: &'a Table, key: &str, name: &Name) -> Option<&'a Table> {
    let mut tables = file.get(key)?.as_array()?.iter().filter_map(Value::as_table);
    tables.find(|table| name_in(table).as_ref() == Some(name))
}

/// The place of a disk among those of a configuration file.
fn place_of(file: &Table, disk: &Name) -> Option<usize> {
    let disks = file.get("disk")?.as_array()?;
    disks.iter().position(|table| table.as_table().and_then(name_in).as_ref() == Some(disk))
}

/// True when a configuration file has this target, and lists no disks of it: it has all.
fn has_all_disks(file: &Table, target: &IscsiName) -> bool {
    let found = target_in(file, target);
    found.is_some_and(|table| !table.contains_key("disks") && !table.contains_key("luns"))
}

/// True when a configuration file says which number each unit of this target has.
fn says_numbers(file: &Table, target: &IscsiName) -> bool {
    target_in(file, target).is_some_and(|table| table.contains_key("luns"))
}

fn target_in<'a>(file: &'a Table, target: &IscsiName) -> Option<&'a Table> {
    let mut targets = file.get("iscsi")?.as_array()?.iter().filter_map(Value::as_table);
    targets.find(|table| table.get("target").and_then(Value::as_str) == Some(&target.0))
}

/// The name of a `[[disk]]` or `[[pool]]` table.
pub fn name_in(disk: &Table) -> Option<Name> {
    let text = |key| disk.get(key).and_then(Value::as_str);
    match text("name") {
        Some(name) => name.parse().ok(),
        None => text("backend").map(name_from_backend),
    }
}

#[cfg(test)]
mod tests;
