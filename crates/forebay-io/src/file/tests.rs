use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Command, Stdio};

use super::*;

#[test]
fn a_file_is_opened_with_its_size_and_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    let open = OpenFile::open(&path, &Options::default()).unwrap();
    assert_eq!((open.size(), open.is_block_device()), (1 << 20, false));
    assert!(open.logical_block().is_power_of_two() && open.logical_block() >= 512);
    let flags = rustix::fs::fcntl_getfl(open.as_fd()).unwrap();
    assert_eq!(flags.contains(OFlags::DIRECT), open.is_direct());
    assert_eq!(size(open.as_fd()).unwrap(), 1 << 20);
}

#[test]
fn buffered_io_is_taken_when_asked_for_or_when_the_size_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    fs::write(&path, vec![1; 1000]).unwrap();
    let odd = OpenFile::open(&path, &Options::default()).unwrap();
    assert!(!odd.is_direct());
    assert!(!rustix::fs::fcntl_getfl(odd.as_fd()).unwrap().contains(OFlags::DIRECT));
    drop(odd);
    let options = Options { buffered: true, ..Options::default() };
    let asked = OpenFile::open(&path, &options).unwrap();
    assert!(!asked.is_direct());
    assert_eq!(asked.logical_block(), 512);
}

#[test]
fn direct_io_has_to_fit_the_size_and_its_unit_into_a_page() {
    let check = |unit, size, is_block_device, expect: bool| {
        assert_eq!(fits_direct(unit, size, is_block_device), expect, "{unit} {size}");
    };
    check(4096, 1 << 20, false, true);
    check(512, 1536, false, true);
    check(4096, 1536, false, false);
    check(65536, 1 << 20, false, false);
    check(16384, 1 << 20, true, true);
}

#[test]
fn a_file_in_use_is_refused_until_it_is_let_go_of() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    fs::write(&path, vec![1; 4096]).unwrap();
    let first = OpenFile::open(&path, &Options::default()).unwrap();
    for read_only in [false, true] {
        let options = Options { read_only, ..Options::default() };
        let error = OpenFile::open(&path, &options).unwrap_err();
        assert_eq!(error.kind(), FileErrorKind::InUse);
        let holder = format!("in use by process {}, which is this one", std::process::id());
        assert!(error.to_string().contains(&holder), "{error}");
    }
    drop(first.into_fd());
    assert_eq!(OpenFile::open(&path, &Options::default()).unwrap().size(), 4096);
}

#[test]
fn a_lock_is_waited_for_while_its_holder_is_ending_and_not_longer() {
    let wait = Duration::from_secs(60);
    let mut left = 3;
    let attempt = || {
        left -= 1;
        if left == 0 { Ok(()) } else { Err(Errno::WOULDBLOCK) }
    };
    assert_eq!(patiently(wait, || true, attempt), Ok(()));
    let held = || Err::<(), _>(Errno::WOULDBLOCK);
    assert_eq!(patiently(wait, || false, held), Err(Errno::WOULDBLOCK), "at once");
    assert_eq!(patiently(Duration::ZERO, || true, held), Err(Errno::WOULDBLOCK));
}

#[test]
fn who_looks_at_a_device_is_waited_for_and_who_has_a_file_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    let file = File::create(&path).unwrap();
    let (wait, exclusive) = (Duration::from_secs(9), FlockOperation::NonBlockingLockExclusive);
    let lock = |wait, passes| lock(file.as_fd(), &path, exclusive, wait, passes);
    // It lets go a moment after it is told so.
    let mut looks = Command::new("flock");
    looks.arg("--shared").arg(&path).args(["sh", "-c", "read told; sleep 0.3"]);
    let mut looks = looks.stdin(Stdio::piped()).spawn().unwrap();
    let holder = loop {
        match holder::living_holder(file.as_fd()) {
            Some(holder) => break holder,
            None => std::thread::yield_now(),
        }
    };
    let held = format!("already in use by process {holder}; ");
    for (wait, passes, kind, advice) in [
        (wait, false, FileErrorKind::InUse, "stop that one or"),
        (Duration::from_millis(20), true, FileErrorKind::Locked, "wait until"),
    ] {
        let error = lock(wait, passes).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(&(held.clone() + advice)), "{error}");
    }
    let unseen = FileError::held_by(&path, None, true);
    assert_eq!(unseen.kind(), FileErrorKind::Locked, "{unseen}");
    drop(looks.stdin.take());
    lock(wait, true).unwrap();
    looks.wait().unwrap();
}

#[test]
fn readers_share_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    fs::write(&path, vec![1; 4096]).unwrap();
    let options = Options { read_only: true, ..Options::default() };
    let first = OpenFile::open(&path, &options).unwrap();
    let second = OpenFile::open(&path, &options).unwrap();
    assert!(File::from(first.into_fd()).write_at(&[0; 512], 0).is_err());
    assert!(OpenFile::open(&path, &Options::default()).is_err());
    drop(second);
}

#[test]
fn a_flash_file_is_created_and_allocated_and_never_shrunk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    let options = Options { allocate: Some(1 << 20), ..Options::default() };
    assert_eq!(OpenFile::open(&path, &options).unwrap().size(), 1 << 20);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let smaller = Options { allocate: Some(4096), ..Options::default() };
    assert_eq!(OpenFile::open(&path, &smaller).unwrap().size(), 1 << 20);
    let endless = Options { allocate: Some(1 << 62), ..Options::default() };
    let error = OpenFile::open(&path, &endless).unwrap_err();
    assert_eq!(error.kind(), FileErrorKind::NoSpace, "{error}");
}

#[test]
fn what_cannot_be_a_disk_is_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let check = |path: &Path, kind, text: &str| {
        let error = OpenFile::open(path, &Options::default()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(error.path(), path);
    };
    check(&dir.path().join("none"), FileErrorKind::NotFound, "check the path");
    check(dir.path(), FileErrorKind::WrongType, "a directory");
    check(Path::new("/dev/null"), FileErrorKind::WrongType, "a special file");
    assert!(!is_block_device(Path::new("/dev/null")));
}

#[test]
fn extents_tell_data_from_holes() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_at(&[1; 65536], 131_072).unwrap();
    let found = extents(file.as_fd(), 0, 1 << 20, 10).unwrap();
    let data: u64 = found.iter().filter(|extent| extent.is_data).map(|extent| extent.len).sum();
    assert!((65536..=1 << 20).contains(&data));
    let mut at = 0;
    for extent in &found {
        assert!(extent.offset == at && extent.len > 0);
        at += extent.len;
    }
    assert_eq!(at, 1 << 20);
    let is_data = |offset| {
        let holds = |e: &&FileExtent| (e.offset..e.offset + e.len).contains(&offset);
        found.iter().find(holds).unwrap().is_data
    };
    assert!(is_data(131_072) && is_data(196_607));
    assert_eq!(extents(file.as_fd(), 0, 1 << 20, 1).unwrap().len(), 1);
    let beyond = extents(file.as_fd(), 1 << 21, 4096, 10).unwrap();
    assert_eq!(beyond, [FileExtent { offset: 1 << 21, len: 4096, is_data: false }]);
    assert_eq!(extents(file.as_fd(), 0, 0, 10).unwrap(), []);
}
