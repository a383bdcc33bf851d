//! Exports that come back with other data than they had.

use std::io::ErrorKind;

use forebay_core::action::IoOp;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Uuid;
use forebay_core::journal::{Owner, Shape, Superblock};
use forebay_core::status::IoStatus;
use forebay_nbd::errno::Errno;
use forebay_nbd::info::BlockSizes;
use forebay_nbd::request::Command;

use super::server::{Misdeed, SIZE, Script, Server};
use crate::testing::Bench;

/// A server of which samples were taken, and whose first connection closes at the first flush.
fn sampled(script: Script) -> (Server, Bench) {
    let misdeed = |connection, _, command| match (connection, command) {
        (0, Command::Flush) => Misdeed::Close,
        _ => Misdeed::None,
    };
    bench(Server::start(Script { misdeed, ..script }))
}

fn bench(server: Server) -> (Server, Bench) {
    let mut backend = server.open("&connections=1").expect("it connects");
    backend.take_samples().expect("it reads");
    (server, Bench::new(backend))
}

fn fill(server: &Server, byte: u8) {
    server.shared.bytes.lock().expect("no panic").fill(byte);
}

#[test]
fn an_export_that_comes_back_with_another_image_is_not_used() {
    for structured in [true, false] {
        let (server, mut bench) = sampled(Script { structured, ..Script::good() });
        let write = bench.submit_write(ByteRange::at(0, 4096), 7);
        assert_eq!(bench.end_of(write), IoStatus::Ok, "on the first session");
        fill(&server, 9);
        let flush = bench.submit(IoOp::Flush, ByteRange::default());
        let late = bench.submit_write(ByteRange::at(8192, 4096), 7);
        let is_refused = |bench: &mut Bench| {
            bench
                .backend
                .trouble()
                .is_some_and(|why| why.contains("with something else in its bytes"))
        };
        bench.until(is_refused);
        assert!(!bench.ended.contains_key(&late), "it waits");
        assert!(server.shared.bytes.lock().expect("no panic").iter().all(|byte| *byte == 9));
        fill(&server, 0);
        assert_eq!(bench.end_of(late), IoStatus::Ok);
        assert_eq!(bench.end_of(flush), IoStatus::IoError, "a write may be lost");
        assert_eq!(bench.backend.trouble(), None);
    }
}

#[test]
fn an_export_that_lost_what_the_disk_has_written_comes_back() {
    let (server, mut bench) = sampled(Script::good());
    for start in (0..SIZE).step_by(1 << 20) {
        assert_eq!(bench.write(ByteRange::at(start, 1 << 20), 7), IoStatus::Ok);
    }
    fill(&server, 0);
    assert_eq!(bench.flush(), IoStatus::IoError);
    assert_eq!((bench.read_fill(ByteRange::at(0, 1 << 20)), bench.sessions.as_str()), (0, "-+"));
}

#[test]
fn an_export_that_comes_back_as_it_was_is_read_once_more_and_used() {
    for structured in [true, false] {
        let (server, mut bench) = sampled(Script { structured, ..Script::good() });
        let reads = server.count(Command::Read);
        assert!((5..=37).contains(&reads), "{reads}");
        assert_eq!(bench.flush(), IoStatus::Ok);
        // One page more tells whether it reads at all.
        assert_eq!((server.count(Command::Read), bench.sessions.as_str()), (2 * reads + 1, "-+"));
    }
}

#[test]
fn a_page_that_cannot_be_read_says_nothing() {
    for structured in [true, false] {
        let misdeed = |connection, number, command| match (connection, number, command) {
            (0 | 1, 0..5, Command::Read) => Misdeed::Fail(Errno::Io),
            (0, _, Command::Flush) => Misdeed::Close,
            _ => Misdeed::None,
        };
        let (server, mut bench) =
            bench(Server::start(Script { structured, misdeed, ..Script::good() }));
        assert_eq!((bench.flush(), bench.sessions.as_str()), (IoStatus::Ok, "-+"));
        assert!(server.count(Command::Read) > 20);
    }
}

