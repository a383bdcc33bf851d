//! An NBD server for tests that speaks as its script says, well or badly.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use forebay_nbd::errno::Errno;
use forebay_nbd::flags::{
    AllocationFlags, ChunkFlags, ClientFlags, CommandFlags, HandshakeFlags, TransmissionFlags,
};
use forebay_nbd::greeting::Greeting;
use forebay_nbd::info::{BlockSizes, Info};
use forebay_nbd::option::{OptionHeader, OptionKind};
use forebay_nbd::option_reply::{self, ExportNameReply, OptionReply};
use forebay_nbd::reply::{
    ChunkHeader, ChunkKind, ErrorChunk, OffsetData, OffsetHole, SimpleReply, StatusExtent,
};
use forebay_nbd::request::{Command, RequestHeader};
use tempfile::TempDir;

use crate::backend::Backend;
use crate::error::Error;
use crate::testing::Bench;
use crate::{OpenOptions, Uri, open};

pub(super) const SIZE: u64 = 4 << 20;

/// The offer of a server, and its misdeeds.
#[derive(Clone)]
pub(super) struct Script {
    pub(super) size: u64,
    pub(super) flags: TransmissionFlags,
    pub(super) blocks: Option<BlockSizes>,
    pub(super) structured: bool,
    pub(super) knows_go: bool,
    /// Called with the number of the connection and of the request on it, both from 0.
    pub(super) misdeed: fn(u32, u32, Command) -> Misdeed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Misdeed {
    None,
    /// Closes instead of answering.
    Close,
    /// Closes after the first half of a read's answer.
    CloseHalfWay,
    /// Stops after the first half of a read's answer.
    StopHalfWay,
    /// Does as asked, and closes instead of saying so.
    CloseAfter,
    Garbage,
    /// The same once the test says so.
    LateGarbage,
    WrongCookie,
    Silence,
    /// Reads nothing more before the test says so, and then to the end.
    Deaf,
    /// Does as asked once the test says so, and closes instead of saying so.
    Late,
    /// Does as asked once the test says so.
    LateAnswer,
    Fail(Errno),
    TooLittle,
    OutOfRange,
}

pub(super) fn all_flags() -> TransmissionFlags {
    TransmissionFlags::HAS_FLAGS
        .with(TransmissionFlags::SEND_FLUSH)
        .with(TransmissionFlags::SEND_TRIM)
        .with(TransmissionFlags::SEND_WRITE_ZEROES)
        .with(TransmissionFlags::SEND_FAST_ZERO)
        .with(TransmissionFlags::CAN_MULTI_CONN)
}

impl Script {
    pub(super) fn good() -> Script {
        Script {
            size: SIZE,
            flags: all_flags(),
            blocks: Some(BlockSizes { minimum: 1, preferred: 4096, maximum: 64 << 10 }),
            structured: true,
            knows_go: true,
            misdeed: |_, _, _| Misdeed::None,
        }
    }

    pub(super) fn bad(misdeed: fn(u32, u32, Command) -> Misdeed) -> Script {
        Script { misdeed, ..Script::good() }
    }
}

/// A server whose threads end with its clients.
pub(super) struct Server {
    _folder: TempDir,
    pub(super) path: PathBuf,
    tcp: Option<SocketAddr>,
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) script: Mutex<Script>,
    pub(super) bytes: Mutex<Vec<u8>>,
    pub(super) connections: AtomicU32,
    /// Late requests may be carried out.
    gate: Mutex<bool>,
    gate_moved: Condvar,
    late: AtomicU32,
    /// How the stream ended that was not read for long.
    pub(super) end: OnceLock<std::io::Result<usize>>,
    /// A write was carried out while a late one was not.
    pub(super) is_overtaken: AtomicBool,
    /// Commands in order of arrival, with their flags and lengths.
    pub(super) log: Mutex<Vec<(Command, CommandFlags, u32)>>,
}

impl Shared {
    fn new(script: Script) -> Shared {
        Shared {
            bytes: Mutex::new(vec![0; script.size as usize]),
            script: Mutex::new(script),
            connections: AtomicU32::new(0),
            gate: Mutex::new(false),
            gate_moved: Condvar::new(),
            late: AtomicU32::new(0),
            end: OnceLock::new(),
            is_overtaken: AtomicBool::new(false),
            log: Mutex::new(Vec::new()),
        }
    }

    /// Lets late requests be carried out.
    pub(super) fn open_gate(&self) {
        *self.gate.lock().expect("no panic") = true;
        self.gate_moved.notify_all();
    }

    fn wait_at_gate(&self) {
        let gate = self.gate.lock().expect("no panic");
        drop(self.gate_moved.wait_while(gate, |is_open| !*is_open).expect("no panic"));
    }
}

