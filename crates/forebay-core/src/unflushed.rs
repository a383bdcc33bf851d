//! Writes to primary storage that no flush covers yet: lost if its session ends.
//!
//! A bounded list of ranges. It only answers "may these bytes be at risk". When it is full, the
//! ranges collapse into one that spans them all. The cache then drops more than need be, never
//! less.

use crate::geometry::ByteRange;

const RANGES_MAX: usize = 1024;

/// Ranges written since a flush.
#[derive(Debug)]
pub struct Unflushed {
    ranges: Vec<ByteRange>,
}

impl Default for Unflushed {
    fn default() -> Self {
        Unflushed { ranges: Vec::with_capacity(RANGES_MAX) }
    }
}

impl Unflushed {
    /// Takes note of a write.
    pub fn add(&mut self, range: ByteRange) {
        if let Some(last) = self.ranges.last_mut()
            && range.start <= last.end
            && last.start <= range.end
        {
            *last = ByteRange::new(last.start.min(range.start), last.end.max(range.end));
            return;
        }
        if self.ranges.len() == RANGES_MAX {
            let start = self.ranges.iter().map(|r| r.start).min().unwrap_or(range.start);
            let end = self.ranges.iter().map(|r| r.end).max().unwrap_or(range.end);
            self.ranges.clear();
            self.ranges.push(ByteRange::new(start, end));
            return self.add(range);
        }
        self.ranges.push(range);
    }

    /// Moves everything of `other` in here.
    pub fn absorb(&mut self, other: &mut Unflushed) {
        for range in other.ranges.drain(..) {
            self.add(range);
        }
    }

    /// The ranges; they may overlap.
    pub fn ranges(&self) -> &[ByteRange] {
        &self.ranges
    }

    /// Upper bound of the bytes in it.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|r| r.len()).sum()
    }

    /// Forgets everything: it was flushed.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overflowing_list_covers_at_least_what_was_written() {
        let mut unflushed = Unflushed::default();
        let written: Vec<_> =
            (0..3000u64).map(|i| ByteRange::at(i * 7919 % 4001 * 8192, 4096)).collect();
        for &range in &written {
            unflushed.add(range);
        }
        assert!(unflushed.ranges().len() <= RANGES_MAX);
        for range in written {
            assert!(unflushed.ranges().iter().any(|r| r.contains(range)));
        }
    }

    #[test]
    fn neighbours_merge() {
        let mut unflushed = Unflushed::default();
        for i in 0..100 {
            unflushed.add(ByteRange::at(i * 512, 512));
        }
        assert_eq!(unflushed.ranges(), [ByteRange::at(0, 51200)]);
    }
}
