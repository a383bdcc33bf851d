//! Round trips, fixed vectors, and arbitrary bytes.

use proptest::prelude::*;

use crate::Invalid;
use crate::errno::Errno;
use crate::flags::{ChunkFlags, ClientFlags, CommandFlags, HandshakeFlags, TransmissionFlags};
use crate::greeting::Greeting;
use crate::info::{BlockSizes, Info, InfoKind};
use crate::option::{
    InfoRequest, MetaContextRequest, OptionHeader, OptionKind, decode_export_name,
    encode_export_name,
};
use crate::option_reply::{self, ExportNameReply, OptionReply, OptionReplyHeader};
use crate::reply::{
    BlockStatus, ChunkHeader, ChunkKind, ErrorChunk, OffsetData, OffsetHole, ReplyHeader,
    SimpleReply, StatusExtent,
};
use crate::request::{Command, RequestHeader};

/// Every decoder, on `bytes`; none may panic.
fn decode_everything(bytes: &[u8]) {
    let _ = Greeting::decode(bytes);
    let _ = ClientFlags::decode(bytes);
    let _ = OptionHeader::decode(bytes);
    let _ = decode_export_name(bytes);
    if let Ok(request) = InfoRequest::decode(bytes) {
        assert_eq!(request.wanted().count() * 2 + 6 + request.name.len(), bytes.len());
    }
    if let Ok(request) = MetaContextRequest::decode(bytes) {
        assert_eq!(request.queries().count(), request.len() as usize);
    }
    let _ = Info::decode(bytes);
    let _ = OptionReplyHeader::decode(bytes);
    let _ = option_reply::decode_server(bytes);
    let _ = option_reply::decode_meta_context(bytes);
    let _ = ExportNameReply::decode(bytes);
    let _ = RequestHeader::decode(bytes);
    let _ = ReplyHeader::decode(bytes);
    let _ = OffsetData::decode(bytes);
    let _ = OffsetHole::decode(bytes);
    if let Ok(status) = BlockStatus::decode(bytes) {
        assert!(status.extents().all(|extent| extent.len > 0));
    }
    for kind in [ChunkKind::Error, ChunkKind::ErrorOffset, ChunkKind::Other(0x8123)] {
        let _ = ErrorChunk::decode(kind, bytes);
    }
}

/// Each prefix of `whole` asks for more, the whole decodes to `value`.
fn check_header<T: PartialEq + std::fmt::Debug>(
    whole: &[u8],
    value: T,
    decode: impl Fn(&[u8]) -> Result<Option<T>, Invalid>,
) {
    for cut in 0..whole.len() {
        assert_eq!(decode(&whole[..cut]), Ok(None), "after {cut} bytes");
    }
    assert_eq!(decode(whole), Ok(Some(value)));
}

#[test]
fn headers_have_the_bytes_of_the_protocol() {
    let greeting = Greeting { flags: HandshakeFlags::FIXED_NEWSTYLE };
    assert_eq!(&greeting.to_bytes(), b"NBDMAGICIHAVEOPT\x00\x01");
    let option = OptionHeader { option: OptionKind::Go.wire(), len: 258 };
    assert_eq!(&option.to_bytes(), b"IHAVEOPT\x00\x00\x00\x07\x00\x00\x01\x02");
    let reply = OptionReplyHeader { option: 3, reply: OptionReply::ErrUnsupported.wire(), len: 0 };
    let expected = b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x03\x80\x00\x00\x01\0\0\0\0";
    assert_eq!(&reply.to_bytes(), expected);
    let request = RequestHeader {
        flags: CommandFlags::FUA,
        command: Command::Write.wire(),
        cookie: 0x0102_0304_0506_0708,
        offset: 0x1000,
        len: 512,
    };
    let expected = b"\x25\x60\x95\x13\x00\x01\x00\x01\x01\x02\x03\x04\x05\x06\x07\x08\
        \x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x02\x00";
    assert_eq!(&request.to_bytes(), expected);
    let simple = SimpleReply { result: Err(Errno::NoSpc), cookie: 1 };
    assert_eq!(&simple.to_bytes(), b"\x67\x44\x66\x98\x00\x00\x00\x1c\0\0\0\0\0\0\0\x01");
    let chunk =
        ChunkHeader { flags: ChunkFlags::DONE, kind: ChunkKind::OffsetData, cookie: 2, len: 9 };
    let expected = b"\x66\x8e\x33\xef\x00\x01\x00\x01\0\0\0\0\0\0\0\x02\x00\x00\x00\x09";
    assert_eq!(&chunk.to_bytes(), expected);
}

