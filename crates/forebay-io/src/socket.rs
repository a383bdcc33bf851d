//! Listeners and connections, made with calls that block. They are for the control plane, and for
//! clients of other servers. A connected socket then goes to a reactor.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

/// Silence of a TCP connection after which the kernel asks the other end whether it is there, and time between the questions.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Questions without an answer after which it is not.
const PROBES: u32 = 3;

/// Listens on a unix socket at `path`. A socket that a killed process left there is replaced.
///
/// # Errors
/// `AddrInUse` when someone listens there, `AlreadyExists` when something else lies there, else the kernel's.
pub fn listen_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            remove_stale(path)?;
            UnixListener::bind(path)
        }
        result => result,
    }
    .map_err(|error| context("listen on", &path.display(), &error))
}

/// Listens on a TCP address.
///
/// # Errors
/// The kernel's.
pub fn listen_tcp(address: &str) -> io::Result<TcpListener> {
    TcpListener::bind(address).map_err(|error| context("listen on", &address, &error))
}

/// Connects to a unix socket, for at most `timeout`, which is not zero.
///
/// # Errors
/// `TimedOut`, or the kernel's.
pub fn connect_unix(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let connect = || -> io::Result<OwnedFd> {
        let socket = stream_socket(SocketFlags::CLOEXEC)?;
        // The kernel applies the time for sending also to the wait for room in the listener's queue.
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(timeout))?;
        match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
            Err(Errno::WOULDBLOCK) => return Err(io::ErrorKind::TimedOut.into()),
            result => result?,
        }
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, None)?;
        Ok(socket)
    };
    connect().map(UnixStream::from).map_err(|error| context("connect to", &path.display(), &error))
}

/// Connects to a TCP address, for at most `timeout` per address that the host has, without delay of small
/// segments. Resolving the host takes as long as the system's resolver takes.
///
/// # Errors
/// The last address's, `NotFound` when the host has none.
pub fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let shown = format!("{host} port {port}");
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let addresses = (host.trim_matches(['[', ']']), port).to_socket_addrs();
    for address in addresses.map_err(|error| context("find", &shown, &error))? {
        let connected = TcpStream::connect_timeout(&address, timeout);
        match connected.and_then(|stream| stream.set_nodelay(true).map(|()| stream)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(context("connect to", &shown, &last))
}

/// Sends small segments of a TCP connection at once. Nothing happens to a unix socket.
///
/// # Errors
/// The kernel's.
pub fn set_no_delay(socket: impl AsFd) -> io::Result<()> {
    match sockopt::set_tcp_nodelay(socket, true) {
        Err(Errno::OPNOTSUPP | Errno::NOPROTOOPT) => Ok(()),
        result => Ok(result?),
    }
}

/// Ends a TCP connection whose other end is gone without a word, though nothing is sent: after a minute, in which the kernel
/// asks it three times. Nothing happens to a unix socket.
///
/// # Errors
/// The kernel's.
pub fn keep_alive(socket: impl AsFd) -> io::Result<()> {
    match sockopt::set_tcp_keepidle(&socket, SILENCE_MAX) {
        Err(Errno::OPNOTSUPP | Errno::NOPROTOOPT) => return Ok(()),
        result => result?,
    }
    sockopt::set_tcp_keepintvl(&socket, SILENCE_MAX)?;
    sockopt::set_tcp_keepcnt(&socket, PROBES)?;
    Ok(sockopt::set_socket_keepalive(&socket, true)?)
}

/// Two connected unix sockets.
///
/// # Errors
/// The kernel's, when no descriptor is left.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (one, other) = UnixStream::pair()?;
    Ok((one.into(), other.into()))
}

/// Removes the socket at `path` if nobody listens on it.
fn remove_stale(path: &Path) -> io::Result<()> {
    let refused = |kind, why: &str| Err(io::Error::new(kind, format!("{} {why}", path.display())));
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        let why = "exists and is not a socket; choose another path or remove it";
        return refused(io::ErrorKind::AlreadyExists, why);
    }
    if is_in_use(path)? {
        let why = "is in use by another process; stop that one or choose another path";
        return refused(io::ErrorKind::AddrInUse, why);
    }
    match fs::remove_file(path) {
        // Gone in the meantime.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// True unless nobody listens at the unix socket `path`, as far as can be known.
///
/// # Errors
/// The kernel's: there is no socket to ask with, or the path is none of a socket.
pub fn is_in_use(path: &Path) -> io::Result<bool> {
    // Without blocking: a listener that is alive but too busy to accept says "would block".
    let socket = stream_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    let connected = rustix::net::connect(&socket, &SocketAddrUnix::new(path)?);
    Ok(!matches!(connected, Err(Errno::CONNREFUSED | Errno::NOENT)))
}

fn stream_socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// An error of the kernel, with what was tried and where in front.
fn context(action: &str, at: &dyn std::fmt::Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {action} {at}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn the_kernel_asks_a_silent_peer_whether_it_is_there() {
        let listener = listen_tcp("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = connect_tcp("127.0.0.1", port, SOON).unwrap();
        keep_alive(&stream).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        let times = (sockopt::tcp_keepidle(&stream), sockopt::tcp_keepintvl(&stream));
        assert_eq!(times, (Ok(SILENCE_MAX), Ok(SILENCE_MAX)));
        assert_eq!(sockopt::tcp_keepcnt(&stream), Ok(PROBES));
        keep_alive(pair().unwrap().0).unwrap();
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nbd.sock");
        let first = listen_unix(&path).unwrap();
        let error = listen_unix(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("in use by another process"), "{error}");
        // As after a kill: the listener is gone, its file is there.
        drop(first);
        let second = listen_unix(&path).unwrap();
        let mut client = connect_unix(&path, SOON).unwrap();
        client.write_all(b"x").unwrap();
        assert_eq!(second.accept().unwrap().0.read(&mut [0; 8]).unwrap(), 1);
    }

    #[test]
    fn what_is_not_a_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        fs::write(&path, "data").unwrap();
        assert_eq!(listen_unix(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"data");
        assert!(listen_unix(&dir.path().join("no/folder")).is_err());
    }

    #[test]
    fn a_unix_listener_that_does_not_accept_ends_in_a_timeout() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nbd.sock");
        let socket = stream_socket(SocketFlags::CLOEXEC).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let mut waiting = Vec::new();
        let error = loop {
            match connect_unix(&path, Duration::from_millis(20)) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
            assert!(waiting.len() < 100);
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let live = listen_unix(&path).unwrap_err();
        assert_eq!(live.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn tcp_connections_send_without_delay() {
        let listener = listen_tcp("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = connect_tcp("127.0.0.1", port, SOON).unwrap();
        assert!(client.nodelay().unwrap());
        let (server, _) = listener.accept().unwrap();
        set_no_delay(&server).unwrap();
        assert!(server.nodelay().unwrap());
        drop(listener);
        let error = connect_tcp("127.0.0.1", port, SOON).unwrap_err();
        assert!(error.to_string().contains("cannot connect to 127.0.0.1 port"), "{error}");
    }

    #[test]
    fn a_pair_is_connected_and_has_no_delay_to_turn_off() {
        let (one, other) = pair().unwrap();
        set_no_delay(&one).unwrap();
        rustix::io::write(&one, b"hello").unwrap();
        let mut bytes = [0; 8];
        assert_eq!(rustix::io::read(&other, &mut bytes).unwrap(), 5);
    }

    #[test]
    fn nobody_there_is_an_error_with_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nobody");
        let error = connect_unix(&path, SOON).unwrap_err();
        assert!(error.to_string().contains("nobody"), "{error}");
    }
}
