//! Transfers that are longer than one request of the engine.

use super::*;

fn guest_of_long_transfers() -> (Guest, Shard, Orders) {
    guest_of_long_transfers_with(Shard::over(vec![3; 80 << 20]))
}

fn guest_of_long_transfers_with(mut shard: Shard) -> (Guest, Shard, Orders) {
    let mut guest = Guest::with_memory(0, None, 320 << 20, 96 << 20);
    let orders = shard.attach(&guest);
    guest.kick();
    guest.answers();
    (guest, shard, orders)
}

fn long_pattern(salt: u8) -> Vec<u8> {
    (0..LONG).map(|at| (at / 509 + at % 241) as u8 ^ salt).collect()
}

#[test]
fn a_transfer_that_is_longer_than_one_request_is_carried_out_in_parts() {
    let (mut guest, mut shard, _orders) = guest_of_long_transfers();
    let (pattern, sector) = (long_pattern(0), 9);
    guest.ask(0, OUT, sector, LONG as u32, Some(0));
    guest.set_data(0, &pattern);
    guest.kick();
    assert_eq!(shard.answers(&mut guest, 1), [(0, 1, 0)]);
    let start = sector as usize * 512;
    assert!(shard.backend[start..][..LONG] == pattern);
    assert!(shard.backend[..start].iter().chain(&shard.backend[start + LONG..]).all(|it| *it == 3));
    // Two at a time, for which there is not memory enough, and a short one.
    guest.ask(0, IN, sector, LONG as u32, None);
    guest.ask(3, IN, sector, LONG as u32, None);
    guest.kick();
    let mut answers = shard.answers(&mut guest, 2);
    answers.sort();
    assert_eq!(answers, [0, 3].map(|head| (head, LONG as u32 + 1, 0)));
    assert!(guest.data(0, LONG) == pattern && guest.data(3, LONG) == pattern);
    // One that goes beyond the end fails, and writes nothing.
    guest.ask(0, OUT, sector + (10 << 11), LONG as u32, Some(8));
    guest.kick();
    assert_eq!(shard.answers(&mut guest, 1), [(0, 1, 1)]);
    assert!(shard.backend[start..][..LONG] == pattern);
}

#[test]
fn a_stop_in_the_middle_of_a_long_transfer_waits_for_all_of_it() {
    let (mut guest, mut shard, orders) = guest_of_long_transfers();
    let pattern = long_pattern(0x55);
    guest.ask(0, OUT, 0, LONG as u32, Some(0));
    guest.set_data(0, &pattern);
    shard.is_holding = true;
    guest.kick();
    shard.run("the first part is on its way", |shard| !shard.held.is_empty());
    let end = std::thread::spawn(move || orders.give(Order::Stop));
    (0..50).for_each(|_| shard.turn());
    assert!(!end.is_finished(), "the request was taken");
    shard.is_holding = false;
    while !end.is_finished() {
        shard.turn();
    }
    assert_eq!(end.join().unwrap(), Some(1));
    assert_eq!(guest.answers(), [(0, 1, 0)]);
    assert!(shard.backend[..LONG] == pattern);
}

#[test]
fn a_part_that_waits_for_memory_is_not_put_back_when_the_queue_ends() {
    for (kind, data, written) in [(OUT, Some(0), 1), (IN, None, LONG as u32 + 1)] {
        let (mut guest, mut shard, orders) = guest_of_long_transfers();
        let pattern = long_pattern(1);
        guest.ask(0, kind, 0, LONG as u32, data);
        match kind {
            OUT => guest.set_data(0, &pattern),
            _ => shard.backend[..LONG].copy_from_slice(&pattern),
        }
        shard.is_holding = true;
        guest.kick();
        shard.run("the first part is on its way", |shard| !shard.held.is_empty());
        (shard.port.is_held, shard.is_holding) = (true, false);
        let waits = |shard: &mut Shard| shard.clients[0].as_ref().unwrap().wants_resume();
        shard.run("the second part waits", waits);
        shard.each(0, |client, cx| client.close(cx));
        shard.turn();
        assert!(waits(&mut shard), "the request was taken");
        shard.port.is_held = false;
        shard.run("the queue has ended", |shard| shard.clients[0].is_none());
        assert_eq!(orders.give(Order::Stop), Some(1));
        assert_eq!(guest.answers(), [(0, written, 0)]);
        assert!(shard.backend[..LONG] == pattern && guest.data(0, LONG) == pattern);
    }
}

#[test]
fn a_part_whose_disk_ends_while_it_is_held_does_not_keep_the_queue() {
    let (mut guest, mut shard, orders) = guest_of_long_transfers();
    guest.ask(0, OUT, 0, LONG as u32, Some(0));
    shard.is_holding = true;
    guest.kick();
    shard.run("the first part is on its way", |shard| !shard.held.is_empty());
    (shard.port.is_held, shard.is_holding) = (true, false);
    let waits = |shard: &mut Shard| shard.clients[0].as_ref().unwrap().wants_resume();
    shard.run("the second part waits", waits);
    shard.each(0, |client, cx| client.give_up(cx));
    shard.turn();
    assert!(waits(&mut shard), "the queue is not to end yet");
    shard.each(0, |client, cx| client.close(cx));
    shard.turn();
    assert!(waits(&mut shard), "the disk may go on");
    shard.each(0, |client, cx| client.give_up(cx));
    shard.run("the queue has ended", |shard| shard.clients[0].is_none());
    assert_eq!(orders.give(Order::Stop), Some(1));
    assert_eq!(guest.answers(), [(0, 1, 1)]);
}

#[test]
fn a_kick_that_comes_while_parts_wait_is_not_forgotten() {
    let shard = Shard::with_buffers(vec![3; 160 << 20], 72 << 20);
    let (mut guest, mut shard, _orders) = guest_of_long_transfers_with(shard);
    for (head, sector) in [(0, 0), (3, LONG as u64 / 512)] {
        guest.ask(head, OUT, sector, LONG as u32, Some(5));
    }
    shard.is_holding = true;
    guest.kick();
    shard.run("the first part of both is on its way", |shard| {
        shard.held.iter().map(|io| io.range.len()).sum::<u64>() == 64 << 20
    });
    (shard.port.is_held, shard.is_holding) = (true, false);
    shard.run("the second part of one waits", |shard| {
        shard.held.is_empty() && shard.clients[0].as_ref().unwrap().wants_resume()
    });
    (0..5).for_each(|_| shard.turn());
    guest.ask(6, IN, 0, 512, None);
    guest.kick();
    (0..5).for_each(|_| shard.turn());
    shard.port.is_held = false;
    let mut answers = shard.answers(&mut guest, 3);
    answers.sort();
    assert_eq!(answers, [(0, 1, 0), (3, 1, 0), (6, 513, 0)]);
}
