//! Overlapping requests, time-outs, full tables: who waits for whom.

use super::*;
use crate::config::OnTimeout;

#[test]
fn a_read_that_overlaps_an_unacknowledged_write_waits_for_it() {
    let mut rig = Rig::new(config());
    rig.read(1, 0, 4096);
    rig.settle();
    rig.write(2, 512, 512, 77);
    rig.read(3, 0, 4096);
    assert!(!rig.has_reply(3), "even though the old bytes are in RAM");
    rig.settle();
    assert_eq!(rig.replied(3).2[512..1024], [77; 512]);
}

#[test]
fn a_fill_that_races_a_write_never_installs_old_bytes() {
    let mut rig = Rig::new(config());
    rig.read(1, 0, 4096);
    rig.write(2, 0, 4096, 77);
    assert_eq!(rig.drawn(), ["R 0+4096"], "the write waits for the fetch");
    rig.settle();
    rig.expect_bytes(0, 4096, 77);
    assert_eq!(rig.backend[..4096], [77; 4096]);
}

#[test]
fn overlapping_writes_end_up_the_same_in_cache_and_on_primary_storage() {
    let mut rig = Rig::new(config());
    rig.write(1, 0, 8192, 70);
    rig.write(2, 4096, 8192, 71);
    rig.write(3, 0, 512, 72);
    assert_eq!(rig.drawn(), ["W 0+8192"]);
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["W 4096+8192", "W 0+512"]);
    rig.complete(1, IoStatus::Ok);
    rig.settle();
    let backend = rig.backend.clone();
    for start in (0..12288).step_by(512) {
        rig.expect_bytes(start, 512, backend[start as usize]);
    }
}

#[test]
fn a_newer_write_waits_for_one_that_timed_out_and_may_still_land() {
    let mut rig = Rig::new(config());
    rig.write(1, 0, 4096, 70);
    rig.tick(30_000);
    assert_eq!(rig.replied(1).1, IoStatus::TimedOut);
    rig.write(2, 0, 4096, 71);
    assert_eq!(rig.drawn(), ["W 0+4096"], "only the old one is under way");
    rig.write(3, 8192, 4096, 72);
    assert_eq!(rig.drawn(), ["W 0+4096", "W 8192+4096"], "others go on");
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.backend[..4096], [70; 4096]);
    rig.settle();
    assert_eq!(rig.replied(2).1, IoStatus::Ok);
    assert_eq!(rig.backend[..4096], [71; 4096]);
    rig.expect_bytes(0, 4096, 71);
    assert!(rig.engine.is_idle());
}

#[test]
fn a_read_that_timed_out_installs_nothing_and_holds_nobody_up() {
    let mut rig = Rig::new(config());
    rig.read(1, 0, 4096);
    rig.tick(30_000);
    assert_eq!(rig.replied(1).1, IoStatus::TimedOut);
    rig.write(2, 0, 4096, 71);
    rig.complete(1, IoStatus::Ok);
    assert_eq!(rig.replied(2).1, IoStatus::Ok);
    rig.complete(0, IoStatus::Ok);
    rig.expect_bytes(0, 4096, 71);
    assert!(rig.engine.is_idle());
}

#[test]
fn requests_behind_a_hung_write_time_out_without_ever_having_run() {
    let mut rig = Rig::new(config());
    rig.write(1, 0, 4096, 70);
    rig.now = Nanos::from_millis(1);
    rig.write(2, 0, 4096, 71);
    rig.submit(3, 0, 0, Op::Flush);
    rig.tick(30_000);
    assert!([1, 2, 3].iter().all(|&tag| rig.replied(tag).1 == IoStatus::TimedOut));
    rig.settle();
    assert_eq!(rig.backend[..4096], [70; 4096], "the second write must not happen after its error");
    assert!(rig.engine.is_idle());
}

