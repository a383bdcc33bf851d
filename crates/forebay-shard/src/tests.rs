//! What a shard does with disks that it is handed.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use forebay_backends::{Backend, BackendIo, Context, OpenOptions, Properties, TokenRange};
use forebay_core::action::ReplyData;
use forebay_core::config::{BackendTraits, Config, Mode};
use forebay_core::engine::Engine;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{Nanos, RequestTag};
use forebay_core::request::{Op, Request};
use forebay_core::status::IoStatus;
use forebay_frontends::client::{self, Answer, Client, DiskId, Newcomer, Permission, Tokens};
use forebay_host::events::EventLog;
use forebay_host::fence::UnreportedLoss;
use forebay_io::arena::Arena;
use forebay_io::mailbox::Sender;
use forebay_io::reactor::{Completion, ReactorKind, Token};

use super::mailbox::Home;
use super::*;

mod ends;
mod ram;

/// Primary storage that listens on a connection from when it is attached.
struct Listening {
    inner: Box<dyn Backend>,
    socket: Option<OwnedFd>,
    /// What a process before this one sent may still be carried out.
    holds: Arc<AtomicBool>,
}

impl Backend for Listening {
    fn properties(&self) -> &Properties {
        self.inner.properties()
    }

    fn attach(&mut self, cx: &mut Context<'_>, tokens: TokenRange) -> std::io::Result<()> {
        let socket = cx.reactor.add_socket(self.socket.take().expect("attached once"))?;
        cx.reactor.recv(socket, None, Vec::with_capacity(64), Token(tokens.base));
        self.inner.attach(cx, tokens)
    }

    fn lengthen(&mut self, size: u64) {
        self.inner.lengthen(size);
    }

    fn submit(&mut self, cx: &mut Context<'_>, io: BackendIo) {
        self.inner.submit(cx, io);
    }