#[test]
fn an_export_that_cannot_be_sampled_is_not_used_and_whatever_comes_next_is_not_judged_by_that() {
    for misdeed in [
        Misdeed::Garbage,
        Misdeed::WrongCookie,
        Misdeed::TooLittle,
        Misdeed::OutOfRange,
        Misdeed::CloseHalfWay,
    ] {
        let first = match misdeed {
            Misdeed::Garbage => |connection, _, _| of_first(connection, Misdeed::Garbage),
            Misdeed::WrongCookie => |connection, _, _| of_first(connection, Misdeed::WrongCookie),
            Misdeed::TooLittle => |connection, _, _| of_first(connection, Misdeed::TooLittle),
            Misdeed::OutOfRange => |connection, _, _| of_first(connection, Misdeed::OutOfRange),
            _ => |connection, _, _| of_first(connection, Misdeed::CloseHalfWay),
        };
        let server = Server::start(Script::bad(first));
        let mut backend = server.open("&connections=1").expect("it connects");
        let error = backend.take_samples().expect_err("another image may be served by now");
        assert_ne!(error.kind(), ErrorKind::TimedOut, "{misdeed:?}");
    }
}

#[test]
fn a_server_that_is_slow_at_the_opening_is_used_and_known_by_what_it_has_answered() {
    for answered in [0, 10] {
        let first = match answered {
            0 => |connection, _, command| silent(connection, 0, command),
            _ => |connection, number, command| silent(connection, u32::from(number < 10), command),
        };
        let server = Server::start(Script::bad(first));
        let mut backend = server.open("&connections=1").expect("it connects");
        let error = backend.take_samples().expect_err("only a part is known");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        fill(&server, 3);
        let mut bench = Bench::new(backend);
        let read = bench.submit_read(ByteRange::at(0, 4096));
        let is_refused = |bench: &mut Bench| bench.backend.trouble().is_some();
        match answered {
            0 => assert_eq!(bench.end_of(read.0), IoStatus::Ok),
            _ => bench.until(is_refused),
        }
    }
}

fn silent(connection: u32, answers: u32, command: Command) -> Misdeed {
    match (connection, answers, command) {
        (0, 0, Command::Read) => Misdeed::Silence,
        _ => Misdeed::None,
    }
}

#[test]
fn an_export_that_somebody_has_changed_with_consent_comes_back_as_it_is() {
    let (server, mut bench) = sampled(Script::good());
    fill(&server, 9);
    bench.backend.forget_samples();
    assert_eq!((bench.flush(), bench.sessions.as_str()), (IoStatus::Ok, "-+"));
    assert_eq!(bench.read_fill(ByteRange::at(0, 4096)), 9);
}

fn of_first(connection: u32, misdeed: Misdeed) -> Misdeed {
    if connection == 0 { misdeed } else { Misdeed::None }
}

/// A server whose second connection, and all after it, do this to the read of that number; all others are good.
fn comes_back_with(script: Script) -> (Server, Bench) {
    let server = Server::start(script);
    let mut backend = server.open("&connections=1&timeout=300ms").expect("it connects");
    backend.take_samples().expect("it reads");
    (server, Bench::new(backend))
}

#[test]
fn a_page_that_a_server_does_not_answer_in_time_is_not_asked_for_again() {
    // The first connection takes samples, the second leaves one without an answer.
    let misdeed = |connection, number, command| match (connection, number, command) {
        (0, _, Command::Flush) => Misdeed::Close,
        (1, 3, Command::Read) => Misdeed::Silence,
        _ => Misdeed::None,
    };
    let (server, mut bench) = comes_back_with(Script::bad(misdeed));
    let taken = server.count(Command::Read);
    assert_eq!(bench.flush(), IoStatus::Ok);
    assert_eq!(server.connections(), 3);
    let last = server.count(Command::Read) - taken;
    assert!((taken..2 * taken + 2).contains(&last), "some, and then all but one");
}

#[test]
fn a_server_that_answers_no_page_is_not_used_until_it_does() {
    let misdeed = |connection, _, command| match (connection, command) {
        (0, Command::Flush) => Misdeed::Close,
        (1..6, Command::Read) => Misdeed::Silence,
        _ => Misdeed::None,
    };
    let (server, mut bench) = comes_back_with(Script::bad(misdeed));
    let flush = bench.submit(IoOp::Flush, ByteRange::default());
    bench.until(|_| server.connections() >= 6);
    fill(&server, 9);
    let is_refused = |bench: &mut Bench| {
        bench.backend.trouble().is_some_and(|why| why.contains("with something else in its bytes"))
    };
    bench.until(is_refused);
    fill(&server, 0);
    assert_eq!(bench.end_of(flush), IoStatus::Ok);
}

