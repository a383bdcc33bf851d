//! Sockets that listen already: systemd bound them, and handed them over (`LISTEN_FDS`, socket activation).
//!
//! ```text
//!   systemd: ListenStream=ADDRESS ──► Inherited ──address of the configuration──► control socket, listener, portal, device
//!                                          └─ nothing asks for it: closed, an event
//! ```
//! Such a socket outlives the daemon: who connects while it restarts waits until it listens again. So the daemon takes it in
//! place of binding one, leaves its owner and mode to systemd, and does not remove its file. One that nobody serves any more,
//! as that of a disk that is detached, is here again for the next who asks.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use forebay_host::events::{EventSender, Severity};
use listenfd::ListenFd;

use super::preflight;
use crate::config::DaemonSpec;

/// The sockets that nobody has taken yet.
#[derive(Clone, Debug, Default)]
pub struct Inherited(Arc<Mutex<Vec<Socket>>>);

#[derive(Debug)]
enum Socket {
    Unix(PathBuf, UnixListener),
    Tcp(SocketAddr, TcpListener),
    /// Nothing that a daemon could listen at: which descriptor it is.
    Other(usize),
}

/// A socket that somebody serves. Dropping it puts it back.
#[derive(Debug)]
pub(super) struct Lent {
    from: Inherited,
    socket: Option<Socket>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.from.sockets().extend(self.socket.take());
    }
}

impl Inherited {
    /// Those of this process. To be called once, before there are other threads: it takes them out of the environment.
    pub fn from_environment() -> Inherited {
        let mut passed = ListenFd::from_env();
        let sockets = (0..passed.len()).map(|index| {
            // A socket of the other kind stays where it is.
            if let Ok(Some(listener)) = passed.take_unix_listener(index)
                && let Ok(address) = listener.local_addr()
                && let Some(path) = address.as_pathname()
            {
                return Socket::Unix(path.to_owned(), listener);
            }
            match passed.take_tcp_listener(index) {
                Ok(Some(listener)) => match listener.local_addr() {
                    Ok(address) => Socket::Tcp(address, listener),
                    Err(_) => Socket::Other(index),
                },
                _ => Socket::Other(index),
            }
        });
        Inherited(Arc::new(Mutex::new(sockets.collect())))
    }

    /// The one that listens at a path, which does not block.
    ///
    /// # Errors
    /// The kernel's: no descriptor is left.
    pub(super) fn take_unix(&self, path: &Path) -> io::Result<Option<(UnixListener, Lent)>> {
        self.take(
            |socket| socket.is_at(path),
            |socket| match socket {
                Socket::Unix(_, listener) => Some(listener.try_clone()),
                Socket::Tcp(..) | Socket::Other(_) => None,
            },
        )
    }

    /// The one that listens at one of these addresses, which does not block.
    ///
    /// # Errors
    /// The kernel's: no descriptor is left.
    pub(super) fn take_tcp(
        &self,
        addresses: &[SocketAddr],
    ) -> io::Result<Option<(TcpListener, Lent)>> {
        self.take(
            |socket| socket.is_one_of(addresses),
            |socket| match socket {
                Socket::Tcp(_, listener) => Some(listener.try_clone()),
                Socket::Unix(..) | Socket::Other(_) => None,
            },
        )
    }

    fn take<L>(
        &self,
        is_wanted: impl Fn(&Socket) -> bool,
        listener: impl Fn(&Socket) -> Option<io::Result<L>>,
    ) -> io::Result<Option<(L, Lent)>> {
        let mut sockets = self.sockets();
        let Some(index) = sockets.iter().position(is_wanted) else { return Ok(None) };
        let Some(listener) = listener(&sockets[index]).transpose()? else { return Ok(None) };
        let socket = Some(sockets.swap_remove(index));
        Ok(Some((listener, Lent { from: self.clone(), socket })))
    }

