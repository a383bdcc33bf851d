//! Hands out pieces of the replay's memory: first fit over a sorted list of free pieces.

use forebay_core::action::Span;
use forebay_core::geometry::PAGE;

/// Free pieces of one flat area.
#[derive(Debug)]
pub(super) struct Memory {
    /// (offset, length), sorted, no two adjacent.
    free: Vec<(u64, u64)>,
}

impl Memory {
    /// An area of `len` bytes, a multiple of the page.
    pub(super) fn new(len: u64) -> Memory {
        Memory { free: vec![(0, len)] }
    }

    /// A page-aligned piece of `len` bytes; `None` when no free piece is long enough.
    pub(super) fn take(&mut self, len: u64) -> Option<Span> {
        let pages = len.next_multiple_of(PAGE);
        let at = self.free.iter().position(|&(_, free)| free >= pages)?;
        let (offset, free) = self.free[at];
        if free == pages {
            self.free.remove(at);
        } else {
            self.free[at] = (offset + pages, free - pages);
        }
        Some(Span { offset, len: len as u32 })
    }

    /// Gives a piece back.
    pub(super) fn give(&mut self, span: Span) {
        let (offset, mut len) = (span.offset, u64::from(span.len).next_multiple_of(PAGE));
        let mut at = self.free.partition_point(|&(free, _)| free < offset);
        if self.free.get(at).is_some_and(|&(next, _)| next == offset + len) {
            len += self.free.remove(at).1;
        }
        if at > 0 && self.free[at - 1].0 + self.free[at - 1].1 == offset {
            at -= 1;
            self.free[at].1 += len;
        } else {
            self.free.insert(at, (offset, len));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_never_overlap_and_all_come_back(
            steps in prop::collection::vec((any::<bool>(), 1..40_000u64, any::<prop::sample::Index>()), 0..100),
        ) {
            let len = 16 * PAGE;
            let mut memory = Memory::new(len);
            let mut held: Vec<Span> = Vec::new();
            for (take, want, which) in steps {
                if take {
                    if let Some(span) = memory.take(want) {
                        let end = span.offset + want.next_multiple_of(PAGE);
                        prop_assert!(end <= len && span.offset % PAGE == 0);
                        let apart = held.iter().all(|other| {
                            end <= other.offset
                                || other.offset + u64::from(other.len) <= span.offset
                        });
                        prop_assert!(apart);
                        held.push(span);
                    }
                } else if !held.is_empty() {
                    memory.give(held.swap_remove(which.index(held.len())));
                }
            }
            held.into_iter().for_each(|span| memory.give(span));
            prop_assert_eq!(memory.free, vec![(0, len)]);
        }
    }
}
