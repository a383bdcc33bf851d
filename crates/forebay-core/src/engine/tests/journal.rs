//! Windows that go through a journal: what reaches it, and primary storage, before what.

use super::*;
use crate::action::DestageFault;
use crate::config::DestageOrder;
use crate::ids::{Generation, Sequence, Uuid};
use crate::journal::record::{Contents, Head};
use crate::journal::{self, JournalConfig, Medium, Owner, Shape, Superblock};
use crate::sealed::PAGE_LEN;

mod failures;
mod hold;
mod images;
mod patience;

const OWNER: Owner = Owner { disk: Uuid([7; 16]), nonce: 3 };
const PIECE: u64 = 65536;

fn shape() -> Shape {
    Shape::for_log(64)
}

/// A log of 64 pages whose windows of 8 pages go through a journal.
fn journaled(barrier: bool) -> Config {
    let mut config = with_log();
    let log = config.write_log.as_mut().expect("a log");
    (log.order, log.barrier) = (DestageOrder::Journaled, barrier);
    let generation = Generation(1);
    let journal = JournalConfig::new(Superblock::first(OWNER, shape()), generation);
    log.journal = Some(JournalConfig { patience: Nanos(0), ..journal });
    config
}

/// With so many epochs in the log, of one page each, 64 KiB apart: the first holds 101.
fn with_epochs(config: Config, epochs: u64) -> Rig {
    let mut rig = write_back(config);
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    for n in 0..epochs {
        rig.write_with(n, n * PIECE, 4096, 101 + n as u8, true);
        rig.log();
    }
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    rig.log();
    rig
}

impl Rig {
    fn of(&self, target: Target) -> Vec<String> {
        let drawn = self.drawn().into_iter().zip(&self.pending);
        drawn.filter(|(_, io)| io.target == target).map(|(drawn, _)| drawn).collect()
    }

    /// Ends the oldest I/O on a device, and all of the log; false when there is none.
    fn end_one(&mut self, target: Target, status: IoStatus) -> bool {
        let Some(index) = self.pending.iter().position(|io| io.target == target) else {
            return false;
        };
        self.complete(index, status);
        self.log();
        true
    }

    fn end_all(&mut self, target: Target) {
        while self.end_one(target, IoStatus::Ok) {}
    }

    /// Ends I/O on the journal until this is to be done there.
    fn journal_until(&mut self, drawn: &str) {
        while self.of(Target::Journal) != [drawn] {
            assert!(self.end_one(Target::Journal, IoStatus::Ok), "{drawn}: {:?}", self.drawn());
        }
    }

    /// The record of a window, when its header is there.
    fn record(&self, window: u64) -> Option<(Head, Contents)> {
        let slot = shape().header(window);
        let header = &self.journal[slot.start as usize..slot.end as usize];
        let first = header.first_chunk().expect("a page");
        let head = Head::decode(first, OWNER, shape()).filter(|head| head.window == window)?;
        let contents = Contents::decode(&head, &header[PAGE_LEN..], self.backend.len() as u64);
        Some((head, contents.expect("its entries")))
    }

    fn superblock(&self) -> Option<Superblock> {
        let copy = |at: usize| self.journal[at..].first_chunk().expect("a page");
        Superblock::choose([copy(0), copy(PAGE_LEN)]).ok()
    }

    fn answer_revocation(&mut self, known: bool) {
        self.engine.journal_revoked(self.now, known, &mut self.actions);
        self.run_actions();
        self.log();
    }

    fn lose_session(&mut self) {
        self.engine.on_session_lost(self.now, &mut self.actions);
        self.run_actions();
    }

    fn lose_journal_session(&mut self) {
        self.engine.on_journal_session_lost(self.now, &mut self.actions);
        self.run_actions();
    }

    /// The bytes that the places of the first epochs have.
    fn places<const N: usize>(&self) -> [u8; N] {
        std::array::from_fn(|n| self.backend[n * PIECE as usize])
    }
}

/// Where the header of a window of up to 256 pages, or the payload, is written.
fn header(window: u64) -> String {
    format!("journal W {}+8192", shape().header(window).start)
}

fn payload(window: u64, pages: u32) -> String {
    let range = shape().payload(window, 0, pages);
    format!("journal W {}+{}", range.start, range.len())
}

