//! What a disk's engine is told when it is made.

use crate::geometry::{ByteRange, PAGE};
use crate::ids::Nanos;
use crate::policy::PolicyKind;

/// How a disk uses its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Reads and writes fill the cache; a write is acknowledged when primary storage has it.
    WriteThrough,
    /// Reads fill the cache; writes go to primary storage and drop what they overlap.
    WriteAround,
    /// The cache is not used.
    PassThrough,
    /// Pass-through that observes.
    Monitor,
}

impl Mode {
    /// All modes with their names, for parsing and help.
    pub const ALL: [(Mode, &'static str); 4] = [
        (Mode::WriteThrough, "write-through"),
        (Mode::WriteAround, "write-around"),
        (Mode::PassThrough, "pass-through"),
        (Mode::Monitor, "monitor"),
    ];

    /// True when the mode keeps blocks in the cache.
    pub fn caches(self) -> bool {
        match self {
            Mode::WriteThrough | Mode::WriteAround => true,
            Mode::PassThrough | Mode::Monitor => false,
        }
    }
}

/// Where the grid of cache blocks lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GridOffset {
    /// At this byte offset.
    Fixed(u64),
    /// At 0, until the guest's traffic shows a better one before 5 % of the cache is filled.
    Auto,
}

/// Which blocks go to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashAdmission {
    /// Every block that RAM gives up (or that is fetched, without a RAM tier).
    Always,
    /// Blocks that were used again while in RAM, or that come back not long after they left.
    History,
}

/// What a client is told when primary storage exceeds its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTimeout {
    /// EIO; the I/O stays owned until it completes.
    Fail,
    /// Nothing: the client waits.
    Wait,
}

/// What primary storage is and can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendTraits {
    /// Size of the disk in bytes, a multiple of `logical_block`.
    pub size: u64,
    /// Smallest unit of its reads and writes, a power of two from 512 to 4096.
    pub logical_block: u32,
    /// Refuses writes.
    pub read_only: bool,
    /// Can discard.
    pub discard: bool,
    /// Can write zeroes without a buffer of them.
    pub write_zeroes: bool,
    /// Can tell holes from data.
    pub extents: bool,
}

/// Configuration of one disk's engine. [`Config::for_disk`] has the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Primary storage.
    pub backend: BackendTraits,
    /// Use of the cache.
    pub mode: Mode,
    /// Cache block in bytes, a power of two from 4 KiB to 1 MiB.
    pub block_size: u64,
    /// Where the block grid lies.
    pub grid_offset: GridOffset,
    /// Bytes of RAM for cached data; 0: no RAM tier.
    pub ram_bytes: u64,
    /// Bytes of flash for cached data; 0: no flash tier.
    pub flash_bytes: u64,
    /// Smallest unit of flash I/O, a power of two from 512 to 4096.
    pub flash_logical_block: u32,
    /// Eviction policy of both tiers.
    pub policy: PolicyKind,
    /// Admission to flash.
    pub flash_admission: FlashAdmission,
    /// Sequential streams longer than this many bytes are not admitted; `None`: they are.
    pub sequential_bypass: Option<u64>,
    /// Requests in flight, waiting ones included; one more is refused as busy.
    pub requests_max: u32,
    /// Bytes of memory for request buffers.
    pub buffer_bytes: u64,
    /// Bytes of metadata that the caches may need; more is refused when the engine is made.
    pub metadata_bytes_max: u64,
    /// Time for an I/O on primary storage.
    pub backend_timeout: Nanos,
    /// Time for an I/O on flash.
    pub flash_timeout: Nanos,
    /// What a client hears after `backend_timeout`.
    pub on_timeout: OnTimeout,
}

impl Config {
    /// The defaults for a disk: write-through, 8 KiB blocks, no tier.
    pub fn for_disk(backend: BackendTraits) -> Config {
        Config {
            backend,
            mode: Mode::WriteThrough,
            block_size: 8 << 10,
            grid_offset: GridOffset::Auto,
            ram_bytes: 0,
            flash_bytes: 0,
            flash_logical_block: PAGE as u32,
            policy: PolicyKind::S3Fifo,
            flash_admission: FlashAdmission::History,
            sequential_bypass: Some(4 << 20),
            requests_max: 1024,
            buffer_bytes: 72 << 20,
            metadata_bytes_max: 1 << 30,
            backend_timeout: Nanos::from_millis(30_000),
            flash_timeout: Nanos::from_millis(5_000),
            on_timeout: OnTimeout::Fail,
        }
    }

    /// The whole disk.
    pub fn disk(&self) -> ByteRange {
        ByteRange::at(0, self.backend.size)
    }
}
