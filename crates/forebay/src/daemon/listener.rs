//! Listeners: accept clients, run their NBD handshake, hand them to the shard of the disk they chose.
//!
//! ```text
//!   accept ──► room? ──► handshake (10 s) ──► socket, leftover bytes ──mailbox──► shard
//!                └─ no (places.rs): closed at once, counted
//! ```
//! Disks may be added while a listener is served: who connects from then on finds them.
//!
//! A client counts against the listener's limit from the accept until its connection on the shard is
//! gone. What a client does in its handshake harms only itself.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use forebay_frontends::nbd::{Export, Greeted, Handshake, Negotiated, Outcome};
use forebay_host::events::{EventSender, Severity};
use forebay_shard::DiskHandle;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::control::lock;
use super::inherited::{Inherited, Lent};
use super::names::Names;
use super::places::Entry;
use super::unix::UnixSocket;
use crate::config::ListenerSpec;
use crate::config::values::{Address, Name};

mod state;

pub use state::ListenerState;

/// Time for a handshake.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// Time that a listener has to close.
const GONE_TIME_MAX: Duration = Duration::from_secs(1);
/// Pause after the kernel refused to accept (out of file descriptors): it will not succeed at once.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Why a client in its handshake was closed.
pub(super) const LEFT: &str = "a newer client needed its place";

/// A socket that listens, not yet served.
#[derive(Debug)]
pub struct Listener {
    kind: Kind,
    state: Arc<ListenerState>,
    served: Arc<Served>,
}

#[derive(Debug)]
enum Kind {
    Unix { _socket: UnixSocket, listener: UnixListener },
    Tcp(BoundTcp),
}

/// What a listener serves: what clients see of each disk, and where they go.
#[derive(Debug, Default)]
pub struct Served {
    disks: Mutex<Disks>,
    /// Told when nobody is to come in any more.
    end: Notify,
    /// Told when the listener is closed.
    gone: Notify,
}

#[derive(Debug, Default)]
struct Disks {
    /// Those of its configuration. Who names none gets the first, and no other when that one is not served.
    names: Vec<Name>,
    /// Those of them that are served.
    served: BTreeMap<String, (Export, DiskHandle)>,
}

/// What it serves at one time.
struct Choice {
    exports: Arc<[Export]>,
    /// Behind them, in the same order.
    disks: Vec<DiskHandle>,
    /// The first is also the one without a name.
    has_default: bool,
}

impl Served {
    /// Adds a disk, one of the `names` of its configuration now; the names of all that are served.
    pub fn add(&self, names: &[Name], export: Export, disk: DiskHandle) -> Vec<String> {
        let mut disks = lock(&self.disks);
        disks.names = names.to_vec();
        disks.served.insert(export.name.clone(), (export, disk));
        disks.in_order().map(|(export, _)| export.name.clone()).collect()
    }

    /// Shows a disk so from now on, where it is served.
    pub fn change(&self, export: &Export) {
        if let Some((known, _)) = lock(&self.disks).served.get_mut(&export.name) {
            known.clone_from(export);
        }
    }

    /// Removes a disk; the names of those that are served.
    pub fn remove(&self, name: &str) -> Vec<String> {
        let mut disks = lock(&self.disks);
        disks.served.remove(name);
        disks.in_order().map(|(export, _)| export.name.clone()).collect()
    }

    /// True when it serves none.
    pub fn is_empty(&self) -> bool {
        lock(&self.disks).served.is_empty()
    }

    /// Shows these disks alone, as far as it has them; the names of all that are served.
    pub fn keep(&self, names: &[Name]) -> Vec<String> {
        let mut disks = lock(&self.disks);
        disks.names = names.to_vec();
        disks.served.retain(|served, _| names.iter().any(|name| name.0 == *served));
        disks.in_order().map(|(export, _)| export.name.clone()).collect()
    }

    /// Its listener goes.
    pub fn end(&self) {
        self.end.notify_one();
    }

    /// Its listener has gone.
    pub fn note_gone(&self) {
        self.gone.notify_one();
    }

    /// Waits until its listener has gone, and the address is free.
    pub async fn wait_until_gone(&self) {
        let _ = timeout(GONE_TIME_MAX, self.gone.notified()).await;
    }

