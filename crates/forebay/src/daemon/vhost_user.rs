//! A vhost-user-blk device: its socket, and the thread that speaks with hypervisors.
//!
//! ```text
//!   open ──► accept ──► session: Device, message by message ──► the hypervisor leaves ──► rings are stopped ──► accept
//!                                  └─ Order, through the mailbox and a bell ──► queue on the shard
//! ```
//! One hypervisor at a time: whoever comes meanwhile waits until the one before has left, and the shard has let go of
//! his rings. A hypervisor that breaks the protocol is closed, and may come again.

use std::io::ErrorKind::{Interrupted, WouldBlock};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use forebay_host::events::{EventSender, Severity};
use forebay_shard::DiskHandle;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use forebay_frontends::vhost_user::{
    self, BackChannel, BackendReqHandler, Counters, Device, Export, Order, Orders, QueueSetup,
    Report, SessionError, Shard, Weight,
};

use super::api::VhostUserInfo;
use super::control::lock;
use super::unix::UnixSocket;
use cache_off::CacheOff;

mod cache_off;

/// Pause after the kernel refused to accept (out of file descriptors): it will not succeed at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A device. Dropping it ends its session and its thread; its shard has to live, or to have ended, until then.
#[derive(Debug)]
pub struct VhostUser {
    state: Arc<VhostUserState>,
    thread: Option<JoinHandle<()>>,
    /// Tells the thread to accept. Without it the thread ends, unless it was told.
    door: Option<Sender<()>>,
}

/// What is known of a device.
#[derive(Debug)]
pub struct VhostUserState {
    socket: UnixSocket,
    listener: UnixListener,
    /// Whoever drops the device ends one half; the thread sees that at the other.
    bell: (UnixStream, UnixStream),
    /// What the next session shows.
    export: Mutex<Export>,
    counters: Arc<Counters>,
    sessions: AtomicU64,
    is_ending: AtomicBool,
    /// The session, while there is one.
    session: Mutex<Option<Session>>,
}

/// A session, as others reach it.
#[derive(Debug)]
struct Session {
    stream: UnixStream,
    device: Arc<Mutex<Device<Rings>>>,
    back: Option<Arc<BackChannel>>,
}

impl VhostUser {
    /// Listens at a socket, for `disk`. A hypervisor that connects waits until the device is open.
    ///
    /// # Errors
    /// There is no thread, or no file for its bell.
    pub fn start(
        (socket, listener): (UnixSocket, UnixListener),
        export: Export,
        name: &str,
        disk: DiskHandle,
        events: EventSender,
    ) -> Result<VhostUser> {
        let state = Arc::new(VhostUserState {
            socket,
            listener,
            bell: UnixStream::pair()?,
            export: Mutex::new(export),
            counters: Arc::default(),
            sessions: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
            session: Mutex::default(),
        });
        let cache = Arc::new(Mutex::new(CacheOff::recall(state.socket.path())));
        let thread = Speaker { state: state.clone(), disk, name: name.to_owned(), events, cache };
        let (door, opened) = channel();
        let thread = std::thread::Builder::new()
            .name(format!("vhost-{name}"))
            .spawn(move || thread.serve(&opened))
            .context("no thread for a vhost-user device")?;
        Ok(VhostUser { state, thread: Some(thread), door: Some(door) })
    }

    /// Lets hypervisors in.
    pub fn open(&self) {
        // A thread that has ended hears it no more.
        let _ = self.door.as_ref().map(|door| door.send(()));
    }

    /// Hypervisors who come from now on see the disk so.
    pub fn change(&self, export: &Export) {
        lock(&self.state.export).clone_from(export);
    }

    /// What is known of it.
    pub fn state(&self) -> Arc<VhostUserState> {
        self.state.clone()
    }
}

