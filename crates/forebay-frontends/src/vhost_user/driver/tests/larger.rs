//! A hypervisor makes a region larger by taking it away and giving it again, while its guest goes on.

use super::guest::REQUESTS;
use super::*;

#[test]
fn a_queue_whose_memory_was_away_for_a_moment_goes_on() {
    let (mut guest, mut setup) = with_setup();
    let mut shard = Shard::new();
    let counters = setup.counters.clone();
    let (report, reports) = std::sync::mpsc::channel();
    setup.report = Report(Arc::new(move |weight, text| report.send((weight, text)).unwrap()));
    let told = || reports.try_iter().collect::<Vec<_>>();
    let orders = shard.attach_with(setup).unwrap();
    let far = 1 << 40;
    guest.ask(0, IN, 4, 512, None);
    guest.describe(1, far, 512, WRITE | NEXT, 2);
    guest.kick();
    shard.run("its memory is away", |_| counters.broken.load(Ordering::Relaxed) == 1);
    let [(Weight::Error, text)] = &told()[..] else { panic!("that is told") };
    assert!(text.contains("it goes on when the hypervisor shares that memory"), "{text}");
    // Its ring goes as well.
    give(&mut shard, &orders, Order::Memory(GuestMap::of_test(&[(far, 4096)]), true));
    assert_eq!(told(), [], "it does not go on yet");
    let mut whole = Guest::new(0, None);
    whole.memory = GuestMap::of_test(&[(0, 16 << 20), (far, 4096)]);
    let mut bytes = vec![0; 2 << 20];
    guest.memory.read_slice(&mut bytes, GuestAddress(0)).unwrap();
    whole.memory.write_slice(&bytes, GuestAddress(0)).unwrap();
    give(&mut shard, &orders, Order::Memory(whole.memory.clone(), false));
    assert_eq!(shard.answers(&mut whole, 1), [(0, 513, 0)]);
    let [(Weight::Info, text)] = &told()[..] else { panic!("that is told") };
    assert!(text.contains("goes on"), "{text}");
    let mut read = vec![0; 512];
    whole.memory.read_slice(&mut read, GuestAddress(far)).unwrap();
    assert_eq!(read, shard.backend[4 * 512..][..512]);
}

#[test]
fn a_queue_whose_memory_stays_away_tells_that_once() {
    let (mut guest, mut setup) = with_setup();
    let mut shard = Shard::new();
    let counters = setup.counters.clone();
    let (report, reports) = std::sync::mpsc::channel();
    setup.report = Report(Arc::new(move |weight, _| report.send(weight).unwrap()));
    let told = || reports.try_iter().collect::<Vec<_>>();
    let broken = || counters.broken.load(Ordering::Relaxed);
    let orders = shard.attach_with(setup).unwrap();
    guest.ask(0, IN, 4, 512, None);
    guest.describe(1, 1 << 40, 512, WRITE | NEXT, 2);
    guest.kick();
    shard.run("its memory is away", |_| broken() == 1);
    assert_eq!(told(), [Weight::Error]);
    for waits in [false, true, false] {
        // Its hypervisor shares other memory, as for a guest that gets more.
        give(&mut shard, &orders, Order::Memory(guest.memory.clone(), waits));
        (0..5).for_each(|_| shard.turn());
        assert!(!shard.clients[0].as_ref().unwrap().looks_out(), "it is stopped");
        assert!(told().is_empty() && broken() == 1);
    }
    // What it lacks is another piece by now.
    guest.describe(1, 1 << 41, 512, WRITE | NEXT, 2);
    give(&mut shard, &orders, Order::Memory(guest.memory.clone(), false));
    shard.run("that is away, too", |_| broken() == 2);
    assert_eq!(told(), [Weight::Error]);
    guest.describe(1, 0, 512, WRITE | NEXT, 2);
    give(&mut shard, &orders, Order::Memory(guest.memory.clone(), false));
    assert_eq!(shard.answers(&mut guest, 1), [(0, 513, 0)]);
    guest.ask(3, IN, 4, 512, None);
    guest.kick();
    assert_eq!(shard.answers(&mut guest, 1), [(3, 513, 0)]);
    assert_eq!(told(), [Weight::Info]);
}

