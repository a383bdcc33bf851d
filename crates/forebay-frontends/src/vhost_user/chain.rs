//! A chain of descriptors: walks it, checks it, and has its pieces of guest memory.
//!
//! ```text
//!   head ─► descriptor ─next─► descriptor ─next─► …           readable pieces, then writable ones
//!     └─ indirect ─► table of descriptors, walked the same way; it ends the chain
//! ```
//! Every descriptor is read once. The result is plain numbers, checked against the guest's
//! memory. Later changes of the guest to its tables change nothing.
//!
//! The walk is our own and not the library's, for two reasons. A chain that was in flight when
//! Forebay was killed is walked again from its head. A chain that is cut short must be
//! distinguished from one that ends.
//!
//! **Limits:** [`DESCRIPTORS_MAX`] descriptors, so a loop ends; 2³² bytes.

use forebay_core::geometry::REQUEST_MAX;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{ByteValued, GuestAddress, GuestMemoryBackend};

use super::memory::{self, GuestMap};

/// Descriptors of a chain at most; more than a ring or an indirect table of any guest has.
pub const DESCRIPTORS_MAX: u32 = 1024;

const DESCRIPTOR_BYTES: u64 = size_of::<Descriptor>() as u64;

/// What is wrong with a ring. It cannot be answered in the ring, which is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// An index beyond the table.
    #[error("descriptor {0} is beyond its table")]
    Index(u16),
    /// Memory that the guest does not have.
    #[error("{len} bytes at {address:#x} are not the guest's memory")]
    Address {
        /// Where.
        address: u64,
        /// How many bytes.
        len: u64,
    },
    /// A loop, or longer than anybody's chain.
    #[error("a chain of more than {DESCRIPTORS_MAX} descriptors, or a loop")]
    TooLong,
    /// No bytes.
    #[error("a descriptor of no bytes")]
    Empty,
    /// Readable after writable.
    #[error("a readable descriptor after a writable one")]
    Order,
    /// An indirect table within another, with something after it, or of no whole descriptors.
    #[error("an indirect table where none can be, or of {0} bytes")]
    Indirect(u32),
    /// No header of 16 bytes.
    #[error("a header of less than 16 bytes")]
    Header,
    /// No byte for the status.
    #[error("no writable byte for the status")]
    Status,
    /// A chain that is in flight already.
    #[error("descriptor {0} is in flight already")]
    InFlight(u16),
    /// The used ring is not the guest's memory any more.
    #[error("the used ring is not the guest's memory")]
    Used,
    /// More available than the ring has room for.
    #[error("an index of available requests that the ring cannot have")]
    Available,
    /// Nobody hears of requests any more.
    #[error("what the guest kicks cannot be watched any more")]
    Kick,
}

/// A piece of guest memory that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins, as the guest counts.
    pub address: GuestAddress,
    /// Bytes, at least one.
    pub len: u32,
}

/// The pieces of a chain, to be filled again and again.
#[derive(Debug, Default)]
pub struct Pieces {
    /// What the guest wrote for us.
    pub readable: Vec<Piece>,
    /// What we write for the guest.
    pub writable: Vec<Piece>,
}

/// Walks the chain at `head` of the table of `size` descriptors at `table`.
///
/// # Errors
/// The chain is broken: how. `pieces` has some of it then.
pub fn walk(
    memory: &GuestMap,
    table: GuestAddress,
    size: u16,
    head: u16,
    pieces: &mut Pieces,
) -> Result<(), Broken> {
    pieces.readable.clear();
    pieces.writable.clear();
    let (mut table, mut size, mut index) = (table.0, u32::from(size), head);
    let mut is_indirect = false;
    let mut bytes = 0_u64;
    for _ in 0..=DESCRIPTORS_MAX {
        let is_beyond = match cfg!(feature = "planted-bugs") {
            true => u32::from(index) > size,
            false => u32::from(index) >= size,
        };
        if is_beyond {
            return Err(Broken::Index(index));
        }
        let descriptor = read(memory, table, index)?;
        if descriptor.refers_to_indirect_table() {
            let len = descriptor.len();
            let entries = len / DESCRIPTOR_BYTES as u32;
            let is_whole = entries > 0 && len.is_multiple_of(DESCRIPTOR_BYTES as u32);
            if is_indirect || descriptor.has_next() || !is_whole {
                return Err(Broken::Indirect(len));
            }
            (table, size, index) = (descriptor.addr().0, entries, 0);
            is_indirect = true;
            continue;
        }
        bytes += u64::from(descriptor.len());
        if bytes > u64::from(u32::MAX) {
            return Err(Broken::TooLong);
        }
        pieces.add(memory, descriptor)?;
        if !descriptor.has_next() {
            return Ok(());
        }
        index = descriptor.next();
    }
    Err(Broken::TooLong)
}

