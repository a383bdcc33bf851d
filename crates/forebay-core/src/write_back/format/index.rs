//! The log index: where the newest acknowledged bytes of the disk lie in the write log.
//!
//! ```text
//!   page of the disk ──hash──► newest entry ─► older entry ─► …      (only entries that show a sector)
//!   zero records, oldest first ─────────────────────────────────     (few, looked through)
//! ```
//! A *page* is 4 KiB of the disk on the grid of the log (`phase`: see [`PageGrid`]). Every data
//! page in the log has an entry at its *place*; the memory for all places is allocated once. An
//! entry says which sectors of its page were written, and which of those are *visible*: no later
//! record has overwritten them. Only visible entries are linked, at most eight per page. So a
//! lookup or an insert takes the same time however often a page was rewritten. The destager takes
//! entries by place, in log order, so it finds hidden ones too: they belong to earlier flush
//! epochs.
//!
//! Zero records have no data and may cover the whole disk. They are kept in a list, which new ones do
//! not make longer than its limit, and are compared by sequence with what the page's entries show.

mod page;

use std::collections::VecDeque;

pub use page::{ALL, PageGrid, PageIndex, SectorMask};

use crate::geometry::{ByteRange, PAGE};
use crate::ids::{FlushEpoch, Sequence};

/// Zero records in the log at most; one more waits until some are destaged. A restart may find more.
pub const ZEROES_MAX: usize = 256;

const NONE: u32 = u32::MAX;

/// Where a data page lies in the log: segment slot × pages of a segment + page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u32);

/// A data page in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The page of the disk.
    pub page: PageIndex,
    /// Its record.
    pub sequence: Sequence,
    /// The record's flush epoch.
    pub epoch: FlushEpoch,
    /// CRC32C of the page in the log, once it is written.
    pub checksum: u32,
    /// Sectors that the record wrote.
    pub sectors: SectorMask,
    /// Those that no later write has overwritten.
    pub visible: SectorMask,
    /// The log had another record of the page when this one came: at least so many sequences before. 0: it had none.
    behind: u16,
    /// Older entry of the same page that shows something.
    older: u32,
    /// Next page in the same bucket; meaningful in the newest entry of a page.
    next: u32,
}

const EMPTY: Entry = Entry {
    page: PageIndex(u64::MAX),
    sequence: Sequence(0),
    epoch: FlushEpoch(0),
    checksum: 0,
    sectors: SectorMask::NONE,
    visible: SectorMask::NONE,
    behind: 0,
    older: NONE,
    next: NONE,
};

impl Entry {
    /// The newest record before this one that the log had of the page when this one came, or a later one.
    pub fn overwrites(&self) -> Option<Sequence> {
        (self.behind > 0).then(|| Sequence(self.sequence.0 - u64::from(self.behind)))
    }
}

/// A range that was zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroRecord {
    /// Its record.
    pub sequence: Sequence,
    /// The record's flush epoch.
    pub epoch: FlushEpoch,
    /// What reads as zeroes.
    pub range: ByteRange,
    /// The space need not stay allocated.
    pub may_unmap: bool,
}

/// Where sectors of a page come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerSource {
    /// The data page at a place.
    Place(Place),
    /// Zeroes.
    Zero,
}

/// Sectors of a page with one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Where they are.
    pub source: LayerSource,
    /// Which they are.
    pub sectors: SectorMask,
}

/// The log's bytes of one page: disjoint layers. Sectors in none of them are older than the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layers {
    layers: [Option<Layer>; 9],
    count: usize,
    /// The oldest record that one of them may be of.
    pub oldest: Sequence,
}

impl Layers {
    fn push(&mut self, source: LayerSource, sectors: SectorMask) {
        if !sectors.is_empty() {
            self.layers[self.count] = Some(Layer { source, sectors });
            self.count += 1;
        }
    }

    /// The layers.
    pub fn iter(&self) -> impl Iterator<Item = Layer> + '_ {
        self.layers[..self.count].iter().flatten().copied()
    }

    /// Sectors in any layer.
    pub fn sectors(&self) -> SectorMask {
        self.iter().fold(SectorMask::NONE, |all, layer| all.union(layer.sectors))
    }

    /// The source of all of `wanted`, when it is one.
    pub fn single(&self, wanted: SectorMask) -> Option<LayerSource> {
        self.iter().find(|layer| layer.sectors.contains(wanted)).map(|layer| layer.source)
    }
}

