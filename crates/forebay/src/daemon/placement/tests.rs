use std::path::Path;

use forebay_host::pool::{DiskWish, Pool, Share};
use tempfile::TempDir;

use super::*;
use crate::config::file::parse;

const MIB: u64 = 1 << 20;

/// A pool of devices `a` and `b`, files that are there, and disks with so many MiB each.
fn spec(folder: &Path, disks: &[(&str, u64)]) -> DaemonSpec {
    let at = |name: &str| folder.join(name).display().to_string();
    let mut text = format!("[[pool]]\nname = 'fast'\ndevices = ['{}', '{}']\n", at("a"), at("b"));
    for (name, mib) in disks {
        text += &format!(
            "[[disk]]\nname = '{name}'\nbackend = 'file:/{name}'\nflash = 'fast:{mib}MiB'\nnbd = ['unix:/{name}']\n"
        );
    }
    parse(&text, "test".parse().unwrap()).unwrap()
}

/// Makes the devices, of 100 MiB each.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    for name in ["a", "b"] {
        let file = std::fs::File::create(folder.path().join(name)).unwrap();
        file.set_len(100 * MIB).unwrap();
    }
    folder
}

/// Puts a record of a disk on a device.
fn admit(device: &Path, disk: &str) -> Pool {
    let share = Share { cache: 8 * MIB, ring: MIB, log: 0 };
    let mut pool = Pool::open(device, &[share]).unwrap();
    let wish = DiskWish {
        name: disk.to_owned(),
        uri: format!("file:/{disk}"),
        size: MIB,
        block_size: 8192,
        mode: "write-through".to_owned(),
        ..DiskWish::default()
    };
    pool.admit(&wish).unwrap();
    pool
}

/// The device of each disk.
fn places(spec: &DaemonSpec) -> Vec<String> {
    let name = |disk: &DiskSpec| {
        let path = &disk.flash.as_ref().unwrap().path;
        path.file_name().unwrap().to_str().unwrap().to_owned()
    };
    spec.disks.iter().map(name).collect()
}

#[test]
fn new_disks_go_where_most_is_left() {
    let folder = folder();
    let mut spec = spec(folder.path(), &[("one", 60), ("two", 20), ("three", 30), ("four", 5)]);
    let news = place(&mut spec, &[], &[]);
    assert!(news.is_empty(), "{news:?}");
    assert_eq!(places(&spec), ["a", "b", "b", "b"]);
    // Nothing was made there.
    assert_eq!(std::fs::read(folder.path().join("a")).unwrap(), vec![0; 100 << 20]);
}

#[test]
fn a_disk_is_where_its_record_is_whether_the_device_is_open_or_not() {
    let folder = folder();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    drop(admit(&b, "db"));
    let mut placed = spec(folder.path(), &[("new", 60), ("db", 20)]);
    assert!(place(&mut placed, &[], &[]).is_empty());
    assert_eq!(places(&placed), ["a", "b"]);
    let open = vec![(b.clone(), SharedPool::new(admit(&b, "db").into()))];
    // What is in force says something else.
    let mut in_force = placed.clone();
    in_force.disks[1].flash.as_mut().unwrap().path = a;
    let mut placed = spec(folder.path(), &[("new", 60), ("db", 20)]);
    assert!(place(&mut placed, &in_force.disks, &open).is_empty());
    assert_eq!(places(&placed), ["a", "b"]);
}

#[test]
fn a_disk_in_force_stays_as_long_as_its_pool_has_the_device() {
    let folder = folder();
    let mut in_force = spec(folder.path(), &[("db", 20)]);
    in_force.disks[0].flash.as_mut().unwrap().path = folder.path().join("b");
    for with_a_look in [false, true] {
        let mut placed = spec(folder.path(), &[("db", 20)]);
        match with_a_look {
            true => drop(place(&mut placed, &in_force.disks, &[])),
            false => keep(&mut placed, &in_force.disks),
        }
        assert_eq!(places(&placed), ["b"]);
    }
    let mut placed = spec(folder.path(), &[("db", 20)]);
    placed.pools[0].devices.pop();
    place(&mut placed, &in_force.disks, &[]);
    assert_eq!(places(&placed), ["a"]);
}

#[test]
fn a_device_that_cannot_be_looked_at_gets_no_new_disk_and_is_told() {
    let folder = folder();
    std::fs::remove_file(folder.path().join("a")).unwrap();
    let mut placed = spec(folder.path(), &[("one", 60), ("two", 20)]);
    let news = place(&mut placed, &[], &[]);
    assert_eq!(places(&placed), ["b", "b"]);
    assert!(news.len() == 1 && news[0].contains("cannot be looked at"), "{news:?}");
}
