//! What a daemon leaves to the next one.

use super::*;

#[test]
fn what_was_in_flight_at_a_kill_is_done_by_the_next_daemon_in_its_order() {
    let mut guest = Guest::new(1, Some(region()));
    let (mut shard, _orders) = one(&mut guest);
    // One that is answered out of order before, so that the rest is not the end of the available ring.
    shard.is_holding = true;
    guest.ask(0, OUT, 0, 512, Some(1));
    guest.ask(3, OUT, 0, 512, Some(2));
    guest.ask(6, OUT, 0, 512, Some(3));
    guest.ask(9, SERIAL, 0, 20, None);
    assert_eq!(shard.answers(&mut guest, 1), [(9, 21, 0)]);
    // kill -9: nothing is told to anybody. What came meanwhile is not lost either.
    let backend = std::mem::take(&mut shard.backend);
    drop(shard);
    guest.ask(12, IN, 0, 512, None);
    let mut shard = Shard::over(backend);
    let setup = guest.setup();
    let counters = setup.counters.clone();
    let _orders = shard.attach_with(setup).unwrap();
    let answers = shard.answers(&mut guest, 4);
    assert_eq!(answers, [(0, 1, 0), (3, 1, 0), (6, 1, 0), (12, 513, 0)]);
    assert_eq!(guest.data(12, 512), [3; 512], "the last of the three was the last");
    assert_eq!(counters.replayed.load(Ordering::Relaxed), 3);
    assert!(guest.was_called());
}

#[test]
fn a_daemon_that_dies_again_and_again_loses_and_repeats_no_answer() {
    let mut guest = Guest::new(0, Some(region()));
    let mut shard = Shard::new();
    let mut answered = Vec::new();
    let heads: Vec<u16> = (0..40).map(|request| 3 * request).collect();
    for &head in &heads {
        guest.ask(head, OUT, u64::from(head % 12), 512, Some(head as u8));
    }
    for life in 0..12 {
        let backend = std::mem::take(&mut shard.backend);
        shard = Shard::over(backend);
        let _orders = shard.attach(&guest);
        // Each life ends with some of its I/O done and some not.
        shard.is_holding = true;
        shard.turn();
        let done = shard.held.len() * life / 12;
        let rest = shard.held.split_off(done);
        shard.is_holding = false;
        shard.turn();
        drop(rest);
        answered.extend(guest.answers().into_iter().map(|(head, _, _)| head));
    }
    let backend = std::mem::take(&mut shard.backend);
    shard = Shard::over(backend);
    let _orders = shard.attach(&guest);
    shard.run("all is answered", |_| {
        answered.extend(guest.answers().into_iter().map(|(head, _, _)| head));
        answered.len() >= heads.len()
    });
    answered.sort();
    assert_eq!(answered, heads);
}

#[test]
fn a_guest_that_was_answered_and_not_woken_is_woken_by_the_next_daemon() {
    let mut guest = Guest::new(0, Some(region()));
    let (mut shard, _orders) = one(&mut guest);
    guest.ask(0, SERIAL, 0, 20, None);
    shard.run("it is answered", |_| guest.was_called());
    // Killed between the answer and the call: the guest sleeps, and nothing else is under way.
    drop(shard);
    let mut shard = Shard::new();
    let _orders = shard.attach(&guest);
    shard.run("it is woken", |_| guest.was_called());
    assert_eq!(guest.answers(), [(0, 21, 0)]);
}

#[test]
fn a_disk_that_ends_leaves_what_it_did_not_do_to_the_next_daemon() {
    let mut guest = Guest::new(0, Some(region()));
    let (mut shard, _orders) = one(&mut guest);
    let Port { engine, actions, .. } = &mut shard.port;
    engine.shut_down(Nanos::from_millis(1000), actions);
    guest.ask(0, OUT, 0, 512, Some(9));
    shard.run("it was refused", |shard| {
        shard.each(0, |client, cx| client.close(cx));
        shard.clients[0].is_none()
    });
    assert!(guest.answers().is_empty());
    let mut shard = Shard::new();
    let _orders = shard.attach(&guest);
    assert_eq!(shard.answers(&mut guest, 1), [(0, 1, 0)]);
    assert_eq!(shard.backend[..512], [9; 512]);
}