#[test]
fn options_and_their_replies_have_the_numbers_of_the_protocol() {
    let options = [
        (OptionKind::ExportName, 1),
        (OptionKind::Abort, 2),
        (OptionKind::List, 3),
        (OptionKind::StartTls, 5),
        (OptionKind::Info, 6),
        (OptionKind::Go, 7),
        (OptionKind::StructuredReply, 8),
        (OptionKind::ListMetaContext, 9),
        (OptionKind::SetMetaContext, 10),
        (OptionKind::ExtendedHeaders, 11),
    ];
    assert_eq!(options.map(|(kind, _)| kind), OptionKind::ALL);
    for (kind, wire) in options {
        assert_eq!((kind.wire(), OptionKind::from_wire(wire)), (wire, Some(kind)));
    }
    let replies = [
        (OptionReply::Ack, 1),
        (OptionReply::Server, 2),
        (OptionReply::Info, 3),
        (OptionReply::MetaContext, 4),
        (OptionReply::ErrUnsupported, 0x8000_0001),
        (OptionReply::ErrPolicy, 0x8000_0002),
        (OptionReply::ErrInvalid, 0x8000_0003),
        (OptionReply::ErrPlatform, 0x8000_0004),
        (OptionReply::ErrTlsRequired, 0x8000_0005),
        (OptionReply::ErrUnknown, 0x8000_0006),
        (OptionReply::ErrShutdown, 0x8000_0007),
        (OptionReply::ErrBlockSizeRequired, 0x8000_0008),
        (OptionReply::ErrTooBig, 0x8000_0009),
        (OptionReply::ErrExtendedHeadersRequired, 0x8000_000a),
    ];
    assert_eq!(replies.map(|(reply, _)| reply), OptionReply::ALL);
    for (reply, wire) in replies {
        assert_eq!((reply.wire(), OptionReply::from_wire(wire)), (wire, Some(reply)));
    }
    let infos = [
        (InfoKind::Export, 0),
        (InfoKind::Name, 1),
        (InfoKind::Description, 2),
        (InfoKind::BlockSize, 3),
    ];
    assert_eq!(infos.map(|(kind, _)| kind), InfoKind::ALL);
    for (kind, wire) in infos {
        assert_eq!(kind.wire(), wire);
    }
}

#[test]
fn commands_and_errors_have_the_numbers_of_the_protocol() {
    let commands = [
        (Command::Read, 0),
        (Command::Write, 1),
        (Command::Disconnect, 2),
        (Command::Flush, 3),
        (Command::Trim, 4),
        (Command::Cache, 5),
        (Command::WriteZeroes, 6),
        (Command::BlockStatus, 7),
    ];
    for (command, wire) in commands {
        assert_eq!((command.wire(), Command::from_wire(wire)), (wire, Some(command)));
    }
    let errnos = [
        (Errno::Perm, 1),
        (Errno::Io, 5),
        (Errno::NoMem, 12),
        (Errno::Inval, 22),
        (Errno::NoSpc, 28),
        (Errno::Overflow, 75),
        (Errno::NotSup, 95),
        (Errno::Shutdown, 108),
    ];
    assert_eq!(errnos.map(|(errno, _)| errno), Errno::ALL);
    for (errno, wire) in errnos {
        assert_eq!((errno.wire(), Errno::from_wire(wire)), (wire, Err(errno)));
    }
    for wire in 0..=u16::MAX {
        assert_eq!(ChunkKind::from_wire(wire).wire(), wire);
    }
    assert_eq!(Errno::from_wire(0), Ok(()));
    assert_eq!(Errno::from_wire(4711), Err(Errno::Inval));
}