#[test]
fn a_queue_whose_ring_was_away_for_a_moment_goes_on() {
    // What of a request is there while the ring is not: nothing, or its header and its status, and none of its data.
    for regions in [&[(1 << 40, 4096)][..], &[(REQUESTS, 512)]] {
        for (kind, data, written) in [(IN, None, 513), (OUT, Some(7), 1)] {
            let (mut guest, setup) = with_setup();
            let broken = setup.counters.clone();
            let mut shard = Shard::new();
            let orders = shard.attach_with(setup).unwrap();
            shard.is_holding = true;
            guest.ask(3, IN, 4, 512, None);
            guest.kick();
            shard.run("the read is under way", |shard| !shard.held.is_empty());
            let without = GuestMap::of_test(regions);
            if regions[0].0 == REQUESTS {
                without.write_obj(kind, GuestAddress(REQUESTS)).unwrap();
            }
            give(&mut shard, &orders, Order::Memory(without, true));
            // Its guest does not know, and its neighbours use the shard.
            guest.ask(0, kind, 8, 512, data);
            guest.kick();
            (0..5).for_each(|_| shard.turn());
            assert!(!shard.clients[0].as_ref().unwrap().looks_out());
            assert_eq!(guest.answers(), [(3, 513, 0)], "what was taken is answered, and no more");
            give(&mut shard, &orders, Order::Memory(guest.memory.clone(), false));
            assert_eq!(shard.answers(&mut guest, 1), [(0, written, 0)]);
            let stored = shard.backend[8 * 512..][..512].to_vec();
            assert_eq!(guest.data(0, 512), stored);
            guest.ask(6, IN, 8, 512, None);
            guest.kick();
            assert_eq!(shard.answers(&mut guest, 1), [(6, 513, 0)]);
            assert_eq!(broken.broken.load(Ordering::Relaxed), 0);
        }
    }
}

#[test]
fn a_queue_whose_ring_is_away_can_be_stopped() {
    let mut guest = Guest::new(0, None);
    let (mut shard, orders) = one(&mut guest);
    let without = GuestMap::of_test(&[(1 << 40, 4096)]);
    give(&mut shard, &orders, Order::Memory(without, true));
    guest.ask(0, IN, 8, 512, None);
    guest.kick();
    assert_eq!(give(&mut shard, &orders, Order::Stop), Some(0));
    assert!(guest.answers().is_empty());
}

/// Without event indices the guest is told in the used ring whether to kick. That memory may be another's by then.
#[test]
fn a_ring_that_is_away_is_not_written_to() {
    let (mut guest, mut setup) = with_setup();
    setup.ring.event_index = false;
    let mut shard = Shard::new();
    let orders = shard.attach_with(setup).unwrap();
    shard.turn();
    assert!(!shard.clients[0].as_ref().unwrap().looks_out(), "it waits for a kick");
    give(&mut shard, &orders, Order::Memory(GuestMap::of_test(&[(1 << 40, 4096)]), true));
    guest.ask(0, IN, 8, 512, None);
    guest.kick();
    (0..5).for_each(|_| shard.turn());
    assert_eq!(guest.used_flags(), 0, "as it was when its ring went");
    give(&mut shard, &orders, Order::Memory(guest.memory.clone(), false));
    assert_eq!(shard.answers(&mut guest, 1), [(0, 513, 0)]);
}

fn with_setup() -> (Guest, QueueSetup) {
    let guest = Guest::new(0, None);
    let setup = guest.setup();
    (guest, setup)
}

/// Gives an order to the queue, and turns until it is carried out. I/O that was kept back goes on after a turn.
fn give(shard: &mut Shard, orders: &Orders, order: Order) -> Option<u16> {
    std::thread::scope(|scope| {
        let given = scope.spawn(|| orders.give(order));
        shard.turn();
        shard.is_holding = false;
        while !given.is_finished() {
            shard.turn();
        }
        given.join().unwrap()
    })
}
