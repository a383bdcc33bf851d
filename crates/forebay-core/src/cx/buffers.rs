//! Request buffers: runs of pages in one bounded area, first fit from its start.
//!
//! A buffer is contiguous, so that any request is one piece of memory for every device. The area is
//! small (tens of MiB), so a bitmap is enough, searched from the first page that may be free. Pages are
//! used again as soon as they can be, because what was used a moment ago is in the CPU's caches.
//! Nothing is moved; a long run waits until enough neighbours came back.
//!
//! **Spent.** A buffer may be the source of copies that the executor was asked for and has not made. It
//! is *spent* then, not given back: it counts as free, and can be taken again after the executor has
//! carried out everything.

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
}

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
        Some(first)
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_run_spans_words_and_waits_for_neighbours() {
        let mut pool = BufferPool::new(200 * PAGE);
        assert_eq!(pool.take(60), Some(0));
        assert_eq!(pool.take(100), Some(60));
        assert_eq!(pool.take(41), None);
        assert_eq!(pool.take(40), Some(160));
        pool.give(0, 60);
        pool.give(160, 40);
        assert_eq!(pool.take(61), None, "free pages are not neighbours");
        pool.give(60, 100);
        assert_eq!(pool.take(200), Some(0));
    }

    #[test]
    fn what_was_used_last_is_used_next() {
        let mut pool = BufferPool::new(200 * PAGE);
        assert_eq!([pool.take(3), pool.take(1), pool.take(2)], [Some(0), Some(3), Some(4)]);
        pool.give(3, 1);
        assert_eq!(pool.take(2), Some(6));
        assert_eq!(pool.take(1), Some(3));
        pool.give(0, 3);
        assert_eq!([pool.take(2), pool.take(1)], [Some(0), Some(2)]);
    }

    #[test]
    fn spent_pages_are_free_after_everything_was_carried_out() {
        let mut pool = BufferPool::new(4 * PAGE);
        assert_eq!(pool.take(4), Some(0));
        pool.spend(0, 2);
        pool.carried_out();
        assert_eq!((pool.pages_free(), pool.take(1)), (2, None), "nobody has carried anything out");
        pool.asked();
        pool.spend(2, 2);
        pool.carried_out();
        assert_eq!((pool.take(2), pool.take(1)), (Some(0), None));
        pool.asked();
        pool.carried_out();
        assert_eq!((pool.take(2), pool.has_spent()), (Some(2), false));
    }

    proptest! {
        #[test]
        fn buffers_never_overlap(steps in prop::collection::vec((1u32..40, any::<prop::sample::Index>()), 1..200)) {
            let mut pool = BufferPool::new(300 * PAGE);
            let mut held: Vec<(u32, u32)> = Vec::new();
            for (count, pick) in steps {
                match pool.take(count) {
                    Some(first) => {
                        prop_assert!(first + count <= 300);
                        prop_assert!(held.iter().all(|&(f, c)| first + count <= f || f + c <= first));
                        held.push((first, count));
                    }
                    None => {
                        let longest = longest_gap(&held);
                        prop_assert!(longest < count, "a gap of {longest} was overlooked");
                        let (first, count) = held.swap_remove(pick.index(held.len()));
                        pool.give(first, count);
                    }
                }
                prop_assert_eq!(pool.pages_free(), 300 - held.iter().map(|h| h.1).sum::<u32>());
            }
        }
    }

    fn longest_gap(held: &[(u32, u32)]) -> u32 {
        let mut sorted = held.to_vec();
        sorted.sort_unstable();
        let mut end = 0;
        let mut longest = 0;
        for (first, count) in sorted.into_iter().chain([(300, 0)]) {
            longest = longest.max(first - end);
            end = first + count;
        }
        longest
    }
}