/// See the module.
#[derive(Debug)]
pub struct LogIndex {
    grid: PageGrid,
    entries: Vec<Entry>,
    heads: Vec<u32>,
    /// Which bucket a page belongs to follows from it, and nothing else ([`Config::index_salt`](crate::config::Config)).
    salt: u64,
    zeroes: VecDeque<ZeroRecord>,
    /// Entries in use.
    live: u32,
    /// Entries that there ever were.
    inserted: u64,
}

impl LogIndex {
    /// An empty index for `places` data pages, up to 2³¹ of them.
    pub fn new(places: u32, grid: PageGrid) -> LogIndex {
        let buckets = places.max(2).next_power_of_two();
        LogIndex {
            grid,
            entries: vec![EMPTY; places as usize],
            heads: vec![NONE; buckets as usize],
            salt: 0,
            zeroes: VecDeque::with_capacity(ZEROES_MAX),
            live: 0,
            inserted: 0,
        }
    }

    /// The same, empty as it is, with another salt than 0.
    pub fn salted(self, salt: u64) -> LogIndex {
        assert_eq!(self.live, 0, "pages would be looked for elsewhere");
        LogIndex { salt, ..self }
    }

    /// Memory of an index for `places`, in bytes.
    pub fn memory_bytes_for(places: u64) -> u64 {
        places * size_of::<Entry>() as u64
            + places.max(2).next_power_of_two() * size_of::<u32>() as u64
            + (ZEROES_MAX * size_of::<ZeroRecord>()) as u64
    }

    /// How pages lie on the disk.
    pub fn grid(&self) -> PageGrid {
        self.grid
    }

    /// True when the log holds nothing.
    pub fn is_empty(&self) -> bool {
        self.live == 0 && self.zeroes.is_empty()
    }

    /// Data pages in the log.
    pub fn live(&self) -> u32 {
        self.live
    }

    /// Data pages that were ever added.
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    /// The entry at `place`; `None` when there is no data page.
    pub fn entry(&self, place: Place) -> Option<&Entry> {
        self.entries.get(place.0 as usize).filter(|entry| entry.page != EMPTY.page)
    }

    /// The zero records, oldest first.
    pub fn zeroes(&self) -> impl Iterator<Item = &ZeroRecord> {
        self.zeroes.iter()
    }

    /// True with zero records.
    pub fn has_zeroes(&self) -> bool {
        !self.zeroes.is_empty()
    }

    /// True when no zero record can be added.
    pub fn zeroes_are_full(&self) -> bool {
        self.zeroes.len() >= ZEROES_MAX
    }

    /// Adds a data page; it is the newest of its page. Panics when the place is taken.
    pub fn insert(
        &mut self,
        place: Place,
        page: PageIndex,
        sectors: SectorMask,
        sequence: Sequence,
        epoch: FlushEpoch,
    ) {
        assert_eq!(self.entries[place.0 as usize].page, EMPTY.page, "a place is used once");
        assert!(!sectors.is_empty());
        let bucket = self.bucket(page);
        let found = self.find_head(bucket, page);
        let mut entry = Entry { page, sequence, epoch, sectors, visible: sectors, ..EMPTY };
        match found {
            None => entry.next = self.heads[bucket],
            Some((head, _)) => {
                let Entry { sequence: before, next, .. } = self.entries[head as usize];
                let behind = u16::try_from(sequence.0 - before.0).unwrap_or(u16::MAX);
                (entry.next, entry.behind) = (next, behind);
                entry.older = self.hide(head, sectors);
            }
        }
        self.entries[place.0 as usize] = entry;
        match found {
            Some((_, before)) if before != NONE => self.entries[before as usize].next = place.0,
            _ => self.heads[bucket] = place.0,
        }
        self.live += 1;
        self.inserted += 1;
    }

    /// These pages are about to be added: what the CPU has to fetch for that it fetches side by side.
    pub fn prefetch(&self, pages: impl Iterator<Item = PageIndex> + Clone) {
        let head = |page| self.heads[self.bucket(page)];
        let heads = pages.clone().fold(0, |sum: u32, page| sum.wrapping_add(head(page)));
        let entries = pages.fold(0, |sum, page| sum ^ self.peek(page));
        std::hint::black_box((heads, entries));
    }

    /// Reads the memory that a lookup or an insert of the page begins with. The value says nothing.
    pub fn peek(&self, page: PageIndex) -> u64 {
        let head = self.heads[self.bucket(page)];
        self.entries.get(head as usize).map_or(0, |entry| entry.page.0)
    }

