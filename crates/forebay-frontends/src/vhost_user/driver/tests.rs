use super::super::inflight::Region;
use super::super::memory::GuestMap;
use super::super::ring::RingSetup;
use super::*;
use crate::client::Client;
use crate::client::{Permission, Port};
use forebay_core::ids::Nanos;
use forebay_io::reactor::{Completion, Token};
use guest::{Guest, NEXT, RING, SIZE, Shard, WRITE};
use vm_memory::{Bytes, GuestAddress};

mod guest;
mod larger;
mod long;
mod restarts;

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const SERIAL: u32 = 8;
const DISCARD: u32 = 11;

fn region() -> Region {
    Region::create(2, RING).unwrap().0
}

/// A shard with one queue whose guest has kicked.
fn one(guest: &mut Guest) -> (Shard, Orders) {
    let mut shard = Shard::new();
    let orders = shard.attach(guest);
    guest.kick();
    (shard, orders)
}

#[test]
fn what_is_written_is_read_from_primary_storage_and_from_ram() {
    let mut guest = Guest::new(0, None);
    let (mut shard, _orders) = one(&mut guest);
    guest.ask(0, IN, 8, 4096, None);
    assert_eq!(shard.answers(&mut guest, 1), [(0, 4097, 0)]);
    let expect = shard.backend[8 * 512..][..4096].to_vec();
    assert_eq!(guest.data(0, 4096), expect);
    assert!(guest.was_called());
    guest.ask(3, IN, 9, 1024, None);
    guest.ask(6, OUT, 10, 2048, Some(7));
    guest.kick();
    assert_eq!(shard.answers(&mut guest, 2), [(3, 1025, 0), (6, 1, 0)]);
    assert_eq!(guest.data(3, 1024), expect[512..1536]);
    assert_eq!(shard.backend[10 * 512..][..2048], [7; 2048]);
    guest.ask(0, IN, 8, 4096, None);
    guest.ask(9, FLUSH, 0, 0, None);
    guest.kick();
    shard.answers(&mut guest, 2);
    assert_eq!(guest.data(0, 4096)[1024..3072], [7; 2048]);
    assert!(guest.was_called());
}

#[test]
fn a_guest_has_to_kick_only_when_the_shard_sleeps() {
    let with = |run: &dyn Fn(&mut dyn Client, &mut Guest)| {
        let mut guest = Guest::new(0, None);
        let mut shard = Shard::new();
        let _orders = shard.attach(&guest);
        let client = shard.clients[0].as_mut().unwrap();
        assert!(client.looks_out() && !client.look() && !client.wants_resume());
        run(client.as_mut(), &mut guest);
        assert_eq!(shard.answers(&mut guest, 1), [(0, 4097, 0)]);
    };
    with(&|client, guest| {
        guest.ask(0, IN, 8, 4096, None);
        assert!(client.look() && client.wants_resume() && !client.looks_out());
    });
    // What comes between the last look and the sleep is not missed.
    with(&|client, guest| {
        guest.ask(0, IN, 8, 4096, None);
        assert!(client.rest() && client.wants_resume());
    });
    with(&|client, guest| {
        assert!(!client.rest() && !client.looks_out());
        assert_eq!(guest.wanted_kick(), 0, "the first request");
        guest.ask(0, IN, 8, 4096, None);
        assert!(!client.look() && !client.wants_resume(), "its kick is on its way");
        guest.kick();
    });
}

#[test]
fn the_disk_has_a_serial_number() {
    let mut guest = Guest::new(0, None);
    let (mut shard, _orders) = one(&mut guest);
    guest.ask(0, SERIAL, 0, 20, None);
    assert_eq!(shard.answers(&mut guest, 1), [(0, 21, 0)]);
    assert_eq!(guest.data(0, 3), *b"db\0");
}

