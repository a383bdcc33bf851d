//! How disks and shards end.

use super::*;

#[tokio::test]
async fn a_disk_that_was_detached_keeps_no_memory() {
    for kind in [None, Some(ReactorKind::Epoll)] {
        let (_log, events) = EventLog::start(None).unwrap();
        let shard = ShardHandle::start(0, 1, kind, events).unwrap();
        let (stays, _peer) = disk("stays", Mode::WriteThrough);
        let stays = shard.sender().add(stays).await.unwrap();
        for round in 0..3 {
            let lives = Arc::default();
            let (mut goes, _peer) = disk_that("goes", Mode::WriteThrough, Arc::clone(&lives));
            // It goes back to the kernel piece by piece.
            goes.memory = Arc::new(Arena::new(goes.memory.len() + (40 << 20)).unwrap());
            let memory = Arc::downgrade(&goes.memory);
            let goes = shard.sender().add(goes).await.unwrap();
            assert!(goes.flush().await.unwrap() && memory.strong_count() > 0);
            goes.detach().await.unwrap();
            assert_eq!(memory.strong_count(), 0);
            assert!(goes.detach().await.is_ok() && goes.stats().await.is_ok(), "until it is left");
            goes.let_go(round > 0);
            while Arc::strong_count(&lives) > 1 {
                assert!(stays.flush().await.unwrap());
            }
        }
        let drained = shard.drain().unwrap().await.unwrap();
        let names: Vec<_> = drained.iter().map(|disk| disk.name.as_str()).collect();
        assert_eq!(names, ["goes", "stays"], "one was not settled");
    }
}

#[tokio::test]
async fn an_end_knows_of_what_a_process_before_has_sent_and_a_detach_waits_for_it() {
    let (_log, events) = EventLog::start(None).unwrap();
    let shard = ShardHandle::start(0, 1, None, events).unwrap();
    let holds = Arc::new(AtomicBool::new(true));
    let (goes, _peer) = disk_that("goes", Mode::WriteThrough, holds.clone());
    let goes = shard.sender().add(goes).await.unwrap();
    let detached = tokio::spawn({
        let goes = goes.clone();
        async move { goes.detach().await.unwrap() }
    });
    while !goes.stats().await.unwrap().is_detaching {
        tokio::task::yield_now().await;
    }
    assert!(goes.stats().await.is_ok() && !detached.is_finished());
    holds.store(false, Ordering::Relaxed);
    // It hears of it with its next turn.
    assert!(goes.stats().await.is_ok());
    assert!(detached.await.unwrap().is_quiet);

    // The daemon ends meanwhile.
    let holds = || Arc::new(AtomicBool::new(true));
    let (stays, _other) = disk_that("stays", Mode::WriteThrough, holds());
    shard.sender().add(stays).await.unwrap();
    let (waits, _third) = disk_that("waits", Mode::WriteThrough, holds());
    let waits = shard.sender().add(waits).await.unwrap();
    let detached = tokio::spawn({
        let waits = waits.clone();
        async move { waits.detach().await }
    });
    while !waits.stats().await.unwrap().is_detaching {
        tokio::task::yield_now().await;
    }
    let drained = shard.drain().unwrap().await.unwrap();
    let is_quiet = |name| drained.iter().find(|disk| disk.name == name).unwrap().is_quiet;
    assert!(is_quiet("goes") && !is_quiet("stays") && !is_quiet("waits"));
    assert!(!drained.iter().find(|disk| disk.name == "waits").unwrap().is_detaching);
    // Whoever has asked is not told that it was.
    assert!(detached.await.unwrap().is_ok_and(|drained| !drained.is_detaching));
}

#[tokio::test]
async fn a_disk_that_ends_neither_flushes_nor_drops_its_cache() {
    let (_log, events) = EventLog::start(None).unwrap();
    let shard = ShardHandle::start(0, 1, None, events).unwrap();
    let holds = Arc::new(AtomicBool::new(true));
    let (goes, _peer) = disk_that("goes", Mode::WriteThrough, holds.clone());
    let goes = shard.sender().add(goes).await.unwrap();
    assert_eq!(goes.drop_cache().await.map(|dropped| dropped.blocks), Ok(0));
    let detached = tokio::spawn({
        let goes = goes.clone();
        async move { goes.detach().await.unwrap() }
    });
    while !goes.stats().await.unwrap().is_detaching {
        tokio::task::yield_now().await;
    }
    // It ends in the turn that carries this out, at the latest, and then waits for what a process before has sent.
    let _ = goes.flush().await;
    assert!(!detached.is_finished());
    assert_eq!((goes.flush().await, goes.drop_cache().await), (Err(Gone), Err(Gone)));
    holds.store(false, Ordering::Relaxed);
    assert!(goes.stats().await.is_ok());
    detached.await.unwrap();
}

