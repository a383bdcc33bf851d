//! Settings that change while the disk is at work.

use super::*;
use crate::config::{FlashAdmission, OnTimeout, Tuning};
use crate::policy::PolicyKind;

const SECOND: Nanos = Nanos::from_millis(1000);

impl Rig {
    /// Changes a setting.
    pub(super) fn tune(&mut self, change: impl FnOnce(&mut Tuning)) -> Result<(), ConfigError> {
        let mut tuning = self.engine.config().tuning();
        change(&mut tuning);
        let result = self.engine.tune(self.now, tuning, &mut self.actions);
        self.run_actions();
        self.engine.check_invariants();
        result
    }

    /// Ticks when that is due, until nothing is.
    fn tick_on(&mut self) -> usize {
        let mut ticks = 0;
        while self.engine.next_deadline() != Nanos::NEVER {
            self.now = self.now.max(self.engine.next_deadline());
            self.tick(0);
            self.engine.check_invariants();
            ticks += 1;
        }
        ticks
    }
}

#[test]
fn a_shorter_time_out_counts_for_what_is_in_flight() {
    let mut rig = Rig::new(config());
    rig.read(1, 0, 4096);
    rig.tick(5_000);
    rig.read(2, 8192, 4096);
    rig.tune(|tuning| tuning.backend_timeout = SECOND).unwrap();
    rig.tick(0);
    assert_eq!(rig.replied(1).1, IoStatus::TimedOut, "it had its second");
    rig.tick(999);
    assert!(!rig.has_reply(2));
    rig.tick(1);
    assert_eq!(rig.replied(2).1, IoStatus::TimedOut);
    rig.settle();
}

#[test]
fn a_longer_time_out_counts_for_what_is_in_flight() {
    let mut rig = Rig::new(Config { backend_timeout: SECOND, ..config() });
    rig.read(1, 0, 4096);
    rig.tick(500);
    rig.tune(|tuning| tuning.backend_timeout = Nanos(9 * SECOND.0)).unwrap();
    rig.tick(8_499);
    assert!(!rig.has_reply(1));
    rig.settle();
    assert_eq!(rig.replied(1).1, IoStatus::Ok);
}

#[test]
fn clients_that_wait_without_end_have_the_time_once_more_when_that_changes() {
    let waits = Config { on_timeout: OnTimeout::Wait, backend_timeout: SECOND, ..config() };
    let mut rig = Rig::new(waits);
    rig.read(1, 0, 4096);
    rig.tick(1_000);
    rig.read(2, 8192, 4096);
    rig.tick(59_000);
    assert_eq!(rig.counters().requests_timed_out, 2);
    rig.read(3, 16384, 4096);
    rig.tune(|tuning| tuning.on_timeout = OnTimeout::Fail).unwrap();
    rig.tick(999);
    assert!(!rig.has_reply(1));
    rig.tick(1);
    assert_eq!([1, 2, 3].map(|tag| rig.replied(tag).1), [IoStatus::TimedOut; 3]);
    rig.tune(|tuning| tuning.on_timeout = OnTimeout::Wait).unwrap();
    rig.read(4, 32768, 4096);
    rig.tick(60_000);
    assert!(!rig.has_reply(4));
    rig.settle();
    assert_eq!(rig.replied(4).1, IoStatus::Ok);
}

#[test]
fn the_same_settings_again_do_nothing() {
    let mut rig = Rig::new(config());
    rig.engine.proceed(rig.now, &mut rig.actions);
    rig.engine.tune(rig.now, rig.engine.config().tuning(), &mut rig.actions).unwrap();
    assert!(!rig.engine.wants_to_proceed() && rig.actions.list.is_empty());
}