    /// What a client may choose from: disks that are being detached, or were, are not there.
    fn now(&self) -> Choice {
        let disks = lock(&self.disks);
        let open = || disks.in_order().filter(|(_, disk)| disk.is_open());
        // Disks may have grown.
        let sized = open().map(|(export, disk)| Export { size: disk.size(), ..export.clone() });
        let first = disks.names.first();
        Choice {
            exports: sized.collect(),
            disks: open().map(|(_, disk)| disk.clone()).collect(),
            has_default: open()
                .next()
                .is_some_and(|(disk, _)| Some(&disk.name) == first.map(|it| &it.0)),
        }
    }
}

impl Disks {
    /// Those that are served, as the configuration names them.
    fn in_order(&self) -> impl Iterator<Item = &(Export, DiskHandle)> {
        self.names.iter().filter_map(|name| self.served.get(&name.0))
    }
}

impl Listener {
    /// Listens where `spec` says.
    ///
    /// # Errors
    /// The address is in use or cannot be had.
    pub(super) async fn bind(
        spec: &ListenerSpec,
        inherited: &Inherited,
        names: &Names,
    ) -> Result<Listener> {
        let (kind, address) = match &spec.address {
            Address::Unix(path, access) => {
                let (socket, listener) = UnixSocket::bind(path, access, inherited)?;
                let address = format!("unix:{}", socket.path().display());
                let listener = UnixListener::from_std(listener)?;
                (Kind::Unix { _socket: socket, listener }, address)
            }
            Address::Tcp(address) => {
                let listener = bind_tcp(address, inherited, names).await?;
                let bound = listener.local_addr()?.to_string();
                (Kind::Tcp(listener), bound)
            }
        };
        let state = ListenerState::new(address, spec.connections_max);
        Ok(Listener { kind, state, served: Arc::default() })
    }

    /// What it serves; nothing at first.
    pub fn served(&self) -> Arc<Served> {
        self.served.clone()
    }

    /// What it counts.
    pub fn state(&self) -> Arc<ListenerState> {
        self.state.clone()
    }

