//! A model of a small SAN array of the 2010s: five 15,000 rpm disks in RAID 5 behind a controller.
//!
//! # What it models
//! - **Disks**: a seek curve over the distance (0.4 ms to the next track, 2.9 ms on average,
//!   square root in between), and 512 KiB per track (131 MB/s). A platter turns once in 4 ms, and
//!   its angle decides the rotational wait. A drive recognises a sequential stream at its second
//!   read. From then on it reads ahead, and answers from its buffer (eight streams).
//! - **Queueing**: each disk does one thing at a time, in order of arrival. Reordering by the
//!   drive is approximated: positioning gets shorter with the queue (2 % per waiting I/O, up to
//!   16). An elevator helps small random reads as much, but is unfair.
//! - **RAID 5**: chunks of 64 KiB, rotating parity, left-symmetric. A write of a whole stripe
//!   writes five chunks; any smaller one reads old data and old parity and writes both a turn
//!   later: four disk I/Os.
//! - **Controller**: 100 µs per command, one 400 MB/s link, and a small durable write-back cache.
//!   While the cache has room a write is acknowledged at once, and its disk I/Os compete with
//!   reads. When it is full a write waits until it drains. Sequential writes are gathered into
//!   whole stripes. Because the cache is durable a flush costs one command.
//!
//! # What it does not model
//! A read cache in the controller, other tenants, failures and rebuilds, different zones of a
//! platter, the choice of reconstruct-writes over read-modify-write. The volume fills its disks,
//! however small it is, so that a test image of 1 GiB behaves like a full array. The last stripe of
//! a sequential write stream is not charged.
//!
//! In numbers: a random 8 KiB read takes about 5 ms at queue depth 1. 32 of them at a time make
//! about 1,000 IOPS. Without write cache a small random write takes about 10 ms.

use std::collections::VecDeque;

use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;

use super::ModelOp;
use forebay_core::splitmix::Rng;

const DISKS: usize = 5;
const DATA_DISKS: u64 = DISKS as u64 - 1;
const CHUNK: u64 = 64 << 10;
const STRIPE: u64 = CHUNK * DATA_DISKS;
/// Bytes that pass the head in one turn.
const TRACK: u64 = 512 << 10;
const TURN_NS: u64 = 4_000_000;
const SEEK_NS_MIN: f64 = 400_000.0;
/// Added to the shortest seek over the whole stroke; the mean of √distance is 8/15.
const SEEK_NS_STROKE: f64 = 4_700_000.0;
/// Drives forget the angle by less than this; it absorbs rounding.
const ANGLE_SLACK_NS: u64 = 1_000;
const READ_AHEAD: u64 = 256 << 10;
/// A read this close behind a stream's end still continues it (it skips a parity chunk).
const STREAM_GAP: u64 = CHUNK;
const STREAMS: usize = 8;
const BUFFER_BYTES_PER_MS: u64 = 300_000;
const COMMAND_NS: u64 = 100_000;
const LINK_BYTES_PER_MS: u64 = 400_000;
/// Shortening of positioning per waiting I/O, in percent, and the queue where it ends.
const ELEVATOR_PERCENT: u64 = 2;
const ELEVATOR_DEPTH_MAX: u64 = 16;

/// The array. See the module.
#[derive(Clone, Debug)]
pub struct San {
    disks: [Disk; DISKS],
    link_free_at: u64,
    write_cache: u64,
    /// Writes in the cache: when the disks have them, and their bytes.
    dirty: VecDeque<(u64, u64)>,
    dirty_bytes: u64,
    /// Where the latest sequential writes ended.
    write_streams: VecDeque<u64>,
}

impl San {
    /// An array whose volume has `size` bytes and whose controller has `write_cache` bytes of
    /// durable write-back cache (0: none). `rng` decides where heads and platters are at the start.
    pub fn new(size: u64, write_cache: u64, mut rng: Rng) -> San {
        let stroke = size.div_ceil(STRIPE).max(1) * CHUNK;
        San {
            disks: std::array::from_fn(|_| Disk::new(stroke, &mut rng)),
            link_free_at: 0,
            write_cache,
            dirty: VecDeque::new(),
            dirty_bytes: 0,
            write_streams: VecDeque::with_capacity(STREAMS),
        }
    }

    /// Starts an I/O at `now` (never earlier than the last one) and says when it completes.
    pub fn submit(&mut self, now: Nanos, op: ModelOp, range: ByteRange) -> Nanos {
        let arrived = now.0 + COMMAND_NS;
        Nanos(match op {
            ModelOp::Read => {
                let disks_done = self.read(arrived, range);
                self.cross_link(arrived, range.len()).max(disks_done)
            }
            ModelOp::Write => {
                let received = self.cross_link(arrived, range.len());
                self.write(received, range)
            }
            ModelOp::Flush | ModelOp::Unmap => arrived,
        })
    }

    /// When `len` bytes have crossed the link.
    fn cross_link(&mut self, at: u64, len: u64) -> u64 {
        self.link_free_at = at.max(self.link_free_at) + len * 1_000_000 / LINK_BYTES_PER_MS;
        self.link_free_at
    }

