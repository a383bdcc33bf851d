//! Reading a ring back: newest page first, down to the tail.
//!
//! ```text
//!   every 256th page ─► about the newest ─► pages around it ─► D, the highest number claimed durable ─► N ≥ D, the last
//!   N ─► N − 1 ─► … ─► tail: the first word about a slot, or a word of marks, is the last that was written
//! ```
//! A page at or below *D* that is not there, or anything that contradicts itself, makes the whole
//! cache cold: it is never believed in part. Pages after *D* count as long as they follow each
//! other, and generations do not fall. So pages beyond a gap, of a run that crashed, never count
//! again.
//!
//! Memory: a bit per slot, the words of marks, what the reader reads at once ([`READ_PAGES`]).

use crate::geometry::SECTOR;
use crate::ids::{BlockIndex, Generation, SlotId};
use crate::sealed::Page;

use super::header::RingHeader;
use super::page::{self, Claim, PageFlags, PageHeader, Record};
use super::{BATCH_PAGES, RingGeometry};

/// Pages that are read at once.
pub const READ_PAGES: u32 = 256;
/// One page in so many is looked at to find the newest.
const SAMPLE: u32 = 256;
/// Pages around the newest sample that are looked at.
const AROUND: u64 = 4 * BATCH_PAGES as u64;

/// Records that are looked at together before they are taken in: as many as the CPU's caches of addresses bear.
const AHEAD: usize = 32;

/// Reads pages of a ring.
pub trait RingReader {
    /// Reads pages `first..first + count` of the ring, at most [`READ_PAGES`]. `next`: what is likely asked for
    /// after that.
    ///
    /// # Errors
    /// The medium's, in words.
    fn load(&mut self, first: u32, count: u32, next: Option<(u32, u32)>) -> Result<(), String>;

    /// Page `index` of those that were read.
    fn page(&self, index: u32) -> &Page;
}

/// Takes what slots hold, newest first, each slot once.
pub trait Claims {
    /// The grid that claims are of, said once, before them.
    fn on_grid(&mut self, offset: u64) -> bool;

    /// Slots and blocks of the next claims: the memory that they need can be fetched for all at
    /// once.
    fn prefetch(&mut self, coming: &[(SlotId, BlockIndex)]);

    /// A slot holds a block; false when that cannot be.
    fn claim(&mut self, claim: &Claim<'_>) -> bool;
}

/// Why a cache starts empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cold {
    /// There is no page.
    #[error("nothing was recorded")]
    Empty,
    /// A page that was durable is gone.
    #[error("page {0} of its index is missing or damaged")]
    Missing(u64),
    /// A page says what cannot be.
    #[error("page {0} of its index contradicts itself")]
    Contradiction(u64),
    /// It is of the block grid at this byte offset, and the disk's is at another one now.
    #[error("its block grid was at byte offset {0}, and is at another one now")]
    OtherGrid(u32),
    /// The page before it is damaged, or of a cache that cannot be.
    #[error("the header of its index makes no sense")]
    Header,
    /// Flash cannot be read.
    #[error("its index cannot be read: {0}")]
    Unreadable(String),
}

/// The rest of a former run, without its claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredRing {
    /// The run that wrote the last page.
    pub generation: Generation,
    /// The number of the last page.
    pub last: u64,
    /// Its tail.
    pub tail: u64,
    /// Where the walk was behind it.
    pub walk: u32,
    /// The part of the walk that each page made, newest first: number, from, to.
    pub walked: Vec<(u64, u32, u32)>,
    /// Which regions are marked.
    pub marks: Vec<u64>,
    /// The disk ended in order.
    pub closed: bool,
    /// Pages that were read for it.
    pub pages_read: u64,
}

/// What is to be read.
#[derive(Clone, Copy, Debug)]
pub struct RecoverRing<'a> {
    /// The ring's header.
    pub header: &'a RingHeader,
    /// By numbers.
    pub geometry: RingGeometry,
    /// No run after this one wrote.
    pub pending: Generation,
    /// Pages to read back, the newest: of what older ones say of marks the worst is assumed. [`u64::MAX`]: all that count.
    pub pages_max: u64,
}

