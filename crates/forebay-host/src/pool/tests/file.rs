//! The file or device of a pool: foreign, new, unfinished, of another version.

use super::*;

#[test]
fn foreign_data_is_refused_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let check = |at: usize, magic: &[u8], expect: &str| {
        let path = folder.path().join("x");
        let mut bytes = vec![0; 1 << 17];
        bytes[at..at + magic.len()].copy_from_slice(magic);
        std::fs::write(&path, &bytes).unwrap();
        let error = open(&path, &[share(5, 0)]).unwrap_err();
        assert!(error.contains(expect), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "untouched");
    };
    check(0x438, &[0x53, 0xef], "ext2/3/4");
    check(512, b"EFI PART", "GPT");
    check(510, &[0x55, 0xaa], "MBR");
    check(77, b"x", "not Forebay's");
    check(0, b"FOREBAY\0\x09", "damaged");
}

#[test]
fn data_anywhere_in_a_file_is_refused_and_zeroes_are_not() {
    use std::os::unix::fs::FileExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    // `filled`: bytes that are zeroes as data, from the start on; the others are a hole.
    let check = |size: u64, filled: u64, (at, data): (u64, &[u8]), expect: Option<u64>| {
        let _ = std::fs::remove_file(&path);
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(size).unwrap();
        for n in 0..filled / MIB {
            file.write_all_at(&vec![0; MIB as usize], n * MIB).unwrap();
        }
        file.write_all_at(data, at).unwrap();
        let opened = Pool::open(&path, &[share(5, 4)]);
        match (opened, expect) {
            (Ok(_), None) => {}
            (Err(error), Some(at)) => {
                let error = format!("{error:#}");
                assert!(error.contains(&format!("not Forebay's at byte {at};")), "{error}");
                assert!(error.contains("truncate -s 0"), "{error}");
                let mut there = vec![1; data.len()];
                std::fs::File::open(&path).unwrap().read_exact_at(&mut there, 0).unwrap();
                assert_eq!(there, vec![0; data.len()], "untouched");
            }
            (opened, _) => panic!("{expect:?}: {opened:?}"),
        }
    };
    let nothing: (u64, &[u8]) = (0, &[]);
    check(0, 0, nothing, None);
    check(64 * MIB, 0, nothing, None);
    check(64 * MIB, 64 * MIB, nothing, None);
    check(64 * MIB, 0, (20 * MIB, &[0xff; 8192]), None);
    check(64 * MIB, 0, (20 * MIB + 5, b"x"), Some(20 * MIB));
    check(64 * MIB, 64 * MIB, (33 * MIB + 4096, b"x"), Some(33 * MIB + 4096));
    check(64 * MIB + 700, 0, (64 * MIB + 699, b"x"), Some(64 * MIB));
    check(64 * MIB + 512, 0, (64 * MIB + 511, b"x"), Some(64 * MIB));
    // The last page of a small file is none.
    let tail = tempfile::NamedTempFile::new_in(&folder).unwrap();
    let bytes = [vec![0; 4096], b"data".repeat(200)].concat();
    std::fs::write(tail.path(), &bytes).unwrap();
    assert!(open(tail.path(), &[share(5, 4)]).unwrap_err().contains("not Forebay's"));
    assert_eq!(std::fs::read(tail.path()).unwrap(), bytes, "untouched");
    // Samples find what is large, and what is at the end.
    let large = vec![7; 2 * MIB as usize];
    let check_large = |data, expect| check(100 * MIB, 100 * MIB, data, expect);
    check_large((100 * MIB - 512, b"EFI PART"), Some(100 * MIB - 4096));
    check_large((50 * MIB, &large), Some(52547584));
    check_large(nothing, None);
}

#[test]
fn a_folder_that_is_not_there_is_named_and_a_folder_is_no_flash() {
    let folder = tempfile::tempdir().unwrap();
    let error = open(&folder.path().join("deep/flash"), &[share(5, 0)]).unwrap_err();
    let missing = folder.path().join("deep");
    assert!(error.contains(&format!("the folder {} of", missing.display())), "{error}");
    assert!(error.contains("create it"), "{error}");
    assert!(open(folder.path(), &[share(5, 0)]).unwrap_err().contains("it is a directory"));
}

