//! Requests that a server received before a session was lost never overtake later ones.

use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_io::clock::now_nanos;
use forebay_nbd::errno::Errno;
use forebay_nbd::info::BlockSizes;
use forebay_nbd::request::Command;

use super::server::{Misdeed, Script, Server};
use crate::Blocking;
use crate::testing::Bench;
use forebay_core::action::IoOp;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use forebay_core::journal::Medium as _;
use forebay_core::status::IoStatus;

const RANGE: ByteRange = ByteRange { start: 8192, end: 12_288 };

/// Waits until the session is being settled, and sees that nothing else happens.
fn waits(server: &Server, bench: &mut Bench) {
    let is_waiting = |bench: &mut Bench| {
        bench.backend.trouble().is_some_and(|why| why.contains("waiting until the server"))
    };
    bench.until(is_waiting);
    let connections = server.connections();
    for _ in 0..10 {
        bench.turn(Duration::from_millis(10));
    }
    assert!(is_waiting(bench));
    assert_eq!((server.connections(), bench.sessions.as_str()), (connections, ""));
}

#[test]
fn a_late_write_of_a_dead_connection_never_overtakes_a_newer_one() {
    // The first connection is silent, or the second one closes while the first one is busy.
    for options in ["&connections=1&timeout=100ms&fence=10m", "&connections=2&fence=10m"] {
        let server = Server::start(Script::bad(|connection, _, command| match command {
            Command::Write if connection == 0 => Misdeed::Late,
            Command::Read if connection == 1 => Misdeed::Close,
            _ => Misdeed::None,
        }));
        let mut bench = server.bench(options);
        let old = bench.submit_write(RANGE, 1);
        if server.connections() == 2 {
            bench.submit_read(ByteRange::at(0, 4096));
        }
        waits(&server, &mut bench);
        assert!(!bench.ended.contains_key(&old));
        server.shared.open_gate();
        assert_eq!(bench.end_of(old), IoStatus::Ok);
        assert_eq!(bench.write(RANGE, 2), IoStatus::Ok);
        assert!(!server.shared.is_overtaken.load(Ordering::SeqCst));
        assert_eq!(server.shared.bytes.lock().expect("no panic")[8192..12_288], [2; 4096]);
        assert_eq!(server.count(Command::Write), 3, "late, again, and the newer one");
    }
}

#[test]
fn what_is_answered_while_a_session_is_settled_is_not_sent_again() {
    let server = Server::start(Script::bad(|connection, _, command| match command {
        Command::Write => Misdeed::LateAnswer,
        Command::Read if connection == 1 => Misdeed::Close,
        _ => Misdeed::None,
    }));
    let mut bench = server.bench("&connections=2&fence=10m");
    let write = bench.submit_write(RANGE, 1);
    let (read, _) = bench.submit_read(ByteRange::at(0, 4096));
    waits(&server, &mut bench);
    server.shared.open_gate();
    assert_eq!(bench.end_of(write), IoStatus::Ok);
    assert_eq!(bench.end_of(read), IoStatus::Ok);
    assert_eq!(bench.sessions, "-+");
    assert_eq!(server.count(Command::Write), 1);
}

#[test]
fn garbage_is_read_to_its_end_before_a_write_is_sent_again() {
    let server = Server::start(Script::bad(|connection, _, command| match command {
        Command::Write if connection == 0 => Misdeed::Silence,
        Command::Read if connection == 0 => Misdeed::Garbage,
        _ => Misdeed::None,
    }));
    let mut bench = server.bench("&connections=1&fence=10m");
    let write = bench.submit_write(RANGE, 1);
    bench.submit_read(ByteRange::at(0, 4096));
    assert_eq!(bench.end_of(write), IoStatus::Ok);
    assert_eq!(bench.sessions, "-+");
}

#[test]
fn garbage_is_read_to_its_end_also_when_it_comes_in_the_middle_of_a_request() {
    let misdeed = |connection, _, command| match command {
        Command::Write if connection == 0 => Misdeed::Silence,
        Command::Read if connection == 0 => Misdeed::LateGarbage,
        _ => Misdeed::None,
    };
    let blocks = Some(BlockSizes { minimum: 512, preferred: 4096, maximum: 32 << 20 });
    let server = Server::start(Script { blocks, ..Script::bad(misdeed) });
    let mut bench = server.bench("&connections=1&fence=10m");
    bench.submit_read(ByteRange::at(0, 4096));
    let write = bench.submit_write(ByteRange::at(0, 2 << 20), 1);
    // The server reads on behind its garbage: the socket takes no more of the write until then.
    bench.until(|bench| bench.reactor.in_flight() == 2);
    server.shared.open_gate();
    assert_eq!(bench.end_of(write), IoStatus::Ok);
    assert_eq!(bench.sessions, "-+");
}

/// A write whose first connection ends by `misdeed` ends well, and not before the fence.
fn takes_the_fence(server: &Server, options: &str) {
    let mut bench = server.bench(options);
    let start = now_nanos();
    assert_eq!(bench.write(RANGE, 1), IoStatus::Ok);
    assert!(now_nanos() - start >= 150_000_000);
    assert_eq!(bench.sessions, "-+");
}

