//! Write-back alone: I/Os end when the test says so, beside a cache without tiers.

use super::destage::finish::NOTE_FAILURES_MAX;
use super::destage::throttle::Aim;
use super::*;
use crate::action::{Action, Actions, Io, IoOp, Target};
use crate::cache::Cache;
use crate::config::BackendTraits;
use crate::cx::io::IoKind;
use crate::cx::{Cx, Shared};
use crate::geometry::{ByteRange, Grid};
use crate::ids::{Nanos, SegmentId, Sequence};
use crate::table::Key;

const PAGE: u64 = 4096;

struct Rig {
    write_back: WriteBack,
    cache: Cache,
    shared: Shared,
    pending: Vec<Io>,
    /// Segments leased so far, and given back.
    leased: u32,
    unleased: Vec<SegmentId>,
    /// So often the rest of the groups' memory was asked for.
    grown: u32,
}

impl Rig {
    fn new(with: impl FnOnce(WriteLogConfig) -> WriteLogConfig) -> Rig {
        let backend = BackendTraits {
            size: 1 << 20,
            logical_block: 512,
            read_only: false,
            discard: false,
            write_zeroes: true,
            extents: false,
        };
        let log = with(WriteLogConfig { destage_yield: Nanos(0), ..WriteLogConfig::new(16, 8) });
        let config = Config {
            write_log: Some(log),
            ram_bytes: 0,
            flash_bytes: 0,
            buffer_bytes: 2 << 20,
            ..Config::for_disk(backend)
        };
        let grid = Grid::new(config.backend.size, config.block_size, 0);
        Rig {
            write_back: WriteBack::new(log, &config, config.buffer_bytes, PageGrid::new(0)),
            cache: Cache::new(&config, &grid, config.buffer_bytes, 64),
            shared: Shared::new(config, grid, 64),
            pending: Vec::new(),
            leased: 0,
            unleased: Vec::new(),
            grown: 0,
        }
    }

