//! What a configuration changes of the one that is in force, and what is in force when a running daemon has taken it over.

use std::collections::BTreeMap;
use std::fmt;

use forebay_backends::Uri;

use super::iscsi::IscsiSpec;
use super::settings::Setting;
use super::values::Name;
use super::{DaemonSpec, DiskSpec, ListenerSpec};

/// One difference.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// A disk that is new.
    Added(Name),
    /// A disk that is not listed any more.
    Removed(Name),
    /// A disk has other settings, which it takes over at work.
    Changed(Name, Vec<Setting>),
    /// A disk has other settings, and is opened again with them, beneath its clients.
    OpenedAgain(Name, Vec<Setting>, Left),
    /// Disks are found at other addresses.
    Listeners,
    /// Settings, by their keys, of a disk or of the daemon, that a start alone can change.
    AtNextStart(Option<Name>, Vec<&'static str>),
    /// Such settings of a disk that is not served, which is opened with them.
    Unserved(Name, Vec<&'static str>),
}

impl Difference {
    /// The disk that it is about.
    pub fn disk(&self) -> Option<&Name> {
        match self {
            Difference::Added(disk)
            | Difference::Removed(disk)
            | Difference::Changed(disk, _)
            | Difference::OpenedAgain(disk, ..)
            | Difference::Unserved(disk, _) => Some(disk),
            Difference::AtNextStart(disk, _) => disk.as_ref(),
            Difference::Listeners => None,
        }
    }

    /// What it is, in one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Difference::Added(_) => "added",
            Difference::Removed(_) => "removed",
            Difference::Changed(..) | Difference::Unserved(..) => "changed",
            Difference::OpenedAgain(..) => "opened-again",
            Difference::Listeners => "listeners",
            Difference::AtNextStart(..) => "at-next-start",
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Added(_) => f.write_str("it is new: it is opened and served"),
            Difference::Removed(_) => f.write_str(
                "it is not listed any more: it is destaged, detached and leaves its pool",
            ),
            Difference::Changed(_, settings) => f.write_str(&in_words(settings)),
            Difference::OpenedAgain(_, settings, left) => {
                let left = match left {
                    Left::Flash => "RAM begins empty",
                    Left::FlashThatFits => {
                        "RAM begins empty; flash keeps what its new size has room for, unless its pool has to be made anew"
                    }
                    Left::Nothing => "what is cached is dropped",
                };
                let settings = in_words(settings);
                write!(
                    f,
                    "{settings}: the disk is opened again, its clients wait meanwhile, and {left}"
                )
            }
            Difference::Listeners => f.write_str("clients find disks at other addresses"),
            Difference::AtNextStart(_, keys) => {
                write!(f, "what is said of {} is in force after a restart", keys.join(", "))
            }
            Difference::Unserved(_, keys) => write!(
                f,
                "what is said of {} is in force at once, as the disk is not served: it is tried with that",
                keys.join(", ")
            ),
        }
    }
}

/// What is left of a cache when its disk is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// All that is on flash.
    Flash,
    /// As much of that as the cache has slots for, where it lies.
    FlashThatFits,
    /// Nothing.
    Nothing,
}

impl Left {
    fn of(before: &DiskSpec, after: &DiskSpec) -> Left {
        let blocks = |disk: &DiskSpec| (disk.block_size, disk.grid_offset);
        // Nothing proves that an export or a device is as it was.
        let is_silent = matches!(before.backend.parse(), Ok(Uri::Nbd(_) | Uri::Block(_)));
        let is_proven = !is_silent || after.backend_exclusive;
        if blocks(before) != blocks(after) || !is_same_pool(before, after) || !is_proven {
            Left::Nothing
        } else if before.flash_cache_bytes() != after.flash_cache_bytes() {
            Left::FlashThatFits
        } else {
            Left::Flash
        }
    }
}

/// Settings, and what each becomes.
pub fn in_words(settings: &[Setting]) -> String {
    let each = settings.iter().map(|(key, value)| format!("{key} becomes {value}"));
    each.collect::<Vec<_>>().join(", ")
}