#[test]
fn another_image_is_found_beside_a_page_that_hangs() {
    let misdeed = |connection, number, command| match (connection, number, command) {
        (0, _, Command::Flush) => Misdeed::Close,
        (_, 3, Command::Read) if connection > 0 => Misdeed::Silence,
        _ => Misdeed::None,
    };
    let (server, mut bench) = comes_back_with(Script::bad(misdeed));
    fill(&server, 9);
    bench.submit(IoOp::Flush, ByteRange::default());
    let is_refused = |bench: &mut Bench| {
        bench.backend.trouble().is_some_and(|why| why.contains("with something else in its bytes"))
    };
    bench.until(is_refused);
}

#[test]
fn a_page_that_comes_half_is_not_taken_for_another_one() {
    for structured in [true, false] {
        let misdeed = |connection, number, command| match (connection, number, command) {
            (0, _, Command::Flush) => Misdeed::Close,
            (1, 3, Command::Read) => Misdeed::CloseHalfWay,
            _ => Misdeed::None,
        };
        let server = Server::start(Script { structured, ..Script::bad(misdeed) });
        fill(&server, 7);
        let mut backend = server.open("&connections=1&timeout=300ms").expect("it connects");
        backend.take_samples().expect("it reads");
        let mut bench = Bench::new(backend);
        let flush = bench.submit(IoOp::Flush, ByteRange::default());
        bench.until(|bench| {
            let trouble = bench.backend.trouble().unwrap_or_default();
            assert!(!trouble.contains("something else"), "{trouble}");
            bench.ended.contains_key(&flush)
        });
        assert_eq!((bench.ended[&flush], server.connections()), (IoStatus::Ok, 3));
    }
}

#[test]
fn the_last_page_that_is_left_keeps_no_disk_lost_when_it_hangs_or_fails() {
    // The read before it is of any page.
    let hangs: fn(u32, u32, Command) -> Misdeed =
        |connection, number, command| match (connection, number, command) {
            (0, _, Command::Flush) => Misdeed::Close,
            (1.., 1, Command::Read) => Misdeed::Silence,
            _ => Misdeed::None,
        };
    let fails: fn(u32, u32, Command) -> Misdeed =
        |connection, number, command| match (connection, number, command) {
            (0, _, Command::Flush) => Misdeed::Close,
            (1.., 1, Command::Read) => Misdeed::Fail(Errno::Io),
            _ => Misdeed::None,
        };
    for misdeed in [hangs, fails] {
        let (_server, mut bench) = comes_back_with(Script::bad(misdeed));
        // All but the first page, which is one of them.
        for start in (0..SIZE).step_by(1 << 20) {
            let range = ByteRange::new(start.max(4096), start + (1 << 20));
            assert_eq!(bench.write(range, 7), IoStatus::Ok);
        }
        assert_eq!(bench.flush(), IoStatus::IoError, "writes may be lost");
        assert_eq!(bench.flush(), IoStatus::Ok);
    }
}

#[test]
fn an_export_that_comes_back_shorter_is_refused_for_that() {
    let (server, mut bench) = sampled(Script::good());
    let reads = server.count(Command::Read);
    server.shared.script.lock().expect("no panic").size = SIZE / 2;
    bench.submit(IoOp::Flush, ByteRange::default());
    bench.until(|bench| bench.backend.trouble().is_some_and(|why| why.contains("instead of")));
    assert_eq!(server.count(Command::Read), reads, "nothing behind its end is asked for");
}

#[test]
fn a_journal_that_comes_back_empty_and_shorter_is_refused_for_its_length() {
    let server = Server::start(Script::bad(|connection, _, command| match (connection, command) {
        (0, Command::Flush) => Misdeed::Close,
        _ => Misdeed::None,
    }));
    put(&server, OWNER, 2);
    let mut backend = server.open("&connections=1").expect("it connects");
    backend.expect_journal(OWNER).expect("it is");
    let mut bench = Bench::new(backend);
    fill(&server, 0);
    server.shared.script.lock().expect("no panic").size = SIZE / 2;
    bench.submit(IoOp::Flush, ByteRange::default());
    bench.until(|bench| bench.backend.trouble().is_some_and(|why| why.contains("trying again")));
    let trouble = bench.backend.trouble().expect("just now");
    assert!(trouble.contains("instead of"), "{trouble}");
}

