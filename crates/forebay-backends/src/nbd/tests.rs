//! Against a server in the test that speaks as its script says, well or badly.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use forebay_core::action::{Extent, ExtentState};
use forebay_nbd::errno::Errno;
use forebay_nbd::flags::{AllocationFlags, ChunkFlags, ClientFlags, CommandFlags, HandshakeFlags};
use forebay_nbd::greeting::Greeting;
use forebay_nbd::info::{BlockSizes, Info};
use forebay_nbd::option::{OptionHeader, OptionKind};
use forebay_nbd::option_reply::{self, ExportNameReply, OptionReply};
use forebay_nbd::reply::{
    ChunkHeader, ChunkKind, ErrorChunk, OffsetData, OffsetHole, SimpleReply, StatusExtent,
};
use forebay_nbd::request::{Command, RequestHeader};
use tempfile::TempDir;

use super::*;
use crate::error::ErrorKind;
use crate::testing::Bench;
use crate::{OpenOptions, Uri, open};

const SIZE: u64 = 4 << 20;

/// What a server offers, and how it misbehaves.
#[derive(Clone)]
struct Script {
    size: u64,
    flags: TransmissionFlags,
    blocks: Option<BlockSizes>,
    structured: bool,
    knows_go: bool,
    /// Called with the number of the connection and of the request on it, both from 0.
    misdeed: fn(u32, u32, Command) -> Misdeed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Misdeed {
    None,
    /// Closes instead of answering.
    Close,
    /// Closes after the first half of a read's answer.
    CloseHalfWay,
    /// Does as asked, and closes instead of saying so.
    CloseAfter,
    Garbage,
    WrongCookie,
    Silence,
    Fail(Errno),
    TooLittle,
    OutOfRange,
}

fn all_flags() -> TransmissionFlags {
    TransmissionFlags::HAS_FLAGS
        .with(TransmissionFlags::SEND_FLUSH)
        .with(TransmissionFlags::SEND_TRIM)
        .with(TransmissionFlags::SEND_WRITE_ZEROES)
        .with(TransmissionFlags::SEND_FAST_ZERO)
        .with(TransmissionFlags::CAN_MULTI_CONN)
}

impl Script {
    fn good() -> Script {
        Script {
            size: SIZE,
            flags: all_flags(),
            blocks: Some(BlockSizes { minimum: 1, preferred: 4096, maximum: 64 << 10 }),
            structured: true,
            knows_go: true,
            misdeed: |_, _, _| Misdeed::None,
        }
    }

    fn bad(misdeed: fn(u32, u32, Command) -> Misdeed) -> Script {
        Script { misdeed, ..Script::good() }
    }
}

/// A server whose threads end with its clients.
struct Server {
    _folder: TempDir,
    path: PathBuf,
    shared: Arc<Shared>,
}

struct Shared {
    script: Mutex<Script>,
    bytes: Mutex<Vec<u8>>,
    connections: AtomicU32,
    /// Commands in order of arrival, with their flags and lengths.
    log: Mutex<Vec<(Command, CommandFlags, u32)>>,
}

impl Server {
    fn start(script: Script) -> Server {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("nbd");
        let listener = UnixListener::bind(&path).expect("a socket");
        let shared = Arc::new(Shared {
            bytes: Mutex::new(vec![0; script.size as usize]),
            script: Mutex::new(script),
            connections: AtomicU32::new(0),
            log: Mutex::new(Vec::new()),
        });
        let weak = Arc::downgrade(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), Some(shared)) = (stream, weak.upgrade()) else { return };
                let number = shared.connections.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    // Clients vanish; that ends the thread, not the test.
                    let _ = serve(stream, number, &shared);
                });
            }
        });
        Server { _folder: folder, path, shared }
    }

    fn uri(&self, options: &str) -> Uri {
        let path = self.path.display();
        format!("nbd+unix:///disk?socket={path}{options}").parse().expect("a good URI")
    }

    fn open(&self, options: &str) -> Result<Box<dyn Backend>, Error> {
        open(&self.uri(options), OpenOptions::default())
    }

    fn bench(&self, options: &str) -> Bench {
        Bench::new(self.open(options).expect("it connects"))
    }

    fn connections(&self) -> u32 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    fn count(&self, command: Command) -> usize {
        let log = self.shared.log.lock().expect("no panic");
        log.iter().filter(|(logged, ..)| *logged == command).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Wakes the accepting thread; `incoming` then finds nobody to serve for.
        let shared = std::mem::replace(
            &mut self.shared,
            Arc::new(Shared {
                script: Mutex::new(Script::good()),
                bytes: Mutex::new(Vec::new()),
                connections: AtomicU32::new(0),
                log: Mutex::new(Vec::new()),
            }),
        );
        drop(shared);
        let _ = UnixStream::connect(&self.path);
    }
}

