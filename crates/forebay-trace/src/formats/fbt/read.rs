//! Reads a trace block by block. Lengths and numbers are believed only as far as they are possible.

use std::collections::HashMap;
use std::io::BufRead;

use forebay_core::sealed::crc32c;
use integer_encoding::VarInt;

use super::{
    BLOCK_HEADER_LEN, BLOCK_MAGIC, BLOCKS_MAX, COLUMNS_LEN_MAX, FILE_HEADER_LEN, FILE_MAGIC,
    INDEX_ENTRY_LEN, INDEX_HEADER_LEN, INDEX_MAGIC, RECORDS_MAX, VERSION,
};
use crate::formats::binary::{fill, u16_at, u32_at, u64_at};
use crate::formats::{Failure, Item, Raw, Step};
use crate::record::Op;

/// A block that zstd made larger than this is none.
const PACKED_LEN_MAX: usize = COLUMNS_LEN_MAX + (COLUMNS_LEN_MAX >> 8) + 1024;

/// True when a file that starts so is of this format.
pub(in crate::formats) fn is_of(sample: &[u8]) -> bool {
    sample.starts_with(&FILE_MAGIC)
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::formats) struct Fbt {
    /// The header was read.
    has_begun: bool,
    has_ended: bool,
    /// Blocks read, and the requests that their headers told.
    blocks: u64,
    told: u64,
    /// Requests of the good blocks.
    records: u64,
    /// The requests of the block, the next one last.
    block: Vec<Raw>,
    bytes: Vec<u8>,
}

impl Fbt {
    /// Number of the last block, from 1.
    pub(in crate::formats) fn number(&self) -> u64 {
        self.blocks
    }

    pub(in crate::formats) fn step(&mut self, input: &mut dyn BufRead) -> Option<Step> {
        if let Some(raw) = self.block.pop() {
            return Some(Ok(Item::Request(raw)));
        }
        if self.has_ended {
            return None;
        }
        let step = self.next_part(input);
        // Nothing can be found behind a part whose length is not known.
        self.has_ended |= matches!(step, Err((_, true)));
        match step {
            Ok(()) if self.has_ended => None,
            Ok(()) => Some(Ok(Item::Nothing)),
            Err((failure, _)) => Some(Err(failure)),
        }
    }

    /// Reads a header, a block or the index. With an error: whether what follows is lost, too.
    fn next_part(&mut self, input: &mut dyn BufRead) -> Result<(), (Failure, bool)> {
        if !self.has_begun {
            let header = self.read(input, FILE_HEADER_LEN)?;
            check_header(header).map_err(|what| (Failure::Bad(what), true))?;
            self.has_begun = true;
            return Ok(());
        }
        let magic = self.read(input, 4)?.to_vec();
        if magic == INDEX_MAGIC {
            self.has_ended = true;
            return self.read_index(input);
        }
        self.blocks += 1;
        let rest = self.read(input, BLOCK_HEADER_LEN - 4)?;
        let header = [&magic, rest].concat();
        let header = BlockHeader::of(&header).map_err(|what| (Failure::Bad(what), true))?;
        // The header has a checksum of its own: its number holds if the contents are damaged.
        self.told += header.records as u64;
        let packed = self.read(input, header.packed)?;
        let block = header.unpack(packed).map_err(|what| (Failure::Bad(what), false))?;
        self.records += block.len() as u64;
        self.block = block;
        self.block.reverse();
        Ok(())
    }

    fn read(&mut self, input: &mut dyn BufRead, len: usize) -> Result<&[u8], (Failure, bool)> {
        self.bytes.resize(len, 0);
        match fill(input, &mut self.bytes) {
            Ok(there) if there == len => Ok(&self.bytes),
            Ok(_) => {
                let what = format!(
                    "the file was cut off here, or its writing was: {} requests came before",
                    self.records
                );
                Err((Failure::Bad(what), true))
            }
            Err(error) => Err((Failure::Io(error), true)),
        }
    }

    /// The index has to agree with what was read; whoever reads a stream has no other use for it.
    fn read_index(&mut self, input: &mut dyn BufRead) -> Result<(), (Failure, bool)> {
        let bad = |what: &str| (Failure::Bad(format!("the index {what}")), true);
        let header = self.read(input, INDEX_HEADER_LEN - 4)?.to_vec();
        let whole = [&INDEX_MAGIC[..], &header].concat();
        if crc32c(&whole[..INDEX_HEADER_LEN - 4]) != u32_at(&whole, INDEX_HEADER_LEN - 4) {
            return Err(bad("is damaged"));
        }
        let (blocks, records) = (u32_at(&whole, 4) as usize, u64_at(&whole, 8));
        if blocks > BLOCKS_MAX {
            return Err(bad("has too many blocks"));
        }
        let expected = u32_at(&whole, 16);
        if crc32c(self.read(input, blocks * INDEX_ENTRY_LEN)?) != expected {
            return Err(bad("is damaged"));
        }
        if (blocks as u64, records) != (self.blocks, self.told) {
            return Err(bad(&format!(
                "tells of {blocks} blocks with {records} requests, not of these"
            )));
        }
        let ends = input.fill_buf().map_err(|error| (Failure::Io(error), true))?.is_empty();
        if ends { Ok(()) } else { Err(bad("is not the end of the file")) }
    }
}

