//! The trait of every backend, and what goes in and out of it.
//!
//! A backend lives on the thread of one shard, and never blocks it. [`Backend::submit`] starts an
//! I/O on the shard's reactor. [`Backend::on_completion`] takes completions, [`Backend::on_wake`]
//! the time. Its news go to [`Context::events`].
//!
//! **Invariant:** each submitted I/O ends with exactly one event, [`BackendEvent::Done`] or
//! [`BackendEvent::Extents`], unless a fault hangs it on request. After that the backend touches
//! its memory no more.

use std::sync::Arc;

use forebay_core::action::{Extent, IoOp, Span};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{IoId, Nanos};
use forebay_core::journal::Owner;
use forebay_core::status::IoStatus;
use forebay_io::arena::Region;
use forebay_io::reactor::{ArenaId, Completion, Reactor, Token};

use crate::probe::Probe;

/// Properties and abilities of a backend. Only the size changes after the opening
/// ([`Backend::lengthen`]).
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
    /// What is lost when this host crashes.
    pub host_loses: HostLoses,
}

/// What a crash of this host may lose of that which was written to a backend and not flushed. What it loses may be older than
/// what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostLoses {
    /// Nothing: it is with the device or the server.
    Nothing,
    /// What fills holes, or makes them: the file system of this host keeps back where data lie, and writes the data.
    Places,
    /// Anything: it may be in memory of this host, in the page cache or with a server that runs here.
    Anything,
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
    /// replayed on the next session, or end with an error; a flush in flight that would have
    /// covered such writes ends with an error. Comes before any replay.
    SessionLost,
    /// A new session is up.
    SessionRestored,
}

/// Is told of changes of primary storage, on the shard's thread.
pub trait Writes: std::fmt::Debug + Send + Sync {
    /// One begins: nothing of it was handed to the kernel yet.
    fn begins(&self);

    /// One has ended, which began.
    fn ended(&self);
}

