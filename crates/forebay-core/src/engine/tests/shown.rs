//! What an administrator is shown: ages, what limits destaging, a log that is full; and a flush that one asks for.

use super::*;
use crate::action::{DestageFault, PrimaryOp};
use crate::stats::{DestageLimit, LogState, LogStatistics};

impl Rig {
    pub(super) fn shown(&self) -> LogStatistics {
        self.engine.log_statistics(self.now).expect("a log")
    }

    fn pause(&mut self, pause: bool) {
        self.engine.pause_destaging(self.now, pause, &mut self.actions);
        self.run_actions();
    }

    fn count(&self, event: Event) -> usize {
        self.events.iter().filter(|&&told| told == event).count()
    }
}

#[test]
fn an_age_grows_and_a_rate_ends_while_nothing_happens() {
    let mut rig = write_back(with_log());
    rig.pause(true);
    for n in 0..30 {
        rig.write_with(n, n * 8192, 4096, 1, true);
        rig.log();
    }
    rig.pause(false);
    while !rig.shown().is_clean {
        rig.grant();
        rig.tick(20);
        if !rig.pending.is_empty() {
            rig.complete(0, IoStatus::Ok);
        }
    }
    assert!(rig.shown().destage_bytes_per_second > 0);
    assert_eq!(rig.shown().primary_age_ns, 0);
    rig.pause(true);
    rig.write_with(50, 0, 4096, 2, true);
    rig.log();
    let later = rig.now.plus(Nanos::from_millis(60_000));
    let log = rig.engine.log_statistics(later).expect("a log");
    assert!(log.primary_age_ns >= 60_000_000_000, "{log:?}");
    assert_eq!((log.destage_bytes_per_second, log.epochs_per_second), (0, 0));
}

#[test]
fn what_limits_destaging_is_said_and_whose_fault_it_is() {
    let mut rig = write_back(with_log());
    let check = |rig: &Rig, expect: DestageLimit| assert_eq!(rig.shown().limited_by, expect);
    check(&rig, DestageLimit::Nothing);
    rig.write(1, 0, 4096, 1);
    rig.log();
    check(&rig, DestageLimit::OpenEpoch);
    rig.pause(true);
    check(&rig, DestageLimit::Paused);
    assert_eq!(rig.shown().state, LogState::Paused);
    rig.pause(false);
    rig.settle_until("W 0+4096");
    rig.complete(rig.find("W 0+4096"), IoStatus::IoError);
    check(&rig, DestageLimit::PrimaryErrors);
    let failed = |fault| Event::DestageFailed { fault, status: IoStatus::IoError };
    let (op, status) = (PrimaryOp::Write, IoStatus::IoError);
    assert_eq!(rig.count(Event::PrimaryFails { op, status, offset: 0, is_destaging: true }), 1);
    rig.settle_until("F 0+0");
    check(&rig, DestageLimit::PrimaryFlush);
    rig.complete(rig.find("F 0+0"), IoStatus::IoError);
    check(&rig, DestageLimit::PrimaryErrors);
    rig.settle_log();
    check(&rig, DestageLimit::Nothing);
    // Groups that are not in memory any more are read from the log.
    rig.pause(true);
    for n in 0..6 {
        rig.write_with(10 + n, n * 8192, 4096, 2, true);
        rig.log();
    }
    rig.pause(false);
    let is_read = |io: &Io| io.target == Target::Log && matches!(io.op, IoOp::Read { .. });
    while !rig.pending.iter().any(is_read) {
        match rig.pending.is_empty() {
            true => rig.tick(1),
            false => rig.complete(0, IoStatus::Ok),
        }
    }
    let read = rig.pending.iter().position(is_read).expect("a read of the log");
    rig.complete(read, IoStatus::IoError);
    check(&rig, DestageLimit::LogReadErrors);
    assert_eq!(rig.count(failed(DestageFault::LogRead)), 1);
    rig.settle_log();
    check(&rig, DestageLimit::Nothing);
}

#[test]
fn a_note_that_fails_is_not_the_fault_of_primary_storage() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 1, true);
    rig.write_with(2, 0, 4096, 2, true);
    rig.settle_until("log P 0+0");
    rig.complete(rig.find("log P 0+0"), IoStatus::IoError);
    assert_eq!(rig.shown().limited_by, DestageLimit::NoteErrors);
    let failed = Event::DestageFailed { fault: DestageFault::Note, status: IoStatus::IoError };
    assert_eq!(rig.count(failed), 1);
    rig.settle_log();
    assert_eq!(rig.shown().limited_by, DestageLimit::Nothing);
}

