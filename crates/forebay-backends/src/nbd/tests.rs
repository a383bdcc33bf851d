//! Against a server that speaks as its script says, and one that others wrote.

mod addresses;
mod fence;
mod returns;
mod samples;
mod server;
mod time;

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use forebay_core::action::{Extent, ExtentState, IoOp};
use forebay_core::status::IoStatus;
use forebay_nbd::errno::Errno;
use forebay_nbd::flags::{CommandFlags, TransmissionFlags};
use forebay_nbd::info::BlockSizes;
use forebay_nbd::request::Command;

use super::*;
use crate::backend::HostLoses;
use crate::error::ErrorKind;
use crate::testing::Bench;
use crate::{OpenOptions, Uri, open};
use server::{Misdeed, Script, Server, all_flags};

#[test]
fn bytes_go_out_and_come_back_with_both_kinds_of_reply() {
    for structured in [true, false] {
        let server = Server::start(Script { structured, ..Script::good() });
        let mut bench = server.bench("");
        assert_eq!(bench.backend.properties().extents, structured);
        // The server is on this host.
        assert_eq!(bench.backend.properties().host_loses, HostLoses::Anything);
        let range = ByteRange::at(8192, 1 << 20);
        assert_eq!(bench.write(range, 7), IoStatus::Ok);
        assert_eq!(bench.flush(), IoStatus::Ok);
        assert_eq!(bench.read_fill(range), 7);
        assert_eq!(bench.read_fill(ByteRange::at(2 << 20, 65536)), 0);
        // A mixture: data below, a hole above.
        let bytes = bench.read(ByteRange::at((1 << 20) + 4096, 8192)).expect("it reads");
        assert!(bytes[..4096].iter().all(|byte| *byte == 7));
        assert!(bytes[4096..].iter().all(|byte| *byte == 0));
        assert_eq!(bench.sessions, "");
        // No request was longer than the server takes.
        let log = server.shared.log.lock().expect("no panic");
        assert!(log.iter().all(|(.., len)| *len <= 64 << 10));
    }
}

#[test]
fn many_requests_travel_together_over_several_connections() {
    let server = Server::start(Script::good());
    let mut bench = server.bench("&connections=3");
    assert_eq!(server.connections(), 3);
    let writes: Vec<_> =
        (0..200).map(|i| bench.submit_write(ByteRange::at(i * 4096, 4096), i as u8)).collect();
    for id in writes {
        assert_eq!(bench.end_of(id), IoStatus::Ok);
    }
    for i in 0..200 {
        assert_eq!(bench.read_fill(ByteRange::at(i * 4096, 4096)), i as u8);
    }
}

#[test]
fn a_write_larger_than_the_sockets_buffers_arrives_whole() {
    let blocks = Some(BlockSizes { minimum: 512, preferred: 4096, maximum: 32 << 20 });
    let server = Server::start(Script { blocks, ..Script::good() });
    let mut bench = server.bench("");
    let writes: Vec<_> =
        (0..4).map(|i| bench.submit_write(ByteRange::at(i << 20, 1 << 20), i as u8 + 1)).collect();
    for id in writes {
        assert_eq!(bench.end_of(id), IoStatus::Ok);
    }
    for i in 0..4 {
        assert_eq!(bench.read_fill(ByteRange::at(i << 20, 1 << 20)), i as u8 + 1);
    }
}

#[test]
fn one_connection_is_enough_where_the_server_promises_no_more() {
    let flags = all_flags().without(TransmissionFlags::CAN_MULTI_CONN);
    let server = Server::start(Script { flags, ..Script::good() });
    let mut bench = server.bench("");
    assert_eq!(bench.write(ByteRange::at(0, 4096), 1), IoStatus::Ok);
    assert_eq!(server.connections(), 1);
}