    /// One call of the part, with what it asked for carried out.
    fn call<T>(&mut self, call: impl FnOnce(&mut WriteBack, &mut Cache, &mut Cx<'_>) -> T) -> T {
        let mut actions = Actions::with_capacity(64);
        let mut cx = Cx { actions: &mut actions, shared: &mut self.shared };
        let result = call(&mut self.write_back, &mut self.cache, &mut cx);
        for action in actions.list {
            match action {
                Action::Io(io) => self.pending.push(io),
                Action::GrowStaging => self.grown += 1,
                Action::Unlease(segment) => self.unleased.push(segment),
                Action::Lease => {
                    let segment = (SegmentId(self.leased), u64::from(self.leased));
                    self.leased += 1;
                    let event = self.write_back.on_leased(self.shared.now, Ok(segment));
                    assert_eq!(event, LogEvent::Nothing);
                }
                _ => {}
            }
        }
        self.write_back.check_invariants();
        result
    }

    fn commit(&mut self) {
        self.call(|write_back, _, cx| write_back.commit(cx));
    }

    /// Appends a write of a page, all of it.
    fn append(&mut self, key: Key, page: u64, fua: bool) -> Waiter {
        // The first lease is asked for by a commit.
        self.commit();
        let range = ByteRange::at(page * PAGE, PAGE);
        let buffer = self.shared.take_buffer(range).expect("memory");
        let end = self.call(|write_back, _, cx| write_back.append_write(range, buffer, cx));
        assert_eq!(end, range.end);
        self.write_back.on_appended(key, fua)
    }

    /// Ends the oldest I/O of the log.
    fn end_log_io(&mut self, status: IoStatus) -> LogEvent {
        let io = self.pending.remove(0);
        let pages = io.range.len() / PAGE;
        self.call(|write_back, _, cx| {
            let IoKind::Log(owned) = cx.end(io.id).kind else {
                panic!("an I/O of the log: {io:?}")
            };
            match owned {
                LogIo::Write { group } => {
                    write_back.on_log_written(group, status, &vec![7; pages as usize])
                }
                LogIo::Summary => write_back.on_log_summarized(status),
                LogIo::Flush => write_back.on_log_flushed(status),
            }
        })
    }

    /// Has a write of a page made durable in the log.
    fn make_durable(&mut self, page: u64) {
        self.append(Key(1), page, true);
        self.commit();
        while !self.pending.is_empty() {
            assert_ne!(self.end_log_io(IoStatus::Ok), LogEvent::Fails(IoStatus::IoError));
        }
    }

    fn destage(&mut self) {
        let drive = Drive { is_draining: true, is_ending: false, takes_writes: true };
        self.call(|write_back, cache, cx| {
            let mut beside = Beside { cache, index: &mut None, keeps_writes: true };
            write_back.destage(drive, &mut beside, cx);
        });
    }

    /// Ends the oldest I/O of the destager well.
    fn end_destage_io(&mut self) {
        let io = self.pending.remove(0);
        self.call(|write_back, cache, cx| {
            let IoKind::Destager(owned) = cx.end(io.id).kind else {
                panic!("of the destager: {io:?}")
            };
            let mut beside = Beside { cache, index: &mut None, keeps_writes: true };
            match owned {
                DestageIo::Write { run } => {
                    write_back.on_destage_write((run, io.range), IoStatus::Ok, &mut beside, cx);
                }
                DestageIo::Flush { session } => {
                    assert!(write_back.on_destage_flushed(session, IoStatus::Ok, 0, cx));
                }
                DestageIo::Note => {
                    assert_eq!(write_back.on_destage_noted(IoStatus::Ok, cx), LogEvent::Nothing);
                }
                DestageIo::Read { run, place, pages } => {
                    let sums = vec![7; pages as usize];
                    let read = (place, pages);
                    let (status, event) =
                        write_back.check_destage_read(read, IoStatus::Ok, &sums, cx);
                    assert_eq!((status, event), (IoStatus::Ok, LogEvent::Nothing));
                    let fault = crate::action::DestageFault::LogRead;
                    write_back.on_destage_read(run, (fault, status), cx);
                }
                DestageIo::Piece { .. } | DestageIo::Journal => panic!("no journal: {io:?}"),
                DestageIo::Below { .. } | DestageIo::Zero { .. } | DestageIo::ZeroEdge { .. } => {
                    panic!("whole pages: {io:?}")
                }
            }
        });
    }
}

#[test]
fn a_staged_write_waits_for_nothing_and_a_durable_one_for_its_group() {
    let mut rig = Rig::new(|log| log);
    assert_eq!(rig.append(Key(1), 0, false), Waiter::Nothing);
    assert_eq!(rig.append(Key(2), 1, true), Waiter::Durable);
    assert_eq!(rig.write_back.guest_flush(), GuestFlush::Waits);
    rig.commit();
    assert!(matches!(rig.pending[0].op, IoOp::Write { durable: true, .. }));
    assert_eq!(rig.write_back.next_satisfied(), None, "it is on its way");
    assert_eq!(rig.end_log_io(IoStatus::Ok), LogEvent::Advanced);
    assert_eq!(rig.write_back.next_satisfied(), Some(Key(2)));
    assert_eq!(rig.write_back.guest_flush(), GuestFlush::Done);
}

#[test]
fn without_staging_a_plain_write_waits_until_it_is_written() {
    let mut rig = Rig::new(|log| WriteLogConfig { staging: false, ..log });
    assert_eq!(rig.append(Key(1), 0, false), Waiter::Written);
    rig.commit();
    assert_eq!(rig.end_log_io(IoStatus::Ok), LogEvent::Advanced);
    assert_eq!(rig.write_back.next_satisfied(), Some(Key(1)));
}

/// A write of nine pages, which fit into a group, where groups begin with four. Returns how many are in the log.
fn append_nine(rig: &mut Rig) -> u64 {
    let range = ByteRange::at(0, 9 * PAGE);
    let buffer = rig.shared.take_buffer(range).expect("memory");
    rig.call(|write_back, _, cx| write_back.append_write(range, buffer, cx)) / PAGE
}

#[test]
fn a_write_that_needs_more_than_the_first_memory_waits_for_the_rest_and_is_one_record() {
    let mut rig = Rig::new(|log| WriteLogConfig { group_pages_first: 4, ..log });
    rig.commit();
    assert_eq!(append_nine(&mut rig), 0);
    assert_eq!(append_nine(&mut rig), 0);
    assert_eq!(rig.grown, 1, "it is asked for once");
    assert_eq!(rig.write_back.guest_flush(), GuestFlush::Done, "no group is open without a record");
    rig.write_back.on_staging_grown(true);
    assert_eq!((append_nine(&mut rig), rig.grown), (9, 1));
    assert_eq!(rig.write_back.last_sequence(), Sequence(1), "it is one record");
}

#[test]
fn the_open_group_gets_the_rest_of_its_memory() {
    let mut rig = Rig::new(|log| WriteLogConfig { group_pages_first: 4, ..log });
    rig.append(Key(1), 20, true);
    assert_eq!((append_nine(&mut rig), rig.grown), (0, 1));
    rig.write_back.on_staging_grown(true);
    // A page of nine is taken.
    assert_eq!(append_nine(&mut rig), 8);
}

#[test]
fn at_the_end_of_the_disk_no_write_waits_for_memory() {
    let mut rig = Rig::new(|log| WriteLogConfig { group_pages_first: 4, ..log });
    rig.commit();
    rig.write_back.close();
    assert_eq!((append_nine(&mut rig), rig.grown), (4, 0));
}

#[test]
fn without_memory_for_more_the_groups_stay_small() {
    let mut rig = Rig::new(|log| WriteLogConfig { group_pages_first: 4, ..log });
    rig.commit();
    assert_eq!(append_nine(&mut rig), 0);
    rig.write_back.on_staging_grown(false);
    assert_eq!(append_nine(&mut rig), 4);
    rig.commit();
    assert_eq!(append_nine(&mut rig), 4);
    assert_eq!(rig.grown, 1, "it is not asked for again");
}

#[test]
fn memory_that_does_not_survive_the_process_is_all_there() {
    let small = |log| WriteLogConfig { group_pages_first: 4, staging: false, ..log };
    let mut rig = Rig::new(small);
    rig.commit();
    assert_eq!((append_nine(&mut rig), rig.grown), (9, 0));
}

#[test]
fn the_first_error_is_final_and_names_those_who_waited() {
    let mut rig = Rig::new(|log| log);
    rig.append(Key(1), 0, true);
    rig.append(Key(2), 1, true);
    rig.commit();
    assert_eq!(rig.end_log_io(IoStatus::IoError), LogEvent::Fails(IoStatus::IoError));
    let waited = rig.call(|write_back, _, cx| write_back.fail(IoStatus::IoError, cx));
    let keys: Vec<_> = waited.into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [Key(1), Key(2)]);
    assert_eq!(rig.write_back.guest_flush(), GuestFlush::Fails);
    let range = ByteRange::at(0, PAGE);
    let buffer = rig.shared.take_buffer(range).expect("memory");
    let end = rig.call(|write_back, _, cx| write_back.append_write(range, buffer, cx));
    assert_eq!(end, range.start, "nothing is appended any more");
}

