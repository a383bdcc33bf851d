//! What a shard is handed: a disk that is ready to be served.

use std::sync::Arc;

use forebay_backends::Backend;
use forebay_core::config::Mode;
use forebay_core::engine::Engine;
use forebay_core::flash_pool::DiskNumber;
use forebay_frontends::client::Permission;
use forebay_host::fence::{Guard, LastWrite, Revoker, UnreportedLoss};
use forebay_host::pool::SharedFile;
use forebay_host::pool::owner::PoolHandle;
use forebay_io::arena::Arena;

use crate::LogShare;

/// A disk that is ready to be served.
pub struct NewDisk {
    /// Its name, for events.
    pub name: Arc<str>,
    /// Its engine.
    pub engine: Engine,
    /// Memory of [`Engine::memory_size`] bytes.
    pub memory: Arc<Arena>,
    /// Primary storage.
    pub backend: Box<dyn Backend>,
    /// Its share of flash.
    pub flash: Option<FlashShare>,
    /// Its part in the pool, for its write log.
    pub log: Option<LogShare>,
    /// Its destage journal.
    pub journal: Option<JournalShare>,
    /// Where it notes when it writes to primary storage.
    pub last_write: Option<Arc<LastWrite>>,
    /// What outlives a kill of a loss that no guest was told of.
    pub unreported_loss: UnreportedLoss,
    /// The mode that it is to be in; the engine may begin in another one.
    pub mode: Mode,
    /// Its destaging is paused.
    pub is_paused: bool,
    /// What stored reservations leave to clients that have no part in them.
    pub access: Permission,
}

/// One disk's share of a pool, for cached data.
#[derive(Debug)]
pub struct FlashShare {
    /// The file or device.
    pub file: SharedFile,
    /// Where its parts begin, and their lengths: the slots lie in them one after the other, none in two of them.
    pub parts: Vec<(u64, u64)>,
    /// What keeps the cache over a restart.
    pub ring: Option<RingShare>,
}

/// The destage journal of a disk.
pub struct JournalShare {
    /// Where it is.
    pub backend: Box<dyn Backend>,
    /// Who can note that it does not count any more.
    pub revoker: Option<Arc<Revoker>>,
    /// What keeps others from it.
    pub guard: Guard,
}

/// The ring of a disk's cache.
#[derive(Debug)]
pub struct RingShare {
    /// Where its first page is in the file or device.
    pub offset: u64,
    /// The disk in its pool.
    pub number: DiskNumber,
    /// Who can note that it must not be believed.
    pub owner: PoolHandle,
    /// Who can when flash is dead.
    pub revoker: Option<Arc<Revoker>>,
}