/// The surroundings of a backend during a call.
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

    /// Called once on the shard's thread before any I/O: registers files and sockets. `tokens` is
    /// the range of reactor tokens that belong to this backend.
    ///
    /// # Errors
    /// The kernel's error; no operation was begun on the reactor then.
    fn attach(&mut self, cx: &mut Context<'_>, tokens: TokenRange) -> std::io::Result<()>;

    /// How long it is by now, in bytes, as far as that is known here; `None`: its [probe](Backend::probe) has to look,
    /// which may take long.
    fn length(&self) -> Option<u64> {
        None
    }

    /// It is longer by now: I/O up to `size` is taken.
    fn lengthen(&mut self, size: u64);

    /// Starts an I/O. Its end is an event, perhaps at once.
    fn submit(&mut self, cx: &mut Context<'_>, io: BackendIo);

    /// A completion whose token is in the backend's range.
    fn on_completion(&mut self, cx: &mut Context<'_>, completion: Completion);

    /// The time has come that `next_deadline` named, or the reactor was woken.
    fn on_wake(&mut self, cx: &mut Context<'_>);

    /// When it wants `on_wake` at the latest.
    fn next_deadline(&self) -> Nanos;

    /// Why it is not serving at the moment, in words for an operator; `None`: it is.
    fn trouble(&self) -> Option<&str> {
        None
    }

    /// A look at it from outside, where there is one; to be asked for before it is attached.
    fn probe(&self) -> Option<Probe> {
        None
    }

    /// Unanswered requests of a former process may still be carried out. So changes of data wait
    /// until those can land no more. Call it before the backend is attached. It returns how long
    /// they wait from then on, `None` where nothing of a former process can be under way.
    fn hold_changes(&mut self) -> Option<Nanos> {
        None
    }

    /// True while they wait.
    fn holds_changes(&self) -> bool {
        false
    }

    /// Reads a little of what it holds, so that nothing else is taken for it when it comes back after the loss of a session.
    /// Where it cannot be lost, that does nothing, and where it [waits](Backend::hold_changes), before or after, it has nothing.
    /// May wait some seconds. Call it before the backend is attached, and after all that others write there.
    ///
    /// # Errors
    /// The session is lost. `TimedOut`: it takes too long to read so much, and what comes back may not be known again; all
    /// else works.
    fn take_samples(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    /// It is the destage journal of this owner. Most of that is soon written over, so no samples are taken of it: its superblock
    /// is read now, and whenever it comes back after the loss of a session. It is not used with that of somebody else. May wait
    /// some seconds. Call it before the backend is attached, and when the superblock is there.
    ///
    /// # Errors
    /// It is not that, or this cannot be read. A server that is slow to say so has to before it is used.
    fn expect_journal(&mut self, owner: Owner) -> std::io::Result<()> {
        let _ = owner;
        Ok(())
    }

    /// Somebody has changed what it holds, and that is to be so: it may come back with anything.
    fn forget_samples(&mut self) {}

    /// Where I/O waits for a session that was lost, it waits no longer than this, from the loss on: then it ends with an error,
    /// and so does what is submitted before there is a session again. Otherwise it waits for ever.
    fn give_up_after(&mut self, patience: Nanos) {
        let _ = patience;
    }

    /// Whom to tell of changes of what [`Backend::probe`] looks at. To be given before it is attached.
    fn tell_of_writes(&mut self, to: Arc<dyn Writes>) {
        let _ = to;
    }

    /// Lets go of its files and sockets in an orderly way. It is called at most once. Then no I/O
    /// is in flight, except perhaps a flush that nobody waits for. Or an
    /// [attach](Backend::attach) has failed. Nothing may be called after it.
    fn detach(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
}

/// The methods of [`Backend`] that a wrapper leaves to the backend in its field `inner`.
macro_rules! leave_to_inner {
    () => {
        fn properties(&self) -> &$crate::backend::Properties {
            self.inner.properties()
        }

        fn length(&self) -> Option<u64> {
            self.inner.length()
        }

        fn lengthen(&mut self, size: u64) {
            self.inner.lengthen(size);
        }

        fn trouble(&self) -> Option<&str> {
            self.inner.trouble()
        }

        fn probe(&self) -> Option<$crate::probe::Probe> {
            self.inner.probe()
        }

        fn hold_changes(&mut self) -> Option<forebay_core::ids::Nanos> {
            self.inner.hold_changes()
        }

        fn holds_changes(&self) -> bool {
            self.inner.holds_changes()
        }

        fn take_samples(&mut self) -> std::io::Result<()> {
            self.inner.take_samples()
        }

        fn expect_journal(&mut self, owner: forebay_core::journal::Owner) -> std::io::Result<()> {
            self.inner.expect_journal(owner)
        }

        fn forget_samples(&mut self) {
            self.inner.forget_samples();
        }

        fn give_up_after(&mut self, patience: forebay_core::ids::Nanos) {
            self.inner.give_up_after(patience);
        }

        fn tell_of_writes(&mut self, to: std::sync::Arc<dyn $crate::backend::Writes>) {
            self.inner.tell_of_writes(to);
        }
    };
}
pub(crate) use leave_to_inner;

/// Tokens `base..base + 2^40` of a reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRange {
    /// Its low 40 bits are zero.
    pub base: u64,
}

impl TokenRange {
    /// The token with this number in the range.
    pub(crate) fn token(self, local: u64) -> Token {
        debug_assert!(local >> 40 == 0 && self.base.trailing_zeros() >= 40);
        Token(self.base | local)
    }

    /// The number of a token in its range.
    pub(crate) fn local(token: Token) -> u64 {
        token.0 & ((1 << 40) - 1)
    }
}

impl BackendIo {
    /// Says why a backend with these properties cannot start this I/O, if it cannot.
    pub(crate) fn refusal(&self, properties: &Properties) -> Option<IoStatus> {
        let moves_data = |memory: Span| {
            u64::from(memory.len) == self.range.len()
                && self.range.is_aligned(properties.logical_block.into())
        };
        let (well_formed, writes, supported) = match self.op {
            IoOp::Read { memory } => (moves_data(memory), false, true),
            IoOp::Write { memory, .. } => (moves_data(memory), true, true),
            IoOp::Flush => return None,
            IoOp::Discard => (true, true, properties.discard),
            IoOp::WriteZeroes { .. } => (true, true, properties.write_zeroes),
            IoOp::Extents => (true, false, properties.extents),
            // Of the log alone.
            IoOp::Progress { .. } => (false, true, false),
        };
        let on_disk = self.range.start < self.range.end && self.range.end <= properties.size;
        if !well_formed || !on_disk {
            Some(IoStatus::Invalid)
        } else if writes && properties.read_only {
            Some(IoStatus::ReadOnly)
        } else if !supported {
            Some(IoStatus::Unsupported)
        } else {
            None
        }
    }

    /// True when it changes what primary storage holds.
    pub(crate) fn changes_data(&self) -> bool {
        match self.op {
            IoOp::Write { .. } | IoOp::Discard | IoOp::WriteZeroes { .. } => true,
            IoOp::Read { .. } | IoOp::Flush | IoOp::Extents | IoOp::Progress { .. } => false,
        }
    }

    /// Its memory from `skip` on, as the reactor wants it; `None` when it has no memory.
    pub(crate) fn region(&self, skip: u64) -> Option<Region> {
        match self.op {
            IoOp::Read { memory } | IoOp::Write { memory, .. } => Some(Region {
                arena: self.arena,
                offset: memory.offset + skip,
                len: memory.len - skip as u32,
            }),
            IoOp::Flush
            | IoOp::Discard
            | IoOp::WriteZeroes { .. }
            | IoOp::Extents
            | IoOp::Progress { .. } => None,
        }
    }
}

/// The meaning of a kernel's error on the data path.
pub(crate) fn status_of(error: &std::io::Error) -> IoStatus {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => IoStatus::NoSpace,
        Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) => IoStatus::Unsupported,
        // The latter of a block device that was made read-only.
        Some(Errno::ROFS | Errno::PERM) => IoStatus::ReadOnly,
        Some(Errno::INVAL) => IoStatus::Invalid,
        Some(Errno::TIMEDOUT) => IoStatus::TimedOut,
        Some(_) | None => IoStatus::IoError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_refuses_to_write_says_in_two_ways_that_it_is_read_only() {
        use rustix::io::Errno;
        for errno in [Errno::ROFS, Errno::PERM] {
            assert_eq!(status_of(&errno.into()), IoStatus::ReadOnly);
        }
        assert_eq!(status_of(&Errno::IO.into()), IoStatus::IoError);
    }
}
