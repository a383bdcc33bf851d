//! Sequential streams: a scan of megabytes should not push out what is used again and again.
//!
//! A handful of places each remember where a stream would go on and how long it has become. A
//! request that starts at such a place continues the stream; any other starts a new one in a
//! place whose stream did not go on lately. The clock algorithm finds that place: a hand passes
//! over the places, and spares once a stream that went on since the last pass. Every request
//! passes here, also hits, so places are compared by the low 32 bits of their sector. 16 of them
//! are a few vector instructions. A false match, 2 TiB away, does no harm.

use crate::geometry::{ByteRange, SECTOR};

const STREAMS: usize = 16;

/// The streams of one disk.
#[derive(Clone, Debug, Default)]
pub struct SequentialStreams {
    /// Low bits of the sector where each stream would go on.
    next: [u32; STREAMS],
    /// Length of each stream in bytes.
    run: [u64; STREAMS],
    /// Bit set = the stream went on since the hand passed.
    recent: u32,
    hand: usize,
}

impl SequentialStreams {
    /// Takes note of a request; returns the length in bytes of the stream that it belongs to, its
    /// own included.
    pub fn observe(&mut self, range: ByteRange) -> u64 {
        let sector = (range.start / SECTOR) as u32;
        // Whether any place matches is told without a branch. Which one is asked only then.
        let goes_on = self.next.iter().fold(false, |any, &next| any | (next == sector));
        let place = if goes_on {
            let place = self.next.iter().position(|&next| next == sector).unwrap_or_default();
            self.recent |= 1 << place;
            place
        } else {
            self.start_stream()
        };
        self.next[place] = (range.end / SECTOR) as u32;
        self.run[place] += range.len();
        self.run[place]
    }

    fn start_stream(&mut self) -> usize {
        while self.recent >> self.hand & 1 == 1 {
            self.recent &= !(1 << self.hand);
            self.hand = (self.hand + 1) % STREAMS;
        }
        let place = self.hand % STREAMS;
        self.hand = (self.hand + 1) % STREAMS;
        self.run[place] = 0;
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_streams_are_told_apart() {
        let mut streams = SequentialStreams::default();
        for i in 0..10u64 {
            assert_eq!(streams.observe(ByteRange::at(i * 100, 100)), (i + 1) * 100);
            assert_eq!(streams.observe(ByteRange::at(1_000_000 + i * 8, 8)), (i + 1) * 8);
        }
    }

    #[test]
    fn random_requests_are_no_stream() {
        let mut streams = SequentialStreams::default();
        for i in 0..100u64 {
            let start = (i * 7919) % 1009 * 4096;
            assert_eq!(streams.observe(ByteRange::at(start, 512)), 512);
        }
    }

    #[test]
    fn a_stream_that_goes_on_is_spared_and_one_that_does_not_is_forgotten() {
        let mut streams = SequentialStreams::default();
        streams.observe(ByteRange::at(0, 512));
        for i in 0..100u64 {
            for j in 0..7 {
                streams.observe(ByteRange::at((i * 7 + j + 10) << 20, 512));
            }
            assert_eq!(streams.observe(ByteRange::at(512 * (i + 1), 512)), 512 * (i + 2));
        }
        for i in 0..32u64 {
            streams.observe(ByteRange::at((i + 1000) << 20, 512));
        }
        assert_eq!(streams.observe(ByteRange::at(512 * 101, 512)), 512);
    }
}
