//! The destager: what reaches primary storage, in which order, and what is forgotten when.

use super::*;
use crate::action::PrimaryOp;
use crate::config::DestageOrder;
use crate::ids::{FlushEpoch, GroupNumber, SegmentId, Sequence};
use crate::write_back::format::recover::{RecoveredLog, RecoveryReport};
use crate::write_back::format::reopen::Tail;

impl Rig {
    /// Ends all I/O on the log, and grants leases; I/O on primary storage stays.
    pub(super) fn log(&mut self) {
        loop {
            self.grant();
            let Some(index) = self.pending.iter().position(|io| io.target == Target::Log) else {
                return;
            };
            self.complete(index, IoStatus::Ok);
        }
    }
}

#[test]
fn an_epoch_waits_until_every_write_of_the_one_before_has_completed() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 1, true);
    rig.log();
    rig.write_with(2, 65536, 4096, 2, true);
    rig.log();
    assert_eq!(rig.drawn(), ["W 0+4096"]);
    rig.complete(0, IoStatus::Ok);
    rig.log();
    assert!(rig.drawn().contains(&"W 65536+4096".to_string()), "{:?}", rig.drawn());
}

#[test]
fn with_a_barrier_an_epoch_waits_until_the_one_before_is_flushed() {
    let mut config = with_log();
    config.write_log.as_mut().expect("a log").barrier = true;
    let mut rig = write_back(config);
    rig.write_with(1, 0, 4096, 1, true);
    rig.log();
    rig.write_with(2, 65536, 4096, 2, true);
    rig.log();
    assert_eq!(rig.drawn(), ["W 0+4096"]);
    rig.complete(0, IoStatus::Ok);
    rig.log();
    assert_eq!(rig.drawn(), ["F 0+0"]);
    rig.complete(0, IoStatus::Ok);
    rig.log();
    assert_eq!(rig.drawn(), ["W 65536+4096"]);
    rig.settle_log();
    assert!(rig.engine.log_is_clean());
}

#[test]
fn within_an_epoch_only_the_newest_bytes_are_written_sorted_and_together() {
    let mut rig = write_back(with_log());
    for (tag, start) in [(1, 12288), (2, 4096), (3, 8192), (4, 4096), (5, 40960)] {
        rig.write(tag, start, 4096, tag as u8);
    }
    rig.submit(6, 0, 0, Op::Flush);
    rig.log();
    assert_eq!(rig.drawn(), ["W 4096+12288", "W 40960+4096"]);
    rig.settle_log();
    assert!(rig.backend[4096..8192].iter().all(|&b| b == 4));
    assert_eq!(rig.counters().destage_writes, 2);
    assert_eq!(rig.counters().destage_write_bytes, 16384);
}

#[test]
fn writes_off_the_grid_are_written_with_one_io_each_and_neighbours_together() {
    let mut rig = write_back(with_log());
    for (tag, start, len) in [(1, 3584, 4096), (2, 65536 - 512, 16384), (3, 131072 + 512, 1024)] {
        rig.write(tag, start, len, tag as u8);
    }
    let before = rig.backend.clone();
    rig.submit(4, 0, 0, Op::Flush);
    rig.log();
    assert_eq!(rig.drawn(), ["W 3584+4096", "W 65024+16384"]);
    rig.settle_log();
    assert_eq!(rig.counters().destage_writes, 3);
    for (start, len, version) in [(3584, 4096, 1), (65024, 16384, 2), (131584, 1024, 3)] {
        assert!(rig.backend[start..start + len].iter().all(|&byte| byte == version), "{start}");
    }
    for end in [3583, 7680, 65023, 65024 + 16384, 131583, 131584 + 1024] {
        assert_eq!(rig.backend[end], before[end], "{end}: nothing beside them");
    }
}

#[test]
fn the_epoch_under_way_is_left_alone_for_a_while() {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 4096, 1);
    rig.tick(1);
    rig.log();
    assert!(rig.drawn().is_empty());
    rig.tick(1_001);
    rig.log();
    assert_eq!(rig.drawn(), ["W 0+4096"]);
}

