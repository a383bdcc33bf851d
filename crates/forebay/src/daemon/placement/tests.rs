use std::path::Path;

use forebay_core::flash_pool::DiskNumber;
use forebay_core::ids::Uuid;
use forebay_host::pool::{DiskWish, Pool, Share};
use tempfile::TempDir;

use super::*;
use crate::config::file::parse;

const MIB: u64 = 1 << 20;
/// Of all primary storage here.
const IDENTITY: Uuid = Uuid([7; 16]);

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

fn wish(disk: &str) -> DiskWish {
    DiskWish {
        name: disk.to_owned(),
        uri: format!("file:/{disk}"),
        size: MIB,
        block_size: 8192,
        mode: "write-through".to_owned(),
        identity: IDENTITY,
        ..DiskWish::default()
    }
}

/// Puts a record of a disk on a device, as a start does that fails later.
fn admit(device: &Path, disk: &str) -> Pool {
    let share = Share { cache: 8 * MIB, ring: MIB, log: 0 };
    let mut pool = Pool::open(device, &[share]).unwrap();
    pool.admit(&wish(disk)).unwrap();
    pool
}

/// Serves a disk from a device.
fn serve(device: &Path, disk: &str) -> Pool {
    let mut pool = admit(device, disk);
    let number = number(&pool);
    pool.begin_session(number).unwrap();
    pool.commit_session(number, &wish(disk), &[], Default::default()).unwrap();
    pool
}

/// The number of the only disk of a pool.
fn number(pool: &Pool) -> DiskNumber {
    pool.geometry().disks().next().unwrap()
}

/// Has the state folder know that a disk went on elsewhere.
fn supersede(state: &Path, disk: Uuid) {
    std::fs::create_dir_all(state).unwrap();
    std::fs::write(state.join(format!("{IDENTITY}.detached")), format!("{disk}\n")).unwrap();
}

fn open_pool(path: &Path, pool: Pool) -> OpenPool {
    let real = path.canonicalize().unwrap();
    OpenPool { path: path.to_owned(), real, pool: Arc::new(pool.into()), said: Arc::default() }
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
    let b = folder.path().join("b");
    drop(admit(&b, "db"));
    let mut placed = spec(folder.path(), &[("new", 60), ("db", 20)]);
    assert!(place(&mut placed, &[], &[]).is_empty());
    assert_eq!(places(&placed), ["a", "b"]);
    let open = vec![open_pool(&b, admit(&b, "db"))];
    let mut placed = spec(folder.path(), &[("new", 60), ("db", 20)]);
    assert!(place(&mut placed, &[], &open).is_empty());
    assert_eq!(places(&placed), ["a", "b"]);
    // Under another path, too.
    std::os::unix::fs::symlink(&b, folder.path().join("link")).unwrap();
    let mut placed = spec(folder.path(), &[("new", 60), ("db", 20)]);
    placed.pools[0].devices[1] = folder.path().join("link");
    assert!(place(&mut placed, &[], &open).is_empty());
    assert_eq!(places(&placed), ["a", "b"]);
}

#[test]
fn a_disk_that_is_served_stays_as_long_as_its_pool_has_the_device() {
    let folder = folder();
    drop(admit(&folder.path().join("a"), "db"));
    let mut served = spec(folder.path(), &[("db", 20)]);
    served.disks[0].flash.as_mut().unwrap().path = folder.path().join("b");
    for with_a_look in [false, true] {
        let mut placed = spec(folder.path(), &[("db", 20)]);
        match with_a_look {
            true => drop(place(&mut placed, &served.disks, &[])),
            false => keep(&mut placed, &served.disks),
        }
        assert_eq!(places(&placed), ["b"]);
    }
    let mut placed = spec(folder.path(), &[("db", 20)]);
    placed.pools[0].devices.pop();
    place(&mut placed, &served.disks, &[]);
    assert_eq!(places(&placed), ["a"]);
}

