use forebay_core::action::Span;
use forebay_core::ids::IoId;
use forebay_io::reactor::ArenaId;

use super::*;

fn io(id: u64, op: IoOp, range: ByteRange) -> BackendIo {
    BackendIo { id: IoId(id), range, op, arena: ArenaId(0) }
}

fn read(id: u64, len: u32) -> BackendIo {
    let memory = Span { offset: 0, len };
    io(id, IoOp::Read { memory }, ByteRange::at(0, len.into()))
}

fn write(id: u64, len: u32) -> BackendIo {
    let memory = Span { offset: 0, len };
    io(id, IoOp::Write { memory, durable: false }, ByteRange::at(0, len.into()))
}

fn flush(id: u64) -> BackendIo {
    io(id, IoOp::Flush, ByteRange::at(0, 0))
}

fn send(requests: &mut Requests) -> usize {
    let key = requests.next().expect("there is something to send");
    requests.sent(key, 0, Nanos(1));
    key
}

/// Sends the next one to a connection in a second; its part.
fn send_to(requests: &mut Requests, connection: usize, second: u64) -> usize {
    let key = requests.next().expect("there is something to send");
    requests.sent(key, connection, Nanos::from_millis(1000 * second));
    key
}

fn done(event: Option<BackendEvent>) -> Option<(u64, IoStatus)> {
    event.map(|event| match event {
        BackendEvent::Done { id, status } => (id.0, status),
        other => panic!("{other:?}"),
    })
}

#[test]
fn a_long_request_travels_in_parts_and_ends_with_the_last_one() {
    let mut requests = Requests::new(4096, 512);
    requests.submit(read(7, 10_240));
    let parts: Vec<_> = (0..3).map(|_| send(&mut requests)).collect();
    assert!(requests.next().is_none());
    let ranges: Vec<_> = parts.iter().map(|key| requests.part(*key).0.range).collect();
    assert_eq!(
        ranges,
        [ByteRange::new(0, 4096), ByteRange::new(4096, 8192), ByteRange::new(8192, 10_240)]
    );
    assert!(requests.end_part(parts[2], Nanos(2)).is_none());
    assert!(requests.end_part(parts[0], Nanos(2)).is_none());
    assert_eq!(done(requests.end_part(parts[1], Nanos(2))), Some((7, IoStatus::Ok)));
    assert_eq!(requests.in_flight(), 0);
}

#[test]
fn only_a_few_parts_are_on_their_way_at_a_time() {
    let mut requests = Requests::new(512, 512);
    requests.submit(io(1, IoOp::Discard, ByteRange::at(0, 512 * 40)));
    let mut sent: VecDeque<_> = (0..PARTS_MAX).map(|_| send(&mut requests)).collect();
    assert!(!requests.has_next());
    let mut ended = 0;
    let last = loop {
        let event = requests.end_part(sent.pop_front().expect("one is in flight"), Nanos(2));
        ended += 1;
        if event.is_some() {
            break event;
        }
        if requests.has_next() {
            sent.push_back(send(&mut requests));
        }
    };
    assert_eq!((ended, done(last)), (40, Some((1, IoStatus::Ok))));
}

#[test]
fn an_error_ends_a_request_when_its_parts_on_the_way_have_ended() {
    let mut requests = Requests::new(512, 512);
    requests.submit(read(1, 512 * 4));
    let (first, second) = (send(&mut requests), send(&mut requests));
    requests.part_mut(first).0.status = IoStatus::NoSpace;
    assert!(requests.end_part(first, Nanos(2)).is_none());
    assert!(!requests.has_next(), "the rest is not asked for any more");
    assert_eq!(done(requests.end_part(second, Nanos(2))), Some((1, IoStatus::NoSpace)));
}

#[test]
fn what_was_not_answered_is_sent_again_under_another_cookie_and_nothing_else() {
    let mut requests = Requests::new(512, 512);
    requests.submit(read(1, 512));
    requests.submit(read(2, 512));
    let (answered, lost) = (send(&mut requests), send(&mut requests));
    let old_cookie = requests.part(lost).0.cookie;
    assert_eq!(done(requests.end_part(answered, Nanos(2))), Some((1, IoStatus::Ok)));
    let mut events = Vec::new();
    requests.session_lost(&mut events, &mut Vec::new());
    assert!(events.is_empty());
    assert_eq!(requests.find(old_cookie, 0), None, "a late answer finds nothing");
    let again = send(&mut requests);
    assert_ne!(requests.part(again).0.cookie, old_cookie);
    assert!(!requests.has_next());
    assert_eq!(done(requests.end_part(again, Nanos(2))), Some((2, IoStatus::Ok)));
}

