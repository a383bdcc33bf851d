//! Connections that go to another shard.

use super::*;
use crate::outbox::HOLD_MAX;

fn two_contexts() -> Negotiated {
    let contexts = Contexts { allocation: true, state: true };
    Negotiated { structured_replies: true, contexts }
}

#[test]
fn a_client_that_does_not_read_goes_to_another_shard_with_what_it_was_not_sent() {
    for negotiated in [simple(), structured()] {
        let mut shard = shard();
        let mut client = shard.connect(negotiated);
        for at in 0..3 {
            client.ask(Command::Read, at << 20, 2 << 20);
        }
        shard.turn();
        assert!(!shard.move_clients(), "a disk owes it what lies in its memory");
        shard.pass(HOLD_MAX);
        shard.turn();
        assert!(shard.move_clients() && shard.move_clients());
        shard.pass(Nanos::from_millis(20_000));
        assert!(shard.move_clients(), "it has its time anew");
        shard.pass(Nanos::from_millis(20_000));
        for _ in 0..3 {
            let answer = client.answer(&mut shard);
            let at = answer.header.offset as usize;
            assert!(answer.data.unwrap() == shard.disk.backend[at..at + (2 << 20)]);
        }
        assert!(client.wanted.is_empty() && shard.disk.port.engine.is_idle());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn clients_that_go_to_another_shard_at_any_time_get_every_answer(
        pieces in proptest::collection::vec(1usize..20_000, 20..40),
        places in 4u32..20,
        holding: bool,
    ) {
        let mut shard = Shard::new(|config| {
            config.requests_max = places;
            config.buffer_bytes = 36 << 20;
        });
        let before = shard.disk.backend.clone();
        shard.disk.is_holding = holding;
        let mut clients: Vec<_> =
            [simple(), two_contexts(), simple()].map(|it| shard.connect(it)).into();
        // Each writes and reads a place of its own: what it has written is what it reads.
        let streams: Vec<Vec<u8>> = clients.iter_mut().enumerate().map(|(number, client)| {
            let mut bytes = Vec::new();
            for index in 0..24_u64 {
                let offset = (number as u64 * 24 + index) * 16384;
                bytes.extend_from_slice(&client.request(Command::Write, offset, 8192).to_bytes());
                bytes.extend_from_slice(&[number as u8 + 1; 8192]);
                bytes.extend_from_slice(&client.request(Command::Read, offset + 8192, 4096).to_bytes());
                let last = if number == 1 { (Command::BlockStatus, 4096) } else { (Command::Flush, 0) };
                bytes.extend_from_slice(&client.request(last.0, 0, last.1).to_bytes());
            }
            bytes
        }).collect();
        let mut sent = [0; 3];
        for (turn, piece) in pieces.into_iter().enumerate() {
            let at = turn % 3;
            let end = (sent[at] + piece).min(streams[at].len());
            clients[at].send_all(&mut shard, &streams[at][sent[at]..end]);
            sent[at] = end;
            shard.disk.is_holding &= turn < 10;
            shard.move_clients();
        }
        shard.disk.is_holding = false;
        for at in 0..3 {
            clients[at].send_all(&mut shard, &streams[at][sent[at]..]);
            shard.move_clients();
            while !clients[at].wanted.is_empty() {
                let answer = clients[at].answer(&mut shard);
                let data = answer.data.unwrap();
                if answer.header.command == Command::Read.wire() {
                    let start = answer.header.offset as usize;
                    prop_assert!(data == before[start..start + 4096]);
                }
            }
        }
        prop_assert!(shard.move_clients(), "nothing is under way");
        prop_assert!(shard.disk.port.engine.is_idle());
        for (index, place) in shard.disk.backend.chunks(16384).take(72).enumerate() {
            let number = index / 24;
            prop_assert!(place[..8192].iter().all(|byte| usize::from(*byte) == number + 1));
        }
        for client in &mut clients {
            prop_assert_eq!(client.call(&mut shard, Command::Flush, 0, 0), Vec::<u8>::new());
        }
    }
}