#[test]
fn nothing_reaches_primary_storage_before_it_is_durable_in_the_log() {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 4096, 1);
    rig.tick(1);
    rig.complete(0, IoStatus::Ok);
    rig.tick(1_001);
    assert_eq!(rig.drawn(), ["log F 0+0"]);
    rig.complete(0, IoStatus::Ok);
    rig.log();
    assert_eq!(rig.drawn(), ["W 0+4096"]);
}

/// A later run writes again what is not noted as flushed: the first write over the second, if it were not told.
#[test]
fn what_overwrites_something_in_the_log_is_noted_before_it_reaches_primary_storage() {
    for (is_flushed, second) in [(false, 0), (false, 2048), (false, 4096), (true, 0)] {
        let mut rig = write_back(with_log());
        rig.write_with(1, 0, 4096, 1, true);
        if is_flushed {
            rig.settle_log();
        } else {
            rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
            rig.log();
        }
        rig.write_with(2, second, 2048, 2, true);
        rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
        rig.run_actions();
        let is_end = |io: &str| io.starts_with("W ") && io != "W 0+4096";
        let mut noted = false;
        while !rig.drawn().iter().any(|io| is_end(io)) {
            noted |= rig.drawn().contains(&"log P 0+0".to_string());
            rig.complete(0, IoStatus::Ok);
        }
        let is_told = !is_flushed && second < 4096;
        assert_eq!(noted, is_told, "flushed: {is_flushed}, second write at {second}");
    }
}

#[test]
fn zeroes_and_what_lies_over_them_are_noted_before_they_reach_primary_storage() {
    let mut rig = write_back(with_log());
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.submit(1, 0, 4096, Op::WriteZeroes { may_unmap: true, fua: true, fast_only: false });
    rig.log();
    rig.write_with(2, 65536, 4096, 2, true);
    rig.log();
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    for what in ["Z 0+4096", "W 65536+4096"] {
        assert_eq!(rig.drawn(), ["log P 0+0"], "before {what}");
        rig.log();
        assert_eq!(rig.drawn(), [what]);
        rig.complete(0, IoStatus::Ok);
    }
}

/// The first part of a long plain write may be on primary storage before the rest is in the log, and stay there alone when
/// power is lost: it is not acknowledged as durable. What comes behind it does not pass the rest.
#[test]
fn what_is_durable_behind_a_long_write_reaches_primary_storage_after_all_of_it() {
    const LONG: u64 = 300 * KIB;
    const BEHIND: [u64; 2] = [512 * KIB, 600 * KIB];
    let mut rig = write_back(with_log());
    rig.write(1, 0, LONG, 0xFA);
    rig.write_with(2, BEHIND[0], 4096, 2, true);
    let (mut was_partly_there, mut is_sent) = (false, false);
    for _ in 0..10_000 {
        if rig.pending.is_empty() && rig.has_reply(3) {
            break;
        }
        rig.grant();
        let there =
            rig.backend[..LONG as usize].iter().filter(|&&byte| byte == 0xFA).count() as u64;
        was_partly_there |= there > 0 && !rig.has_reply(1);
        if rig.has_reply(2) && !is_sent {
            assert!(
                rig.has_reply(1),
                "a durable write was acknowledged before one that was earlier in the log"
            );
            is_sent = true;
            rig.write_with(3, BEHIND[1], 4096, 3, true);
        }
        let later = format!("W {}+4096", BEHIND[1]);
        let all_is_there = there == LONG && rig.backend[BEHIND[0] as usize] == 2;
        assert!(
            all_is_there || !rig.drawn().contains(&later),
            "{there} bytes are there: {:?}",
            rig.drawn()
        );
        match rig.pending.is_empty() {
            false => rig.complete(0, IoStatus::Ok),
            true => {
                rig.now = rig.now.max(rig.engine.next_deadline());
                rig.tick(0);
            }
        }
    }
    assert!(rig.has_reply(3));
    rig.settle_log();
    assert!(was_partly_there, "the log has no room for all of it");
    rig.expect_bytes(0, LONG, 0xFA);
}