#[test]
fn by_setting_a_client_waits_instead_of_being_told_of_a_time_out() {
    let mut rig = Rig::new(Config { on_timeout: OnTimeout::Wait, ..config() });
    rig.write(1, 0, 4096, 70);
    rig.tick(60_000);
    assert!(!rig.has_reply(1));
    assert!(matches!(rig.events[..], [Event::BackendTimedOut { .. }]));
    rig.settle();
    assert_eq!(rig.replied(1).1, IoStatus::Ok);
}

#[test]
fn a_full_table_refuses_and_goes_on_when_something_completes() {
    let mut rig = Rig::new(Config { requests_max: 2, ..config() });
    rig.read(1, 0, 4096);
    rig.read(2, 8192, 4096);
    let request = Request {
        tag: RequestTag(3),
        range: ByteRange::at(16384, 4096),
        op: Op::Read { no_admit: false },
    };
    assert_eq!(rig.engine.submit(rig.now, request, &mut rig.actions), Err(Busy));
    rig.complete(0, IoStatus::Ok);
    rig.read(3, 16384, 4096);
    rig.settle();
    assert_eq!(rig.replies.len(), 3);
}

#[test]
fn a_read_waits_for_a_buffer_and_later_writes_do_not_overtake_it() {
    let buffer_bytes = 36 << 20;
    let mut config = Config { buffer_bytes, ..config() };
    config.backend.size = 64 << 20;
    let mut rig = Rig::new(config);
    rig.read(1, 0, 32 << 20);
    rig.read(2, 32 << 20, 32 << 20);
    assert!(rig.engine.write_buffer(ByteRange::at(0, 512)).is_none());
    rig.settle();
    assert_eq!(rig.replies.len(), 2);
    assert_eq!(rig.counters().buffer_waits, 1);
    let buffer = rig.engine.write_buffer(ByteRange::at(0, 512)).expect("memory came back");
    rig.engine.release(rig.now, buffer, &mut rig.actions);
    assert!(rig.engine.is_idle());
}

#[test]
fn a_request_outside_the_disk_or_off_sectors_is_answered_as_invalid() {
    let mut rig = Rig::new(config());
    for (tag, (start, len)) in [(1 << 20, 512), ((1 << 20) - 512, 1024), (1, 512), (0, 100), (0, 0)]
        .into_iter()
        .enumerate()
    {
        rig.read(tag as u64, start, len);
        assert_eq!(rig.replied(tag as u64).1, IoStatus::Invalid);
    }
}

#[test]
fn a_read_only_disk_refuses_every_change() {
    let mut config = config();
    config.backend.read_only = true;
    let mut rig = Rig::new(config);
    rig.write(1, 0, 512, 1);
    rig.submit(2, 0, 512, Op::Discard { fua: false });
    assert_eq!((rig.replied(1).1, rig.replied(2).1), (IoStatus::ReadOnly, IoStatus::ReadOnly));
    assert!(rig.engine.is_idle());
}

#[test]
fn after_shut_down_new_requests_are_refused_and_old_ones_finish() {
    let mut rig = Rig::new(config());
    rig.read(1, 0, 512);
    rig.engine.shut_down(rig.now, &mut rig.actions);
    rig.read(2, 0, 512);
    assert_eq!(rig.replied(2).1, IoStatus::ShuttingDown);
    rig.settle();
    assert_eq!(rig.replied(1).1, IoStatus::Ok);
    assert!(rig.engine.is_idle());
}

#[test]
fn a_read_that_waits_for_a_buffer_lets_the_writes_behind_it_run() {
    let backend = BackendTraits { size: 64 << 20, ..config().backend };
    let mut rig = Rig::new(Config { backend, buffer_bytes: 36 << 20, ..config() });
    rig.write(1, 0, 4096, 1);
    // The read waits for the first write, and the second, with most of the buffers, for the read.
    rig.read(2, 0, 20 << 20);
    rig.write(3, 0, 24 << 20, 3);
    rig.settle();
    assert_eq!(rig.replied(3).1, IoStatus::Ok);
    assert_eq!(rig.replied(2).1, IoStatus::Ok);
    assert!(rig.engine.is_idle());
}
