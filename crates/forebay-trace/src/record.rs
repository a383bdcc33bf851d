//! The one shape that every trace is read into.

use forebay_core::geometry::ByteRange;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Longest request that is taken for one; a longer one is a bad record.
pub const LEN_MAX: u64 = 1 << 30;
/// Requests end at this byte of a disk at the latest; beyond is a bad record.
pub const END_MAX: u64 = 1 << 62;

/// What a request asks for. Traces say nothing of other commands, or readers pass them over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Read.
    Read,
    /// Write.
    Write,
}

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Nanoseconds since the first request of the trace; 0 when the format has no time, or this one
    /// is before that. Traces are not always in order of time.
    pub time_ns: u64,
    /// What was asked for.
    pub op: Op,
    /// First byte on the disk.
    pub offset: u64,
    /// Length in bytes, 1 to [`LEN_MAX`].
    pub len: u32,
    /// Which disk: the trace's own number, or one given in order of appearance where it has names.
    pub device: u32,
    /// Nanoseconds until it was answered; `None`: the trace does not say.
    pub latency_ns: Option<u64>,
}

impl Record {
    /// The bytes that it is about.
    pub fn range(&self) -> ByteRange {
        ByteRange::at(self.offset, u64::from(self.len))
    }

    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

/// The bytes of a disk that a trace touches, gathered record by record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// One past the highest byte touched on any disk.
    pub span_bytes: u64,
    /// Length of the longest request.
    pub len_max: u32,
    /// Latest time of a request.
    pub duration_ns: u64,
}

impl Summary {
    /// Reads all of a trace.
    ///
    /// # Errors
    /// The trace's own.
    pub fn of(records: impl Iterator<Item = Result<Record, Error>>) -> Result<Summary, Error> {
        let mut summary = Summary::default();
        for record in records {
            summary.add(&record?);
        }
        Ok(summary)
    }

    /// Passes a record on that is one of those counted, as far as their kinds and places tell.
    ///
    /// # Errors
    /// The trace is another one than before.
    pub(crate) fn expect(&self, record: Record) -> Result<Record, Error> {
        if record.op == Op::Write && self.writes == 0 {
            return Err(Error::trace_changed("it had no write, and then one"));
        }
        if record.end() > self.span_bytes {
            let (span, end) = (self.span_bytes, record.end());
            let how = format_args!("it ended at byte {span} of the disk, and then at {end}");
            return Err(Error::trace_changed(how));
        }
        Ok(record)
    }

    /// Counts a record.
    pub fn add(&mut self, record: &Record) {
        let (requests, bytes) = match record.op {
            Op::Read => (&mut self.reads, &mut self.read_bytes),
            Op::Write => (&mut self.writes, &mut self.written_bytes),
        };
        *requests += 1;
        *bytes += u64::from(record.len);
        self.span_bytes = self.span_bytes.max(record.end());
        self.len_max = self.len_max.max(record.len);
        self.duration_ns = self.duration_ns.max(record.time_ns);
    }
}