#[test]
fn commands_carry_the_flags_that_the_io_asks_for() {
    let server = Server::start(Script::good());
    let mut bench = server.bench("");
    let range = ByteRange::at(0, 8192);
    assert_eq!(bench.write(range, 9), IoStatus::Ok);
    let zeroes = |may_unmap, fast_only| IoOp::WriteZeroes { may_unmap, fast_only };
    assert_eq!(bench.run(zeroes(true, false), range), IoStatus::Ok);
    assert_eq!(bench.run(zeroes(false, true), range), IoStatus::Ok);
    assert_eq!(bench.run(IoOp::Discard, range), IoStatus::Ok);
    let log = server.shared.log.lock().expect("no panic");
    let both = CommandFlags::NO_HOLE.with(CommandFlags::FAST_ZERO);
    assert_eq!(log[1], (Command::WriteZeroes, CommandFlags::NONE, 8192));
    assert_eq!(log[2], (Command::WriteZeroes, both, 8192));
    assert_eq!(log[3], (Command::Trim, CommandFlags::NONE, 8192));
}

#[test]
fn what_the_server_does_not_offer_is_not_asked_of_it() {
    let flags = TransmissionFlags::HAS_FLAGS.with(TransmissionFlags::SEND_FUA);
    let server = Server::start(Script {
        flags,
        structured: false,
        knows_go: false,
        blocks: None,
        ..Script::good()
    });
    let mut bench = server.bench("");
    let range = ByteRange::at(0, 4096);
    assert_eq!(bench.run(IoOp::Discard, range), IoStatus::Unsupported);
    assert_eq!(bench.run(IoOp::Extents, range), IoStatus::Unsupported);
    assert_eq!(bench.write(range, 1), IoStatus::Ok);
    assert_eq!(bench.flush(), IoStatus::Ok);
    let log = server.shared.log.lock().expect("no panic");
    assert_eq!(*log, [(Command::Write, CommandFlags::FUA, 4096)]);
}

#[test]
fn a_server_without_flush_makes_every_change_durable_by_itself() {
    let flags = [
        TransmissionFlags::SEND_FUA,
        TransmissionFlags::SEND_TRIM,
        TransmissionFlags::SEND_WRITE_ZEROES,
    ];
    let flags = flags.into_iter().fold(TransmissionFlags::HAS_FLAGS, TransmissionFlags::with);
    let server = Server::start(Script { flags, ..Script::good() });
    let mut bench = server.bench("");
    let range = ByteRange::at(0, 4096);
    assert_eq!(bench.run(IoOp::Discard, range), IoStatus::Ok);
    let zeroes = IoOp::WriteZeroes { may_unmap: true, fast_only: false };
    assert_eq!(bench.run(zeroes, range), IoStatus::Ok);
    assert_eq!(bench.flush(), IoStatus::Ok);
    let log = server.shared.log.lock().expect("no panic");
    let sent =
        [(Command::Trim, CommandFlags::FUA, 4096), (Command::WriteZeroes, CommandFlags::FUA, 4096)];
    assert_eq!(*log, sent);
}

#[test]
fn extents_are_cut_to_what_was_asked_for() {
    let blocks = Some(BlockSizes { minimum: 4096, preferred: 4096, maximum: 1 << 20 });
    let server = Server::start(Script { blocks, ..Script::good() });
    let mut bench = server.bench("");
    // Grown to 0..16384: a hole up to 8192, zeroes from there.
    let extents = bench.extents_of(ByteRange::new(512, 12_800));
    assert_eq!(
        extents,
        [
            Extent { len: 8192 - 512, state: ExtentState::Hole },
            Extent { len: 12_800 - 8192, state: ExtentState::Zero },
        ]
    );
}

#[test]
fn an_error_of_the_server_is_that_requests_and_the_session_goes_on() {
    let server = Server::start(Script::bad(|_, number, _| match number {
        0 => Misdeed::Fail(Errno::NoSpc),
        1 => Misdeed::Fail(Errno::Io),
        _ => Misdeed::None,
    }));
    let mut bench = server.bench("&connections=1");
    assert_eq!(bench.write(ByteRange::at(0, 4096), 1), IoStatus::NoSpace);
    assert_eq!(bench.read(ByteRange::at(0, 4096)), Err(IoStatus::IoError));
    assert_eq!(bench.write(ByteRange::at(0, 4096), 1), IoStatus::Ok);
    assert_eq!(bench.sessions, "");
}

