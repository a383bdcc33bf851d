//! Requests in, answers out, and what hostile clients try.

use forebay_core::action::{Buffer, Extent, ExtentState, Reply, ReplyData, Span};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{Nanos, RequestTag};
use forebay_core::request::Op;
use forebay_core::status::IoStatus;
use forebay_nbd::errno::Errno;
use forebay_nbd::flags::{ChunkFlags, CommandFlags};
use forebay_nbd::reply::{
    BlockStatus, ChunkHeader, ChunkKind, ErrorChunk, OffsetData, ReplyHeader, SimpleReply,
};
use forebay_nbd::request::{Command, RequestHeader};
use proptest::prelude::*;

use super::{BYTES_MAX, REQUESTS_MAX, Session, Step, Submission};
use crate::nbd::{Contexts, Export, Negotiated};

const SIZE: u64 = 1 << 30;
const MIB: u32 = 1 << 20;

fn simple() -> Negotiated {
    Negotiated::default()
}

fn structured(allocation: bool, state: bool) -> Negotiated {
    Negotiated { structured_replies: true, contexts: Contexts { allocation, state } }
}

fn session(negotiated: Negotiated) -> Session {
    Session::new(&Export::new("db", SIZE), negotiated)
}

fn header(command: Command, flags: CommandFlags, offset: u64, len: u32) -> RequestHeader {
    RequestHeader { flags, command: command.wire(), cookie: 0xc00c1e, offset, len }
}

/// The request that `session` makes of one, and its immediate answer.
fn ask(session: &mut Session, header: RequestHeader) -> (Step, Vec<u8>) {
    let mut out = Vec::new();
    let (consumed, step) = session.next(&header.to_bytes(), &mut out).unwrap();
    assert_eq!(consumed, if step == Step::Full { 0 } else { RequestHeader::SIZE });
    (step, out)
}

fn submission(session: &mut Session, header: RequestHeader) -> Submission {
    match ask(session, header).0 {
        Step::Request(submission) => submission,
        other => panic!("{other:?}"),
    }
}

fn reply(key: u32, status: IoStatus, data: ReplyData) -> Reply {
    // The upper half of a tag is the connection's and does not matter here.
    let tag = RequestTag(7 << 32 | u64::from(key));
    Reply { tag, status, submitted: Nanos(0), data }
}

/// The answer to the request with `key` when it has no data.
fn answer(session: &mut Session, key: u32, status: IoStatus) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(!session.reply(&reply(key, status, ReplyData::None), &[], &[], &mut out));
    out
}

/// The error number of the first reply in `out`.
fn errno(out: &[u8]) -> Errno {
    match ReplyHeader::decode(out).unwrap().unwrap() {
        ReplyHeader::Simple(reply) => reply.result.unwrap_err(),
        ReplyHeader::Chunk(chunk) => {
            assert_eq!(out.len(), ChunkHeader::SIZE + chunk.len as usize);
            ErrorChunk::decode(chunk.kind, &out[ChunkHeader::SIZE..]).unwrap().errno
        }
    }
}

#[test]
fn every_command_becomes_its_operation() {
    let check = |command, flags, expected| {
        let mut session = session(structured(true, false));
        let submission = submission(&mut session, header(command, flags, 4096, 8192));
        assert_eq!((submission.op, submission.second), (expected, None));
        let range = if command == Command::Flush { (0, 0) } else { (4096, 8192) };
        assert_eq!(submission.range, ByteRange::at(range.0, range.1));
        assert_eq!(session.in_flight(), 1);
    };
    let none = CommandFlags::NONE;
    check(Command::Read, none, Op::Read { no_admit: false });
    check(Command::Read, CommandFlags::DF, Op::Read { no_admit: false });
    check(Command::Flush, none, Op::Flush);
    check(Command::Trim, none, Op::Discard { fua: false });
    check(Command::Trim, CommandFlags::FUA, Op::Discard { fua: true });
    check(Command::Cache, none, Op::Prefetch);
    check(Command::BlockStatus, none, Op::Allocation);
    let zeroes = |may_unmap, fast_only, fua| Op::WriteZeroes { may_unmap, fast_only, fua };
    check(Command::WriteZeroes, none, zeroes(true, false, false));
    check(Command::WriteZeroes, CommandFlags::NO_HOLE, zeroes(false, false, false));
    check(Command::WriteZeroes, CommandFlags::FAST_ZERO, zeroes(true, true, false));
    check(Command::WriteZeroes, CommandFlags::FUA, zeroes(true, false, true));
}