#[test]
fn a_disk_that_may_be_on_a_device_that_cannot_be_looked_at_gets_no_other() {
    let folder = folder();
    drop(serve(&folder.path().join("b"), "db"));
    std::fs::remove_file(folder.path().join("a")).unwrap();
    let mut placed = spec(folder.path(), &[("new", 60), ("db", 20)]);
    let news = place(&mut placed, &[], &[]);
    assert!(news.len() == 1 && news[0].contains("cannot be looked at"), "{news:?}");
    let why = placed.disks[0].unplaced.as_ref().unwrap();
    assert!(why.contains("there is nothing there") && why.contains("may be on that one"), "{why}");
    assert!(placed.disks[1].unplaced.is_none());
    assert_eq!(places(&placed), ["fast", "b"]);
    // What is no file and no device is not waited for.
    for name in ["a", "b"] {
        let _ = std::fs::remove_file(folder.path().join(name));
        let path = folder.path().join(name);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
    }
    let mut placed = spec(folder.path(), &[("new", 60)]);
    assert_eq!(place(&mut placed, &[], &[]).len(), 2);
    assert!(placed.disks[0].unplaced.is_some());
}

#[test]
fn a_device_with_two_paths_is_one_device() {
    let folder = folder();
    let link = folder.path().join("c");
    std::os::unix::fs::symlink(folder.path().join("a"), &link).unwrap();
    let mut pool = admit(&folder.path().join("a"), "db");
    let number = number(&pool);
    pool.lease_log(number).unwrap();
    drop(pool);
    let mut placed = spec(folder.path(), &[("db", 20), ("new", 60), ("other", 60)]);
    placed.pools[0].devices.push(link.clone());
    place(&mut placed, &[], &[]);
    assert!(placed.disks.iter().all(|disk| disk.unplaced.is_none()), "{placed:?}");
    assert_eq!(places(&placed), ["a", "b", "a"]);
    // No other pool has it as well.
    let mut placed = spec(folder.path(), &[("db", 20), ("new", 60)]);
    let name = "slow".parse().unwrap();
    placed.pools.push(PoolSpec { name, devices: vec![link] });
    placed.disks[1].flash.as_mut().unwrap().path = "slow".into();
    place(&mut placed, &[], &[]);
    assert!(placed.disks[1].unplaced.as_ref().unwrap().contains("of another pool"), "{placed:?}");
}

#[test]
fn a_renamed_disk_is_put_where_it_is_asked_about_its_name() {
    let folder = folder();
    drop(admit(&folder.path().join("b"), "db"));
    let mut placed = spec(folder.path(), &[("db2", 60)]);
    placed.disks[0].backend = "file:/db".to_owned();
    place(&mut placed, &[], &[]);
    assert_eq!(places(&placed), ["b"]);
}

#[test]
fn of_two_records_the_one_of_the_same_primary_storage_counts_and_two_with_logs_are_refused() {
    let folder = folder();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    drop(admit(&a, "db"));
    drop(admit(&b, "db"));
    let mut placed = spec(folder.path(), &[("db", 20)]);
    placed.disks[0].backend = "file:/db".to_owned();
    let (mut one, mut two) = (admit(&a, "db"), admit(&b, "db"));
    two.lease_log(number(&two)).unwrap();
    let placed_with = |one: Pool, two: Pool| {
        let open = [open_pool(&a, one), open_pool(&b, two)];
        let mut placed = placed.clone();
        place(&mut placed, &[], &open);
        placed
    };
    assert_eq!(places(&placed_with(one.clone(), two.clone())), ["b"]);
    one.lease_log(number(&one)).unwrap();
    let both = placed_with(one, two);
    assert!(both.disks[0].unplaced.as_ref().unwrap().contains("both"), "{both:?}");
}

