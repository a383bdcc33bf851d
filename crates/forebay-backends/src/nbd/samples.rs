//! What an export held when its disk was opened, so that it is known again when it comes back.
//!
//! Somebody may serve another image at the same address: a disk that went on there would write into that, and give what it has
//! cached of the one before. So some pages are read before the first request, and again on each later session before it is used.
//! They are the first ones and the last, where partition tables are, and others at random places. A page that the disk writes to
//! is none any more: what a server that died has of it is not known. A destage journal is soon written all over: its
//! superblock is read instead, which says whose it is.
//!
//! Pages are read on a connection that nothing else uses yet, blocking: at the opening, and on the thread that connects.
//! What a server fails to read says nothing, unless that is all of it. A page that it does not answer in the time of a read,
//! while it answers others, is none any more. Two images that are alike in all these pages are not told apart.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use forebay_core::geometry::{ByteRange, PAGE};
use forebay_core::journal::{Owner, Superblock};
use forebay_core::sealed::crc32c;
use forebay_core::splitmix::Rng;
use forebay_io::clock;
use forebay_nbd::Invalid;
use forebay_nbd::flags::{ChunkFlags, CommandFlags};
use forebay_nbd::reply::{
    ChunkHeader, ChunkKind, OffsetData, OffsetHole, ReplyHeader, SimpleReply,
};
use forebay_nbd::request::{Command, RequestHeader};

use super::connect::NewSession;
use super::dial::Stream;

/// Pages at the begin.
const FIRST: u64 = 4;
/// Pages anywhere.
const RANDOM: u64 = 32;
/// Pages that are asked for at once.
const BATCH: usize = 10;
/// So few pages may all fail or hang by chance.
const FEW: usize = 4;
/// A slow server gives fewer pages: no more are asked for after this time.
const TAKE_FOR: Duration = Duration::from_secs(1);
/// Time in which a server answers at the opening; unit tests wait for that.
const ANSWER_MAX: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 10_000 });
/// Longest message of an error.
const MESSAGE_MAX: u32 = 8192;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    /// Bytes of the export, when its disk was opened.
    size: u64,
    /// Pages and their checksums, in the order of their places.
    pages: Vec<(ByteRange, u32)>,
    /// It is the destage journal of this owner. Its superblock changes, and always names the owner. It has no pages here.
    journal: Option<Owner>,
}

impl Samples {
    /// None of an export of this size.
    pub(super) fn none(size: u64) -> Samples {
        Samples { size, pages: Vec::new(), journal: None }
    }

    /// Reads the pages of an export.
    ///
    /// # Errors
    /// The kernel's, or what the server did wrong. The connection cannot be used any more. `TimedOut`: the server is slow, and
    /// there are those pages that came before.
    pub(super) fn take(&mut self, new: &NewSession) -> io::Result<()> {
        let mut reader = Reader::new(new)?;
        let until = Instant::now() + TAKE_FOR;
        for places in places(new.export.size, new.export.len_max()).chunks(BATCH) {
            if Instant::now() >= until {
                break;
            }
            let checksums = reader.checksums(places).map_err(|error| match is_slow(&error) {
                true => io::Error::from(io::ErrorKind::TimedOut),
                false => error,
            })?;
            let known = places.iter().zip(checksums);
            self.pages.extend(known.filter_map(|(place, sum)| Some((*place, sum?))));
        }
        reader.end()
    }