    fn on_completion(&mut self, _: &mut Context<'_>, _: Completion) {}

    fn on_wake(&mut self, cx: &mut Context<'_>) {
        self.inner.on_wake(cx);
    }

    fn next_deadline(&self) -> Nanos {
        self.inner.next_deadline()
    }

    fn holds_changes(&self) -> bool {
        self.holds.load(Ordering::Relaxed)
    }
}

/// A disk without a write log, and the other end of the connection of its primary storage.
pub(crate) fn disk(name: &str, mode: Mode) -> (NewDisk, UnixStream) {
    disk_that(name, mode, Arc::default())
}

/// As [`disk`], which holds changes of primary storage while `holds`.
fn disk_that(name: &str, mode: Mode, holds: Arc<AtomicBool>) -> (NewDisk, UnixStream) {
    let (socket, peer) = UnixStream::pair().unwrap();
    let inner =
        forebay_backends::open(&"mem:1MiB".parse().unwrap(), OpenOptions::default()).unwrap();
    let traits = BackendTraits {
        size: inner.properties().size,
        logical_block: inner.properties().logical_block,
        read_only: false,
        discard: true,
        write_zeroes: true,
        extents: true,
    };
    let engine = Engine::new(Config::for_disk(traits)).unwrap();
    let memory = Arc::new(Arena::reserve(engine.memory_size() as usize).unwrap());
    let disk = NewDisk {
        name: name.into(),
        engine,
        memory,
        backend: Box::new(Listening { inner, socket: Some(socket.into()), holds }),
        flash: None,
        log: None,
        journal: None,
        last_write: None,
        unreported_loss: UnreportedLoss::default(),
        mode,
        is_paused: false,
        access: Permission::All,
    };
    (disk, peer)
}

/// The handle of a disk that comes to the shard of this mailbox.
pub(crate) fn handle_of(new: &NewDisk, sender: &Sender<mailbox::Command>) -> DiskHandle {
    let size = Arc::new(AtomicU64::new(new.engine.config().backend.size));
    let (id, home) = (mailbox::next_id(), Home::new(sender.clone()));
    DiskHandle { home, id, size, is_open: Arc::default(), resizes: Arc::default() }
}

#[tokio::test]
async fn a_disk_that_cannot_be_taken_leaves_nothing_behind_that_could_complete() {
    for kind in [None, Some(ReactorKind::Epoll)] {
        let (_log, events) = EventLog::start(None).unwrap();
        let shard = ShardHandle::start(0, 1, kind, events).unwrap();
        let (first, _first) = disk("first", Mode::WriteThrough);
        let first = shard.sender().add(first).await.unwrap();
        for _ in 0..2 {
            let (lacking, mut peer) = disk("lacking", Mode::WriteBack);
            let error = shard.sender().add(lacking).await.unwrap_err().to_string();
            assert!(error.contains("needs a write log"), "{error}");
            // The connection is closed by now; otherwise the shard hears of this.
            let _ = peer.write_all(b"late");
            peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            assert_eq!(first.stats().await.unwrap().name, "first");
            assert!(matches!(peer.read(&mut [0]), Ok(0)));
        }
        let (second, mut peer) = disk("second", Mode::WriteThrough);
        let second = shard.sender().add(second).await.unwrap();
        peer.write_all(b"in time").unwrap();
        assert_eq!(second.stats().await.unwrap().name, "second");
        assert!(first.flush().await.unwrap() && second.flush().await.unwrap());
        assert_eq!(shard.drain().unwrap().await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn a_disk_in_a_mode_without_a_log_cannot_be_paused() {
    let (_log, events) = EventLog::start(None).unwrap();
    let shard = ShardHandle::start(0, 1, None, events).unwrap();
    let (new, _peer) = disk("disk", Mode::WriteThrough);
    let handle = shard.sender().add(new).await.unwrap();
    let error = handle.pause(true).await.unwrap_err().to_string();
    assert!(error.contains("mode write-through has no write log"), "{error}");
    handle.pause(false).await.unwrap();
    shard.drain().unwrap().await.unwrap();
}

/// Waits with a read until the disk takes it, and counts what it was answered.
struct Reader {
    disk: [DiskId; 1],
    id: u32,
    asks: bool,
    answers: Arc<AtomicUsize>,
    is_leaving: bool,
    is_closed: bool,
}

struct NewReader(DiskId, Arc<AtomicUsize>);

impl Newcomer for NewReader {
    fn disks(&self) -> &[DiskId] {
        std::slice::from_ref(&self.0)
    }

    fn start(
        self: Box<Self>,
        _: &mut client::Context<'_>,
        id: u32,
        _: Tokens,
    ) -> std::io::Result<Box<dyn Client>> {
        let (disk, answers) = ([self.0], self.1);
        Ok(Box::new(Reader { disk, id, asks: true, answers, is_leaving: false, is_closed: false }))
    }
}

impl Client for Reader {
    fn disks(&self) -> &[DiskId] {
        &self.disk
    }

    fn on_completion(&mut self, _: &mut client::Context<'_>, _: Completion) {
        unreachable!("it has no socket")
    }

    fn on_reply(&mut self, cx: &mut client::Context<'_>, answer: Answer<'_>) {
        assert_eq!((answer.disk, answer.reply.status), (self.disk[0], IoStatus::Ok));
        if let ReplyData::Buffer { buffer, .. } = answer.reply.data {
            cx.release(self.disk[0], buffer);
        }
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.asks = true;
    }

    fn flush(&mut self, _: &mut client::Context<'_>) {}

    fn wants_resume(&self) -> bool {
        self.asks && !self.is_closed && !self.is_leaving
    }

    fn resume(&mut self, cx: &mut client::Context<'_>) -> bool {
        let (tag, op) = (RequestTag(u64::from(self.id) << 32), Op::Read { no_admit: false });
        let request = Request { tag, range: ByteRange::at(4096, 4096), op };
        self.asks = cx.submit_if_allowed(self.disk[0], request).is_err();
        !self.asks
    }

    fn close(&mut self, _: &mut client::Context<'_>) {
        self.is_closed = true;
    }

    fn give_up(&mut self, _: &mut client::Context<'_>) {}

    fn leave(&mut self, _: &mut client::Context<'_>) -> bool {
        assert!(self.asks, "an answer is owed to it");
        // The second time it is asked: it lets go of something first.
        std::mem::replace(&mut self.is_leaving, true)
    }

    fn enter(&mut self, _: &mut client::Context<'_>, id: u32, _: Tokens) -> std::io::Result<()> {
        assert!(std::mem::take(&mut self.is_leaving), "it has left");
        self.id = id;
        Ok(())
    }

    fn next_deadline(&self) -> Nanos {
        Nanos::NEVER
    }

    fn tick(&mut self, _: &mut client::Context<'_>) {}

    fn is_done(&self) -> bool {
        self.is_closed && self.asks
    }
}

#[tokio::test]
async fn a_disk_takes_the_place_of_another_beneath_its_clients() {
    for kind in [None, Some(ReactorKind::Epoll)] {
        let (_log, events) = EventLog::start(None).unwrap();
        let shard = ShardHandle::start(0, 1, kind, events).unwrap();
        let (other, _peer) = disk("other", Mode::WriteThrough);
        let other = shard.sender().add(other).await.unwrap();
        let (new, _peer) = disk("disk", Mode::WriteThrough);
        let handle = shard.sender().add(new).await.unwrap();
        let answers = Arc::new(AtomicUsize::new(0));
        let more_than = async |count: usize| {
            while answers.load(Ordering::Relaxed) <= count {
                handle.stats().await.unwrap();
            }
        };
        handle.connect(Box::new(NewReader(handle.id(), answers.clone())), Box::new(())).unwrap();
        for round in 0..3 {
            more_than(answers.load(Ordering::Relaxed) + 10).await;
            let (new, _peer) = disk("disk", Mode::WriteThrough);
            let memory = Arc::downgrade(&new.memory);
            let early = shard.sender().replace(&handle, new).await.unwrap_err().to_string();
            assert!(early.contains("at work") && memory.strong_count() == 0, "{early}");
            let ended = handle.end_beneath(false).await.unwrap();
            assert_eq!((ended.id, ended.is_quiet), (handle.id(), true));
            let at_the_end = answers.load(Ordering::Relaxed);
            assert!(other.flush().await.unwrap());
            assert_eq!(answers.load(Ordering::Relaxed), at_the_end, "its client waits");
            let again = handle.end_beneath(false).await.unwrap_err().to_string();
            assert!(again.contains("ending"), "{again}");
            assert!(handle.detach().await.unwrap_err().to_string().contains("opened again"));
            // One that cannot be taken leaves the place to the next.
            let (lacking, _peer) = disk("disk", Mode::WriteBack);
            assert!(shard.sender().replace(&handle, lacking).await.is_err());
            let (new, _peer) = disk("disk", Mode::WriteThrough);
            let memory = Arc::downgrade(&new.memory);
            shard.sender().replace(&handle, new).await.unwrap();
            more_than(at_the_end).await;
            assert_eq!(handle.stats().await.unwrap().connections, 1);
            if round == 2 {
                let all = shard.drain().unwrap().await.unwrap();
                let names: Vec<_> = all.iter().map(|it| (it.id, it.name.as_str())).collect();
                assert_eq!(names, [(other.id(), "other"), (handle.id(), "disk")], "each once");
            } else {
                assert!(memory.strong_count() > 0);
            }
        }
    }
}

/// Keeps the shard from its next command until it is told to go on; the second says when it has begun.
fn stop(disk: &DiskHandle) -> (mpsc::Sender<()>, mpsc::Receiver<()>) {
    let ((go_on, wait), (begin, has_begun)) = (mpsc::channel(), mpsc::channel());
    let operation = move |_: &mut mailbox::Visit<'_>| {
        begin.send(()).unwrap();
        wait.recv().unwrap();
    };
    disk.home.shard().send(mailbox::Command::Disk(disk.id(), Box::new(operation))).ok().unwrap();
    (go_on, has_begun)
}

#[tokio::test]
async fn a_disk_whose_end_finds_no_room_in_the_mailbox_holds_its_clients_no_longer() {
    let (_log, events) = EventLog::start(None).unwrap();
    let shard = ShardHandle::start(0, 1, None, events).unwrap();
    let (new, _peer) = disk("disk", Mode::WriteThrough);
    let handle = shard.sender().add(new).await.unwrap();
    let (first, _begun) = stop(&handle);
    let ending = handle.clone();
    let end = tokio::spawn(async move { ending.end_beneath(false).await });
    // It has asked for its clients to be held.
    tokio::task::yield_now().await;
    let (second, has_held) = stop(&handle);
    first.send(()).unwrap();
    has_held.recv().unwrap();
    let nothing = || mailbox::Command::Disk(handle.id(), Box::new(|_| ()));
    while handle.home.shard().send(nothing()).is_ok() {}
    assert!(end.await.unwrap().is_err());
    second.send(()).unwrap();
    while handle.stats().await.is_err() {
        tokio::task::yield_now().await;
    }
    handle.detach().await.unwrap();
}

#[tokio::test]
async fn a_disk_goes_to_another_shard_and_its_clients_with_it() {
    for kind in [None, Some(ReactorKind::Epoll)] {
        let (_log, events) = EventLog::start(None).unwrap();
        let start = |index| ShardHandle::start(index, 2, kind, events.clone()).unwrap();
        let shards = [start(0), start(1)];
        let senders = [shards[0].sender(), shards[1].sender()];
        let (stays, _peer) = disk("stays", Mode::WriteThrough);
        let stays = senders[0].add(stays).await.unwrap();
        let mut peers = Vec::new();
        let mut handles = Vec::new();
        for name in ["one", "two"] {
            let (new, peer) = disk(name, Mode::WriteThrough);
            handles.push(senders[0].add(new).await.unwrap());
            peers.push(peer);
        }
        let answers: [Arc<AtomicUsize>; 3] = Default::default();
        let asks = |count: usize| answers[count].load(Ordering::Relaxed);
        let goes_on = async |at: usize, before: usize| {
            while asks(at) <= before {
                stays.stats().await.unwrap();
            }
        };
        let connect = |at: usize, disk: &DiskHandle| {
            let reader = NewReader(disk.id(), answers[at].clone());
            disk.connect(Box::new(reader), Box::new(())).unwrap();
        };
        connect(0, &handles[0]);
        connect(1, &handles[1]);
        connect(2, &stays);
        for round in 0..6_u32 {
            let (to, clients) = ((round as usize + 1) % 2, 1 + round / 2);
            for disk in &handles {
                disk.end_beneath(false).await.unwrap();
            }
            let at_the_end = [asks(0), asks(1)];
            goes_on(2, asks(2)).await;
            for (disk, name) in handles.iter().zip(["one", "two"]) {
                let (new, peer) = self::disk(name, Mode::WriteThrough);
                senders[to].replace(disk, new).await.unwrap();
                peers.push(peer);
                // Until its clients go over it is that of before that is asked.
                assert_eq!(disk.stats().await.unwrap().connections, clients);
            }
            assert_eq!([asks(0), asks(1)], at_the_end, "its clients wait");
            senders[to].take_clients(&handles).await.unwrap();
            for at in [0, 1] {
                goes_on(at, at_the_end[at]).await;
                assert_eq!(handles[at].stats().await.unwrap().connections, clients);
            }
            // A handle of before finds it, too, and who comes later is one more.
            if to == 0 {
                connect(0, &handles[0]);
                connect(1, &handles[1]);
            }
        }
        // It has not ended; and one that was to come, and does not.
        let early = senders[1].take_clients(&handles).await.unwrap_err().to_string();
        assert!(early.contains("at work"), "{early}");
        for disk in &handles {
            disk.end_beneath(false).await.unwrap();
        }
        let before = [asks(0), asks(1)];
        let (new, peer) = disk("one", Mode::WriteThrough);
        peers.push(peer);
        senders[1].replace(&handles[0], new).await.unwrap();
        assert!(senders[1].give_back(&handles[0]).await.unwrap().is_quiet);
        for (handle, name) in handles.iter().zip(["one", "two"]) {
            let (new, peer) = disk(name, Mode::WriteThrough);
            peers.push(peer);
            senders[0].replace(handle, new).await.unwrap();
        }
        for at in [0, 1] {
            goes_on(at, before[at]).await;
        }
        let drained = |at: usize| shards[at].drain().unwrap();
        let first: Vec<_> = drained(0).await.unwrap().into_iter().map(|it| it.name).collect();
        assert_eq!(first, ["stays", "one", "two"]);
        assert!(drained(1).await.unwrap().is_empty(), "they left it");
    }
}

#[tokio::test]
async fn what_is_meant_for_a_disk_that_has_gone_to_another_shard_follows_it() {
    let (_log, events) = EventLog::start(None).unwrap();
    let start = |index| ShardHandle::start(index, 2, None, events.clone()).unwrap();
    let shards = [start(0), start(1)];
    let (new, _first) = disk("disk", Mode::WriteThrough);
    let handle = shards[0].sender().add(new).await.unwrap();
    // As somebody has it who has looked up its shard, and goes on later.
    let late = DiskHandle { home: Home::new(shards[0].sender().0), ..handle.clone() };
    let answers = Arc::new(AtomicUsize::new(0));
    handle.end_beneath(false).await.unwrap();
    let (new, _second) = disk("disk", Mode::WriteThrough);
    shards[1].sender().replace(&handle, new).await.unwrap();
    shards[1].sender().take_clients(std::slice::from_ref(&handle)).await.unwrap();
    late.connect(Box::new(NewReader(late.id(), answers.clone())), Box::new(())).unwrap();
    while answers.load(Ordering::Relaxed) < 10 {
        assert_eq!(late.stats().await.unwrap().name, "disk");
    }
    late.wake();
    assert!(late.flush().await.unwrap());
    assert_eq!(handle.stats().await.unwrap().connections, 1);
    assert!(shards[0].drain().unwrap().await.unwrap().is_empty());
    assert_eq!(shards[1].drain().unwrap().await.unwrap().len(), 1);
}