#[test]
fn a_pool_that_is_to_be_larger_than_its_file_system_takes_no_space_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    drop(Pool::open(&path, &[share(5, 4)]).unwrap());
    let before = std::fs::metadata(&path).unwrap().len();
    // More than any file of ext4 can have: nothing would be filled if nobody looked.
    let error = open(&path, &[share(32 << 20, 4)]).unwrap_err();
    assert!(error.contains("and its file system has"), "{error}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), before);
    assert!(open(&path, &[share(5, 4)]).is_ok(), "the pool is as it was");
}

#[test]
fn a_file_that_a_start_made_goes_with_it_until_a_disk_is_on_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let shares = [share(5, 4)];
    let pool = Pool::open(&path, &shares).unwrap();
    pool.go_if_unused();
    assert!(path.exists());
    drop(pool);
    assert!(!path.exists(), "nobody came to use it");
    let mut pool = Pool::open(&path, &shares).unwrap();
    pool.go_if_unused();
    pool.admit(&wish("db", "file:/db")).unwrap();
    drop(pool);
    assert!(!path.exists(), "its primary storage is another pool's");
    let mut pool = Pool::open(&path, &shares).unwrap();
    pool.go_if_unused();
    let number = pool.admit(&wish("db", "file:/db")).unwrap();
    pool.begin_session(number).unwrap();
    drop(pool);
    assert!(path.exists(), "a disk is on it");
    // It was there before this start.
    let pool = Pool::open(&path, &shares).unwrap();
    pool.go_if_unused();
    drop(pool);
    assert!(path.exists());
    // Nor does one stay that there is no room for.
    let huge = [share(1 << 40, 0)];
    let other = folder.path().join("other");
    assert!(Pool::open(&other, &huge).is_err());
    assert!(!other.exists());
}

/// As when its file system is mounted after the start.
#[test]
fn a_link_to_a_file_that_a_start_made_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (link, target) = (folder.path().join("flash"), folder.path().join("mount/flash"));
    std::fs::create_dir(folder.path().join("mount")).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let pool = Pool::open(&link, &[share(5, 4)]).unwrap();
    pool.go_if_unused();
    assert!(target.exists());
    drop(pool);
    assert!(!target.exists() && link.is_symlink(), "nobody came to use it");
}

#[test]
fn a_file_that_another_hides_goes_and_leaves_that_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("mount")).unwrap();
    let path = at("mount").join("flash");
    let pool = Pool::open(&path, &[share(5, 4)]).unwrap();
    pool.go_if_unused();
    std::fs::rename(at("mount"), at("hidden")).unwrap();
    std::fs::create_dir(at("mount")).unwrap();
    std::fs::write(&path, "of another start").unwrap();
    drop(pool);
    assert!(!at("hidden").join("flash").exists());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "of another start");
}