    /// It is the destage journal of this owner from now on.
    ///
    /// # Errors
    /// It is not, or it fails to say so. Where the server is slow, its connections end: it has to say so on the next ones.
    pub(super) fn expect_journal(&mut self, new: &NewSession, owner: Owner) -> io::Result<()> {
        self.journal = Some(owner);
        match is_journal(new, owner, ANSWER_MAX) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let what = "the export does not hold the destage journal that was just made there";
                Err(io::Error::other(what))
            }
            Err(why) if is_slow(&why) => {
                new.shut_down();
                Ok(())
            }
            Err(why) => Err(why),
        }
    }

    /// The disk is about to change this range.
    pub(super) fn forget(&mut self, written: ByteRange) {
        let first = self.pages.partition_point(|(page, _)| page.end <= written.start);
        let len = self.pages[first..].partition_point(|(page, _)| page.start < written.end);
        self.pages.drain(first..first + len);
    }

    /// Looks whether the pages hold what they did, and a journal its superblock, at the attempt of this number. A read has this time.
    ///
    /// # Errors
    /// They do not, or that is not known. The connection cannot be used any more.
    pub(super) fn check(
        &self,
        new: &NewSession,
        time: Duration,
        attempt: u32,
    ) -> Result<(), Unknown> {
        // One that is shorter is refused for that, which says more.
        if new.export.size < self.size {
            return Ok(());
        }
        if let Some(owner) = self.journal
            && !is_journal(new, owner, time).map_err(Unknown::Broken)?
        {
            return Err(Unknown::NotTheJournal);
        }
        if self.pages.is_empty() {
            return Ok(());
        }
        // Each attempt begins elsewhere: a page that hangs may keep those behind it from being answered. Where few are left,
        // another one tells whether the server reads at all.
        let is_few = self.pages.len() <= FEW;
        let (end, begin) = self.pages.split_at(attempt as usize % self.pages.len());
        let sampled = begin.iter().chain(end).map(|&(place, checksum)| (place, Some(checksum)));
        let others = places(new.export.size, new.export.len_max());
        let any = others[attempt as usize % others.len()];
        let all: Vec<_> = [(any, None)].into_iter().chain(sampled).collect();
        let mut reader = Reader::new(new).map_err(Unknown::Broken)?;
        let mut does_read = false;
        for pages in all.chunks(BATCH) {
            let mut coming: Vec<_> = pages.iter().map(|(place, _)| Coming::new(*place)).collect();
            let came = reader.fill(&mut coming, time);
            let mut unanswered = None;
            for (&(place, was), page) in pages.iter().zip(coming) {
                match page.checksum() {
                    Ok(Some(is)) if was.is_some_and(|was| was != is) => {
                        return Err(Unknown::Changed(place));
                    }
                    Ok(found) => does_read |= found.is_some() && (was.is_some() || is_few),
                    Err(why) if came.is_ok() => return Err(Unknown::Broken(why)),
                    Err(_) => unanswered = unanswered.or(was.map(|_| place)),
                }
            }
            if let Err(why) = came {
                // A server that answers nothing at all may answer all of it later.
                return Err(match unanswered.filter(|_| is_slow(&why) && does_read) {
                    Some(page) => Unknown::Hangs(page),
                    None => Unknown::Broken(why),
                });
            }
        }
        reader.end().map_err(Unknown::Broken)?;
        match does_read {
            true => Ok(()),
            false => Err(Unknown::Broken(io::Error::other("it fails to read each page"))),
        }
    }
}

/// Reads whether it holds the superblock of the destage journal of this owner, which has to be done in this time.
///
/// # Errors
/// That is not known. The connection cannot be used any more.
fn is_journal(new: &NewSession, owner: Owner, time: Duration) -> io::Result<bool> {
    let (end, len) = (2 * PAGE, PAGE.min(new.export.len_max()));
    let starts = (0..end).step_by(len as usize);
    let mut copies: Vec<_> =
        starts.map(|start| Coming::new(ByteRange::new(start, end.min(start + len)))).collect();
    let mut reader = Reader::new(new)?;
    reader.fill(&mut copies, time)?;
    reader.end()?;
    let mut bytes = Vec::with_capacity(end as usize);
    for copy in copies {
        bytes.extend_from_slice(&copy.bytes);
        let came = copy.checksum()?;
        came.ok_or_else(|| io::Error::other("it fails to read its first pages"))?;
    }
    let [first, second] = [0, 1].map(|copy| bytes.as_chunks().0[copy]);
    Ok(Superblock::choose([&first, &second]).is_ok_and(|found| found.owner == owner))
}

/// Whether it is the same export is not known, or it is another one.
#[derive(Debug)]
pub(super) enum Unknown {
    /// This page holds something else.
    Changed(ByteRange),
    /// It holds no destage journal, or that of somebody else.
    NotTheJournal,
    /// Others were answered, and this one not in time: it may never be.
    Hangs(ByteRange),
    /// It cannot be read.
    Broken(io::Error),
}

/// The pages to read of an export, in order.
fn places(size: u64, len_max: u64) -> Vec<ByteRange> {
    let count = size.div_ceil(PAGE);
    let mut rng = Rng::new(clock::now_nanos() ^ size);
    let mut numbers: Vec<u64> = (0..FIRST.min(count)).chain([count - 1]).collect();
    numbers.extend((0..RANDOM).map(|_| rng.below(count)));
    numbers.sort_unstable();
    numbers.dedup();
    let len = PAGE.min(len_max);
    let range = |number: u64| ByteRange::new(number * PAGE, (number * PAGE + len).min(size));
    numbers.into_iter().map(range).collect()
}

/// A page on its way.
struct Coming {
    range: ByteRange,
    bytes: Vec<u8>,
    received: u64,
    is_failed: bool,
    is_over: bool,
}

/// Reads on the first connection of a session.
struct Reader {
    stream: Stream,
    structured: bool,
}

impl Reader {
    fn new(new: &NewSession) -> io::Result<Reader> {
        let socket: OwnedFd = new.sockets[0].try_clone()?;
        Ok(Reader { stream: Stream::of(socket, new.is_local), structured: new.export.structured })
    }

    /// The connection is the session's again.
    fn end(self) -> io::Result<()> {
        self.stream.into_socket().map(drop)
    }

    /// Checksums of some places; none where the server fails to read.
    fn checksums(&mut self, places: &[ByteRange]) -> io::Result<Vec<Option<u32>>> {
        let mut pages: Vec<Coming> = places.iter().copied().map(Coming::new).collect();
        self.fill(&mut pages, ANSWER_MAX)?;
        pages.into_iter().map(Coming::checksum).collect()
    }

