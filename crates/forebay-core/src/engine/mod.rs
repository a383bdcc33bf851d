//! The engine of one disk. (Interface first; see ARCHITECTURE.md for the way of a read and a write.)

use crate::action::{Actions, Buffer, Extent};
use crate::config::Config;
use crate::geometry::ByteRange;
use crate::ids::{IoId, Nanos};
use crate::request::Request;
use crate::status::IoStatus;

/// All places for requests are taken: the frontend keeps the request and stops reading from its
/// client until something completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// The caching state machine of one disk.
#[derive(Debug)]
pub struct Engine {}

impl Engine {
    /// An engine with an empty cache.
    ///
    /// # Errors
    /// A sentence that names the setting and what is allowed.
    pub fn new(config: Config) -> Result<Engine, ConfigError> {
        let _ = config;
        todo!()
    }
    /// Bytes of page-aligned memory that the executor provides: request buffers, then RAM slots.
    pub fn memory_size(&self) -> u64 {
        todo!()
    }
    /// Bytes of flash that the executor provides.
    pub fn flash_size(&self) -> u64 {
        todo!()
    }
    /// The buffer for the bytes of a write to `range`; `None`: no memory now, ask again after a completion.
    /// The caller fills `buffer.at(range)` and passes it to [`Engine::submit`], or gives it back with [`Engine::release`].
    pub fn write_buffer(&mut self, range: ByteRange) -> Option<Buffer> {
        let _ = range;
        todo!()
    }
    /// Takes a request; it will be answered by exactly one reply, perhaps at once. An invalid request is answered, not refused.
    ///
    /// # Errors
    /// [`Busy`]: nothing happened; the caller still owns the request and its buffer.
    pub fn submit(
        &mut self,
        now: Nanos,
        request: Request,
        actions: &mut Actions,
    ) -> Result<(), Busy> {
        let _ = (now, request, actions);
        todo!()
    }
    /// An I/O ended. `checksums`: CRC32C of each piece, when the I/O asked for them and ended well.
    pub fn complete(
        &mut self,
        now: Nanos,
        io: IoId,
        status: IoStatus,
        checksums: &[u32],
        actions: &mut Actions,
    ) {
        let _ = (now, io, status, checksums, actions);
        todo!()
    }
    /// A query for extents ended well; they cover the start of the range asked for.
    pub fn complete_extents(
        &mut self,
        now: Nanos,
        io: IoId,
        extents: &[Extent],
        actions: &mut Actions,
    ) {
        let _ = (now, io, extents, actions);
        todo!()
    }
    /// The executor is done with a buffer (a reply's data was sent, or a write buffer was not submitted).
    pub fn release(&mut self, now: Nanos, buffer: Buffer, actions: &mut Actions) {
        let _ = (now, buffer, actions);
        todo!()
    }
    /// Every reply handed out so far has been sent or copied: slots are no longer read, latencies are counted up to `now`.
    pub fn sent(&mut self, now: Nanos) {
        let _ = now;
        todo!()
    }
    /// The session of primary storage ended: writes since the last flush may be lost.
    pub fn on_session_lost(&mut self, now: Nanos, actions: &mut Actions) {
        let _ = (now, actions);
        todo!()
    }
    /// Time has passed. Call at [`Engine::next_deadline`] at the latest.
    pub fn tick(&mut self, now: Nanos, actions: &mut Actions) {
        let _ = (now, actions);
        todo!()
    }
    /// When `tick` is due, [`Nanos::NEVER`] when nothing is timed.
    pub fn next_deadline(&self) -> Nanos {
        todo!()
    }
    /// From now on new requests are answered with `ShuttingDown`; what is in flight finishes.
    pub fn shut_down(&mut self) {
        todo!()
    }
    /// True when no request and no I/O is in flight and no buffer is lent out.
    pub fn is_idle(&self) -> bool {
        todo!()
    }
    /// Panics when the engine's structures contradict each other. For tests; slow.
    pub fn check_invariants(&self) {
        todo!()
    }
}

/// A configuration that cannot work, in words that name the setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);