#[test]
fn a_disk_that_a_restart_moved_stays_where_it_was_served_last_whatever_its_former_device_has() {
    let folder = folder();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let mut former = admit(&a, "db");
    let disk = number(&former);
    assert!(former.set_reservations(disk, vec![1; 40]));
    let former_uuid = former.disk_uuid(disk);
    drop((former, serve(&b, "db")));
    let mut placed = spec(folder.path(), &[("db", 20)]);
    placed.disks[0].backend = "file:/db".to_owned();
    let known = folder.path().join("state");
    placed.state_dir = Some(known.clone());
    // Without that knowledge nobody forgets reservations.
    let mut doubtful = placed.clone();
    place(&mut doubtful, &[], &[]);
    let why = doubtful.disks[0].unplaced.as_ref().unwrap();
    assert!(why.contains("both") && why.contains("reservations"), "{why}");
    supersede(&known, former_uuid);
    place(&mut placed, &[], &[]);
    assert_eq!((&placed.disks[0].unplaced, places(&placed)), (&None, vec!["b".to_owned()]));
}

#[test]
fn a_record_that_was_never_served_or_is_of_the_past_counts_only_when_all_devices_can_be_looked_at()
{
    let folder = folder();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let known = folder.path().join("state");
    let placed = || {
        let mut placed = spec(folder.path(), &[("db", 20)]);
        placed.state_dir = Some(known.clone());
        place(&mut placed, &[], &[]);
        (places(&placed).remove(0), placed.disks[0].unplaced.clone())
    };
    drop(admit(&b, "db"));
    assert_eq!(placed(), ("b".to_owned(), None));
    std::fs::rename(&a, folder.path().join("late")).unwrap();
    let check_waits = || {
        let (place, why) = placed();
        assert!(place == "fast" && why.unwrap().contains("may be on that one"));
    };
    check_waits();
    let pool = serve(&b, "db");
    let disk = pool.disk_uuid(number(&pool));
    drop(pool);
    assert_eq!(placed(), ("b".to_owned(), None));
    supersede(&known, disk);
    check_waits();
    std::fs::rename(folder.path().join("late"), &a).unwrap();
    assert_eq!(placed(), ("b".to_owned(), None));
}

#[test]
fn a_disk_whose_move_failed_before_it_was_served_stays_where_it_was() {
    let folder = folder();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let mut former = serve(&a, "db");
    let disk = number(&former);
    assert!(former.set_reservations(disk, vec![1; 40]));
    let former_uuid = former.disk_uuid(disk);
    drop((former, admit(&b, "db")));
    let mut placed = spec(folder.path(), &[("db", 20)]);
    placed.disks[0].backend = "file:/db".to_owned();
    let known = folder.path().join("state");
    placed.state_dir = Some(known.clone());
    supersede(&known, former_uuid);
    let again = placed.clone();
    place(&mut placed, &[], &[]);
    assert_eq!((&placed.disks[0].unplaced, places(&placed)), (&None, vec!["a".to_owned()]));
    drop(serve(&b, "db"));
    for backend in ["file:/db", "file:/another/way/to/db"] {
        let mut again = again.clone();
        again.disks[0].backend = backend.to_owned();
        place(&mut again, &[], &[]);
        assert_eq!((&again.disks[0].unplaced, places(&again)), (&None, vec!["b".to_owned()]));
    }
}

#[test]
fn a_disk_that_went_on_elsewhere_stays_there_when_the_clock_was_set_back_between() {
    let spec = spec(Path::new("/"), &[("db", 20)]);
    let device = |name: &str, opened: u64, is_of_the_past: bool, has_reservations: bool| {
        let path = Path::new("/").join(name);
        let placed = Placed {
            name: "db".to_owned(),
            uri: spec.disks[0].backend.clone(),
            disk: Uuid([name.as_bytes()[0]; 16]),
            identity: IDENTITY,
            opened,
            has_log: false,
            has_reservations,
        };
        let records = vec![Record { placed, is_of_the_past }];
        (path.clone(), Ok(Device { path, records, left: 0 }))
    };
    for has_reservations in [false, true] {
        // It was served from `a` first, and from `b` since.
        let devices = Devices(BTreeMap::from([
            device("a", 2000, true, has_reservations),
            device("b", 1000, false, false),
        ]));
        let found = devices.with(&spec.pools[0], &spec.disks[0]);
        assert_eq!(found, Ok(Some(PathBuf::from("/b"))), "{has_reservations}");
    }
}
