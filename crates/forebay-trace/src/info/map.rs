//! Where and when requests begin: a grid of cells for each device, positions over time.
//!
//! How far requests will reach, and how long the trace is, is known at its end. Cells are a page and a millisecond at first;
//! when there would be more than 64 rows or 96 columns, each two become one. A grid takes 96 KiB; the first 32 devices of a
//! trace have one.

use forebay_core::geometry::PAGE;
use serde::Serialize;

use crate::record::{Op, Record};

/// Rows (positions) and columns (times) at most; at the end there are more than half as many, unless there is little.
const ROWS: usize = 64;
const COLUMNS: usize = 96;
/// Nanoseconds of a column at first.
const FIRST_NS: u64 = 1_000_000;
/// Devices that have a grid.
const DEVICES_MAX: usize = 32;

/// Requests of one device by position and time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Map {
    /// Device.
    pub device: u32,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Nanoseconds of a column.
    pub column_ns: u64,
    /// Those in which requests begin, by row and column.
    pub cells: Vec<Cell>,
}

/// Requests that begin in one row and column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// From byte 0 of the device.
    pub row: usize,
    /// From the beginning of the trace.
    pub column: usize,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Maps(Vec<Grid>);

#[derive(Debug)]
struct Grid {
    device: u32,
    row_shift: u32,
    column_ns: u64,
    /// Reads and writes, row by row.
    counts: Vec<[u64; 2]>,
}

impl Maps {
    pub fn add(&mut self, record: &Record) {
        let Maps(grids) = self;
        let at = grids.iter().position(|grid| grid.device == record.device);
        if at.is_none() && grids.len() == DEVICES_MAX {
            return;
        }
        let at = at.unwrap_or_else(|| {
            grids.push(Grid::new(record.device));
            grids.len() - 1
        });
        grids[at].add(record);
    }

    /// By device.
    pub fn told(&self) -> Vec<Map> {
        let mut maps: Vec<Map> = self.0.iter().map(Grid::told).collect();
        maps.sort_by_key(|map| map.device);
        maps
    }
}

impl Grid {
    fn new(device: u32) -> Grid {
        let row_shift = PAGE.trailing_zeros();
        Grid { device, row_shift, column_ns: FIRST_NS, counts: vec![[0; 2]; ROWS * COLUMNS] }
    }

    fn add(&mut self, record: &Record) {
        while record.offset >> self.row_shift >= ROWS as u64 {
            self.row_shift += 1;
            self.join(|row, column| (row / 2, column));
        }
        while record.time_ns / self.column_ns >= COLUMNS as u64 {
            self.column_ns *= 2;
            self.join(|row, column| (row, column / 2));
        }
        let row = (record.offset >> self.row_shift) as usize;
        let column = (record.time_ns / self.column_ns) as usize;
        self.counts[row * COLUMNS + column][match record.op {
            Op::Read => 0,
            Op::Write => 1,
        }] += 1;
    }

    fn join(&mut self, to: impl Fn(usize, usize) -> (usize, usize)) {
        let mut joined = vec![[0; 2]; ROWS * COLUMNS];
        for (at, [reads, writes]) in self.counts.iter().enumerate() {
            let (row, column) = to(at / COLUMNS, at % COLUMNS);
            let cell: &mut [u64; 2] = &mut joined[row * COLUMNS + column];
            cell[0] += reads;
            cell[1] += writes;
        }
        self.counts = joined;
    }

    fn told(&self) -> Map {
        let filled = self.counts.iter().enumerate().filter(|(_, counts)| **counts != [0; 2]);
        let cell = |(at, &[reads, writes]): (usize, &[u64; 2])| Cell {
            row: at / COLUMNS,
            column: at % COLUMNS,
            reads,
            writes,
        };
        Map {
            device: self.device,
            row_bytes: 1 << self.row_shift,
            column_ns: self.column_ns,
            cells: filled.map(cell).collect(),
        }
    }
}
