//! Primary storage that a session left torn, with a window in its destage journal.

use std::sync::{Arc, Mutex};

use forebay_core::journal::{Owner, Shape};

use super::*;
use crate::fence::resolve::{Decision, Sides, decide};
use crate::journal::{self, Journal, JournalPlace, check, make, testing};
use crate::pool::testing::note_progress;

const NONCE: u64 = 7;

impl Bed {
    fn beside(&self) -> JournalPlace {
        JournalPlace::beside(&self.path("db.raw.forebay")).unwrap()
    }

    /// A session whose journal at `place` has a window that is not in place.
    fn serve_torn(&self, place: &JournalPlace) -> Served {
        let mut served = self.serve();
        let owner = Owner { disk: served.log.disk, nonce: NONCE };
        let shape = Shape::for_log(64);
        make(place, owner, shape).unwrap();
        testing::record(place, owner, shape, 1, 3, 0x11);
        served.fence.name_journal(place, NONCE).unwrap();
        served
    }

    fn byte(&self) -> u8 {
        fs::read(self.path("db.raw")).unwrap()[3 * 4096]
    }

    /// A start up to its journal, that fails then.
    fn start(&self) -> Result<()> {
        let mut pool = self.pool();
        let (number, mut examined) = self.examine(&mut pool)?;
        let record = pool.record(number);
        examined.put_journal_in_place(&record, || pool.begin_repair(number), &mut Vec::new())
    }

    fn refusal(&self) -> String {
        format!("{:#}", self.start().expect_err("it is refused"))
    }

    fn decide(&self, decision: &Decision) -> Result<Vec<String>> {
        decide(Arc::new(Mutex::new(self.pool())), "db", None, decision)
    }

    /// Windows of the journal that are not retired.
    fn windows(&self, place: &JournalPlace) -> u32 {
        let owner = journal::owner(&self.sidecar()).expect("it is named");
        match check(place, owner, 8 * MIB).unwrap() {
            Journal::Found(found) => found.windows,
            other => panic!("{other:?}"),
        }
    }
}

/// A bed whose pool was put back as it was before a session that left primary storage torn: its log is clean. An administrator
/// says that the newer one is gone.
fn put_back() -> Bed {
    let mut bed = Bed::new();
    bed.serve().leave(EndOfSession::Clean);
    fs::copy(bed.path("pool"), bed.path("old")).unwrap();
    drop(bed.serve_torn(&bed.beside()));
    fs::copy(bed.path("old"), bed.path("pool")).unwrap();
    bed.wish.takes_over = Some(bed.sidecar().disk);
    bed
}

#[test]
fn a_torn_image_is_not_served_with_an_old_copy_of_its_pool() {
    let bed = put_back();
    let refused = bed.refusal();
    assert!(refused.contains("forebay image repair") && refused.contains("db.raw"), "{refused}");
    assert_eq!(bed.byte(), 1, "nothing was put in place");
    crate::image::repair(bed.path("db.raw").to_str().unwrap(), None, false, None).unwrap();
    assert_eq!(bed.byte(), 0x11);
    bed.start().unwrap();
}

#[test]
fn a_start_that_died_before_it_named_its_new_journal_leaves_nothing_torn() {
    let bed = put_back();
    let owner = Owner { disk: bed.sidecar().disk, nonce: NONCE + 1 };
    make(&bed.beside(), owner, Shape::for_log(64)).unwrap();
    bed.start().unwrap();
}

#[test]
fn a_journal_that_is_away_or_another_one_is_no_proof_that_an_image_is_whole() {
    let bed = put_back();
    let journal = bed.path("db.raw.forebay-journal");
    let disk = bed.sidecar().disk;
    fs::rename(&journal, bed.path("away")).unwrap();
    let claim = {
        let (probe, place) = bed.sides();
        check_claim(probe.as_ref(), &place, Some(disk), None).unwrap_err().to_string()
    };
    let decided = format!("{:#}", bed.decide(&Decision::UseLog).unwrap_err());
    for refused in [bed.refusal(), claim, decided] {
        assert!(refused.contains("is not there") && refused.contains("Mount it"), "{refused}");
    }
    let other = Owner { disk: Uuid([9; 16]), nonce: NONCE + 1 };
    make(&bed.beside(), other, Shape::for_log(64)).unwrap();
    let refused = bed.refusal();
    assert!(refused.contains("another one is there"), "{refused}");
    fs::write(&journal, "short").unwrap();
    let refused = bed.refusal();
    assert!(refused.contains("cannot be read"), "{refused}");
    // What it says to do helps.
    fs::remove_file(bed.path("db.raw.forebay")).unwrap();
    bed.start().unwrap();
}

#[test]
fn a_log_is_not_taken_over_a_torn_image_whose_sidecar_would_forget_its_journal() {
    let bed = Bed::new();
    drop(bed.serve_torn(&bed.beside()));
    for decision in [Decision::UseLog, Decision::DiscardLog("0".into())] {
        let error = bed.decide(&decision).unwrap_err().to_string();
        assert!(error.contains("forebay image repair"), "{error}");
        assert_eq!(bed.windows(&bed.beside()), 1, "the sidecar still names it");
    }
}