fn read(map: &GuestMap, table: u64, index: u16) -> Result<Descriptor, Broken> {
    let broken = |address| Broken::Address { address, len: DESCRIPTOR_BYTES };
    let address = table.checked_add(u64::from(index) * DESCRIPTOR_BYTES);
    let address = address.ok_or(broken(table))?;
    memory::read(map, GuestAddress(address)).ok_or(broken(address))
}

impl Pieces {
    fn add(&mut self, memory: &GuestMap, descriptor: Descriptor) -> Result<(), Broken> {
        let piece = Piece { address: descriptor.addr(), len: descriptor.len() };
        if piece.len == 0 {
            return Err(Broken::Empty);
        }
        if !is_backed(memory, piece) {
            let (address, len) = (piece.address.0, piece.len.into());
            return Err(Broken::Address { address, len });
        }
        if descriptor.is_write_only() {
            self.writable.push(piece);
        } else if self.writable.is_empty() {
            self.readable.push(piece);
        } else {
            return Err(Broken::Order);
        }
        Ok(())
    }
}

/// Whether all of a piece is the guest's memory.
fn is_backed(map: &GuestMap, piece: Piece) -> bool {
    let len = piece.len as usize;
    memory::slice(map, piece.address, len).is_some() || map.check_range(piece.address, len)
}

/// Bytes of all pieces; at most 2³² of a chain.
pub fn len(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| u64::from(piece.len)).sum()
}

/// Copies the first bytes of `pieces`, which were checked, and takes them off. `None`: there are too few.
pub fn take_first<const LEN: usize>(map: &GuestMap, pieces: &mut Vec<Piece>) -> Option<[u8; LEN]>
where
    [u8; LEN]: ByteValued,
{
    // Nearly always they are a piece of their own.
    if pieces.first()?.len as usize == LEN {
        return memory::read(map, pieces.remove(0).address);
    }
    let mut bytes = [0; LEN];
    let mut done = 0;
    let mut used = 0;
    for piece in pieces.iter_mut() {
        if done == bytes.len() {
            break;
        }
        let count = (piece.len as usize).min(bytes.len() - done);
        let part = Piece { len: count as u32, ..*piece };
        gather(map, &[part], 0, &mut bytes[done..done + count]);
        done += count;
        piece.address.0 += count as u64;
        piece.len -= count as u32;
        used += usize::from(piece.len == 0);
    }
    pieces.drain(..used);
    (done == LEN).then_some(bytes)
}

/// Takes the last byte off.
pub fn take_last(pieces: &mut Vec<Piece>) -> Option<GuestAddress> {
    let last = pieces.last_mut()?;
    last.len -= 1;
    let address = GuestAddress(last.address.0 + u64::from(last.len));
    if last.len == 0 {
        pieces.pop();
    }
    Some(address)
}

/// Copies out of guest memory, from `skip` bytes on, until `bytes` is full. The pieces were checked against
/// this memory, and are long enough.
pub fn gather(map: &GuestMap, pieces: &[Piece], skip: u64, bytes: &mut [u8]) {
    each(map, pieces, bytes.len() as u64, skip, |slice, at| {
        slice.copy_to(&mut bytes[at..at + slice.len()]);
    });
}

/// Copies `bytes` into guest memory, `skip` bytes from its start; as [`gather`].
pub fn scatter(map: &GuestMap, pieces: &[Piece], skip: u64, bytes: &[u8]) {
    each(map, pieces, bytes.len() as u64, skip, |slice, at| {
        slice.copy_from(&bytes[at..at + slice.len()]);
    });
}

/// Calls `copy` for `len` bytes of `pieces`, `skip` from the start, with how many came before.
fn each(
    map: &GuestMap,
    pieces: &[Piece],
    len: u64,
    mut skip: u64,
    mut copy: impl FnMut(vm_memory::VolatileSlice<'_>, usize),
) {
    debug_assert!(len <= REQUEST_MAX);
    let mut done = 0_u64;
    for piece in pieces {
        if done == len {
            return;
        }
        let piece_len = u64::from(piece.len);
        if skip >= piece_len {
            skip -= piece_len;
            continue;
        }
        let count = (piece_len - skip).min(len - done);
        let address = GuestAddress(piece.address.0 + skip);
        skip = 0;
        if let Some(slice) = memory::slice(map, address, count as usize) {
            copy(slice, done as usize);
            done += count;
            continue;
        }
        for slice in GuestMemoryBackend::get_slices(&**map, address, count as usize) {
            let slice = slice.expect("the piece was checked against this memory");
            copy(slice, done as usize);
            done += slice.len() as u64;
        }
    }
    assert_eq!(done, len, "the pieces of a request are as long as it is");
}

#[cfg(test)]
mod tests;