fn check_header(header: &[u8]) -> Result<(), String> {
    if header[..8] != FILE_MAGIC {
        return Err("does not begin as a trace of Forebay".to_owned());
    }
    if crc32c(&header[..12]) != u32_at(header, 12) {
        return Err("the header of the file is damaged".to_owned());
    }
    match u16_at(header, 8) {
        VERSION => Ok(()),
        version => Err(format!(
            "version {version} of the format; this program reads version {VERSION}: use a newer one"
        )),
    }
}

/// What a block says of itself.
struct BlockHeader {
    records: usize,
    packed: usize,
    columns: usize,
    first_time_ns: u64,
    last_time_ns: u64,
    checksum: u32,
}

impl BlockHeader {
    fn of(header: &[u8]) -> Result<BlockHeader, String> {
        if header[..4] != BLOCK_MAGIC || crc32c(&header[..36]) != u32_at(header, 36) {
            return Err("its header is damaged".to_owned());
        }
        let length = |at: usize| u32_at(header, at) as usize;
        let found = BlockHeader {
            records: length(4),
            packed: length(8),
            columns: length(12),
            first_time_ns: u64_at(header, 16),
            last_time_ns: u64_at(header, 24),
            checksum: u32_at(header, 32),
        };
        let is_possible = (1..=RECORDS_MAX).contains(&found.records)
            && found.packed <= PACKED_LEN_MAX
            && found.columns <= COLUMNS_LEN_MAX;
        if is_possible { Ok(found) } else { Err("it is longer than a block can be".to_owned()) }
    }

    /// The requests.
    fn unpack(&self, packed: &[u8]) -> Result<Vec<Raw>, String> {
        if crc32c(packed) != self.checksum {
            return Err("its contents are damaged".to_owned());
        }
        let columns = zstd::bulk::decompress(packed, self.columns)
            .map_err(|error| format!("its contents cannot be unpacked: {error}"))?;
        self.decode(&columns).ok_or_else(|| "its columns make no sense".to_owned())
    }

    fn decode(&self, columns: &[u8]) -> Option<Vec<Raw>> {
        let mut rest = Column(columns);
        let [time_unit, place_unit, latency_unit] = [rest.next()?, rest.next()?, rest.next()?];
        let mut column = || {
            let len = usize::try_from(rest.next::<u64>()?).ok()?;
            let (column, behind) = rest.0.split_at_checked(len)?;
            rest = Column(behind);
            Some(Column(column))
        };
        let mut columns = [column()?, column()?, column()?, column()?, column()?];
        let [kinds, times, places, lengths, latencies] = &mut columns;
        let mut ends: HashMap<u32, u64> = HashMap::new();
        let mut now = self.first_time_ns;
        let scaled = |number: i64, unit: u64| number.checked_mul(i64::try_from(unit).ok()?);
        let mut block = Vec::with_capacity(self.records);
        for _ in 0..self.records {
            let kind: u64 = kinds.next()?;
            let device = u32::try_from(kind >> 1).ok()?;
            now = now.wrapping_add_signed(scaled(times.next()?, time_unit)?);
            let end = ends.get(&device).copied().unwrap_or(0);
            let offset = end.wrapping_add_signed(scaled(places.next()?, place_unit)?);
            let len = lengths.next::<u64>()?.checked_mul(place_unit)?;
            let latency: u64 = latencies.next()?;
            ends.insert(device, offset.checked_add(len)?);
            block.push(Raw {
                time_ns: now,
                op: if kind & 1 == 1 { Op::Write } else { Op::Read },
                offset,
                len,
                device,
                latency_ns: match latency.checked_sub(1) {
                    None => None,
                    Some(units) => Some(units.checked_mul(latency_unit)?),
                },
            });
        }
        let is_all = rest.0.is_empty() && columns.iter().all(|column| column.0.is_empty());
        (is_all && now == self.last_time_ns).then_some(block)
    }
}

/// Numbers, one after the other.
struct Column<'a>(&'a [u8]);

impl Column<'_> {
    fn next<Number: VarInt>(&mut self) -> Option<Number> {
        let (number, len) = Number::decode_var(self.0)?;
        self.0 = &self.0[len..];
        Some(number)
    }
}
