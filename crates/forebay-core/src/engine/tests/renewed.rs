//! A log in a pool that has no segment for it goes on in one that it has.

use super::*;
use crate::action::NoLease;
use crate::ids::SegmentId;

impl Rig {
    /// Ends everything well and lets time pass until a request is answered, in a pool that has no further segment.
    fn settle_alone(&mut self, tag: u64) {
        for _ in 0..2_000 {
            self.refuse_leases();
            if self.has_reply(tag) {
                return;
            }
            match self.renewed.pop() {
                Some(segment) => self.renew_it(segment),
                None if !self.pending.is_empty() => self.complete(0, IoStatus::Ok),
                None => {
                    self.now = self.now.max(self.engine.next_deadline());
                    self.tick(0);
                }
            }
            self.engine.check_invariants();
        }
        panic!("request {tag} is not answered: {:?}", self.drawn());
    }

    /// The pool has no segment.
    fn refuse_leases(&mut self) {
        while std::mem::take(&mut self.leases.0) > 0 {
            self.engine.leased(self.now, Err(NoLease::Now), &mut self.actions);
            self.run_actions();
        }
    }

    /// The pool leases it anew.
    fn renew_it(&mut self, segment: SegmentId) {
        let is_of_log = |io: &&Io| io.target == Target::Log;
        assert_eq!(self.pending.iter().find(is_of_log), None, "something of it is under way");
        let ordinal = 100 + u64::from(self.leases.1);
        self.leases.1 += 1;
        self.engine.leased(self.now, Ok((segment, ordinal)), &mut self.actions);
        self.run_actions();
    }
}

/// A log of one segment, and a pool that has no other.
fn alone() -> Rig {
    alone_with(with_log())
}

fn alone_with(config: Config) -> Rig {
    let mut rig = Rig::new(config);
    rig.tick(0);
    assert_eq!(std::mem::take(&mut rig.leases.0), 1);
    rig.engine.leased(rig.now, Ok((SegmentId(0), 0)), &mut rig.actions);
    rig.run_actions();
    while rig.engine.mode() != Mode::WriteBack {
        rig.complete(0, IoStatus::Ok);
    }
    rig
}

#[test]
fn a_log_of_one_segment_takes_any_number_of_writes() {
    let mut rig = alone();
    for tag in 1..=60 {
        rig.write_with(tag, tag % 16 * 64 * KIB, 16 * KIB, tag as u8, tag % 2 == 0);
        rig.settle_alone(tag);
        assert_eq!(rig.replied(tag).1, IoStatus::Ok);
    }
    assert!(rig.leases.1 > 10, "it was leased anew {} times", rig.leases.1);
    // One that is longer than all of the log.
    rig.write(100, 0, 512 * KIB, 99);
    rig.settle_alone(100);
    assert_eq!(rig.unleased, [], "who gets it then?");
    rig.read(101, 0, 4096);
    rig.settle_alone(101);
    assert!(rig.replied(101).2.iter().all(|&byte| byte == 99));
}

#[test]
fn what_is_not_on_primary_storage_for_good_is_not_given_up_for_a_writer() {
    let mut rig = alone();
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.write(1, 0, 512 * KIB, 1);
    for _ in 0..20 {
        rig.refuse_leases();
        rig.settle();
        rig.tick(101);
    }
    assert!(!rig.has_reply(1) && rig.renewed.is_empty());
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    rig.settle_alone(1);
}

#[test]
fn a_freed_segment_is_kept_where_the_pool_had_none() {
    let mut rig = alone();
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.write(1, 0, 16 * KIB, 1);
    // A second segment, and never a third one.
    rig.leases.1 = 1;
    rig.grant();
    for tag in 2..=5 {
        rig.write(tag, tag * 16 * KIB, 16 * KIB, 2);
        rig.refuse_leases();
        rig.settle();
    }
    rig.settle();
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    for _ in 0..100 {
        rig.refuse_leases();
        rig.settle();
        rig.tick(11);
    }
    assert_eq!((&rig.renewed[..], &rig.unleased[..]), (&[SegmentId(0)][..], &[][..]));
}

