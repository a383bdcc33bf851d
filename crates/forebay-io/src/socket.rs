//! Unix listeners, and whether the other end of a connection is still there. To find out whether somebody listens blocks for
//! a moment: that is for the control plane.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
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
    .map_err(|error| {
        let said = format!("cannot listen on {}: {error}", path.display());
        io::Error::new(error.kind(), said)
    })
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
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let connected = rustix::net::connect(&socket, &SocketAddrUnix::new(path)?);
    Ok(!matches!(connected, Err(Errno::CONNREFUSED | Errno::NOENT)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_kernel_asks_a_silent_peer_whether_it_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        keep_alive(&stream).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        let times = (sockopt::tcp_keepidle(&stream), sockopt::tcp_keepintvl(&stream));
        assert_eq!(times, (Ok(SILENCE_MAX), Ok(SILENCE_MAX)));
        assert_eq!(sockopt::tcp_keepcnt(&stream), Ok(PROBES));
        keep_alive(UnixStream::pair().unwrap().0).unwrap();
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
        let mut client = UnixStream::connect(&path).unwrap();
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
    fn a_unix_listener_that_does_not_accept_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nbd.sock");
        let address = SocketAddrUnix::new(&path).unwrap();
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let listener = rustix::net::socket(family, kind, None).unwrap();
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let mut waiting = Vec::new();
        let error = loop {
            let client =
                rustix::net::socket_with(family, kind, SocketFlags::NONBLOCK, None).unwrap();
            match rustix::net::connect(&client, &address) {
                Ok(()) => waiting.push(client),
                Err(error) => break error,
            }
            assert!(waiting.len() < 100);
        };
        assert_eq!(error, Errno::WOULDBLOCK);
        let live = listen_unix(&path).unwrap_err();
        assert_eq!(live.kind(), io::ErrorKind::AddrInUse);
    }
}