#[test]
fn a_foreign_protocol_is_found_out_at_its_first_byte() {
    assert!(Greeting::decode(b"S").is_err());
    assert!(OptionHeader::decode(b"G").is_err());
    assert!(RequestHeader::decode(b"\x26").is_err());
    assert!(ReplyHeader::decode(b"HTTP").is_err());
    assert!(Greeting::decode(b"NBDMAGIC\x00").is_err(), "the old-style handshake");
}

#[test]
fn lengths_that_lie_are_refused() {
    // A name of 4 GiB, a count of 65535, 4 billion queries, an error message beyond its chunk.
    assert!(InfoRequest::decode(b"\xff\xff\xff\xff").is_err());
    assert!(InfoRequest::decode(b"\x00\x00\x00\x00\xff\xff\x00\x00").is_err());
    assert!(MetaContextRequest::decode(b"\0\0\0\0\xff\xff\xff\xff").is_err());
    assert!(ErrorChunk::decode(ChunkKind::Error, b"\0\0\0\x05\x00\x09short").is_err());
    assert!(InfoRequest::decode(b"\0\0\0\0\0\0extra").is_err());
    let huge = ChunkHeader {
        flags: ChunkFlags::DONE,
        kind: ChunkKind::OffsetData,
        cookie: 0,
        len: u32::MAX,
    };
    assert!(ReplyHeader::decode(&huge.to_bytes()).is_err());
    let huge = OptionReplyHeader { option: 1, reply: 1, len: u32::MAX };
    assert!(OptionReplyHeader::decode(&huge.to_bytes()).is_err());
}