    /// Accepts clients until it is to end, or dropped; its socket file is removed then.
    pub async fn serve(self, events: EventSender) {
        let mut is_failing = false;
        loop {
            let accepting = async {
                match &self.kind {
                    Kind::Unix { listener, .. } => {
                        listener.accept().await.map(|(it, _)| (Stream::Unix(it), None))
                    }
                    Kind::Tcp(listener) => {
                        listener.accept().await.map(|(it, from)| (Stream::Tcp(it), Some(from.ip())))
                    }
                }
            };
            let accepted = tokio::select! {
                accepted = accepting => accepted,
                () = self.served.end.notified() => return,
            };
            match accepted {
                Ok((stream, address)) => {
                    is_failing = false;
                    self.take(stream, address, &events);
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        let text = format!("{} cannot accept: {error}", self.state.address());
                        events.report(None, Severity::Warning, text);
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Begins the handshake of a client if there is room; otherwise closes it.
    fn take(&self, stream: Stream, address: Option<IpAddr>, events: &EventSender) {
        let Some((entry, has_to_leave)) = self.state.enter(address, events) else { return };
        let (state, choice) = (self.state.clone(), self.served.now());
        tokio::spawn(async move {
            let work = timeout(HANDSHAKE_TIME_MAX, shake_hands(stream, choice, entry));
            let failed = tokio::select! {
                Ok(()) = has_to_leave => LEFT.to_owned(),
                ended = work => match ended {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => format!("{error:#}"),
                    Err(_) => format!("no handshake within {}s", HANDSHAKE_TIME_MAX.as_secs()),
                },
            };
            state.count_failed();
            tracing::debug!("{}: a client was closed: {failed}", state.address());
        });
    }
}

/// A TCP socket that listens.
#[derive(Debug)]
pub(super) struct BoundTcp {
    pub listener: TcpListener,
    /// It is systemd's.
    _lent: Option<Lent>,
}

impl Deref for BoundTcp {
    type Target = TcpListener;

    fn deref(&self) -> &TcpListener {
        &self.listener
    }
}

/// Listens at a TCP address, or takes the socket that listens there already.
///
/// # Errors
/// Its host is not found; the kernel's, with what helps.
pub(super) async fn bind_tcp(
    address: &str,
    inherited: &Inherited,
    names: &Names,
) -> Result<BoundTcp> {
    let addresses = names.find(address).await?;
    if let Some((listener, lent)) = inherited.take_tcp(&addresses)? {
        listener.set_nonblocking(true)?;
        return Ok(BoundTcp { listener: TcpListener::from_std(listener)?, _lent: Some(lent) });
    }
    let own = |listener| BoundTcp { listener, _lent: None };
    TcpListener::bind(&*addresses).await.map(own).map_err(|error| {
        let why = why_not(error.kind(), rustix::process::geteuid().as_raw());
        anyhow::Error::new(error).context(format!("cannot listen at {address}: {why}"))
    })
}

/// What keeps `user` from listening at an address.
pub(super) fn why_not(kind: ErrorKind, user: u32) -> String {
    match kind {
        ErrorKind::AddrInUse => {
            "another server is there; stop it, or choose another address".to_owned()
        }
        ErrorKind::AddrNotAvailable => "this host does not have the address".to_owned(),
        ErrorKind::PermissionDenied => format!(
            "user {user} has no permission; ports below 1024 are root's, and of whoever has CAP_NET_BIND_SERVICE"
        ),
        _ => "the kernel refuses it".to_owned(),
    }
}

/// A client's socket.
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// Runs the handshake, then hands the client to its disk's shard.
async fn shake_hands(stream: Stream, choice: Choice, entry: Entry) -> Result<()> {
    let (socket, chosen) = match stream {
        Stream::Unix(mut stream) => {
            let chosen = negotiate(&mut stream, &choice).await?;
            (OwnedFd::from(stream.into_std()?), chosen)
        }
        Stream::Tcp(mut stream) => {
            stream.set_nodelay(true)?;
            // A client that is gone without a word would keep its place for ever.
            forebay_io::socket::keep_alive(&stream)?;
            let chosen = negotiate(&mut stream, &choice).await?;
            (OwnedFd::from(stream.into_std()?), chosen)
        }
    };
    let Some((export, negotiated, leftover)) = chosen else { return Ok(()) };
    let handle = &choice.disks[export];
    let (exports, disk) = (choice.exports, handle.id());
    let client = Greeted { socket, disk, exports, export, negotiated, leftover };
    let place = entry.settle().context(LEFT)?;
    handle.hand_over(Box::new(client), Box::new(place)).await?;
    Ok(())
}

/// The export that the client chose, what was agreed on, and what it has sent since; `None` when it
/// left as the protocol wants it.
async fn negotiate(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    choice: &Choice,
) -> Result<Option<(usize, Negotiated, Vec<u8>)>> {
    let mut out = Vec::with_capacity(256);
    let mut handshake = Handshake::start(choice.exports.clone(), &mut out);
    if !choice.has_default {
        handshake = handshake.without_default();
    }
    let mut input = vec![0; 4096];
    loop {
        stream.write_all(&out).await?;
        out.clear();
        let len = stream.read(&mut input).await?;
        if len == 0 {
            anyhow::bail!("the client left during its handshake");
        }
        match handshake.feed(&input[..len], &mut out) {
            Outcome::Continue => {}
            Outcome::Transmission { export, negotiated, leftover } => {
                stream.write_all(&out).await?;
                return Ok(Some((export, negotiated, leftover)));
            }
            Outcome::Close(reason) => {
                // The answer is a courtesy; the client may be gone.
                let _ = stream.write_all(&out).await;
                return match reason {
                    forebay_frontends::nbd::handshake::CloseReason::Abort => Ok(None),
                    other => Err(other.into()),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn said(address: &str) -> String {
        format!(
            "{:#}",
            bind_tcp(address, &Inherited::default(), &Names::default())
                .await
                .expect_err("nobody can listen there")
        )
    }

    #[tokio::test]
    async fn an_address_that_cannot_be_listened_at_is_told_with_what_helps() {
        let other =
            bind_tcp("127.0.0.1:0", &Inherited::default(), &Names::default()).await.unwrap();
        let taken = said(&other.local_addr().unwrap().to_string()).await;
        assert!(taken.contains("another server is there; stop it"), "{taken}");
        let elsewhere = said("203.0.113.1:10809").await;
        assert!(elsewhere.contains("this host does not have the address"), "{elsewhere}");
        assert!(elsewhere.starts_with("cannot listen at 203.0.113.1:10809"), "{elsewhere}");
    }

    #[test]
    fn a_port_of_root_is_told_to_the_user_who_may_not_have_it() {
        let why = why_not(ErrorKind::PermissionDenied, 65534);
        assert!(why.contains("user 65534") && why.contains("CAP_NET_BIND_SERVICE"), "{why}");
        assert!(!why.contains("another server"), "nobody has looked for one: {why}");
    }
}
