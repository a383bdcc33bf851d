//! Facts about a trace that the simulation needs before its first request.

use std::collections::BTreeMap;

use forebay_core::config::BackendTraits;
use forebay_core::geometry::{BLOCK_MAX, ByteRange, SECTOR};

use crate::assumed::LATENCIES_MIN;
use crate::error::{Error, ErrorKind};
use crate::record::{END_MAX, Op, Record, Summary};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Its requests, all devices together.
    pub summary: Summary,
    /// Where each device begins on the one disk that they are taken for.
    starts: BTreeMap<u32, u64>,
    /// Bytes of that disk.
    size: u64,
    reads: LatencySum,
    writes: LatencySum,
}

/// Latencies that the trace has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LatencySum {
    count: u64,
    sum_ns: u128,
}

impl LatencySum {
    fn mean(self) -> Option<u64> {
        (self.count >= LATENCIES_MIN).then(|| (self.sum_ns / u128::from(self.count)) as u64)
    }
}

impl Survey {
    /// Reads all of a trace.
    ///
    /// # Errors
    /// The trace's own, none of its requests, or a disk that is too large for any.
    pub fn of(records: impl Iterator<Item = Result<Record, Error>>) -> Result<Survey, Error> {
        let mut survey = Survey::default();
        let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
        for record in records {
            let record = record?;
            survey.summary.add(&record);
            let end = ends.entry(record.device).or_default();
            *end = record.end().max(*end);
            if let Some(latency) = record.latency_ns {
                let told = match record.op {
                    Op::Read => &mut survey.reads,
                    Op::Write => &mut survey.writes,
                };
                told.count += 1;
                told.sum_ns += u128::from(latency);
            }
        }
        for (device, end) in ends {
            survey.starts.insert(device, survey.size);
            // Devices lie behind each other, on the same grid of cache blocks whatever the block size.
            survey.size += end.next_multiple_of(BLOCK_MAX);
            if survey.size > END_MAX {
                let message = "its devices are too large to be taken for one disk: look at one with --device N";
                return Err(Error::new(ErrorKind::Invalid, message));
            }
        }
        match survey.size {
            0 => {
                Err(Error::new(ErrorKind::Invalid, "the trace has no request: nothing to simulate"))
            }
            _ => Ok(survey),
        }
    }

    /// The last requests of the trace as a trace of their own on the same disk. Their times begin anew: what is
    /// counted by the day or by a share of the time is about them alone.
    pub fn of_end(&self, records: &mut [Record]) -> Survey {
        let start = records.first().map_or(0, |first| first.time_ns);
        let mut summary = Summary::default();
        for record in records {
            record.time_ns = record.time_ns.saturating_sub(start);
            summary.add(record);
        }
        Survey { summary, ..self.clone() }
    }

    /// The primary storage that the trace needs.
    pub fn traits(&self) -> BackendTraits {
        BackendTraits {
            size: self.size,
            logical_block: SECTOR as u32,
            read_only: false,
            discard: false,
            write_zeroes: false,
            extents: false,
        }
    }

    /// Requests that it has.
    pub fn requests(&self) -> u64 {
        self.summary.reads + self.summary.writes
    }

    /// Devices that it has.
    pub fn devices(&self) -> usize {
        self.starts.len()
    }

    /// False when all requests came at once.
    pub fn has_times(&self) -> bool {
        self.summary.duration_ns > 0
    }

    /// Mean latency of reads in nanoseconds, where enough of them have one.
    pub fn read_ns(&self) -> Option<u64> {
        self.reads.mean()
    }

    /// The same of writes.
    pub fn write_ns(&self) -> Option<u64> {
        self.writes.mean()
    }

    /// The whole sectors of the disk that a request is about.
    ///
    /// # Errors
    /// The trace is another one than before.
    pub(super) fn place(&self, record: &Record) -> Result<ByteRange, Error> {
        let start = match self.starts.len() {
            1 => Some(0),
            _ => self.starts.get(&record.device).copied(),
        };
        let ByteRange { start: first, end } = record.range().align_out(SECTOR);
        let found = start.map(|start| ByteRange::new(start + first, start + end));
        found
            .filter(|range| range.end <= self.size)
            .ok_or_else(|| Error::trace_changed("it has a request where it had none"))
    }
}
