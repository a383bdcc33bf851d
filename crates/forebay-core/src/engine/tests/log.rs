//! The write log: when a write is acknowledged, what one commit holds, and what reads see.

use super::*;
use crate::action::Action;
use crate::config::DestageOrder;

fn without_staging() -> Config {
    let mut config = with_log();
    config.write_log.as_mut().expect("a log").staging = false;
    config
}

#[test]
fn a_plain_write_is_acknowledged_when_it_is_staged() {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 4096, 7);
    assert!(rig.has_reply(1));
    rig.expect_bytes(0, 4096, 7);
    assert!(rig.backend[..4096].iter().all(|&b| b == 0));
}

#[test]
fn a_disk_is_write_back_only_after_what_an_earlier_run_wrote_is_flushed() {
    let mut rig = Rig::new(with_log());
    rig.write(1, 0, 4096, 7);
    assert_eq!(rig.drawn(), ["F 0+0"]);
    rig.complete(0, IoStatus::IoError);
    assert!(!rig.has_reply(1));
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    rig.tick(1_001);
    rig.settle_log();
    assert!(rig.has_reply(1));
    assert_eq!(rig.engine.mode(), Mode::WriteBack);
}

#[test]
fn without_staging_a_plain_write_waits_until_the_log_has_it() {
    let mut rig = write_back(without_staging());
    rig.write(1, 0, 4096, 7);
    assert!(!rig.has_reply(1));
    assert_eq!(rig.drawn(), ["log W 0+12288"], "segment header, group header, data");
    rig.complete(0, IoStatus::Ok);
    assert!(rig.has_reply(1));
}

#[test]
fn writes_that_wait_together_share_one_durable_write() {
    let mut rig = write_back(with_log());
    for tag in 1..7 {
        rig.write_with(tag, tag * 8192, 4096, 7, true);
    }
    assert_eq!(rig.drawn(), ["log W 0+12288", "log W 12288+8192"]);
    assert!(matches!(rig.pending[0].op, IoOp::Write { durable: true, .. }));
    rig.complete(0, IoStatus::Ok);
    assert!(rig.has_reply(1) && !rig.has_reply(2));
    rig.complete(0, IoStatus::Ok);
    assert!(rig.has_reply(2) && !rig.has_reply(3));
    let write = rig.find("log W 20480+20480");
    rig.complete(write, IoStatus::Ok);
    assert!((3..7).all(|tag| rig.has_reply(tag)));
}

#[test]
fn a_durable_write_goes_beside_another_one_and_is_acknowledged_after_it() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 7, true);
    rig.write_with(2, 8192, 4096, 8, true);
    assert_eq!(rig.drawn(), ["log W 0+12288", "log W 12288+8192"]);
    assert!(rig.pending.iter().all(|io| matches!(io.op, IoOp::Write { durable: true, .. })));
    rig.complete(1, IoStatus::Ok);
    assert!(!rig.has_reply(1) && !rig.has_reply(2));
    rig.submit(3, 0, 0, Op::Flush);
    assert!(!rig.has_reply(3), "the first write may be lost");
    rig.complete(0, IoStatus::Ok);
    assert!((1..=3).all(|tag| rig.has_reply(tag)));
}

#[test]
fn a_group_smaller_than_the_one_under_way_waits_for_company() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 8192, 7, true);
    rig.write_with(2, 8192, 4096, 8, true);
    assert_eq!(rig.drawn(), ["log W 0+16384"]);
    rig.write_with(3, 16384, 4096, 9, true);
    assert_eq!(rig.drawn(), ["log W 0+16384", "log W 16384+12288"]);
    rig.write_with(4, 65536, 16384, 9, true);
    assert_eq!(rig.drawn().len(), 2, "two at a time");
}

#[test]
fn in_strict_order_groups_go_one_by_one_while_destaging_does_not_keep_up() {
    for (order, under_way) in [(DestageOrder::Strict, 1), (DestageOrder::Window, 2)] {
        let mut config = with_log();
        config.write_log.as_mut().expect("a log").order = order;
        let mut rig = write_back(config);
        rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
        rig.write_with(1, 0, 8192, 7, true);
        rig.complete(0, IoStatus::Ok);
        rig.write_with(2, 8192, 4096, 7, true);
        rig.write_with(3, 16384, 4096, 7, true);
        assert_eq!(rig.drawn().len(), under_way, "{order:?}");
    }
}