#[test]
fn what_the_disk_cannot_do_is_an_error_and_nothing_else() {
    let mut guest = Guest::new(0, None);
    let (mut shard, _orders) = one(&mut guest);
    guest.ask(0, IN, SIZE / 512, 512, None);
    guest.ask(3, OUT, SIZE / 512 - 1, 1024, Some(1));
    guest.ask(6, IN, 0, 100, None);
    guest.ask(9, 99, 0, 0, None);
    guest.ask(12, DISCARD, 0, 8, Some(0));
    guest.ask(15, IN, 0, 512, None);
    let mut statuses = shard.answers(&mut guest, 6);
    statuses.sort();
    let expect = [(0, 1, 1), (3, 1, 1), (6, 1, 1), (9, 1, 2), (12, 1, 1), (15, 513, 0)];
    assert_eq!(statuses, expect);
}

#[test]
fn what_a_reservation_forbids_is_an_error_and_changes_nothing() {
    let mut guest = Guest::new(0, None);
    let (mut shard, _orders) = one(&mut guest);
    let before = shard.backend.clone();
    for (access, read) in [(Permission::Reads, (3, 513, 0)), (Permission::Nothing, (3, 1, 1))] {
        shard.port.access = access;
        guest.ask(0, OUT, 0, 4096, Some(9));
        guest.ask(3, IN, 0, 512, None);
        guest.ask(6, FLUSH, 0, 0, None);
        guest.ask(9, SERIAL, 0, 20, None);
        guest.kick();
        let mut answers = shard.answers(&mut guest, 4);
        answers.sort();
        assert_eq!(answers, [(0, 1, 1), read, (6, 1, 0), (9, 21, 0)], "{access:?}");
        assert!(shard.backend == before && shard.port.engine.is_idle());
    }
    shard.port.access = Permission::All;
    guest.ask(0, OUT, 0, 4096, Some(9));
    guest.kick();
    assert_eq!(shard.answers(&mut guest, 1), [(0, 1, 0)]);
    assert_eq!(shard.backend[..4096], [9; 4096]);
}

#[test]
fn a_write_that_was_in_flight_at_a_kill_meets_the_reservation_that_came_before_it_is_done_again() {
    let mut guest = Guest::new(0, Some(region()));
    let (mut shard, orders) = one(&mut guest);
    shard.is_holding = true;
    guest.ask(0, OUT, 0, 4096, Some(9));
    shard.run("the write is under way", |shard| !shard.held.is_empty());
    drop((shard, orders));
    let mut shard = Shard::new();
    shard.port.access = Permission::Reads;
    let _orders = shard.attach(&guest);
    assert_eq!(shard.answers(&mut guest, 1), [(0, 1, 1)]);
    assert!(shard.backend[..4096] != [9; 4096]);
}

#[test]
fn a_full_ring_is_answered_in_turns() {
    let mut guest = Guest::new(0, None);
    let (mut shard, _orders) = one(&mut guest);
    for round in 0..20_u64 {
        for request in 0..u64::from(RING / 3) {
            let sector = (round * 100 + request) % 1000;
            guest.ask(3 * request as u16, IN, sector, 512, None);
        }
        guest.kick();
        shard.answers(&mut guest, (RING / 3).into());
        for request in 0..u64::from(RING / 3) {
            let sector = (round * 100 + request) as usize % 1000;
            assert_eq!(guest.data(3 * request as u16, 512), shard.backend[sector * 512..][..512]);
        }
    }
}

#[test]
fn a_guest_that_changes_its_memory_changes_no_write_under_way() {
    let mut guest = Guest::new(0, None);
    let (mut shard, _orders) = one(&mut guest);
    shard.is_holding = true;
    guest.ask(0, OUT, 0, 4096, Some(5));
    shard.run("the write is under way", |shard| !shard.held.is_empty());
    guest.change_data(0, 4096, 6);
    // Descriptors are read once, too.
    guest.describe(1, u64::MAX, 1, WRITE, 9);
    guest.describe(2, u64::MAX, 1, WRITE, 9);
    shard.is_holding = false;
    assert_eq!(shard.answers(&mut guest, 1), [(0, 1, 0)]);
    assert_eq!(shard.backend[..4096], [5; 4096]);
}