    fn read(&mut self, at: u64, range: ByteRange) -> u64 {
        let mut done = at;
        for (disk, piece) in pieces(range).into_iter().enumerate() {
            if let Some(piece) = piece {
                done = done.max(self.disks[disk].read(at, piece));
            }
        }
        done
    }

    fn write(&mut self, at: u64, range: ByteRange) -> u64 {
        if self.write_cache == 0 {
            return self.write_to_disks(at, range);
        }
        while self.dirty.front().is_some_and(|(drained, _)| *drained <= at) {
            self.dirty_bytes -= self.dirty.pop_front().map_or(0, |(_, bytes)| bytes);
        }
        let on_disks = if self.continues_write_stream(range) {
            self.write_whole_stripes(at, range)
        } else {
            self.write_to_disks(at, range)
        };
        self.dirty.push_back((on_disks, range.len()));
        self.dirty_bytes += range.len();
        // Room for this write is there when enough of the older ones has drained.
        let mut ready = at;
        let mut over = self.dirty_bytes.saturating_sub(self.write_cache);
        for (drained, bytes) in &self.dirty {
            if over == 0 {
                break;
            }
            ready = ready.max(*drained);
            over = over.saturating_sub(*bytes);
        }
        ready
    }

    /// True when `range` begins where a recent write ended; remembers where it ends either way.
    fn continues_write_stream(&mut self, range: ByteRange) -> bool {
        let found = self.write_streams.iter().position(|end| *end == range.start);
        match found {
            Some(index) => drop(self.write_streams.remove(index)),
            None if self.write_streams.len() == STREAMS => drop(self.write_streams.pop_front()),
            None => {}
        }
        self.write_streams.push_back(range.end);
        found.is_some()
    }

    /// Writes those stripes that `range` completes.
    fn write_whole_stripes(&mut self, at: u64, range: ByteRange) -> u64 {
        let stripes = ByteRange::new(range.start / STRIPE, range.end / STRIPE);
        let mut done = at;
        if !stripes.is_empty() {
            let piece = ByteRange::new(stripes.start * CHUNK, stripes.end * CHUNK);
            for disk in &mut self.disks {
                done = done.max(disk.write(at, piece));
            }
        }
        done
    }

    fn write_to_disks(&mut self, at: u64, range: ByteRange) -> u64 {
        let whole = ByteRange {
            start: range.start.next_multiple_of(STRIPE),
            end: range.end / STRIPE * STRIPE,
        };
        if whole.is_empty() {
            // In one stripe, or across a boundary between two.
            let boundary = whole.start.min(range.end);
            let low = self.write_part_of_stripe(at, ByteRange::new(range.start, boundary));
            let high = self.write_part_of_stripe(at, ByteRange::new(boundary, range.end));
            return low.max(high);
        }
        let low = self.write_part_of_stripe(at, ByteRange::new(range.start, whole.start));
        let middle = self.write_whole_stripes(at, whole);
        let high = self.write_part_of_stripe(at, ByteRange::new(whole.end, range.end));
        low.max(middle).max(high)
    }

    /// Read-modify-write of `range`, which lies in one stripe.
    fn write_part_of_stripe(&mut self, at: u64, range: ByteRange) -> u64 {
        if range.is_empty() {
            return at;
        }
        let stripe = range.start / STRIPE;
        let mut parity_piece: Option<ByteRange> = None;
        let mut old_data_read = at;
        let mut done = at;
        for (disk, piece) in pieces(range).into_iter().enumerate() {
            let Some(piece) = piece else { continue };
            let read = self.disks[disk].modify(at, piece, at);
            old_data_read = old_data_read.max(read.old_at);
            done = done.max(read.new_at);
            parity_piece = Some(parity_piece.map_or(piece, |sum| {
                ByteRange::new(sum.start.min(piece.start), sum.end.max(piece.end))
            }));
        }
        if let Some(piece) = parity_piece {
            let parity = &mut self.disks[parity_disk(stripe)];
            done = done.max(parity.modify(at, piece, old_data_read).new_at);
        }
        done
    }
}

/// The disk that holds the parity of a stripe.
fn parity_disk(stripe: u64) -> usize {
    DISKS - 1 - (stripe % DISKS as u64) as usize
}

/// For each disk the piece of it that `range` of the volume touches; over several stripes the piece
/// goes through the parity chunks in between.
fn pieces(range: ByteRange) -> [Option<ByteRange>; DISKS] {
    let mut pieces: [Option<ByteRange>; DISKS] = [None; DISKS];
    let mut position = range.start;
    while position < range.end {
        let end = (position / CHUNK * CHUNK + CHUNK).min(range.end);
        let stripe = position / STRIPE;
        let chunk = (position % STRIPE / CHUNK) as usize;
        let disk = (parity_disk(stripe) + 1 + chunk) % DISKS;
        let start = stripe * CHUNK + position % CHUNK;
        let piece = ByteRange::at(start, end - position);
        pieces[disk] = Some(pieces[disk].map_or(piece, |sum| ByteRange::new(sum.start, piece.end)));
        position = end;
    }
    pieces
}

