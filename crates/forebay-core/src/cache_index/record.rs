//! Filling the pages of a batch: marks, slots that hold nothing, slots that changed, and the walk.
//!
//! All of a batch is of one instant. Frees come before claims, so that no part of a batch that was torn at
//! its end shows a block in two slots for longer than it was so.

use super::{Closing, Pages};
use crate::engine::Parts;
use crate::engine::cx::Cx;
use crate::engine::flash::FlashTier;
use crate::ids::{Nanos, SlotId};
use crate::warm::page::{FREE_LEN, MARKS_LEN, PageFlags, PageHeader, PageWriter, claim_len};
use crate::warm::{BATCH_PAGES, CHANGES_MAX, WALK_MAX};

impl Parts {
    /// Fills the pages of the next batch.
    pub(super) fn record(&mut self, cx: &mut Cx<'_>) -> Pages {
        let grid_offset = cx.grid.offset() as u32;
        let ring = self.cache_index.as_mut().expect("there is a ring");
        let flash = self.cache.flash.as_mut().expect("a ring has a flash tier");
        let count = flash.changes.as_ref().expect("it is recorded").count;
        let mut flags = first_flags(flash);
        let is_behind = count > ring.durable || flash.dir.has_retired();
        let is_behind = is_behind || flash.changes.as_ref().is_some_and(|c| c.first().is_some());
        let closes = match ring.closing {
            Closing::Wanted(unmarked) if !is_behind => {
                if unmarked {
                    ring.marks.clear();
                    flags = flags.with(PageFlags::UNMARKED);
                }
                !ring.marks.has_changed()
            }
            Closing::Wanted(_) | Closing::No | Closing::Closed => false,
        };
        if ring.marks.take_all() {
            flags = flags.with(PageFlags::MARKED);
        }
        if closes {
            flags = flags.with(PageFlags::CLOSED);
        }
        let first = ring.next_page;
        let place = (first - 1) % u64::from(ring.config.pages);
        let room = (u64::from(ring.config.pages) - place).min(BATCH_PAGES.into()) as u32;
        let mut homeless: usize = 0;
        let mut pages = 0;
        let mut is_complete = false;
        while !is_complete && pages < room {
            let number = first + u64::from(pages);
            let tail = ring.durable_tail;
            assert!(number < tail + u64::from(ring.config.pages), "the ring bites its tail");
            let mut writer = PageWriter::new(&mut ring.pages[pages as usize]);
            while writer.used() + MARKS_LEN <= CHANGES_MAX
                && let Some((word, bits)) = ring.marks.take_changed()
            {
                writer.marks(word, bits);
            }
            is_complete = !ring.marks.has_changed()
                && record_frees(flash, &mut writer, &mut homeless)
                && record_changed(flash, &mut writer);
            let from = ring.walk.at();
            let positions = ring.geometry.positions();
            let claim_max = claim_len(flash.granules(), flash.granules());
            let mut walked = 0;
            while walked < WALK_MAX.min(positions) && writer.fits(claim_max.max(MARKS_LEN)) {
                let at = ring.walk.at();
                match at < ring.geometry.slots {
                    true => record_slot(flash, SlotId(at), &mut writer),
                    false => {
                        let word = at - ring.geometry.slots;
                        let bits = ring.marks.word(word);
                        if bits != 0 {
                            writer.marks(word, bits);
                        }
                    }
                }
                ring.walk.advance(number);
                walked += 1;
            }
            let header = PageHeader {
                disk: ring.config.disk,
                generation: ring.config.generation,
                nonce: ring.config.nonce,
                number,
                durable: ring.durable_page,
                tail: ring.walk.tail(),
                walk: (from, ring.walk.at()),
                grid_offset,
                flags,
            };
            writer.finish(&header);
            flags = PageFlags::default();
            pages += 1;
        }
        ring.next_page += u64::from(pages);
        ring.changed_at = if is_complete { Nanos::NEVER } else { cx.now };
        let changes = if is_complete { self.cache.stale.recordable(count) } else { ring.durable };
        Pages { first, count: pages, changes, tail: ring.walk.tail(), closes }
    }
}

/// What the first page says of all slots.
fn first_flags(flash: &mut FlashTier) -> PageFlags {
    let changes = flash.changes.as_mut().expect("it is recorded");
    let was_emptied = std::mem::take(&mut changes.emptied);
    let is_empty = was_emptied || flash.dir.is_empty() && flash.dir.has_retired();
    if !is_empty {
        return PageFlags::default();
    }
    flash.dir.record_all_retired();
    PageFlags::EMPTY
}

/// Slots that lost their block; true when all are said. `homeless`: how many of the busy ones are.
fn record_frees(flash: &mut FlashTier, writer: &mut PageWriter<'_>, homeless: &mut usize) -> bool {
    let fits = |writer: &PageWriter<'_>| writer.used() + FREE_LEN <= CHANGES_MAX;
    for slot in flash.homeless().skip(*homeless) {
        if !fits(writer) {
            return false;
        }
        writer.free(slot);
        *homeless += 1;
    }
    while fits(writer) {
        let Some(slot) = flash.dir.record_retired() else { return true };
        writer.free(slot);
    }
    !flash.dir.has_retired()
}

/// Slots that changed; true when all are said.
fn record_changed(flash: &mut FlashTier, writer: &mut PageWriter<'_>) -> bool {
    while let Some(slot) = flash.changes.as_ref().expect("it is recorded").first() {
        let valid = flash.dir.valid(slot);
        let len = match valid.is_empty() {
            true => FREE_LEN,
            false => claim_len(flash.granules(), valid.count()),
        };
        if writer.used() + len > CHANGES_MAX {
            return false;
        }
        flash.changes.as_mut().expect("it is recorded").next();
        match valid.is_empty() {
            true => writer.free(slot),
            false => record_slot(flash, slot, writer),
        }
    }
    true
}

/// What a slot holds, if anything: of a hollow block nothing.
fn record_slot(flash: &FlashTier, slot: SlotId, writer: &mut PageWriter<'_>) {
    let valid = flash.dir.valid(slot);
    if let Some(block) = flash.dir.block_of(slot).filter(|_| !valid.is_empty()) {
        let referenced = flash.dir.is_referenced(slot);
        let checksums = flash.checksums(slot, 0, flash.granules());
        writer.claim(slot, block, valid, referenced, checksums);
    }
}