impl Server {
    pub(super) fn start(script: Script) -> Server {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join("nbd")).expect("a socket");
        Server::accept(script, folder, None, move || Ok(listener.accept()?.0))
    }

    /// Over TCP; connections end with a reset.
    pub(super) fn start_tcp(host: &str, script: Script) -> Server {
        Server::start_tcp_up_to(u32::MAX, host, script)
    }

    /// The same, and nobody listens any more after so many connections.
    pub(super) fn start_tcp_up_to(connections_max: u32, host: &str, script: Script) -> Server {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = TcpListener::bind((host, 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        let left = AtomicU32::new(connections_max);
        Server::accept(script, folder, Some(address), move || {
            if left.fetch_sub(1, Ordering::SeqCst) == 0 {
                return Err(std::io::ErrorKind::Other.into());
            }
            let stream = listener.accept()?.0;
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
            Ok(stream)
        })
    }

    fn accept<S: Read + Write + Send + 'static>(
        script: Script,
        folder: TempDir,
        tcp: Option<SocketAddr>,
        accept: impl Fn() -> std::io::Result<S> + Send + 'static,
    ) -> Server {
        let shared = Arc::new(Shared::new(script));
        let weak = Arc::downgrade(&shared);
        std::thread::spawn(move || {
            loop {
                let (Ok(stream), Some(shared)) = (accept(), weak.upgrade()) else { return };
                let number = shared.connections.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    // Clients vanish; that ends the thread, not the test.
                    let _ = serve(stream, number, &shared);
                });
            }
        });
        let path = folder.path().join("nbd");
        Server { _folder: folder, path, tcp, shared }
    }

    pub(super) fn uri(&self, options: &str) -> Uri {
        let path = self.path.display();
        match self.tcp {
            None => format!("nbd+unix:///disk?socket={path}{options}"),
            Some(address) => format!("nbd://{address}/disk?read-only=off{options}"),
        }
        .parse()
        .expect("a good URI")
    }

    pub(super) fn open(&self, options: &str) -> Result<Box<dyn Backend>, Error> {
        open(&self.uri(options), OpenOptions::default())
    }

    pub(super) fn bench(&self, options: &str) -> Bench {
        Bench::new(self.open(options).expect("it connects"))
    }

    /// Of a server over TCP.
    pub(super) fn address(&self) -> SocketAddr {
        self.tcp.expect("over TCP")
    }

    pub(super) fn connections(&self) -> u32 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    pub(super) fn count(&self, command: Command) -> usize {
        let log = self.shared.log.lock().expect("no panic");
        log.iter().filter(|(logged, ..)| *logged == command).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.open_gate();
        // Wakes the accepting thread, which then finds nobody to serve for.
        self.shared = Arc::new(Shared::new(Script { size: 0, ..Script::good() }));
        let _ = match self.tcp {
            None => UnixStream::connect(&self.path).map(drop),
            Some(address) => TcpStream::connect(address).map(drop),
        };
    }
}

fn serve(mut stream: impl Read + Write, connection: u32, shared: &Shared) -> std::io::Result<()> {
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
            Misdeed::None => {
                let is_late = shared.late.load(Ordering::SeqCst) > 0;
                shared
                    .is_overtaken
                    .fetch_or(is_late && command == Command::Write, Ordering::SeqCst);
                answer = carry_out(shared, structured, header, command, &payload);
            }
            misdeed @ (Misdeed::Late | Misdeed::LateAnswer) => {
                shared.late.fetch_add(1, Ordering::SeqCst);
                shared.wait_at_gate();
                answer = carry_out(shared, structured, header, command, &payload);
                shared.late.fetch_sub(1, Ordering::SeqCst);
                if misdeed == Misdeed::Late {
                    return Ok(());
                }
            }
            Misdeed::Deaf => {
                shared.wait_at_gate();
                let end = stream.read_to_end(&mut payload);
                let _ = shared.end.set(end);
                return Ok(());
            }
            Misdeed::Close => return Ok(()),
            Misdeed::CloseHalfWay => {
                answer = carry_out(shared, structured, header, command, &payload);
                answer.truncate(answer.len() / 2);
                stream.write_all(&answer)?;
                return Ok(());
            }
            Misdeed::StopHalfWay => {
                answer = carry_out(shared, structured, header, command, &payload);
                answer.truncate(answer.len() / 2);
            }
            Misdeed::CloseAfter => {
                carry_out(shared, structured, header, command, &payload);
                return Ok(());
            }
            misdeed @ (Misdeed::Garbage | Misdeed::LateGarbage) => {
                if misdeed == Misdeed::LateGarbage {
                    shared.wait_at_gate();
                }
                answer.extend_from_slice(&[0x5a; 64]);
            }
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
fn handshake(stream: &mut (impl Read + Write), script: &Script) -> std::io::Result<Option<bool>> {
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