#[test]
fn only_what_is_durable_is_destaged() {
    let mut rig = Rig::new(|log| log);
    rig.append(Key(1), 0, false);
    // Nobody waits for it: it is written when it has waited for company, and not durably.
    rig.shared.now = Nanos::from_millis(2);
    rig.commit();
    assert_eq!(rig.end_log_io(IoStatus::Ok), LogEvent::Advanced);
    rig.destage();
    assert!(rig.pending.is_empty(), "{:?}", rig.pending);
    // The destager has asked for it to become durable.
    rig.commit();
    assert!(matches!(rig.pending[0].op, IoOp::Flush));
    assert_eq!(rig.end_log_io(IoStatus::Ok), LogEvent::Advanced);
    rig.destage();
    assert_eq!(rig.pending[0].target, Target::Log, "{:?}", rig.pending);
}

#[test]
fn what_is_destaged_is_flushed_and_noted_twice_before_the_log_is_left() {
    let mut rig = Rig::new(|log| log);
    rig.append(Key(1), 3, true);
    rig.commit();
    assert_eq!(rig.end_log_io(IoStatus::Ok), LogEvent::Advanced);
    assert_eq!(rig.write_back.dirty_bytes(), PAGE);
    assert!(!rig.write_back.is_clean());
    let mut done = Vec::new();
    while !rig.write_back.is_left() {
        rig.write_back.forget_when_clean(true);
        rig.destage();
        let Some(io) = rig.pending.first() else { continue };
        done.push(match (io.target, io.op) {
            (Target::Log, IoOp::Read { .. }) => "read",
            (Target::Backend, IoOp::Write { .. }) => "write",
            (Target::Backend, IoOp::Flush) => "flush",
            (Target::Log, IoOp::Progress { .. }) => "note",
            _ => panic!("{io:?}"),
        });
        rig.end_destage_io();
    }
    // In both copies: guests are about to write past the log.
    assert_eq!(done, ["read", "write", "flush", "note", "note"]);
    assert_eq!(rig.write_back.dirty_bytes(), 0);
    assert!(rig.write_back.is_empty());
}

/// A log whose first segment is full, of eight pages that are durable in it.
fn with_a_full_segment() -> Rig {
    let mut rig = Rig::new(|log| log);
    for page in 0..8 {
        rig.make_durable(page);
    }
    assert!(rig.leased > 1, "the first segment is full");
    rig
}

