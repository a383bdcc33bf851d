//! What a shard does with disks that it is handed.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use forebay_backends::{Backend, BackendIo, Context, OpenOptions, Properties, TokenRange};
use forebay_core::config::{BackendTraits, Config, Mode};
use forebay_core::engine::Engine;
use forebay_core::ids::Nanos;
use forebay_frontends::client::Permission;
use forebay_host::events::EventLog;
use forebay_host::fence::UnreportedLoss;
use forebay_io::arena::Arena;
use forebay_io::reactor::{Completion, ReactorKind, Token};

use super::*;

/// Primary storage that listens on a connection from when it is attached.
struct Listening {
    inner: Box<dyn Backend>,
    socket: Option<OwnedFd>,
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
}

/// A disk without a write log, and the other end of the connection of its primary storage.
fn disk(name: &str, mode: Mode) -> (NewDisk, UnixStream) {
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
    let memory = Arc::new(Arena::new(engine.memory_size() as usize).unwrap());
    let disk = NewDisk {
        name: name.into(),
        engine,
        memory,
        backend: Box::new(Listening { inner, socket: Some(socket.into()) }),
        flash: None,
        log: None,
        journal: None,
        last_write: None,
        unreported_loss: UnreportedLoss::default(),
        mode,
        access: Permission::All,
    };
    (disk, peer)
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
async fn a_disk_that_was_detached_keeps_no_memory() {
    for kind in [None, Some(ReactorKind::Epoll)] {
        let (_log, events) = EventLog::start(None).unwrap();
        let shard = ShardHandle::start(0, 1, kind, events).unwrap();
        let (stays, _peer) = disk("stays", Mode::WriteThrough);
        let stays = shard.sender().add(stays).await.unwrap();
        for _ in 0..3 {
            let (goes, _peer) = disk("goes", Mode::WriteThrough);
            let memory = Arc::downgrade(&goes.memory);
            let goes = shard.sender().add(goes).await.unwrap();
            assert!(goes.flush().await.unwrap() && memory.strong_count() > 0);
            goes.detach().await.unwrap();
            assert_eq!(memory.strong_count(), 0);
            assert!(stays.flush().await.unwrap());
        }
        assert_eq!(shard.drain().unwrap().await.unwrap().len(), 4);
    }
}

#[tokio::test]
async fn a_ram_cache_gets_memory_and_gives_it_back_while_its_disk_works() {
    const MIB: u64 = 1 << 20;
    for kind in [None, Some(ReactorKind::Epoll)] {
        let (_log, events) = EventLog::start(None).unwrap();
        let shard = ShardHandle::start(0, 1, kind, events).unwrap();
        let (mut new, _peer) = disk("disk", Mode::WriteThrough);
        let config = Config { ram_bytes: MIB, ram_room: 4 * MIB, ..*new.engine.config() };
        new.engine = Engine::new(config).unwrap();
        let size = new.engine.memory_size() as usize;
        let spare = new.engine.ram_spare().unwrap();
        new.memory = Arc::new(Arena::with_room(size, spare.start..spare.end, None).unwrap());
        let memory = new.memory.clone();
        let disk = shard.sender().add(new).await.unwrap();

        assert!(disk.resize_ram(5 * MIB).await.unwrap_err().to_string().contains("room"));
        let mut wanted = disk.resize_ram(4 * MIB).await.unwrap().wanted.expect("memory is to come");
        assert_eq!(wanted.place, spare.start..spare.end);
        assert!(memory.spare().is_empty());
        assert!(memory.populate(wanted.place.start, 3 << 20, &wanted.is_wanted));
        (wanted.tell)(wanted.place.start + MIB);
        let ram = disk.stats().await.unwrap().engine.ram;
        assert_eq!((ram.slots, ram.slots_ready), (512, 256));
        // Another size while memory is still to come.
        for bytes in [3 * MIB, 4 * MIB] {
            let again = disk.resize_ram(bytes).await.unwrap().wanted.expect("memory is to come");
            assert_eq!(again.place, wanted.place.start + MIB..spare.start + bytes - MIB);
        }
        // Who was to give it before gives no more, and is not listened to.
        assert!(!(wanted.is_wanted)());
        (wanted.tell)(wanted.place.end);
        assert_eq!(disk.stats().await.unwrap().engine.ram.slots_ready, 256);

        assert!(disk.resize_ram(MIB).await.unwrap().wanted.is_none());
        while memory.spare() != (spare.start..spare.end) {
            disk.stats().await.unwrap();
        }
        let ram = disk.stats().await.unwrap().engine.ram;
        assert_eq!((ram.slots, ram.slots_ready), (128, 128));
        assert_eq!(shard.drain().unwrap().await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_size_that_cannot_be_had_keeps_no_memory_from_coming_that_is_on_its_way() {
    const MIB: u64 = 1 << 20;
    let (_log, events) = EventLog::start(None).unwrap();
    let shard = ShardHandle::start(0, 1, None, events).unwrap();
    let (mut new, _peer) = disk("disk", Mode::WriteThrough);
    let config = Config { ram_bytes: MIB, ram_room: 4 * MIB, ..*new.engine.config() };
    new.engine = Engine::new(config).unwrap();
    let place = new.engine.withhold_ram().unwrap();
    let size = new.engine.memory_size() as usize;
    let spare = new.engine.ram_spare().unwrap();
    // Less room than the engine takes there to be.
    new.memory = Arc::new(Arena::with_room(size, spare.start..spare.end - MIB, None).unwrap());
    let memory = Arc::downgrade(&new.memory);
    let disk = shard.sender().add(new).await.unwrap();
    let mut wanted = disk.wants_memory("disk".into(), memory, place);
    let error = disk.resize_ram(4 * MIB).await.unwrap_err().to_string();
    assert!(error.contains("there is no memory"), "{error}");
    assert!((wanted.is_wanted)());
    (wanted.tell)(place.end);
    assert_eq!(disk.stats().await.unwrap().engine.ram.slots_ready, 128);
    assert_eq!(shard.drain().unwrap().await.unwrap().len(), 1);
}
