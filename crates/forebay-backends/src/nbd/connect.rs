//! Connecting and the handshake, blocking, with a time limit over all of it.
//!
//! ```text
//! connect ─► greeting ─► STRUCTURED_REPLY ─► SET_META_CONTEXT base:allocation ─► GO
//!                                                           GO not known: EXPORT_NAME
//! ```
//! Runs on the user's thread for the first session ([`open_session`]) and on a helper thread for
//! every later one ([`Connector`]), never on a shard.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use forebay_core::geometry::ByteRange;
use forebay_io::reactor::Waker;
use forebay_nbd::flags::{ClientFlags, HandshakeFlags, TransmissionFlags};
use forebay_nbd::greeting::Greeting;
use forebay_nbd::info::{BlockSizes, Info, InfoKind};
use forebay_nbd::option::{self, InfoRequest, MetaContextRequest, OptionKind};
use forebay_nbd::option_reply::{
    ExportNameReply, OptionReply, OptionReplyHeader, decode_meta_context,
};
use forebay_nbd::{Invalid, PAYLOAD_MAX};

use super::dial::{self, Place, Stream};
use super::export::Export;
use super::samples::{Samples, Unknown};
use crate::backend::HostLoses;
use crate::error::{Error, ErrorKind};
use crate::uri::{NbdAddress, NbdUri};
use rustix::net::Shutdown;

/// Time for connecting and the handshake, at most.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// The same for each connection beside the first, unless that took long.
const MORE_MAX: Duration = Duration::from_secs(1);
/// Replies to one option, at most; a server that sends more is not one.
const REPLIES_MAX: usize = 64;
const ALLOCATION: &str = "base:allocation";

/// Connections to one export, ready for requests.
#[derive(Debug)]
pub(super) struct NewSession {
    pub(super) export: Export,
    pub(super) sockets: Vec<OwnedFd>,
    /// Nothing but the server can end the connections: there is no network in between.
    pub(super) is_local: bool,
}

impl NewSession {
    /// Whom a TCP connection leads to.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        if self.is_local { None } else { dial::peer(self.sockets.first()?) }
    }

    /// What a crash of this host takes from the server: nothing unless it runs here.
    pub(super) fn host_loses(&self) -> HostLoses {
        let is_here = self.is_local || self.sockets.first().is_some_and(dial::is_to_this_host);
        if is_here { HostLoses::Anything } else { HostLoses::Nothing }
    }

    /// Ends its connections: nobody can follow any more what comes on them.
    pub(super) fn shut_down(&self) {
        for socket in &self.sockets {
            // One that has ended is as good.
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
    }
}

/// Connects, with several connections if the server promises that a flush covers all of them.
pub(super) fn open_session(uri: &NbdUri) -> Result<NewSession, Error> {
    open_session_at(Place::of(&uri.address).map_err(|error| connect_error(uri, error))?, uri)
}

/// The same with its server looked up.
pub(super) fn open_session_at(mut place: Place, uri: &NbdUri) -> Result<NewSession, Error> {
    let began = Instant::now();
    let deadline = began + HANDSHAKE_MAX.min(Duration::from_nanos(uri.timeout.0));
    let (export, socket) = open_connection(&place, uri, deadline)?;
    place.narrow(&socket);
    let more_max = MORE_MAX.max(4 * began.elapsed());
    let mut sockets = vec![socket];
    if export.flags.has(TransmissionFlags::CAN_MULTI_CONN) {
        // A server may limit its connections, and let others wait without a word: what there is will do.
        for _ in 1..uri.connections {
            let deadline = deadline.min(Instant::now() + more_max);
            match open_connection(&place, uri, deadline) {
                Ok((other, socket)) if other == export => sockets.push(socket),
                Ok(_) | Err(_) => break,
            }
        }
    }
    let is_local = matches!(uri.address, NbdAddress::Unix(_));
    Ok(NewSession { export, sockets, is_local })
}