    /// Closes and reports those that no part of the configuration asks for.
    ///
    /// # Errors
    /// A thread of the runtime panicked.
    pub(super) async fn keep_asked(
        self,
        spec: &Arc<DaemonSpec>,
        events: &EventSender,
    ) -> Result<Inherited> {
        let spec = spec.clone();
        let look_up = |host: &String| host.to_socket_addrs().map(Iterator::collect);
        let close = move || (self.close_unasked(&spec, look_up), self);
        let (unasked, asked) = tokio::task::spawn_blocking(close).await?;
        for text in unasked {
            events.report(None, Severity::Warning, text);
        }
        Ok(asked)
    }

    /// Closes those that nothing asks for: what to say of each. May ask for the addresses of hosts.
    fn close_unasked(
        &self,
        spec: &DaemonSpec,
        look_up: impl Fn(&String) -> io::Result<Vec<SocketAddr>>,
    ) -> Vec<String> {
        let paths: Vec<PathBuf> =
            preflight::unix_sockets(spec).into_iter().map(|(path, _)| path).collect();
        let (mut addresses, mut unknown) = (Vec::new(), Vec::new());
        for host in self.hosts(spec) {
            match look_up(host) {
                Ok(found) => addresses.extend(found),
                // It may be one of these, and is asked for again.
                Err(_) => unknown
                    .extend(host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok())),
            }
        }
        let is_asked = |socket: &Socket| {
            paths.iter().any(|path| socket.is_at(path))
                || socket.is_one_of(&addresses)
                || matches!(socket, Socket::Tcp(own, _) if unknown.contains(&own.port()))
        };
        self.sockets().extract_if(.., |socket| !is_asked(socket)).map(|it| it.unasked()).collect()
    }

    /// The hosts whose addresses say what is asked for. Without a TCP socket that is none: a name server that does not answer
    /// would hold up the start.
    fn hosts<'a>(&self, spec: &'a DaemonSpec) -> BTreeSet<&'a String> {
        if !self.sockets().iter().any(|socket| matches!(socket, Socket::Tcp(..))) {
            return BTreeSet::new();
        }
        spec.tcp_addresses().chain(&spec.http).collect()
    }

    fn sockets(&self) -> MutexGuard<'_, Vec<Socket>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Socket {
    fn is_at(&self, path: &Path) -> bool {
        let identity = |path: &Path| path.symlink_metadata().map(|it| (it.dev(), it.ino())).ok();
        match self {
            Socket::Unix(own, _) => {
                own == path || identity(own).is_some_and(|own| Some(own) == identity(path))
            }
            Socket::Tcp(..) | Socket::Other(_) => false,
        }
    }

    fn is_one_of(&self, addresses: &[SocketAddr]) -> bool {
        matches!(self, Socket::Tcp(own, _) if addresses.contains(own))
    }

    fn unasked(&self) -> String {
        let what = match self {
            Socket::Unix(path, _) => format!("listens at {}", path.display()),
            Socket::Tcp(address, _) => format!("listens at {address}"),
            Socket::Other(index) => format!("is number {index}, and no listening stream socket"),
        };
        format!(
            "systemd passed a socket that {what}. The configuration asks for none there: clients who connect there wait \
             in vain. Write the same address in both. Or stop Forebay and the socket unit, remove the address there, and start both"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn inherited(folder: &Path, names: &[&str]) -> Inherited {
        let unix = names.iter().map(|name| {
            let path = folder.join(name);
            Socket::Unix(path.clone(), UnixListener::bind(path).unwrap())
        });
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = Socket::Tcp(tcp.local_addr().unwrap(), tcp);
        Inherited(Arc::new(Mutex::new(unix.chain([tcp]).collect())))
    }

    #[test]
    fn a_socket_is_found_by_each_path_that_leads_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let sockets = inherited(folder.path(), &["a", "b"]);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        let take = |path: &Path| sockets.take_unix(path).unwrap();
        assert!(take(&folder.path().join("c")).is_none());
        let (taken, lent) = take(&link.join("b")).expect("the link leads there");
        let path = taken.local_addr().unwrap().as_pathname().unwrap().to_owned();
        assert_eq!(path, folder.path().join("b"));
        assert!(take(&link.join("b")).is_none(), "one at a time");
        drop(lent);
        assert!(take(&folder.path().join("b")).is_some(), "it was given back");
    }

    #[test]
    fn hosts_are_asked_for_only_where_a_tcp_socket_was_passed_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let target = |name| {
            format!(
                "[[disk]]\nname = \"{name}\"\nbackend = \"mem:1MiB\"\nnbd = [\"{name}.example:1\"]\n\
                 [[iscsi]]\ntarget = \"iqn.2026-01.example:{name}\"\nlisten = [\"store.example:3260\"]\ndisks = [\"{name}\"]\n"
            )
        };
        let text = format!("control = \"/c\"\nhttp = \"off\"\n{}{}", target("x"), target("y"));
        let spec = config::file::parse(&text, "x".parse().unwrap()).unwrap();
        let sockets = inherited(folder.path(), &["a"]);
        assert_eq!(
            sockets.hosts(&spec).into_iter().collect::<Vec<_>>(),
            ["store.example:3260", "x.example:1", "y.example:1"]
        );
        sockets.sockets().truncate(1);
        assert!(sockets.hosts(&spec).is_empty(), "a unix socket has no host");
        assert!(Inherited::default().hosts(&spec).is_empty());
    }

    #[test]
    fn a_socket_at_the_port_of_a_host_that_is_not_found_stays() {
        let folder = tempfile::tempdir().unwrap();
        let sockets = inherited(folder.path(), &[]);
        let port = match &sockets.sockets()[0] {
            Socket::Tcp(address, _) => address.port(),
            Socket::Unix(..) | Socket::Other(_) => panic!("there is one of TCP alone"),
        };
        let said = |port: u16| {
            let text = format!(
                "control = \"/c\"\nhttp = \"off\"\n[[disk]]\nname = \"x\"\nbackend = \"mem:1MiB\"\nnbd = [\"store.example:{port}\"]\n"
            );
            let spec = config::file::parse(&text, "x".parse().unwrap()).unwrap();
            sockets.close_unasked(&spec, |_| Err(io::ErrorKind::NotFound.into())).len()
        };
        assert_eq!(said(port), 0, "nobody knows that it is another one");
        assert_eq!(said(port - 1), 1);
    }

    #[test]
    fn a_socket_that_nothing_asks_for_is_closed_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let sockets = inherited(folder.path(), &["a", "b"]);
        let address = match &sockets.sockets()[2] {
            Socket::Tcp(address, _) => *address,
            Socket::Unix(..) | Socket::Other(_) => panic!("the last is TCP"),
        };
        sockets.sockets().push(Socket::Other(3));
        let text = format!(
            "control = \"/c\"\n[[disk]]\nname = \"x\"\nbackend = \"mem:1MiB\"\nnbd = [\"unix:{0}/a\"]\n",
            folder.path().display()
        );
        let spec = config::file::parse(&text, "x".parse().unwrap()).unwrap();
        let nowhere = |_: &String| Ok(Vec::new());
        let mut said = sockets.close_unasked(&spec, nowhere);
        said.sort();
        let expect = [format!("at {address}"), format!("{}/b", folder.path().display())];
        assert_eq!(said.len(), 3);
        for expect in expect.iter().map(String::as_str).chain(["number 3"]) {
            assert!(said.iter().any(|text| text.contains(expect)), "{expect}: {said:?}");
        }
        assert!(sockets.take_tcp(&[address]).unwrap().is_none());
        let asked = sockets.take_unix(&folder.path().join("a")).unwrap();
        assert!(asked.is_some(), "what is asked for stays");
        assert!(sockets.sockets().is_empty());
    }
}