impl RecoverRing<'_> {
    /// Reads the ring; hands what slots hold to `claims`.
    ///
    /// # Errors
    /// It must not be believed, nor must anything that `claims` received.
    pub fn recover(
        &self,
        reader: &mut dyn RingReader,
        claims: &mut dyn Claims,
    ) -> Result<RecoveredRing, Cold> {
        let last = self.find_last(reader)?;
        let PageHeader { number, tail, walk, grid_offset, flags, .. } = last;
        let in_window = tail >= 1 && tail <= number && number - tail < u64::from(self.header.pages);
        let offset = u64::from(grid_offset);
        let is_grid = grid_offset < self.header.block_size && offset.is_multiple_of(SECTOR);
        if !in_window || walk.1 >= self.geometry.positions() || !is_grid {
            return Err(Cold::Contradiction(number));
        }
        if !claims.on_grid(offset) {
            return Err(Cold::OtherGrid(grid_offset));
        }
        let words = self.geometry.words() as usize;
        let mut state = State {
            seen: vec![0; self.geometry.slots.div_ceil(64) as usize],
            slots_done: false,
            marks: vec![0; words],
            words_seen: vec![0; words.div_ceil(64)],
            marks_done: false,
            grid_offset,
            coming: Vec::with_capacity(AHEAD),
        };
        let mut found = RecoveredRing {
            generation: last.generation,
            last: number,
            tail,
            walk: walk.1,
            closed: flags.has(PageFlags::CLOSED),
            walked: Vec::with_capacity((number - tail + 1) as usize),
            ..RecoveredRing::default()
        };
        let mut generation = last.generation;
        let mut end = number + 1;
        let oldest = (number + 1).saturating_sub(self.pages_max).max(tail);
        while end > oldest {
            let first = self.chunk_start(end, oldest);
            let count = (end - first) as u32;
            let next = (first > oldest).then(|| {
                let before = self.chunk_start(first, oldest);
                (self.place(before), (first - before) as u32)
            });
            reader.load(self.place(first), count, next).map_err(Cold::Unreadable)?;
            for number in (first..end).rev() {
                let page = reader.page((number - first) as u32);
                let header = page::decode(page, self.header.disk, self.header.nonce)
                    .filter(|header| header.number == number && header.generation <= generation)
                    .ok_or(Cold::Missing(number))?;
                generation = header.generation;
                found.walked.push((number, header.walk.0, header.walk.1));
                let read = state.page(self, &header, page, claims);
                read.ok_or(Cold::Contradiction(number))?;
            }
            found.pages_read += u64::from(count);
            end = first;
        }
        if oldest > tail {
            state.mark_unseen(self.geometry);
        }
        found.marks = state.marks;
        Ok(found)
    }

    /// Where page `number` lies in the ring.
    fn place(&self, number: u64) -> u32 {
        ((number - 1) % u64::from(self.header.pages)) as u32
    }

    /// Where the pages begin that are read together and end before `end`.
    fn chunk_start(&self, end: u64, oldest: u64) -> u64 {
        let last = u64::from(self.place(end - 1));
        let within = last + 1;
        end - within.min(u64::from(READ_PAGES)).min(end - oldest)
    }

    /// The page that the ring ends with.
    fn find_last(&self, reader: &mut dyn RingReader) -> Result<PageHeader, Cold> {
        let ours = |page: &Page| page::decode(page, self.header.disk, self.header.nonce);
        let pages = self.header.pages;
        let mut newest = 0;
        for place in (0..pages).step_by(SAMPLE as usize) {
            reader.load(place, 1, None).map_err(Cold::Unreadable)?;
            newest = newest.max(ours(reader.page(0)).map_or(0, |header| header.number));
        }
        if newest == 0 {
            return Err(Cold::Empty);
        }
        let start = newest.saturating_sub(AROUND).max(1);
        let end = newest + u64::from(SAMPLE) + AROUND;
        let mut around: Vec<Option<PageHeader>> = Vec::with_capacity((end - start) as usize);
        let mut at = start;
        while at < end {
            let room = u64::from(pages - self.place(at)).min(u64::from(READ_PAGES));
            let count = room.min(end - at) as u32;
            reader.load(self.place(at), count, None).map_err(Cold::Unreadable)?;
            for index in 0..count {
                let number = at + u64::from(index);
                around.push(ours(reader.page(index)).filter(|header| header.number == number));
            }
            at += u64::from(count);
        }
        let there = || around.iter().flatten();
        if there().any(|header| header.generation > self.pending) {
            return Err(Cold::Contradiction(newest));
        }
        let durable = there().map(|header| header.durable).max().unwrap_or(0);
        if durable > 0 && durable < start {
            return Err(Cold::Missing(durable + 1));
        }
        let at = |number: u64| match number < start {
            true => None,
            false => around.get((number - start) as usize).copied().flatten(),
        };
        let mut last = None;
        if durable > 0 {
            last = Some(at(durable).ok_or(Cold::Missing(durable))?);
        }
        let mut number = durable + 1;
        while let Some(next) = at(number) {
            if last.is_some_and(|last: PageHeader| next.generation < last.generation) {
                break;
            }
            last = Some(next);
            number += 1;
        }
        if number >= end {
            // Of pages that are all there one that is looked at is nearer to the last.
            return Err(Cold::Missing(number));
        }
        last.ok_or(Cold::Empty)
    }
}

