//! Request buffers: runs of pages in one bounded area, first fit from its start.
//!
//! A buffer is contiguous, so that any request is one piece of memory for every device. The area is
//! small (tens of MiB), so a bitmap is enough, searched from the first page that may be free. Pages are
//! used again as soon as they can be, because what was used a moment ago is in the CPU's caches.
//! Nothing is moved; a long run waits until enough neighbours came back.
//!
//! **Idle.** The host gets back what was not in use for a while, but for the first pages, which are used
//! all the time: [`BufferPool::idle`].
//!
//! **Spent.** A buffer may be the source of copies that the executor was asked for and has not made. It
//! is *spent* then, not given back: it counts as free, and can be taken again after the executor has
//! carried out everything.

use std::ops::Range;

use crate::geometry::PAGE;

/// Which pages of the buffer area are taken.
#[derive(Debug)]
pub(crate) struct BufferPool {
    /// Bit set = page taken.
    taken: Vec<u64>,
    pages: u32,
    pages_free: u32,
    /// No page before it is free.
    first_free: u32,
    /// Spent since [`BufferPool::asked`] was last called, and before.
    spent: Vec<(u32, u32)>,
    spent_before: Vec<(u32, u32)>,
    pages_spent: u32,
    /// No page behind it was in use since [`BufferPool::idle`] was last called.
    reached: u32,
    /// No page behind it has memory.
    touched: u32,
}

/// Pages of a huge page: the first ones keep their memory, and the others give it back so many at a time.
const HUGE: u32 = (2 << 20) / PAGE as u32;
/// Spent buffers that there is room for at once before the lists grow.
const SPENT: usize = 256;

impl BufferPool {
    /// An area of `bytes`, rounded down to pages.
    pub(crate) fn new(bytes: u64) -> BufferPool {
        let pages = u32::try_from(bytes / PAGE).expect("a buffer area below 16 TiB");
        BufferPool {
            taken: vec![0; pages.div_ceil(64) as usize],
            pages,
            pages_free: pages,
            first_free: 0,
            spent: Vec::with_capacity(SPENT),
            spent_before: Vec::with_capacity(SPENT),
            pages_spent: 0,
            reached: 0,
            touched: 0,
        }
    }

    /// Pages in the area.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// Pages not taken, or spent.
    pub(crate) fn pages_free(&self) -> u32 {
        self.pages_free + self.pages_spent
    }

    /// Takes `count` neighbouring pages (at least one); the first one's number, or `None`.
    pub(crate) fn take(&mut self, count: u32) -> Option<u32> {
        assert!(count > 0);
        if count > self.pages_free {
            return None;
        }
        let first = self.search(self.first_free, self.pages, count)?;
        self.mark(first, count, true);
        self.pages_free -= count;
        if first == self.first_free {
            self.first_free += count;
        }
        self.reached = self.reached.max(first + count);
        Some(first)
    }

    /// Pages that may have memory, and were not in use since the last call: the last of them, at most `max`. They have none
    /// from now on. `max`, their first and their end are multiples of [`HUGE`].
    pub(crate) fn idle(&mut self, max: u32) -> Option<Range<u32>> {
        assert!(max.is_multiple_of(HUGE));
        self.touched = self.touched.max(self.reached);
        let used = self.reached;
        self.reached = self.end_of_taken();
        let end = self.touched.next_multiple_of(HUGE).min(self.pages / HUGE * HUGE);
        let start = used.max(HUGE).next_multiple_of(HUGE).max(end.saturating_sub(max));
        (start < end).then(|| {
            self.touched = start;
            start..end
        })
    }

    /// True when [`BufferPool::idle`] finds pages once they, and those behind them, are not in use.
    pub(crate) fn has_touched(&self) -> bool {
        self.touched.max(self.reached).min(self.pages / HUGE * HUGE) > HUGE
    }

    /// Behind the last page that is taken.
    fn end_of_taken(&self) -> u32 {
        let last = self.taken.iter().rposition(|word| *word != 0);
        last.map_or(0, |word| (word as u32 + 1) * 64 - self.taken[word].leading_zeros())
    }

    /// Gives `count` pages from `first` back; panics when one of them was not taken.
    pub(crate) fn give(&mut self, first: u32, count: u32) {
        self.mark(first, count, false);
        self.pages_free += count;
        self.first_free = self.first_free.min(first);
    }

    /// Gives `count` pages from `first` back once everything that was asked for so far is carried out.
    pub(crate) fn spend(&mut self, first: u32, count: u32) {
        self.spent.push((first, count));
        self.pages_spent += count;
    }

    /// The executor has carried out everything up to the last [`BufferPool::asked`]: pages spent
    /// before it are free.
    pub(crate) fn carried_out(&mut self) {
        for n in 0..self.spent_before.len() {
            let (first, count) = self.spent_before[n];
            self.pages_spent -= count;
            self.give(first, count);
        }
        self.spent_before.clear();
    }

    /// The executor carries out what was asked for so far before the next [`BufferPool::carried_out`].
    pub(crate) fn asked(&mut self) {
        self.spent_before.append(&mut self.spent);
    }

    /// True when pages are spent that will be free.
    pub(crate) fn has_spent(&self) -> bool {
        self.pages_spent > 0
    }

    fn search(&self, from: u32, end: u32, count: u32) -> Option<u32> {
        let mut page = from;
        let mut run = 0;
        while page < end {
            let word = self.taken[page as usize / 64] >> (page % 64);
            let left = (64 - page % 64).min(end - page);
            let free = word.trailing_zeros().min(left);
            run += free;
            if run >= count {
                return Some(page + free - run);
            }
            if free == left {
                page += left;
                continue;
            }
            run = 0;
            page += free + (!(word >> free)).trailing_zeros().min(left - free);
        }
        None
    }

    fn mark(&mut self, first: u32, count: u32, taken: bool) {
        assert!(first + count <= self.pages);
        let mut page = first;
        while page < first + count {
            let bit = page % 64;
            let len = (64 - bit).min(first + count - page);
            let mask = if len == 64 { u64::MAX } else { ((1 << len) - 1) << bit };
            let word = &mut self.taken[page as usize / 64];
            if taken {
                assert_eq!(*word & mask, 0, "a page is taken twice");
                *word |= mask;
            } else {
                assert_eq!(*word & mask, mask, "a page is given back twice");
                *word &= !mask;
            }
            page += len;
        }
    }
}

#[cfg(test)]
mod tests;