#[test]
fn a_write_is_followed_by_its_payload() {
    for (flags, fua) in [(CommandFlags::NONE, false), (CommandFlags::FUA, true)] {
        let mut session = session(simple());
        let (step, out) = ask(&mut session, header(Command::Write, flags, 512, 1024));
        assert_eq!(step, Step::Write { key: 0, range: ByteRange::at(512, 1024), fua });
        assert!(out.is_empty());
        let out = answer(&mut session, 0, IoStatus::Ok);
        let expected = SimpleReply { result: Ok(()), cookie: 0xc00c1e };
        assert_eq!(out, expected.to_bytes());
        assert_eq!(session.in_flight(), 0);
    }
}

#[test]
fn without_a_write_cache_every_write_is_durable_and_a_flush_is_still_taken() {
    let mut export = Export::new("db", SIZE);
    export.write_cache = false;
    let mut session = Session::new(&export, simple());
    let none = CommandFlags::NONE;
    let (step, _) = ask(&mut session, header(Command::Write, none, 0, 512));
    assert!(matches!(step, Step::Write { fua: true, .. }));
    let zeroes = submission(&mut session, header(Command::WriteZeroes, none, 0, 512));
    assert!(matches!(zeroes.op, Op::WriteZeroes { fua: true, .. }));
    let trim = submission(&mut session, header(Command::Trim, none, 0, 512));
    assert_eq!(trim.op, Op::Discard { fua: true });
    assert_eq!(submission(&mut session, header(Command::Flush, none, 0, 0)).op, Op::Flush);
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let check = |negotiated, command, flags, offset, len, expected| {
        let mut session = session(negotiated);
        let (step, out) = ask(&mut session, header(command, flags, offset, len));
        assert_eq!(step, Step::Refused, "{command:?} {offset} {len}");
        assert_eq!(errno(&out), expected, "{command:?} {offset} {len}");
        assert_eq!(session.in_flight(), 0);
    };
    let none = CommandFlags::NONE;
    let all = structured(true, true);
    for negotiated in [simple(), all] {
        for command in [Command::Read, Command::Cache, Command::Trim] {
            check(negotiated, command, none, SIZE, 512, Errno::Inval);
            check(negotiated, command, none, SIZE - 512, 1024, Errno::Inval);
            check(negotiated, command, none, u64::MAX - 511, 1024, Errno::Inval);
            check(negotiated, command, none, 0, 0, Errno::Inval);
            check(negotiated, command, none, 1, 512, Errno::Inval);
            check(negotiated, command, none, 0, 511, Errno::Inval);
            check(negotiated, command, CommandFlags::NO_HOLE, 0, 512, Errno::Inval);
            check(negotiated, command, CommandFlags(1 << 9), 0, 512, Errno::Inval);
        }
        for command in [Command::Write, Command::WriteZeroes] {
            check(negotiated, command, none, SIZE, 512, Errno::NoSpc);
            check(negotiated, command, none, u64::MAX, 512, Errno::NoSpc);
            check(negotiated, command, none, 0, 0, Errno::Inval);
            check(negotiated, command, none, 256, 512, Errno::Inval);
            check(negotiated, command, CommandFlags::DF, 0, 512, Errno::Inval);
        }
        check(negotiated, Command::Read, none, 0, 32 * MIB + 512, Errno::Inval);
        check(negotiated, Command::Read, none, 0, u32::MAX - 511, Errno::Inval);
    }
    check(simple(), Command::Read, CommandFlags::DF, 0, 512, Errno::Inval);
    check(simple(), Command::BlockStatus, none, 0, 512, Errno::Inval);
    check(structured(false, false), Command::BlockStatus, none, 0, 512, Errno::Inval);
}

#[test]
fn unknown_commands_are_refused() {
    let mut session = session(simple());
    let unknown =
        RequestHeader { command: 99, ..header(Command::Read, CommandFlags::NONE, 0, 512) };
    let (step, out) = ask(&mut session, unknown);
    assert_eq!((step, errno(&out)), (Step::Refused, Errno::Inval));
}

#[test]
fn a_read_only_export_refuses_every_way_to_write() {
    let mut export = Export::new("db", SIZE);
    export.read_only = true;
    for command in [Command::Write, Command::WriteZeroes, Command::Trim] {
        let mut session = Session::new(&export, simple());
        let (step, out) = ask(&mut session, header(command, CommandFlags::NONE, 0, 512));
        assert_eq!((step, errno(&out)), (Step::Refused, Errno::Perm));
    }
}