/// Each way to break a ring; `breaks` is given one with a request in flight.
fn check_broken(breaks: impl Fn(&mut Guest)) {
    let (mut guest, mut other) = (Guest::new(0, None), Guest::new(1, None));
    let mut shard = Shard::new();
    let setup = guest.setup();
    let counters = setup.counters.clone();
    let orders = shard.attach_with(setup).unwrap();
    let _other_orders = shard.attach(&other);
    shard.is_holding = true;
    guest.ask(0, IN, 0, 512, None);
    guest.kick();
    shard.run("the read is under way", |shard| !shard.held.is_empty());
    breaks(&mut guest);
    guest.kick();
    shard.run("it is found broken", |_| counters.broken.load(Ordering::Relaxed) == 1);
    // What was taken is answered, nothing more is taken, and the other queue has not noticed.
    shard.is_holding = false;
    assert_eq!(shard.answers(&mut guest, 1), [(0, 513, 0)]);
    guest.ask(9, IN, 0, 512, None);
    guest.kick();
    other.ask(0, IN, 0, 512, None);
    other.kick();
    assert_eq!(shard.answers(&mut other, 1), [(0, 513, 0)]);
    assert!(guest.answers().is_empty());
    assert_eq!(counters.broken.load(Ordering::Relaxed), 1);
    let end = std::thread::spawn(move || orders.give(Order::Stop));
    shard.run("it can be stopped", |_| end.is_finished());
    assert_eq!(end.join().unwrap(), Some(1), "behind what was taken");
}

#[test]
fn a_broken_ring_stops_its_queue_and_nothing_else() {
    check_broken(|guest| guest.offer(RING));
    check_broken(|guest| guest.offer(u16::MAX));
    check_broken(|guest| guest.set_available(1000));
    check_broken(|guest| guest.offer(0));
    check_broken(|guest| {
        guest.describe(30, 0x1000, 16, NEXT, 30);
        guest.offer(30);
    });
    check_broken(|guest| {
        guest.describe(30, 1 << 40, 16, 0, 0);
        guest.offer(30);
    });
    check_broken(|guest| {
        guest.describe(30, 0x1000, 16, 0, 0);
        guest.offer(30);
    });
    check_broken(|guest| {
        guest.describe(30, 0x1000, 1, WRITE, 0);
        guest.offer(30);
    });
}

#[test]
fn a_stop_waits_for_what_was_taken_and_says_where_the_ring_is() {
    let mut guest = Guest::new(0, None);
    let (mut shard, orders) = one(&mut guest);
    shard.is_holding = true;
    guest.ask(0, IN, 0, 512, None);
    shard.run("the read is under way", |shard| !shard.held.is_empty());
    let end = std::thread::spawn(move || (orders.give(Order::Stop), orders));
    for _ in 0..20 {
        shard.turn();
        assert!(!end.is_finished());
    }
    shard.is_holding = false;
    shard.run("it has ended", |_| end.is_finished());
    let (position, orders) = end.join().unwrap();
    assert_eq!(position, Some(1));
    assert_eq!(guest.answers(), [(0, 513, 0)]);
    assert_eq!(orders.give(Order::Stop), Some(1), "it is gone, and where it was is known");
}

#[test]
fn a_stop_does_not_wait_for_a_request_that_the_engine_has_not_taken() {
    for survives in [false, true] {
        let mut guest = Guest::new(0, survives.then(region));
        let (mut shard, orders) = one(&mut guest);
        guest.ask(5, IN, 0, 512, None);
        assert_eq!(shard.answers(&mut guest, 1), [(5, 513, 0)]);
        // While the disk is opened again, say, nothing is taken.
        shard.port.is_held = true;
        guest.ask(0, IN, 8, 512, None);
        guest.ask(3, IN, 16, 512, None);
        shard.turn();
        let end = std::thread::spawn(move || orders.give(Order::Stop));
        while !end.is_finished() {
            shard.turn();
        }
        assert_eq!(end.join().unwrap(), Some(1), "both are still to come");
        assert!(guest.answers().is_empty());
        let mut setup = guest.setup();
        setup.ring.base = 1;
        let mut next = Ring::open(setup.ring).unwrap();
        assert_eq!([0, 1, 2].map(|ahead| next.look(ahead).unwrap()), [Some(0), Some(3), None]);
        assert_eq!(next.position(), 1);
    }
}

