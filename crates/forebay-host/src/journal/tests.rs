use forebay_core::flash_pool::sidecar::SidecarState;
use forebay_core::ids::{Generation, Sequence, Uuid};
use forebay_core::journal::record::{Contents, Entry, Head};
use forebay_core::sealed::crc32c;
use forebay_core::write_back::format::index::{ALL, PageIndex};

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
        make(&bed.journal(), OWNER, bed.shape).unwrap();
        bed
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("db.raw")
    }

    fn journal(&self) -> PathBuf {
        beside(&self.folder.path().join("db.raw.forebay"))
    }

    fn sidecar(&self, nonce: Option<u64>) -> Sidecar {
        Sidecar {
            disk: OWNER.disk,
            pool: Uuid([2; 16]),
            generation: Generation(1),
            state: SidecarState::OpenWithLog,
            date: 5,
            host: "h".into(),
            name: "db".into(),
            journal: nonce,
        }
    }

    /// A whole record of one page of this byte.
    fn record(&self, window: u64, page: u64, byte: u8) {
        let mut journal = FileMedium::open(&self.journal(), true).unwrap();
        let payload = [byte; PAGE_LEN];
        journal.write(self.shape.payload(window, 0, 1).start, &payload).unwrap();
        let entry = Entry { page: PageIndex(page), sectors: ALL, checksum: crc32c(&payload) };
        let contents = Contents { zeroes: Vec::new(), pages: vec![entry] };
        let mut header = vec![0; contents.header_pages() as usize * PAGE_LEN];
        contents.encode(Head::new(OWNER, Generation(1), window, Sequence(9)), &mut header);
        journal.write(self.shape.header(window).start, &header).unwrap();
    }

    fn byte(&self, page: u64) -> u8 {
        fs::read(self.image()).unwrap()[page as usize * PAGE_LEN]
    }

    fn repair(&self, nonce: Option<u64>) -> Journal {
        let (journal, image) = (self.journal(), self.image());
        repair(&journal, &self.sidecar(nonce), &image, SIZE, None).unwrap()
    }
}

#[test]
fn a_whole_record_is_put_in_place_once() {
    let bed = Bed::new();
    bed.record(1, 3, 0x11);
    let Journal::Found(found) = check(&bed.journal(), &bed.sidecar(Some(7)), SIZE).unwrap() else {
        panic!("it is there")
    };
    assert_eq!((found.windows, bed.byte(3)), (1, 0), "to look changes nothing");
    assert!(matches!(bed.repair(Some(7)), Journal::Found(found) if found.windows == 1));
    assert_eq!(bed.byte(3), 0x11);
    assert!(matches!(bed.repair(Some(7)), Journal::Found(found) if found.windows == 0));
}

#[test]
fn a_journal_that_is_not_named_changes_nothing() {
    let bed = Bed::new();
    bed.record(1, 3, 0x11);
    assert_eq!(bed.repair(None), Journal::None);
    assert_eq!(bed.repair(Some(8)), Journal::Foreign(OWNER));
    assert_eq!(bed.byte(3), 0);
    fs::remove_file(bed.journal()).unwrap();
    assert_eq!(bed.repair(Some(7)), Journal::None);
}

#[test]
fn a_damaged_journal_is_an_error_that_names_it() {
    let bed = Bed::new();
    fs::write(bed.journal(), vec![0; 8 * PAGE_LEN]).unwrap();
    let error = check(&bed.journal(), &bed.sidecar(Some(7)), SIZE).unwrap_err();
    assert!(error.to_string().contains("db.raw.forebay-journal cannot be used"), "{error}");
}

#[test]
fn a_pipe_in_its_place_is_an_error_and_holds_nobody_up() {
    let bed = Bed::new();
    fs::remove_file(bed.journal()).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, bed.journal(), kind, mode, 0).unwrap();
    for error in [
        check(&bed.journal(), &bed.sidecar(Some(7)), SIZE).unwrap_err(),
        repair(&bed.journal(), &bed.sidecar(Some(7)), &bed.image(), SIZE, None).unwrap_err(),
    ] {
        assert!(format!("{error:#}").contains("it is no regular file"), "{error:#}");
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
