use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use forebay_frontends::client::{Disks, Port};
use forebay_io::reactor::Reactor;

use super::*;

/// What a client is like, and how often it was asked.
#[derive(Debug, Default)]
struct Ring {
    is_looked_at: bool,
    has_work: bool,
    is_gone: bool,
    looks: u32,
    rests: u32,
    resumed: u32,
    /// What it does when it goes on; it has work for ever then.
    works: Option<fn()>,
}

/// A client whose requests appear by themselves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched(Arc<Mutex<Ring>>);

impl Watched {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap()
    }

    pub(crate) fn has_work_for_ever(&self, works: fn()) {
        let mut ring = self.ring();
        (ring.has_work, ring.works) = (true, Some(works));
    }

    pub(crate) fn resumed(&self) -> u32 {
        self.ring().resumed
    }

    fn counts(&self) -> (u32, u32, u32) {
        let ring = self.ring();
        (ring.looks, ring.rests, ring.resumed)
    }
}

impl Newcomer for Watched {
    fn disks(&self) -> &[DiskId] {
        &[]
    }

    fn start(
        self: Box<Self>,
        _cx: &mut Context<'_>,
        _id: u32,
        _tokens: Tokens,
    ) -> io::Result<Box<dyn Client>> {
        Ok(self)
    }
}

impl Client for Watched {
    fn disks(&self) -> &[DiskId] {
        &[]
    }

    fn on_completion(&mut self, _cx: &mut Context<'_>, _completion: Completion) {}

    fn on_reply(&mut self, _cx: &mut Context<'_>, _answer: Answer<'_>) {}

    fn flush(&mut self, _cx: &mut Context<'_>) {}

    fn wants_resume(&self) -> bool {
        self.ring().has_work
    }

    fn resume(&mut self, _cx: &mut Context<'_>) -> bool {
        let mut ring = self.ring();
        ring.resumed += 1;
        match ring.works {
            Some(works) => works(),
            None => return std::mem::take(&mut ring.has_work),
        }
        true
    }

    fn close(&mut self, _cx: &mut Context<'_>) {}

    fn give_up(&mut self, _cx: &mut Context<'_>) {}

    fn looks_out(&self) -> bool {
        self.ring().is_looked_at
    }

    fn look(&mut self) -> bool {
        let mut ring = self.ring();
        ring.looks += 1;
        ring.has_work
    }

    fn rest(&mut self) -> bool {
        let mut ring = self.ring();
        ring.rests += 1;
        ring.is_looked_at = ring.has_work;
        ring.has_work
    }

    fn leave(&mut self, _cx: &mut Context<'_>) -> bool {
        unreachable!("it uses no disk")
    }

    fn enter(&mut self, _cx: &mut Context<'_>, _id: u32, _tokens: Tokens) -> io::Result<()> {
        unreachable!("it does not leave")
    }

    fn next_deadline(&self) -> Nanos {
        Nanos::NEVER
    }

    fn tick(&mut self, _cx: &mut Context<'_>) {}

    fn is_done(&self) -> bool {
        self.ring().is_gone
    }
}

struct NoDisk;

impl Disks for NoDisk {
    fn port(&mut self, disk: DiskId) -> &mut Port {
        unreachable!("{disk:?}")
    }

    fn find_port(&mut self, _: DiskId) -> Option<&mut Port> {
        None
    }
}

struct World {
    clients: Clients,
    reactor: Reactor,
}

impl World {
    fn new() -> World {
        World { clients: Clients::new(), reactor: Reactor::new(8, None).unwrap() }
    }

    fn with<R>(&mut self, work: impl FnOnce(&mut Clients, &mut Context<'_>) -> R) -> R {
        let mut cx = Context { now: Nanos(0), reactor: &mut self.reactor, disks: &mut NoDisk };
        work(&mut self.clients, &mut cx)
    }

    fn add(&mut self, is_looked_at: bool) -> Watched {
        let client = Watched::default();
        client.ring().is_looked_at = is_looked_at;
        let new = Box::new(client.clone());
        self.with(|clients, cx| clients.add(cx, new, Box::new(())).unwrap());
        self.flush();
        client
    }

    fn flush(&mut self) {
        self.with(|clients, cx| clients.flush(cx));
    }

    /// Something happened to every client, as a wake-up does to those of a disk.
    fn touch_all(&mut self) {
        let keys: Vec<usize> = self.clients.slots.iter().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.clients.touch(key));
        self.flush();
    }
}

#[test]
fn only_those_that_look_out_are_looked_at_and_each_once() {
    let mut world = World::new();
    let (ring, socket) = (world.add(true), world.add(false));
    // However often something happens to it.
    world.touch_all();
    world.touch_all();
    assert!(world.clients.is_on());
    assert!(!world.clients.has_work());
    assert_eq!((ring.counts(), socket.counts()), ((1, 0, 0), (0, 0, 0)));
    ring.ring().is_looked_at = false;
    assert!(!world.clients.has_work());
    assert!(!world.clients.is_on(), "it does not look out any more");
    assert!(!world.clients.has_work() && !world.clients.rest());
    assert_eq!(ring.counts(), (2, 0, 0));
    ring.ring().is_looked_at = true;
    world.touch_all();
    assert!(world.clients.is_on(), "it does again");
    assert_eq!(world.clients.looking.len(), 1);
}

#[test]
fn whoever_has_work_gets_a_turn_and_only_one() {
    let mut world = World::new();
    let (busy, idle) = (world.add(true), world.add(true));
    busy.ring().has_work = true;
    assert!(world.clients.has_work());
    assert!(!world.clients.has_work(), "it waits already");
    world.with(|clients, cx| clients.resume(cx));
    world.flush();
    assert_eq!((busy.counts(), idle.counts()), ((2, 0, 1), (2, 0, 0)));
    assert!(!world.clients.has_work());
}

#[test]
fn work_that_comes_while_all_go_to_rest_is_found() {
    let mut world = World::new();
    let (busy, idle) = (world.add(true), world.add(true));
    busy.ring().has_work = true;
    assert!(world.clients.rest(), "the shard does not sleep");
    world.with(|clients, cx| clients.resume(cx));
    assert_eq!((busy.counts(), idle.counts()), ((0, 1, 1), (0, 1, 0)));
    // Who rests tells of his next request himself.
    assert_eq!(world.clients.looking.len(), 1);
    assert!(!world.clients.rest());
    assert!(!world.clients.is_on());
}

#[test]
fn one_that_is_gone_is_not_looked_at_nor_is_whoever_takes_its_place_twice() {
    let mut world = World::new();
    let (gone, stays) = (world.add(true), world.add(true));
    gone.ring().is_gone = true;
    world.touch_all();
    assert!(!world.clients.has_work());
    assert_eq!((gone.counts(), stays.counts()), ((0, 0, 0), (1, 0, 0)));
    let next = world.add(true);
    next.ring().has_work = true;
    assert!(world.clients.has_work());
    assert_eq!((next.counts(), stays.counts()), ((1, 0, 0), (2, 0, 0)));
    world.with(|clients, cx| clients.resume(cx));
    assert_eq!(next.counts(), (1, 0, 1));
}