/// A helper thread that connects once and then ends.
#[derive(Debug)]
pub(super) struct Connector {
    result: Receiver<Result<NewSession, Unconnected>>,
}

/// There is no session.
#[derive(Debug)]
pub(super) struct Unconnected {
    pub(super) why: Error,
    /// The server does not answer for this page, and does for others.
    pub(super) hung: Option<ByteRange>,
}

impl From<Error> for Unconnected {
    fn from(why: Error) -> Unconnected {
        Unconnected { why, hung: None }
    }
}

impl Connector {
    /// Starts the thread; `waker` wakes the shard when there is a result. The export is to have these `samples`.
    pub(super) fn start(
        uri: &NbdUri,
        samples: Samples,
        attempt: u32,
        waker: Waker,
    ) -> io::Result<Connector> {
        let (answer, result) = channel();
        let uri = uri.clone();
        forebay_io::thread::start("nbd connect", move || {
            let new = open_session(&uri).map_err(Unconnected::from);
            let known = new.and_then(|new| known(&uri, (&samples, attempt), new));
            // Nobody waits any more: the sockets close again.
            let _ = answer.send(known);
            waker.wake();
        })?;
        Ok(Connector { result })
    }

    /// The result, when there is one.
    pub(super) fn result(&self) -> Option<Result<NewSession, Unconnected>> {
        match self.result.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                let what = "the connecting thread ended without a result";
                Some(Err(Error::new(ErrorKind::Connect, what).into()))
            }
        }
    }
}

/// The session, if its export has these samples.
fn known(
    uri: &NbdUri,
    (samples, attempt): (&Samples, u32),
    new: NewSession,
) -> Result<NewSession, Unconnected> {
    let unreadable = |why: &dyn std::fmt::Display| {
        let what = "it cannot be read to see whether it is the same export as before";
        Error::new(ErrorKind::Protocol, format!("{}: {what}: {why}", at(uri)))
    };
    match samples.check(&new, Duration::from_nanos(uri.timeout.0), attempt) {
        Ok(()) => Ok(new),
        Err(Unknown::Changed(page)) => {
            let what = format!(
                "the export came back with something else in its bytes {} to {}, where this disk has not written: if it is \
                 another image, serve the one that was there before; if somebody has changed this one, drop the disk's cache",
                page.start, page.end
            );
            Err(Error::new(ErrorKind::Unsuitable, what).into())
        }
        Err(Unknown::NotTheJournal) => {
            let what = "the export came back without the destage journal of this disk: serve the one that was there before. \
                Otherwise destaging goes on without it";
            Err(Error::new(ErrorKind::Unsuitable, what).into())
        }
        Err(Unknown::Hangs(page)) => {
            let why = format!("no answer for its bytes {} to {}", page.start, page.end);
            Err(Unconnected { why: unreadable(&why), hung: Some(page) })
        }
        Err(Unknown::Broken(why)) => Err(unreadable(&why).into()),
    }
}

fn open_connection(
    place: &Place,
    uri: &NbdUri,
    deadline: Instant,
) -> Result<(Export, OwnedFd), Error> {
    let stream = place.connect(deadline).map_err(|error| connect_error(uri, error))?;
    let at = at(uri);
    let mut handshake = Handshake { at, stream, deadline, out: Vec::new(), data: Vec::new() };
    let export = handshake.negotiate(&uri.export)?;
    export.check(&handshake.at)?;
    // From here on the reactor waits, and the session has its own time-outs.
    let socket = handshake.stream.into_socket().map_err(|error| connect_error(uri, error))?;
    Ok((export, socket))
}

/// The server in the words of an error.
fn at(uri: &NbdUri) -> String {
    format!("backend nbd {}", uri.address)
}

