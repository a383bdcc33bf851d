//! Primary storage behind one trait, [`Backend`].
//!
//! ```text
//!  URI ── parse ──► Uri ── open (may block) ──► Box<dyn Backend>
//!                                                  │ moved to its shard: nothing blocks any more
//!                                                  ▼
//!  engine's I/O ── submit ──► backend ◄──► reactor ◄──► file, device or server
//!                                └── BackendEvent: done, extents, session lost, restored
//! ```
//!
//! | URI | module | primary storage |
//! |---|---|---|
//! | `file:`, `block:` | [`file`](mod@file) | a file, a block device |
//! | `nbd:`, `nbd+unix:` | [`nbd`] | an export of an NBD server, over one or several connections |
//! | `mem:` | [`mem`] | memory, for tests |
//! | `model:` | [`model`] | another backend, as slow as a modelled device |
//! | `fault:` | [`fault`] | another backend, with injected faults |
//!
//! A backend also gives a look at primary storage from outside: its size, its times, a place for a
//! sidecar.
//!
//! # Example
//!
//! Write four KiB and read them again. A shard does the same with its own reactor.
//!
//! ```
//! use std::sync::Arc;
//!
//! use forebay_backends::{BackendEvent, BackendIo, Context, OpenOptions, TokenRange, Uri, open};
//! use forebay_core::action::{IoOp, Span};
//! use forebay_core::geometry::ByteRange;
//! use forebay_core::ids::{IoId, Nanos};
//! use forebay_io::arena::Arena;
//! use forebay_io::reactor::Reactor;
//!
//! let uri: Uri = "mem:1MiB".parse()?;
//! let mut backend = open(&uri, OpenOptions::default())?;
//! assert_eq!(backend.properties().size, 1 << 20);
//!
//! // The shard's part: a reactor, and memory for the data.
//! let mut reactor = Reactor::new(8, None)?;
//! let memory = Arc::new(Arena::new(64 << 10)?);
//! let arena = reactor.add_arena(Arc::clone(&memory))?;
//! memory.write_at(0, &[7; 4096]);
//!
//! let mut events = Vec::new();
//! let mut cx = Context { now: Nanos(0), reactor: &mut reactor, events: &mut events };
//! backend.attach(&mut cx, TokenRange { base: 1 << 40 })?;
//!
//! let range = ByteRange::at(8192, 4096);
//! let (from, to) = (Span { offset: 0, len: 4096 }, Span { offset: 4096, len: 4096 });
//! let write = IoOp::Write { memory: from, durable: false };
//! backend.submit(&mut cx, BackendIo { id: IoId(1), range, op: write, arena });
//! backend.submit(&mut cx, BackendIo { id: IoId(2), range, op: IoOp::Read { memory: to }, arena });
//!
//! // Memory answers at once. Other backends answer after completions of the reactor.
//! for event in &events {
//!     assert!(matches!(event, BackendEvent::Done { status, .. } if status.is_ok()));
//! }
//! let mut bytes = [0; 4096];
//! memory.read_at(4096, &mut bytes);
//! assert_eq!(bytes, [7; 4096]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Limits.** Backends serve the bytes of an image: formats such as qcow2 are recognised, so that
//! the daemon can refuse them, and not read. NBD has no TLS.

mod backend;
mod blocking;
pub mod duration;
mod error;
pub mod fault;
pub mod file;
mod format;
mod identity;
pub mod mem;
pub mod model;
pub mod nbd;
mod probe;
pub mod size;
#[cfg(test)]
mod testing;
pub mod uri;

use std::time::Duration;

pub use backend::{
    Backend, BackendEvent, BackendIo, Context, HostLoses, Properties, TokenRange, Writes,
};
pub use blocking::Blocking;
pub use error::{Error, ErrorKind};
pub use format::ImageFormat;
pub use identity::{Identity, file_of_loop_device};
pub use probe::{Look, Probe, Standing};
pub use uri::{FileUri, Uri};

use fault::FaultBackend;
use file::FileBackend;
use mem::MemBackend;
use model::backend::ModelBackend;
use nbd::NbdBackend;

/// The caller's wishes for a backend, besides its URI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Refuse writes, whatever the URI says.
    pub read_only: bool,
    /// How long to wait for another process to let go of a file.
    pub lock_wait: Duration,
}

/// Opens a backend. May block for as long as the kernel, or the time-out of a network connection,
/// takes.
///
/// # Errors
/// The backend cannot be opened: why, in words for a user; see [`ErrorKind`].
pub fn open(uri: &Uri, options: OpenOptions) -> Result<Box<dyn Backend>, Error> {
    let read_only = options.read_only;
    Ok(match uri {
        Uri::File(file) => Box::new(FileBackend::open_file(file, options)?),
        Uri::Block(file) => Box::new(FileBackend::open_block(file, options)?),
        Uri::Nbd(nbd) => Box::new(NbdBackend::connect(nbd, read_only)?),
        Uri::Mem(mem) => Box::new(MemBackend::new(*mem, read_only)),
        Uri::Model { config, inner } => Box::new(ModelBackend::new(config, open(inner, options)?)),
        Uri::Fault { config, inner } => Box::new(FaultBackend::new(config, open(inner, options)?)),
    })
}