/// When the two halves of a read-modify-write on one disk are over.
struct Modified {
    old_at: u64,
    new_at: u64,
}

/// One disk. Positions are bytes from its start, times nanoseconds.
#[derive(Clone, Debug)]
struct Disk {
    stroke: u64,
    free_at: u64,
    head: u64,
    /// Angle under the head at time 0, in nanoseconds of a turn.
    phase_ns: u64,
    /// When the I/Os in its queue complete, in order.
    queue: VecDeque<u64>,
    streams: VecDeque<Stream>,
}

/// The part of one sequential stream in the drive's buffer.
#[derive(Clone, Copy, Debug)]
struct Stream {
    buffered: ByteRange,
    ready_at: u64,
}

impl Disk {
    fn new(stroke: u64, rng: &mut Rng) -> Disk {
        Disk {
            stroke,
            free_at: 0,
            head: rng.below(stroke),
            phase_ns: rng.below(TURN_NS),
            queue: VecDeque::new(),
            streams: VecDeque::with_capacity(STREAMS),
        }
    }

    fn read(&mut self, at: u64, piece: ByteRange) -> u64 {
        let found = self.streams.iter().position(|stream| {
            let reach = stream.buffered.end + STREAM_GAP;
            (stream.buffered.start..=reach).contains(&piece.start)
        });
        let Some(stream) = found.and_then(|index| self.streams.remove(index)) else {
            let done = self.access(at, piece);
            self.remember(Stream { buffered: piece, ready_at: done });
            return done;
        };
        if stream.buffered.contains(piece) {
            self.remember(stream);
            return at.max(stream.ready_at) + piece.len() * 1_000_000 / BUFFER_BYTES_PER_MS;
        }
        let missing = ByteRange::new(stream.buffered.end.min(piece.start), piece.end);
        let missing = ByteRange::new(missing.start.max(stream.buffered.end), missing.end);
        let done = self.access(at, missing);
        let ahead = ByteRange::at(piece.end, READ_AHEAD);
        let ready_at = self.access(at, ahead);
        let buffered = ByteRange::new(ahead.end.saturating_sub(4 * READ_AHEAD), ahead.end);
        self.remember(Stream { buffered, ready_at });
        done
    }

    fn remember(&mut self, stream: Stream) {
        if self.streams.len() == STREAMS {
            self.streams.pop_front();
        }
        self.streams.push_back(stream);
    }

    fn write(&mut self, at: u64, piece: ByteRange) -> u64 {
        self.access(at, piece)
    }

    /// Reads `piece`, and writes it when it comes round again. When `inputs_at` (the old data,
    /// for parity) is later than that, the disk does other things meanwhile. The write ends a
    /// turn after it, but keeps the disk no longer busy.
    fn modify(&mut self, at: u64, piece: ByteRange, inputs_at: u64) -> Modified {
        let old_at = self.access(at, piece);
        let turns = transfer_ns(piece.len()).div_ceil(TURN_NS).max(1);
        // The platter is where it was, and the head too: only time has passed.
        self.free_at = old_at + turns * TURN_NS;
        if let Some(last) = self.queue.back_mut() {
            *last = self.free_at;
        }
        Modified { old_at, new_at: self.free_at.max(inputs_at + TURN_NS) }
    }

    /// Positions and transfers, after everything that came before.
    fn access(&mut self, at: u64, piece: ByteRange) -> u64 {
        while self.queue.front().is_some_and(|done| *done <= at) {
            self.queue.pop_front();
        }
        let waiting = (self.queue.len() as u64).min(ELEVATOR_DEPTH_MAX);
        let start = at.max(self.free_at);
        let positioning =
            self.positioning_ns(start, piece.start) * 100 / (100 + ELEVATOR_PERCENT * waiting);
        let done = start + positioning + transfer_ns(piece.len());
        self.head = piece.end;
        self.free_at = done;
        // Shortened positioning stands for another order of I/Os; the platter agrees with it.
        self.phase_ns = (angle_ns(piece.end) + TURN_NS - done % TURN_NS) % TURN_NS;
        self.queue.push_back(done);
        done
    }

    fn positioning_ns(&self, start: u64, position: u64) -> u64 {
        let distance = position.abs_diff(self.head);
        let seek = if position / TRACK == self.head / TRACK || distance == 0 {
            0
        } else {
            let part = (distance as f64 / self.stroke as f64).min(1.0);
            (SEEK_NS_MIN + SEEK_NS_STROKE * part.sqrt()) as u64
        };
        let under_head = (start + seek + self.phase_ns) % TURN_NS;
        let wait = (angle_ns(position) + TURN_NS - under_head) % TURN_NS;
        seek + if TURN_NS - wait <= ANGLE_SLACK_NS { 0 } else { wait }
    }
}

fn transfer_ns(len: u64) -> u64 {
    (u128::from(len) * u128::from(TURN_NS) / u128::from(TRACK)) as u64
}

fn angle_ns(position: u64) -> u64 {
    transfer_ns(position % TRACK)
}

#[cfg(test)]
#[path = "san_tests.rs"]
mod tests;
