//! Disks without flash, whose sidecar lies in the state folder.

use super::*;

#[test]
fn a_disk_without_flash_leaves_a_sidecar_in_the_state_folder_alone() {
    let mut bed = Bed::new();
    let begin = |bed: &Bed| {
        let (probe, place) = bed.sides();
        let mut notes = Vec::new();
        let alone = Alone::begin(probe, place, "db", None, None, &mut notes).unwrap();
        assert_eq!(notes, []);
        alone
    };
    assert!(begin(&bed).fence.is_none(), "an image has its lock and its time");
    bed.is_apart = true;
    let first = begin(&bed);
    assert!(!first.is_unanswered);
    drop(first);
    let killed = begin(&bed);
    assert!(killed.is_unanswered);
    killed.fence.unwrap().leave(EndOfSession::Clean, true, false).unwrap();
    let stopped = begin(&bed);
    assert!(!stopped.is_unanswered);
    stopped.fence.unwrap().leave(EndOfSession::Failed, false, false).unwrap();
    assert!(begin(&bed).is_unanswered);
    // A disk with flash does not take what it finds for what it left.
    let mut bed = Bed::new();
    bed.is_apart = true;
    bed.serve().leave(EndOfSession::Clean);
    begin(&bed).fence.unwrap().leave(EndOfSession::Clean, true, false).unwrap();
    assert_eq!(bed.verdict(), Verdict::Mismatch(fence::Change::OtherDisk));
}

#[test]
fn a_disk_without_flash_that_was_killed_is_unanswered_at_any_address_of_its_server() {
    let mut bed = Bed::new();
    bed.is_apart = true;
    let folder = bed.place().path().unwrap().parent().unwrap().to_owned();
    let path = |address| folder.join(address).with_extension("forebay");
    let begin = |address, name| {
        let place = SidecarPlace::Apart(path(address));
        Alone::begin(bed.sides().0, place, name, None, None, &mut Vec::new()).unwrap()
    };
    drop(begin("first", "db").fence);
    assert!(!begin("third", "another").is_unanswered);
    let second = begin("second", "db");
    assert!(second.is_unanswered, "killed at the first");
    // Of two sidecars the one of the last session counts, and the first was killed a while ago.
    let mut first = Sidecar::decode(&fs::read(path("first")).unwrap()).unwrap();
    first.date -= 60;
    fs::write(path("first"), first.encode()).unwrap();
    second.fence.unwrap().leave(EndOfSession::Clean, true, false).unwrap();
    assert!(!begin("second", "db").is_unanswered);
}

/// Serves the image without flash, with the rights over another disk, and leaves it so.
fn serve_alone(bed: &Bed, takes_over: Option<Uuid>, end: EndOfSession) {
    let (probe, place) = bed.sides();
    let (mut notes, state) = (Vec::new(), bed.path("state"));
    let state = Some(state.as_path()).filter(|_| bed.has_state);
    let alone = Alone::begin(probe, place, "db", takes_over, state, &mut notes).unwrap();
    assert_eq!(notes, []);
    let mut fence = alone.fence.expect("it leaves a sidecar");
    fence.leave(end, true, false).unwrap();
}

#[test]
fn a_disk_that_lost_its_place_does_not_take_what_others_wrote_for_its_own() {
    // Nobody knows when it wrote last: its host was lost.
    let killed = |is_apart, has_state| {
        let mut bed = Bed::new();
        (bed.is_apart, bed.has_state) = (is_apart, has_state);
        let served = bed.serve();
        let disk = served.log.disk;
        if let Some(last_write) = &served.fence.last_write {
            last_write.remove();
        }
        drop(served);
        assert_eq!(bed.verdict(), Verdict::Weak(fence::Doubt::Unseen));
        (bed, disk)
    };
    for (is_apart, has_state) in [(false, false), (false, true), (true, true)] {
        let (bed, disk) = killed(is_apart, has_state);
        serve_alone(&bed, Some(disk), EndOfSession::Clean);
        let expect = Verdict::Mismatch(fence::Change::OtherDisk);
        assert_eq!(bed.verdict(), expect, "{is_apart} {has_state}");
    }
    // Nothing beside primary storage tells of it after a detach, but this host remembers.
    for is_apart in [false, true] {
        let (bed, disk) = killed(is_apart, true);
        serve_alone(&bed, Some(disk), EndOfSession::Detached);
        assert_eq!(bed.verdict(), Verdict::Mismatch(fence::Change::Detached), "{is_apart}");
    }
    // Neither does a disk with other flash leave anything.
    let (mut bed, disk) = killed(false, true);
    fs::rename(bed.path("pool"), bed.path("old")).unwrap();
    bed.wish.takes_over = Some(disk);
    bed.serve().leave(EndOfSession::Detached);
    fs::rename(bed.path("old"), bed.path("pool")).unwrap();
    bed.wish.takes_over = None;
    assert_eq!(bed.verdict(), Verdict::Mismatch(fence::Change::Detached));
}
