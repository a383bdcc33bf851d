//! A client over NBD, as QEMU is one: replies are structured.

use forebay_frontends::nbd::{Contexts, Export, Greeted, Negotiated};
use forebay_nbd::flags::CommandFlags;
use forebay_nbd::reply::{ChunkHeader, OffsetData, ReplyHeader};
use forebay_nbd::request::{Command, RequestHeader};

use crate::load::{self, BLOCK, Hit, SIZE, Served};
use crate::shard::{DISK, Shard};
use crate::socket::{Protocol, Socket};

/// See the module.
pub struct Nbd;

/// A client after its handshake and a lap.
pub fn served() -> Served<Socket<Nbd>> {
    let (client, socket) = Socket::pair();
    let negotiated = Negotiated { structured_replies: true, contexts: Contexts::default() };
    let new = Greeted {
        socket,
        disk: DISK,
        exports: [Export::new("db", SIZE)].into(),
        export: 0,
        negotiated,
        leftover: Vec::new(),
    };
    Served::new(Shard::new(load::warm_engine(), Box::new(new)), client)
}

impl Protocol for Nbd {
    const REQUEST: usize = RequestHeader::SIZE;
    const HEADER: usize = ChunkHeader::SIZE + OffsetData::SIZE;

    fn encode(hit: &Hit, out: &mut Vec<u8>) {
        let header = RequestHeader {
            flags: CommandFlags::NONE,
            command: Command::Read.wire(),
            cookie: hit.number.into(),
            offset: hit.block * BLOCK,
            len: BLOCK as u32,
        };
        out.extend_from_slice(&header.to_bytes());
    }

    fn check(header: &[u8], hit: &Hit) {
        let Ok(Some(ReplyHeader::Chunk(chunk))) = ReplyHeader::decode(header) else {
            panic!("no chunk: {header:?}")
        };
        assert_eq!(chunk.cookie, u64::from(hit.number));
        let data = OffsetData::decode(&header[ChunkHeader::SIZE..]).expect("an offset");
        assert_eq!(data.offset, hit.block * BLOCK);
    }
}