#[test]
fn block_sizes_that_contradict_each_other_are_refused() {
    let check = |minimum, preferred, maximum, is_valid: bool| {
        let mut data = Vec::new();
        Info::BlockSize(BlockSizes { minimum, preferred, maximum }).encode(&mut data);
        assert_eq!(Info::decode(&data).is_ok(), is_valid, "{minimum} {preferred} {maximum}");
    };
    check(1, 4096, u32::MAX, true);
    check(512, 4096, 32 << 20, true);
    check(0, 4096, 32 << 20, false);
    check(512, 513, 32 << 20, false);
    check(4096, 512, 32 << 20, false);
    check(4096, 4096, 512, false);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        decode_everything(&bytes);
    }

    #[test]
    fn damaged_messages_never_panic(
        name in ".{0,20}",
        queries in proptest::collection::vec(".{0,20}", 0..4),
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
        let mut bytes = Vec::new();
        MetaContextRequest::encode(OptionKind::SetMetaContext, &name, &queries, &mut bytes);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        for start in 0..bytes.len() {
            decode_everything(&bytes[start..]);
        }
    }

    #[test]
    fn fixed_headers_round_trip(a: u64, b: u64, c: u32, d: u16, e in 0u16..8) {
        let greeting = Greeting { flags: HandshakeFlags(d) };
        check_header(&greeting.to_bytes(), greeting, Greeting::decode);
        let flags = ClientFlags(c & 3);
        check_header(&flags.to_bytes(), flags, ClientFlags::decode);
        let option = OptionHeader { option: c, len: a as u32 };
        check_header(&option.to_bytes(), option, OptionHeader::decode);
        let reply = OptionReplyHeader { option: c, reply: b as u32, len: u32::from(d) };
        check_header(&reply.to_bytes(), reply, OptionReplyHeader::decode);
        let flags = CommandFlags(d);
        let request = RequestHeader { flags, command: e, cookie: a, offset: b, len: c };
        check_header(&request.to_bytes(), request, RequestHeader::decode);
        let result = Errno::from_wire(c % 200);
        let simple = SimpleReply { result, cookie: a };
        check_header(&simple.to_bytes(), ReplyHeader::Simple(simple), ReplyHeader::decode);
        let kind = ChunkKind::from_wire(d);
        let chunk = ChunkHeader { flags: ChunkFlags(e), kind, cookie: b, len: u32::from(d) };
        check_header(&chunk.to_bytes(), ReplyHeader::Chunk(chunk), ReplyHeader::decode);
        let export = ExportNameReply { size: a, flags: TransmissionFlags(d) };
        prop_assert_eq!(ExportNameReply::decode(&export.to_bytes()), Some(export));
        let hole = OffsetHole { offset: a, len: c };
        prop_assert_eq!(OffsetHole::decode(&hole.to_bytes()), Ok(hole));
        let data = OffsetData { offset: a };
        prop_assert_eq!(OffsetData::decode(&data.to_bytes()), Some(data));
    }

    #[test]
    fn options_round_trip(name in ".{0,100}", queries in proptest::collection::vec(".{0,40}", 0..6)) {
        let mut bytes = Vec::new();
        let wanted = [InfoKind::Name, InfoKind::BlockSize];
        InfoRequest::encode(OptionKind::Go, &name, &wanted, &mut bytes);
        let header = OptionHeader::decode(&bytes).unwrap().unwrap();
        prop_assert_eq!(OptionKind::from_wire(header.option), Some(OptionKind::Go));
        let data = &bytes[OptionHeader::SIZE..];
        prop_assert_eq!(data.len(), header.len as usize);
        let request = InfoRequest::decode(data).unwrap();
        prop_assert_eq!(request.name, name.as_str());
        prop_assert!(request.wants(InfoKind::Name) && !request.wants(InfoKind::Description));

        let mut bytes = Vec::new();
        let list: Vec<&str> = queries.iter().map(String::as_str).collect();
        MetaContextRequest::encode(OptionKind::SetMetaContext, &name, &list, &mut bytes);
        let request = MetaContextRequest::decode(&bytes[OptionHeader::SIZE..]).unwrap();
        prop_assert_eq!(request.name, name.as_str());
        prop_assert_eq!(request.queries().collect::<Vec<_>>(), list);

        let mut bytes = Vec::new();
        encode_export_name(&name, &mut bytes);
        prop_assert_eq!(decode_export_name(&bytes[OptionHeader::SIZE..]), Ok(name.as_str()));
    }

    #[test]
    fn option_replies_round_trip(name in ".{0,100}", id: u32, size: u64, flags: u16) {
        let mut bytes = Vec::new();
        option_reply::encode_server(3, &name, &mut bytes);
        let data = &bytes[OptionReplyHeader::SIZE..];
        prop_assert_eq!(option_reply::decode_server(data), Ok((name.as_str(), &b""[..])));
        bytes.clear();
        option_reply::encode_meta_context(10, id, &name, &mut bytes);
        let data = &bytes[OptionReplyHeader::SIZE..];
        prop_assert_eq!(option_reply::decode_meta_context(data), Ok((id, name.as_str())));
        let sizes = BlockSizes { minimum: 512, preferred: 8192, maximum: 1 << 25 };
        let flags = TransmissionFlags(flags);
        for info in [
            Info::Export { size, flags },
            Info::Name(&name),
            Info::Description(&name),
            Info::BlockSize(sizes),
            Info::Other(77),
        ] {
            bytes.clear();
            option_reply::encode_info(7, &info, &mut bytes);
            let header = OptionReplyHeader::decode(&bytes).unwrap().unwrap();
            prop_assert_eq!(header.len as usize, bytes.len() - OptionReplyHeader::SIZE);
            prop_assert_eq!(Info::decode(&bytes[OptionReplyHeader::SIZE..]), Ok(info));
        }
    }

    #[test]
    fn chunk_payloads_round_trip(context: u32, list in proptest::collection::vec((1u32.., any::<u32>()), 1..9)) {
        let list: Vec<_> =
            list.into_iter().map(|(len, flags)| StatusExtent { len, flags }).collect();
        let mut payload = context.to_be_bytes().to_vec();
        list.iter().for_each(|extent| payload.extend_from_slice(&extent.to_bytes()));
        let status = BlockStatus::decode(&payload).unwrap();
        prop_assert_eq!(status.context, context);
        prop_assert_eq!(status.extents().collect::<Vec<_>>(), list);
        for errno in Errno::ALL {
            let error = ErrorChunk { errno, message: "", offset: None };
            let payload = ErrorChunk::bare(errno);
            prop_assert_eq!(ErrorChunk::decode(ChunkKind::Error, &payload), Ok(error));
        }
    }
}