#[test]
fn a_log_that_ends_or_is_left_or_failed_leases_nothing_anew() {
    for way in 0..3 {
        let mut rig = alone();
        rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
        for tag in 1..=8 {
            rig.write(tag, tag * 16 * KIB, 16 * KIB, tag as u8);
            rig.refuse_leases();
            rig.settle();
        }
        rig.settle();
        match way {
            0 => rig.engine.shut_down(rig.now, &mut rig.actions),
            1 => {
                let left = rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions);
                left.expect("possible");
            }
            _ => rig.engine.leased(rig.now, Err(NoLease::Ever), &mut rig.actions),
        }
        rig.run_actions();
        rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
        rig.run_actions();
        for _ in 0..200 {
            rig.leases.0 = 0;
            rig.settle();
            rig.tick(50);
        }
        assert_eq!(rig.renewed, [], "way {way}");
    }
}

#[test]
fn a_segment_that_never_comes_ends_the_log_and_stops_no_guest() {
    let mut rig = alone();
    rig.write(1, 0, 512 * KIB, 1);
    while rig.renewed.is_empty() {
        rig.refuse_leases();
        match rig.pending.is_empty() {
            true => rig.tick(10),
            false => rig.complete(0, IoStatus::Ok),
        }
    }
    assert!(!rig.has_reply(1));
    let before = rig.now;
    rig.settle();
    while !rig.has_reply(1) {
        rig.now = rig.now.max(rig.engine.next_deadline());
        rig.tick(0);
        rig.settle();
    }
    assert_eq!(rig.replied(1).1, IoStatus::Ok);
    let limit = Nanos(rig.engine.config().flash_timeout.0 * 9);
    assert!(rig.now.since(before) < limit, "{:?}", rig.now.since(before));
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    // It comes after all, and changes nothing.
    rig.renew_it(SegmentId(0));
    rig.settle();
    rig.expect_bytes(0, 4096, 1);
}

#[test]
fn a_log_that_has_less_than_it_may_is_full_with_what_it_has() {
    let mut config = with_log();
    config.write_log.as_mut().expect("a log").segments_max = 64;
    let mut rig = alone_with(config);
    for tag in 1..=20 {
        rig.write(tag, tag % 16 * 64 * KIB, 16 * KIB, tag as u8);
        rig.settle_alone(tag);
    }
    // Nobody waits for a flush, and the epoch under way is destaged all the same.
    assert!(rig.now < Nanos::from_millis(1_000), "{:?}", rig.now);
    let said = rig.events.iter().filter(|event| **event == Event::LogHasRoom).count();
    assert!(said < 3, "{said} {:?}", rig.events);
}

#[test]
fn a_read_of_a_page_in_parts_begins_anew_although_an_older_segment_is_freed_after_its_records() {
    let mut rig = alone();
    let page = 200 * 4096;
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.write(1, 0, 16 * KIB, 1);
    // A second segment, and never a third one.
    rig.leases.1 = 1;
    rig.grant();
    for tag in 2..=4 {
        rig.write_with(tag, tag * 16 * KIB, 16 * KIB, 2, true);
        rig.refuse_leases();
        rig.settle();
    }
    let zeroes = Op::WriteZeroes { may_unmap: true, fast_only: false, fua: true };
    rig.submit(5, 100 * 4096, 4096, zeroes);
    rig.settle();
    rig.write_with(6, page, 1024, 6, true);
    rig.settle();
    rig.read(7, page, 4096);
    let is_below = |io: &mut Io| io.target == Target::Backend && io.range.start == page;
    let below: Vec<_> = rig.pending.extract_if(.., is_below).collect();
    assert_eq!(below.len(), 1, "{:?}", rig.drawn());
    // What it reads it has read: only the answer is late.
    let old = rig.backend[page as usize..][..4096].to_vec();
    // A lease is asked for again, and the answer is late as well.
    while rig.leases.0 == 0 {
        rig.tick(11);
    }
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    for _ in 0..100 {
        rig.settle();
        rig.tick(11);
    }
    let log = rig.engine.statistics(rig.now).log.expect("a log");
    assert_eq!((log.used_bytes, rig.leases.0), (0, 1), "it is forgotten as a whole");
    rig.refuse_leases();
    for _ in 0..100 {
        rig.settle();
        rig.tick(11);
    }
    assert_eq!(rig.renewed, [SegmentId(0)], "the older segment is freed");
    let new = rig.backend[page as usize..][..4096].to_vec();
    rig.backend[page as usize..][..4096].copy_from_slice(&old);
    rig.pending.extend(below);
    rig.complete(0, IoStatus::Ok);
    rig.backend[page as usize..][..4096].copy_from_slice(&new);
    rig.settle();
    assert!(rig.replied(7).2[..1024].iter().all(|&byte| byte == 6), "the newest bytes");
}
