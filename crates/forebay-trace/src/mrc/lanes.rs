//! One count on the grid that a cache begins with and, once the requests agree on another place, one on that.
//!
//! [`crate::simulate`] (and the engine) moves the grid only while less than 5 % of the cache is filled. Nothing has
//! been dropped then, so it is known of every size at once:
//! ```text
//!                        requests agree
//! lane 1  ───────────────┬──────────────► caches that are filled to 5 % or more by then: the grid stays
//!                        └► lane 2 ─────► larger caches: emptied, on the other grid
//! ```
//! Many such counts of one trace ([`add_all`]) know nothing of each other. All of them count a
//! stretch of requests before the next is read, on as many CPUs as the process may use. The
//! result does not depend on how many those are.

use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

use forebay_core::alignment::AlignmentDetector;
use forebay_core::config::GridOffset;
use forebay_core::mrc::{Blocks, Piece};

use super::GridMove;
use crate::error::Error;
use crate::record::{Op, Record};
use crate::simulate::FILLED_MAX;

/// Requests that are read before they are counted: enough that threads are worth it.
const STRETCH: usize = 4096;

/// A counter of the uses of blocks on one grid.
pub(crate) trait Counter {
    /// Granules of a block are used by a request that began before.
    fn touch(&mut self, op: Op, device: u32, piece: Piece) -> Result<(), Error>;

    /// The request is over.
    fn end_request(&mut self, op: Op, granules: u64);

    /// Counts what was put off. Before results are asked for, and not too rarely.
    fn settle(&mut self) {}

    /// Distinct blocks so far.
    fn blocks(&self) -> u64;

    /// The same for caches of more than `slots` slots, which are emptied now; this one goes on for the others.
    fn split(&mut self, slots: u64) -> Self;
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Lanes<C> {
    block_size: u64,
    grid_offset: u64,
    grid: Blocks,
    first: C,
    /// Looks at requests until the grid has moved, where it may.
    detector: Option<AlignmentDetector>,
    requests: u64,
    moved: Option<Moved<C>>,
}

#[derive(Debug)]
struct Moved<C> {
    what: GridMove,
    slots: u64,
    grid: Blocks,
    second: C,
}

impl<C: Counter> Lanes<C> {
    pub fn new(block_size: u64, grid_offset: GridOffset, first: C) -> Lanes<C> {
        let (grid_offset, detector) = match grid_offset {
            GridOffset::Fixed(offset) => (offset, None),
            GridOffset::Auto => (0, Some(AlignmentDetector::default())),
        };
        Lanes {
            block_size,
            grid_offset,
            grid: Blocks::new(block_size, grid_offset),
            first,
            detector,
            requests: 0,
            moved: None,
        }
    }

    pub fn add(&mut self, record: &Record) -> Result<(), Error> {
        if let Some(detector) = &mut self.detector {
            detector.observe(record.range());
            let verdict = detector.verdict().filter(|&offset| offset < self.block_size);
            if let Some(offset) = verdict
                && offset != self.grid_offset
            {
                self.move_grid(offset);
            }
        }
        self.requests += 1;
        add_to(&mut self.first, &self.grid, record)?;
        match &mut self.moved {
            Some(moved) => add_to(&mut moved.second, &moved.grid, record),
            None => Ok(()),
        }
    }

    /// Counts what was put off.
    fn settle(&mut self) {
        self.first.settle();
        if let Some(moved) = &mut self.moved {
            moved.second.settle();
        }
    }

    fn move_grid(&mut self, grid_offset: u64) {
        self.detector = None;
        let slots = self.first.blocks() * FILLED_MAX;
        let above = slots * self.block_size;
        let grid = Blocks::new(self.block_size, grid_offset);
        let what = GridMove { grid_offset, after: self.requests, above };
        let second = self.first.split(slots);
        self.moved = Some(Moved { what, slots, grid, second });
    }

    /// The count for caches of `slots` slots.
    pub fn of(&self, slots: u64) -> &C {
        match &self.moved {
            Some(moved) if slots > moved.slots => &moved.second,
            _ => &self.first,
        }
    }

    /// The count for caches that just hold the whole trace.
    pub fn whole(&self) -> &C {
        self.of(self.first.blocks())
    }

    pub fn block_size(&self) -> u64 {
        self.block_size
    }

    /// The offset at the beginning.
    pub fn grid_offset(&self) -> u64 {
        self.grid_offset
    }

    pub fn grid_moved(&self) -> Option<GridMove> {
        self.moved.as_ref().map(|moved| moved.what)
    }

    /// Bytes of the distinct blocks.
    pub fn footprint(&self) -> u64 {
        self.blocks() * self.block_size
    }

    /// Distinct blocks, as caches see them that hold them all.
    pub fn blocks(&self) -> u64 {
        self.whole().blocks()
    }
}

/// Counts a trace with all of them.
pub(super) fn add_all<C: Counter + Send>(
    all: &mut [Lanes<C>],
    mut records: impl Iterator<Item = Result<Record, Error>>,
) -> Result<(), Error> {
    let mut stretch = Vec::with_capacity(STRETCH);
    loop {
        stretch.clear();
        for record in records.by_ref().take(STRETCH) {
            stretch.push(record?);
        }
        if stretch.is_empty() {
            return Ok(());
        }
        on_all_cpus(all, |lanes| {
            stretch.iter().try_for_each(|record| lanes.add(record))?;
            lanes.settle();
            Ok(())
        })?;
    }
}

/// Does `work` on each, whoever has time takes the next.
fn on_all_cpus<T: Send>(
    all: &mut [T],
    work: impl Fn(&mut T) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(all.len());
    let waiting = Mutex::new(all.iter_mut());
    let next = || waiting.lock().expect("nobody panics with it").next();
    let some = || std::iter::from_fn(next).try_for_each(&work);
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(some)).collect();
        let own = some();
        others
            .into_iter()
            .map(|other| other.join().expect("it does not panic"))
            .fold(own, Result::and)
    })
}

fn add_to(counter: &mut impl Counter, grid: &Blocks, record: &Record) -> Result<(), Error> {
    for piece in grid.pieces(record.range()) {
        counter.touch(record.op, record.device, piece)?;
    }
    counter.end_request(record.op, grid.granules_of(record.range()));
    Ok(())
}

/// The name of a block where blocks of all disks are in one order.
/// ```text
///   bits of the device   20 … 0 │ 31 … 21 │
///   bits of the key      63   43│42     32│31            0   each with the block's own
/// ```
/// Two blocks share a name only where a disk has more than 2³² of them.
#[inline]
pub(crate) fn key_of(device: u32, block: u64) -> u64 {
    block ^ u64::from(device.rotate_left(11)) << 32
}