/// What is otherwise in `new`: what comes before what goes, so that there is a disk all the time.
pub fn differences(old: &DaemonSpec, new: &DaemonSpec) -> Vec<Difference> {
    let missing = |disk: &&DiskSpec, from: &DaemonSpec| find(from, &disk.name).is_none();
    let added = new.disks.iter().filter(|disk| missing(disk, old));
    let mut found: Vec<_> = added.map(|disk| Difference::Added(disk.name.clone())).collect();
    let gone = old.disks.iter().filter(|disk| missing(disk, new));
    found.extend(gone.map(|disk| Difference::Removed(disk.name.clone())));
    for (before, disk) in new.disks.iter().filter_map(|it| Some((find(old, &it.name)?, it))) {
        let [mut online, mut opened, mut at_start] = before.changed(disk);
        // A target that the file does not list any more is served until a restart.
        let is_in_target = is_unit(old, disk) || is_unit(new, disk);
        let leaves_unit = is_in_target && !is_same_pool(before, disk);
        if leaves_unit || !outlives_its_opening(disk) {
            at_start.append(&mut opened);
        }
        if !opened.is_empty() {
            // All of it, or nothing.
            opened.append(&mut online);
        }
        if !online.is_empty() {
            found.push(Difference::Changed(disk.name.clone(), online));
        }
        if !opened.is_empty() {
            let left = Left::of(before, disk);
            found.push(Difference::OpenedAgain(disk.name.clone(), opened, left));
        }
        if !at_start.is_empty() {
            let keys = at_start.into_iter().map(|(key, _)| key).collect();
            found.push(Difference::AtNextStart(Some(disk.name.clone()), keys));
        }
    }
    // Each disk brings its own listeners, and takes them with it.
    if places(old, new) != places(new, old) {
        found.push(Difference::Listeners);
    }
    let settings = [
        // Without a number it follows from the disks, which come and go at work.
        ("shards", old.shards_asked != new.shards_asked && old.shards != new.shards),
        ("reactor", old.reactor != new.reactor),
        ("name", old.name != new.name),
        ("http", old.http != new.http),
        ("control", old.control != new.control),
        ("state-dir", old.state_dir != new.state_dir),
        ("iscsi", targets(old, new) != new.targets || target_stays(old, new)),
        ("mode and group of sockets", differs_at_places(old, new, |a, b| a.address != b.address)),
        (
            "connections-max",
            differs_at_places(old, new, |a, b| a.connections_max != b.connections_max),
        ),
    ];
    let changed: Vec<_> =
        settings.iter().filter(|(_, is_other)| *is_other).map(|(key, _)| *key).collect();
    if !changed.is_empty() {
        found.push(Difference::AtNextStart(None, changed));
    }
    found
}

/// What is in force when a daemon that runs with `old` has taken `new` over: disks that go are still there, others have the
/// settings that they were opened with.
pub fn in_force(old: &DaemonSpec, new: &DaemonSpec) -> DaemonSpec {
    let known = |disk: &DiskSpec| find(old, &disk.name).unwrap_or(disk).clone();
    let staying: Vec<&DiskSpec> =
        old.disks.iter().filter(|disk| find(new, &disk.name).is_none()).collect();
    let mut spec = DaemonSpec {
        disks: new.disks.iter().map(known).chain(staying.iter().copied().cloned()).collect(),
        listeners: new.listeners.clone(),
        targets: targets(old, new),
        pools: new.pools.clone(),
        sources: new.sources.clone(),
        ..old.clone()
    };
    for listener in &mut spec.listeners {
        // Whoever listens there goes on as it is.
        if let Some(there) = old.listeners.iter().find(|it| it.place() == listener.place()) {
            listener.address.clone_from(&there.address);
            listener.connections_max = there.connections_max;
        }
    }
    for listener in &old.listeners {
        // Clients of a disk that stays find it where they did, and no other disk there that is elsewhere by now.
        let stays = |name: &&Name| staying.iter().any(|disk| disk.name == **name);
        let disks: Vec<Name> = listener.disks.iter().filter(stays).cloned().collect();
        match spec.listeners.iter_mut().find(|it| it.place() == listener.place()) {
            Some(there) => there.disks.extend(disks),
            None if disks.is_empty() => {}
            None => spec.listeners.push(ListenerSpec { disks, ..listener.clone() }),
        }
    }
    let is_new = |target: &&IscsiSpec| spec.targets.iter().all(|it| it.target != target.target);
    let left: Vec<IscsiSpec> = old.targets.iter().filter(is_new).cloned().collect();
    spec.targets.extend(left);
    spec
}

