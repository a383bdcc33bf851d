//! What of a read has come, in pieces of any order: no byte twice, or another one would be missing.

use forebay_core::geometry::ByteRange;

/// Pieces that come before others of lower offsets, at most. Servers send in order.
const APART_MAX: usize = 1024;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrived {
    /// Bytes from the start on.
    first: u64,
    /// What came before others of lower offsets, counted from the start: in order, and apart from each other.
    apart: Vec<ByteRange>,
}

impl Arrived {
    /// True when nothing has come.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// How many bytes have come.
    pub(super) fn bytes(&self) -> u64 {
        self.first + self.apart.iter().map(|it| it.len()).sum::<u64>()
    }

    /// A piece of `whole` comes; false when some of it has come before, or it is one of too many.
    pub(super) fn add(&mut self, whole: ByteRange, piece: ByteRange) -> bool {
        let mut piece = ByteRange::new(piece.start - whole.start, piece.end - whole.start);
        if piece.start < self.first {
            return false;
        }
        let at = self.apart.partition_point(|it| it.end <= piece.start);
        let next = self.apart.get(at).copied();
        if next.is_some_and(|next| next.start < piece.end) {
            return false;
        }
        if let Some(next) = next.filter(|next| next.start == piece.end) {
            piece.end = next.end;
            self.apart.remove(at);
        }
        let before = at.checked_sub(1).filter(|before| self.apart[*before].end == piece.start);
        match before {
            Some(before) => self.apart[before].end = piece.end,
            None if piece.start == self.first => self.first = piece.end,
            None if self.apart.len() == APART_MAX => return false,
            None => self.apart.insert(at, piece),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pieces_come_in_any_order_but_no_byte_twice() {
        let pieces = proptest::collection::vec((0..64_u64, 1..16_u64), 0..40);
        proptest!(|(pieces in pieces)| {
            let whole = ByteRange::at(1000, 80);
            let (mut arrived, mut bytes) = (Arrived::default(), [false; 80]);
            for (start, len) in pieces {
                let piece = &mut bytes[start as usize..(start + len) as usize];
                let is_new = !piece.contains(&true);
                if is_new {
                    piece.fill(true);
                }
                prop_assert_eq!(arrived.add(whole, ByteRange::at(1000 + start, len)), is_new);
                let count = bytes.iter().filter(|it| **it).count() as u64;
                prop_assert_eq!((arrived.bytes(), arrived.is_empty()), (count, count == 0));
            }
        });
    }

    #[test]
    fn what_comes_in_order_or_backwards_takes_no_room() {
        let whole = ByteRange::at(0, 1 << 20);
        let pieces = || (0..1 << 12).map(|n| ByteRange::at(n << 8, 1 << 8));
        let (mut forwards, mut backwards) = (Arrived::default(), Arrived::default());
        assert!(pieces().all(|piece| forwards.add(whole, piece) && forwards.apart.is_empty()));
        assert!(pieces().rev().all(|it| backwards.add(whole, it) && backwards.apart.len() <= 1));
        assert_eq!([forwards.bytes(), backwards.bytes()], [1 << 20; 2]);
        let mut scattered = Arrived::default();
        let taken = pieces().step_by(2).skip(1).take_while(|it| scattered.add(whole, *it)).count();
        assert_eq!(taken, APART_MAX);
    }
}