#[test]
fn small_epochs_are_one_record_of_the_journal_before_any_is_in_place() {
    // One that is apart may lose its records in a loss of power that primary storage outlives.
    for (barrier, is_beside) in [(false, true), (true, true), (false, false)] {
        let mut config = journaled(barrier);
        let journal = config.write_log.as_mut().and_then(|log| log.journal.as_mut());
        journal.expect("a journal").is_beside = is_beside;
        let mut rig = with_epochs(config, 4);
        assert_eq!(rig.drawn(), [payload(1, 4)]);
        rig.end_one(Target::Journal, IoStatus::Ok);
        assert_eq!(rig.drawn(), [header(1)]);
        rig.end_one(Target::Journal, IoStatus::Ok);
        if barrier || !is_beside {
            assert_eq!(rig.drawn(), ["journal F 0+0"]);
            rig.end_one(Target::Journal, IoStatus::Ok);
        }
        assert_eq!(rig.drawn()[0], "W 0+4096");
        let (head, contents) = rig.record(1).expect("a record");
        assert_eq!((head.generation, head.through), (Generation(1), Sequence(4)));
        assert_eq!(contents.pages.len(), 4);
        assert_eq!(rig.counters().journal_windows, 1);
        assert_eq!(rig.counters().journal_writes, 2, "its payload and its header");
    }
}

#[test]
fn a_record_has_the_newest_bytes_of_each_sector_and_the_zeroes() {
    let mut rig = write_back(journaled(false));
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.write_with(1, 0, 4096, 1, true);
    rig.log();
    rig.submit(2, 8192, 8192, Op::WriteZeroes { may_unmap: true, fua: true, fast_only: false });
    rig.log();
    rig.write_with(3, 512, 1024, 2, true);
    rig.log();
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    rig.log();
    assert_eq!(rig.drawn(), [payload(1, 2)]);
    rig.end_all(Target::Journal);
    let (_, contents) = rig.record(1).expect("a record");
    assert_eq!(contents.zeroes, [ByteRange::at(8192, 8192)]);
    let sectors: Vec<_> = contents.pages.iter().map(|entry| entry.sectors.0).collect();
    assert_eq!(sectors, [0b0000_0110, 0b1111_1001]);
    rig.settle_log();
    assert_eq!((rig.backend[0], rig.backend[512], rig.backend[1536]), (1, 2, 1));
    assert!(rig.backend[8192..16384].iter().all(|&byte| byte == 0));
}

#[test]
fn a_window_is_not_in_place_before_the_one_before_is_complete() {
    let mut rig = with_epochs(journaled(false), 16);
    rig.end_all(Target::Journal);
    assert!(rig.record(1).is_some() && rig.record(2).is_some());
    for done in 0..8 {
        let first = |io: &String| io.starts_with("F ") || starts_before(io, 8 * PIECE);
        assert!(rig.of(Target::Backend).iter().all(first), "{done}: {:?}", rig.drawn());
        rig.end_one(Target::Backend, IoStatus::Ok);
        rig.end_all(Target::Journal);
    }
    assert!(rig.of(Target::Backend).contains(&"W 524288+4096".to_owned()), "{:?}", rig.drawn());
}

/// A drawn write begins before this place.
fn starts_before(drawn: &str, place: u64) -> bool {
    let start = drawn.trim_start_matches("W ").split('+').next();
    start.and_then(|start| start.parse::<u64>().ok()).is_some_and(|start| start < place)
}

#[test]
fn with_a_barrier_a_window_is_not_in_place_before_the_one_before_is_flushed() {
    let mut rig = with_epochs(journaled(true), 16);
    rig.end_all(Target::Journal);
    assert!(rig.record(2).is_some());
    for _ in 0..8 {
        rig.end_one(Target::Backend, IoStatus::Ok);
    }
    assert_eq!(rig.drawn(), ["F 0+0"]);
    rig.end_one(Target::Backend, IoStatus::Ok);
    assert_eq!(rig.of(Target::Backend)[0], "W 524288+4096");
}

#[test]
fn a_window_that_cannot_be_recorded_is_tried_again_after_a_pause() {
    for (failing, reported) in [(0, payload(1, 4)), (1, header(1)), (2, "journal F 0+0".to_owned())]
    {
        let mut rig = with_epochs(journaled(true), 4);
        for _ in 0..failing {
            rig.end_one(Target::Journal, IoStatus::Ok);
        }
        assert_eq!(rig.drawn().join(", "), reported);
        rig.end_one(Target::Journal, IoStatus::IoError);
        assert!(rig.drawn().is_empty(), "after {reported}: {:?}", rig.drawn());
        let (fault, status) = (DestageFault::Journal, IoStatus::IoError);
        assert!(rig.events.contains(&Event::DestageFailed { fault, status }));
        rig.tick(99);
        rig.log();
        assert!(rig.drawn().is_empty(), "after {reported}: {:?}", rig.drawn());
        rig.settle_log();
        assert_eq!(rig.places(), [101, 102, 103, 104]);
        assert!(rig.engine.log_is_clean());
    }
}

/// Has the journal fail until it is to be revoked.
fn failed_journal() -> Rig {
    let mut rig = with_epochs(journaled(false), 4);
    for _ in 0..4 {
        assert_eq!(rig.journal_revocations, 0);
        rig.end_one(Target::Journal, IoStatus::IoError);
        rig.tick(10_000);
        rig.log();
    }
    rig
}

