//! Puts the records of a journal that are not retired in place, after whoever wrote them has died.
//!
//! ```text
//!  superblock ─► heads of the slots ─► whole? ─► lowest window first, up to a gap ─► zeroes, pages ─► flush ─► retired, flush
//! ```
//! A record proves that the windows before it whose slots were used again are complete: older records than that do not
//! count. To do it again does no harm, wherever it was cut: the records are retired after all of them are in place for good.

use super::record::{Contents, Entry, Head};
use super::superblock::{Invalid, Superblock};
use super::{Owner, Shape};
use crate::geometry::{ByteRange, PAGE, SECTOR};
use crate::sealed::{PAGE_LEN, Page, crc32c};
use crate::write_back::format::DISK_SIZE_MAX;

/// Pages of payload that are read and written at a time.
const PIECE: u32 = 256;
/// Bytes of zeroes that are written at a time.
const ZEROES: u64 = 64 << 20;

/// What bytes are on: a journal, or primary storage.
pub trait Medium {
    /// Why an I/O failed.
    type Error;

    /// Fills `bytes` from `at` on.
    ///
    /// # Errors
    /// The medium's. Nothing is there beyond its end: that is one, too.
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// Writes `bytes` from `at` on.
    ///
    /// # Errors
    /// The medium's.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Self::Error>;

    /// The range reads as zeroes afterwards.
    ///
    /// # Errors
    /// The medium's.
    fn zero(&mut self, range: ByteRange) -> Result<(), Self::Error>;

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// The medium's.
    fn flush(&mut self) -> Result<(), Self::Error>;
}

/// What was found, and done unless it was only looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The superblock, with all records retired where that was asked for.
    pub superblock: Superblock,
    /// Windows that are whole and were not retired.
    pub windows: u32,
    /// The newest of them.
    pub last: Option<Head>,
    /// Bytes of them, zeroes not counted.
    pub bytes: u64,
    /// Records that are torn, or beyond a gap: nothing of them is in place.
    pub ignored: u32,
}

/// Why a journal could not be put in place.
#[derive(Debug, thiserror::Error)]
pub enum RepairError<J, P> {
    /// The journal cannot be read or written.
    #[error("the destage journal: {0}")]
    Journal(J),
    /// Primary storage cannot be written.
    #[error("primary storage: {0}")]
    Primary(P),
    /// It is no journal.
    #[error("the destage journal: {0}")]
    Invalid(#[from] Invalid),
    /// It is another disk's, or its nonce was superseded.
    #[error("the destage journal belongs to another disk, or to an earlier time of this one")]
    NotItsOwn {
        /// Whose it is.
        found: Owner,
    },
    /// A page of it is not what it was when it was looked for.
    #[error(
        "the destage journal changed while it was put in place: somebody still writes it. End that process, or wait until \
         its writes have landed, and try again"
    )]
    Changed,
    /// A whole window reaches beyond the end of primary storage, and may be in place in part.
    #[error(
        "the destage journal has writes up to byte {end} of primary storage, which has {size} bytes: it was cut, or is a \
         copy that is not whole. Give it its whole length back, or another copy, and try again"
    )]
    Cut {
        /// Where the writes end.
        end: u64,
        /// Bytes of primary storage.
        size: u64,
    },
}

/// A record that is whole.
struct Whole {
    head: Head,
    contents: Contents,
}

impl Whole {
    /// Where what it has put in place ends.
    fn end(&self) -> u64 {
        let grid = self.head.grid();
        let zeroes = self.contents.zeroes.iter().map(|zero| zero.end);
        let parts = |entry: &Entry| {
            let ends = entry.sectors.runs().map(|(first, end)| (entry.page, first, end));
            ends.map(|(page, first, end)| grid.sector_range(page, first, end).end).max()
        };
        zeroes.chain(self.contents.pages.iter().filter_map(parts)).max().unwrap_or(0)
    }
}

/// Looks at a journal: what [`repair()`] would do for a disk of `size` bytes.
///
/// # Errors
/// It cannot be read, is not the journal of `owner`, or has what primary storage has no room for.
pub fn look<J: Medium, P>(
    journal: &mut J,
    owner: Owner,
    size: u64,
) -> Result<Repaired, RepairError<J::Error, P>> {
    let Found { superblock, records, ignored, .. } = find(journal, owner, size)?;
    Ok(summed_up(superblock, &records, ignored))
}

/// Puts the records of `owner` that are whole and not retired in place, on primary storage of `size` bytes, and retires them.
///
/// # Errors
/// A medium fails, somebody else writes the journal, it is not the journal of `owner`, or it has what primary storage has no
/// room for. To try again does no harm.
pub fn repair<J: Medium, P: Medium>(
    journal: &mut J,
    primary: &mut P,
    owner: Owner,
    size: u64,
) -> Result<Repaired, RepairError<J::Error, P::Error>> {
    let Found { mut superblock, records, ignored, newest } = find(journal, owner, size)?;
    // What was read, of the superblock too, may not have been durable so far: a record that goes while it is put in place
    // would leave primary storage torn.
    journal.flush().map_err(RepairError::Journal)?;
    for record in &records {
        put_in_place(journal, primary, superblock.shape, record)?;
    }
    let came = summed_up(superblock, &records, ignored);
    primary.flush().map_err(RepairError::Primary)?;
    if !records.is_empty() || ignored > 0 {
        superblock.version += 1;
        // Of what is torn the rest may be written later, under the same number.
        superblock.retired = newest;
        let mut page = [0; PAGE_LEN];
        superblock.encode(&mut page);
        let place = Superblock::place(superblock.version);
        journal.write(place.start, &page).map_err(RepairError::Journal)?;
        journal.flush().map_err(RepairError::Journal)?;
    }
    Ok(Repaired { superblock, ..came })
}