#[test]
fn a_start_that_died_after_it_wrote_is_followed_by_one_that_finds_the_same() {
    if !has_tmpfs() {
        return;
    }
    let bed = Bed::new();
    bed.serve_torn(&bed.beside()).leave(EndOfSession::Dirty);
    assert_eq!((bed.verdict(), bed.byte()), (Verdict::Strong, 1));
    for _ in 0..2 {
        bed.start().unwrap();
        assert_eq!((bed.verdict(), bed.byte()), (Verdict::Strong, 0x11));
    }
    let pool = bed.pool();
    let record = pool.record(pool.find("db").unwrap());
    assert!(record.flags.has(DiskFlags::UNANSWERED), "what it sent may still be carried out");
    drop(pool);
    // Whoever writes later is still found, and what an administrator decides about that counts.
    bed.image().set_modified(SystemTime::now() + Duration::from_secs(3)).unwrap();
    assert!(matches!(bed.verdict(), Verdict::Mismatch(fence::Change::Modified { .. })));
    bed.decide(&Decision::UseLog).unwrap();
    assert_eq!(bed.verdict(), Verdict::Strong);
}

#[test]
fn a_start_that_wrote_on_weak_evidence_leaves_it_weak() {
    if !has_tmpfs() {
        return;
    }
    let bed = Bed::new();
    bed.serve_torn(&bed.beside()).leave(EndOfSession::Dirty);
    let modified = fs::metadata(bed.path("db.raw")).unwrap().modified().unwrap();
    bed.image().set_modified(modified).unwrap();
    assert_eq!(bed.verdict(), Verdict::Weak(fence::Doubt::Touched));
    bed.start().unwrap();
    assert_eq!(bed.byte(), 0x11);
    assert_eq!(bed.verdict(), Verdict::Weak(fence::Doubt::Unseen));
}

#[test]
fn a_start_that_writes_nothing_changes_no_evidence() {
    let bed = Bed::new();
    bed.serve().leave(EndOfSession::Dirty);
    bed.start().unwrap();
    let pool = bed.pool();
    let number = pool.find("db").unwrap();
    assert_eq!(last_write::left(pool.record(number).uuid), None);
}

#[test]
fn the_journal_of_another_image_is_not_put_in_place() {
    let bed = Bed::new();
    let elsewhere = JournalPlace::at(&format!("file:{}", bed.path("elsewhere").display())).unwrap();
    bed.serve_torn(&elsewhere).leave(EndOfSession::Dirty);
    let own = bed.sidecar();
    let named = own.journal.clone().unwrap();
    assert_eq!(named.identity, identity(Some(&bed.probe())));
    // As in a copy that has the other one's sidecar.
    let journal =
        Some(forebay_core::flash_pool::sidecar::NamedJournal { identity: Uuid([9; 16]), ..named });
    let other = Sidecar { journal, ..own.clone() };
    sidecar::write(&bed.path("db.raw.forebay"), &other).unwrap();
    let refused = bed.refusal();
    assert!(
        refused.contains("belongs to another image") && refused.contains("--force"),
        "{refused}"
    );
    assert_eq!((bed.byte(), bed.windows(&elsewhere)), (1, 1));
    sidecar::write(&bed.path("db.raw.forebay"), &own).unwrap();
    bed.start().unwrap();
    assert_eq!((bed.byte(), bed.windows(&elsewhere)), (0x11, 0));
    // What has nothing for anybody keeps no disk from being served.
    sidecar::write(&bed.path("db.raw.forebay"), &other).unwrap();
    bed.start().unwrap();
}

#[test]
fn a_detach_leaves_neither_sidecar_nor_journal() {
    let bed = Bed::new();
    bed.serve_torn(&bed.beside()).leave(EndOfSession::Detached);
    assert!(!bed.path("db.raw.forebay").exists() && !bed.path("db.raw.forebay-journal").exists());
}

#[test]
fn whoever_gives_up_a_log_that_was_destaged_in_part_is_told_that_the_image_may_be_torn() {
    for (through, is_torn) in [(0, false), (1, true)] {
        let bed = Bed::new();
        let mut served = bed.serve();
        served.append(1);
        let (number, progress) = (served.number, (Sequence(0), Sequence(through)));
        note_progress(&mut served.pool, number, progress).unwrap();
        served.leave(EndOfSession::Dirty);
        let sides = Sides::open(Arc::new(Mutex::new(bed.pool())), "db", None).unwrap();
        let (said, shown) = (sides.describe(), sides.shown());
        assert_eq!(said.contains("image alone may be torn"), is_torn, "{said}");
        assert_eq!(serde_json::to_value(shown).unwrap()["image_may_be_torn"], is_torn);
        drop(sides);
        // The log makes it whole.
        assert_eq!(bed.decide(&Decision::UseLog).unwrap(), [""; 0]);
        let warned = bed.decide(&Decision::DiscardLog("4096".into())).unwrap().join("; ");
        assert_eq!(warned.contains("image alone may be torn"), is_torn, "{warned}");
        // Nothing is given up any more.
        let sides = Sides::open(Arc::new(Mutex::new(bed.pool())), "db", None).unwrap();
        assert!(!sides.describe().contains("torn"));
    }
}
