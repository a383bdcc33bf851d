//! The order of last uses: how many blocks were used since some time.
//!
//! Time is the number of the use. A bit is set at the time of each block's *last* use, and a
//! Fenwick tree counts the bits by words of 64. So the number of bits behind a time takes one
//! word and a dozen steps through a table that stays in the CPU's cache.
//! ```text
//! time    0  1  2  3  4  5 │      owner 7 used at 2, owner 1 at 4, owner 3 at 5:
//! bits    .  .  1  .  1  1 │      since time 2: two others
//! ```
//! When time has come to the end of the bits, [`Recency::compact`] gives what is live the times 0, 1, … in the same
//! order.
//!
//! Blocks that are used one after the other mostly were so before. As much lies behind the next
//! one as lay behind this one. The tree takes the bits that leave a word when the next word's
//! turn comes. Such a use costs no walk through the tree.
//!
//! **Invariant:** the tree knows the words before the one of `now`, but for what has left `leaving.0`.

/// Times in a word.
const WORD: usize = 64;

/// See the module.
#[derive(Clone, Debug)]
pub struct Recency {
    words: Vec<u64>,
    /// Fenwick tree over the bits in words.
    tree: Vec<u32>,
    /// Who was used at each time.
    owners: Vec<u32>,
    now: u32,
    live: u32,
    /// A word, and how many bits left it that the tree counts.
    leaving: (usize, u32),
    /// The time behind the one that was the last use of whoever was used again last, and how many owners were used
    /// since then.
    neighbour: (u32, u32),
}

/// No time: nobody's last use.
const NEVER: u32 = u32::MAX;

impl Recency {
    /// For `times` uses before it must be compacted or grown, rounded up to a whole word. More than the owners that
    /// are live at a time.
    pub fn new(times: u32) -> Recency {
        let words = (times as usize).div_ceil(WORD).max(1);
        Recency {
            words: vec![0; words],
            tree: vec![0; words],
            owners: vec![0; words * WORD],
            now: 0,
            live: 0,
            leaving: (0, 0),
            neighbour: (NEVER, 0),
        }
    }

    /// Bytes of memory that one for `times` uses takes.
    pub fn memory_bytes_for(times: u32) -> u64 {
        let words = (times as usize).div_ceil(WORD).max(1);
        (words * (size_of::<u64>() + size_of::<u32>() * (WORD + 1))) as u64
    }

    /// Number of owners that have a last use.
    pub fn live(&self) -> u32 {
        self.live
    }

    /// True when there is no time left for a use.
    pub fn is_full(&self) -> bool {
        self.now as usize == self.owners.len()
    }

    /// `owner`, which has no last use, is used; returns when. It must not be full.
    #[inline]
    pub fn use_first(&mut self, owner: u32) -> u32 {
        self.neighbour.1 += 1;
        self.live += 1;
        self.push(owner)
    }

    /// `owner`, whose last use was at `time`, is used again; returns how many others were used since, and when it is
    /// now. It must not be full.
    #[inline]
    pub fn use_again(&mut self, owner: u32, time: u32) -> (u32, u32) {
        let since = match time == self.neighbour.0 {
            true => self.neighbour.1,
            false => self.since(time),
        };
        self.take(time);
        self.neighbour = (time + 1, since);
        (since, self.push(owner))
    }

    /// The owner whose last use was at `time` is gone.
    pub fn forget(&mut self, time: u32) {
        self.neighbour.0 = NEVER;
        self.live -= 1;
        self.take(time);
    }

    /// How many owners were last used after `time`.
    #[inline]
    fn since(&self, time: u32) -> u32 {
        let (word, bit) = place(time);
        let in_word = (self.words[word] & (bit | (bit - 1))).count_ones();
        let left = if self.leaving.0 < word { self.leaving.1 } else { 0 };
        self.live + left - self.before(word) - in_word
    }

    #[inline]
    fn push(&mut self, owner: u32) -> u32 {
        let time = self.now;
        self.owners[time as usize] = owner;
        let (word, bit) = place(time);
        self.words[word] |= bit;
        self.now += 1;
        if bit >> (WORD - 1) == 1 {
            self.add(word, self.words[word].count_ones());
        }
        time
    }

