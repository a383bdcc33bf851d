//! Bodies of the fuzz targets: hostile bytes in, promises checked.
//!
//! Each takes a few bytes to choose a set-up, and the rest as what a client sends. The targets in
//! `fuzz/` feed them what libFuzzer finds; the tests here feed them random bytes on the stable
//! toolchain. With the feature `planted-bugs` every body must fail soon.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_core::action::{Extent, ExtentState, Reply, ReplyData, Span};
use forebay_core::geometry::{ByteRange, REQUEST_MAX, SECTOR};
use forebay_core::ids::{Nanos, RequestTag};
use forebay_core::request::Op;
use forebay_core::status::IoStatus;
use forebay_nbd::flags::ChunkFlags;
use forebay_nbd::reply::{BlockStatus, ChunkKind, ErrorChunk, OffsetData, ReplyHeader};
use forebay_nbd::request::RequestHeader;

use super::handshake::{Handshake, Negotiated, Outcome, options_max};
use super::session::{REQUESTS_MAX, Session, Step};
use super::{Contexts, Export};

const SIZE: u64 = 1 << 20;

/// A handshake: first byte = bytes fed at a time (0: all), the rest is the client.
pub fn nbd_handshake(data: &[u8]) {
    let Some((&piece, client)) = data.split_first() else { return };
    let exports: Arc<[Export]> = Arc::new([Export::new("db", SIZE), Export::new("", SIZE)]);
    let mut out = Vec::new();
    let mut handshake = Handshake::start(exports.clone(), &mut out);
    let piece = if piece == 0 { usize::MAX } else { usize::from(piece) };
    let mut fed = 0;
    for bytes in client.chunks(piece) {
        fed += bytes.len();
        match handshake.feed(bytes, &mut out) {
            Outcome::Continue => {}
            Outcome::Transmission { export, negotiated, leftover } => {
                assert!(export < exports.len());
                assert!(client[..fed].ends_with(&leftover));
                let none = Contexts::default();
                assert!(negotiated.structured_replies || negotiated.contexts == none);
                break;
            }
            Outcome::Close(reason) => {
                assert!(!reason.to_string().is_empty());
                break;
            }
        }
    }
    assert!(out.len() <= options_max(exports.len()) as usize * 1024, "answers are bounded");
}

/// A transmission phase: one byte of set-up, one byte = bytes fed at a time (0: all), the rest is the
/// client. Requests are checked and answered, oldest or newest first; answers are decoded.
pub fn nbd_session(data: &[u8]) {
    let [setup, piece, client @ ..] = data else { return };
    let mut world = World::new(*setup);
    let piece = if *piece == 0 { usize::MAX } else { usize::from(*piece) };
    for bytes in client.chunks(piece) {
        world.input.extend_from_slice(bytes);
        if !world.take_requests() {
            break;
        }
    }
    if let Some((key, _)) = world.payload.take() {
        let cookie = world.taken.remove(&key).expect("it was taken");
        world.settle(cookie);
        world.session.forget(key);
    }
    while world.answer_one() {}
    assert_eq!(world.session.in_flight(), 0);
    assert!(world.unanswered.is_empty(), "a request was never answered");
}

/// A session, and what is known of its client and its engine.
struct World {
    session: Session,
    structured: bool,
    newest_first: bool,
    input: Vec<u8>,
    out: Vec<u8>,
    /// Key and missing bytes of the write whose payload is arriving.
    payload: Option<(u32, usize)>,
    /// Cookie of each key that the engine has.
    taken: HashMap<u32, u64>,
    /// Questions for the engine: key, range, operation (`None`: a write).
    questions: Vec<(u32, ByteRange, Option<Op>)>,
    /// How many requests with a cookie wait for their answer.
    unanswered: HashMap<u64, u32>,
}

impl World {
    fn new(setup: u8) -> World {
        let bit = |bit: u8| setup >> bit & 1 == 1;
        let mut export = Export::new("db", SIZE);
        export.read_only = bit(0) && bit(1);
        export.write_cache = bit(2);
        let structured = bit(3);
        let contexts = Contexts { allocation: structured && bit(4), state: structured && bit(5) };
        let negotiated = Negotiated { structured_replies: structured, contexts };
        World {
            session: Session::new(&export, negotiated),
            structured,
            newest_first: bit(6),
            input: Vec::new(),
            out: Vec::new(),
            payload: None,
            taken: HashMap::new(),
            questions: Vec::new(),
            unanswered: HashMap::new(),
        }
    }