#[test]
fn a_flush_does_not_outlive_the_session_of_the_writes_it_covers() {
    let mut requests = Requests::new(4096, 512);
    requests.submit(write(1, 512));
    let key = send(&mut requests);
    requests.end_part(key, Nanos(2));
    requests.submit(flush(2));
    send(&mut requests);
    requests.submit(flush(3));
    let mut events = Vec::new();
    requests.session_lost(&mut events, &mut Vec::new());
    let ended: Vec<_> = events.drain(..).map(|event| done(Some(event)).expect("one")).collect();
    assert_eq!(ended, [(2, IoStatus::IoError), (3, IoStatus::IoError)]);
    assert!(!requests.has_next());
}

#[test]
fn a_flush_with_nothing_at_risk_is_sent_again() {
    let mut requests = Requests::new(4096, 512);
    requests.submit(write(1, 512));
    let key = send(&mut requests);
    requests.end_part(key, Nanos(2));
    requests.submit(flush(2));
    let key = send(&mut requests);
    assert_eq!(done(requests.end_part(key, Nanos(2))), Some((2, IoStatus::Ok)));
    requests.submit(flush(3));
    send(&mut requests);
    let mut events = Vec::new();
    requests.session_lost(&mut events, &mut Vec::new());
    assert!(events.is_empty());
    let key = send(&mut requests);
    assert_eq!(done(requests.end_part(key, Nanos(2))), Some((3, IoStatus::Ok)));
}

#[test]
fn a_write_of_which_a_part_was_answered_starts_from_its_beginning() {
    let mut requests = Requests::new(512, 512);
    requests.submit(write(1, 512 * 3));
    let (first, _second) = (send(&mut requests), send(&mut requests));
    assert!(requests.end_part(first, Nanos(2)).is_none());
    let mut events = Vec::new();
    requests.session_lost(&mut events, &mut Vec::new());
    assert!(events.is_empty());
    let parts: Vec<_> = (0..3).map(|_| send(&mut requests)).collect();
    let starts: Vec<_> = parts.iter().map(|key| requests.part(*key).0.range.start).collect();
    assert_eq!(starts, [0, 512, 1024]);
    let ended: Vec<_> =
        parts.into_iter().filter_map(|key| done(requests.end_part(key, Nanos(2)))).collect();
    assert_eq!(ended, [(1, IoStatus::Ok)]);
}

#[test]
fn a_read_of_which_a_part_was_answered_asks_for_the_rest_only() {
    let mut requests = Requests::new(512, 512);
    requests.submit(read(1, 512 * 2));
    let (first, second) = (send(&mut requests), send(&mut requests));
    assert!(requests.end_part(first, Nanos(2)).is_none());
    let rest = requests.part(second).0.range;
    requests.session_lost(&mut Vec::new(), &mut Vec::new());
    let again = send(&mut requests);
    assert_eq!(requests.part(again).0.range, rest);
    assert_eq!(done(requests.end_part(again, Nanos(2))), Some((1, IoStatus::Ok)));
}

#[test]
fn a_part_that_ends_every_session_is_given_up() {
    let mut requests = Requests::new(4096, 512);
    requests.submit(read(1, 512));
    let mut reads = Vec::new();
    for n in 0..REPLAYS_MAX + 1 {
        assert!(reads.is_empty());
        let part = send(&mut requests);
        // Whether the server is silent, or says that it does it no more.
        if n % 2 == 0 {
            requests.part_mut(part).0.is_refused = true;
            requests.put_back(part);
            assert_eq!(requests.in_flight(), 0);
        }
        requests.session_lost(&mut Vec::new(), &mut reads);
    }
    assert_eq!(done(reads.pop()), Some((1, IoStatus::IoError)));
}

#[test]
fn only_what_was_sent_later_on_its_connection_waits_for_something_slow() {
    let seconds = |count: u64| Nanos::from_millis(1000 * count);
    let mut requests = Requests::new(4096, 512);
    for id in 0..5 {
        requests.submit(if id % 2 == 0 { read(id, 512) } else { flush(id) });
    }
    // All in one turn; the first flush goes before the second one.
    let before = send_to(&mut requests, 0, 0);
    let first = send_to(&mut requests, 0, 0);
    let between = send_to(&mut requests, 0, 0);
    let second = send_to(&mut requests, 0, 0);
    let elsewhere = send_to(&mut requests, 1, 3);
    let due = |requests: &Requests| requests.due(seconds(30));
    assert_eq!(due(&requests), Some((seconds(30), seconds(30))));
    requests.end_part(before, seconds(20));
    assert_eq!(due(&requests), Some((seconds(33), seconds(30))));
    requests.end_part(elsewhere, seconds(20));
    assert_eq!(due(&requests), Some((seconds(300), seconds(300))), "nothing begins behind it");
    requests.end_part(first, seconds(200));
    assert_eq!(due(&requests), Some((seconds(230), seconds(30))));
    // It was not sent before this one.
    requests.end_part(second, seconds(220));
    assert_eq!(due(&requests), Some((seconds(230), seconds(30))));
    requests.end_part(between, seconds(221));
    assert_eq!(due(&requests), None);
}