    #[inline]
    fn take(&mut self, time: u32) {
        let (word, bit) = place(time);
        debug_assert!(self.words[word] & bit != 0, "nobody's last use is at {time}");
        self.words[word] &= !bit;
        if word == place(self.now).0 {
            return;
        }
        if self.leaving.0 != word {
            self.tell_left();
            self.leaving.0 = word;
        }
        self.leaving.1 += 1;
    }

    /// Tells the tree of the bits that have left a word.
    #[inline]
    fn tell_left(&mut self) {
        let (word, left) = std::mem::take(&mut self.leaving);
        if left > 0 {
            self.add(word, left.wrapping_neg());
        }
    }

    /// Gives what is live the times from 0 in the same order, and tells each owner its new time.
    pub fn compact(&mut self, mut tell: impl FnMut(u32, u32)) {
        let mut next = 0u32;
        for word in 0..self.words.len() {
            let mut bits = std::mem::take(&mut self.words[word]);
            while bits != 0 {
                let owner = self.owners[word * WORD + bits.trailing_zeros() as usize];
                bits &= bits - 1;
                self.owners[next as usize] = owner;
                tell(owner, next);
                next += 1;
            }
        }
        assert_eq!(next, self.live);
        for time in 0..next {
            let (word, bit) = place(time);
            self.words[word] |= bit;
        }
        self.now = next;
        self.build();
    }

    /// Makes room for `times` uses in all.
    pub fn grow(&mut self, times: u32) {
        let words = (times as usize).div_ceil(WORD).max(self.words.len());
        self.words.resize(words, 0);
        self.owners.resize(words * WORD, 0);
        self.tree.resize(words, 0);
        self.build();
    }

    /// Makes the tree from the bits.
    fn build(&mut self) {
        (self.leaving, self.neighbour) = ((0, 0), (NEVER, 0));
        let whole = place(self.now).0;
        for (at, (count, word)) in self.tree.iter_mut().zip(&self.words).enumerate() {
            *count = if at < whole { word.count_ones() } else { 0 };
        }
        for at in 1..=self.tree.len() {
            let parent = at + (at & at.wrapping_neg());
            if parent <= self.tree.len() {
                self.tree[parent - 1] += self.tree[at - 1];
            }
        }
    }

    /// Bits in the words before `word`, with those that have left.
    #[inline]
    fn before(&self, word: usize) -> u32 {
        let (mut sum, mut at) = (0, word);
        while at > 0 {
            sum += self.tree[at - 1];
            at &= at - 1;
        }
        sum
    }

    /// Adds to the count of `word`, modulo 2³².
    #[inline]
    fn add(&mut self, word: usize, number: u32) {
        let mut at = word + 1;
        while let Some(count) = self.tree.get_mut(at - 1) {
            *count = count.wrapping_add(number);
            at += at & at.wrapping_neg();
        }
    }
}

/// Word, and bit in it, of a time.
#[inline]
fn place(time: u32) -> (usize, u64) {
    (time as usize / WORD, 1 << (time % WORD as u32))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Uses of owners by turns: one anywhere, a run of neighbours, or one that goes.
    fn uses() -> impl Strategy<Value = Vec<(u32, u32)>> {
        let turn = (0..40u32, prop::sample::select(vec![0, 1, 1, 2, 7, 40]));
        prop::collection::vec(turn, 0..600)
    }

    proptest! {
        #[test]
        fn distances_are_those_of_a_plain_list(uses in uses()) {
            let mut recency = Recency::new(600);
            let mut times = vec![None; 80];
            let mut list: Vec<u32> = Vec::new();
            for (first, run) in uses {
                if run == 0 && let Some(time) = times[first as usize].take() {
                    recency.forget(time);
                    list.retain(|&listed| listed != first);
                }
                for owner in first..first + run {
                    if recency.is_full() {
                        match first % 2 {
                            0 => recency.compact(|owner, time| times[owner as usize] = Some(time)),
                            _ => recency.grow(recency.now + 300),
                        }
                    }
                    let distance = list.iter().rev().position(|&listed| listed == owner);
                    list.retain(|&listed| listed != owner);
                    list.push(owner);
                    let (found, time) = match times[owner as usize] {
                        None => (None, recency.use_first(owner)),
                        Some(time) => {
                            let (since, time) = recency.use_again(owner, time);
                            (Some(since as usize), time)
                        }
                    };
                    prop_assert_eq!(found, distance);
                    times[owner as usize] = Some(time);
                }
                prop_assert_eq!(recency.live() as usize, list.len());
            }
        }
    }
}