#[test]
fn a_page_that_cannot_be_read_beside_others_of_its_window_is_destaged_in_order_and_then_stops_the_disk()
 {
    let mut rig = with_epochs(journaled(false), 8);
    let page = rig.pool.chunks(4096).position(|page| page.iter().all(|&byte| byte == 105));
    super::log_faults::destage_without(&mut rig, page.expect("it is there") as u64 * 4096);
    assert!(rig.engine.log_statistics(rig.now).unwrap().is_lost);
    let written = |epoch: usize| rig.backend[epoch * 65536] == 101 + epoch as u8;
    assert_eq!([0, 3, 4, 5].map(written), [true, true, false, false]);
}

#[test]
fn a_page_that_cannot_be_read_when_all_is_written_again_stops_the_disk() {
    let mut rig = with_epochs(journaled(false), 8);
    let page = rig.pool.chunks(4096).position(|page| page.iter().all(|&byte| byte == 105));
    // All of it is in place, and the flush that covers it fails.
    rig.settle_until("F 0+0");
    let flush = rig.find("F 0+0");
    rig.complete(flush, IoStatus::IoError);
    super::log_faults::destage_without(&mut rig, page.expect("it is there") as u64 * 4096);
    assert!(rig.engine.log_statistics(rig.now).unwrap().is_lost);
}

#[test]
fn a_journal_that_fails_four_times_in_a_row_is_revoked_before_anything_is_in_place() {
    let mut rig = failed_journal();
    assert_eq!(rig.journal_revocations, 1);
    rig.tick(60_000);
    rig.log();
    assert!(rig.drawn().is_empty(), "{:?}", rig.drawn());
    rig.answer_revocation(true);
    assert!(rig.events.contains(&Event::JournalRevoked));
    for n in 0..4 {
        let writes = rig.of(Target::Backend).into_iter().filter(|io| io != "F 0+0");
        assert_eq!(writes.collect::<Vec<_>>(), [format!("W {}+4096", n * PIECE)], "strict order");
        rig.complete(rig.find(&format!("W {}+4096", n * PIECE)), IoStatus::Ok);
        rig.log();
    }
    rig.settle_log();
    assert!(rig.engine.log_is_clean());
    assert_eq!((rig.journal_revocations, rig.counters().journal_windows), (1, 0));
}

#[test]
fn nothing_goes_in_place_while_nobody_knows_whether_the_journal_counts() {
    let mut rig = failed_journal();
    let before = rig.places::<4>();
    for asked in 1..4 {
        assert_eq!(rig.journal_revocations, asked);
        // The name may be gone from the sidecar all the same: a record would be put in place by nobody.
        rig.answer_revocation(false);
        assert!(rig.drawn().is_empty(), "{:?}", rig.drawn());
        rig.tick(10_000);
        rig.log();
    }
    assert!(rig.drawn().is_empty() && rig.places() == before, "{:?}", rig.drawn());
    let told = rig.events.iter().filter(|event| **event == Event::JournalNotRevoked).count();
    assert_eq!(told, 1, "once");
    rig.answer_revocation(true);
    assert!(rig.events.contains(&Event::JournalRevoked));
    rig.settle_log();
    assert_eq!((rig.places(), rig.counters().journal_windows), ([101, 102, 103, 104], 0));
}

#[test]
fn an_answer_that_nobody_waits_for_changes_nothing() {
    let mut rig = with_epochs(journaled(false), 4);
    rig.answer_revocation(true);
    assert_eq!(rig.drawn(), [payload(1, 4)]);
    assert!(!rig.events.contains(&Event::JournalRevoked));
}

#[test]
fn a_success_between_failures_keeps_the_journal() {
    let mut rig = with_epochs(journaled(false), 16);
    for (window, pages) in [(1, 8), (2, 8)] {
        for _ in 0..3 {
            rig.journal_until(&payload(window, pages));
            rig.end_one(Target::Journal, IoStatus::IoError);
            rig.tick(10_000);
            rig.log();
        }
        rig.journal_until(&header(window));
        rig.end_one(Target::Journal, IoStatus::Ok);
    }
    assert_eq!(rig.journal_revocations, 0);
}

#[test]
fn a_record_is_durable_before_the_log_may_forget_what_it_has() {
    let mut rig = with_epochs(journaled(false), 4);
    rig.end_all(Target::Journal);
    rig.end_all(Target::Backend);
    assert_eq!(rig.drawn(), ["journal F 0+0"]);
    rig.end_one(Target::Journal, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["F 0+0"]);
}

