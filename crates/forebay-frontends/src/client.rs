//! Clients: what attaches to disks through some protocol, as the shard sees it.
//!
//! ```text
//!   shard ──on_completion, on_reply, resume, tick, close──► Client ──Context::port──► engine of a disk
//!     ▲                                                        │
//!     └──────────────── actions, carried out after the call ◄──┘
//! ```
//! A client may use several disks of its shard (an iSCSI session has many logical units), and a disk has any number
//! of clients, of whatever protocol.
//!
//! **Invariant:** I/O that a reservation forbids reaches no engine by another protocol. Clients
//! that have no part in reservations submit with [`Context::submit_if_allowed`], which looks at
//! [`Port::access`] in the moment of the submission. All clients of a disk are on its shard, so
//! that nothing comes between. A request that the engine has by then comes before all later ones
//! that overlap it, as if it had ended before the reservation.
//!
//! A client may go to another shard, when its disks do: it [leaves](Client::leave) the one, and [enters](Client::enter) the
//! other as a [`Moved`] newcomer. Who is at the other end notices nothing but a pause.
//!
//! While a port is held, its clients wait as they do for room in an engine: none gets a buffer, and what has none yet is
//! not submitted. So the engine comes to owe them nothing, and another one can take its place.

use std::fmt;
use std::io;
use std::sync::Arc;

use forebay_core::action::{Action, Actions, Buffer, Extent, Reply, ReplyData, Span};
use forebay_core::engine::{Busy, Engine};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use forebay_core::request::{Op, Request};
use forebay_core::status::IoStatus;
use forebay_io::arena::{Arena, Region};
use forebay_io::reactor::{ArenaId, Completion, Reactor, Token};

/// A disk, as shards count them: no two disks of this process have the same. Never used again while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskId(pub u32);

/// A disk as its clients see it.
#[derive(Debug)]
pub struct Port {
    /// Its engine.
    pub engine: Engine,
    /// Its memory.
    pub memory: Arc<Arena>,
    /// The same, as the reactor knows it.
    pub arena: ArenaId,
    /// Where the engine appends; the shard carries out what is in it after the call.
    pub actions: Actions,
    /// What a reservation leaves to clients that have no part in it.
    pub access: Permission,
    /// Its clients wait.
    pub is_held: bool,
    /// Something has happened that its clients have to know of: the shard is to [wake](Client::wake) them.
    pub has_news: bool,
}

/// The access that a SCSI reservation leaves to clients of other protocols: that of an
/// unregistered initiator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Permission {
    /// Everything.
    #[default]
    All,
    /// Reading.
    Reads,
    /// Neither reading nor writing.
    Nothing,
}

impl Permission {
    /// True when a request may be submitted. A flush always may: what it makes durable was acknowledged before.
    pub fn allows(self, op: &Op) -> bool {
        match op {
            Op::Flush => true,
            Op::Read { .. } | Op::Prefetch | Op::Allocation | Op::CacheState => {
                self != Permission::Nothing
            }
            Op::Write { .. }
            | Op::CompareAndWrite { .. }
            | Op::Discard { .. }
            | Op::WriteZeroes { .. } => self == Permission::All,
        }
    }
}

/// The disks of a shard.
pub trait Disks {
    /// The disk with this number, which a client was given when it came.
    fn port(&mut self, disk: DiskId) -> &mut Port;

    /// The same of one that may be on another shard, or on none.
    fn find_port(&mut self, disk: DiskId) -> Option<&mut Port>;
}

/// The surroundings of a client during one call.
pub struct Context<'a> {
    /// The shard's clock.
    pub now: Nanos,
    /// The shard's reactor.
    pub reactor: &'a mut Reactor,
    /// The shard's disks.
    pub disks: &'a mut dyn Disks,
}

/// The tokens under which a client's operations complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// For what is received.
    pub recv: Token,
    /// For what is sent.
    pub send: Token,
}

