//! Exports that come back other than they were.

use forebay_core::action::IoOp;
use forebay_core::geometry::ByteRange;
use forebay_core::status::IoStatus;
use forebay_nbd::flags::{CommandFlags, TransmissionFlags};
use forebay_nbd::info::BlockSizes;
use forebay_nbd::request::Command;

use super::server::{Misdeed, SIZE, Script, Server, all_flags};
use crate::testing::Bench;

const BLOCK: ByteRange = ByteRange { start: 0, end: 4096 };

/// A server whose first connection closes at the first read. It is `changed` by then.
fn comes_back(first: Script, options: &str, changed: impl FnOnce(&mut Script)) -> (Server, Bench) {
    let misdeed = |connection, _, command| match (connection, command) {
        (0, Command::Read) => Misdeed::Close,
        _ => Misdeed::None,
    };
    let server = Server::start(Script { misdeed, ..first });
    let bench = server.bench(options);
    changed(&mut server.shared.script.lock().expect("no panic"));
    (server, bench)
}

#[test]
fn an_export_that_comes_back_with_another_size_is_refused() {
    let server = Server::start(Script::bad(|connection, _, _| match connection {
        0 => Misdeed::Close,
        _ => Misdeed::None,
    }));
    let mut bench = server.bench("&connections=1");
    server.shared.script.lock().expect("no panic").size = SIZE / 2;
    let (read, _) = bench.submit_read(ByteRange::at(0, 4096));
    bench.until(|bench| bench.backend.trouble().is_some_and(|why| why.contains("instead of")));
    assert!(!bench.ended.contains_key(&read), "it waits");
    server.shared.script.lock().expect("no panic").size = SIZE;
    assert_eq!(bench.end_of(read), IoStatus::Ok);
    assert_eq!(bench.backend.trouble(), None);
}

#[test]
fn an_export_that_comes_back_with_more_abilities_is_used_as_before() {
    let flags = [TransmissionFlags::SEND_FAST_ZERO, TransmissionFlags::CAN_MULTI_CONN];
    let flags = flags.into_iter().fold(all_flags(), TransmissionFlags::without);
    let first = Script { flags, structured: false, ..Script::good() };
    let (server, mut bench) = comes_back(first, "&connections=2", |script| {
        let blocks = Some(BlockSizes { minimum: 1, preferred: 4096, maximum: 1 << 20 });
        *script = Script { blocks, flags: all_flags(), structured: true, ..*script };
    });
    assert_eq!(bench.read_fill(BLOCK), 0);
    assert_eq!((bench.sessions.as_str(), server.connections()), ("-+", 3));
    let range = ByteRange::at(0, 256 << 10);
    assert_eq!(bench.write(range, 7), IoStatus::Ok);
    assert_eq!(bench.read_fill(range), 7);
    let fast = IoOp::WriteZeroes { may_unmap: true, fast_only: true };
    assert_eq!(bench.run(fast, BLOCK), IoStatus::Unsupported);
    assert_eq!(bench.run(IoOp::Extents, BLOCK), IoStatus::Unsupported);
    let log = server.shared.log.lock().expect("no panic");
    assert!(log.iter().all(|(.., len)| *len <= 64 << 10));
}

#[test]
fn an_export_that_comes_back_without_what_is_in_use_is_refused() {
    let blocks = |minimum, maximum| Some(BlockSizes { minimum, preferred: 4096, maximum });
    let lost = [
        TransmissionFlags::SEND_FLUSH,
        TransmissionFlags::SEND_TRIM,
        TransmissionFlags::SEND_WRITE_ZEROES,
        TransmissionFlags::SEND_FAST_ZERO,
    ];
    let mut others = vec![
        Script { flags: all_flags().with(TransmissionFlags::READ_ONLY), ..Script::good() },
        Script { structured: false, ..Script::good() },
        Script { blocks: blocks(1024, 64 << 10), ..Script::good() },
        Script { blocks: blocks(1, 32 << 10), ..Script::good() },
    ];
    let flags = lost.into_iter().map(|flag| all_flags().without(flag));
    others.extend(flags.map(|flags| Script { flags, ..Script::good() }));
    for other in others {
        let (server, mut bench) = comes_back(Script::good(), "&connections=1", |script| {
            *script = other;
        });
        let (read, _) = bench.submit_read(BLOCK);
        let is_refused = |bench: &mut Bench| {
            bench.backend.trouble().is_some_and(|why| why.contains("serve it as before"))
        };
        bench.until(is_refused);
        assert!(!bench.ended.contains_key(&read), "it waits");
        *server.shared.script.lock().expect("no panic") = Script::good();
        assert_eq!(bench.end_of(read), IoStatus::Ok);
        assert_eq!(bench.backend.trouble(), None);
    }
}

#[test]
fn a_server_that_comes_back_with_a_cache_is_told_to_flush_it() {
    let (flush, fua) = (TransmissionFlags::SEND_FLUSH, TransmissionFlags::SEND_FUA);
    let bare = all_flags().without(flush);
    let write = |flags| (Command::Write, flags, 4096);
    for (first, second, sent) in [
        (
            bare,
            bare.with(flush),
            vec![write(CommandFlags::NONE), (Command::Flush, CommandFlags::NONE, 0)],
        ),
        (bare, bare.with(fua), vec![write(CommandFlags::FUA)]),
        (
            bare.with(fua),
            bare.with(flush).with(fua),
            vec![write(CommandFlags::NONE), (Command::Flush, CommandFlags::NONE, 0)],
        ),
    ] {
        let first = Script { flags: first, ..Script::good() };
        let (server, mut bench) =
            comes_back(first, "&connections=1", |script| script.flags = second);
        assert_eq!(bench.read_fill(BLOCK), 0);
        server.shared.log.lock().expect("no panic").clear();
        assert_eq!((bench.write(BLOCK, 7), bench.flush()), (IoStatus::Ok, IoStatus::Ok));
        assert_eq!(*server.shared.log.lock().expect("no panic"), sent);
    }
}

#[test]
fn what_changes_nothing_needs_no_abilities_to_come_back() {
    let (_server, mut bench) =
        comes_back(Script::good(), "&connections=1&read-only=on", |script| {
            script.flags = TransmissionFlags::HAS_FLAGS.with(TransmissionFlags::READ_ONLY);
        });
    assert_eq!((bench.read_fill(BLOCK), bench.flush()), (0, IoStatus::Ok));
    assert_eq!(bench.sessions, "-+");
}
