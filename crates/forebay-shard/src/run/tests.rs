use forebay_backends::OpenOptions;
use forebay_core::config::Mode;
use forebay_host::events::EventLog;
use forebay_host::fence::Guard;
use forebay_io::mailbox::channel;
use forebay_io::reactor::ReactorKind;

use super::*;
use crate::JournalShare;
use crate::client::tests::Watched;
use crate::testing::Unattachable;
use crate::tests::{disk, handle_of};

#[tokio::test]
async fn a_shard_without_a_number_for_another_disk_refuses_it_and_goes_on() {
    let (_log, events) = EventLog::start(None).unwrap();
    let reactor = Reactor::new(8, None).unwrap();
    let (sender, mailbox) = channel(8, reactor.waker());
    let mut shard = Shard::new(reactor, mailbox, events);
    shard.disks.use_numbers_up_to(DISKS_MAX - 1);
    let mut attach = |new: NewDisk| {
        let handle = handle_of(&new, &sender);
        (shard.attach(clock(), new, &handle, sender.clone()), handle.id)
    };
    let (last, _peer) = disk("last", Mode::WriteThrough);
    let (attached, id) = attach(last);
    attached.unwrap();
    let (more, mut peer) = disk("more", Mode::WriteThrough);
    let memory = Arc::downgrade(&more.memory);
    let error = attach(more).0.unwrap_err();
    assert!(error.contains("1048576 disks") && error.contains("restart"), "{error}");
    assert_eq!(memory.strong_count(), 0);
    assert!(matches!(std::io::Read::read(&mut peer, &mut [0]), Ok(0)), "its connection is closed");
    assert_eq!(shard.disks.places(), 0..1);
    assert!(shard.takes_clients(id));
}

#[tokio::test]
async fn what_a_disk_began_that_could_not_be_taken_does_not_complete_for_the_next_one() {
    for kind in [None, Some(ReactorKind::Epoll)] {
        let (_log, events) = EventLog::start(None).unwrap();
        let reactor = Reactor::new(8, kind).unwrap();
        let (sender, mailbox) = channel(8, reactor.waker());
        let mut shard = Shard::new(reactor, mailbox, events);
        let mut attach = |new: NewDisk| {
            let handle = handle_of(&new, &sender);
            shard.attach(clock(), new, &handle, sender.clone())
        };
        // Its journal listens by the time that primary storage is not taken.
        let (mut lacking, peer) = disk("lacking", Mode::WriteThrough);
        let memory = forebay_backends::open(&"mem:1MiB".parse().unwrap(), OpenOptions::default());
        let listening =
            std::mem::replace(&mut lacking.backend, Box::new(Unattachable(memory.unwrap())));
        lacking.journal =
            Some(JournalShare { backend: listening, revoker: None, guard: Guard::Itself });
        assert!(attach(lacking).unwrap_err().contains("no threads"));
        let (next, _peer) = disk("next", Mode::WriteThrough);
        attach(next).unwrap();
        drop(peer);
        let (answer, drained) = oneshot::channel();
        assert!(sender.answer(Command::Drain(answer)));
        shard.run().unwrap();
        let names: Vec<_> = drained.await.unwrap().into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["next"]);
    }
}

#[tokio::test]
async fn a_client_that_always_has_work_does_not_keep_the_shard_from_its_completions() {
    let (_log, events) = EventLog::start(None).unwrap();
    let reactor = Reactor::new(8, None).unwrap();
    let (_sender, mailbox) = channel(8, reactor.waker());
    let mut shard = Shard::new(reactor, mailbox, events);
    let client = Watched::default();
    client.has_work_for_ever(|| {
        let end = clock().plus(TURN_MAX);
        while clock() < end {}
    });
    shard.let_in(clock(), Box::new(client.clone()), Box::new(()));
    for turns in 1..4 {
        let now = shard.time.waited(clock());
        shard.turn(now);
        assert_eq!(client.resumed(), turns, "one round");
        assert_eq!(shard.next_deadline(), Nanos(0), "it goes on without a wait");
    }
}
