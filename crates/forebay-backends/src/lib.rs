//! Primary storage, behind one trait: file, block device, NBD server, and the doubles for tests and
//! demonstrations: memory, a device model, injected faults.

use forebay_core::action::{Extent, IoOp};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{IoId, Nanos};
use forebay_core::status::IoStatus;
use forebay_io::reactor::{ArenaId, Completion, Reactor};

/// What a backend is and can do, fixed when it is opened (the size may change, see [`BackendEvent`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Size in bytes, a multiple of `logical_block`.
    pub size: u64,
    /// Smallest unit of reads and writes, a power of two from 512 to 4096.
    pub logical_block: u32,
    /// Refuses writes.
    pub read_only: bool,
    /// Supports [`IoOp::Discard`].
    pub discard: bool,
    /// Supports [`IoOp::WriteZeroes`] (not only by writing).
    pub write_zeroes: bool,
    /// Can tell holes from data.
    pub extents: bool,
}

/// One I/O for a backend. Memory spans are relative to `arena`.
#[derive(Clone, Copy, Debug)]
pub struct BackendIo {
    /// Comes back in [`BackendEvent::Done`].
    pub id: IoId,
    /// Bytes of the backend; reads, writes are aligned to `logical_block`.
    pub range: ByteRange,
    /// What to do.
    pub op: IoOp,
    /// The arena that the operation's memory lies in.
    pub arena: ArenaId,
}

/// What a backend has to tell.
#[derive(Debug)]
pub enum BackendEvent {
    /// An I/O ended.
    Done {
        /// The I/O.
        id: IoId,
        /// How.
        status: IoStatus,
    },
    /// An [`IoOp::Extents`] ended well: extents that cover the start of the range, in order.
    Extents {
        /// The I/O.
        id: IoId,
        /// Not empty; may cover less than the range.
        extents: Vec<Extent>,
    },
    /// The session ended: writes answered since the last flush may be lost. I/Os in flight are
    /// either replayed on the next session or end with an error.
    SessionLost,
    /// A new session is up.
    SessionRestored,
}

/// What a backend may use while it is called.
#[derive(Debug)]
pub struct Context<'a> {
    /// Now.
    pub now: Nanos,
    /// The shard's reactor.
    pub reactor: &'a mut Reactor,
    /// Where events go.
    pub events: &'a mut Vec<BackendEvent>,
}

/// Primary storage of one disk, living on one shard's reactor.
pub trait Backend: Send {
    /// What it is and can do.
    fn properties(&self) -> &Properties;

    /// Called once on the shard's thread before any I/O: registers files and sockets. `tokens` is the range of
    /// reactor tokens that belong to this backend.
    ///
    /// # Errors
    /// What the kernel said.
    fn attach(&mut self, cx: &mut Context<'_>, tokens: TokenRange) -> std::io::Result<()>;

    /// Starts an I/O. Its end is an event, perhaps at once.
    fn submit(&mut self, cx: &mut Context<'_>, io: BackendIo);

    /// A completion whose token is in the backend's range.
    fn on_completion(&mut self, cx: &mut Context<'_>, completion: Completion);

    /// The time has come that `next_deadline` named, or the reactor was woken.
    fn on_wake(&mut self, cx: &mut Context<'_>);

    /// When it wants `on_wake` at the latest.
    fn next_deadline(&self) -> Nanos;
}

/// Tokens `base..base + 2^40` of a reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRange {
    /// Its low 40 bits are zero.
    pub base: u64,
}