#[test]
fn other_memory_does_not_wait_for_a_request_that_the_engine_has_not_taken() {
    let mut guest = Guest::new(0, None);
    let (mut shard, orders) = one(&mut guest);
    shard.port.is_held = true;
    guest.ask(0, OUT, 8, 512, Some(1));
    shard.turn();
    let map = guest.memory.clone();
    let told = std::thread::spawn(move || orders.give(Order::Memory(map, true)));
    while !told.is_finished() {
        shard.turn();
    }
    assert_eq!(told.join().unwrap(), Some(0));
    shard.port.is_held = false;
    assert_eq!(shard.answers(&mut guest, 1), [(0, 1, 0)]);
}

#[test]
fn requests_keep_the_memory_that_they_were_taken_from() {
    let mut guest = Guest::new(0, None);
    let (mut shard, orders) = one(&mut guest);
    shard.is_holding = true;
    guest.ask(0, IN, 4, 512, None);
    shard.run("the read is under way", |shard| !shard.held.is_empty());
    let old = guest.memory.clone();
    let tables = {
        let mut bytes = vec![0; 0x10000];
        old.read_slice(&mut bytes, GuestAddress(0)).unwrap();
        bytes
    };
    let mut other = Guest::new(0, None);
    other.memory.write_slice(&tables, GuestAddress(0)).unwrap();
    let map = other.memory.clone();
    let told = std::thread::spawn(move || (orders.give(Order::Memory(map, true)), orders));
    for _ in 0..20 {
        shard.turn();
        assert!(!told.is_finished(), "the old memory is in use");
    }
    shard.is_holding = false;
    shard.run("it is told", |_| told.is_finished());
    assert_eq!(guest.data(0, 512), shard.backend[4 * 512..][..512], "into the old memory");
    assert_eq!(other.answers().len(), 1, "and answered in the ring of now");
}

#[test]
fn a_ring_that_is_none_is_refused() {
    let guest = Guest::new(0, Some(region()));
    let refused = |change: &dyn Fn(&mut RingSetup)| {
        let mut setup = guest.setup();
        change(&mut setup.ring);
        Shard::new().attach_with(setup).is_err()
    };
    assert!(refused(&|ring| ring.size = 100));
    assert!(refused(&|ring| ring.size = 0));
    assert!(refused(&|ring| ring.descriptors = GuestAddress(1 << 40)));
    assert!(refused(&|ring| ring.used = GuestAddress((16 << 20) - 8)));
    assert!(refused(&|ring| ring.available = GuestAddress(0x4001)));
    assert!(refused(&|ring| ring.queue = 2));
    assert!(!refused(&|_| {}));
}

#[test]
fn requests_are_looked_at_in_their_order_before_one_is_taken() {
    let mut guest = Guest::new(0, None);
    for head in [6, 0, 3] {
        guest.ask(head, IN, 8, 512, None);
    }
    let mut ring = Ring::open(guest.setup().ring).unwrap();
    let look = |ring: &mut Ring| [0, 1, 2, 3].map(|ahead| ring.look(ahead).unwrap());
    assert_eq!(look(&mut ring), [Some(6), Some(0), Some(3), None]);
    ring.advance();
    guest.ask(9, IN, 8, 512, None);
    assert_eq!(look(&mut ring), [Some(0), Some(3), Some(9), None]);
    assert_eq!(ring.position(), 1);
    guest.offer(RING);
    assert_eq!((ring.look(3), ring.look(0)), (Err(Broken::Index(RING)), Ok(Some(0))));
    // Far ahead, and back: what is behind is never taken for a request.
    for wrong in [30_000, 2] {
        guest.set_available(wrong);
        for _ in 0..2 {
            assert_eq!((ring.look(4), ring.look(0)), (Err(Broken::Available), Ok(Some(0))));
        }
    }
    guest.set_available(5);
    assert_eq!(ring.look(4), Ok(None));
}