/// The configuration without a disk that has gone.
pub fn without(spec: &DaemonSpec, disk: &str) -> DaemonSpec {
    let mut spec = spec.clone();
    spec.disks.retain(|it| it.name.0 != disk);
    for listener in &mut spec.listeners {
        listener.disks.retain(|name| name.0 != disk);
    }
    spec.listeners.retain(|listener| !listener.disks.is_empty());
    for target in &mut spec.targets {
        target.luns.retain(|_, unit| unit.0 != disk);
    }
    spec.targets.retain(|target| !target.luns.is_empty());
    spec
}

/// The places of disks that both have, and these.
fn places(of: &DaemonSpec, other: &DaemonSpec) -> BTreeMap<String, Vec<Name>> {
    let is_common = |name: &&Name| find(of, name).is_some() && find(other, name).is_some();
    let common = |it: &ListenerSpec| it.disks.iter().filter(is_common).cloned().collect();
    let listeners = of.listeners.iter().map(|it| (it.place(), common(it)));
    listeners.filter(|(_, disks): &(_, Vec<Name>)| !disks.is_empty()).collect()
}

/// Whether a place where both listen has another limit, or lets others in: whoever listens there goes on as it is.
fn differs_at_places(
    old: &DaemonSpec,
    new: &DaemonSpec,
    is_other: impl Fn(&ListenerSpec, &ListenerSpec) -> bool,
) -> bool {
    new.listeners.iter().any(|it| {
        let mut before = old.listeners.iter().filter(|before| before.place() == it.place());
        before.any(|before| is_other(before, it))
    })
}

/// The targets of `new`, as far as a daemon that runs with `old` has them: units come and go with their disks, anything else
/// of a target is as it was.
fn targets(old: &DaemonSpec, new: &DaemonSpec) -> Vec<IscsiSpec> {
    let is_added = |unit: &Name| find(old, unit).is_none();
    let taken_over = |target: &IscsiSpec| {
        let Some(before) = old.targets.iter().find(|it| it.target == target.target) else {
            let is_whole = target.luns.values().all(is_added);
            return is_whole.then(|| target.clone());
        };
        let stays = |unit: &Name| find(new, unit).is_some();
        let of_before = before.luns.iter().filter(|(_, unit)| stays(unit));
        let of_now = target.luns.iter().filter(|(_, unit)| is_added(unit));
        // A number that a unit has stays its own: the one behind counts.
        let luns: BTreeMap<_, _> =
            of_now.chain(of_before).map(|(lun, unit)| (*lun, unit.clone())).collect();
        Some(IscsiSpec { luns, ..before.clone() })
    };
    new.targets.iter().filter_map(taken_over).collect()
}

/// Whether a target that `new` does not have any more has disks that it has.
fn target_stays(old: &DaemonSpec, new: &DaemonSpec) -> bool {
    let is_listed = |it: &IscsiSpec| new.targets.iter().any(|new| new.target == it.target);
    let has_disk = |it: &IscsiSpec| it.luns.values().any(|unit| find(new, unit).is_some());
    old.targets.iter().any(|target| !is_listed(target) && has_disk(target))
}

/// True when primary storage has its bytes while nobody has it open.
pub fn outlives_its_opening(disk: &DiskSpec) -> bool {
    disk.backend.parse::<Uri>().is_ok_and(|uri| uri.outlives_its_opening())
}

/// True when a disk is a logical unit: its pool keeps its reservations, and as a rule its name.
pub fn is_unit(spec: &DaemonSpec, disk: &DiskSpec) -> bool {
    spec.targets.iter().any(|it| it.luns.values().any(|unit| *unit == disk.name))
}

/// True when a disk has its record in the same pool as before, or in none.
pub fn is_same_pool(before: &DiskSpec, after: &DiskSpec) -> bool {
    let path = |disk: &DiskSpec| disk.flash.as_ref().map(|flash| flash.path.clone());
    path(before) == path(after)
}

fn find<'a>(spec: &'a DaemonSpec, name: &Name) -> Option<&'a DiskSpec> {
    spec.disks.iter().find(|disk| disk.name == *name)
}

#[cfg(test)]
mod tests;
