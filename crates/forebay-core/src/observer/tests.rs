use super::*;
use crate::ids::RequestTag;
use crate::mrc::Snapshot;

fn read(block: u64) -> Request {
    let range = ByteRange::at(block * 4096, 4096);
    Request { tag: RequestTag(0), range, op: Op::Read { no_admit: false } }
}

fn taken(observer: &mut Observer, now: u64, block: u64) -> Ticket {
    observer.taken(Nanos(now), &read(block)).expect("a read is observed")
}

fn latencies(observer: &Observer) -> Vec<(u64, Option<u64>)> {
    let mut into = Vec::new();
    observer.recorder.read(0, 100, true, &mut into);
    into.iter().map(|recorded| (recorded.time.0, recorded.latency.map(|ns| ns.0))).collect()
}

#[test]
fn a_latency_ends_when_the_answer_is_sent() {
    let mut observer = Observer::new(1 << 10, None);
    let (first, second) = (taken(&mut observer, 100, 0), taken(&mut observer, 150, 1));
    observer.answered(second);
    assert_eq!((observer.unanswered(), latencies(&observer)), (1, vec![(100, None), (150, None)]));
    observer.sent(Nanos(400));
    assert_eq!(latencies(&observer), [(100, None), (150, Some(250))]);
    observer.answered(first);
    observer.sent(Nanos(1000));
    assert_eq!(latencies(&observer), [(100, Some(900)), (150, Some(250))]);
    assert_eq!(observer.unanswered(), 0);
}

#[test]
fn what_is_taken_after_answers_were_sent_was_not_outstanding_with_them() {
    let mut observer = Observer::new(1 << 10, None);
    observer.count(Nanos(0), Box::default());
    let first = taken(&mut observer, 100, 0);
    observer.answered(first);
    observer.sent(Nanos(130));
    // Of the same turn, whose time is that of its beginning.
    let second = taken(&mut observer, 100, 1);
    observer.answered(second);
    observer.sent(Nanos(170));
    assert_eq!(latencies(&observer), [(100, Some(30)), (130, Some(40))]);
    let counting = observer.counting().expect("they are counted");
    assert_eq!(counting.characteristics.outstanding.all.max(), Some(1));
}

#[test]
fn histograms_begin_without_what_is_under_way() {
    let mut observer = Observer::new(0, None);
    let before = taken(&mut observer, 100, 0);
    assert!(observer.counting().is_none());
    assert!(observer.count(Nanos(200), Box::default()).is_none());
    let after = taken(&mut observer, 300, 9);
    observer.answered(before);
    observer.answered(after);
    observer.sent(Nanos(5_300));
    let Counting { characteristics, since, .. } = observer.counting().expect("they are counted");
    assert_eq!(*since, Nanos(200));
    assert_eq!(characteristics.lengths.all.count(), 1);
    assert_eq!(characteristics.latencies.all.max(), Some(5));
    assert_eq!(characteristics.latencies.all.count(), 1);
    assert_eq!(characteristics.outstanding.all.max(), Some(1));
    let dropped = observer.count(Nanos(6_000), Box::default()).expect("the ones of before");
    assert_eq!(dropped.characteristics.lengths.all.count(), 1);
    assert_eq!(observer.stop_counting().expect("new ones").characteristics.lengths.all.count(), 0);
    assert!(observer.counting().is_none());
}

#[test]
fn histograms_and_the_curve_see_each_request_once() {
    let mut observer = Observer::new(0, Some(Box::new(Uses::new(4096, 0))));
    observer.count(Nanos(0), Box::default());
    taken(&mut observer, 1, 7);
    let range = ByteRange::at(9 * 4096, 2 * 4096);
    observer.taken(Nanos(2), &Request { range, ..read(0) }).expect("a read is observed");
    assert_eq!(observer.uses().expect("there are some").snapshot().reads.uses(), 3);
    let counting = observer.counting().expect("they are counted");
    assert_eq!(counting.characteristics.lengths.all.count(), 2);
}

#[test]
fn what_neither_reads_nor_writes_is_only_counted() {
    let mut observer = Observer::new(1 << 10, Some(Box::new(Uses::new(4096, 0))));
    for op in [Op::Flush, Op::Discard { fua: false }, Op::Prefetch] {
        assert_eq!(observer.taken(Nanos(1), &Request { op, ..read(0) }), None);
    }
    assert_eq!((observer.others(), observer.recorder.next()), (3, 0));
    taken(&mut observer, 1, 7);
    let Snapshot { reads, writes, .. } = observer.uses().expect("there are some").snapshot();
    assert_eq!(reads.uses() + writes.uses(), 1);
}

#[test]
fn an_observer_in_the_place_of_another_one_goes_on_with_numbers_and_histograms() {
    let mut before = Observer::new(1 << 10, None);
    before.count(Nanos(50), Box::default());
    for n in 0..5 {
        let ticket = taken(&mut before, 100 + n, n);
        before.answered(ticket);
    }
    let flush = Request { op: Op::Flush, ..read(0) };
    assert_eq!(before.taken(Nanos(200), &flush), None);
    before.sent(Nanos(300));
    let mut after = Observer::new(1 << 10, None);
    after.go_on(before.observed());
    assert_eq!((after.recorder.next(), after.others(), after.unanswered()), (5, 1, 0));
    // Also where its turn began before the answers of the other one were sent.
    let ticket = taken(&mut after, 250, 5);
    after.answered(ticket);
    after.sent(Nanos(400));
    assert_eq!(latencies(&after), [(300, Some(100))]);
    let counting = after.counting().expect("they are still counted");
    assert_eq!(counting.since, Nanos(50));
    let of_both = &counting.characteristics;
    assert_eq!((of_both.lengths.all.count(), of_both.latencies.all.count()), (6, 6));
    assert!(after.stop_counting().is_some());
    taken(&mut after, 500, 6);
    assert!(after.counting().is_none() && before.counting().is_some());
    after.check_invariants();
}
