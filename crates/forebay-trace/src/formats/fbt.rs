//! Forebay's own trace format: a few bytes per request, no payload, checked, read and written as a stream.
//!
//! ```text
//! header │ block │ block │ … │ index
//!          └ header, checksums ─ zstd of five columns: kinds, times, places, lengths, latencies
//! ```
//! docs/traces/fbt.md has it byte by byte. A block is up to [`RECORDS_MAX`] requests. The columns are varints (LEB128), signed ones
//! in zigzag; times, places, lengths and latencies count in a unit of the block's own, the largest that divides them all, so that
//! microseconds and sectors do not cost digits that are always zero. A place is relative to the end of the request before on
//! the same device: 0 for a sequential one. A file that was cut off has no index; what is before is read, then that is told.

mod read;
mod write;

pub(super) use read::{Fbt, is_of};
pub(super) use write::Encoder;

/// First bytes of a file, of a block, and of the index.
const FILE_MAGIC: [u8; 8] = *b"FBTRACE\0";
const BLOCK_MAGIC: [u8; 4] = *b"FBTB";
const INDEX_MAGIC: [u8; 4] = *b"FBTI";
/// The version that is written, and the only one that is read.
const VERSION: u16 = 1;
const FILE_HEADER_LEN: usize = 16;
const BLOCK_HEADER_LEN: usize = 40;
const INDEX_HEADER_LEN: usize = 24;
/// Bytes of the index for each block: where it is, its first request, its time.
const INDEX_ENTRY_LEN: usize = 24;
/// Requests of a block at most.
const RECORDS_MAX: usize = 1 << 14;
/// Bytes of a block's columns at most: five numbers of ten bytes for each request, and what is said of the block.
const COLUMNS_LEN_MAX: usize = RECORDS_MAX * 50 + 128;
/// Blocks of a file at most, so that an index fits memory.
const BLOCKS_MAX: usize = 1 << 22;
