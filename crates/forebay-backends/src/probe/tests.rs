use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::Standing;
use crate::{OpenOptions, Uri};

#[test]
fn a_look_waits_until_a_modification_would_have_another_time() {
    let wait = |modified: u64, now: u64| {
        let time = Duration::from_millis;
        super::until_another_time(time(modified), time(now)).as_millis()
    };
    for (modified, now, expect) in [
        (10_005, 10_005, 20),
        (10_005, 10_024, 20),
        (10_005, 10_026, 0),
        // The clock of a server may be ahead.
        (10_005, 9_990, 20),
        (10_005, 9_000, 0),
        // A file system with whole seconds.
        (10_000, 10_300, 1720),
        (10_000, 11_999, 21),
        (10_000, 12_020, 0),
        (10_000, 9_000, 0),
    ] {
        assert_eq!(wait(modified, now), expect, "{modified} {now}");
    }
}

fn open(text: &str) -> Box<dyn crate::Backend> {
    crate::open(&text.parse::<Uri>().unwrap(), OpenOptions::default()).unwrap()
}

#[test]
fn a_file_that_somebody_takes_away_or_cuts_short_is_not_what_was_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db.raw");
    let (other, name) = (folder.path().join("other"), folder.path().join("name"));
    let check = |expect: Standing, change: &dyn Fn()| {
        std::fs::write(&path, vec![7; 65536]).unwrap();
        let backend = open(&format!("file:{}", path.display()));
        let probe = backend.probe().unwrap();
        let standing = || probe.standing(65536).unwrap();
        assert_eq!(standing(), Standing::Same);
        change();
        assert_eq!(standing(), expect);
        assert_eq!(probe.copy().standing(65536).unwrap(), expect);
        assert!(probe.open_at().unwrap().exists());
        let _ = std::fs::remove_file(&path);
    };
    check(Standing::Same, &|| std::fs::write(&path, vec![8; 65537]).unwrap());
    check(Standing::Short(65535), &|| std::fs::write(&path, vec![7; 65535]).unwrap());
    check(Standing::Unlinked(path.clone()), &|| std::fs::remove_file(&path).unwrap());
    check(Standing::Moved(path.clone()), &|| std::fs::rename(&path, &name).unwrap());
    let kept_for_us = folder.path().join(".nfs0000000000abcdef00000001");
    let remove_on_nfs = || std::fs::rename(&path, &kept_for_us).unwrap();
    check(Standing::Unlinked(path.clone()), &remove_on_nfs);
    check(Standing::Replaced(path.clone()), &|| {
        std::fs::write(&other, vec![7; 65536]).unwrap();
        std::fs::rename(&other, &path).unwrap();
    });
}

#[test]
fn a_device_without_any_bytes_is_gone_and_was_not_cut_short() {
    let check = |found, expect| assert_eq!(super::device_stands(found, 65536), expect);
    check(0, Standing::Gone);
    check(512, Standing::Short(512));
    check(65536, Standing::Same);
    check(1 << 20, Standing::Same);
}

#[test]
fn a_file_has_size_times_and_a_place_for_a_sidecar_also_behind_wrappers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db.raw");
    std::fs::write(&path, vec![7; 65536]).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for uri in [
        format!("file:{}", path.display()),
        format!("file:{}?direct=off", link.display()),
        format!("model:san?latency=1ms&inner=file:{}", path.display()),
        format!("fault:rule=error,op=read&inner=file:{}", path.display()),
    ] {
        let backend = open(&uri);
        let probe = backend.probe().expect("a file has one");
        let look = probe.look_finally().unwrap();
        let expect = path.metadata().unwrap();
        assert_eq!(look.size, 65536);
        assert_eq!(look.modified, Some((expect.mtime(), expect.mtime_nsec() as u32)));
        assert_eq!(look.changed, Some((expect.ctime(), expect.ctime_nsec() as u32)));
        let place = folder.path().canonicalize().unwrap().join("db.raw.forebay");
        assert_eq!(probe.sidecar(), Some(place.as_path()));
        let mut bytes = [0; 100];
        probe.reader().unwrap().read(4000, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 100]);
        // It keeps the lock for itself, its copy does not.
        let copy = probe.copy();
        drop(backend);
        let reopened = || crate::open(&uri.parse().unwrap(), OpenOptions::default());
        reopened().err().expect("it is in use");
        drop(probe);
        reopened().unwrap();
        copy.look().unwrap();
    }
    assert!(open("mem:1MiB").probe().is_none());
}
