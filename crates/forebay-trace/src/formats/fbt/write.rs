//! Writes a trace block by block.

use std::collections::HashMap;
use std::io::{self, Write};

use forebay_core::sealed::crc32c;
use integer_encoding::VarIntWriter;

use super::{
    BLOCK_HEADER_LEN, BLOCK_MAGIC, BLOCKS_MAX, FILE_HEADER_LEN, FILE_MAGIC, INDEX_HEADER_LEN,
    INDEX_MAGIC, RECORDS_MAX, VERSION,
};
use crate::record::{Op, Record};

/// How hard zstd tries: blocks are small, and written once.
const LEVEL: i32 = 9;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::formats) struct Encoder {
    block: Vec<Record>,
    /// Where each block begins, its first request, and its time.
    index: Vec<[u64; 3]>,
    written: u64,
    records: u64,
}

impl Encoder {
    /// Adds a request; writes a block when one is full.
    pub(in crate::formats) fn add(
        &mut self,
        out: &mut dyn Write,
        record: &Record,
    ) -> io::Result<()> {
        self.block.push(*record);
        if self.block.len() == RECORDS_MAX { self.write_block(out) } else { Ok(()) }
    }

    /// Writes a block of what there is, full or not.
    pub(in crate::formats) fn cut(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.block.is_empty() { Ok(()) } else { self.write_block(out) }
    }

    /// Writes what is left, and the index.
    pub(in crate::formats) fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.cut(out)?;
        self.begin(out)?;
        let mut bytes = Vec::with_capacity(INDEX_HEADER_LEN + self.index.len() * 24);
        bytes.extend(INDEX_MAGIC);
        bytes.extend((self.index.len() as u32).to_le_bytes());
        bytes.extend(self.records.to_le_bytes());
        let entries: Vec<u8> =
            self.index.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
        bytes.extend(crc32c(&entries).to_le_bytes());
        bytes.extend(crc32c(&bytes).to_le_bytes());
        bytes.extend(entries);
        self.put(out, &bytes)
    }

    fn put(&mut self, out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
        out.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// The header of the file, before anything else.
    fn begin(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.written > 0 {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(FILE_HEADER_LEN);
        bytes.extend(FILE_MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 2]);
        bytes.extend(crc32c(&bytes).to_le_bytes());
        self.put(out, &bytes)
    }

    fn write_block(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.begin(out)?;
        if self.index.len() == BLOCKS_MAX {
            return Err(io::Error::other("the trace has too many requests for one file"));
        }
        let columns = columns(&self.block)?;
        let packed = zstd::bulk::compress(&columns, LEVEL)?;
        let (first, last) = (self.block[0].time_ns, self.block[self.block.len() - 1].time_ns);
        self.index.push([self.written, self.records, first]);
        let mut bytes = Vec::with_capacity(BLOCK_HEADER_LEN + packed.len());
        bytes.extend(BLOCK_MAGIC);
        bytes.extend((self.block.len() as u32).to_le_bytes());
        bytes.extend((packed.len() as u32).to_le_bytes());
        bytes.extend((columns.len() as u32).to_le_bytes());
        bytes.extend(first.to_le_bytes());
        bytes.extend(last.to_le_bytes());
        bytes.extend(crc32c(&packed).to_le_bytes());
        bytes.extend(crc32c(&bytes).to_le_bytes());
        bytes.extend(packed);
        self.records += self.block.len() as u64;
        self.block.clear();
        self.put(out, &bytes)
    }
}

/// The columns of a block, each with its length before it.
fn columns(block: &[Record]) -> io::Result<Vec<u8>> {
    let mut ends: HashMap<u32, u64> = HashMap::new();
    let mut times = vec![];
    let mut before = block[0].time_ns;
    for record in block {
        times.push(record.time_ns.wrapping_sub(before) as i64);
        before = record.time_ns;
    }
    let time_unit = common_unit(times.iter().map(|time| time.unsigned_abs()));
    let place_unit = common_unit(block.iter().flat_map(|r| [r.offset, u64::from(r.len)]));
    let latency_unit = common_unit(block.iter().filter_map(|record| record.latency_ns));
    let [mut kinds, mut when, mut places, mut lengths, mut latencies]: [Vec<u8>; 5] =
        Default::default();
    for (record, time) in block.iter().zip(times) {
        kinds.write_varint(u64::from(record.device) << 1 | u64::from(record.op == Op::Write))?;
        when.write_varint(time / time_unit as i64)?;
        let end = ends.insert(record.device, record.end()).unwrap_or(0);
        places.write_varint(record.offset.wrapping_sub(end) as i64 / place_unit as i64)?;
        lengths.write_varint(u64::from(record.len) / place_unit)?;
        let latency = record.latency_ns.map_or(0, |ns| (ns / latency_unit).saturating_add(1));
        latencies.write_varint(latency)?;
    }
    let mut all = Vec::new();
    for unit in [time_unit, place_unit, latency_unit] {
        all.write_varint(unit)?;
    }
    for column in [kinds, when, places, lengths, latencies] {
        all.write_varint(column.len() as u64)?;
        all.extend(column);
    }
    Ok(all)
}

/// The largest number that divides all others; 1 when there is none but 0, or it is beyond what fits a sign.
fn common_unit(numbers: impl Iterator<Item = u64>) -> u64 {
    let unit = numbers.fold(0, |mut a, mut b| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    });
    if unit == 0 || unit > i64::MAX as u64 { 1 } else { unit }
}