#[test]
fn a_disk_is_clean_when_its_records_are_durably_retired() {
    for barrier in [false, true] {
        let mut rig = with_epochs(journaled(barrier), 4);
        let retire = "journal W 0+4096";
        while !rig.drawn().contains(&retire.to_owned()) {
            assert!(!rig.engine.log_is_clean(), "{:?}", rig.drawn());
            rig.settle_until_one_ends();
        }
        assert_eq!(rig.places(), [101, 102, 103, 104]);
        assert!(!rig.engine.log_is_clean());
        rig.journal_until(retire);
        rig.end_one(Target::Journal, IoStatus::Ok);
        let superblock = rig.superblock().expect("it was written");
        assert_eq!((superblock.owner, superblock.shape), (OWNER, shape()));
        assert_eq!((superblock.version, superblock.retired), (2, 1));
        assert_eq!(rig.of(Target::Journal), ["journal F 0+0"]);
        assert!(!rig.engine.log_is_clean());
        rig.end_one(Target::Journal, IoStatus::Ok);
        assert!(rig.engine.log_is_clean());
    }
}

impl Rig {
    /// Ends the oldest I/O, or lets time pass where there is none.
    fn settle_until_one_ends(&mut self) {
        match self.pending.is_empty() {
            true => {
                self.now = self.now.max(self.engine.next_deadline());
                self.tick(0);
            }
            false => self.complete(0, IoStatus::Ok),
        }
        self.log();
    }
}

#[test]
fn the_log_is_left_after_its_records_are_retired() {
    let mut rig = with_epochs(journaled(false), 4);
    rig.end_all(Target::Journal);
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    rig.run_actions();
    while rig.superblock().is_none() {
        assert_eq!(rig.engine.mode(), Mode::WriteBack);
        rig.settle_until_one_ends();
    }
    assert_eq!(rig.engine.mode(), Mode::WriteBack, "that may not be durable");
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    rig.write(20, 0, 4096, 9);
    rig.settle();
    assert_eq!((rig.replied(20).1, rig.backend[0]), (IoStatus::Ok, 9));
}

#[test]
fn records_that_cannot_be_retired_are_retired_later() {
    for failing in ["journal W 0+4096", "journal F 0+0"] {
        let mut rig = with_epochs(journaled(true), 4);
        rig.end_all(Target::Journal);
        rig.end_all(Target::Backend);
        rig.log();
        rig.journal_until("journal W 0+4096");
        if failing == "journal F 0+0" {
            rig.journal_until(failing);
        }
        rig.end_one(Target::Journal, IoStatus::IoError);
        assert!(!rig.engine.log_is_clean(), "{failing}");
        rig.settle_log();
        assert!(rig.engine.log_is_clean(), "{failing}");
        let superblock = rig.superblock().expect("it was written");
        assert_eq!((superblock.version, superblock.retired), (2, 1), "over the same page");
    }
}

#[test]
fn one_epoch_goes_in_place_without_the_journal() {
    let mut rig = with_epochs(journaled(true), 1);
    assert_eq!(rig.drawn(), ["W 0+4096"]);
    rig.settle_log();
    rig.write_with(20, 0, 9 * 4096, 1, true);
    rig.log();
    assert_eq!(rig.drawn(), ["W 0+36864"]);
    rig.settle_log();
    assert_eq!(rig.counters().journal_bytes, 0);
}

#[test]
fn large_epochs_go_in_place_one_by_one_without_the_journal() {
    let mut config = journaled(false);
    // Windows of 128 pages: two epochs of 100 pages each are worth none.
    config.write_log.as_mut().expect("a log").segments_max = POOL_SEGMENTS;
    let mut rig = write_back(config);
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    for (n, byte) in [(0, 1), (1, 2)] {
        rig.write(2 * n, n * 512 * KIB, 400 * KIB, byte);
        rig.log();
        rig.tick(1);
        rig.log();
        rig.submit(2 * n + 1, 0, 0, Op::Flush);
        rig.log();
    }
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    rig.settle_log();
    assert_eq!((rig.backend[0], rig.backend[512 << 10]), (1, 2));
    assert_eq!(rig.counters().journal_bytes, 0);
}

#[test]
fn nothing_goes_past_a_record_that_is_not_retired() {
    let mut rig = with_epochs(journaled(false), 4);
    rig.end_all(Target::Journal);
    rig.end_all(Target::Backend);
    // One epoch gains nothing by the journal.
    rig.write_with(20, 8 * PIECE, 4096, 9, true);
    rig.log();
    let direct = format!("W {}+4096", 8 * PIECE);
    while !rig.drawn().contains(&direct) {
        assert_eq!(rig.backend[8 * PIECE as usize], 128);
        rig.settle_until_one_ends();
    }
    assert_eq!(rig.superblock().expect("it was written").retired, 1);
    assert!(rig.of(Target::Journal).is_empty(), "and durably: {:?}", rig.drawn());
}
