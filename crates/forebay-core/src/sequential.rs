//! Sequential streams: a scan of megabytes should not push out what is used again and again.
//!
//! A handful of places each remember where a stream would go on and how long it has become. A
//! request that starts at such a place continues the stream; any other starts a new one in the place
//! that was used least recently.

use crate::geometry::ByteRange;

const STREAMS: usize = 16;

/// The streams of one disk.
#[derive(Clone, Debug)]
pub struct SequentialStreams {
    next: [u64; STREAMS],
    run: [u64; STREAMS],
    used: [u64; STREAMS],
    clock: u64,
}

impl Default for SequentialStreams {
    fn default() -> Self {
        SequentialStreams {
            next: [u64::MAX; STREAMS],
            run: [0; STREAMS],
            used: [0; STREAMS],
            clock: 0,
        }
    }
}

impl SequentialStreams {
    /// Takes note of a request; returns the length in bytes of the stream that it belongs to, its
    /// own included.
    pub fn observe(&mut self, range: ByteRange) -> u64 {
        self.clock += 1;
        let place = match self.next.iter().position(|&next| next == range.start) {
            Some(place) => place,
            None => {
                let place = oldest(&self.used);
                self.run[place] = 0;
                place
            }
        };
        self.used[place] = self.clock;
        self.next[place] = range.end;
        self.run[place] += range.len();
        self.run[place]
    }
}

fn oldest(used: &[u64; STREAMS]) -> usize {
    let mut place = 0;
    for candidate in 1..STREAMS {
        if used[candidate] < used[place] {
            place = candidate;
        }
    }
    place
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
    fn a_stream_among_much_random_traffic_is_forgotten_only_after_sixteen_others() {
        let mut streams = SequentialStreams::default();
        streams.observe(ByteRange::at(0, 512));
        for i in 0..15u64 {
            streams.observe(ByteRange::at((i + 10) << 20, 512));
        }
        assert_eq!(streams.observe(ByteRange::at(512, 512)), 1024);
        for i in 0..16u64 {
            streams.observe(ByteRange::at((i + 100) << 20, 512));
        }
        assert_eq!(streams.observe(ByteRange::at(1024, 512)), 512);
    }
}