#[test]
fn settings_that_cannot_be_are_refused_and_nothing_changes() {
    let spare = super::super::metadata_bytes(&Config { policy: PolicyKind::Lru, ..config() });
    let lean = Config { policy: PolicyKind::Lru, metadata_bytes_max: spare, ..config() };
    let mut rig = Rig::new(lean);
    let before = rig.engine.config().tuning();
    let refused = [
        rig.tune(|tuning| tuning.backend_timeout = Nanos(0)),
        rig.tune(|tuning| tuning.destage_rate_max = Some(1 << 20)),
        rig.tune(|tuning| (tuning.policy, tuning.on_timeout) = (PolicyKind::Auto, OnTimeout::Wait)),
    ];
    for (refused, word) in refused.into_iter().zip(["time-out", "write log", "metadata"]) {
        let text = refused.expect_err("it cannot be").to_string();
        assert!(text.contains(word), "{text}");
    }
    assert_eq!(rig.engine.config().tuning(), before);
}

#[test]
fn what_is_cached_stays_cached_under_another_policy() {
    let tiers = Config {
        policy: PolicyKind::Lru,
        ram_bytes: 128 * KIB,
        flash_bytes: 512 * KIB,
        flash_admission: FlashAdmission::Always,
        ..config()
    };
    let mut rig = Rig::new(tiers);
    for block in 0..128 {
        rig.expect_bytes(block * 4096, 4096, block as u8);
    }
    let cached = super::drop_cache::blocks_cached(&rig);
    assert_eq!(cached, 128);
    let blocks = || (0..128).rev();
    let misses = rig.counters().read_misses;
    for policy in [PolicyKind::S3Fifo, PolicyKind::Auto, PolicyKind::Fifo, PolicyKind::Lru] {
        rig.tune(|tuning| tuning.policy = policy).unwrap();
        assert_eq!(rig.engine.statistics(rig.now).policy, policy.name());
        // With requests between any two ticks.
        for block in blocks() {
            rig.expect_bytes(block * 4096, 4096, block as u8);
            if block % 16 == 0 {
                rig.tick(1);
            }
        }
        rig.tick_on();
        // What RAM took again of flash is in both.
        assert!(super::drop_cache::blocks_cached(&rig) >= cached, "{policy}");
    }
    assert_eq!(rig.counters().read_misses, misses);
}

#[test]
fn a_change_of_the_policy_takes_several_ticks_and_the_next_one_follows_it() {
    let mut rig = Rig::new(Config { policy: PolicyKind::Lru, ram_bytes: 512 * KIB, ..config() });
    for block in 0..128 {
        rig.expect_bytes(block * 4096, 4096, block as u8);
    }
    rig.tune(|tuning| tuning.policy = PolicyKind::Fifo).unwrap();
    rig.tick(1);
    let before = rig.engine.statistics(rig.now).metadata_bytes;
    rig.tune(|tuning| tuning.policy = PolicyKind::S3Fifo).unwrap();
    rig.tune(|tuning| tuning.policy = PolicyKind::Lru).unwrap();
    assert_eq!(rig.engine.statistics(rig.now).metadata_bytes, before, "one after the other");
    let ticks = rig.tick_on();
    assert!((7..20).contains(&ticks), "{ticks}");
    let after = rig.engine.statistics(rig.now).metadata_bytes;
    assert!(after < before);
    // LRU it is: of the blocks that came first the one that was used again stays.
    rig.expect_bytes(0, 4096, 0);
    for block in 128..160 {
        rig.expect_bytes(block * 4096, 4096, block as u8);
    }
    let misses = rig.counters().read_misses;
    rig.expect_bytes(0, 4096, 0);
    assert_eq!(rig.counters().read_misses, misses);
    rig.expect_bytes(4096, 4096, 1);
    assert_eq!(rig.counters().read_misses, misses + 1);
}

#[test]
fn streams_pass_the_cache_by_from_the_next_request_on() {
    let mut rig = Rig::new(config());
    let stream = |rig: &mut Rig, start: u64| {
        for n in 0..8 {
            rig.read(100 + start + n, (start + n) * 4096, 4096);
            rig.settle();
        }
    };
    stream(&mut rig, 0);
    let bypassed = rig.counters().reads_bypassed;
    rig.tune(|tuning| tuning.sequential_bypass = SequentialBypass::Longer(8192)).unwrap();
    stream(&mut rig, 32);
    assert_eq!(rig.counters().reads_bypassed, bypassed + 6);
    rig.tune(|tuning| tuning.sequential_bypass = SequentialBypass::Off).unwrap();
    stream(&mut rig, 64);
    assert_eq!(rig.counters().reads_bypassed, bypassed + 6);
}

