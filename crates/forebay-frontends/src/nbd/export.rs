//! The offer of a listener under one name.

use forebay_core::geometry::SECTOR;
use forebay_nbd::PAYLOAD_MAX;
use forebay_nbd::flags::TransmissionFlags;
use forebay_nbd::info::BlockSizes;

/// One disk as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The name that clients ask for; the first export of a listener is also the default one,
    /// named "".
    pub name: String,
    /// For people; empty: none is sent.
    pub description: String,
    /// Size in bytes, a multiple of 512.
    pub size: u64,
    /// Writes are refused.
    pub read_only: bool,
    /// True: a volatile write cache that the client flushes. False: every write is durable before it
    /// is answered, and no cache is advertised (a flush is still taken).
    pub write_cache: bool,
    /// Size and alignment of requests that are served well, a power of two; the cache block.
    pub preferred_block: u32,
    /// Takes `TRIM`.
    pub trim: bool,
    /// Takes `WRITE_ZEROES` with FAST_ZERO.
    pub fast_zero: bool,
}

impl Export {
    /// A writable export with a write cache and everything this server can do.
    pub fn new(name: &str, size: u64) -> Export {
        Export {
            name: name.to_owned(),
            description: String::new(),
            size,
            read_only: false,
            write_cache: true,
            preferred_block: 4096,
            trim: true,
            fast_zero: true,
        }
    }

    /// The flags that tell a client what the export can do. Without structured replies no read can be kept in one piece:
    /// none is in several.
    pub fn flags(&self, structured_replies: bool) -> TransmissionFlags {
        let writable = !self.read_only;
        TransmissionFlags::HAS_FLAGS
            .with_if(structured_replies, TransmissionFlags::SEND_DF)
            .with(TransmissionFlags::SEND_CACHE)
            .with(TransmissionFlags::CAN_MULTI_CONN)
            .with_if(self.read_only, TransmissionFlags::READ_ONLY)
            .with_if(writable && self.write_cache, TransmissionFlags::SEND_FLUSH)
            .with_if(writable, TransmissionFlags::SEND_FUA)
            .with_if(writable && self.trim, TransmissionFlags::SEND_TRIM)
            .with_if(writable, TransmissionFlags::SEND_WRITE_ZEROES)
            .with_if(writable && self.fast_zero, TransmissionFlags::SEND_FAST_ZERO)
    }

    /// Which lengths and offsets it takes.
    pub fn block_sizes(&self) -> BlockSizes {
        BlockSizes {
            minimum: SECTOR as u32,
            preferred: self.preferred_block.max(4096),
            maximum: PAYLOAD_MAX,
        }
    }
}