/// The findings so far, going back.
struct State {
    /// Slots that something was said of.
    seen: Vec<u64>,
    /// Nothing that is older counts for slots.
    slots_done: bool,
    marks: Vec<u64>,
    words_seen: Vec<u64>,
    marks_done: bool,
    grid_offset: u32,
    /// The next claims that count, as far as is known before they are taken in.
    coming: Vec<(SlotId, BlockIndex)>,
}

impl State {
    /// Takes a page; `None` when it contradicts itself.
    fn page(
        &mut self,
        ring: &RecoverRing<'_>,
        header: &PageHeader,
        page: &Page,
        claims: &mut dyn Claims,
    ) -> Option<()> {
        let geometry = ring.geometry;
        if !self.slots_done && header.grid_offset != self.grid_offset {
            // The grid moves only where everything is dropped.
            return None;
        }
        let mut ahead = page::records(page, geometry.granules);
        for (index, record) in page::records(page, geometry.granules).enumerate() {
            if index % AHEAD == 0 {
                self.look_ahead(geometry, &mut ahead, claims);
            }
            match record.ok()? {
                Record::Claim(claim) => {
                    if self.sees(geometry, claim.slot)? && !claims.claim(&claim) {
                        return None;
                    }
                }
                Record::Free(slot) => {
                    self.sees(geometry, slot)?;
                }
                Record::Marks { word, bits } => {
                    if word >= geometry.words() {
                        return None;
                    }
                    let first = !self.marks_done && set(&mut self.words_seen, word);
                    if first {
                        self.marks[word as usize] = bits;
                    }
                }
            }
        }
        self.slots_done |= header.flags.has(PageFlags::EMPTY);
        if header.flags.has(PageFlags::MARKED) {
            self.mark_unseen(geometry);
        }
        let says_all = [PageFlags::UNMARKED, PageFlags::MARKED];
        self.marks_done |= says_all.iter().any(|flag| header.flags.has(*flag));
        Some(())
    }

    /// Of words that nothing was said of every region is marked.
    fn mark_unseen(&mut self, geometry: RingGeometry) {
        if self.marks_done {
            return;
        }
        for word in 0..geometry.words() {
            if set(&mut self.words_seen, word) {
                self.marks[word as usize] = u64::MAX;
            }
        }
    }

    /// Tells what the next claims are about.
    fn look_ahead(
        &mut self,
        geometry: RingGeometry,
        records: &mut page::Records<'_>,
        claims: &mut dyn Claims,
    ) {
        if self.slots_done {
            return;
        }
        self.coming.clear();
        for record in records.take(AHEAD) {
            if let Ok(Record::Claim(Claim { slot, block, .. })) = record
                && slot.0 < geometry.slots
                && !is_set(&self.seen, slot.0)
            {
                self.coming.push((slot, block));
            }
        }
        claims.prefetch(&self.coming);
    }

    /// True when nothing newer was said of the slot; `None` when there is no such slot.
    fn sees(&mut self, geometry: RingGeometry, slot: SlotId) -> Option<bool> {
        let is_there = slot.0 < geometry.slots || cfg!(feature = "planted-bugs");
        is_there.then(|| !self.slots_done && set(&mut self.seen, slot.0))
    }
}

fn is_set(bits: &[u64], number: u32) -> bool {
    bits[number as usize / 64] >> (number % 64) & 1 == 1
}

/// Sets a bit; true when it was not set.
fn set(bits: &mut [u64], number: u32) -> bool {
    let word = &mut bits[number as usize / 64];
    let bit = 1 << (number % 64);
    let was_set = *word & bit != 0;
    *word |= bit;
    !was_set
}