    /// Adds a zero record, newer than everything. Panics when there is no room.
    pub fn insert_zero(&mut self, zero: ZeroRecord) {
        assert!(!self.zeroes_are_full());
        self.restore_zero(zero);
    }

    /// Adds a zero record that a restart found. Those over the limit take more memory: a progress page that has rotted
    /// brings back records that were destaged, beside those that took their places.
    pub fn restore_zero(&mut self, zero: ZeroRecord) {
        assert!(self.zeroes.back().is_none_or(|last| last.sequence < zero.sequence));
        self.zeroes.push_back(zero);
    }

    /// Notes the checksum of a page that was written to the log.
    pub fn store_checksum(&mut self, place: Place, checksum: u32) {
        self.entries[place.0 as usize].checksum = checksum;
    }

    /// Forgets the data page at `place`, if there is one.
    pub fn remove(&mut self, place: Place) {
        let entry = self.entries[place.0 as usize];
        if entry.page == EMPTY.page {
            return;
        }
        if !entry.visible.is_empty() {
            self.unlink(place.0);
        }
        self.entries[place.0 as usize] = EMPTY;
        self.live -= 1;
    }

    /// Forgets zero records up to `sequence`.
    pub fn remove_zeroes(&mut self, sequence: Sequence) {
        while self.zeroes.front().is_some_and(|zero| zero.sequence <= sequence) {
            self.zeroes.pop_front();
        }
    }

    /// What the log holds of `page`.
    pub fn layers(&self, page: PageIndex) -> Layers {
        let mut layers = Layers::default();
        let (zeroed, zeroed_at) = self.zeroed(page);
        let mut oldest = u64::MAX;
        if !zeroed.is_empty() {
            oldest = zeroed_at.into_iter().filter(|&zero| zero > 0).min().unwrap_or(oldest);
        }
        let mut rest = zeroed;
        let mut at = self.find_head(self.bucket(page), page).map_or(NONE, |(head, _)| head);
        while at != NONE {
            let entry = &self.entries[at as usize];
            let mut shown = entry.visible;
            for (sector, &zero) in zeroed_at.iter().enumerate() {
                if zero > entry.sequence.0 {
                    shown = shown.without(SectorMask(1 << sector));
                }
            }
            rest = rest.without(shown);
            layers.push(LayerSource::Place(Place(at)), shown);
            oldest = oldest.min(entry.sequence.0);
            at = entry.older;
        }
        layers.oldest = Sequence(oldest);
        layers.push(LayerSource::Zero, rest);
        layers
    }

    /// True when the log holds something of `range`. Takes time for its pages, or for all places where those are fewer.
    pub fn touches(&self, range: ByteRange) -> bool {
        let shows = |entry: &Entry| {
            !entry.visible.is_empty()
                && !entry.visible.intersect(self.grid.sectors(entry.page, range)).is_empty()
        };
        // What hides a zero record holds the same sectors.
        let is_zeroed = |zero: &ZeroRecord| zero.range.overlaps(range);
        !range.is_empty()
            && (self.zeroes.iter().any(is_zeroed) || self.candidates(range).any(shows))
    }

    /// The entries among which are all that show something of `range`.
    fn candidates(&self, range: ByteRange) -> impl Iterator<Item = &Entry> {
        let places = self.entries.len();
        let (pages, places) = match self.live {
            0 => (ByteRange::default(), 0),
            _ if range.len() / PAGE <= places as u64 => (range, 0),
            _ => (ByteRange::default(), places),
        };
        self.grid.pages(pages).flat_map(|page| self.linked(page)).chain(&self.entries[..places])
    }

    /// The entries that show something of `page`, newest first.
    fn linked(&self, page: PageIndex) -> impl Iterator<Item = &Entry> {
        let head = self.find_head(self.bucket(page), page).map_or(NONE, |(head, _)| head);
        let at = |place: u32| self.entries.get(place as usize);
        std::iter::successors(at(head), move |entry| at(entry.older))
    }

    /// True when the log holds something of `range` that a record after `sequence` wrote, or zeroed.
    pub fn touches_after(&self, range: ByteRange, sequence: Sequence) -> bool {
        self.grid.pages(range).any(|page| {
            let touched = self.grid.sectors(page, range);
            self.layers(page).iter().any(|layer| {
                let shown = layer.sectors.intersect(touched);
                match layer.source {
                    _ if shown.is_empty() => false,
                    LayerSource::Place(at) => self.entries[at.0 as usize].sequence > sequence,
                    LayerSource::Zero => self.is_zeroed_after(page, shown, sequence),
                }
            })
        })
    }