#[tokio::test]
async fn a_shard_ends_however_many_commands_wait() {
    let (_log, events) = EventLog::start(None).unwrap();
    let shard = ShardHandle::start(0, 1, None, events).unwrap();
    let (new, _peer) = disk("disk", Mode::WriteThrough);
    let handle = shard.sender().add(new).await.unwrap();
    let (goes_on, has_begun) = stop(&handle);
    has_begun.recv().unwrap();
    let nothing = || mailbox::Command::Disk(handle.id(), Box::new(|_| ()));
    while handle.home.shard().send(nothing()).is_ok() {}
    let drained = shard.drain().unwrap();
    goes_on.send(()).unwrap();
    assert_eq!(drained.await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_clients_of_a_disk_that_cannot_be_opened_again_are_told_of_and_can_be_ended() {
    let (_log, events) = EventLog::start(None).unwrap();
    let shard = ShardHandle::start(0, 1, None, events).unwrap();
    let (stays, _peer) = disk("stays", Mode::WriteThrough);
    let stays = shard.sender().add(stays).await.unwrap();
    let lives = Arc::default();
    let (goes, _other) = disk_that("goes", Mode::WriteThrough, Arc::clone(&lives));
    let goes = shard.sender().add(goes).await.unwrap();
    let answers = Arc::new(AtomicUsize::new(0));
    goes.connect(Box::new(NewReader(goes.id(), answers.clone())), Box::new(())).unwrap();
    while answers.load(Ordering::Relaxed) < 10 {
        goes.stats().await.unwrap();
    }
    let early = goes.dismiss_clients().await.unwrap_err().to_string();
    assert!(early.contains("at work") && goes.is_open(), "{early}");
    goes.end_beneath(false).await.unwrap();
    // As a rule that takes a moment, of which nobody has to hear.
    let moment = goes.pause(true).await.unwrap_err().to_string();
    assert!(moment.contains("try again in a moment"), "{moment}");
    assert_eq!(goes.stats().await.unwrap().primary_storage, PrimaryState::Connected);

    goes.note_unopened(Some("it cannot be opened: why".to_owned()));
    let status = goes.stats().await.unwrap();
    assert_eq!((status.primary_storage, status.connections), (PrimaryState::Lost, 1));
    assert_eq!(status.primary_trouble.as_deref(), Some("it cannot be opened: why"));
    for error in [
        goes.pause(false).await.unwrap_err(),
        goes.detach().await.unwrap_err(),
        goes.quiesce(Duration::ZERO, Duration::ZERO).await.unwrap_err(),
        goes.set_mode(Mode::WriteAround).await.unwrap_err(),
    ] {
        assert_eq!(error.to_string(), "it cannot be opened: why");
    }

    goes.dismiss_clients().await.unwrap();
    assert_eq!(goes.stats().await.unwrap().connections, 0);
    assert!(!goes.is_open(), "no client may come");
    let (late, _third) = disk("goes", Mode::WriteThrough);
    assert!(shard.sender().replace(&goes, late).await.is_err(), "nobody takes its place");
    goes.let_go(true);
    while Arc::strong_count(&lives) > 1 {
        assert!(stays.flush().await.unwrap());
    }
    assert_eq!(shard.drain().unwrap().await.unwrap().len(), 1);
}

/// A client of two disks, which goes when it is told to, unless it waits for the other one.
struct Waiting {
    disk: [DiskId; 1],
    waits: Arc<AtomicBool>,
    woken: Arc<AtomicUsize>,
    is_closed: bool,
}

impl Newcomer for Waiting {
    fn disks(&self) -> &[DiskId] {
        &self.disk
    }

    fn start(
        self: Box<Self>,
        _: &mut client::Context<'_>,
        _: u32,
        _: Tokens,
    ) -> std::io::Result<Box<dyn Client>> {
        Ok(self)
    }
}

impl Client for Waiting {
    fn disks(&self) -> &[DiskId] {
        &self.disk
    }

    fn on_completion(&mut self, _: &mut client::Context<'_>, _: Completion) {}

    fn on_reply(&mut self, _: &mut client::Context<'_>, _: Answer<'_>) {}

    fn flush(&mut self, _: &mut client::Context<'_>) {}

    fn wants_resume(&self) -> bool {
        false
    }

    fn resume(&mut self, _: &mut client::Context<'_>) -> bool {
        false
    }

    fn close(&mut self, _: &mut client::Context<'_>) {
        self.is_closed = true;
    }

    fn give_up(&mut self, _: &mut client::Context<'_>) {}

    fn wake(&mut self, _: &mut client::Context<'_>) {
        self.woken.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&mut self, _: &mut client::Context<'_>) -> bool {
        false
    }

    fn enter(&mut self, _: &mut client::Context<'_>, _: u32, _: Tokens) -> std::io::Result<()> {
        unreachable!("it does not leave")
    }

    fn next_deadline(&self) -> Nanos {
        Nanos::NEVER
    }

    fn tick(&mut self, _: &mut client::Context<'_>) {}

    fn is_done(&self) -> bool {
        self.is_closed && !self.waits.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn a_disk_whose_clients_do_not_leave_can_be_opened_again() {
    let (_log, events) = EventLog::start(None).unwrap();
    let shard = ShardHandle::start(0, 1, None, events).unwrap();
    let (new, _peer) = disk("disk", Mode::WriteThrough);
    let handle = shard.sender().add(new).await.unwrap();
    let waits = Arc::new(AtomicBool::new(true));
    let woken = Arc::new(AtomicUsize::new(0));
    let client = Waiting {
        disk: [handle.id()],
        waits: waits.clone(),
        woken: woken.clone(),
        is_closed: false,
    };
    handle.connect(Box::new(client), Box::new(())).unwrap();
    handle.end_beneath(false).await.unwrap();
    for _ in 0..2 {
        let spans = [Duration::ZERO, Duration::from_millis(5)];
        let why = handle.dismiss_clients_within(spans).await.unwrap_err().to_string();
        assert!(why.contains("do not leave"), "{why}");
        assert_eq!(handle.stats().await.unwrap().connections, 1);
        assert!(handle.is_open(), "others may come, and wait");
    }

    let (again, _other) = disk("disk", Mode::WriteThrough);
    let before = woken.load(Ordering::Relaxed);
    shard.sender().replace(&handle, again).await.unwrap();
    while woken.load(Ordering::Relaxed) == before {
        assert!(handle.stats().await.is_ok(), "what it waits for may have come to the disk before");
    }
    let answers = Arc::new(AtomicUsize::new(0));
    handle.connect(Box::new(NewReader(handle.id(), answers.clone())), Box::new(())).unwrap();
    while answers.load(Ordering::Relaxed) < 10 {
        assert!(handle.stats().await.is_ok());
    }
    // The one that was told to go does so when it can.
    assert_eq!(handle.stats().await.unwrap().connections, 2);
    waits.store(false, Ordering::Relaxed);
    handle.wake();
    while handle.stats().await.unwrap().connections > 1 {}
    assert_eq!(shard.drain().unwrap().await.unwrap().len(), 1);
}

#[tokio::test]
async fn clients_are_dismissed_through_a_full_mailbox() {
    let (_log, events) = EventLog::start(None).unwrap();
    let shard = ShardHandle::start(0, 1, None, events).unwrap();
    let (new, _peer) = disk("disk", Mode::WriteThrough);
    let handle = shard.sender().add(new).await.unwrap();
    handle.end_beneath(false).await.unwrap();
    let (goes_on, has_begun) = stop(&handle);
    has_begun.recv().unwrap();
    let nothing = || mailbox::Command::Disk(handle.id(), Box::new(|_| ()));
    while handle.home.shard().send(nothing()).is_ok() {}
    let dismissing = tokio::spawn({
        let handle = handle.clone();
        async move { handle.dismiss_clients().await }
    });
    // It finds no room.
    tokio::task::yield_now().await;
    goes_on.send(()).unwrap();
    dismissing.await.unwrap().unwrap();
    assert_eq!(shard.drain().unwrap().await.unwrap().len(), 1);
}

#[test]
fn a_client_that_comes_to_a_full_mailbox_is_taken() {
    let (disk, shard) = testing::hung(1 << 20);
    let new = || Box::new(NewReader(disk.id(), Arc::default()));
    let full = || {
        let command = mailbox::Command::Connect(new(), Box::new(()));
        disk.home.shard().send(command).is_err()
    };
    assert!((0..=MAILBOX_MAX).any(|_| full()));
    assert!(disk.connect(new(), Box::new(())).is_ok());
    drop(shard);
    assert!(disk.connect(new(), Box::new(())).is_err());
}