#[test]
fn the_payload_of_a_refused_write_is_skipped() {
    let mut session = session(simple());
    let mut out = Vec::new();
    let mut input = header(Command::Write, CommandFlags::NONE, SIZE, 2048).to_bytes().to_vec();
    input.extend_from_slice(&[0x25; 2048]);
    input.extend_from_slice(&header(Command::Flush, CommandFlags::NONE, 0, 0).to_bytes());
    let mut steps = Vec::new();
    // In pieces, so that the payload arrives in several.
    let (mut from, mut to) = (0, 0);
    while to < input.len() {
        to = (to + 1000).min(input.len());
        loop {
            let (consumed, step) = session.next(&input[from..to], &mut out).unwrap();
            from += consumed;
            if step == Step::NeedMore {
                break;
            }
            steps.push(step);
        }
    }
    assert_eq!(errno(&out), Errno::NoSpc);
    assert!(matches!(steps.last(), Some(Step::Request(Submission { op: Op::Flush, .. }))));
    assert!(steps[..steps.len() - 1].iter().all(|step| *step == Step::Refused));
}

#[test]
fn a_write_that_claims_4_gib_ends_the_connection() {
    for len in [32 * MIB + 1, u32::MAX] {
        let mut session = session(simple());
        let header = header(Command::Write, CommandFlags::NONE, 0, len);
        assert!(session.next(&header.to_bytes(), &mut Vec::new()).is_err());
    }
}

#[test]
fn garbage_ends_the_connection_at_its_first_byte() {
    let mut session = session(simple());
    assert!(session.next(b"\0", &mut Vec::new()).is_err());
    assert!(session.next(&[0x25; 40], &mut Vec::new()).is_err());
}

#[test]
fn half_a_header_waits_for_the_rest() {
    let mut session = session(simple());
    let bytes = header(Command::Read, CommandFlags::NONE, 0, 512).to_bytes();
    for cut in 0..bytes.len() {
        let step = session.next(&bytes[..cut], &mut Vec::new());
        assert_eq!(step, Ok((0, Step::NeedMore)));
    }
}

#[test]
fn a_disconnect_is_not_answered() {
    let mut session = session(simple());
    let (step, out) = ask(&mut session, header(Command::Disconnect, CommandFlags::NONE, 0, 0));
    assert_eq!((step, out.len()), (Step::Disconnect, 0));
}

#[test]
fn requests_in_flight_are_bounded_in_number() {
    let mut session = session(simple());
    let read = header(Command::Read, CommandFlags::NONE, 0, 512);
    for _ in 0..REQUESTS_MAX {
        submission(&mut session, read);
    }
    assert_eq!(ask(&mut session, read).0, Step::Full);
    answer(&mut session, 6, IoStatus::IoError);
    assert_eq!(submission(&mut session, read).key, 6);
    assert_eq!(ask(&mut session, read).0, Step::Full);
}

#[test]
fn requests_in_flight_are_bounded_in_bytes_but_one_always_fits() {
    let mut session = session(simple());
    let none = CommandFlags::NONE;
    let largest = header(Command::Read, none, 0, 32 * MIB);
    let key = submission(&mut session, largest).key;
    assert_eq!(ask(&mut session, header(Command::Read, none, 0, 512)).0, Step::Full);
    submission(&mut session, header(Command::Flush, none, 0, 0));
    answer(&mut session, key, IoStatus::IoError);
    for _ in 0..BYTES_MAX >> 20 {
        submission(&mut session, header(Command::Read, none, 0, MIB));
    }
    assert_eq!(ask(&mut session, header(Command::Write, none, 0, 512)).0, Step::Full);
}

#[test]
fn a_prefetch_takes_as_much_room_as_the_read_that_it_is() {
    let mut session = session(simple());
    let prefetch = header(Command::Cache, CommandFlags::NONE, 0, 1 << 29);
    let key = submission(&mut session, prefetch).key;
    assert_eq!(ask(&mut session, prefetch).0, Step::Full, "a flood of them would starve others");
    answer(&mut session, key, IoStatus::Ok);
    submission(&mut session, prefetch);
}

#[test]
fn questions_about_blocks_are_few_at_a_time() {
    let mut session = session(structured(true, true));
    let question = header(Command::BlockStatus, CommandFlags::NONE, 0, 1 << 29);
    let keys: Vec<_> = (0..16).map(|_| submission(&mut session, question).key).collect();
    assert_eq!(ask(&mut session, question).0, Step::Full, "a flood of them would starve others");
    answer(&mut session, keys[0], IoStatus::IoError);
    assert_eq!(ask(&mut session, question).0, Step::Full, "its second answer is to come");
    answer(&mut session, keys[0] + 1, IoStatus::IoError);
    submission(&mut session, question);
}