/// What is under way when groups are written.
fn logged(rig: &mut Rig) -> Vec<String> {
    let of_group = |io: &Io| io.target == Target::Log && !matches!(io.op, IoOp::Progress { .. });
    while let Some(index) = rig.pending.iter().position(of_group) {
        rig.complete(index, IoStatus::Ok);
    }
    rig.drawn()
}

#[test]
fn a_note_of_records_that_are_gone_does_not_count_for_those_that_have_their_numbers() {
    // Numbers up to 9 were noted as sent; a loss of power took those after 4, or none.
    for (last, is_noted_first) in [(4, true), (9, false)] {
        let mut rig = Rig::new(with_log());
        let found = RecoveredLog {
            segments: Vec::new(),
            unused: Vec::new(),
            records: Vec::new(),
            checksums: Vec::new(),
            next_group: GroupNumber(8),
            next_sequence: Sequence(last + 1),
            next_ordinal: 1,
            next_epoch: FlushEpoch(3),
            flushed: Sequence(last),
            through: Sequence(9),
            report: RecoveryReport::default(),
        };
        rig.engine.restore(&found, Tail { segment: SegmentId(0), page: 1 }).unwrap();
        rig.leases.1 = 1;
        // A run after a crash would take what is written from now on for sent with all up to 9, also if nothing is sent.
        rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
        rig.tick(0);
        assert_eq!(rig.drawn().contains(&"log P 0+0".to_owned()), is_noted_first, "last {last}");
        rig.settle_log();
        rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
        rig.write_with(1, 0, 4096, 1, true);
        assert_eq!(logged(&mut rig), ["W 0+4096"], "last {last}");
        rig.settle_log();
        assert!(rig.backend[..4096].iter().all(|&byte| byte == 1));
        // From then on notes are of what is there.
        rig.write_with(2, 65536, 4096, 2, true);
        assert_eq!(logged(&mut rig), ["W 65536+4096"]);
    }
}

#[test]
fn clients_who_were_just_answered_go_before_destaging_that_has_caught_up() {
    let mut config = with_log();
    let mut log = WriteLogConfig::new(SEGMENT_PAGES, 16);
    log.destage_yield = Nanos::from_millis(3);
    config.write_log = Some(log);
    let mut rig = write_back(config);
    rig.write_with(1, 0, 4096, 1, true);
    rig.log();
    assert!(rig.drawn().is_empty(), "{:?}", rig.drawn());
    assert_eq!(rig.engine.next_deadline(), rig.now.plus(Nanos::from_millis(3)));
    rig.tick(2);
    rig.write_with(2, 65536, 4096, 2, true);
    assert_eq!(rig.drawn(), ["log W 12288+8192"]);
    rig.tick(1);
    assert_eq!(rig.drawn(), ["log W 12288+8192", "log R 8192+4096"]);
    // What becomes durable while a batch is under way has waited by then.
    rig.log();
    assert_eq!(rig.drawn(), ["W 0+4096"]);
    rig.complete(0, IoStatus::Ok);
    rig.log();
    assert_eq!(rig.drawn(), ["W 65536+4096"]);
}

#[test]
fn hits_in_ram_leave_what_became_due_meanwhile_due() {
    let mut config = with_log();
    config.ram_bytes = 64 * KIB;
    let mut rig = write_back(config);
    rig.write_with(1, 0, 4096, 1, true);
    rig.log();
    rig.complete(0, IoStatus::Ok);
    let rests = rig.engine.next_deadline();
    assert_eq!(rests, rig.now.plus(Nanos::from_millis(20)));
    rig.now = rests.plus(Nanos::from_millis(1));
    rig.expect_bytes(0, 4096, 1);
    assert_eq!(rig.engine.next_deadline(), rests);
    rig.tick(0);
    assert_eq!(rig.drawn(), ["F 0+0"]);
    assert!(rig.engine.next_deadline() > rig.now);
}