/// The server misbehaves on its first connection; everything submitted must end well on the next.
fn survives(misdeed: fn(u32, u32, Command) -> Misdeed, options: &str) -> (Server, Bench) {
    let server = Server::start(Script::bad(misdeed));
    server.shared.bytes.lock().expect("no panic")[..65536].fill(3);
    let mut bench = server.bench(options);
    let reads: Vec<_> = (0..8).map(|i| bench.submit_read(ByteRange::at(i * 8192, 8192))).collect();
    for (id, memory) in reads {
        assert_eq!(bench.end_of(id), IoStatus::Ok);
        assert!(bench.bytes(memory).iter().all(|byte| *byte == 3));
    }
    bench.until(|bench| bench.sessions == "-+");
    assert_eq!(bench.backend.trouble(), None);
    (server, bench)
}

#[test]
fn a_connection_that_closes_is_replaced_and_what_was_unanswered_is_sent_again() {
    survives(
        |connection, number, _| match (connection, number) {
            (0, 3) => Misdeed::Close,
            _ => Misdeed::None,
        },
        "&connections=1",
    );
}

#[test]
fn a_connection_that_closes_in_the_middle_of_data_is_replaced() {
    survives(
        |connection, number, _| match (connection, number) {
            (0, 2) => Misdeed::CloseHalfWay,
            _ => Misdeed::None,
        },
        "&connections=1",
    );
}

#[test]
fn the_loss_of_one_connection_of_several_is_the_loss_of_the_session() {
    let (server, _bench) = survives(
        |connection, number, _| match (connection, number) {
            (1, 0) => Misdeed::Close,
            _ => Misdeed::None,
        },
        "&connections=2",
    );
    assert_eq!(server.connections(), 4);
}

#[test]
fn a_read_that_ends_with_its_session_keeps_its_memory_until_the_kernel_is_done_with_it() {
    // Of a read in two parts, one fails and the other stops half way; then the first connection closes.
    let misdeed = |connection, number, _| match (connection, number) {
        (0, 0) => Misdeed::Fail(Errno::Io),
        (1, 0) => Misdeed::StopHalfWay,
        _ => Misdeed::Close,
    };
    let server = Server::start(Script { structured: false, ..Script::bad(misdeed) });
    let mut bench = server.bench("&connections=2");
    let (read, memory) = bench.submit_read(ByteRange::at(0, 128 << 10));
    bench.until(|bench| bench.bytes(memory)[64 << 10] == 0);
    // No new session, so that what is in flight belongs to the old one.
    std::fs::remove_file(&server.path).expect("it is there");
    bench.submit_read(ByteRange::at(1 << 20, 4096));
    assert_eq!(bench.end_of(read), IoStatus::IoError);
    assert_eq!(bench.reactor.in_flight(), 0, "it may still be received into");
    assert_eq!(bench.sessions, "-");
}

#[test]
fn where_it_is_told_to_io_that_waits_too_long_for_a_session_fails_until_there_is_one() {
    let misdeed = |connection, number, _| match (connection, number) {
        (0, 0) => Misdeed::Close,
        _ => Misdeed::None,
    };
    let server = Server::start(Script::bad(misdeed));
    let mut bench = server.bench("&connections=1");
    bench.backend.give_up_after(Nanos::from_millis(300));
    let (hidden, block) = (server.path.with_extension("hidden"), ByteRange::at(0, 4096));
    std::fs::rename(&server.path, &hidden).expect("it is there");
    for n in 0..2 {
        let began = std::time::Instant::now();
        let write = bench.submit_write(block, 7);
        assert_eq!(bench.end_of(write), IoStatus::IoError);
        // The second one does not wait: the session has been lost for long enough.
        assert_eq!(began.elapsed().as_millis() >= 300, n == 0);
    }
    assert_eq!(bench.sessions, "-");
    std::fs::rename(&hidden, &server.path).expect("it is there");
    bench.until(|bench| bench.sessions == "-+");
    assert_eq!(bench.write(block, 8), IoStatus::Ok);
    assert_eq!(bench.read_fill(block), 8);
}