#[test]
fn a_write_that_is_given_up_makes_room() {
    let mut session = session(simple());
    let write = header(Command::Write, CommandFlags::NONE, 0, 32 * MIB);
    let Step::Write { key, .. } = ask(&mut session, write).0 else { panic!() };
    assert_eq!(ask(&mut session, write).0, Step::Full);
    session.forget(key);
    assert_eq!(session.in_flight(), 0);
    assert!(matches!(ask(&mut session, write).0, Step::Write { .. }));
}

#[test]
fn a_read_is_answered_in_one_piece_from_slots_or_from_a_buffer() {
    let slices = [
        Span { offset: 0, len: 4096 },
        Span { offset: 9000, len: 1024 },
        Span { offset: 0, len: 3072 },
    ];
    let data = Span { offset: 512, len: 4096 };
    let window = ByteRange::at(0, 8192);
    let buffer = Buffer { span: Span { offset: 0, len: 8192 }, window };
    for data in [ReplyData::Slots { first: 1, count: 2 }, ReplyData::Buffer { data, buffer }] {
        let mut session = session(simple());
        let read = header(Command::Read, CommandFlags::NONE, 512, 4096);
        let key = submission(&mut session, read).key;
        let mut out = Vec::new();
        assert!(session.reply(&reply(key, IoStatus::Ok, data), &slices, &[], &mut out));
        assert_eq!(out, SimpleReply { result: Ok(()), cookie: 0xc00c1e }.to_bytes());
    }
    let mut session = session(structured(false, false));
    let read = header(Command::Read, CommandFlags::DF, 512, 4096);
    let key = submission(&mut session, read).key;
    let data = ReplyData::Slots { first: 1, count: 2 };
    let mut out = Vec::new();
    assert!(session.reply(&reply(key, IoStatus::Ok, data), &slices, &[], &mut out));
    let (kind, len) = (ChunkKind::OffsetData, 4096 + OffsetData::SIZE as u32);
    let chunk = ChunkHeader { flags: ChunkFlags::DONE, kind, cookie: 0xc00c1e, len };
    assert_eq!(out[..ChunkHeader::SIZE], chunk.to_bytes());
    assert_eq!(out[ChunkHeader::SIZE..], 512u64.to_be_bytes());
}

#[test]
fn every_status_has_its_error_number() {
    let check = |status, expected| {
        for negotiated in [simple(), structured(false, false)] {
            let mut session = session(negotiated);
            let read = header(Command::Read, CommandFlags::NONE, 0, 512);
            let key = submission(&mut session, read).key;
            assert_eq!(errno(&answer(&mut session, key, status)), expected);
        }
    };
    check(IoStatus::IoError, Errno::Io);
    check(IoStatus::TimedOut, Errno::Io);
    check(IoStatus::NoSpace, Errno::NoSpc);
    check(IoStatus::Unsupported, Errno::NotSup);
    check(IoStatus::ReadOnly, Errno::Perm);
    check(IoStatus::Reserved, Errno::Perm);
    check(IoStatus::Invalid, Errno::Inval);
    check(IoStatus::ShuttingDown, Errno::Shutdown);
}

/// Extents of a `BLOCK_STATUS` answer in `out`, as (context, [(length, flags)], is the last chunk).
fn status(out: &[u8]) -> (u32, Vec<(u32, u32)>, bool) {
    let Some(ReplyHeader::Chunk(chunk)) = ReplyHeader::decode(out).unwrap() else { panic!() };
    assert_eq!((chunk.kind, chunk.cookie), (ChunkKind::BlockStatus, 0xc00c1e));
    assert_eq!(out.len(), ChunkHeader::SIZE + chunk.len as usize);
    let status = BlockStatus::decode(&out[ChunkHeader::SIZE..]).unwrap();
    let extents = status.extents().map(|extent| (extent.len, extent.flags)).collect();
    (status.context, extents, chunk.flags.has(ChunkFlags::DONE))
}

fn extents_of(session: &mut Session, key: u32, list: &[Extent]) -> Vec<u8> {
    let data = ReplyData::Extents { first: 0, count: list.len() as u32 };
    let mut out = Vec::new();
    assert!(!session.reply(&reply(key, IoStatus::Ok, data), &[], list, &mut out));
    out
}

