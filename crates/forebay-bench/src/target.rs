//! Where a server listens: `unix:PATH`, `HOST:PORT`, either with `#EXPORT` behind it.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context;
use rustix::net::sockopt;

/// Room for a whole batch of replies in a unix socket: the kernel's default of 208 KiB is less than
/// 32 replies of 8 KiB.
const SOCKET_BUFFER: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Unix(PathBuf),
    Tcp(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) address: Address,
    pub(crate) export: String,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let (address, export) = text.split_once('#').unwrap_or((text, ""));
        let address = match address.strip_prefix("unix:") {
            Some(path) => Address::Unix(path.into()),
            None if address.contains(':') => Address::Tcp(address.into()),
            None => return Err(format!("{text:?} is neither unix:PATH nor HOST:PORT")),
        };
        Ok(Target { address, export: export.into() })
    }
}

impl Address {
    pub(crate) fn connect(&self) -> anyhow::Result<OwnedFd> {
        let socket = match self {
            Address::Unix(path) => UnixStream::connect(path)
                .with_context(|| format!("cannot connect to {}", path.display()))?
                .into(),
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)
                    .with_context(|| format!("cannot connect to {address}"))?;
                stream.set_nodelay(true)?;
                stream.into()
            }
        };
        tune(&socket)?;
        Ok(socket)
    }

    pub(crate) fn listen(&self) -> anyhow::Result<Listener> {
        Ok(match self {
            Address::Unix(path) => Listener::Unix(
                UnixListener::bind(path)
                    .with_context(|| format!("cannot listen on {}", path.display()))?,
            ),
            Address::Tcp(address) => Listener::Tcp(
                TcpListener::bind(address)
                    .with_context(|| format!("cannot listen on {address}"))?,
            ),
        })
    }
}

pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    pub(crate) fn accept(&self) -> anyhow::Result<OwnedFd> {
        let socket: OwnedFd = match self {
            Listener::Unix(listener) => listener.accept()?.0.into(),
            Listener::Tcp(listener) => {
                let stream = listener.accept()?.0;
                stream.set_nodelay(true)?;
                stream.into()
            }
        };
        tune(&socket)?;
        Ok(socket)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(listener) => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        }
    }
}

fn tune(socket: &OwnedFd) -> anyhow::Result<()> {
    sockopt::set_socket_send_buffer_size(socket, SOCKET_BUFFER)?;
    sockopt::set_socket_recv_buffer_size(socket, SOCKET_BUFFER)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_an_address_and_an_export() {
        let target: Target = "unix:/run/a.sock#db".parse().unwrap();
        assert_eq!(target.address, Address::Unix("/run/a.sock".into()));
        assert_eq!(target.export, "db");
        let target: Target = "127.0.0.1:10809".parse().unwrap();
        assert_eq!(target.address, Address::Tcp("127.0.0.1:10809".into()));
        assert!("nowhere".parse::<Target>().is_err());
    }
}