    /// Goes through the input; false when the connection is to be closed.
    fn take_requests(&mut self) -> bool {
        loop {
            if let Some((key, missing)) = self.payload {
                let here = missing.min(self.input.len());
                self.input.drain(..here);
                if here < missing {
                    self.payload = Some((key, missing - here));
                    return true;
                }
                self.payload = None;
                self.questions.push((key, ByteRange::default(), None));
            }
            let header = RequestHeader::decode(&self.input);
            let was_skipping = self.session.is_skipping();
            let Ok((consumed, step)) = self.session.next(&self.input, &mut self.out) else {
                return false;
            };
            assert!(consumed <= self.input.len());
            self.input.drain(..consumed);
            if !was_skipping && let Ok(Some(header)) = header {
                let is_taken = !matches!(step, Step::Full | Step::Disconnect);
                *self.unanswered.entry(header.cookie).or_default() += u32::from(is_taken);
                self.unanswered.retain(|_, count| *count > 0);
                match step {
                    Step::Write { key, .. } => self.taken.insert(key, header.cookie),
                    Step::Request(submission) => self.taken.insert(submission.key, header.cookie),
                    _ => None,
                };
            }
            self.check_answers(0);
            match step {
                Step::NeedMore => return true,
                Step::Disconnect => return false,
                Step::Refused => assert!(consumed > 0),
                Step::Full => {
                    assert!(self.answer_one(), "full, and nothing to wait for");
                }
                Step::Write { key, range, .. } => {
                    self.check_range(range);
                    assert!(range.len() <= REQUEST_MAX);
                    self.payload = Some((key, range.len() as usize));
                }
                Step::Request(submission) => {
                    let (key, range, op) = (submission.key, submission.range, submission.op);
                    if op != Op::Flush {
                        self.check_range(range);
                    }
                    assert!(!matches!(op, Op::Read { .. }) || range.len() <= REQUEST_MAX);
                    self.questions.push((key, range, Some(op)));
                    let second = submission.second.map(|op| (key + 1, range, Some(op)));
                    self.questions.extend(second);
                }
            }
            assert!(self.session.in_flight() <= REQUESTS_MAX as usize);
        }
    }

    fn check_range(&self, range: ByteRange) {
        assert!(!range.is_empty() && range.end <= SIZE && range.is_aligned(SECTOR));
    }

    /// Answers one question; false when there is none.
    fn answer_one(&mut self) -> bool {
        if self.questions.is_empty() {
            return false;
        }
        let at = if self.newest_first { self.questions.len() - 1 } else { 0 };
        let (key, range, op) = self.questions.remove(at);
        let status = if key % 5 == 3 { IoStatus::IoError } else { IoStatus::Ok };
        let slices = [Span { offset: 0, len: range.len() as u32 }];
        let extents = [Extent { len: range.len(), state: ExtentState::Clean }];
        let data = match op {
            Some(Op::Read { .. }) if status.is_ok() => ReplyData::Slots { first: 0, count: 1 },
            Some(Op::Allocation | Op::CacheState) => ReplyData::Extents { first: 0, count: 1 },
            _ => ReplyData::None,
        };
        let tag = RequestTag(u64::from(key));
        let reply = Reply { tag, status, submitted: Nanos(0), data };
        let with_data = self.session.reply(&reply, &slices, &extents, &mut self.out);
        self.check_answers(if with_data { range.len() as usize } else { 0 });
        true
    }

