//! The work before the first request and after the last.

use super::*;

#[test]
fn who_ends_the_reading_back_leaves_a_replay_that_is_whole() {
    let records: Vec<_> = (0..8).map(|n| record(0, Op::Write, n * (2 << 20), 1 << 20)).collect();
    let all = || records.iter().copied().map(Ok);
    let summary = Summary::of(all()).unwrap();
    let mut reactor = Reactor::new(256, None).unwrap();
    let mut progress = |progress: &Progress| match progress.reading_back {
        Some((done, _)) if done == 3 << 20 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let settings = Settings { verify: true, ..closed() };
    let target = &mut *target("mem:16MiB");
    let outcome = replay(all(), &summary, target, &mut reactor, &settings, &clock, &mut progress);
    let outcome = outcome.unwrap();
    assert_eq!((outcome.ended_by, outcome.writes.count), (EndedBy::Trace, 8));
    let found = outcome.verified.unwrap();
    assert_eq!((found.read_back_bytes, found.not_read_back_bytes), (3 << 20, 5 << 20));
    assert_eq!((found.checked, found.wrong()), ((3 << 20) / 512, 0));
}

#[test]
fn an_answer_that_comes_too_late_is_not_taken_for_that_of_the_flush() {
    // The question for holes is given up after 100 ms, when it is looked at, and answered while the flush is under way, or
    // before that.
    for reads in [1, 60] {
        let late = "fault:rule=delay,op=extents,time=130ms&rule=delay,op=read,time=10ms&rule=hang,op=flush&inner=mem:1MiB";
        let settings = Settings { stall_ns_max: 20_000_000, overwrite: true, ..closed() };
        let mut records = vec![record(0, Op::Read, 0, 4096); reads];
        records.push(record(0, Op::Write, 0, 4096));
        let error = run_prepared(&records, &mut *target(late), &settings).unwrap_err();
        assert!(error.to_string().contains("does not end the flush"), "{reads}: {error}");
    }
}
