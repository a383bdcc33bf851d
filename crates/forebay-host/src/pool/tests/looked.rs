//! What is told of a pool to who looks: by its daemon, by `pool show` and by `pool check`.

use std::os::unix::fs::FileExt;

use forebay_core::flash_pool::{PairId, SUPERBLOCKS};

use super::*;
use crate::pool::report::{DiskReport, SessionState};

#[test]
fn a_pool_in_use_is_told_with_what_its_disks_know() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let mut pool = open(&path, &[share(5, 4), share(5, 4)]).unwrap();
    let served = serve(&mut pool, &wish("served", "file:/a")).0;
    let other = serve(&mut pool, &wish("other", "file:/b")).0;
    let tell =
        |disk: DiskReport, dirty_bytes: &u64| DiskReport { dirty_bytes: *dirty_bytes, ..disk };
    let shown = report::show_used(&pool.snapshot(), &[(served, 8192)], tell);
    assert!(shown.faults.is_empty());
    let [one, two] = &shown.disks[..] else { panic!("{shown:?}") };
    assert_eq!((one.name.as_str(), one.session), ("served", SessionState::Running));
    assert_eq!((one.dirty_bytes, two.dirty_bytes), (8192, 0));
    assert_eq!((two.name.as_str(), two.session), ("other", SessionState::RunningOrCrashed));
    // The tables are everybody's.
    pool.has_failed = true;
    let shown = report::show_used(&pool.snapshot(), &[(served, 0)], tell);
    assert!(shown.disks.iter().all(|disk| disk.faults.is_empty()));
    assert_eq!(shown.faults.len(), 1);
    for number in [served, other] {
        staging::remove_of(pool.disk_uuid(number));
    }
}

#[test]
fn what_is_no_pool_is_only_named_by_who_looks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    for (bytes, what) in [
        (vec![7; 1 << 17], "not Forebay's"),
        (vec![7; 77], "not Forebay's"),
        (vec![0; 1 << 17], "blank"),
    ] {
        std::fs::write(&path, &bytes).unwrap();
        for said in [report::show(&path).unwrap_err(), check::check(&path).unwrap_err()] {
            let said = said.to_string();
            assert!(said.contains("is no pool") && said.contains(what), "{said}");
            assert!(!said.contains("overwritten"), "{said}");
        }
    }
}

/// Each of these was all that a check told.
#[test]
fn a_check_tells_of_every_table_that_is_damaged_and_verifies_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let mut pool = open(&path, &[share(5, 4), share(5, 4), share(5, 4)]).unwrap();
    let geometry = pool.geometry();
    let numbers =
        ["a", "b", "c"].map(|name| serve(&mut pool, &wish(name, &format!("file:/{name}"))).0);
    let uuids = numbers.map(|number| pool.disk_uuid(number));
    drop(pool);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let rot = |pair, copies: &[u32]| {
        for &copy in copies {
            file.write_all_at(&[0x5a; 4096], geometry.pair_offset(pair, copy)).unwrap();
        }
    };
    rot(PairId::Disk(numbers[0]), &[0, 1]);
    rot(PairId::Progress(numbers[1]), &[0, 1]);
    rot(PairId::Reservations(numbers[2]), &[0, 1]);
    file.write_all_at(&[0x5a; 4096], SUPERBLOCKS[1]).unwrap();
    let found = check::check(&path).unwrap();
    let errors = found.errors.join("\n");
    assert_eq!(found.errors.len(), 3, "{errors}");
    for what in ["record of disk 0", "progress of disk 1", "reservations of disk 'c'"] {
        assert!(errors.contains(what), "{what}: {errors}");
    }
    assert_eq!(found.warnings.len(), 1, "{:?}", found.warnings);
    assert!(found.warnings[0].contains("superblock 1"), "{:?}", found.warnings);
    assert!(report::show(&path).is_err());
    rot(PairId::Leases(0), &[0, 1]);
    let found = check::check(&path).unwrap();
    assert!(
        found.errors.iter().any(|why| why.contains("page 0 of the leases")),
        "{:?}",
        found.errors
    );
    assert!(
        found.warnings.iter().any(|why| why.contains("were not checked")),
        "{:?}",
        found.warnings
    );
    uuids.into_iter().for_each(staging::remove_of);
}

/// Whoever makes a pool writes both copies of every page.
#[test]
fn a_copy_of_a_table_that_was_zeroed_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let geometry = open(&path, &[share(5, 4)]).unwrap().geometry();
    assert!(check::check(&path).unwrap().warnings.is_empty(), "it is new");
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let number = geometry.disks().next().unwrap();
    let of_disk = [PairId::Disk, PairId::Progress, PairId::Reservations].map(|pair| pair(number));
    for pair in of_disk.into_iter().chain([PairId::Leases(0)]) {
        for copy in [0, 1] {
            let place = geometry.pair_offset(pair, copy);
            let mut was = [0; 4096];
            file.read_exact_at(&mut was, place).unwrap();
            file.write_all_at(&[0; 4096], place).unwrap();
            let checked = check::check(&path).unwrap();
            let shown = report::show(&path).unwrap();
            let text = format!("copy {copy} of table page {} is damaged", geometry.place(pair));
            for told in [checked.warnings, shown.faults] {
                assert!(told.len() == 1 && told[0].contains(&text), "{pair:?} {copy}: {told:?}");
            }
            assert!(checked.errors.is_empty());
            file.write_all_at(&was, place).unwrap();
        }
    }
}