#[test]
fn no_samples_are_taken_while_a_former_process_may_still_write() {
    let server = Server::start(Script::good());
    let mut backend = server.open("&fence=10s").expect("it connects");
    assert!(backend.hold_changes().is_some());
    backend.take_samples().expect("it reads");
    assert_eq!(server.count(Command::Read), 0);
}

const OWNER: Owner = Owner { disk: Uuid([1; 16]), nonce: 7 };
const OTHER: Owner = Owner { nonce: 8, ..OWNER };

/// The superblock of this owner is on the export, in one of its two copies.
fn put(server: &Server, owner: Owner, version: u64) {
    let mut page = [0; 4096];
    let superblock = Superblock::first(owner, Shape::for_log(64));
    Superblock { version, ..superblock }.encode(&mut page);
    let start = Superblock::place(version).start as usize;
    server.shared.bytes.lock().expect("no panic")[start..start + 4096].copy_from_slice(&page);
}

#[test]
fn a_destage_journal_that_was_written_all_over_is_known_by_its_superblock() {
    let misdeed = |connection, _, command| match (connection, command) {
        (0, Command::Flush) => Misdeed::Close,
        _ => Misdeed::None,
    };
    for (largest, holds, instead) in
        [(64 << 10, false, None), (64 << 10, true, Some(OTHER)), (1536, false, Some(OTHER))]
    {
        let blocks = Some(BlockSizes { minimum: 512, preferred: 512, maximum: largest });
        let server = Server::start(Script { misdeed, blocks, ..Script::good() });
        put(&server, OWNER, 2);
        let mut backend = server.open("&connections=1&fence=1ms").expect("it connects");
        if holds {
            backend.hold_changes();
        }
        backend.expect_journal(OWNER).expect("it is");
        if largest > 4096 {
            assert_eq!(server.count(Command::Read), 2, "the superblock alone");
        }
        let mut bench = Bench::new(backend);
        for start in (0..SIZE).step_by(1 << 20) {
            assert_eq!(bench.write(ByteRange::at(start, 1 << 20), 7), IoStatus::Ok);
        }
        fill(&server, 0);
        if let Some(other) = instead {
            put(&server, other, 3);
        }
        assert_eq!(bench.flush(), IoStatus::IoError);
        let late = bench.submit_write(ByteRange::at(8192, 4096), 7);
        bench.until(is_without_journal);
        assert!(!bench.ended.contains_key(&late), "it waits");
        put(&server, OWNER, 4);
        assert_eq!(bench.end_of(late), IoStatus::Ok);
    }
}

fn is_without_journal(bench: &mut Bench) -> bool {
    bench.backend.trouble().is_some_and(|why| why.contains("without the destage journal"))
}

#[test]
fn an_export_that_has_another_image_once_its_journal_was_made_is_no_journal() {
    let fails = |_, _, command| match command {
        Command::Read => Misdeed::Fail(Errno::Io),
        _ => Misdeed::None,
    };
    for (script, has, why) in [
        (Script::good(), None, "does not hold the destage journal"),
        (Script::good(), Some(OTHER), "does not hold the destage journal"),
        (Script::bad(fails), Some(OWNER), "fails to read"),
        (Script::bad(|_, _, _| Misdeed::Close), Some(OWNER), ""),
    ] {
        for holds in [false, true] {
            let server = Server::start(script.clone());
            if let Some(owner) = has {
                put(&server, owner, 2);
            }
            let mut backend = server.open("&connections=1&fence=1ms").expect("it connects");
            if holds {
                backend.hold_changes();
            }
            let error = backend.expect_journal(OWNER).expect_err("windows would go there");
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}

#[test]
fn a_journal_whose_server_is_slow_at_the_opening_is_used_once_it_has_its_superblock() {
    let server =
        Server::start(Script::bad(|connection, _, command| silent(connection, 0, command)));
    let mut backend = server.open("&connections=1").expect("it connects");
    backend.expect_journal(OWNER).expect("it may be");
    let mut bench = Bench::new(backend);
    let write = bench.submit_write(ByteRange::at(8192, 4096), 7);
    bench.until(is_without_journal);
    put(&server, OWNER, 2);
    assert_eq!(bench.end_of(write), IoStatus::Ok);
}