/// The answer of an engine, with the whole lists of the actions that it came in.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The disk that answers.
    pub disk: DiskId,
    /// Its reply.
    pub reply: &'a Reply,
    /// The slots of a reply.
    pub slices: &'a [Span],
    /// The extents of a reply.
    pub extents: &'a [Extent],
}

/// A client on its way to the shard: what the control plane agreed on with it.
pub trait Newcomer: Send {
    /// The disks that it is to use.
    fn disks(&self) -> &[DiskId];

    /// Whether it can begin, with these disks served and no others; who can do without some leaves them out.
    fn meet(&mut self, is_served: &dyn Fn(DiskId) -> bool) -> bool {
        self.disks().iter().all(|disk| is_served(*disk))
    }

    /// Begins. Replies come back with `id` in the upper half of their tag.
    ///
    /// # Errors
    /// The reactor does not take its socket.
    fn start(
        self: Box<Self>,
        cx: &mut Context<'_>,
        id: u32,
        tokens: Tokens,
    ) -> io::Result<Box<dyn Client>>;
}

/// A client that has left its shard, on its way to another one.
pub struct Moved(pub Box<dyn Client>);

impl Newcomer for Moved {
    fn disks(&self) -> &[DiskId] {
        self.0.disks()
    }

    fn start(
        mut self: Box<Self>,
        cx: &mut Context<'_>,
        id: u32,
        tokens: Tokens,
    ) -> io::Result<Box<dyn Client>> {
        self.0.enter(cx, id, tokens)?;
        Ok(self.0)
    }
}

/// A client of one or several disks.
///
/// The shard's loop, for each client that something happened to:
/// 1. [`on_completion`](Client::on_completion) for completions with one of its tokens, and
///    [`resume`](Client::resume) when [`wants_resume`](Client::wants_resume) says so;
/// 2. carry out the actions, [`on_reply`](Client::on_reply) for replies with its id; [`wake`](Client::wake) those of a disk
///    that [has news](Port::has_news);
/// 3. [`flush`](Client::flush);
/// 4. after all clients: `Engine::sent`. From 1 again without waiting while any
///    [`wants_resume`](Client::wants_resume) because of room that the flush made.
///
/// A client that [`looks_out`](Client::looks_out) after a flush is asked to [`look`](Client::look) in each turn, and to
/// [`rest`](Client::rest) before the shard sleeps.
/// [`tick`](Client::tick) at [`next_deadline`](Client::next_deadline); forget the client when
/// [`is_done`](Client::is_done). Every call may append actions.
pub trait Client: Send {
    /// The disks that it uses.
    fn disks(&self) -> &[DiskId];