#[test]
fn what_was_read_is_read_again_from_other_memory() {
    let mut guest = Guest::new(0, None);
    let (mut shard, orders) = one(&mut guest);
    shard.port.is_held = true;
    for (head, sector) in [(0, 8), (3, 16)] {
        guest.ask(head, IN, sector, 512, None);
    }
    shard.turn();
    // The first one waits, and the second was read. Where that is there is another one by now.
    let mut other = Guest::new(0, None);
    for (head, sector) in [(0, 8), (3, 24)] {
        other.ask(head, IN, sector, 1024, None);
    }
    let map = other.memory.clone();
    let giving = std::thread::spawn(move || orders.give(Order::Memory(map, false)));
    while !giving.is_finished() {
        shard.turn();
    }
    shard.port.is_held = false;
    // The first one's status went where its data did.
    assert_eq!(shard.answers(&mut other, 2), [(0, 513, 0xff), (3, 1025, 0)]);
    assert_eq!(other.data(3, 1024), shard.backend[24 * 512..][..1024]);
    assert_eq!(guest.data(0, 512), shard.backend[8 * 512..][..512]);
}

#[test]
fn a_queue_that_nobody_can_kick_any_more_is_broken_and_can_be_stopped() {
    let mut guest = Guest::new(0, None);
    let mut shard = Shard::new();
    let setup = guest.setup();
    let counters = setup.counters.clone();
    let orders = shard.attach_with(setup).unwrap();
    guest.ask(0, IN, 0, 512, None);
    guest.kick();
    assert_eq!(shard.answers(&mut guest, 1), [(0, 513, 0)]);
    let error = std::io::ErrorKind::BrokenPipe.into();
    let lost = Completion { token: Token(0), result: Err(error), buffer: None };
    shard.each(0, |client, cx| client.on_completion(cx, lost));
    assert_eq!(counters.broken.load(Ordering::Relaxed), 1);
    let end = std::thread::spawn(move || orders.give(Order::Stop));
    shard.run("it can be stopped", |_| end.is_finished());
    assert_eq!(end.join().unwrap(), Some(1));
}

#[test]
fn where_the_ring_of_a_queue_is_that_its_shard_dropped_is_known() {
    let mut guest = Guest::new(0, None);
    let (mut shard, orders) = one(&mut guest);
    guest.ask(0, IN, 0, 512, None);
    guest.kick();
    assert_eq!(shard.answers(&mut guest, 1), [(0, 513, 0)]);
    drop(shard.clients[0].take());
    assert_eq!(orders.give(Order::Stop), Some(1));
}

#[test]
fn a_queue_lets_go_of_its_memory_before_it_tells_that_it_has_ended() {
    let mut guest = Guest::new(0, None);
    let (mut shard, orders) = one(&mut guest);
    guest.ask(0, IN, 0, 512, None);
    assert_eq!(shard.answers(&mut guest, 1), [(0, 513, 0)]);
    let end = std::thread::spawn(move || orders.give(Order::Stop));
    while !end.is_finished() {
        shard.each(0, |client, cx| {
            client.on_completion(cx, Completion { token: Token(1), result: Ok(0), buffer: None });
            client.flush(cx);
        });
    }
    assert!(shard.clients[0].is_some(), "its shard has not dropped it yet");
    assert_eq!(Arc::strong_count(&guest.memory), 1, "its guest's own");
    assert_eq!(end.join().unwrap(), Some(1));
}

/// Bytes of a transfer of three parts, and a guest that has two such at a time over a disk of 80 MiB.
const LONG: usize = 70 << 20;