    /// Reads pages, which has to be done in this time.
    fn fill(&mut self, pages: &mut [Coming], time: Duration) -> io::Result<()> {
        let deadline = Instant::now() + time;
        let mut out = Vec::new();
        for (cookie, page) in pages.iter().enumerate() {
            let request = RequestHeader {
                flags: CommandFlags::NONE,
                command: Command::Read.wire(),
                cookie: cookie as u64,
                offset: page.range.start,
                len: page.range.len() as u32,
            };
            out.extend_from_slice(&request.to_bytes());
        }
        self.stream.send(&out, deadline)?;
        while pages.iter().any(|page| !page.is_over) {
            self.take_reply(pages, deadline)?;
        }
        Ok(())
    }

    /// Takes one reply, or one chunk of one.
    fn take_reply(&mut self, pages: &mut [Coming], deadline: Instant) -> io::Result<()> {
        let mut header = [0; ChunkHeader::SIZE];
        self.stream.receive(&mut header[..SimpleReply::SIZE], deadline)?;
        let decoded = ReplyHeader::decode(&header[..SimpleReply::SIZE]).map_err(wrong)?;
        match decoded {
            Some(ReplyHeader::Simple(SimpleReply { result, cookie })) => {
                let page = awaited(pages, cookie)?;
                page.is_failed = result.is_err();
                if !page.is_failed && self.structured {
                    return Err(invalid("a simple reply though structured ones were agreed"));
                }
                if !page.is_failed {
                    self.stream.receive(&mut page.bytes, deadline)?;
                    page.received = page.range.len();
                }
                page.is_over = true;
                Ok(())
            }
            Some(ReplyHeader::Chunk(_)) | None => {
                self.stream.receive(&mut header[SimpleReply::SIZE..], deadline)?;
                match ReplyHeader::decode(&header).map_err(wrong)? {
                    Some(ReplyHeader::Chunk(chunk)) if self.structured => {
                        self.take_chunk(chunk, awaited(pages, chunk.cookie)?, deadline)
                    }
                    _ => Err(invalid("a structured reply though simple ones were agreed")),
                }
            }
        }
    }

    fn take_chunk(
        &mut self,
        chunk: ChunkHeader,
        page: &mut Coming,
        deadline: Instant,
    ) -> io::Result<()> {
        match chunk.kind {
            ChunkKind::OffsetData => {
                let mut offset = [0; OffsetData::SIZE];
                self.stream.receive(&mut offset, deadline)?;
                let OffsetData { offset } = OffsetData::decode(&offset).expect("all its bytes");
                let len = u64::from(chunk.len).saturating_sub(OffsetData::SIZE as u64);
                self.stream.receive(page.piece(offset, len)?, deadline)?;
            }
            ChunkKind::OffsetHole if chunk.len as usize == OffsetHole::SIZE => {
                let mut payload = [0; OffsetHole::SIZE];
                self.stream.receive(&mut payload, deadline)?;
                let hole = OffsetHole::decode(&payload).map_err(wrong)?;
                page.piece(hole.offset, hole.len.into())?.fill(0);
            }
            ChunkKind::None if chunk.len == 0 => {}
            kind if kind.is_error() && chunk.len <= MESSAGE_MAX => {
                page.is_failed = true;
                self.stream.receive(&mut vec![0; chunk.len as usize], deadline)?;
            }
            _ => return Err(invalid("a chunk that no read has")),
        }
        page.is_over = chunk.flags.has(ChunkFlags::DONE);
        Ok(())
    }
}

impl Coming {
    fn new(range: ByteRange) -> Coming {
        let bytes = vec![0; range.len() as usize];
        Coming { range, bytes, received: 0, is_failed: false, is_over: false }
    }

    /// The place of a piece of it that comes now.
    fn piece(&mut self, offset: u64, len: u64) -> io::Result<&mut [u8]> {
        let end = offset.checked_add(len).filter(|end| *end <= self.range.end);
        let (Some(end), true) = (end, offset >= self.range.start) else {
            return Err(invalid("read data that was not asked for"));
        };
        self.received += len;
        Ok(&mut self.bytes[(offset - self.range.start) as usize..(end - self.range.start) as usize])
    }

    fn checksum(self) -> io::Result<Option<u32>> {
        if self.is_failed && self.is_over {
            return Ok(None);
        }
        if !self.is_over || self.received != self.range.len() {
            return Err(invalid("a reply without all that was asked for"));
        }
        Ok(Some(crc32c(&self.bytes)))
    }
}

/// The page that a reply is for.
fn awaited(pages: &mut [Coming], cookie: u64) -> io::Result<&mut Coming> {
    let page = usize::try_from(cookie).ok().and_then(|number| pages.get_mut(number));
    page.filter(|page| !page.is_over)
        .ok_or_else(|| invalid("a reply to nothing that was asked for"))
}

fn is_slow(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

fn wrong(error: Invalid) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