fn summed_up(superblock: Superblock, found: &[Whole], ignored: u32) -> Repaired {
    Repaired {
        superblock,
        windows: found.len() as u32,
        last: found.last().map(|record| record.head),
        bytes: found.iter().map(|record| u64::from(record.head.pages()) * PAGE).sum(),
        ignored,
    }
}

/// What is in a journal.
struct Found {
    superblock: Superblock,
    /// To be put in place, in this order.
    records: Vec<Whole>,
    /// Others that are not retired.
    ignored: u32,
    /// The newest window that a header names.
    newest: u64,
}

/// Looks for records.
fn find<J: Medium, P>(
    journal: &mut J,
    owner: Owner,
    size: u64,
) -> Result<Found, RepairError<J::Error, P>> {
    let mut copies: [Page; 2] = [[0; PAGE_LEN]; 2];
    for (copy, page) in copies.iter_mut().enumerate() {
        journal.read(copy as u64 * PAGE, page).map_err(RepairError::Journal)?;
    }
    let superblock = Superblock::choose([&copies[0], &copies[1]])?;
    if superblock.owner != owner {
        return Err(RepairError::NotItsOwn { found: superblock.owner });
    }
    let shape = superblock.shape;
    let (mut whole, mut ignored, mut newest_head) = (Vec::new(), 0, superblock.retired);
    for slot in 0..u64::from(shape.slots()) {
        let mut page = [0; PAGE_LEN];
        let place = shape.header(slot).start;
        journal.read(place, &mut page).map_err(RepairError::Journal)?;
        let head = Head::decode(&page, owner, shape);
        let in_place = |head: &Head| head.window % u64::from(shape.slots()) == slot;
        let Some(head) = head.filter(in_place).filter(|head| head.window > superblock.retired)
        else {
            continue;
        };
        newest_head = newest_head.max(head.window);
        match whole_record(journal, shape, head).map_err(RepairError::Journal)? {
            Some(contents) => whole.push(Whole { head, contents }),
            None => ignored += 1,
        }
    }
    whole.sort_unstable_by_key(|record| record.head.window);
    // The slot of a record was another one's, whose window was complete by then: what is older came back in a slot whose
    // newer record was lost.
    let newest = whole.last().map_or(0, |record| record.head.window);
    let is_current = |record: &Whole| record.head.window + u64::from(shape.slots()) > newest;
    ignored += whole.iter().filter(|record| !is_current(record)).count() as u32;
    whole.retain(is_current);
    let first = whole.first().map_or(0, |record| record.head.window);
    let numbers = whole.iter().zip(first..);
    let followed = numbers.take_while(|(record, number)| record.head.window == *number).count();
    ignored += (whole.len() - followed) as u32;
    whole.truncate(followed);
    let end = whole.iter().map(Whole::end).max().unwrap_or(0);
    if end > size {
        return Err(RepairError::Cut { end, size });
    }
    Ok(Found { superblock, records: whole, ignored, newest: newest_head })
}

/// The contents of a record, if all of it is there.
fn whole_record<J: Medium>(
    journal: &mut J,
    shape: Shape,
    head: Head,
) -> Result<Option<Contents>, J::Error> {
    let mut entries = vec![0; (head.header_pages() as usize - 1) * PAGE_LEN];
    journal.read(shape.header(head.window).start + PAGE, &mut entries)?;
    let Some(contents) = Contents::decode(&head, &entries, DISK_SIZE_MAX) else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    for (number, entries) in contents.pages.chunks(PIECE as usize).enumerate() {
        let place = shape.payload(head.window, number as u32 * PIECE, entries.len() as u32);
        bytes.resize(place.len() as usize, 0);
        journal.read(place.start, &mut bytes)?;
        if !has_checksums(&bytes, entries) {
            return Ok(None);
        }
    }
    Ok(Some(contents))
}

fn has_checksums(pages: &[u8], entries: &[Entry]) -> bool {
    let mut pages = pages.chunks_exact(PAGE_LEN).zip(entries);
    pages.all(|(page, entry)| crc32c(page) == entry.checksum)
}

fn put_in_place<J: Medium, P: Medium>(
    journal: &mut J,
    primary: &mut P,
    shape: Shape,
    record: &Whole,
) -> Result<(), RepairError<J::Error, P::Error>> {
    for zero in &record.contents.zeroes {
        let mut from = zero.start;
        while from < zero.end {
            let piece = ByteRange::new(from, zero.end.min(from + ZEROES));
            primary.zero(piece).map_err(RepairError::Primary)?;
            from = piece.end;
        }
    }
    let grid = record.head.grid();
    let mut bytes = Vec::new();
    for (number, entries) in record.contents.pages.chunks(PIECE as usize).enumerate() {
        let place = shape.payload(record.head.window, number as u32 * PIECE, entries.len() as u32);
        bytes.resize(place.len() as usize, 0);
        journal.read(place.start, &mut bytes).map_err(RepairError::Journal)?;
        if !has_checksums(&bytes, entries) {
            return Err(RepairError::Changed);
        }
        for (page, entry) in bytes.chunks_exact(PAGE_LEN).zip(entries) {
            for (first, end) in entry.sectors.runs() {
                let to = grid.sector_range(entry.page, first, end);
                let from = (u64::from(first) * SECTOR) as usize;
                let part = &page[from..from + to.len() as usize];
                primary.write(to.start, part).map_err(RepairError::Primary)?;
            }
        }
    }
    Ok(())
}
