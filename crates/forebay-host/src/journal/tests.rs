use std::fs;
use std::os::unix::fs::FileExt;

use super::*;

const SIZE: u64 = 1 << 20;
const OWNER: Owner = Owner { disk: Uuid([1; 16]), nonce: 7 };

struct Bed {
    folder: tempfile::TempDir,
    shape: Shape,
}

impl Bed {
    fn new() -> Bed {
        let bed = Bed { folder: tempfile::tempdir().unwrap(), shape: Shape::for_log(64) };
        fs::write(bed.image(), vec![0; SIZE as usize]).unwrap();
        make(&bed.place(), OWNER, bed.shape).unwrap();
        bed
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("db.raw")
    }

    fn journal(&self) -> PathBuf {
        beside(&self.folder.path().join("db.raw.forebay"))
    }

    fn place(&self) -> JournalPlace {
        JournalPlace::beside(&self.folder.path().join("db.raw.forebay")).unwrap()
    }

    fn check(&self, nonce: u64) -> Result<Journal> {
        check(&self.place(), Owner { nonce, ..OWNER }, SIZE)
    }

    /// A whole record of one page of this byte.
    fn record(&self, window: u64, page: u64, byte: u8) {
        testing::record(&self.place(), OWNER, self.shape, window, page, byte);
    }

    fn byte(&self, page: u64) -> u8 {
        fs::read(self.image()).unwrap()[page as usize * PAGE_LEN]
    }

    fn repair(&self, nonce: u64) -> Result<Journal> {
        let image = || {
            let file = OpenOptions::new().read(true).write(true).open(self.image())?;
            Ok(Primary::File(file, None))
        };
        repair(&self.place(), Owner { nonce, ..OWNER }, image, SIZE, false)
    }
}

#[test]
fn a_whole_record_is_put_in_place_once() {
    let bed = Bed::new();
    bed.record(1, 3, 0x11);
    let Journal::Found(found) = bed.check(7).unwrap() else { panic!("it is there") };
    assert_eq!((found.windows, bed.byte(3)), (1, 0), "to look changes nothing");
    assert!(matches!(bed.repair(7).unwrap(), Journal::Found(found) if found.windows == 1));
    assert_eq!(bed.byte(3), 0x11);
    assert!(matches!(bed.repair(7).unwrap(), Journal::Found(found) if found.windows == 0));
}

#[test]
fn a_journal_that_is_not_named_changes_nothing() {
    let bed = Bed::new();
    bed.record(1, 3, 0x11);
    assert_eq!(bed.repair(8).unwrap(), Journal::Foreign(OWNER));
    assert_eq!(bed.byte(3), 0);
    fs::remove_file(bed.journal()).unwrap();
    assert_eq!(bed.repair(7).unwrap(), Journal::None);
}

#[test]
fn a_damaged_journal_is_an_error_that_names_it() {
    let bed = Bed::new();
    fs::write(bed.journal(), vec![0; 8 * PAGE_LEN]).unwrap();
    let error = bed.check(7).unwrap_err();
    assert!(error.to_string().contains("db.raw.forebay-journal cannot be used"), "{error}");
}

#[test]
fn a_pipe_in_its_place_is_an_error_and_holds_nobody_up() {
    let bed = Bed::new();
    fs::remove_file(bed.journal()).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, bed.journal(), kind, mode, 0).unwrap();
    for error in [bed.check(7).unwrap_err(), bed.repair(7).unwrap_err()] {
        assert!(format!("{error:#}").contains("it is a special file"), "{error:#}");
    }
}

#[test]
fn the_time_of_a_file_can_be_kept() {
    let bed = Bed::new();
    keep_time(&bed.image(), (1_700_000_000, 5)).unwrap();
    let modified = fs::metadata(bed.image()).unwrap().modified().unwrap();
    let since = modified.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!((since.as_secs(), since.subsec_nanos()), (1_700_000_000, 5));
}

#[test]
fn a_journal_is_made_anew_over_an_older_one_of_its_disk_and_never_lets_old_records_count() {
    let bed = Bed::new();
    bed.record(1, 3, 0x11);
    let again = make(&bed.place(), Owner { nonce: 8, ..OWNER }, bed.shape).unwrap();
    assert_eq!((again.version, again.retired), (4, 0));
    assert_eq!(bed.check(7).unwrap(), Journal::Foreign(Owner { nonce: 8, ..OWNER }));
    assert!(matches!(bed.repair(8).unwrap(), Journal::Found(found) if found.windows == 0));
    assert_eq!(bed.byte(3), 0);
    // One copy of the superblock is lost, whichever: the other one is of the same journal.
    for copy in 0..2 {
        let file = OpenOptions::new().write(true).open(bed.journal()).unwrap();
        let mut page = [0; PAGE_LEN];
        file.write_all_at(&[0; PAGE_LEN], copy * PAGE_LEN as u64).unwrap();
        assert!(matches!(bed.check(8).unwrap(), Journal::Found(_)), "copy {copy}");
        let version = again.version - (again.version + copy) % 2;
        Superblock { version, ..again }.encode(&mut page);
        file.write_all_at(&page, copy * PAGE_LEN as u64).unwrap();
    }
}

#[test]
fn nobody_else_may_read_a_journal() {
    use std::os::unix::fs::MetadataExt;
    let bed = Bed::new();
    assert_eq!(bed.journal().metadata().unwrap().mode() & 0o777, 0o600);
}