fn serve(mut stream: UnixStream, connection: u32, shared: &Shared) -> std::io::Result<()> {
    let script = shared.script.lock().expect("no panic").clone();
    let Some(structured) = handshake(&mut stream, &script)? else { return Ok(()) };
    for number in 0.. {
        let mut header = [0; RequestHeader::SIZE];
        stream.read_exact(&mut header)?;
        let header = RequestHeader::decode(&header).expect("a good header").expect("all of it");
        let command = Command::from_wire(header.command).expect("a command");
        let mut payload = Vec::new();
        if command == Command::Write {
            payload.resize(header.len as usize, 0);
            stream.read_exact(&mut payload)?;
        }
        let log = (command, header.flags, header.len);
        shared.log.lock().expect("no panic").push(log);
        let mut answer = Vec::new();
        match (script.misdeed)(connection, number, command) {
            Misdeed::None => answer = carry_out(shared, structured, header, command, &payload),
            Misdeed::Close => return Ok(()),
            Misdeed::CloseHalfWay => {
                answer = carry_out(shared, structured, header, command, &payload);
                answer.truncate(answer.len() / 2);
                stream.write_all(&answer)?;
                return Ok(());
            }
            Misdeed::CloseAfter => {
                carry_out(shared, structured, header, command, &payload);
                return Ok(());
            }
            Misdeed::Garbage => answer.extend_from_slice(&[0x5a; 64]),
            Misdeed::WrongCookie => {
                let wrong = RequestHeader { cookie: header.cookie ^ 1 << 40, ..header };
                answer = carry_out(shared, structured, wrong, command, &payload);
            }
            Misdeed::Silence => {}
            Misdeed::Fail(errno) if structured => {
                let chunk = chunk(header, ChunkKind::Error, ErrorChunk::SIZE as u32, true);
                answer.extend_from_slice(&chunk);
                answer.extend_from_slice(&ErrorChunk::bare(errno));
            }
            Misdeed::Fail(errno) => answer.extend_from_slice(&simple(header, Err(errno))),
            Misdeed::TooLittle => {
                let less = RequestHeader { len: header.len / 2, ..header };
                answer = carry_out(shared, structured, less, command, &payload);
            }
            Misdeed::OutOfRange => {
                let chunk = chunk(header, ChunkKind::OffsetHole, OffsetHole::SIZE as u32, true);
                answer.extend_from_slice(&chunk);
                let offset = header.offset + 512;
                answer.extend_from_slice(&OffsetHole { offset, len: header.len }.to_bytes());
            }
        }
        stream.write_all(&answer)?;
    }
    Ok(())
}

