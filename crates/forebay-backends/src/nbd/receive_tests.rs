use std::sync::Arc;

use forebay_core::action::Span;
use forebay_core::ids::{IoId, Nanos};
use forebay_io::arena::Arena;
use forebay_io::reactor::ReactorKind;
use forebay_nbd::flags::TransmissionFlags;
use proptest::prelude::*;

use super::*;
use crate::backend::BackendIo;

const ARENA: usize = 64 << 10;
/// Two reads of this length lie in the middle of the arena; all else must stay as it is.
const READ: u32 = 4096;

/// The bytes of a server: replies to real and made-up requests, in any number of pieces, with
/// some bytes changed.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let cookie = prop_oneof![Just(1u64 << 32), Just((2u64 << 32) | 1), any::<u64>()];
    let kind = prop_oneof![Just(0u16), Just(1), Just(2), Just(5), Just(0x8001), any::<u16>()];
    let offset = prop_oneof![Just(0u64), Just(2048), Just(4096), Just(6144), any::<u64>()];
    let len = prop_oneof![Just(2048u32), Just(4096), 0..20_000u32, any::<u32>()];
    let reply = (cookie, kind, offset, len, any::<bool>(), any::<bool>()).prop_map(
        |(cookie, kind, offset, len, is_last, is_simple)| {
            if is_simple {
                let mut bytes = SimpleReply { result: Ok(()), cookie }.to_bytes().to_vec();
                bytes.resize(bytes.len() + READ as usize, 0x11);
                return bytes;
            }
            let kind = ChunkKind::from_wire(kind);
            let flags = ChunkFlags::NONE.with_if(is_last, ChunkFlags::DONE);
            let (payload, mut body) = match kind {
                ChunkKind::OffsetData => (len.saturating_add(8), offset.to_be_bytes().to_vec()),
                ChunkKind::OffsetHole => (12, OffsetHole { offset, len }.to_bytes().to_vec()),
                _ => (len % 100, Vec::new()),
            };
            body.resize(payload.min(20_000) as usize, 0x22);
            let mut bytes = ChunkHeader { flags, kind, cookie, len: payload }.to_bytes().to_vec();
            bytes.append(&mut body);
            bytes
        },
    );
    let noise = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (proptest::collection::vec(reply, 1..6), noise).prop_map(|(replies, noise)| {
        let mut bytes = replies.concat();
        for (at, byte) in noise {
            let at = at.index(bytes.len());
            bytes[at] ^= byte;
        }
        bytes
    })
}

/// What is wrong with what the server sends, if anything is.
fn feed(
    reactor: &Reactor,
    memory: Span,
    structured: bool,
    bytes: &[u8],
    step: usize,
) -> Result<(), String> {
    let arena = reactor.arena(ARENA_ID);
    let mut requests = Requests::new(32 << 20, 512);
    for id in 0..2 {
        let memory = memory.part(u64::from(READ) * id, READ.into());
        let range = ByteRange::at(u64::from(READ) * id, READ.into());
        requests.submit(BackendIo {
            id: IoId(id),
            range,
            op: IoOp::Read { memory },
            arena: ARENA_ID,
        });
        let part = requests.next().expect("one part");
        requests.sent(part, 0, Nanos(0));
    }
    let export = Export {
        size: 1 << 20,
        flags: TransmissionFlags::NONE,
        block_min: 512,
        block_max: 32 << 20,
        structured,
        allocation: Some(5),
    };
    let (mut incoming, mut events, mut left) = (Incoming::new(), Vec::new(), bytes);
    while !left.is_empty() {
        // As the reactor does it: first the place, then the buffer.
        let (place, mut buffer) = incoming.lend();
        let (now, later) = left.split_at(step.min(left.len()));
        left = later;
        let direct = place.map_or(0, |place| now.len().min(place.len as usize));
        if let Some(place) = place {
            arena.write_at(place.offset, &now[..direct]);
        }
        buffer.extend_from_slice(&now[direct..]);
        let mut sink = Sink {
            now: Nanos(1),
            connection: 0,
            export: &export,
            reactor,
            requests: &mut requests,
            events: &mut events,
            unsent: None,
            shuts_down: false,
        };
        incoming.received(buffer, now.len(), &mut sink)?;
    }
    assert!(events.len() <= 2);
    Ok(())
}

const ARENA_ID: forebay_io::reactor::ArenaId = forebay_io::reactor::ArenaId(0);

fn reactor() -> (Reactor, Span) {
    let mut reactor = Reactor::new(8, Some(ReactorKind::Epoll)).expect("a reactor");
    let id = reactor.add_arena(Arc::new(Arena::new(ARENA).expect("memory"))).expect("room");
    assert_eq!(id, ARENA_ID);
    (reactor, Span { offset: 16 << 10, len: 2 * READ })
}

#[test]
fn a_reply_that_has_one_half_twice_is_no_answer() {
    let (reactor, memory) = reactor();
    let reply = |offsets: [u64; 2]| -> Vec<u8> {
        let piece = |(n, offset): (usize, u64)| {
            let flags = ChunkFlags::NONE.with_if(n == 1, ChunkFlags::DONE);
            let (kind, len) = (ChunkKind::OffsetHole, OffsetHole { offset, len: READ / 2 });
            let header = ChunkHeader { flags, kind, cookie: 1 << 32, len: 12 };
            [&header.to_bytes()[..], &len.to_bytes()].concat()
        };
        offsets.into_iter().enumerate().flat_map(piece).collect()
    };
    let fed = |offsets| feed(&reactor, memory, true, &reply(offsets), 9000);
    assert_eq!(fed([0, 2048]), Ok(()));
    assert_eq!(fed([2048, 0]), Ok(()));
    assert!(fed([0, 0]).unwrap_err().contains("twice"));
    assert!(fed([0, 1024]).unwrap_err().contains("twice"));
}

#[test]
fn no_server_writes_outside_of_what_was_asked_for() {
    let (reactor, memory) = reactor();
    let strategy = (stream(), any::<bool>(), 1usize..9000);
    proptest!(ProptestConfig::with_cases(2000), |((bytes, structured, step) in strategy)| {
        let _ = feed(&reactor, memory, structured, &bytes, step);
        let mut all = vec![0; ARENA];
        reactor.arena(ARENA_ID).read_at(0, &mut all);
        prop_assert!(all[..16 << 10].iter().all(|byte| *byte == 0));
        prop_assert!(all[(16 << 10) + 2 * READ as usize..].iter().all(|byte| *byte == 0));
    });
}