#[test]
fn a_journal_elsewhere_spares_what_is_not_this_disks() {
    let bed = Bed::new();
    let path = bed.folder.path().join("elsewhere");
    let uri = format!("file:{}", path.display());
    let place = JournalPlace::at(&uri).unwrap();
    assert_eq!(
        place.name(5),
        NamedJournal { nonce: 5, uri: Some(uri.clone()), identity: Uuid::NIL }
    );
    make(&place, OWNER, bed.shape).unwrap();
    assert_eq!(path.metadata().unwrap().len(), bed.shape.size());
    let other = Owner { disk: Uuid([2; 16]), nonce: 1 };
    let error = make(&place, other, bed.shape).unwrap_err().to_string();
    assert!(error.contains("destage journal of another disk"), "{error}");
    // A longer one than it was takes no room from what is behind it.
    let longer = Shape::for_log(256);
    let mut bytes = fs::read(&path).unwrap();
    bytes.resize(longer.size() as usize, 0);
    bytes[bed.shape.size() as usize + 7] = 1;
    fs::write(&path, &bytes).unwrap();
    assert!(make(&place, OWNER, longer).is_err());
    make(&place, OWNER, bed.shape).unwrap();
    fs::write(&path, vec![1; bed.shape.size() as usize]).unwrap();
    let error = make(&place, OWNER, bed.shape).unwrap_err().to_string();
    assert!(error.contains("holds something that is no destage journal"), "{error}");
    assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 1));
}

#[test]
fn a_place_that_is_too_small_says_what_is_needed() {
    let text = "mem:64KiB".to_owned();
    let place = JournalPlace { uri: text.parse().unwrap(), text, is_beside: false };
    let error = make(&place, OWNER, Shape::for_log(64)).unwrap_err().to_string();
    assert!(
        error.contains("mem:64KiB has 64 KiB, and the journal of this write log needs"),
        "{error}"
    );
}

#[test]
fn what_is_there_is_looked_at_before_anything_of_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious");
    let shape = Shape::for_log(64);
    let place = JournalPlace::at(path.to_str().unwrap()).unwrap();
    // A few bytes; a label behind blank space, as file systems have it; one at the very end.
    for (len, at) in [(14, 3), (1 << 20, 65536), (3 << 20, (3 << 20) - 9), (5 << 20, 2 << 20)] {
        let mut bytes = vec![0; len];
        bytes[at] = 7;
        fs::write(&path, &bytes).unwrap();
        assert!(make(&place, OWNER, shape).is_err(), "{len}");
        assert!(fs::read(&path).unwrap() == bytes, "{len} bytes are as they were");
    }
    fs::write(&path, vec![0; 8192]).unwrap();
    make(&place, OWNER, shape).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), shape.size());
    let other = Owner { disk: Uuid([2; 16]), nonce: 1 };
    let error = format!("{:#}", make(&place, other, shape).unwrap_err());
    assert!(error.contains("another disk") && error.contains("give each disk its own"), "{error}");
}

#[test]
fn a_journal_is_what_outlives_the_process_and_is_found_from_everywhere() {
    for text in ["mem:64MiB", "model:san?iops=100&inner=mem:1MiB", "file:journal"] {
        assert!(JournalPlace::at(text).is_err(), "{text}");
    }
    let place = JournalPlace::beside(Path::new("/x/a%20b?.raw.forebay")).unwrap();
    assert_eq!(place.path(), Some(Path::new("/x/a%20b?.raw.forebay-journal")));
    // Past the page cache as primary storage is: a crash of the host must not lose it alone.
    assert!(matches!(&place.uri, Uri::File(file) if file.direct));
    let place = JournalPlace::at("journal").unwrap();
    assert!(place.path().unwrap().is_absolute());
    assert!(place.name(1).uri.unwrap().starts_with('/'));
}

#[test]
fn a_journal_at_a_path_with_a_colon_is_named_and_found_again() {
    let place = JournalPlace::at("/srv/a:b/journal").unwrap();
    let sidecar = |uri| forebay_core::flash_pool::sidecar::Sidecar {
        disk: Uuid([1; 16]),
        pool: Uuid([2; 16]),
        generation: forebay_core::ids::Generation(1),
        state: forebay_core::flash_pool::sidecar::SidecarState::Open,
        date: 0,
        host: String::new(),
        name: "db".into(),
        journal: Some(uri),
    };
    let named = JournalPlace::named(&sidecar(place.name(7)), Path::new("/x.forebay")).unwrap();
    assert_eq!(named.unwrap().uri, place.uri);
    assert!(JournalPlace::at("nothing:b").is_err());
}

#[test]
fn a_link_in_the_place_of_a_journal_beside_an_image_leads_to_nothing_that_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let place = JournalPlace::beside(&folder.path().join("db.raw.forebay")).unwrap();
    let precious = folder.path().join("precious");
    for bytes in [&b"of somebody else"[..], &[]] {
        fs::write(&precious, bytes).unwrap();
        std::os::unix::fs::symlink(&precious, place.path().unwrap()).unwrap();
        let error = make(&place, OWNER, Shape::for_log(64)).unwrap_err().to_string();
        assert!(error.contains("is a link"), "{error}");
        assert_eq!(fs::read(&precious).unwrap(), bytes);
        fs::remove_file(place.path().unwrap()).unwrap();
    }
    make(&place, OWNER, Shape::for_log(64)).unwrap();
}
