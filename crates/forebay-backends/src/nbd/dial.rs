//! Reaching a server, with a time limit.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::uri::NbdAddress;

/// Where the connections of one session go.
#[derive(Debug)]
pub(super) enum Place {
    Unix(PathBuf),
    /// The addresses of a host, in the order in which they are tried.
    Tcp(Vec<SocketAddr>),
}

pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// A connection, of a unix socket or over TCP.
    pub(super) fn of(socket: OwnedFd, is_unix: bool) -> Stream {
        match is_unix {
            true => Stream::Unix(UnixStream::from(socket)),
            false => Stream::Tcp(TcpStream::from(socket)),
        }
    }

    /// Sends all bytes until the deadline.
    pub(super) fn send(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        let left = Some(left(deadline)?);
        match self {
            Stream::Unix(stream) => {
                stream.set_write_timeout(left)?;
                stream.write_all(bytes)
            }
            Stream::Tcp(stream) => {
                stream.set_write_timeout(left)?;
                stream.write_all(bytes)
            }
        }
    }

    /// Fills `bytes`, whatever the pieces in which they come, until the deadline.
    pub(super) fn receive(&mut self, mut bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            let left = Some(left(deadline)?);
            let read = match self {
                Stream::Unix(stream) => {
                    stream.set_read_timeout(left)?;
                    stream.read(bytes)
                }
                Stream::Tcp(stream) => {
                    stream.set_read_timeout(left)?;
                    stream.read(bytes)
                }
            };
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => bytes = &mut bytes[read..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The socket, for who waits on a reactor.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn into_socket(self) -> io::Result<OwnedFd> {
        for timeout in [Timeout::Recv, Timeout::Send] {
            sockopt::set_socket_timeout(&self, timeout, None)?;
        }
        Ok(match self {
            Stream::Unix(stream) => OwnedFd::from(stream),
            Stream::Tcp(stream) => OwnedFd::from(stream),
        })
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Place {
    /// Looks the host's addresses up.
    pub(super) fn of(address: &NbdAddress) -> io::Result<Place> {
        Ok(match address {
            NbdAddress::Unix(path) => Place::Unix(path.clone()),
            NbdAddress::Tcp(host, port) => {
                Place::Tcp((host.as_str(), *port).to_socket_addrs()?.collect())
            }
        })
    }

    /// Only the server that `socket` leads to. Each address of a host may be a server of its own,
    /// and a flush there covers nothing of what this one was sent.
    pub(super) fn narrow(&mut self, socket: impl AsFd) {
        match self {
            Place::Unix(_) => {}
            Place::Tcp(addresses) => *addresses = peer(socket).into_iter().collect(),
        }
    }

    pub(super) fn connect(&self, deadline: Instant) -> io::Result<Stream> {
        match self {
            Place::Unix(path) => connect_unix(path, deadline).map(Stream::Unix),
            Place::Tcp(addresses) => connect_tcp(addresses, deadline).map(Stream::Tcp),
        }
    }
}

/// Whom a TCP connection leads to.
pub(super) fn peer(socket: impl AsFd) -> Option<SocketAddr> {
    rustix::net::getpeername(socket).ok().flatten()?.try_into().ok()
}

/// True of a TCP connection to an address of this host.
pub(super) fn is_to_this_host(socket: impl AsFd) -> bool {
    let own = rustix::net::getsockname(&socket).ok().and_then(|own| own.try_into().ok());
    let ip = |address: SocketAddr| address.ip().to_canonical();
    peer(socket).is_some_and(|peer| ip(peer).is_loopback() || own.map(ip) == Some(ip(peer)))
}

fn connect_unix(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // A server that does not accept must not hold us: the send time-out covers connect, too.
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(left(deadline)?))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Tries one address after the other. One that drops packets leaves the others their share of the
/// time.
fn connect_tcp(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut why = io::Error::new(io::ErrorKind::AddrNotAvailable, "the host name has no address");
    for (tried, address) in addresses.iter().enumerate() {
        let share = left(deadline).map(|left| left / (addresses.len() - tried) as u32);
        match share.and_then(|share| connect_to(address, share)) {
            Ok(stream) => return Ok(stream),
            // A host that refuses tells more than one that cannot be reached.
            Err(_) if why.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => why = error,
        }
    }
    Err(why)
}

fn connect_to(address: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(address, timeout)?;
    stream.set_nodelay(true)?;
    // An idle session whose server is gone is lost before somebody needs it.
    forebay_io::socket::keep_alive(&stream)?;
    Ok(stream)
}

/// Time until the deadline.
pub(super) fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left < Duration::from_micros(1) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}
