//! Filling the pages of a batch: marks, slots that hold nothing, slots that changed, and the walk.
//!
//! All of a batch is of one instant. Frees come before claims, so that no part of a batch that was torn at
//! its end shows a block in two slots for longer than it was so.

use super::page::{FREE_LEN, MARKS_LEN, PageFlags, PageHeader, PageWriter, claim_len};
use super::{BATCH_PAGES, CHANGES_MAX, CacheIndex, Closing, Pages, WALK_MAX};
use crate::cache::Unrecorded;
use crate::ids::{Nanos, SlotId};

impl CacheIndex {
    /// Fills the pages of the next batch.
    pub(super) fn record(
        &mut self,
        cache: &mut Unrecorded<'_>,
        grid_offset: u32,
        now: Nanos,
    ) -> Pages {
        let count = cache.changes();
        let mut flags = first_flags(cache);
        let is_behind = count > self.progress.durable || cache.has_retired() || cache.has_changed();
        let marks = &mut self.marking.marks;
        let closes = match self.closing {
            Closing::Wanted(unmarked) if !is_behind && self.walk.unsaid == 0 => {
                if unmarked {
                    marks.clear();
                    flags = flags.with(PageFlags::UNMARKED);
                }
                !marks.has_changed()
            }
            Closing::Wanted(_) | Closing::No | Closing::Closed => false,
        };
        if marks.take_all() {
            flags = flags.with(PageFlags::MARKED);
        }
        if closes {
            flags = flags.with(PageFlags::CLOSED);
        }
        let first = self.place.next_page;
        let at = (first - 1) % u64::from(self.config.pages);
        let room = (u64::from(self.config.pages) - at).min(BATCH_PAGES.into()) as u32;
        let mut homeless: usize = 0;
        let mut pages = 0;
        let mut is_complete = false;
        while (!is_complete || self.walk.unsaid > 0) && pages < room {
            let number = first + u64::from(pages);
            let tail = self.place.durable_tail;
            assert!(number < tail + u64::from(self.config.pages), "the ring bites its tail");
            let mut writer = PageWriter::new(&mut self.memory.pages[pages as usize]);
            let marks = &mut self.marking.marks;
            while writer.used() + MARKS_LEN <= CHANGES_MAX
                && let Some((word, bits)) = marks.take_changed()
            {
                writer.marks(word, bits);
            }
            is_complete = !marks.has_changed()
                && record_frees(cache, &mut writer, &mut homeless)
                && record_changed(cache, &mut writer);
            let from = self.walk.at();
            let positions = self.geometry.positions();
            let claim_max = claim_len(cache.granules(), cache.granules());
            let mut walked = 0;
            while walked < WALK_MAX.min(positions) && writer.fits(claim_max.max(MARKS_LEN)) {
                let at = self.walk.at();
                match at < self.geometry.slots {
                    true => record_slot(cache, SlotId(at), &mut writer),
                    false => {
                        let word = at - self.geometry.slots;
                        let bits = self.marking.marks.word(word);
                        if bits != 0 {
                            writer.marks(word, bits);
                        }
                    }
                }
                self.walk.advance(number);
                self.walk.unsaid = self.walk.unsaid.saturating_sub(1);
                walked += 1;
            }
            let header = PageHeader {
                disk: self.config.disk,
                generation: self.config.generation,
                nonce: self.config.nonce,
                number,
                durable: self.place.durable_page,
                tail: self.walk.tail(),
                walk: (from, self.walk.at()),
                grid_offset,
                flags,
            };
            writer.finish(&header);
            flags = PageFlags::default();
            pages += 1;
        }
        self.place.next_page += u64::from(pages);
        self.progress.changed_at = if is_complete { Nanos::NEVER } else { now };
        let changes = if is_complete { cache.recordable() } else { self.progress.durable };
        Pages { first, count: pages, changes, tail: self.walk.tail(), closes }
    }
}

/// The flags of the first page: one of them says that every slot is empty.
fn first_flags(cache: &mut Unrecorded<'_>) -> PageFlags {
    if cache.take_emptied() { PageFlags::EMPTY } else { PageFlags::default() }
}

/// Slots that lost their block; true when all are said. `homeless`: how many of the busy ones are.
fn record_frees(
    cache: &mut Unrecorded<'_>,
    writer: &mut PageWriter<'_>,
    homeless: &mut usize,
) -> bool {
    let fits = |writer: &PageWriter<'_>| writer.used() + FREE_LEN <= CHANGES_MAX;
    for slot in cache.homeless().skip(*homeless) {
        if !fits(writer) {
            return false;
        }
        writer.free(slot);
        *homeless += 1;
    }
    while fits(writer) {
        let Some(slot) = cache.next_retired() else { return true };
        writer.free(slot);
    }
    !cache.has_retired()
}

/// Slots that changed; true when all are said.
fn record_changed(cache: &mut Unrecorded<'_>, writer: &mut PageWriter<'_>) -> bool {
    while let Some((slot, granules)) = cache.first_changed() {
        let len = match granules {
            0 => FREE_LEN,
            granules => claim_len(cache.granules(), granules),
        };
        if writer.used() + len > CHANGES_MAX {
            return false;
        }
        cache.pass_changed();
        match granules {
            0 => writer.free(slot),
            _ => record_slot(cache, slot, writer),
        }
    }
    true
}

/// Records a slot that holds something.
fn record_slot(cache: &Unrecorded<'_>, slot: SlotId, writer: &mut PageWriter<'_>) {
    if let Some(held) = cache.held(slot) {
        writer.claim(slot, held.block, held.valid, held.referenced, held.checksums);
    }
}