#[test]
fn a_plain_write_does_not_go_beside_one_under_way() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 7, true);
    rig.write(2, 8192, 32768, 8);
    assert!(rig.has_reply(2));
    rig.tick(1);
    assert_eq!(rig.drawn(), ["log W 0+12288"]);
}

#[test]
fn nothing_goes_beside_a_write_that_needs_a_flush_of_the_medium() {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 4096, 7);
    rig.tick(1);
    rig.write_with(2, 8192, 4096, 7, true);
    rig.write_with(3, 16384, 4096, 7, true);
    assert_eq!(rig.drawn(), ["log W 0+12288"]);
    rig.complete(0, IoStatus::Ok);
    assert!(matches!(rig.pending[..], [Io { op: IoOp::Write { durable: false, .. }, .. }]));
    rig.write_with(4, 65536, 8192, 7, true);
    assert_eq!(rig.drawn(), ["log W 12288+12288"]);
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["log F 0+0"]);
    rig.write_with(5, 81920, 16384, 7, true);
    assert_eq!(rig.drawn(), ["log F 0+0"]);
}

#[test]
fn a_durable_write_behind_one_that_is_not_needs_a_flush_of_the_medium() {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 4096, 7);
    rig.tick(1);
    rig.write_with(2, 8192, 4096, 7, true);
    rig.complete(0, IoStatus::Ok);
    assert!(matches!(rig.pending[0].op, IoOp::Write { durable: false, .. }));
    rig.complete(0, IoStatus::Ok);
    assert!(!rig.has_reply(2));
    assert_eq!(rig.drawn(), ["log F 0+0"]);
    rig.complete(0, IoStatus::Ok);
    assert!(rig.has_reply(2));
}

#[test]
fn a_write_that_nobody_waits_for_gathers_company() {
    let mut rig = write_back(with_log());
    for tag in 1..=3 {
        rig.write(tag, tag * 4096, 4096, 7);
        assert!(rig.has_reply(tag));
    }
    assert!(rig.drawn().is_empty(), "nobody waits");
    assert_eq!(rig.engine.next_deadline(), rig.now.plus(Nanos::from_millis(1)));
    rig.tick(1);
    assert_eq!(rig.drawn(), ["log W 0+20480"], "headers of segment and group, three pages");
}

#[test]
fn a_flush_does_not_wait_for_the_gathering() {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 4096, 7);
    rig.submit(2, 0, 0, Op::Flush);
    assert_eq!(rig.drawn(), ["log W 0+12288"]);
    assert!(matches!(rig.pending[0].op, IoOp::Write { durable: true, .. }));
    rig.complete(0, IoStatus::Ok);
    assert!(rig.has_reply(2));
}

#[test]
fn a_durable_write_takes_along_what_gathers() {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 4096, 7);
    rig.write_with(2, 8192, 4096, 7, true);
    assert_eq!(rig.drawn(), ["log W 0+16384"]);
    rig.complete(0, IoStatus::Ok);
    assert!(rig.has_reply(2) && rig.drawn().iter().all(|io| io != "log F 0+0"));
}

#[test]
fn a_group_that_is_full_does_not_wait_for_the_gathering() {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 9 * 4096, 7);
    assert_eq!(rig.drawn(), ["log W 0+45056"], "all that a group takes in memory");
}

#[test]
fn the_end_of_a_disk_does_not_wait_for_the_gathering() {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 4096, 7);
    rig.engine.shut_down(rig.now, &mut rig.actions);
    rig.run_actions();
    assert!(!rig.engine.is_idle());
    rig.complete(0, IoStatus::Ok);
    assert!(rig.engine.is_idle());
}

#[test]
fn writes_that_come_together_share_one_commit() {
    let mut rig = write_back(with_log());
    for tag in 0..5 {
        let range = ByteRange::at(tag * 8192, 4096);
        let buffer = rig.engine.write_buffer(range).expect("a free buffer");
        let op = Op::Write { buffer, fua: true };
        let request = Request { tag: RequestTag(tag), range, op };
        rig.engine.submit(rig.now, request, &mut rig.actions).expect("a free place");
    }
    rig.run_actions();
    assert_eq!(rig.drawn(), ["log W 0+28672"]);
}

