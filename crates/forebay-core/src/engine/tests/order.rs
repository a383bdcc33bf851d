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

/// A disk whose buffers hold four long reads.
fn crowded() -> Rig {
    let backend = BackendTraits { size: 128 << 20, ..config().backend };
    Rig::new(Config { backend, buffer_bytes: 36 << 20, ..config() })
}

const LONG: u64 = 8 << 20;

/// A read of the long range with number `tag`, that leaves nothing in the cache.
fn long_read(rig: &mut Rig, tag: u64) {
    let op = Op::Read { no_admit: true };
    let request = Request { tag: RequestTag(tag), range: ByteRange::at(tag * LONG, LONG), op };
    rig.engine.submit(rig.now, request, &mut rig.actions).expect("a free place");
}

/// Carries everything out as a shard does: clients ask after each round.
fn rounds(rig: &mut Rig, mut ask: impl FnMut(&mut Rig)) {
    while let Some(actions) = rig.proceed() {
        actions.carry_out(rig);
        rig.carried_out(actions);
        ask(rig);
        rig.engine.check_invariants();
    }
}

/// Ends the oldest I/O, in rounds.
fn end_first(rig: &mut Rig, ask: impl FnMut(&mut Rig)) {
    let io = rig.pending.remove(0);
    rig.engine.complete(rig.now, io.id, IoStatus::Ok, &[], &mut rig.actions);
    rounds(rig, ask);
}

/// Reads again what was answered: there is always a read that waits.
fn read_again(rig: &mut Rig) -> usize {
    let replies = std::mem::take(&mut rig.replies);
    let reads = replies.iter().filter(|reply| reply.0 < 6);
    reads.map(|reply| long_read(rig, reply.0)).count()
}

/// Six long reads are under way, two of which wait for a buffer.
fn crowd() -> Rig {
    let mut rig = crowded();
    (0..6).for_each(|tag| long_read(&mut rig, tag));
    rounds(&mut rig, |_| {});
    assert_eq!((rig.pending.len(), rig.counters().buffer_waits), (4, 2));
    rig
}

#[test]
fn a_client_that_waits_for_a_buffer_gets_it_before_reads_that_came_later() {
    for len in [512, 32 << 20] {
        let (mut rig, wanted) = (crowd(), ByteRange::at(96 << 20, len));
        assert!(rig.engine.write_buffer(wanted).is_none());
        let (mut buffer, mut ended) = (None, 0);
        while buffer.is_none() && ended < 7 {
            ended += 1;
            end_first(&mut rig, |rig| {
                read_again(rig);
                buffer = buffer.or_else(|| rig.engine.write_buffer(wanted));
            });
        }
        assert!(buffer.is_some(), "{len}");
    }
}

#[test]
fn reads_and_writes_that_want_all_buffers_take_turns() {
    let (mut rig, mut reads, mut writes) = (crowd(), 0, 0);
    for _ in 0..200 {
        end_first(&mut rig, |rig| {
            reads += read_again(rig);
            let range = ByteRange::at(96 << 20, LONG);
            while let Some(buffer) = rig.engine.write_buffer(range) {
                let op = Op::Write { buffer, fua: false };
                let request = Request { tag: RequestTag(100 + writes), range, op };
                rig.engine.submit(rig.now, request, &mut rig.actions).expect("a free place");
                writes += 1;
            }
        });
    }
    assert!(reads >= 40 && writes >= 40, "{reads} reads, {writes} writes");
}

#[test]
fn a_client_that_asked_and_went_away_holds_no_read_up() {
    let mut rig = crowd();
    assert!(rig.engine.write_buffer(ByteRange::at(96 << 20, 32 << 20)).is_none());
    (6..12).for_each(|tag| long_read(&mut rig, tag));
    // It asks at its turn, too, and goes then.
    let mut asked = 0;
    while !rig.pending.is_empty() {
        end_first(&mut rig, |rig| {
            let waits = asked < 4;
            let range = ByteRange::at(96 << 20, 32 << 20);
            asked += usize::from(waits && rig.engine.write_buffer(range).is_none());
        });
    }
    assert_eq!(rig.replies.len(), 12);
    assert!(rig.engine.is_idle());
}

#[test]
fn the_time_of_a_read_begins_when_it_gets_its_buffer() {
    let mut rig = crowd();
    rig.now = Nanos::from_millis(25_000);
    end_first(&mut rig, |_| {});
    let answered = |rig: &Rig| rig.replies.iter().map(|reply| reply.0).collect::<Vec<_>>();
    let blamed = |rig: &Rig| rig.events.len();
    // The fifth read has had five seconds. The sixth may get the buffer of that one.
    rig.tick(5_000);
    assert_eq!((answered(&rig), blamed(&rig)), (vec![0, 1, 2, 3], 3));
    // Then all buffers are with I/Os that hang. Nobody asked primary storage for the sixth.
    rig.tick(25_000);
    assert_eq!((answered(&rig), blamed(&rig)), (vec![0, 1, 2, 3, 4], 4));
    rig.tick(5_000);
    assert_eq!((answered(&rig), blamed(&rig)), (vec![0, 1, 2, 3, 4, 5], 4));
    assert_eq!(rig.replied(5).1, IoStatus::TimedOut);
    rig.settle();
    assert!(rig.engine.is_idle());
}