#[test]
fn both_contexts_are_two_questions_and_two_chunks_in_any_order() {
    let allocation = [Extent { len: 65536, state: ExtentState::Hole }];
    let state = [Extent { len: 65536, state: ExtentState::Dirty }];
    for swapped in [false, true] {
        let mut session = session(structured(true, true));
        let ask = header(Command::BlockStatus, CommandFlags::NONE, 0, 65536);
        let submission = submission(&mut session, ask);
        assert_eq!((submission.op, submission.second), (Op::Allocation, Some(Op::CacheState)));
        let mut questions =
            [(submission.key, 1, 3, &allocation), (submission.key + 1, 2, 3, &state)];
        if swapped {
            questions.reverse();
        }
        for (turn, (key, context, flags, list)) in questions.into_iter().enumerate() {
            let out = extents_of(&mut session, key, list);
            assert_eq!(status(&out), (context, vec![(65536, flags)], turn == 1));
        }
        assert_eq!(session.in_flight(), 0);
    }
}

#[test]
fn one_failed_question_does_not_hide_the_other() {
    let mut session = session(structured(true, true));
    let ask = header(Command::BlockStatus, CommandFlags::NONE, 0, 4096);
    let key = submission(&mut session, ask).key;
    let out = answer(&mut session, key, IoStatus::IoError);
    let Some(ReplyHeader::Chunk(chunk)) = ReplyHeader::decode(&out).unwrap() else { panic!() };
    assert!(chunk.kind.is_error() && !chunk.flags.has(ChunkFlags::DONE));
    let out = extents_of(&mut session, key + 1, &[Extent { len: 4096, state: ExtentState::Clean }]);
    assert_eq!(status(&out), (2, vec![(4096, 1)], true));
}

#[test]
fn extents_are_merged_and_end_with_the_request() {
    let check = |flags, list: &[(u64, ExtentState)], expected: &[(u32, u32)]| {
        let mut session = session(structured(true, false));
        let ask = header(Command::BlockStatus, flags, 4096, 16384);
        let key = submission(&mut session, ask).key;
        let list: Vec<_> = list.iter().map(|&(len, state)| Extent { len, state }).collect();
        let out = extents_of(&mut session, key, &list);
        assert_eq!(status(&out), (1, expected.to_vec(), true), "{list:?}");
    };
    let (all, one) = (CommandFlags::NONE, CommandFlags::REQ_ONE);
    let (data, hole, zero) = (ExtentState::Allocated, ExtentState::Hole, ExtentState::Zero);
    check(all, &[(4096, data), (4096, data), (8192, hole)], &[(8192, 0), (8192, 3)]);
    check(one, &[(4096, data), (4096, data), (8192, hole)], &[(8192, 0)]);
    check(all, &[(1 << 40, zero)], &[(16384, 2)]);
    check(one, &[(1 << 40, zero)], &[(16384, 2)]);
    check(all, &[(4096, data), (0, hole), (512, zero)], &[(4096, 0), (512, 2)]);
    check(all, &[(4096, hole)], &[(4096, 3)]);
    check(one, &[(4096, hole)], &[(4096, 3)]);
}

proptest! {
    #[test]
    fn how_the_bytes_arrive_makes_no_difference(
        requests in proptest::collection::vec((0u16..9, 0u16..32, 0u64..8, 0u32..5), 1..20),
        cut in 1usize..100,
    ) {
        let mut input = Vec::new();
        for (index, (command, flags, offset, len)) in requests.into_iter().enumerate() {
            let flags = CommandFlags(flags);
            let (offset, len) = (SIZE - 2048 + 512 * offset, 512 * len);
            let cookie = index as u64;
            let header = RequestHeader { flags, command, cookie, offset, len };
            input.extend_from_slice(&header.to_bytes());
            if command == Command::Write.wire() {
                input.resize(input.len() + len as usize, 0xee);
            }
        }
        let run = |cut: usize| {
            let mut session = session(structured(true, true));
            let (mut out, mut steps, mut used, mut payload) = (Vec::new(), Vec::new(), 0, 0);
            let mut end = 0;
            while end < input.len() && steps.last() != Some(&Step::Disconnect) {
                end = (end + cut).min(input.len());
                loop {
                    let skipped = usize::min(payload, end - used);
                    (used, payload) = (used + skipped, payload - skipped);
                    if payload > 0 {
                        break;
                    }
                    let (consumed, step) = session.next(&input[used..end], &mut out).unwrap();
                    used += consumed;
                    match step {
                        Step::NeedMore | Step::Full => break,
                        Step::Refused => continue,
                        Step::Write { range, .. } => payload = range.len() as usize,
                        Step::Request(_) | Step::Disconnect => {}
                    }
                    steps.push(step);
                    if step == Step::Disconnect {
                        break;
                    }
                }
            }
            (out, steps)
        };
        prop_assert_eq!(run(cut), run(usize::MAX / 2));
    }
}
