//! How long an answer may take.

use super::*;

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_server_that_does_not_answer_in_time_loses_the_session() {
    survives(
        |connection, number, _| match (connection, number) {
            (0, 2) => Misdeed::Silence,
            _ => Misdeed::None,
        },
        "&connections=1&timeout=150ms",
    );
}

#[test]
fn a_flush_may_take_longer_than_a_write() {
    for (seconds, sessions) in [(9, ""), (10, "-")] {
        let server = Server::start(Script::bad(|connection, _, command| match command {
            Command::Flush if connection == 0 => Misdeed::LateAnswer,
            _ => Misdeed::None,
        }));
        let mut bench = server.bench("&connections=1&timeout=1s");
        bench.now = Some(Nanos(0));
        assert_eq!(bench.write(ByteRange::at(0, 4096), 1), IoStatus::Ok);
        let flush = bench.submit(IoOp::Flush, ByteRange::default());
        for second in 1..=seconds {
            assert_eq!(bench.sessions, "");
            bench.at_time(Nanos(second * SECOND));
        }
        assert_eq!(bench.sessions, sessions);
        server.shared.open_gate();
        if sessions.is_empty() {
            assert_eq!(bench.end_of(flush), IoStatus::Ok);
        }
    }
}

#[test]
fn a_read_behind_a_slow_flush_has_its_own_time() {
    let server = Server::start(Script::bad(|connection, number, command| {
        match (connection, number, command) {
            (0, _, Command::Flush) => Misdeed::LateAnswer,
            (0, _, Command::Read) => Misdeed::Silence,
            _ => Misdeed::None,
        }
    }));
    let mut bench = server.bench("&connections=1&timeout=1s");
    bench.now = Some(Nanos(0));
    let flush = bench.submit(IoOp::Flush, ByteRange::default());
    bench.at_time(Nanos(2 * SECOND));
    server.shared.open_gate();
    assert_eq!(bench.end_of(flush), IoStatus::Ok);
    bench.submit_read(ByteRange::at(0, 4096));
    bench.at_time(Nanos(3 * SECOND));
    assert_eq!(bench.sessions, "-", "after one second, and not after ten");
}

#[test]
fn what_is_sent_behind_a_slow_flush_waits_from_when_that_was_answered() {
    for (is_read_answered, sessions) in [(true, ""), (false, "-")] {
        let answered = |connection, _, command| match (connection, command) {
            (0, Command::Flush) => Misdeed::LateAnswer,
            _ => Misdeed::None,
        };
        let silent = |connection, _, command| match (connection, command) {
            (0, Command::Flush) => Misdeed::LateAnswer,
            (0, Command::Read) => Misdeed::Silence,
            _ => Misdeed::None,
        };
        let server = Server::start(Script::bad(if is_read_answered { answered } else { silent }));
        let mut bench = server.bench("&connections=1&timeout=1s");
        bench.now = Some(Nanos(0));
        let flush = bench.submit(IoOp::Flush, ByteRange::default());
        bench.now = Some(Nanos(SECOND));
        let (read, _) = bench.submit_read(ByteRange::at(0, 4096));
        for second in 1..=5 {
            bench.at_time(Nanos(second * SECOND));
            assert_eq!(bench.sessions, "", "in second {second}");
        }
        server.shared.open_gate();
        assert_eq!(bench.end_of(flush), IoStatus::Ok);
        if is_read_answered {
            assert_eq!(bench.end_of(read), IoStatus::Ok);
        }
        bench.at_time(Nanos(6 * SECOND - 1));
        assert_eq!(bench.sessions, "");
        bench.at_time(Nanos(6 * SECOND));
        assert_eq!(bench.sessions, sessions);
    }
}

#[test]
fn what_is_sent_behind_a_flush_does_not_lengthen_its_time() {
    let server = Server::start(Script::bad(|connection, _, command| match command {
        Command::Flush if connection == 0 => Misdeed::LateAnswer,
        _ => Misdeed::None,
    }));
    let mut bench = server.bench("&connections=1&timeout=1s");
    bench.now = Some(Nanos(0));
    bench.submit(IoOp::Flush, ByteRange::default());
    for second in 1..=10 {
        assert_eq!(bench.sessions, "");
        bench.submit_read(ByteRange::at(0, 4096));
        bench.submit(IoOp::Flush, ByteRange::default());
        bench.at_time(Nanos(second * SECOND));
    }
    assert_eq!(bench.sessions, "-");
}