fn connect_error(uri: &NbdUri, error: io::Error) -> Error {
    let what = match error.kind() {
        io::ErrorKind::NotFound => {
            "nothing listens there (the socket does not exist): start the server first"
        }
        io::ErrorKind::ConnectionRefused => {
            "nothing listens there: start the server first, or check the address"
        }
        io::ErrorKind::PermissionDenied => "permission denied: run as a user that may connect",
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            "it does not answer: check address and network"
        }
        _ => "cannot connect: check the address",
    };
    Error::new(ErrorKind::Connect, format!("{}: {what}", at(uri))).because(error)
}

/// How an option was answered.
enum Answer {
    Ack,
    Refused(Option<OptionReply>, String),
}

struct Handshake {
    at: String,
    stream: Stream,
    deadline: Instant,
    out: Vec<u8>,
    /// Data of the last reply.
    data: Vec<u8>,
}

impl Handshake {
    fn negotiate(&mut self, name: &str) -> Result<Export, Error> {
        let mut greeting = [0; Greeting::SIZE];
        self.read(&mut greeting)?;
        let greeting = Greeting::decode(&greeting).map_err(|error| self.invalid(error))?;
        let greeting = greeting.expect("all its bytes are there");
        if !greeting.flags.has(HandshakeFlags::FIXED_NEWSTYLE) {
            return Err(self.protocol("the server is too old (no fixed newstyle handshake)"));
        }
        let no_zeroes = greeting.flags.has(HandshakeFlags::NO_ZEROES);
        let flags = ClientFlags::FIXED_NEWSTYLE.with_if(no_zeroes, ClientFlags::NO_ZEROES);
        self.out.extend_from_slice(&flags.to_bytes());

        option::encode_bare(OptionKind::StructuredReply, &mut self.out);
        let structured =
            matches!(self.ask(OptionKind::StructuredReply, |_, _| Ok(()))?, Answer::Ack);
        let mut allocation = None;
        if structured {
            allocation = self.select_allocation(name)?;
        }
        self.go(name, no_zeroes, structured, allocation)
    }

    fn select_allocation(&mut self, name: &str) -> Result<Option<u32>, Error> {
        let kind = OptionKind::SetMetaContext;
        MetaContextRequest::encode(kind, name, &[ALLOCATION], &mut self.out);
        let mut allocation = None;
        let answer = self.ask(kind, |reply, data| {
            if reply == OptionReply::MetaContext {
                let (id, name) = decode_meta_context(data)?;
                allocation = allocation.or((name == ALLOCATION).then_some(id));
            }
            Ok(())
        })?;
        Ok(allocation.filter(|_| matches!(answer, Answer::Ack)))
    }

    fn go(
        &mut self,
        name: &str,
        no_zeroes: bool,
        structured: bool,
        allocation: Option<u32>,
    ) -> Result<Export, Error> {
        let mut described = None;
        let mut blocks = None;
        InfoRequest::encode(OptionKind::Go, name, &[InfoKind::BlockSize], &mut self.out);
        let answer = self.ask(OptionKind::Go, |reply, data| {
            if reply == OptionReply::Info {
                match Info::decode(data)? {
                    Info::Export { size, flags } => described = Some((size, flags)),
                    Info::BlockSize(sizes) => blocks = Some(sizes),
                    Info::Name(_) | Info::Description(_) | Info::Other(_) => {}
                }
            }
            Ok(())
        })?;
        let (size, flags) = match (answer, described) {
            (Answer::Ack, Some(described)) => described,
            (Answer::Ack, None) => {
                return Err(self.protocol("the server did not say how large the export is"));
            }
            (Answer::Refused(Some(OptionReply::ErrUnsupported), _), _) => {
                self.go_by_name(name, no_zeroes)?
            }
            (Answer::Refused(reply, message), _) => return Err(self.refused(name, reply, &message)),
        };
        let BlockSizes { minimum, maximum, .. } =
            blocks.unwrap_or(BlockSizes { minimum: 512, preferred: 4096, maximum: PAYLOAD_MAX });
        Ok(Export {
            size,
            flags,
            block_min: minimum.max(512),
            block_max: maximum.min(PAYLOAD_MAX),
            structured,
            allocation,
        })
    }