impl Drop for VhostUser {
    fn drop(&mut self) {
        self.state.is_ending.store(true, Ordering::SeqCst);
        self.door = None;
        // Ends a wait for the next hypervisor, and for the next message of this one. The listener may be systemd's, too.
        let _ = self.state.bell.0.shutdown(std::net::Shutdown::Both);
        self.state.end_session();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl VhostUserState {
    /// What it is, and its counters now.
    pub fn info(&self) -> VhostUserInfo {
        let Counters { requests, replayed, kicks, calls, broken } = &*self.counters;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let queues = lock(&self.export).queues;
        VhostUserInfo {
            socket: self.socket.path().display().to_string(),
            queues,
            is_connected: self.session().is_some(),
            sessions: count(&self.sessions),
            requests: count(requests),
            replayed: count(replayed),
            kicks: count(kicks),
            calls: count(calls),
            broken: count(broken),
        }
    }

    /// The disk has this size by now: a hypervisor that is there is told, as soon as a ring runs.
    fn tell_size(&self, size: u64) {
        if let Some(tell) = self.telling(size) {
            tell();
        }
    }

    /// What tells the hypervisor that is there the size of its disk. It waits for as long as the device is busy with a
    /// message, and keeps nothing but its session meanwhile: the socket may go.
    pub fn telling(&self, size: u64) -> Option<impl FnOnce() + Send + use<>> {
        // The device may be waiting for its shard: nobody else waits for it.
        let session =
            self.session().as_ref().map(|session| (session.device.clone(), session.back.clone()));
        let (device, back) = session?;
        Some(move || {
            let is_running = device.lock().unwrap_or_else(PoisonError::into_inner).resize(size);
            if let Some(back) = back.filter(|_| is_running) {
                back.tell_config_change();
            }
        })
    }

    /// Does something while its session is busy with a message.
    #[cfg(test)]
    pub fn while_busy<T>(&self, work: impl FnOnce() -> T) -> T {
        let device = self.session().as_ref().expect("a session").device.clone();
        let _busy = device.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }

    /// Ends the session, if there is one. The hypervisor may connect again at once.
    pub fn end_session(&self) {
        if let Some(session) = &*self.session() {
            let _ = session.stream.shutdown(std::net::Shutdown::Both);
        }
    }

    fn session(&self) -> MutexGuard<'_, Option<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's own.
struct Speaker {
    state: Arc<VhostUserState>,
    disk: DiskHandle,
    name: String,
    events: EventSender,
    /// The write cache as sessions leave it.
    cache: Arc<Mutex<CacheOff>>,
}

impl Speaker {
    /// Serves one hypervisor after the other, once the device is `opened` and until told to end.
    fn serve(mut self, opened: &Receiver<()>) {
        if opened.recv().is_err() {
            return;
        }
        let mut is_failing = false;
        loop {
            let (listener, bell) = (&self.state.listener, &self.state.bell.1);
            let mut both = [PollFd::new(listener, PollFlags::IN), PollFd::new(bell, PollFlags::IN)];
            let polled = rustix::event::poll(&mut both, None);
            if self.state.is_ending.load(Ordering::SeqCst) {
                return;
            }
            match polled.map_err(Into::into).and_then(|_| listener.accept()) {
                Ok((stream, _)) => {
                    is_failing = false;
                    self.speak(stream);
                }
                // Who wanted in has gone again.
                Err(error) if matches!(error.kind(), WouldBlock | Interrupted) => {}
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        self.warn(&format_args!("cannot accept: {error}"));
                    }
                    std::thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    /// Waits for a message of the hypervisor, and reports once a session who comes meanwhile: he waits.
    fn tell_of_others(&self, stream: &UnixStream, is_told: &mut bool) {
        while !*is_told {
            let mut both = [
                PollFd::new(stream, PollFlags::IN),
                PollFd::new(&self.state.listener, PollFlags::IN),
            ];
            if rustix::event::poll(&mut both, None).is_err_and(|error| error != Errno::INTR) {
                return;
            }
            let is_ending = self.state.is_ending.load(Ordering::SeqCst);
            if is_ending || !both[0].revents().is_empty() {
                return;
            }
            if both[1].revents().contains(PollFlags::IN) {
                *is_told = true;
                self.warn(
                    &"another hypervisor has connected: it waits until the one that is there leaves",
                );
            }
        }
    }

    fn warn(&self, what: &dyn std::fmt::Display) {
        let text = format!("{}: {what}", self.state.socket.path().display());
        self.events.report(Some(&self.name), Severity::Warning, text);
    }

    /// One session, to its end.
    fn speak(&mut self, stream: UnixStream) {
        let (events, name) = (self.events.clone(), self.name.clone());
        let report = Report(Arc::new(move |weight, text| {
            let severity = match weight {
                Weight::Info => Severity::Info,
                Weight::Warning => Severity::Warning,
                Weight::Error => Severity::Error,
            };
            events.report(Some(&name), severity, text);
        }));
        let export = Export { size: self.disk.size(), ..lock(&self.state.export).clone() };
        let queues = (0..export.queues).map(|_| None).collect();
        let rings = Rings { disk: self.disk.clone(), queues, cache: self.cache.clone() };
        let counters = self.state.counters.clone();
        let is_cache_off = known(&self.cache).is_off();
        let device = Device::new(export, is_cache_off, rings, counters, report);
        let device = Arc::new(Mutex::new(device));
        match stream.try_clone() {
            Ok(stream) => {
                let device = device.clone();
                *self.state.session() = Some(Session { stream, device, back: None });
            }
            Err(error) => return self.warn(&format_args!("a hypervisor was turned away: {error}")),
        }
        // It may have grown since it was asked.
        self.state.tell_size(self.disk.size());
        let peeked = stream.try_clone().ok();
        let mut is_told = false;
        self.state.sessions.fetch_add(1, Ordering::Relaxed);
        let mut session = BackendReqHandler::from_stream(stream, device.clone());
        let ended = loop {
            if self.state.is_ending.load(Ordering::SeqCst) {
                break SessionError::Disconnected;
            }
            if let Some(stream) = &peeked {
                self.tell_of_others(stream, &mut is_told);
            }
            let back = peeked.as_ref().and_then(BackChannel::await_message);
            if let (Some(back), Some(session)) = (back, &mut *self.state.session()) {
                session.back = Some(Arc::new(back));
            }
            if let Err(error) = session.handle_request() {
                break error;
            }
            let may_have_grown = {
                let mut device = device.lock().unwrap_or_else(PoisonError::into_inner);
                device.note_cache();
                device.may_have_grown()
            };
            if may_have_grown {
                self.state.tell_size(self.disk.size());
            }
        };
        device.lock().unwrap_or_else(PoisonError::into_inner).end();
        // From here on the next one may come.
        drop(session);
        *self.state.session() = None;
        if !matches!(ended, SessionError::Disconnected | SessionError::SocketBroken(_)) {
            let text = format!("the connection of a hypervisor was closed: {ended}");
            self.events.report(Some(&self.name), Severity::Warning, text);
        }
    }
}

/// The queues of a session, on the disk's shard.
#[derive(Debug)]
struct Rings {
    disk: DiskHandle,
    queues: Vec<Option<Orders>>,
    /// The session's own as long as it lasts: nobody waits for it.
    cache: Arc<Mutex<CacheOff>>,
}

fn known(cache: &Mutex<CacheOff>) -> MutexGuard<'_, CacheOff> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard for Rings {
    fn start(&mut self, queue: u16, setup: QueueSetup) -> Result<(), String> {
        let (new, orders, started) =
            vhost_user::queue(self.disk.id(), setup).map_err(|error| error.to_string())?;
        self.disk.connect(new, Box::new(())).map_err(|gone| gone.to_string())?;
        started.recv().map_err(|_| "the disk is ending".to_owned())??;
        self.queues[usize::from(queue)] = Some(orders);
        Ok(())
    }

    fn order(&mut self, queue: u16, order: Order) -> Option<u16> {
        let place = &mut self.queues[usize::from(queue)];
        let is_last = matches!(order, Order::Stop);
        let position = place.as_ref()?.give(order);
        if is_last {
            *place = None;
        }
        position
    }

    fn note_cache(&mut self, is_off: bool) -> std::io::Result<()> {
        known(&self.cache).note(is_off)
    }
}