    /// An operation with one of its tokens has finished.
    fn on_completion(&mut self, cx: &mut Context<'_>, completion: Completion);

    /// An engine answered a request. Nothing is sent before [`Client::flush`].
    fn on_reply(&mut self, cx: &mut Context<'_>, answer: Answer<'_>);

    /// Sends what is queued: afterwards no slot memory is referred to any more, and the shard may call `Engine::sent`.
    fn flush(&mut self, cx: &mut Context<'_>);

    /// True when there are requests waiting that can be tried (again).
    fn wants_resume(&self) -> bool;

    /// Goes on with what waits. False when it has to wait on: nothing happened then, and nothing will
    /// before something completes.
    fn resume(&mut self, cx: &mut Context<'_>) -> bool;

    /// Something that it may have waited for has happened beside the shard, or another client has done it.
    fn wake(&mut self, _cx: &mut Context<'_>) {}

    /// Takes no further request, finishes and answers those in flight, then closes.
    fn close(&mut self, cx: &mut Context<'_>);

    /// Closes after [`Client::close`] without waiting any longer for somebody who does not take the answers, or for a disk that
    /// is held and has ended.
    fn give_up(&mut self, cx: &mut Context<'_>);

    /// Lets go of what it has of its shard, to go to another one; its disks are held, and owe it nothing. False when that takes
    /// longer, however its peer behaves: it is asked again then. Once it has left, nothing happens to it before it enters but
    /// that it may be closed.
    fn leave(&mut self, cx: &mut Context<'_>) -> bool;

    /// Goes on after it has left, as [`Newcomer::start`] begins.
    ///
    /// # Errors
    /// The reactor does not take what it is to watch: the client is to be dropped.
    fn enter(&mut self, cx: &mut Context<'_>, id: u32, tokens: Tokens) -> io::Result<()>;

    /// Whether it has to be looked at, since nobody tells it of its next request.
    fn looks_out(&self) -> bool {
        false
    }

    /// Looks whether there is a request; then it [wants to go on](Client::wants_resume).
    fn look(&mut self) -> bool {
        false
    }

    /// The shard is to sleep: there has to be a completion with the next request. True when there is one already,
    /// as for [`Client::look`].
    fn rest(&mut self) -> bool {
        false
    }

    /// When [`Client::tick`] is due, [`Nanos::NEVER`] when nothing is timed.
    fn next_deadline(&self) -> Nanos;

    /// Time has passed.
    fn tick(&mut self, cx: &mut Context<'_>);

    /// True when it is closed, no operation is in flight and every request was answered.
    fn is_done(&self) -> bool;
}

impl Context<'_> {
    /// A disk.
    pub fn port(&mut self, disk: DiskId) -> &mut Port {
        self.disks.port(disk)
    }

    /// Submits a request to a disk's engine, whatever is reserved: its caller has checked that
    /// itself, as iSCSI does for its initiators.
    ///
    /// # Errors
    /// [`Busy`]: nothing happened; the caller still owns the request and its buffer.
    pub fn submit_unchecked(&mut self, disk: DiskId, request: Request) -> Result<(), Busy> {
        self.disks.port(disk).submit(self.now, request)
    }

    /// Submits a request of a client that has no part in reservations. I/O that they forbid is
    /// answered with [`IoStatus::Reserved`], as the engine answers.
    ///
    /// # Errors
    /// As of [`Context::submit_unchecked`].
    pub fn submit_if_allowed(&mut self, disk: DiskId, request: Request) -> Result<(), Busy> {
        let port = self.disks.port(disk);
        if port.access.allows(&request.op) || port.has_to_wait(&request) {
            return port.submit(self.now, request);
        }
        if let Some(buffer) = request.op.buffer() {
            port.engine.release(self.now, buffer, &mut port.actions);
        }
        let (tag, submitted) = (request.tag, self.now);
        let reply = Reply { tag, status: IoStatus::Reserved, submitted, data: ReplyData::None };
        port.actions.list.push(Action::Reply(reply));
        Ok(())
    }

    /// Gives a request buffer of a disk back.
    pub fn release(&mut self, disk: DiskId, buffer: Buffer) {
        let port = self.disks.port(disk);
        port.engine.release(self.now, buffer, &mut port.actions);
    }

    /// Memory for a write of `range`, if there is any now.
    pub fn write_buffer(&mut self, disk: DiskId, range: ByteRange) -> Option<Buffer> {
        let port = self.disks.port(disk);
        if port.is_held { None } else { port.engine.write_buffer(range) }
    }

    /// Memory for a compare-and-write of `range`, if there is any now.
    pub fn compare_buffer(&mut self, disk: DiskId, range: ByteRange) -> Option<Buffer> {
        let port = self.disks.port(disk);
        if port.is_held { None } else { port.engine.compare_buffer(range) }
    }
}

impl Port {
    /// What has a buffer may be finished.
    fn has_to_wait(&self, request: &Request) -> bool {
        self.is_held && request.op.buffer().is_none()
    }

    /// Submits a request, unless it has to wait.
    #[inline]
    fn submit(&mut self, now: Nanos, request: Request) -> Result<(), Busy> {
        if self.has_to_wait(&request) {
            return Err(Busy);
        }
        self.engine.submit(now, request, &mut self.actions)
    }

    /// A piece of the disk's memory, as the reactor knows it.
    pub fn region(&self, span: Span) -> Region {
        Region { arena: self.arena, offset: span.offset, len: span.len }
    }
}

impl fmt::Debug for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Moved").field(&self.disks()).finish()
    }
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("now", &self.now).finish_non_exhaustive()
    }
}