    /// The older way into the transmission phase; the server closes when it does not like the name.
    fn go_by_name(
        &mut self,
        name: &str,
        no_zeroes: bool,
    ) -> Result<(u64, TransmissionFlags), Error> {
        option::encode_export_name(name, &mut self.out);
        self.send()?;
        let mut reply = [0; ExportNameReply::SIZE];
        self.read(&mut reply)?;
        if !no_zeroes {
            self.read(&mut [0; ExportNameReply::ZEROES])?;
        }
        let reply = ExportNameReply::decode(&reply).expect("all its bytes are there");
        Ok((reply.size, reply.flags))
    }

    /// Sends what is queued and reads the replies to `option` up to the last one.
    fn ask(
        &mut self,
        option: OptionKind,
        mut on_reply: impl FnMut(OptionReply, &[u8]) -> Result<(), Invalid>,
    ) -> Result<Answer, Error> {
        self.send()?;
        for _ in 0..REPLIES_MAX {
            let mut header = [0; OptionReplyHeader::SIZE];
            self.read(&mut header)?;
            let header = OptionReplyHeader::decode(&header).map_err(|error| self.invalid(error))?;
            let header = header.expect("all its bytes are there");
            if header.option != option.wire() {
                return Err(self.protocol("the server answered an option that was not asked for"));
            }
            // At most `OPTION_DATA_MAX`, says the decoder.
            let mut data = std::mem::take(&mut self.data);
            data.resize(header.len as usize, 0);
            self.read(&mut data)?;
            let reply = OptionReply::from_wire(header.reply);
            if header.is_error() {
                let message = String::from_utf8_lossy(&data).into_owned();
                return Ok(Answer::Refused(reply, message));
            }
            match reply {
                Some(OptionReply::Ack) => return Ok(Answer::Ack),
                Some(reply) => on_reply(reply, &data).map_err(|error| self.invalid(error))?,
                None => {}
            }
            self.data = data;
        }
        Err(self.protocol("the server does not come to an end in the handshake"))
    }

    fn refused(&self, name: &str, reply: Option<OptionReply>, message: &str) -> Error {
        let (kind, what) = match reply {
            Some(OptionReply::ErrUnknown) => (
                ErrorKind::NotFound,
                format!("there is no export `{name}`: ask `nbdinfo --list` for names"),
            ),
            Some(OptionReply::ErrTlsRequired) => (
                ErrorKind::Unsuitable,
                "the server wants TLS, which is not supported: serve it over a unix socket"
                    .to_owned(),
            ),
            Some(OptionReply::ErrPolicy) => {
                (ErrorKind::Denied, "the server does not allow it".to_owned())
            }
            _ => (ErrorKind::Protocol, format!("the server refuses export `{name}`")),
        };
        let message: String = message.chars().filter(|c| !c.is_control()).take(200).collect();
        let said = if message.is_empty() { message } else { format!(" (it says: {message})") };
        Error::new(kind, format!("{}: {what}{said}", self.at))
    }

    fn protocol(&self, what: &str) -> Error {
        Error::new(ErrorKind::Protocol, format!("{}: {what}", self.at))
    }

    fn invalid(&self, error: Invalid) -> Error {
        self.protocol("what answers there does not speak NBD as it should").because(error)
    }

    fn failed(&self, error: io::Error) -> Error {
        let (kind, what) = match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => (
                ErrorKind::Connect,
                "the server accepts connections but does not go on with the handshake",
            ),
            _ => (ErrorKind::Protocol, "the server closed the connection during the handshake"),
        };
        Error::new(kind, format!("{}: {what}", self.at)).because(error)
    }

    fn send(&mut self) -> Result<(), Error> {
        let sent = self.stream.send(&self.out, self.deadline);
        self.out.clear();
        sent.map_err(|error| self.failed(error))
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.stream.receive(bytes, self.deadline).map_err(|error| self.failed(error))
    }
}
