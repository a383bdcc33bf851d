//! Answers as bytes.

use forebay_core::action::Extent;
use forebay_nbd::errno::Errno;
use forebay_nbd::flags::{ChunkFlags, CommandFlags};
use forebay_nbd::reply::{
    ChunkHeader, ChunkKind, ErrorChunk, OffsetData, SimpleReply, StatusExtent,
};

use super::super::contexts::{MetaContext, state_flags};
use super::Entry;

/// Extents in one chunk at most; a client asks again for what is missing.
const EXTENTS_MAX: usize = 8192;

/// A request without data ended well.
pub(super) fn success(cookie: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&SimpleReply { result: Ok(()), cookie }.to_bytes());
}

/// A request, or with `chunked` and not `is_last` a part of one, failed.
pub(super) fn error(cookie: u64, errno: Errno, chunked: bool, is_last: bool, out: &mut Vec<u8>) {
    if !chunked {
        out.extend_from_slice(&SimpleReply { result: Err(errno), cookie }.to_bytes());
        return;
    }
    chunk(ChunkKind::Error, cookie, ErrorChunk::SIZE as u32, is_last, out);
    out.extend_from_slice(&ErrorChunk::bare(errno));
}

/// The header before the data of a read, which are sent in one piece.
pub(super) fn read(entry: &Entry, structured: bool, out: &mut Vec<u8>) {
    if !structured {
        return success(entry.cookie, out);
    }
    let len = OffsetData::SIZE as u64 + entry.range.len();
    chunk(ChunkKind::OffsetData, entry.cookie, len as u32, true, out);
    out.extend_from_slice(&OffsetData { offset: entry.range.start }.to_bytes());
}

/// The extents of one context; neighbours in the same state become one, and the last one ends where
/// the request does at the latest.
pub(super) fn block_status(
    entry: &Entry,
    context: MetaContext,
    extents: &[Extent],
    is_last: bool,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    chunk(ChunkKind::BlockStatus, entry.cookie, 0, is_last, out);
    out.extend_from_slice(&context.id().to_be_bytes());
    let extents_max = if entry.flags.has(CommandFlags::REQ_ONE) { 1 } else { EXTENTS_MAX };
    let mut left = entry.range.len();
    let mut count = 0;
    let mut current: Option<(u64, u32)> = None;
    for extent in extents {
        let (len, flags) = (extent.len.min(left), state_flags(extent.state));
        left -= len;
        match &mut current {
            Some((run, state)) if *state == flags => *run += len,
            _ => {
                count += usize::from(push_extent(current, out));
                current = Some((len, flags));
            }
        }
        if left == 0 || count == extents_max {
            break;
        }
    }
    if count < extents_max {
        push_extent(current, out);
    }
    let len = (out.len() - start - ChunkHeader::SIZE) as u32;
    out[start + 16..start + 20].copy_from_slice(&len.to_be_bytes());
}

fn push_extent(run: Option<(u64, u32)>, out: &mut Vec<u8>) -> bool {
    let Some((len, flags)) = run.filter(|(len, _)| *len > 0) else { return false };
    out.extend_from_slice(&StatusExtent { len: len as u32, flags }.to_bytes());
    true
}

fn chunk(kind: ChunkKind, cookie: u64, len: u32, is_last: bool, out: &mut Vec<u8>) {
    let flags = ChunkFlags::NONE.with_if(is_last, ChunkFlags::DONE);
    out.extend_from_slice(&ChunkHeader { flags, kind, cookie, len }.to_bytes());
}