    /// Decodes what was appended for the client; `data_len` bytes of data would follow.
    fn check_answers(&mut self, data_len: usize) {
        let out = std::mem::take(&mut self.out);
        let mut rest = &out[..];
        while !rest.is_empty() {
            let header = ReplyHeader::decode(rest).expect("valid").expect("whole");
            let body = &rest[header.size()..];
            match header {
                ReplyHeader::Simple(reply) => {
                    assert!(!self.structured || data_len == 0, "reads answer in chunks");
                    self.settle(reply.cookie);
                    rest = body;
                }
                ReplyHeader::Chunk(chunk) => {
                    let payload = &body[..chunk.len as usize - data_len];
                    match chunk.kind {
                        ChunkKind::OffsetData => assert_eq!(payload.len(), OffsetData::SIZE),
                        ChunkKind::BlockStatus => drop(BlockStatus::decode(payload).unwrap()),
                        kind => drop(ErrorChunk::decode(kind, payload).unwrap()),
                    }
                    if chunk.flags.has(ChunkFlags::DONE) {
                        self.settle(chunk.cookie);
                    }
                    rest = &body[payload.len()..];
                }
            }
        }
        self.out = out;
        self.out.clear();
    }

    /// A request with this cookie was answered.
    fn settle(&mut self, cookie: u64) {
        let count = self.unanswered.get_mut(&cookie).expect("an answer to a request");
        *count -= 1;
        self.unanswered.retain(|_, count| *count > 0);
    }
}

#[cfg(test)]
mod tests {
    use forebay_nbd::flags::CommandFlags;
    use forebay_nbd::option::OptionHeader;
    use proptest::prelude::*;

    use super::*;

    /// Requests of which some make sense, payloads, and garbage.
    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let flags = prop_oneof![4 => Just(0u16), 1 => 0u16..32];
        let offset = prop_oneof![8 => (0u64..2100).prop_map(|at| at * 512), 1 => any::<u64>()];
        let len = prop_oneof![8 => (0u32..20).prop_map(|len| len * 512), 1 => any::<u32>()];
        let request = (0u16..9, flags, 0u64..8, offset, len).prop_map(
            |(command, flags, cookie, offset, len)| {
                let flags = CommandFlags(flags);
                let header = RequestHeader { flags, command, cookie, offset, len };
                let mut bytes = header.to_bytes().to_vec();
                if command == 1 {
                    bytes.resize(bytes.len() + (len as usize).min(1 << 20), 0);
                }
                bytes
            },
        );
        let garbage = proptest::collection::vec(any::<u8>(), 0..30);
        let setup = proptest::collection::vec(any::<u8>(), 2);
        (setup, proptest::collection::vec(request, 0..200), garbage)
            .prop_map(|(setup, requests, garbage)| [setup, requests.concat(), garbage].concat())
    }

    /// Client flags, options of known numbers with random data, and garbage.
    fn options() -> impl Strategy<Value = Vec<u8>> {
        let data = proptest::collection::vec(prop_oneof![4 => Just(0u8), 1 => any::<u8>()], 0..40);
        let option = (0u32..13, data).prop_map(|(option, data)| {
            let header = OptionHeader { option, len: data.len() as u32 };
            [&header.to_bytes()[..], &data].concat()
        });
        let garbage = proptest::collection::vec(any::<u8>(), 0..30);
        (any::<u8>(), 0u8..4, proptest::collection::vec(option, 0..30), garbage).prop_map(
            |(piece, flags, options, garbage)| {
                [vec![piece, 0, 0, 0, flags], options.concat(), garbage].concat()
            },
        )
    }

    #[cfg(not(feature = "planted-bugs"))]
    proptest! {
        #[test]
        fn the_handshake_keeps_its_promises(data in options()) {
            nbd_handshake(&data);
        }

        #[test]
        fn the_session_keeps_its_promises(data in stream()) {
            nbd_session(&data);
        }

        #[test]
        fn plain_noise_is_survived(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            nbd_handshake(&data);
            nbd_session(&data);
        }
    }

    /// True when some input of `inputs` makes `body` fail.
    #[cfg(feature = "planted-bugs")]
    fn finds(inputs: impl Strategy<Value = Vec<u8>>, body: fn(&[u8])) -> bool {
        use proptest::strategy::ValueTree;
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        (0..256).any(|_| {
            let data = inputs.new_tree(&mut runner).unwrap().current();
            std::panic::catch_unwind(|| body(&data)).is_err()
        })
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn the_planted_bugs_are_found() {
        assert!(finds(options(), nbd_handshake));
        assert!(finds(stream(), nbd_session));
    }
}