/// Answers options up to the transmission phase; whether replies are structured.
fn handshake(stream: &mut UnixStream, script: &Script) -> std::io::Result<Option<bool>> {
    let flags = HandshakeFlags::FIXED_NEWSTYLE.with(HandshakeFlags::NO_ZEROES);
    stream.write_all(&Greeting { flags }.to_bytes())?;
    stream.read_exact(&mut [0; ClientFlags::SIZE])?;
    let mut structured = false;
    loop {
        let mut header = [0; OptionHeader::SIZE];
        stream.read_exact(&mut header)?;
        let header = OptionHeader::decode(&header).expect("a good option").expect("all of it");
        let mut data = vec![0; header.len as usize];
        stream.read_exact(&mut data)?;
        let (option, mut out) = (header.option, Vec::new());
        let mut is_over = false;
        match OptionKind::from_wire(option) {
            Some(OptionKind::StructuredReply) if script.structured => {
                structured = true;
                option_reply::encode_ack(option, &mut out);
            }
            Some(OptionKind::SetMetaContext) => {
                option_reply::encode_meta_context(option, 5, "base:allocation", &mut out);
                option_reply::encode_ack(option, &mut out);
            }
            Some(OptionKind::Go) if script.knows_go => {
                let Script { size, flags, .. } = *script;
                option_reply::encode_info(option, &Info::Export { size, flags }, &mut out);
                if let Some(blocks) = script.blocks {
                    option_reply::encode_info(option, &Info::BlockSize(blocks), &mut out);
                }
                option_reply::encode_ack(option, &mut out);
                is_over = true;
            }
            Some(OptionKind::ExportName) => {
                let Script { size, flags, .. } = *script;
                out.extend_from_slice(&ExportNameReply { size, flags }.to_bytes());
                is_over = true;
            }
            _ => option_reply::encode_error(option, OptionReply::ErrUnsupported, "no", &mut out),
        }
        stream.write_all(&out)?;
        if is_over {
            return Ok(Some(structured));
        }
    }
}

fn simple(header: RequestHeader, result: Result<(), Errno>) -> [u8; SimpleReply::SIZE] {
    SimpleReply { result, cookie: header.cookie }.to_bytes()
}

fn chunk(header: RequestHeader, kind: ChunkKind, len: u32, is_last: bool) -> [u8; 20] {
    let flags = ChunkFlags::NONE.with_if(is_last, ChunkFlags::DONE);
    ChunkHeader { flags, kind, cookie: header.cookie, len }.to_bytes()
}

/// Does what a request asks for; the bytes of its answer.
fn carry_out(
    shared: &Shared,
    structured: bool,
    header: RequestHeader,
    command: Command,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = shared.bytes.lock().expect("no panic");
    let range = header.offset as usize..header.offset as usize + header.len as usize;
    let mut answer = Vec::new();
    match command {
        Command::Read if structured => {
            // In two pieces, the second one first, and a hole where there are zeroes.
            let half = range.start + range.len() / 2;
            for (piece, is_last) in [(half..range.end, false), (range.start..half, true)] {
                let data = &bytes[piece.clone()];
                let (offset, len) = (piece.start as u64, piece.len() as u32);
                if data.iter().all(|byte| *byte == 0) {
                    let size = OffsetHole::SIZE as u32;
                    answer.extend_from_slice(&chunk(header, ChunkKind::OffsetHole, size, is_last));
                    answer.extend_from_slice(&OffsetHole { offset, len }.to_bytes());
                } else {
                    let size = len + OffsetData::SIZE as u32;
                    answer.extend_from_slice(&chunk(header, ChunkKind::OffsetData, size, is_last));
                    answer.extend_from_slice(&OffsetData { offset }.to_bytes());
                    answer.extend_from_slice(data);
                }
            }
            return answer;
        }
        Command::Read => {
            answer.extend_from_slice(&simple(header, Ok(())));
            answer.extend_from_slice(&bytes[range]);
            return answer;
        }
        Command::BlockStatus => {
            let states = [(range.len() as u32 / 2, 3), (1 << 30, AllocationFlags::ZERO.0)];
            answer.extend_from_slice(&chunk(header, ChunkKind::BlockStatus, 4 + 16, true));
            answer.extend_from_slice(&5u32.to_be_bytes());
            for (len, flags) in states {
                answer.extend_from_slice(&StatusExtent { len, flags }.to_bytes());
            }
            return answer;
        }
        Command::Write => bytes[range].copy_from_slice(payload),
        Command::Trim | Command::WriteZeroes => bytes[range].fill(0),
        Command::Flush | Command::Cache | Command::Disconnect => {}
    }
    match structured {
        true => answer.extend_from_slice(&chunk(header, ChunkKind::None, 0, true)),
        false => answer.extend_from_slice(&simple(header, Ok(()))),
    }
    answer
}

#[test]
fn bytes_go_out_and_come_back_with_both_kinds_of_reply() {
    for structured in [true, false] {
        let server = Server::start(Script { structured, ..Script::good() });
        let mut bench = server.bench("");
        assert_eq!(bench.backend.properties().extents, structured);
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