#[test]
fn who_waits_for_a_file_that_a_failed_start_removes_has_one_with_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let shares = [share(5, 4)];
    for _ in 0..20 {
        let failing = Pool::open(&path, &shares).unwrap();
        failing.go_if_unused();
        let next = std::thread::scope(|scope| {
            let next = scope.spawn(|| Pool::open(&path, &shares).unwrap());
            drop(failing);
            next.join().unwrap()
        });
        assert!(path.exists());
        drop(next);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_pool_of_a_newer_version_is_refused_and_an_unfinished_one_is_made_again() {
    use forebay_core::flash_pool::SUPERBLOCKS;
    use std::os::unix::fs::FileExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    drop(open(&path, &[share(5, 0)]).unwrap());
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, 0).unwrap();
    let mut newer = page;
    newer[12] = 2;
    forebay_core::sealed::seal(&mut newer);
    for offset in SUPERBLOCKS {
        file.write_all_at(&newer, offset).unwrap();
    }
    let error = open(&path, &[share(5, 0)]).unwrap_err();
    assert!(error.contains("format 2"), "{error}");
    // Its first page is blank, as that of an unfinished pool, or damaged: that version may know what to do.
    let mut damaged = newer;
    damaged[40] ^= 1;
    for first in [[0; 4096], damaged] {
        file.write_all_at(&first, SUPERBLOCKS[0]).unwrap();
        let error = open(&path, &[share(5, 0)]).unwrap_err();
        assert!(error.contains("format 2") && !error.contains("truncate"), "{error}");
    }
    file.write_all_at(&[0x5a; 4096], SUPERBLOCKS[0]).unwrap();
    let error = open(&path, &[share(5, 0)]).unwrap_err();
    assert!(error.contains("overwritten") && error.contains("second superblock"), "{error}");
    file.write_all_at(&page, SUPERBLOCKS[1]).unwrap();
    file.write_all_at(&[0; 4096], SUPERBLOCKS[0]).unwrap();
    open(&path, &[share(5, 0)]).unwrap();
}

#[test]
fn a_pool_that_was_cut_short_is_made_whole_when_it_has_no_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let shares = [share(5, 4)];
    let cut =
        || std::fs::File::options().write(true).open(&path).unwrap().set_len(4 * MIB).unwrap();
    let mut pool = open(&path, &shares).unwrap();
    let (number, _) = serve(&mut pool, &wish("db", "file:/db"));
    pool.take_cache(number, 5 * MIB).unwrap();
    let (uuid, len) = (pool.disk_uuid(number), path.metadata().unwrap().len());
    drop(pool);
    cut();
    let error = open(&path, &shares).unwrap_err();
    assert!(error.contains("cut short: it has 4 MiB of the") && error.contains("'db'"), "{error}");
    assert_eq!(path.metadata().unwrap().len(), 4 * MIB, "untouched");
    std::fs::File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
    let mut pool = open(&path, &shares).unwrap();
    pool.close(number, EndOfSession::Clean, true, None).unwrap();
    drop(pool);
    cut();
    let mut pool = open(&path, &shares).unwrap();
    let (severity, news) = pool.take_news().unwrap();
    assert!(severity == Severity::Warning && news.contains("has its size again"), "{news}");
    assert_eq!((pool.disk_uuid(number), path.metadata().unwrap().len()), (uuid, len));
    serve(&mut pool, &wish("db", "file:/db"));
}

#[test]
fn both_superblocks_that_are_damaged_are_told_with_what_to_do() {
    use forebay_core::flash_pool::SUPERBLOCKS;
    use std::os::unix::fs::FileExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a flash");
    drop(open(&path, &[share(5, 4)]).unwrap());
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    for offset in SUPERBLOCKS {
        file.write_all_at(b"x", offset + 40).unwrap();
    }
    let error = open(&path, &[share(5, 4)]).unwrap_err();
    for expect in ["damaged. Nothing was changed", "truncate -s 0 '", "goes on without it"] {
        assert!(error.contains(expect), "{error}");
    }
}

#[test]
fn a_pool_that_has_lost_its_first_superblock_is_not_made_anew() {
    use forebay_core::flash_pool::SUPERBLOCKS;
    use std::os::unix::fs::FileExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let shares = [share(5, 4)];
    let mut pool = open(&path, &shares).unwrap();
    let (number, _) = serve(&mut pool, &wish("db", "file:/db"));
    let uuid = (pool.uuid(), pool.disk_uuid(number));
    drop(pool);
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(&[0x5a; 4096], SUPERBLOCKS[0]).unwrap();
    let error = open(&path, &shares).unwrap_err();
    assert!(error.contains("second superblock") && error.contains("pool show"), "{error}");
    file.write_all_at(&[0; 4096], SUPERBLOCKS[0]).unwrap();
    let pool = open(&path, &shares).unwrap();
    assert_eq!((pool.uuid(), pool.disk_uuid(number)), uuid);
}