#[test]
fn garbage_ends_the_session() {
    survives(
        |connection, number, _| match (connection, number) {
            (0, 1) => Misdeed::Garbage,
            _ => Misdeed::None,
        },
        "&connections=1",
    );
}

#[test]
fn an_answer_to_nothing_ends_the_session() {
    survives(
        |connection, number, _| match (connection, number) {
            (0, 1) => Misdeed::WrongCookie,
            _ => Misdeed::None,
        },
        "&connections=1",
    );
}

#[test]
fn data_outside_of_what_was_asked_for_ends_the_session() {
    survives(
        |connection, number, _| match (connection, number) {
            (0, 4) => Misdeed::OutOfRange,
            _ => Misdeed::None,
        },
        "&connections=1",
    );
}

#[test]
fn an_answer_with_too_little_data_ends_the_session() {
    survives(
        |connection, number, _| match (connection, number) {
            (0, 4) => Misdeed::TooLittle,
            _ => Misdeed::None,
        },
        "&connections=1",
    );
}

#[test]
fn a_server_that_shuts_down_is_asked_again_after_it() {
    survives(
        |connection, number, _| match (connection, number) {
            (0, 2) => Misdeed::Fail(Errno::Shutdown),
            _ => Misdeed::None,
        },
        "&connections=1",
    );
}

#[test]
fn a_request_that_was_answered_is_never_sent_again() {
    let server = Server::start(Script::bad(|connection, _, command| match (connection, command) {
        (0, Command::Read) => Misdeed::Close,
        _ => Misdeed::None,
    }));
    let mut bench = server.bench("&connections=1");
    for i in 0..5 {
        assert_eq!(bench.write(ByteRange::at(i * 4096, 4096), 1), IoStatus::Ok);
    }
    assert_eq!(bench.read_fill(ByteRange::at(0, 4096)), 1);
    assert_eq!(bench.sessions, "-+");
    assert_eq!((server.count(Command::Write), server.count(Command::Read)), (5, 2));
}

#[test]
fn a_flush_fails_when_the_writes_it_covers_were_on_the_lost_session() {
    let server = Server::start(Script::bad(|connection, _, command| match (connection, command) {
        (0, Command::Flush) => Misdeed::CloseAfter,
        _ => Misdeed::None,
    }));
    let mut bench = server.bench("&connections=1");
    assert_eq!(bench.write(ByteRange::at(0, 4096), 1), IoStatus::Ok);
    assert_eq!(bench.flush(), IoStatus::IoError);
    assert_eq!(bench.sessions.as_bytes()[0], b'-', "it is told before");
    assert_eq!(bench.flush(), IoStatus::Ok);
}

#[test]
fn what_cannot_be_used_is_refused_when_it_is_opened() {
    let refused = |script: Script| {
        let server = Server::start(script);
        server.open("").map(drop).expect_err("it is refused")
    };
    let blocks = Some(BlockSizes { minimum: 65536, preferred: 65536, maximum: 1 << 20 });
    let error = refused(Script { blocks, ..Script::good() });
    assert!(error.to_string().contains("smallest block is 65536"), "{error}");
    let error = refused(Script { size: 1000, ..Script::good() });
    assert!(error.to_string().contains("multiple"), "{error}");
    let error = refused(Script { size: 0, ..Script::good() });
    assert!(error.to_string().contains("empty"), "{error}");
}