#[test]
fn a_buffer_is_not_lent_again_before_copies_from_it_were_made() {
    let mut rig = write_back(with_log());
    let range = ByteRange::at(0, 4096);
    let first = rig.engine.write_buffer(range).expect("a free buffer");
    let op = Op::Write { buffer: first, fua: false };
    let request = Request { tag: RequestTag(1), range, op };
    rig.engine.submit(rig.now, request, &mut rig.actions).expect("a free place");
    rig.engine.proceed(rig.now, &mut rig.actions);
    assert!(
        rig.actions
            .list
            .iter()
            .any(|a| matches!(a, Action::Copy { from, .. } if *from == first.span))
    );
    let second = rig.engine.write_buffer(range).expect("a free buffer");
    assert_ne!(second.span, first.span);
    rig.run_actions();
    assert_eq!(rig.engine.write_buffer(range).expect("a free buffer").span, first.span);
}

#[test]
fn a_flush_ends_although_writes_go_on() {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 4096, 7);
    rig.submit(2, 0, 0, Op::Flush);
    for tag in 3..8 {
        rig.write(tag, tag * 4096, 4096, 7);
        assert!(rig.pending.len() == 1, "one log I/O at a time");
        rig.complete(0, IoStatus::Ok);
        if rig.has_reply(2) {
            return;
        }
    }
    panic!("the flush waits for writes that came after it");
}

#[test]
fn a_flush_of_a_clean_log_is_acknowledged_at_once() {
    let mut rig = write_back(with_log());
    rig.submit(1, 0, 0, Op::Flush);
    assert!(rig.has_reply(1));
}

#[test]
fn a_read_sees_the_newest_bytes_sector_by_sector() {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 4096, 7);
    rig.write(2, 1024, 512, 8);
    rig.write(3, 1024 + 512, 512, 9);
    rig.settle_log();
    rig.write(4, 5 * 4096 + 512, 512, 10);
    rig.settle_log();
    rig.expect_bytes(0, 1024, 7);
    rig.expect_bytes(1024, 512, 8);
    rig.expect_bytes(1536, 512, 9);
    rig.expect_bytes(2048, 2048, 7);
    rig.expect_bytes(5 * 4096, 512, 5);
    rig.expect_bytes(5 * 4096 + 512, 512, 10);
    rig.expect_bytes(5 * 4096 + 1024, 3072, 5);
}

/// It holds its sectors, and no more: the rest of the page may be written while the log's parts of it are read.
#[test]
fn a_read_that_came_before_the_log_and_ran_with_it_is_of_the_newest_bytes() {
    for moment in 0..6 {
        let mut rig = Rig::new(Config { mode: Mode::PassThrough, ..with_log() });
        rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
        rig.engine.set_mode(rig.now, Mode::WriteBack, &mut rig.actions).expect("possible");
        rig.run_actions();
        // All wait for the flush that the log begins with, and the read for the first of them.
        rig.write_with(1, 3584, 512, 7, true);
        rig.read(2, 3584, 512);
        rig.write_with(3, 0, 512, 1, true);
        rig.write_with(4, 512, 512, 2, true);
        rig.complete(0, IoStatus::Ok);
        rig.grant();
        rig.complete(0, IoStatus::Ok);
        assert_eq!(rig.engine.mode(), Mode::WriteBack);
        assert!((3..=4).all(|tag| rig.has_reply(tag)));
        for step in 0..6 {
            if step == moment {
                rig.write(5, 0, 1024, 3);
            }
            if !rig.pending.is_empty() {
                rig.complete(0, IoStatus::Ok);
            }
        }
        assert!(rig.replied(2).2.iter().all(|&byte| byte == 7), "a write after {moment} I/Os");
    }
}

#[test]
fn a_read_of_a_page_in_parts_does_not_begin_anew_when_other_records_are_freed() {
    let mut rig = write_back(with_log());
    let page = 200 * 4096;
    for tag in 1..=5 {
        rig.write_with(tag, tag * 16 * KIB, 16 * KIB, tag as u8, true);
        rig.commit();
    }
    rig.write_with(6, page, 1024, 6, true);
    rig.commit();
    rig.read(7, page, 4096);
    let is_below = |io: &mut Io| io.target == Target::Backend && io.range.start == page;
    let below: Vec<_> = rig.pending.extract_if(.., is_below).collect();
    assert_eq!(below.len(), 1);
    for _ in 0..100 {
        rig.settle();
        rig.tick(10);
    }
    assert!(!rig.unleased.is_empty(), "older records are freed");
    rig.pending = below;
    rig.complete(0, IoStatus::Ok);
    assert!(!rig.drawn().iter().any(|io| io.starts_with("R ")), "{:?}", rig.drawn());
    rig.settle();
    let bytes = &rig.replied(7).2;
    assert!(bytes[..1024].iter().all(|&byte| byte == 6), "the log's part");
    assert!(bytes[1024..].iter().all(|&byte| byte == 200), "what is below it");
}

