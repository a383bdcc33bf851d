//! The requests in flight: what the engine remembers of each between two calls.
//!
//! ```text
//!  submit ─► Overlap ─► Buffer ─► Running ─► (Flush) ─► answered, forgotten
//!                │         │         │          │
//!                └─────────┴─────────┴──────────┴─ time over ─► answered, kept while I/O is owned
//! ```

use crate::action::{Buffer, Source, Span};
use crate::cx::pages_of;
use crate::geometry::{ByteRange, PAGE};
use crate::ids::{Nanos, RequestTag, Sequence};
use crate::observer::Ticket;
use crate::stats::{Wait, Waited};
use crate::status::IoStatus;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// An earlier request on the same bytes.
    Overlap,
    /// A buffer.
    Buffer,
    /// Its I/Os.
    Running,
    /// A flush of primary storage that covers it.
    Flush,
    /// Its regions being durably marked as about to be written.
    Intent,
    /// Room in the write log, or a mode that is about to change.
    Room,
    /// Its group being on flash.
    Logged,
    /// Its group being durable.
    Durable,
    /// The throttle.
    Throttled,
}

/// A request that was not answered at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub tag: RequestTag,
    pub range: ByteRange,
    pub seen: Seen,
    pub stage: Stage,
    /// Since when it is in that stage.
    pub since: Nanos,
    /// What it waited for in others.
    pub waited: Waited,
    /// I/Os under way that use its buffer or its range.
    pub outstanding: u32,
    /// The first error of its I/Os.
    pub failed: Option<IoStatus>,
    /// The client has its answer; the entry stays while `outstanding` > 0.
    pub answered: bool,
    pub buffer: Option<Buffer>,
    /// What a compare-and-write got from its client, while `buffer` is for what it fetches.
    pub brought: Option<Buffer>,
    pub job: Job,
}

/// What an observer has of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub submitted: Nanos,
    /// Of a guest's read or write.
    pub ticket: Option<Ticket>,
}

/// What is particular to a kind of request; each kind has its file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Job {
    Read(ReadJob),
    Write(WriteJob),
    Zero(ZeroJob),
    Flush,
    /// The newest record that had been taken out of the log when primary storage was asked; `None`: the log had nothing.
    Allocation(Option<Sequence>),
}

impl InFlight {
    /// It waits for something else from `now` on.
    pub(crate) fn enter(&mut self, stage: Stage, now: Nanos) {
        let wait = match (self.stage, &self.job) {
            (Stage::Overlap | Stage::Buffer, _) => Wait::Queue,
            (Stage::Intent, _) => Wait::Flash,
            (Stage::Room, _) => Wait::Room,
            (Stage::Logged | Stage::Durable, _) => Wait::Log,
            (Stage::Throttled, _) => Wait::Throttle,
            (Stage::Running, Job::Read(job)) => match job.source {
                // What an earlier read fetches it waited for in the queue.
                _ if job.found == FoundHere::Joined => Wait::Queue,
                Source::Ram => Wait::Queue,
                Source::Flash => Wait::Flash,
                Source::Backend => Wait::PrimaryStorage,
            },
            (Stage::Running | Stage::Flush, _) => Wait::PrimaryStorage,
        };
        self.waited.add(wait, now.since(self.since));
        (self.stage, self.since) = (stage, now);
    }

    /// Its buffer, which a request that runs has.
    pub(crate) fn memory(&self) -> Buffer {
        self.buffer.expect("a request that runs has its buffer")
    }
}

/// Each flow asks for its own kind of job, and panics for another one.
impl Job {
    pub(crate) fn read(mut self) -> ReadJob {
        *self.read_mut()
    }

    pub(crate) fn read_mut(&mut self) -> &mut ReadJob {
        let Job::Read(job) = self else { unreachable!("a read") };
        job
    }

    pub(crate) fn write(self) -> WriteJob {
        let Job::Write(job) = self else { unreachable!("a write") };
        job
    }

    pub(crate) fn zero(mut self) -> ZeroJob {
        *self.zero_mut()
    }

    pub(crate) fn zero_mut(&mut self) -> &mut ZeroJob {
        let Job::Zero(job) = self else { unreachable!("zeroes") };
        job
    }
}

/// Who wants what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFor {
    Client,
    /// Nobody, for now.
    Cache,
    /// Nobody: it was not asked for, and is not answered (`engine/flow/edges.rs`).
    Edge,
    /// A compare-and-write, as which it goes on.
    Compare {
        fua: bool,
    },
}

/// What of a read needed no asking for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundHere {
    Nothing,
    /// Some of it was in the cache.
    Part,
    /// All of it, in the bytes of an earlier read in flight; its source is that one's.
    Joined,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadJob {
    pub purpose: ReadFor,
    /// What is fetched goes into the cache.
    pub admit: bool,
    /// What it has read may be gone from primary storage by now: it is for whoever asked before that alone.
    pub is_doubtful: bool,
    /// It belongs to a long sequential stream.
    pub is_stream: bool,
    /// Look into the cache; false in modes without one, and once the grid moved under the read.
    pub use_cache: bool,
    /// Only the logical blocks of the range are held, not whole granules: flash is left alone, nothing is admitted.
    pub exact: bool,
    /// The part of the disk that the buffer will mirror: the range grown to granules, or to logical blocks.
    pub target: ByteRange,
    /// Up to here sources were chosen.
    pub cursor: u64,
    /// The slowest source so far.
    pub source: Source,
    /// What of it was found here.
    pub found: FoundHere,
    /// The log holds pages of it in parts: the oldest record that has one of them.
    pub partial: Option<Sequence>,
    /// Up to which page, and which of its layers, those parts are in place.
    pub overlay: (u64, usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteJob {
    pub fua: bool,
    /// It was a compare-and-write that found what it expected.
    pub compared: bool,
    /// It belongs to a long sequential stream.
    pub is_stream: bool,
    /// It does not take new slots.
    pub bypass: bool,
    /// Up to here it is in the log.
    pub cursor: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ZeroJob {
    pub kind: ZeroKind,
    pub fua: bool,
    /// Up to here the range is done.
    pub cursor: u64,
    /// The piece under way.
    pub piece: ByteRange,
    /// Zeroes are written from memory: primary storage cannot do it by itself.
    pub by_writing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZeroKind {
    Discard,
    WriteZeroes { may_unmap: bool, fast_only: bool },
}

/// A buffer that I/Os still use although their request went on without them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orphan {
    pub buffer: Buffer,
    pub outstanding: u32,
}

/// What a buffer of `Engine::compare_buffer` is made of: what the client brought, and room for what is fetched.
pub(crate) fn split(buffer: Buffer) -> (Buffer, Buffer) {
    let (first, pages) = pages_of(buffer);
    let lead = buffer.span.offset % PAGE;
    let fetched = (lead + buffer.window.len()).next_multiple_of(PAGE);
    let start = u64::from(first + pages) * PAGE - fetched;
    let brought = buffer.span.part(0, start - buffer.span.offset);
    let fetched = Span { offset: start + lead, len: (fetched - lead) as u32 };
    (Buffer { span: brought, ..buffer }, Buffer { span: fetched, ..buffer })
}