#[test]
fn an_error_of_primary_storage_is_tried_again_after_a_pause_and_only_what_failed() {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 4096, 1);
    rig.write(2, 65536, 4096, 2);
    rig.submit(3, 0, 0, Op::Flush);
    rig.log();
    assert_eq!(rig.drawn(), ["W 0+4096", "W 65536+4096"]);
    rig.complete(0, IoStatus::Ok);
    let write = rig.find("W 65536+4096");
    rig.complete(write, IoStatus::IoError);
    rig.log();
    assert!(rig.drawn().is_empty(), "{:?}", rig.drawn());
    let destaged = |rig: &Rig| (rig.counters().destage_writes, rig.counters().destage_write_bytes);
    assert_eq!(destaged(&rig), (1, 4096), "what failed is not destaged");
    rig.tick(1_000);
    rig.log();
    assert_eq!(rig.drawn(), ["W 65536+4096"]);
    rig.settle_log();
    assert_eq!(destaged(&rig), (2, 8192));
    assert!(rig.backend[65536..69632].iter().all(|&b| b == 2));
}

#[test]
fn written_zeroes_that_are_unsupported_are_an_error_and_wait_like_one() {
    let mut config = with_log();
    config.backend.write_zeroes = false;
    let mut rig = write_back(config);
    let op = Op::WriteZeroes { may_unmap: false, fast_only: false, fua: true };
    rig.submit(1, 4096, 4096, op);
    rig.settle_until("W 4096+4096");
    let write = rig.find("W 4096+4096");
    rig.complete(write, IoStatus::Unsupported);
    rig.log();
    assert!(rig.drawn().is_empty(), "{:?}", rig.drawn());
    assert_eq!((rig.counters().destage_errors, rig.counters().backend_errors), (1, 1));
    let (op, status) = (PrimaryOp::Write, IoStatus::IoError);
    let fails = Event::PrimaryFails { op, status, offset: 4096, is_destaging: true };
    assert!(rig.events.contains(&fails), "{:?}", rig.events);
    rig.tick(1_000);
    rig.log();
    assert_eq!(rig.drawn(), ["W 4096+4096"]);
    rig.settle_log();
    assert!(rig.backend[4096..8192].iter().all(|&b| b == 0));
}

/// NFS 4.2 is one that makes holes alone.
#[test]
fn zeroes_that_may_be_holes_stay_holes_where_zeroes_that_keep_their_space_are_refused() {
    let mut rig = write_back(with_log());
    let mut refuse = |tag: u64, may_unmap| {
        let op = Op::WriteZeroes { may_unmap, fast_only: false, fua: true };
        rig.submit(tag, 4096, 4096, op);
        rig.settle_until("Z 4096+4096");
        let status = if may_unmap { IoStatus::Ok } else { IoStatus::Unsupported };
        rig.complete(rig.find("Z 4096+4096"), status);
        rig.log();
        let next = rig.drawn();
        rig.settle_log();
        next
    };
    assert_eq!(refuse(1, false), ["W 4096+4096"]);
    assert!(refuse(2, true).iter().all(|io| !io.starts_with('W')));
}

/// Nobody is helped by a trim that fills primary storage with zeroes.
#[test]
fn discards_do_not_enter_the_log_where_primary_storage_has_refused_holes() {
    let mut rig = write_back(with_log());
    let zeroes = Op::WriteZeroes { may_unmap: true, fast_only: false, fua: true };
    rig.submit(1, 4096, 4096, zeroes);
    rig.settle_until("Z 4096+4096");
    assert!(rig.engine.makes_holes());
    rig.complete(rig.find("Z 4096+4096"), IoStatus::Unsupported);
    rig.settle_log();
    assert!(!rig.engine.makes_holes());
    rig.submit(2, 65536, 65536, Op::Discard { fua: false });
    rig.log();
    assert_eq!(rig.replied(2).1, IoStatus::Ok);
    assert!(rig.drawn().is_empty() && rig.engine.dirty_bytes() == 0);
    rig.expect_bytes(65536, 4096, 16);
}

