//! Write-intent marks: regions of the disk whose bytes on primary storage may differ from what the ring's claims
//! say, or may yet be taken back by it.
//!
//! ```text
//!   write ─► fresh ─► (page durable: durable) ─► on its way to primary storage
//!   turn:    fresh ─► old, fresh := writes under way ─► a later flush succeeded, drops recorded ─► old := none
//! ```
//! A region is marked while it is `fresh` or `old`. `durable` says which marks the newest durable
//! page shows. A write asks nothing else. Each of its marks is also in one of the other two.
//!
//! There are as many words of marks as the disk needed when its ring was begun. The regions of a disk that has grown share
//! them: word *n* of its regions is word *n* mod *words* here. So a mark may say too much, never too little.

use crate::geometry::ByteRange;

/// See the module.
#[derive(Debug)]
pub struct Marks {
    shift: u32,
    fresh: Box<[u64]>,
    old: Box<[u64]>,
    durable: Box<[u64]>,
    /// Words whose last record does not say what they are: a bit each.
    changed: Box<[u64]>,
    changed_count: u32,
    /// Every region is marked since before the first page, and that is not recorded yet.
    all: bool,
    /// Words recorded in the batch under way, as recorded.
    recorded: Vec<(u32, u64)>,
    /// The batch under way says that everything is marked.
    recorded_all: bool,
}

impl Marks {
    /// No marks, for `regions` regions of 2^`shift` bytes.
    pub fn new(regions: u32, shift: u32) -> Marks {
        let words = || vec![0; regions.div_ceil(64) as usize].into_boxed_slice();
        let changed = vec![0; regions.div_ceil(64 * 64) as usize].into();
        let recorded = Vec::with_capacity(regions.div_ceil(64) as usize);
        Marks {
            shift,
            fresh: words(),
            old: words(),
            durable: words(),
            changed,
            changed_count: 0,
            all: false,
            recorded,
            recorded_all: false,
        }
    }

    /// Marks everything: nothing is known of what is under way on primary storage.
    pub fn mark_all(&mut self) {
        self.old.fill(u64::MAX);
        self.all = true;
    }

    /// Takes over what a former run left, durably marked.
    pub fn restore(&mut self, words: &[u64]) {
        self.old.copy_from_slice(words);
        self.durable.copy_from_slice(words);
        self.all = false;
    }

    /// Words.
    pub fn len(&self) -> u32 {
        self.old.len() as u32
    }

    /// A region is 2 to this many bytes.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// True for a disk without regions.
    pub fn is_empty(&self) -> bool {
        self.old.is_empty()
    }

    /// Regions that are marked. Slow.
    pub fn count(&self) -> u64 {
        (0..self.len()).map(|word| u64::from(self.word(word).count_ones())).sum()
    }

    /// True when some region is marked. Slow.
    pub fn any(&self) -> bool {
        (0..self.len()).any(|word| self.word(word) != 0)
    }

    /// True when any region of `range` is marked.
    pub fn touches(&self, range: ByteRange) -> bool {
        self.spans(range).any(|(word, bits)| self.word(word) & bits != 0)
    }

    /// Marks the regions of `range`; true when all of that is durable already.
    pub fn mark(&mut self, range: ByteRange) -> bool {
        let mut is_durable = true;
        for (word, bits) in self.spans(range) {
            let at = word as usize;
            self.fresh[at] |= bits;
            if self.durable[at] & bits != bits {
                is_durable = false;
                self.change(word);
            }
        }
        is_durable
    }

    /// A write to `range` is under way since before the turn.
    pub fn keep(&mut self, range: ByteRange) {
        for (word, bits) in self.spans(range) {
            self.fresh[word as usize] |= bits;
        }
    }

    /// Which regions of a word are marked.
    pub fn word(&self, word: u32) -> u64 {
        self.fresh[word as usize] | self.old[word as usize]
    }

    /// What is fresh becomes old.
    pub fn turn(&mut self) {
        for (old, fresh) in self.old.iter_mut().zip(&mut self.fresh) {
            *old |= std::mem::take(fresh);
        }
    }

    /// Regions that are old and not fresh are marked no more.
    pub fn clear_old(&mut self) {
        // Each word that changes is recorded by itself. To say that all is marked would mark none of its regions durably.
        self.all = false;
        for word in 0..self.len() {
            let at = word as usize;
            let gone = std::mem::take(&mut self.old[at]) & !self.fresh[at];
            self.durable[at] &= self.fresh[at];
            if gone != 0 {
                self.change(word);
            }
        }
    }

    /// Nothing is marked any more; the next page says so at once.
    pub fn clear(&mut self) {
        for words in [&mut self.fresh, &mut self.old, &mut self.durable, &mut self.changed] {
            words.fill(0);
        }
        (self.changed_count, self.all) = (0, false);
    }

    /// True when a record is due.
    pub fn has_changed(&self) -> bool {
        self.changed_count > 0 || self.all
    }

    /// True once, when the next batch is to say that everything is marked.
    pub fn take_all(&mut self) -> bool {
        let all = std::mem::take(&mut self.all);
        self.recorded_all |= all;
        all
    }

    /// The next word to record, as it is; it counts as recorded in the batch under way.
    pub fn take_changed(&mut self) -> Option<(u32, u64)> {
        let at = self.changed.iter().position(|&bits| bits != 0)?;
        let word = at as u32 * 64 + self.changed[at].trailing_zeros();
        self.changed[at] &= self.changed[at] - 1;
        self.changed_count -= 1;
        let bits = self.word(word);
        self.recorded.push((word, bits));
        Some((word, bits))
    }

    /// The batch under way is durable. It does not mark regions that were cleared since it was
    /// made: a later record says so.
    pub fn on_durable(&mut self) {
        if std::mem::take(&mut self.recorded_all) {
            for (at, durable) in self.durable.iter_mut().enumerate() {
                *durable |= self.fresh[at] | self.old[at];
            }
        }
        for (word, bits) in self.recorded.drain(..) {
            let is = self.fresh[word as usize] | self.old[word as usize];
            self.durable[word as usize] |= bits & is;
        }
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        (self.old.len() * 3 * 8 + self.changed.len() * 8 + self.recorded.capacity() * 16) as u64
    }

    fn change(&mut self, word: u32) {
        let bit = 1 << (word % 64);
        let group = &mut self.changed[word as usize / 64];
        self.changed_count += u32::from(*group & bit == 0);
        *group |= bit;
    }

    /// The words that `range` touches, with its regions in each.
    fn spans(&self, range: ByteRange) -> impl Iterator<Item = (u32, u64)> + use<> {
        let words = u64::from(self.len()).max(1);
        let (first, end) = match range.is_empty() {
            true => (0, 0),
            false => (range.start >> self.shift, ((range.end - 1) >> self.shift) + 1),
        };
        (first / 64..end.div_ceil(64)).map(move |word| {
            let from = first.max(word * 64) - word * 64;
            let to = (end - 1).min(word * 64 + 63) - word * 64;
            ((word % words) as u32, u64::MAX >> (63 - (to - from)) << from)
        })
    }
}
