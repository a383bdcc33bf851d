//! Reads a few ranges of an export, blocking, over connections of its own: for a look at it beside its disk's I/O.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::action::{IoOp, Span};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{IoId, Nanos};
use forebay_io::arena::Arena;
use forebay_io::clock::now_nanos;
use forebay_io::reactor::{ArenaId, Completion, Reactor};

use super::NbdBackend;
use crate::backend::{Backend, BackendEvent, BackendIo, Context, TokenRange};
use crate::uri::NbdUri;

/// Longest range that is read at once.
const MEMORY: usize = 1 << 20;
/// Longest sleep between two looks at the session's deadlines.
const NAP_MAX: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct ExportReader {
    backend: NbdBackend,
    reactor: Reactor,
    memory: Arc<Arena>,
    arena: ArenaId,
    reads: u64,
}

impl ExportReader {
    /// Connects.
    pub(crate) fn connect(uri: &NbdUri) -> io::Result<ExportReader> {
        let uri = NbdUri { connections: 1, ..uri.clone() };
        let mut backend = NbdBackend::connect(&uri, true).map_err(io::Error::other)?;
        let mut reactor = Reactor::new(16, None)?;
        let memory = Arc::new(Arena::new(MEMORY)?);
        let arena = reactor.add_arena(memory.clone())?;
        let mut events = Vec::new();
        let now = Nanos(now_nanos());
        let mut cx = Context { now, reactor: &mut reactor, events: &mut events };
        backend.attach(&mut cx, TokenRange { base: 0 })?;
        Ok(ExportReader { backend, reactor, memory, arena, reads: 0 })
    }

    /// Fills `bytes` with what the export holds from `offset` on; whole logical blocks.
    ///
    /// # Errors
    /// The server refused it, or the session was lost.
    pub(crate) fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        if bytes.len() > MEMORY {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.reads += 1;
        let id = IoId(self.reads);
        let memory = Span { offset: 0, len: bytes.len() as u32 };
        let range = ByteRange::at(offset, bytes.len() as u64);
        let io = BackendIo { id, range, op: IoOp::Read { memory }, arena: self.arena };
        let mut completions: Vec<Completion> = Vec::new();
        let mut events = Vec::new();
        self.with(&mut events, |backend, cx| backend.submit(cx, io));
        loop {
            for event in events.drain(..) {
                match event {
                    BackendEvent::Done { id: done, status } if done == id && status.is_ok() => {
                        self.memory.read_at(0, bytes);
                        return Ok(());
                    }
                    BackendEvent::Done { status, .. } => {
                        return Err(io::Error::other(status.to_string()));
                    }
                    BackendEvent::SessionLost => {
                        return Err(io::ErrorKind::ConnectionAborted.into());
                    }
                    BackendEvent::Extents { .. } | BackendEvent::SessionRestored => {}
                }
            }
            self.reactor.wait(Some(NAP_MAX), &mut completions)?;
            for completion in completions.drain(..) {
                self.with(&mut events, |backend, cx| backend.on_completion(cx, completion));
            }
            self.with(&mut events, |backend, cx| backend.on_wake(cx));
        }
    }

    fn with(
        &mut self,
        events: &mut Vec<BackendEvent>,
        act: impl FnOnce(&mut NbdBackend, &mut Context<'_>),
    ) {
        let now = Nanos(now_nanos());
        act(&mut self.backend, &mut Context { now, reactor: &mut self.reactor, events });
    }
}

impl Drop for ExportReader {
    fn drop(&mut self) {
        let mut events = Vec::new();
        self.with(&mut events, |backend, cx| backend.detach(cx));
    }
}
