//! The numbers of logical units.

use super::*;
use crate::config::iscsi::numbered;

const ALL_AS_UNITS: &str = r#"
[[disk]]
name = "a"
backend = "mem:1MiB"

[[iscsi]]
listen = ["127.0.0.1:3260"]
target = "iqn.2026-11.local:all"
"#;

/// What is kept after this change, and the units by number.
fn kept(changes: &mut Changes, text: &str) -> Vec<(u16, String)> {
    let spec = with(changes, text);
    let units = spec.targets[0].luns.iter().map(|(lun, unit)| (*lun, unit.0.clone())).collect();
    *changes = spec.sources.expect("it has some").changes;
    units
}

fn units(of: &[(u16, &str)]) -> Vec<(u16, String)> {
    of.iter().map(|(lun, unit)| (*lun, (*unit).to_owned())).collect()
}

#[test]
fn no_unit_ever_gets_the_number_of_another_one() {
    let added = |changes: &mut Changes, disk: &str| {
        changes.add(&name(disk), &table("backend = \"mem:1MiB\""));
        kept(changes, ALL_AS_UNITS)
    };
    let mut changes = Changes::default();
    added(&mut changes, "b");
    assert_eq!(added(&mut changes, "c"), units(&[(0, "a"), (1, "b"), (2, "c")]));
    changes.remove(&name("b"), false);
    assert_eq!(kept(&mut changes, ALL_AS_UNITS), units(&[(0, "a"), (2, "c")]));
    // An initiator may still know unit 1 as the one that has gone.
    assert_eq!(added(&mut changes, "d"), units(&[(0, "a"), (2, "c"), (3, "d")]));
    assert_eq!(added(&mut changes, "b"), units(&[(0, "a"), (1, "b"), (2, "c"), (3, "d")]));
    // The file gains a disk, whose place is taken.
    let more = "[[disk]]\nname = \"e\"\nbackend = \"mem:1MiB\"\n";
    let text = ALL_AS_UNITS.replace("[[iscsi]]", &format!("{more}\n[[iscsi]]"));
    let now = kept(&mut changes, &text);
    assert_eq!(now, units(&[(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e")]));
    changes.remove(&name("b"), false);
    changes.remove(&name("a"), true);
    assert_eq!(kept(&mut changes, &text), units(&[(2, "c"), (3, "d"), (4, "e")]));
    let saved = check_saved(&changes, &text);
    assert!(saved.contains("luns = { 2 = \"c\", 3 = \"d\", 4 = \"e\" }"), "{saved}");
}

#[test]
fn units_keep_their_numbers_when_the_file_changes_under_a_daemon() {
    let of = |disks: &[&str], target: &str| {
        let disk = |name: &&str| {
            format!(
                "[[disk]]\nname = \"{name}\"\nbackend = \"mem:1MiB\"\nnbd = [\"unix:/{name}\"]\n"
            )
        };
        disks.iter().map(disk).collect::<String>() + target
    };
    let all = "[[iscsi]]\nlisten = [\"h:3260\"]\ntarget = \"iqn.2026-11.local:all\"\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.toml");
    let write = |text: &str| {
        fs::write(&path, format!("state-dir = \"{}\"\n{text}", folder.path().display())).unwrap();
    };
    let reload = |before: &DaemonSpec, text: &str| {
        write(text);
        let spec = file::load_again(&path, before).unwrap();
        spec.sources.as_ref().unwrap().keep().unwrap();
        spec
    };
    let numbers = |spec: &DaemonSpec| -> Vec<(u16, String)> {
        spec.targets.iter().flat_map(|it| &it.luns).map(|(lun, it)| (*lun, it.0.clone())).collect()
    };
    write(&of(&["a", "b", "c"], all));
    let spec = file::load(&path).unwrap();
    let spec = reload(&spec, &of(&["a", "c"], all));
    assert_eq!(numbers(&spec), units(&[(0, "a"), (2, "c")]));
    let spec = reload(&spec, &of(&["a", "c", "d"], all));
    assert_eq!(numbers(&spec), units(&[(0, "a"), (2, "c"), (3, "d")]));
    // The target is out of the file for a while.
    let spec = reload(&spec, &of(&["a", "c", "d"], ""));
    assert!(numbers(&spec).is_empty());
    let spec = reload(&spec, &of(&["a", "c", "d", "e"], all));
    assert_eq!(numbers(&spec), units(&[(0, "a"), (2, "c"), (3, "d"), (4, "e")]));
    assert_eq!(numbers(&file::load(&path).unwrap()), numbers(&spec), "a restart knows it");
}

#[test]
fn numbers_of_units_that_cannot_be_kept_are_given_anew() {
    let text = "[[unit]]\ntarget = \"iqn.2026-11.local:all\"\n";
    let unit = |disk: &str, lun: u32| format!("{text}disk = \"{disk}\"\nlun = {lun}\n");
    let mut changes: Changes =
        toml::from_str(&(unit("a", 65535) + &unit("b", 3) + &unit("c", 3))).unwrap();
    for disk in ["b", "c"] {
        changes.add(&name(disk), &table("backend = \"mem:1MiB\""));
    }
    assert_eq!(kept(&mut changes, ALL_AS_UNITS), units(&[(3, "b"), (4, "a"), (5, "c")]));
    for number in 0..253 {
        changes.add(&name(&format!("n{number}")), &table("backend = \"mem:1MiB\""));
    }
    assert_eq!(kept(&mut changes, ALL_AS_UNITS).len(), 256);
}

#[test]
fn targets_in_one_array_are_not_saved_where_units_would_get_other_numbers() {
    let text = "iscsi = [{ listen = [\"127.0.0.1:3260\"], target = \"iqn.2026-11.local:all\" }]\n"
        .to_owned()
        + "[[disk]]\nname = \"a\"\nbackend = \"mem:1MiB\"\n[[disk]]\nname = \"b\"\nbackend = \"mem:1MiB\"\n";
    let mut changes = Changes::default();
    changes.remove(&name("a"), true);
    let error = with_changes(&text, &changes).unwrap_err().to_string();
    assert!(error.contains("use an [[iscsi]] table"), "{error}");
}

/// As [`kept`] after a disk was added, or removed; the number of the one that was added.
fn added(changes: &mut Changes, disk: &str) -> u16 {
    changes.add(&name(disk), &table("backend = \"mem:1MiB\""));
    let units = kept(changes, ALL_AS_UNITS);
    units.iter().find(|(_, unit)| unit == disk).unwrap().0
}

fn removed(changes: &mut Changes, disk: &str) {
    changes.remove(&name(disk), false);
    kept(changes, ALL_AS_UNITS);
}

#[test]
fn beyond_255_the_number_is_that_of_the_disk_that_has_gone_first() {
    let mut changes = Changes::default();
    for number in 1..256 {
        assert_eq!(added(&mut changes, &format!("n{number}")), number);
    }
    for disk in ["n7", "n200", "n3"] {
        removed(&mut changes, disk);
    }
    assert_eq!(added(&mut changes, "x"), 7);
    // One that comes back has its number, unless another one has it.
    assert_eq!(added(&mut changes, "n3"), 3);
    assert_eq!(added(&mut changes, "n7"), 200);
    removed(&mut changes, "n7");
    removed(&mut changes, "n3");
    assert_eq!(added(&mut changes, "y"), 200);
    assert_eq!(added(&mut changes, "n7"), 3);
    assert_eq!(kept(&mut changes, ALL_AS_UNITS).len(), 256);
}

#[test]
fn disks_come_and_go_and_no_number_comes_again_before_all_others() {
    let mut changes = Changes::default();
    let numbers: Vec<u16> = (0..600)
        .map(|round| {
            let disk = format!("n{round}");
            let number = added(&mut changes, &disk);
            removed(&mut changes, &disk);
            number
        })
        .collect();
    for (at, number) in numbers.iter().enumerate() {
        let before = &numbers[at.saturating_sub(254)..at];
        assert!(!before.contains(number) && (1..256).contains(number), "{at}: {number}");
    }
    let kept = changes.units_of(&IscsiName("iqn.2026-11.local:all".into()));
    assert_eq!(kept.len(), 255);
    assert_eq!(changes.text().unwrap().matches("[[unit]]").count(), 255);
}

#[test]
fn a_number_that_no_disk_has_had_comes_before_one_that_is_used_again() {
    let known = [("gone", 255), ("here", 3), ("too-high", 300)];
    let known: Vec<(Name, u16)> = known.map(|(disk, lun)| (name(disk), lun)).into();
    let disks = |names: &[&str]| names.iter().map(|it| name(it)).collect::<Vec<_>>();
    let found = numbered(disks(&["here", "a", "b", "gone", "too-high"]), &known);
    let found: Vec<(u16, String)> = found.into_iter().map(|(lun, it)| (lun, it.0)).collect();
    assert_eq!(found, units(&[(0, "too-high"), (1, "a"), (2, "b"), (3, "here"), (255, "gone")]));
}

#[test]
fn without_a_state_folder_numbers_of_disks_that_have_gone_are_known_as_long_as_the_daemon_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.toml");
    let write = |disks: &[&str]| {
        let disk = |name: &&str| format!("[[disk]]\nname = \"{name}\"\nbackend = \"mem:1MiB\"\n");
        let target = "[[iscsi]]\nlisten = [\"h:3260\"]\ntarget = \"iqn.2026-11.local:all\"\n";
        fs::write(&path, disks.iter().map(disk).collect::<String>() + target).unwrap();
    };
    write(&["a", "b", "c"]);
    let mut spec = file::load(&path).unwrap();
    spec.sources.as_mut().unwrap().kept = None;
    for (disks, expect) in [
        (&["a", "c"][..], &[(0, "a"), (2, "c")][..]),
        (&["a", "c"], &[(0, "a"), (2, "c")]),
        (&["a", "d", "c"], &[(0, "a"), (2, "c"), (3, "d")]),
    ] {
        write(disks);
        spec = file::load_again(&path, &spec).unwrap();
        let luns = spec.targets[0].luns.iter();
        assert_eq!(luns.map(|(lun, it)| (*lun, it.0.clone())).collect::<Vec<_>>(), units(expect));
    }
}