#[test]
fn sectors_of_one_page_from_two_records_are_written_together_on_large_logical_blocks() {
    let mut config = with_log();
    config.backend.logical_block = 4096;
    let mut rig = write_back(config);
    rig.write(1, 512, 512, 8);
    rig.write(2, 1536, 512, 9);
    rig.submit(3, 0, 0, Op::Flush);
    rig.settle_log();
    let mut expected = [0; 4096];
    expected[512..1024].fill(8);
    expected[1536..2048].fill(9);
    assert_eq!(rig.backend[..4096], expected);
    assert_eq!(rig.counters().destage_writes, 1);
}

#[test]
fn a_window_merges_epochs() {
    let mut config = with_log();
    config.write_log.as_mut().expect("a log").order = DestageOrder::Window;
    let mut rig = write_back(config);
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    for tag in 1..5 {
        rig.write_with(tag, 0, 4096, tag as u8, true);
        rig.log();
    }
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    rig.settle_log();
    assert_eq!(rig.counters().destage_writes, 1);
    assert!(rig.backend[..4096].iter().all(|&b| b == 4));
}

#[test]
fn a_batch_has_no_more_zero_records_than_there_is_room_for_also_before_a_write() {
    let mut config = with_log();
    config.write_log.as_mut().expect("a log").order = DestageOrder::Window;
    let mut rig = write_back(config);
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    for n in 0..200 {
        let op = Op::WriteZeroes { may_unmap: true, fast_only: false, fua: false };
        rig.submit(n, n * 1024, 512, op);
        rig.log();
        assert!(rig.replied(n).1.is_ok());
    }
    rig.write_with(200, 512, 512, 1, true);
    rig.log();
    assert!(rig.replied(200).1.is_ok());
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    rig.settle_log();
    // 64 at a time, and the write in the last one.
    assert_eq!(rig.counters().destage_batches, 4);
    assert_eq!(rig.backend[511..513], [0, 1]);
}

#[test]
fn dirty_bytes_are_those_of_the_guest() {
    let mut rig = write_back(with_log());
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    for n in 0..4 {
        rig.write_with(n, n * 65536, 4096, 1, true);
        rig.log();
    }
    let shown = rig.engine.log_statistics(rig.now).expect("a log");
    assert_eq!(
        (shown.dirty_bytes, shown.occupied_bytes),
        (4 * 4096, 9 * 4096),
        "each has the header of a group, and the segment one"
    );
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    rig.settle_log();
    let shown = rig.engine.log_statistics(rig.now).expect("a log");
    assert_eq!((shown.dirty_bytes, shown.occupied_bytes), (0, 0));
    // What is written again after a lost session is dirty again.
    rig.write_with(5, 0, 8192, 1, true);
    rig.log();
    rig.complete(rig.find("W 0+8192"), IoStatus::Ok);
    assert_eq!(rig.engine.dirty_bytes(), 0);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    assert_eq!(rig.engine.dirty_bytes(), 8192);
    rig.settle_log();
    assert_eq!(rig.engine.dirty_bytes(), 0);
}

#[test]
fn primary_storage_is_inconsistent_while_a_window_is_written_and_at_no_other_time() {
    for (order, is_consistent) in [(DestageOrder::Strict, true), (DestageOrder::Window, false)] {
        let mut config = with_log();
        config.write_log.as_mut().expect("a log").order = order;
        let mut rig = write_back(config);
        rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
        for n in 0..3 {
            rig.write_with(n, n * 65536, 4096, 1, true);
            rig.log();
        }
        let shown =
            |rig: &Rig| rig.engine.log_statistics(rig.now).expect("a log").primary_is_consistent;
        assert!(shown(&rig));
        rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
        rig.run_actions();
        let is_noted = rig.drawn().contains(&"log P 0+0".to_owned());
        assert_eq!(is_noted, !is_consistent, "a start after a crash has to know that it was begun");
        rig.log();
        assert!(rig.drawn().contains(&"W 0+4096".to_owned()), "{:?}", rig.drawn());
        assert_eq!(shown(&rig), is_consistent, "{order:?}");
        rig.settle_log();
        assert!(shown(&rig));
    }
}