#[test]
fn a_segment_is_freed_once_both_copies_of_the_progress_need_it_no_more() {
    for has_reader in [false, true] {
        let mut rig = with_a_full_segment();
        let place = rig.write_back.log.segments.place(rig.write_back.log.segments.oldest());
        if has_reader {
            rig.write_back.log.segments.hold(place);
        }
        let mut notes = 0;
        while notes < 2 {
            rig.destage();
            let io = rig.pending.first().expect("it is not done yet");
            notes += u32::from(matches!(io.op, IoOp::Progress { .. }));
            assert!(rig.unleased.is_empty(), "one copy still needs it");
            rig.end_destage_io();
            rig.call(|write_back, _, cx| write_back.free_log(cx));
        }
        let read = ByteRange::at(0, PAGE);
        assert_eq!(
            rig.write_back.is_left_to_storage(read),
            has_reader,
            "nobody keeps it any longer"
        );
        if has_reader {
            rig.write_back.log.segments.unhold(place);
            rig.call(|write_back, _, cx| write_back.free_log(cx));
        }
        assert_eq!(rig.unleased[0], SegmentId(0));
        rig.destage();
        assert!(rig.pending.is_empty(), "a third note would say nothing new");
    }
}

#[test]
fn a_log_fails_as_soon_when_notes_fail_while_a_segment_waits_for_its_second() {
    let is_note = |io: &Io| matches!(io.op, IoOp::Progress { .. });
    let mut rig = with_a_full_segment();
    while !rig.pending.iter().any(is_note) {
        rig.destage();
        if !is_note(&rig.pending[0]) {
            rig.end_destage_io();
        }
    }
    // One more record is flushed before the first note has ended.
    let first = rig.pending.remove(0);
    rig.make_durable(9);
    rig.destage();
    while !rig.pending.is_empty() {
        rig.end_destage_io();
        rig.destage();
    }
    rig.pending.push(first);
    rig.end_destage_io();
    for failures in 1..=NOTE_FAILURES_MAX {
        rig.shared.now = rig.shared.now.plus(Nanos::from_millis(60_000));
        rig.destage();
        let note = rig.pending.remove(0);
        assert!(is_note(&note), "{note:?}");
        let event = rig.call(|write_back, _, cx| {
            cx.end(note.id);
            write_back.on_destage_noted(IoStatus::IoError, cx)
        });
        let is_last = failures == NOTE_FAILURES_MAX;
        assert_eq!(event == LogEvent::Fails(IoStatus::IoError), is_last, "{failures}");
    }
}

#[test]
fn a_note_that_fails_while_destaging_is_paused_is_tried_again() {
    let mut rig = with_a_full_segment();
    rig.destage();
    while !matches!(rig.pending[0].op, IoOp::Progress { .. }) {
        rig.end_destage_io();
        rig.destage();
    }
    rig.write_back.pause_destaging(true);
    let note = rig.pending.remove(0);
    let event = rig.call(|write_back, _, cx| {
        cx.end(note.id);
        write_back.on_destage_noted(IoStatus::IoError, cx)
    });
    assert_eq!(event, LogEvent::Nothing);
    rig.destage();
    let again = rig.write_back.destage_deadline(rig.shared.now);
    assert_ne!(again, Nanos::NEVER, "those who wait for room would wait for ever");
    rig.shared.now = again;
    rig.destage();
    assert!(matches!(rig.pending[0].op, IoOp::Progress { .. }));
}

#[test]
fn a_lost_session_is_destaged_again() {
    let mut rig = Rig::new(|log| log);
    rig.append(Key(1), 3, true);
    rig.commit();
    assert_eq!(rig.end_log_io(IoStatus::Ok), LogEvent::Advanced);
    rig.destage();
    rig.end_destage_io();
    rig.end_destage_io();
    assert_eq!(rig.write_back.dirty_bytes(), 0, "it is written, and not flushed");
    rig.write_back.on_session_lost();
    rig.destage();
    assert_eq!(rig.write_back.dirty_bytes(), PAGE);
}

#[test]
fn a_compare_and_write_is_acknowledged_first() {
    let mut rig = Rig::new(|log| log);
    let write =
        |key, at_once| Acknowledgeable { key: Key(key), ready: Nanos(0), bytes: PAGE, at_once };
    rig.write_back.may_acknowledge(write(1, false));
    rig.write_back.may_acknowledge(write(2, true));
    rig.write_back.begin_acknowledging(Nanos(0));
    let next = |rig: &mut Rig| rig.write_back.next_acknowledgement(Aim::Room).map(|(w, _)| w.key);
    assert_eq!(
        [next(&mut rig), next(&mut rig), next(&mut rig)],
        [Some(Key(2)), Some(Key(1)), None]
    );
}

#[test]
fn a_write_to_a_page_in_the_log_is_found_there_until_it_is_free() {
    let mut rig = Rig::new(|log| log);
    let (written, other) = (ByteRange::at(PAGE, PAGE), ByteRange::at(8 * PAGE, PAGE));
    rig.append(Key(1), 1, true);
    assert!(rig.write_back.touches(written) && !rig.write_back.touches(other));
    assert!(rig.write_back.is_undestaged(written));
}