#[test]
fn another_rate_of_destaging_counts_at_once() {
    let mut config = with_log();
    config.write_log = Some(WriteLogConfig::new(SEGMENT_PAGES, 32));
    let mut rig = write_back(config);
    rig.tune(|tuning| tuning.destage_rate_max = Some(4096)).unwrap();
    for n in 0..32 {
        rig.write(n, n * 8192, 4096, 7);
        rig.log();
    }
    let destaged = |rig: &mut Rig, seconds: u64| {
        for _ in 0..seconds * 10 {
            rig.tick(100);
            rig.log();
            while let Some(at) = rig.pending.iter().position(|io| io.target == Target::Backend) {
                rig.complete(at, IoStatus::Ok);
            }
        }
        (0..32).filter(|n| rig.backend[n * 8192] == 7).count()
    };
    let slowly = destaged(&mut rig, 5);
    assert!((4..9).contains(&slowly), "{slowly} pages in five seconds of a page each");
    rig.tune(|tuning| tuning.destage_rate_max = None).unwrap();
    assert_eq!(destaged(&mut rig, 5), 32);
}

#[test]
fn a_disk_that_ends_holds_nothing_back_whatever_its_limits() {
    let mut rig = Rig::new(config());
    rig.tune(|tuning| tuning.limits.iops = Some(1)).unwrap();
    for tag in 1..=3 {
        rig.read(tag, tag * 8192, 4096);
    }
    assert_eq!(rig.engine.statistics(rig.now).counters.requests_limited, 2);
    assert_eq!(rig.engine.statistics(rig.now).requests_in_flight, 3);
    rig.engine.shut_down(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.read(4, 0, 4096);
    assert_eq!(rig.replied(4).1, IoStatus::ShuttingDown, "it does not wait for its turn");
    rig.settle();
    for tag in 1..=3 {
        assert_eq!(rig.replied(tag).1, IoStatus::Ok);
    }
    assert!(rig.engine.is_idle());
}

#[test]
fn a_disk_whose_clients_are_to_wait_holds_nothing_back() {
    let mut rig = Rig::new(config());
    rig.tune(|tuning| tuning.limits.iops = Some(1)).unwrap();
    for tag in 1..=3 {
        rig.read(tag, tag * 8192, 4096);
    }
    rig.settle();
    assert!(!rig.engine.owes_nothing());
    rig.engine.let_limited_go(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.settle();
    assert!(rig.engine.owes_nothing());
    rig.read(4, 0, 4096);
    assert!(!rig.engine.owes_nothing(), "the limit is still there");
}

#[test]
fn what_limits_hold_and_changes_its_bytes_goes_before_a_compare_and_write() {
    let mut rig = Rig::new(config());
    rig.tune(|tuning| tuning.limits.iops = Some(1)).unwrap();
    rig.write(1, 65536, 512, 5);
    rig.write(2, 8192, 512, 6);
    rig.write(3, 4096, 1024, 7);
    rig.write(4, 16384, 512, 8);
    rig.compare_and_write(5, 4608, &[7; 512], 9, false);
    rig.settle();
    for tag in [1, 2, 3, 5] {
        assert_eq!(rig.replied(tag).1, IoStatus::Ok, "{tag}");
    }
    assert_eq!((rig.backend[4096], rig.backend[4608], rig.backend[5120]), (7, 9, 1));
    assert!(!rig.has_reply(4), "it came later than all that is in the way");
    // One in whose way nothing is goes alone.
    rig.compare_and_write(6, 4608, &[9; 512], 10, false);
    rig.settle();
    assert_eq!((rig.replied(6).1, rig.has_reply(4)), (IoStatus::Ok, false));
    // Those after it wait for the time of all.
    rig.tick(2_500);
    assert!(!rig.has_reply(4));
    rig.tick(600);
    rig.settle();
    assert_eq!(rig.replied(4).1, IoStatus::Ok);
    rig.no_memory_is_lost();
}