    /// True when a zero record after `sequence` covers some of these sectors.
    fn is_zeroed_after(&self, page: PageIndex, sectors: SectorMask, sequence: Sequence) -> bool {
        let (_, zeroed_at) = self.zeroed(page);
        let mut newest = zeroed_at.iter().enumerate();
        newest.any(|(sector, &at)| sectors.0 >> sector & 1 == 1 && at > sequence.0)
    }

    /// The sectors of a page that zero records cover, and the newest such record of each.
    fn zeroed(&self, page: PageIndex) -> (SectorMask, [u64; 8]) {
        let mut all = SectorMask::NONE;
        let mut newest = [0; 8];
        if self.zeroes.is_empty() {
            return (all, newest);
        }
        let range = self.grid.range_of(page);
        for zero in self.zeroes.iter().filter(|zero| zero.range.overlaps(range)) {
            let sectors = self.grid.sectors(page, zero.range);
            all = all.union(sectors);
            for (sector, newest) in newest.iter_mut().enumerate() {
                if sectors.0 >> sector & 1 == 1 {
                    *newest = zero.sequence.0;
                }
            }
        }
        (all, newest)
    }

    fn bucket(&self, page: PageIndex) -> usize {
        // Fibonacci hashing: neighbours spread, the top bits are the good ones. Twice, so that the salt reaches all of them.
        let hash = (page.0 ^ self.salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (hash >> (64 - self.heads.len().trailing_zeros())) as usize
    }

    /// The newest entry of `page`, and the one before it in its bucket.
    fn find_head(&self, bucket: usize, page: PageIndex) -> Option<(u32, u32)> {
        let (mut at, mut before) = (self.heads[bucket], NONE);
        while at != NONE {
            let entry = &self.entries[at as usize];
            if entry.page == page {
                return Some((at, before));
            }
            (before, at) = (at, entry.next);
        }
        None
    }

    /// Takes `sectors` from the view of the entries from `head` on; the newest that still shows one.
    fn hide(&mut self, head: u32, sectors: SectorMask) -> u32 {
        let (mut first, mut last, mut at) = (NONE, NONE, head);
        while at != NONE {
            let entry = &mut self.entries[at as usize];
            entry.visible = entry.visible.without(sectors);
            let (shows, older) = (!entry.visible.is_empty(), entry.older);
            if shows {
                match last {
                    NONE => first = at,
                    last => self.entries[last as usize].older = at,
                }
                last = at;
            }
            at = older;
        }
        if last != NONE {
            self.entries[last as usize].older = NONE;
        }
        first
    }

    fn unlink(&mut self, place: u32) {
        let Entry { page, older, next, .. } = self.entries[place as usize];
        let bucket = self.bucket(page);
        let (head, before) = self.find_head(bucket, page).expect("a visible entry is linked");
        if head != place {
            let mut at = head;
            while self.entries[at as usize].older != place {
                at = self.entries[at as usize].older;
            }
            self.entries[at as usize].older = older;
            return;
        }
        let heir = if older == NONE { next } else { older };
        if older != NONE {
            self.entries[older as usize].next = next;
        }
        match before {
            NONE => self.heads[bucket] = heir,
            before => self.entries[before as usize].next = heir,
        }
    }

    /// Panics when the structures contradict each other. For tests; slow.
    pub fn check_invariants(&self) {
        let used = self.entries.iter().filter(|entry| entry.page != EMPTY.page).count();
        assert_eq!(used, self.live as usize);
        let mut linked = 0;
        for &head in &self.heads {
            let mut newest = head;
            while newest != NONE {
                let (mut at, mut seen) = (newest, SectorMask::NONE);
                while at != NONE {
                    let entry = &self.entries[at as usize];
                    assert!(!entry.visible.is_empty() && entry.sectors.contains(entry.visible));
                    assert!(entry.visible.intersect(seen).is_empty(), "two entries show a sector");
                    seen = seen.union(entry.visible);
                    linked += 1;
                    at = entry.older;
                }
                newest = self.entries[newest as usize].next;
            }
        }
        let visible = self.entries.iter().filter(|entry| !entry.visible.is_empty()).count();
        assert_eq!(linked, visible, "a visible entry is not linked");
    }
}

#[cfg(test)]
mod tests;