#[test]
fn an_address_where_nothing_listens_is_an_error_for_the_user() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("nobody");
    let uri: Uri = format!("nbd+unix:///?socket={}", path.display()).parse().expect("a URI");
    let error = open(&uri, OpenOptions::default()).map(drop).expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert!(error.to_string().contains("nothing listens"), "{error}");
    // A listener that is gone, on a port that was free.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    drop(listener);
    let uri: Uri = format!("nbd://127.0.0.1:{port}/x").parse().expect("a URI");
    let error = open(&uri, OpenOptions::default()).map(drop).expect_err("nobody is there");
    assert!(error.to_string().contains("nothing listens"), "{error}");
}

#[test]
fn a_server_that_is_silent_or_talks_garbage_at_the_start_is_an_error_for_the_user() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("odd");
    let listener = UnixListener::bind(&path).expect("a socket");
    let uri = |options: &str| -> Uri {
        format!("nbd+unix:///?socket={}{options}", path.display()).parse().expect("a URI")
    };
    let error = open(&uri("&timeout=50ms"), OpenOptions::default()).map(drop);
    let error = error.expect_err("it is silent").to_string();
    assert!(error.contains("does not go on"), "{error}");
    let garbage = std::thread::spawn(move || {
        let (_silent, _) = listener.accept().expect("the first client");
        let (mut stream, _) = listener.accept().expect("the second client");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("it listens");
    });
    let error = open(&uri(""), OpenOptions::default()).map(drop).expect_err("no NBD");
    assert_eq!(error.kind(), ErrorKind::Protocol);
    garbage.join().expect("no panic");
}

#[test]
fn leaving_says_goodbye() {
    let server = Server::start(Script::good());
    let mut bench = server.bench("&connections=2");
    assert_eq!(bench.write(ByteRange::at(0, 4096), 1), IoStatus::Ok);
    let mut events = Vec::new();
    let mut cx = Context { now: Nanos(0), reactor: &mut bench.reactor, events: &mut events };
    bench.backend.detach(&mut cx);
    bench.until(|_| server.count(Command::Disconnect) == 2);
}

/// Ends the server that a test has started.
struct Kill(PathBuf);

impl Drop for Kill {
    fn drop(&mut self) {
        if let Ok(pid) = std::fs::read_to_string(&self.0) {
            let _ = std::process::Command::new("kill").arg(pid.trim()).status();
        }
    }
}

/// Where nbdkit is installed, it is a server that we did not write.
#[test]
fn nbdkit_keeps_what_it_is_given() {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, pid) = (folder.path().join("nbd"), folder.path().join("pid"));
    // It goes to the background when it listens.
    let started = std::process::Command::new("nbdkit")
        .args(["--unix".as_ref(), socket.as_os_str(), "--pidfile".as_ref(), pid.as_os_str()])
        .args(["memory", "64M"])
        .status();
    let Ok(status) = started else { return };
    assert!(status.success());
    let _kill = Kill(pid);
    let mut bench = Bench::open(&format!("nbd+unix:///?socket={}", socket.display()));
    assert_eq!(bench.backend.properties().size, 64 << 20);
    let range = ByteRange::at(1 << 20, 2 << 20);
    assert_eq!(bench.write(range, 7), IoStatus::Ok);
    assert_eq!(bench.flush(), IoStatus::Ok);
    assert_eq!(bench.read_fill(range), 7);
    let zeroed = ByteRange::at(1 << 20, 1 << 20);
    let zeroes = IoOp::WriteZeroes { may_unmap: true, fast_only: false };
    assert_eq!(bench.run(zeroes, zeroed), IoStatus::Ok);
    assert_eq!(bench.read_fill(ByteRange::at(0, 1 << 20)), 0);
    assert_eq!(bench.read_fill(zeroed), 0);
    let extents = bench.extents_of(ByteRange::at(0, 4 << 20));
    assert_eq!(extents[0], Extent { len: 2 << 20, state: ExtentState::Hole });
    assert_eq!(extents[1], Extent { len: 1 << 20, state: ExtentState::Allocated });
    assert_eq!(bench.sessions, "");
}
