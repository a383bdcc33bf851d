//! A torn image in a folder, with its sidecar and its journal.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_backends::OpenOptions;
use forebay_core::flash_pool::sidecar::NamedJournal;
use forebay_core::ids::{Generation, Uuid};
use forebay_core::journal::Shape;

use super::*;
use crate::fence::replace;
use crate::journal::{make, testing};

const SIZE: u64 = 1 << 20;
const OWNER: Owner = Owner { disk: Uuid([1; 16]), nonce: 7 };

struct Bed(tempfile::TempDir);

impl Bed {
    /// An image that has nothing of a window, and its journal at `journal`; where it is not named, beside it.
    fn new(journal: Option<&str>) -> Bed {
        let bed = Bed(tempfile::tempdir().unwrap());
        fs::write(bed.path("db.raw"), vec![0; SIZE as usize]).unwrap();
        let place = bed.journal(journal);
        let shape = Shape::for_log(64);
        make(&place, OWNER, shape).unwrap();
        testing::record(&place, OWNER, shape, 1, 3, 0x11);
        let probe = bed.probe();
        let identity = journal.map_or(Uuid::NIL, |_| fence::identity(Some(&probe)));
        bed.leave(Some(NamedJournal { identity, ..place.name(OWNER.nonce) }));
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn image(&self) -> String {
        self.path("db.raw").display().to_string()
    }

    fn journal(&self, name: Option<&str>) -> JournalPlace {
        match name {
            Some(name) => JournalPlace::at(&format!("file:{}", self.path(name).display())).unwrap(),
            None => JournalPlace::beside(&self.path("db.raw.forebay")).unwrap(),
        }
    }

    fn probe(&self) -> Probe {
        let uri: Uri = format!("file:{}", self.image()).parse().unwrap();
        forebay_backends::open(&uri, OpenOptions::default()).unwrap().probe().unwrap()
    }

    fn leave(&self, journal: Option<NamedJournal>) {
        let sidecar = Sidecar {
            disk: OWNER.disk,
            pool: Uuid([2; 16]),
            generation: Generation(3),
            state: SidecarState::OpenWithLog,
            date: 5,
            host: "h".into(),
            name: "db".into(),
            journal,
        };
        replace(&self.path("db.raw.forebay"), &sidecar.encode()).unwrap();
    }

    fn check(&self, journal: Option<&str>) -> Result<ImageReport> {
        check(&self.image(), journal, None)
    }

    fn repair(&self, journal: Option<&str>, force: bool) -> Result<ImageReport> {
        repair(&self.image(), journal, force, None)
    }

    fn byte(&self) -> u8 {
        fs::read(self.path("db.raw")).unwrap()[3 * 4096]
    }

    fn set_time(&self, name: &str, time: SystemTime) {
        File::options().write(true).open(self.path(name)).unwrap().set_modified(time).unwrap();
    }

    fn time(&self) -> SystemTime {
        self.path("db.raw").metadata().unwrap().modified().unwrap()
    }
}

/// Seconds from now, in the past or the future, without a fraction.
fn from_now(seconds: i64) -> SystemTime {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    UNIX_EPOCH + Duration::from_secs(now.checked_add_signed(seconds).unwrap())
}

#[test]
fn a_torn_image_is_repaired_and_keeps_its_time() {
    let bed = Bed::new(None);
    let before = from_now(-20);
    bed.set_time("db.raw", before);
    assert_eq!(bed.check(None).unwrap().state, ImageState::Torn);
    assert_eq!(bed.repair(None, false).unwrap().state, ImageState::Repaired);
    assert_eq!((bed.byte(), bed.time()), (0x11, before));
    assert_eq!(bed.check(None).unwrap().state, ImageState::InPlace);
    assert!(!bed.path("db.raw.forebay.repair").exists());
}

#[test]
fn a_repair_that_ended_early_is_followed_by_one_that_finds_the_same() {
    for is_retired in [false, true] {
        let bed = Bed::new(None);
        let before = from_now(-20);
        bed.set_time("db.raw", before);
        // Whoever only reads the journal keeps it from being retired: the repair notes the time, and fails.
        let uri: Uri =
            format!("file:{}", bed.path("db.raw.forebay-journal").display()).parse().unwrap();
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let reader = forebay_backends::open(&uri, options).unwrap();
        bed.repair(None, false).unwrap_err();
        // One that got further, and one that does not get so far.
        bed.set_time("db.raw", from_now(5));
        bed.repair(None, false).unwrap_err();
        assert_eq!(bed.time(), before);
        drop(reader);
        assert!(bed.path("db.raw.forebay.repair").exists());
        if is_retired {
            let probe = bed.probe();
            let primary = || Primary::of(&probe, None, false);
            journal::repair(&bed.journal(None), OWNER, primary, SIZE, false).unwrap();
        }
        // Much later somebody tries again, and that repair dies too.
        bed.set_time("db.raw", from_now(7200));
        bed.set_time("db.raw.forebay.repair", from_now(7200));
        let expect = if is_retired { ImageState::InPlace } else { ImageState::Repaired };
        assert_eq!(bed.repair(None, false).unwrap().state, expect);
        assert_eq!((bed.byte(), bed.time()), (0x11, before), "retired: {is_retired}");
        assert!(!bed.path("db.raw.forebay.repair").exists());
    }
}

#[test]
fn whoever_writes_to_an_image_after_a_repair_that_died_is_not_hidden_by_the_next_one() {
    let bed = Bed::new(None);
    bed.set_time("db.raw", from_now(-20));
    let image = Image::open(&bed.image(), None, false, None).unwrap();
    image.repair_note().unwrap().unwrap().write().unwrap();
    drop(image);
    let later = from_now(7200);
    bed.set_time("db.raw", later);
    let error = bed.repair(None, false).unwrap_err().to_string();
    assert!(error.contains("later than its journal") && error.contains("--force"), "{error}");
    assert_eq!((bed.byte(), bed.time()), (0, later));
    assert_eq!(bed.repair(None, true).unwrap().state, ImageState::Repaired);
    assert_eq!((bed.byte(), bed.time()), (0x11, later), "its disk sees that");
    assert!(!bed.path("db.raw.forebay.repair").exists());
}

#[test]
fn a_repair_over_a_server_says_in_the_sidecar_that_it_may_still_write_until_it_is_done() {
    let bed = Bed::new(None);
    let path = bed.path("db.raw.forebay");
    let place = SidecarPlace::of(Some(&bed.probe()), None);
    let left = Sidecar { state: SidecarState::Dirty, ..left_beside(&place).unwrap().unwrap() };
    replace(&path, &left.encode()).unwrap();
    let sidecar = || fs::read_to_string(&path).unwrap();
    let before = sidecar();
    let image = Image::open(&bed.image(), None, false, None).unwrap();
    image.write_state(true).unwrap();
    assert!(sidecar().contains("\nstate open-with-log\n"), "{}", sidecar());
    assert!(sidecar().contains("\njournal "), "it still names its journal: {}", sidecar());
    image.write_state(false).unwrap();
    assert_eq!(sidecar(), before);
}

#[test]
fn a_look_that_repairs_nothing_leaves_the_image_as_it_is() {
    use std::os::unix::fs::MetadataExt;
    let bed = Bed::new(None);
    bed.repair(None, false).unwrap();
    let changed = || {
        let there = bed.path("db.raw").metadata().unwrap();
        (there.ctime(), there.ctime_nsec())
    };
    let before = changed();
    bed.repair(None, false).unwrap();
    assert_eq!(changed(), before);
}

#[test]
fn the_date_of_the_newest_window_tells_an_image_from_a_backup() {
    for journal in [None, Some("elsewhere")] {
        let bed = Bed::new(journal);
        let yesterday = from_now(-86_400);
        bed.set_time("db.raw", yesterday);
        // A journal that was copied as well has the time of its copy.
        bed.set_time(journal.unwrap_or("db.raw.forebay-journal"), yesterday);
        let error = bed.repair(None, false).unwrap_err().to_string();
        assert!(error.contains("earlier than its journal") && error.contains("--force"), "{error}");
        assert_eq!(bed.byte(), 0);
        assert_eq!(bed.repair(None, true).unwrap().state, ImageState::Repaired);
        assert_eq!(bed.byte(), 0x11);
    }
}

#[test]
fn a_copy_does_not_take_the_windows_of_a_journal_elsewhere() {
    let bed = Bed::new(Some("elsewhere"));
    let copy = bed.path("copy");
    fs::create_dir(&copy).unwrap();
    for name in ["db.raw", "db.raw.forebay"] {
        fs::copy(bed.path(name), copy.join(name)).unwrap();
    }
    let of_copy = copy.join("db.raw").display().to_string();
    let error = repair(&of_copy, None, false, None).unwrap_err().to_string();
    assert!(error.contains("written for another image"), "{error}");
    assert_eq!(bed.check(None).unwrap().state, ImageState::Torn, "the windows are still there");
    assert_eq!(bed.repair(None, false).unwrap().state, ImageState::Repaired);
    // A folder that is copied as a whole has its own journal.
    let bed = Bed::new(None);
    fs::create_dir(bed.path("copy")).unwrap();
    for name in ["db.raw", "db.raw.forebay", "db.raw.forebay-journal"] {
        fs::copy(bed.path(name), bed.path("copy").join(name)).unwrap();
    }
    let of_copy = bed.path("copy/db.raw").display().to_string();
    assert_eq!(repair(&of_copy, None, false, None).unwrap().state, ImageState::Repaired);
}

#[test]
fn an_image_that_was_left_with_a_log_and_without_a_journal_is_warned_of() {
    let bed = Bed::new(None);
    bed.leave(None);
    let alone = bed.check(None).unwrap();
    assert_eq!(alone.state, ImageState::Alone);
    assert!(alone.warnings.iter().any(|text| text.contains("'destage-order' was 'strict'")));
}

#[test]
fn an_image_that_is_whole_is_warned_of_when_its_disk_was_left_with_a_log() {
    let bed = Bed::new(None);
    bed.repair(None, false).unwrap();
    let whole = bed.check(None).unwrap();
    assert_eq!(whole.state, ImageState::InPlace);
    let warned = |text: &String| text.contains("newer data") && text.contains("start the disk");
    assert!(whole.warnings.iter().any(warned), "{:?}", whole.warnings);
}

#[test]
fn a_journal_that_no_sidecar_names_says_nothing_of_an_image() {
    let bed = Bed::new(None);
    let journal = bed.path("db.raw.forebay-journal").display().to_string();
    fs::remove_file(bed.path("db.raw.forebay")).unwrap();
    assert_eq!(bed.check(None).unwrap().state, ImageState::Alone);
    for _ in ["it has a window", "all of it is retired"] {
        assert_eq!(bed.check(Some(&journal)).unwrap().state, ImageState::Unknown);
        let error = bed.repair(Some(&journal), false).unwrap_err().to_string();
        assert!(error.contains("no sidecar says") && error.contains("--force"), "{error}");
        bed.repair(Some(&journal), true).unwrap();
        assert_eq!(bed.byte(), 0x11);
    }
}

#[test]
fn a_journal_that_is_asked_for_in_vain_is_an_error() {
    let bed = Bed::new(None);
    let error = |journal| format!("{:#}", bed.check(journal).unwrap_err());
    let missing = error(Some("/nowhere/nope.j"));
    assert!(missing.contains("/nowhere/nope.j is not there"), "{missing}");
    assert!(!missing.contains("names"), "{missing}");
    bed.leave(None);
    let journal = bed.path("db.raw.forebay-journal").display().to_string();
    let refused = error(Some(&journal));
    assert!(refused.contains("names no destage journal"), "{refused}");
    fs::remove_file(bed.path("db.raw.forebay-journal")).unwrap();
    bed.leave(Some(bed.journal(None).name(OWNER.nonce)));
    let gone = error(None);
    assert!(gone.contains("names the destage journal") && gone.contains("not there"), "{gone}");
}

#[test]
fn a_path_is_taken_as_it_is() {
    let bed = Bed::new(None);
    for name in ["db%2eraw", "db.raw?direct=off", "a:db.raw"] {
        let path = bed.path(name).display().to_string();
        assert!(check(&path, None, None).is_err(), "{name} is not db.raw");
        fs::write(&path, vec![0; SIZE as usize]).unwrap();
        assert_eq!(check(&path, None, None).unwrap().image, path);
    }
}
