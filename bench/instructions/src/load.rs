//! The hits, and how a client asks for them.
//!
//! A *lap* is 1024 reads of 4 KiB in batches of 32, at random blocks of a disk that is in RAM as a
//! whole. The first lap is not counted: every list grows to its size, and each answer is checked.
//! The second one is counted.

use forebay_core::config::Config;
use forebay_core::engine::Engine;
use forebay_core::splitmix::Rng;

use crate::common;
use crate::shard::Shard;

/// Blocks of the disk, all in RAM.
pub const BLOCKS: u64 = 64 << 10;
/// Bytes of a block, and of a read.
pub const BLOCK: u64 = 4096;
/// Bytes of the disk.
pub const SIZE: u64 = BLOCKS * BLOCK;
/// Reads of a lap.
pub const LAP: usize = 1024;
/// Reads that a client asks for at once.
pub const BATCH: usize = 32;

/// A read of a block.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    /// Counts through both laps.
    pub number: u32,
    /// Which block.
    pub block: u64,
}

/// The reads of both laps.
pub fn laps() -> [Vec<Hit>; 2] {
    let mut random = Rng::new(1);
    let mut hit = |number| Hit { number, block: random.next_u64() % BLOCKS };
    let lap = LAP as u32;
    [(0..lap).map(&mut hit).collect(), (lap..2 * lap).map(&mut hit).collect()]
}

/// An engine that observes its disk as it does by default, and has all of it in RAM.
pub fn warm_engine() -> Engine {
    let observed = |config| Config { recorder_bytes: 8 << 20, curve: true, ..config };
    common::warm_engine(BLOCKS, observed)
}

/// A client of the disk, at the far end of its transport.
pub trait Client {
    /// Makes the requests of a lap.
    fn prepare(&mut self, lap: &[Hit]);

    /// Puts a batch of requests in.
    fn ask(&mut self, batch: usize);

    /// Takes the answers. Whether all of a batch are there.
    fn take(&mut self, batch: usize) -> bool;

    /// Panics when the answers that were taken last are not those to these requests.
    fn check(&self, batch: &[Hit]);
}

/// A client, and the shard that serves it.
pub struct Served<C> {
    shard: Shard,
    client: C,
}

impl<C: Client> Served<C> {
    /// After a lap, and ready for the next.
    pub fn new(shard: Shard, mut client: C) -> Served<C> {
        let [first, second] = laps();
        client.prepare(&first);
        let mut served = Served { shard, client };
        for (number, batch) in first.chunks(BATCH).enumerate() {
            served.batch(number);
            served.client.check(batch);
        }
        served.client.prepare(&second);
        served
    }

    /// A lap.
    pub fn lap(&mut self) {
        (0..LAP / BATCH).for_each(|batch| self.batch(batch));
    }

    fn batch(&mut self, batch: usize) {
        self.client.ask(batch);
        self.shard.answer(BATCH);
        assert!(self.client.take(batch), "the answers of a batch come at once");
    }
}