#[test]
fn zeroes_are_read_before_primary_storage_has_them() {
    let mut rig = write_back(with_log());
    let op = Op::WriteZeroes { may_unmap: true, fast_only: false, fua: false };
    rig.submit(1, 512, 64 * KIB, op);
    assert!(rig.has_reply(1));
    rig.write(2, 8192, 512, 9);
    rig.expect_bytes(1024, 7168, 0);
    rig.expect_bytes(8192, 512, 9);
    rig.expect_bytes(8704, 4096, 0);
    assert_eq!(rig.backend[8192], 2);
}

#[test]
fn a_flush_is_answered_although_the_destager_wants_everything_durable() {
    let mut config = with_log();
    config.write_log.as_mut().expect("a log").segments_max = 40;
    let mut rig = write_back(config);
    for tag in 0..120 {
        rig.grant();
        rig.tick(20);
        rig.write(tag, tag % 200 * 4096, 4096, 1);
        if tag == 60 {
            rig.submit(500, 0, 0, Op::Flush);
        }
        let commit = |io: &String| io.starts_with("log W") || io.starts_with("log F");
        if let Some(commit) = rig.drawn().iter().position(commit) {
            rig.complete(commit, IoStatus::Ok);
        }
        if rig.has_reply(500) {
            assert!(tag < 66, "{} commits", tag - 60);
            return;
        }
    }
    panic!("the flush waits for writers who do not stop");
}

#[test]
fn a_read_that_waited_for_a_buffer_over_a_change_of_mode_sees_the_log() {
    let mut config = with_log();
    config.mode = Mode::PassThrough;
    (config.backend.size, config.buffer_bytes) = (64 << 20, 36 << 20);
    let mut rig = Rig::new(config);
    rig.tick(0);
    rig.grant();
    let range = ByteRange::at(0, 32 << 20);
    let buffer = rig.engine.write_buffer(range).expect("a free buffer");
    rig.read(1, 0, 8 << 20);
    assert!(rig.pending.is_empty(), "it waits for a buffer");
    rig.engine.set_mode(rig.now, Mode::WriteBack, &mut rig.actions).expect("possible");
    rig.run_actions();
    rig.settle();
    assert_eq!(rig.engine.mode(), Mode::WriteBack);
    rig.slice(buffer.at(ByteRange::at(0, 4096))).fill(0x55);
    rig.submit(2, 0, 4096, Op::Write { buffer, fua: false });
    assert!(rig.has_reply(2));
    rig.settle();
    assert_eq!(rig.replied(1).2[0], 0x55);
}

#[test]
fn what_primary_storage_said_before_it_was_destaged_makes_no_hole_of_it() {
    use crate::action::{Extent, ExtentState};
    let mut rig = write_back(with_log());
    rig.write(1, 0, 8192, 7);
    rig.submit(2, 0, 64 * KIB, Op::Allocation);
    let at = rig.find("E 0+65536");
    let asked = rig.pending.remove(at);
    // Zeroes have all of the log forgotten as soon as primary storage has it.
    let op = Op::WriteZeroes { may_unmap: true, fast_only: false, fua: false };
    rig.submit(3, 128 * KIB, 4096, op);
    // For less time than primary storage may take for its answer.
    for _ in 0..20 {
        rig.grant();
        rig.settle();
        rig.tick(100);
    }
    let hole = [Extent { len: 64 * KIB, state: ExtentState::Hole }];
    rig.engine.complete_extents(rig.now, asked.id, &hole, &mut rig.actions);
    let whole = Extent { len: 64 * KIB, state: ExtentState::Allocated };
    assert_eq!(rig.actions.extents, [whole]);
}

#[test]
fn an_answer_about_a_long_hole_ends_where_the_log_was_looked_through() {
    use crate::action::{Extent, ExtentState::Hole};
    let mut config = with_log();
    config.backend.size = 200 << 20;
    let mut rig = write_back(config);
    rig.write(1, 199 << 20, 4096, 7);
    let long = 128 << 20;
    rig.submit(2, 0, long, Op::Allocation);
    let at = rig.find(&format!("E 0+{long}"));
    let asked = rig.pending.remove(at);
    let hole = [Extent { len: long, state: Hole }];
    rig.engine.complete_extents(rig.now, asked.id, &hole, &mut rig.actions);
    assert_eq!(rig.actions.extents, [Extent { len: 64 << 20, state: Hole }]);
}