#[test]
fn who_settles_waits_for_the_fence_once() {
    let server = Server::start(Script::good());
    for (is_unanswered, least) in [(true, 150_000_000), (false, 0)] {
        let start = now_nanos();
        let backend = server.open("&connections=1&fence=150ms").expect("it opens");
        let mut there = Blocking::new(backend, is_unanswered).expect("a reactor");
        there.settle();
        let took = now_nanos() - start;
        assert!(took >= least, "{took}");
        there.settle();
        there.write(8192, &[1; 4096]).expect("nothing is held any more");
    }
}

#[test]
fn a_server_that_never_lets_go_counts_as_dead_after_the_fence() {
    let server = Server::start(Script::bad(|connection, _, _| match connection {
        0 => Misdeed::Silence,
        _ => Misdeed::None,
    }));
    takes_the_fence(&server, "&connections=1&timeout=50ms&fence=100ms");
}

#[test]
fn a_reset_over_tcp_may_come_from_in_between_and_waits_for_the_fence() {
    let server = Server::start_tcp(
        "127.0.0.1",
        Script::bad(|connection, _, _| match connection {
            0 => Misdeed::Close,
            _ => Misdeed::None,
        }),
    );
    takes_the_fence(&server, "&connections=1&fence=150ms");
}

#[test]
fn an_end_of_stream_over_tcp_may_be_a_proxys_and_waits_for_the_fence() {
    let server = Server::start_tcp(
        "127.0.0.1",
        Script::bad(|connection, _, _| match connection {
            0 => Misdeed::CloseAfter,
            _ => Misdeed::None,
        }),
    );
    takes_the_fence(&server, "&connections=1&fence=150ms");
}

#[test]
fn an_end_of_stream_on_a_unix_socket_waits_for_nothing() {
    let server = Server::start(Script::bad(|connection, _, _| match connection {
        0 => Misdeed::CloseAfter,
        _ => Misdeed::None,
    }));
    let mut bench = server.bench("&connections=1&fence=10m");
    assert_eq!(bench.write(RANGE, 1), IoStatus::Ok);
    assert_eq!(bench.sessions, "-+");
}

#[test]
fn a_start_after_a_process_without_all_its_answers_changes_nothing_before_the_fence() {
    let server = Server::start(Script::good());
    let mut backend = server.open("&connections=1&fence=300ms&timeout=10m").unwrap();
    assert_eq!(backend.hold_changes(), Some(Nanos::from_millis(300)));
    let mut bench = Bench::new(backend);
    bench.now = Some(Nanos(1));
    let write = bench.submit_write(RANGE, 1);
    let discard = bench.submit(IoOp::Discard, ByteRange::at(65536, 4096));
    // What is read and flushed meanwhile waits for nothing.
    assert_eq!(bench.read_fill(ByteRange::at(0, 4096)), 0);
    assert_eq!(bench.flush(), IoStatus::Ok);
    bench.at_time(Nanos(299_999_999));
    assert!(bench.backend.holds_changes());
    assert_eq!(server.count(Command::Write) + server.count(Command::Trim), 0);
    assert_eq!(bench.backend.next_deadline(), Nanos(300_000_000));
    bench.at_time(Nanos(300_000_000));
    assert!(!bench.backend.holds_changes());
    assert_eq!((bench.end_of(write), bench.end_of(discard)), (IoStatus::Ok, IoStatus::Ok));
    assert_eq!((server.count(Command::Write), server.count(Command::Trim)), (1, 1));
    for options in ["&fence=0s", "&read-only=on"] {
        assert_eq!(server.open(options).unwrap().hold_changes(), None, "{options}");
    }
}

#[test]
fn what_a_killed_process_has_not_delivered_never_arrives() {
    let blocks = Some(BlockSizes { minimum: 512, preferred: 4096, maximum: 32 << 20 });
    let misdeed = |_, number, _| if number == 0 { Misdeed::Deaf } else { Misdeed::None };
    let server = Server::start_tcp("127.0.0.1", Script { blocks, ..Script::bad(misdeed) });
    let mut bench = server.bench("&connections=1");
    // More than the sockets take.
    for _ in 0..15 {
        bench.submit_write(ByteRange::at(0, 1 << 20), 1);
    }
    bench.until(|_| server.count(Command::Write) == 1);
    // What the socket still takes goes there.
    bench.turn(Duration::from_millis(10));
    // The kernel closes all that the process had.
    drop(bench);
    server.shared.open_gate();
    let end = server.shared.end.wait().as_ref().map_err(|error| error.kind());
    assert_eq!(end, Err(std::io::ErrorKind::ConnectionReset));
}

#[test]
fn a_server_that_shuts_down_is_heard_to_its_end() {
    let server = Server::start_tcp(
        "127.0.0.1",
        Script::bad(|connection, number, _| match (connection, number) {
            (0, 0) => Misdeed::Fail(Errno::Shutdown),
            _ => Misdeed::None,
        }),
    );
    let mut bench = server.bench("&connections=1&fence=10m");
    let writes: Vec<_> =
        (0..3).map(|i| bench.submit_write(ByteRange::at(i * 4096, 4096), 1)).collect();
    for id in writes {
        assert_eq!(bench.end_of(id), IoStatus::Ok);
    }
    // The others were answered: nothing is waited for, and nothing done twice.
    assert_eq!((server.connections(), server.count(Command::Write)), (2, 4));
    assert_eq!(bench.read_fill(ByteRange::at(0, 12_288)), 1);
}