#[test]
fn a_client_that_waits_for_memory_that_does_not_come_back_holds_others_up_for_a_moment() {
    let mut rig = crowded();
    rig.read(1, 0, 32 << 20);
    let ask = |rig: &mut Rig| {
        assert!(rig.engine.write_buffer(ByteRange::at(96 << 20, LONG)).is_none());
    };
    ask(&mut rig);
    let read = |rig: &mut Rig, tag: u64| {
        let range = ByteRange::at((64 << 20) + tag * 8192, 4096);
        let request = Request { tag: RequestTag(tag), range, op: Op::Read { no_admit: false } };
        rig.engine.submit(rig.now, request, &mut rig.actions).expect("a free place");
    };
    let at = |rig: &mut Rig, ms: u64| {
        rig.now = Nanos::from_millis(ms);
        rig.engine.tick(rig.now, &mut rig.actions);
        rounds(rig, ask);
    };
    rig.now = Nanos::from_millis(1);
    read(&mut rig, 2);
    read(&mut rig, 3);
    rounds(&mut rig, ask);
    assert_eq!(rig.pending.len(), 1, "they wait behind the client");
    assert!(rig.engine.next_deadline() <= Nanos::from_millis(501));
    at(&mut rig, 501);
    assert_eq!(rig.pending.len(), 3);
    at(&mut rig, 502);
    read(&mut rig, 4);
    rounds(&mut rig, ask);
    assert_eq!(rig.pending.len(), 4, "for a while nobody waits for clients");
    at(&mut rig, 2_600);
    read(&mut rig, 5);
    rounds(&mut rig, ask);
    assert_eq!(rig.pending.len(), 4, "then they have their turn again");
    at(&mut rig, 3_101);
    assert_eq!(rig.pending.len(), 5);
    while !rig.pending.is_empty() {
        rig.complete(0, IoStatus::Ok);
    }
    assert!((1..=5).all(|tag| rig.replied(tag).1 == IoStatus::Ok));
}

/// Those that come together have the same time.
#[test]
fn reads_that_wait_for_buffers_of_hung_ones_all_have_their_time() {
    let mut rig = crowded();
    rig.read(1, 0, 32 << 20);
    rig.now = Nanos::from_millis(1);
    for tag in 2..5 {
        let range = ByteRange::at(tag * LONG + (32 << 20), LONG);
        let request = Request { tag: RequestTag(tag), range, op: Op::Read { no_admit: false } };
        rig.engine.submit(rig.now, request, &mut rig.actions).expect("a free place");
    }
    rig.tick(29_998);
    rig.run_actions();
    rig.complete(0, IoStatus::Ok);
    for _ in 0..4 {
        rig.engine.proceed(rig.now, &mut rig.actions);
        rig.run_actions();
    }
    rig.tick(2);
    while !rig.pending.is_empty() {
        rig.complete(0, IoStatus::Ok);
        rig.engine.proceed(rig.now, &mut rig.actions);
        rig.run_actions();
    }
    assert!((1..5).all(|tag| rig.replied(tag).1 == IoStatus::Ok), "{:?}", rig.events);
}

/// The engine learns the time with its next call, and clients ask before it.
#[test]
fn a_client_that_asks_after_a_long_silence_has_its_turn() {
    let mut rig = crowded();
    rig.read(1, 0, 32 << 20);
    let ask = |rig: &mut Rig| {
        assert!(rig.engine.write_buffer(ByteRange::at(96 << 20, LONG)).is_none());
    };
    rig.now = Nanos::from_millis(5_000);
    ask(&mut rig);
    let range = ByteRange::at(64 << 20, 4096);
    let request = Request { tag: RequestTag(2), range, op: Op::Read { no_admit: false } };
    rig.engine.submit(rig.now, request, &mut rig.actions).expect("a free place");
    rig.now = Nanos::from_millis(10_000);
    ask(&mut rig);
    rounds(&mut rig, ask);
    rig.engine.tick(rig.now, &mut rig.actions);
    rounds(&mut rig, ask);
    assert_eq!(rig.pending.len(), 1, "the read waits behind the client");
    let ends = rig.engine.next_deadline();
    assert_eq!(ends, Nanos::from_millis(10_500));
    rig.now = ends;
    rig.engine.tick(rig.now, &mut rig.actions);
    rounds(&mut rig, ask);
    assert_eq!(rig.pending.len(), 2);
}