#[test]
fn notes_that_fail_are_told_once_and_make_way_whatever_is_destaged_meanwhile() {
    let mut rig = write_back(with_log());
    let failed = Event::DestageFailed { fault: DestageFault::Note, status: IoStatus::IoError };
    rig.write_with(1, 0, 4096, 1, true);
    rig.settle_until("log P 0+0");
    let mut pauses = Vec::new();
    for tag in 2..6 {
        rig.write_with(tag, tag * 65536, 4096, 2, true);
        rig.complete(rig.find("log P 0+0"), IoStatus::IoError);
        assert_eq!(rig.shown().limited_by, DestageLimit::NoteErrors);
        let began = rig.now;
        rig.settle_until("log P 0+0");
        pauses.push(rig.now.since(began));
    }
    assert_eq!(rig.count(failed), 1);
    assert!(pauses.is_sorted_by(|a, b| a < b), "{pauses:?}");
}

#[test]
fn a_mode_without_log_lets_paused_destaging_go_on() {
    let mut rig = write_back(with_log());
    rig.pause(true);
    rig.write_with(1, 0, 4096, 7, true);
    rig.log();
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    rig.run_actions();
    assert_eq!(rig.count(Event::DestagingResumed), 1);
    // Paused again, it says so, and who asks again wants it to go on.
    rig.pause(true);
    assert_eq!((rig.shown().state, rig.shown().is_paused), (LogState::Paused, true));
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    rig.run_actions();
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    assert_eq!(rig.backend[0], 7);
}

#[test]
fn a_full_log_is_told_once_and_so_is_the_room_that_is_back() {
    let mut config = with_log();
    config.write_log.as_mut().expect("a log").throttle_percent = 50;
    let mut rig = write_back(config);
    for round in 1..=2 {
        rig.pause(true);
        for n in 0..64 {
            rig.write(100 * round + n, n * 4096, 4096, 1);
            rig.log();
            rig.tick(10);
        }
        assert!(rig.shown().writes_waiting > 0);
        assert_eq!(rig.shown().state, LogState::Paused);
        assert_eq!(rig.shown().limited_by, DestageLimit::Paused);
        rig.pause(false);
        rig.log();
        let mut log = rig.shown();
        assert_eq!((log.state, log.limited_by), (LogState::Full, DestageLimit::EpochOrder));
        log.note_primary_storage_lost();
        assert_eq!((log.state, log.limited_by), (LogState::Full, DestageLimit::PrimaryLost));
        let told = [Event::LogThrottles, Event::LogFull].map(|event| rig.count(event));
        assert_eq!(told, [round as usize; 2]);
        assert_eq!(rig.count(Event::LogHasRoom), round as usize - 1);
        rig.settle_log();
        assert_eq!(rig.count(Event::LogHasRoom), round as usize);
        assert_eq!(rig.shown().state, LogState::Active);
    }
}

#[test]
fn a_flush_that_is_asked_for_covers_what_was_written_before() {
    let mut rig = Rig::new(config());
    rig.write(1, 0, 4096, 1);
    rig.settle();
    let statistics = |rig: &Rig| rig.engine.statistics(rig.now);
    assert_eq!(statistics(&rig).unflushed_bytes, 4096);
    let ask = |rig: &mut Rig| {
        let number = rig.engine.flush_primary_storage(rig.now, &mut rig.actions);
        rig.run_actions();
        number.expect("the mode has no log")
    };
    let first = ask(&mut rig);
    assert_eq!(
        (rig.drawn(), rig.engine.flushed_primary_storage(first)),
        (vec!["F 0+0".into()], None)
    );
    rig.write(2, 8192, 4096, 1);
    rig.complete(rig.find("W 8192+4096"), IoStatus::Ok);
    let second = ask(&mut rig);
    rig.complete(rig.find("F 0+0"), IoStatus::Ok);
    assert_eq!(rig.engine.flushed_primary_storage(first), Some(true));
    assert_eq!(rig.engine.flushed_primary_storage(second), None, "the one under way had passed it");
    rig.complete(rig.find("F 0+0"), IoStatus::IoError);
    assert_eq!(rig.engine.flushed_primary_storage(second), Some(false));
    rig.write(3, 0, 4096, 1);
    rig.settle();
    let third = ask(&mut rig);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.settle();
    assert_eq!(
        rig.engine.flushed_primary_storage(third),
        Some(false),
        "the flush knows nothing of it"
    );
    let fourth = ask(&mut rig);
    rig.settle();
    assert_eq!(rig.engine.flushed_primary_storage(fourth), Some(true));
    assert_eq!(statistics(&rig).unflushed_bytes, 0);
    assert_eq!(
        write_back(with_log()).engine.flush_primary_storage(Nanos(1), &mut Actions::default()),
        None
    );
}
