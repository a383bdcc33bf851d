//! Primary storage, behind one trait: file, block device, NBD server, and the doubles for tests and
//! demonstrations: memory, a device model, injected faults.
//!
//! A backend is named by a [`Uri`], opened by [`open`] (which may block, and is the place where a
//! user is told what is wrong), and then moved to its shard, where nothing blocks any more.

mod backend;
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
pub mod rng;
pub mod size;
#[cfg(test)]
mod testing;
pub mod uri;

use std::time::Duration;

pub use backend::{Backend, BackendEvent, BackendIo, Context, Properties, TokenRange, Writes};
pub use error::{Error, ErrorKind};
pub use format::ImageFormat;
pub use identity::Identity;
pub use probe::{Look, Probe, Standing};
pub use uri::Uri;

use fault::FaultBackend;
use file::FileBackend;
use mem::MemBackend;
use model::backend::ModelBackend;
use nbd::NbdBackend;

/// What the caller wants of a backend besides what its URI says.
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
/// What is wrong with the backend, in words for a user; see [`ErrorKind`].
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
