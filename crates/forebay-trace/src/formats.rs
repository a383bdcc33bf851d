//! The trace formats of several tools, and one of our own.
//!
//! ```text
//! file ─► source (plain, zstd, gzip, xz: by content) ─► detect (first 64 KiB) ─► Reader ─► Record …
//! Record … ─► Writer ─► plain or compressed, by the file's name
//! ```
//! A reader streams: it holds one line or one binary record at a time, whatever the file's size.
//! A record that makes no sense is an error that names its line (or number) and the fault.
//! [`Options::skip_bad`] counts and passes over a number of them. Requests that are neither read
//! nor write, and empty ones, are passed over and counted as ignored. A trace that has no request
//! is an error. [`Reader::warnings`] has doubts that are no error. Hostile input gives errors,
//! never a panic.
//!
//! A new format is a file with a decoder, a variant of [`Format`], and lines in [`Format::ALL`],
//! `detect` and `Decoder::new`. A written one also has an encoder in `write`.

mod arc;
mod binary;
mod blkparse;
mod blktrace;
mod cloud;
mod detect;
mod devices;
mod fbt;
mod fields;
mod fio;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod lines;
mod msr;
mod order;
mod pairing;
mod source;
mod spc;
mod ssdsim;
mod time_unit;
mod vscsi;
mod vscsi_csv;
mod write;

use std::fmt;
use std::io::{BufRead, Read};
use std::path::Path;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};
use crate::record::{END_MAX, LEN_MAX, Op, Record};
use crate::report::figures::of;
use devices::Devices;
use order::{Backwards, Order};
use source::Source;
pub use time_unit::TimeUnit;
pub use write::Writer;

/// The formats that are read; [`Format::is_written`] tells which are written, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// VMware's vscsiStats binary, version 1 (32-byte records).
    VscsiV1,
    /// VMware's vscsiStats binary, version 2 (40-byte records).
    VscsiV2,
    /// `vscsiStats -e`.
    VscsiCsv,
    /// MSR Cambridge CSV.
    Msr,
    /// Five columns: time, device, sector, sectors, type; SSDsim, MQSim and DiskSim write it.
    Ssdsim,
    /// The ARC paper's `.lis`: pages of 512 bytes, no time, reads only.
    Arc,
    /// The Storage Performance Council's, of the UMass repository.
    Spc,
    /// What blkparse prints.
    Blkparse,
    /// blktrace's binary.
    Blktrace,
    /// I/O log of fio, version 2.
    Fio2,
    /// I/O log of fio, version 3.
    Fio3,
    /// Block traces of Alibaba's cloud.
    Alibaba,
    /// Block traces of Tencent's cloud.
    Tencent,
    /// Forebay's own: compact, checked, read as a stream.
    Fbt,
}

impl Format {
    /// All formats with their names, for parsing and help.
    pub const ALL: [(Format, &'static str); 16] = [
        (Format::Fbt, "fbt"),
        (Format::VscsiV1, "vscsi1"),
        (Format::VscsiV2, "vscsi2"),
        (Format::VscsiCsv, "vscsi-csv"),
        (Format::Msr, "msr"),
        (Format::Ssdsim, "ssdsim"),
        (Format::Ssdsim, "mqsim"),
        (Format::Ssdsim, "disksim"),
        (Format::Arc, "arc"),
        (Format::Spc, "spc"),
        (Format::Blkparse, "blkparse"),
        (Format::Blktrace, "blktrace"),
        (Format::Fio2, "fio2"),
        (Format::Fio3, "fio3"),
        (Format::Alibaba, "alibaba"),
        (Format::Tencent, "tencent"),
    ];
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Format::ALL.iter().find(|(format, _)| format == self).map(|&(_, name)| name);
        f.write_str(name.expect("every format is in the table"))
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Format, Error> {
        let found = Format::ALL.iter().find(|(_, known)| *known == name);
        found.map(|&(format, _)| format).ok_or_else(|| {
            let names = Format::ALL.map(|(_, name)| name).join(", ");
            let message = format!("unknown trace format \"{name}\": use one of {names}");
            Error::new(ErrorKind::Invalid, message)
        })
    }
}

/// The units that a reader assumes, because neither the file nor [`Options`] name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guess {
    /// Unit of the time column.
    pub time_unit: Option<TimeUnit>,
    /// Bytes that the length column counts.
    pub len_unit: Option<u64>,
}

/// How to read a trace. The default finds everything out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The format; `None`: found by content.
    pub format: Option<Format>,
    /// Unit of the time column of [`Format::Ssdsim`], whose writers do not agree. `None`:
    /// milliseconds when the times have a decimal point, otherwise nanoseconds.
    pub time_unit: Option<TimeUnit>,
    /// Bytes that the length column of [`Format::Ssdsim`] counts; `None`: 512.
    pub len_unit: Option<u32>,
    /// Only this device of the trace; the requests of others are ignored. `None`: all.
    pub device: Option<u32>,
    /// Bad records that are passed over; one more ends the reading.
    pub skip_bad: u64,
}

/// Records that a reader has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads and writes.
    pub records: u64,
    /// Other commands, empty requests and header lines.
    pub ignored: u64,
    /// Bad records passed over.
    pub bad: u64,
    /// The fault of the first of them.
    pub first_bad: Option<String>,
}

/// A request as a decoder found it, not yet checked.
#[derive(Clone, Copy, Debug)]
struct Raw {
    /// Nanoseconds since an origin of the format's choice.
    time_ns: u64,
    op: Op,
    offset: u64,
    len: u64,
    device: u32,
    latency_ns: Option<u64>,
}

/// What a decoder found.
#[derive(Debug)]
enum Item {
    /// A read or a write.
    Request(Raw),
    /// Something else, to be counted.
    PassedOver,
    /// A part of a request that comes later.
    Nothing,
}

/// Why a decoder has no request.
#[derive(Debug)]
enum Failure {
    /// The input ended, or cannot be read.
    Io(std::io::Error),
    /// The fault of this record.
    Bad(String),
}

/// One step of a decoder.
type Step = Result<Item, Failure>;

/// Decodes one record at a time.
#[derive(Debug)]
enum Decoder {
    Vscsi(vscsi::Vscsi),
    Blktrace(blktrace::Blktrace),
    Fbt(fbt::Fbt),
    Lines(lines::Lines),
}

impl Decoder {
    fn new(format: Format, sample: &[u8], options: &Options) -> Decoder {
        let parser: Box<dyn lines::Parser> = match format {
            Format::VscsiV1 => return Decoder::Vscsi(vscsi::Vscsi::new(vscsi::Version::V1)),
            Format::VscsiV2 => return Decoder::Vscsi(vscsi::Vscsi::new(vscsi::Version::V2)),
            Format::VscsiCsv => Box::new(vscsi_csv::VscsiCsv),
            Format::Msr => Box::new(msr::Msr::default()),
            Format::Ssdsim => Box::new(ssdsim::Ssdsim::new(sample, options)),
            Format::Arc => Box::new(arc::Arc),
            Format::Spc => Box::new(spc::Spc),
            Format::Blkparse => Box::new(blkparse::Blkparse::new(sample)),
            Format::Blktrace => return Decoder::Blktrace(blktrace::Blktrace::new(sample)),
            Format::Fio2 => Box::new(fio::Fio::new(false)),
            Format::Fio3 => Box::new(fio::Fio::new(true)),
            Format::Alibaba => Box::new(cloud::Alibaba),
            Format::Tencent => Box::new(cloud::Tencent),
            Format::Fbt => return Decoder::Fbt(fbt::Fbt::default()),
        };
        Decoder::Lines(lines::Lines::new(parser))
    }

    /// `None` at the end of the input.
    fn step(&mut self, input: &mut dyn BufRead) -> Option<Step> {
        match self {
            Decoder::Vscsi(vscsi) => vscsi.step(input),
            Decoder::Blktrace(blktrace) => blktrace.step(input),
            Decoder::Fbt(fbt) => fbt.step(input),
            Decoder::Lines(lines) => lines.step(input),
        }
    }

    /// Where the last record was, for people.
    fn position(&self) -> String {
        match self {
            Decoder::Vscsi(vscsi) => format!("record {}", vscsi.number()),
            Decoder::Blktrace(blktrace) => format!("event {}", blktrace.number()),
            Decoder::Fbt(fbt) => format!("block {}", fbt.number()),
            Decoder::Lines(lines) => format!("line {}", lines.number()),
        }
    }
}

/// A trace being read: an iterator of records that ends after the first error.
#[derive(Debug)]
pub struct Reader {
    name: String,
    source: Source,
    format: Format,
    decoder: Decoder,
    options: Options,
    first_time_ns: Option<u64>,
    /// Requests whose time is before that.
    before_first: u64,
    order: Order,
    devices: Devices<u32>,
    last_device: Option<u32>,
    counts: Counts,
    ended: bool,
}

impl Reader {
    /// Opens a file.
    ///
    /// # Errors
    /// The file cannot be read, or is of no known format.
    pub fn open(path: &Path, options: &Options) -> Result<Reader, Error> {
        let name = path.display().to_string();
        let file = std::fs::File::open(path)
            .map_err(|e| Error::io(format!("cannot open the trace {name}"), e))?;
        Reader::new(file, &name, options)
    }

    /// Reads from anything; `name` is for error messages.
    ///
    /// # Errors
    /// The input cannot be read, or is of no known format.
    pub fn new(
        input: impl Read + Send + 'static,
        name: &str,
        options: &Options,
    ) -> Result<Reader, Error> {
        let name = name.to_owned();
        let source = Source::new(input).map_err(|e| Error::io(format!("{name}: read"), e))?;
        let format = match options.format {
            Some(format) => format,
            None => detect::detect(source.sample()).map_err(|e| e.in_file(&name))?,
        };
        let options = *options;
        let decoder = Decoder::new(format, source.sample(), &options);
        let counts = Counts::default();
        Ok(Reader {
            name,
            source,
            format,
            decoder,
            options,
            first_time_ns: None,
            before_first: 0,
            order: Order::default(),
            devices: Devices::default(),
            last_device: None,
            counts,
            ended: false,
        })
    }

    /// The format that is being read.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The assumed units of the numbers that it reads.
    pub fn guess(&self) -> Guess {
        match &self.decoder {
            Decoder::Lines(lines) => lines.guess(),
            Decoder::Vscsi(_) | Decoder::Blktrace(_) | Decoder::Fbt(_) => Guess::default(),
        }
    }

    /// What was read so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Doubts about the records so far, in words.
    pub fn warnings(&self) -> Vec<String> {
        let order = self.order.backwards().map(|back| {
            let Backwards { requests, most_ns, place } = back;
            format!(
                "{}: {} {} after later ones, by up to {} ({place}): a replay on the clock sends them at once",
                self.name,
                of(*requests, "request"),
                if *requests == 1 { "comes" } else { "come" },
                order::seconds(*most_ns)
            )
        });
        let before = (self.before_first > 0).then(|| {
            format!(
                "{}: {} {} a time before that of the first one, from which times count: such a time counts as 0",
                self.name,
                of(self.before_first, "request"),
                if self.before_first == 1 { "has" } else { "have" }
            )
        });
        let last = match &self.decoder {
            Decoder::Lines(lines) => lines.unended(),
            Decoder::Vscsi(_) | Decoder::Blktrace(_) | Decoder::Fbt(_) => None,
        };
        let last = last.map(|line| {
            format!(
                "{}: {}: the last line has no end of line, and is taken for a whole one: \"{line}\"",
                self.name,
                self.decoder.position()
            )
        });
        order.into_iter().chain(before).chain(last).collect()
    }

    /// Why a trace without a request is none.
    fn empty(&self) -> Error {
        let Counts { ignored, bad, first_bad, .. } = &self.counts;
        let of = self.options.device.map(|device| format!(" of device {device}"));
        let bad =
            first_bad.as_ref().map(|first| format!(", and {bad} bad records, the first: {first}"));
        let message = format!(
            "{}: no read or write{} is in it: it has {ignored} other things (headers, other commands, other devices){}",
            self.name,
            of.unwrap_or_default(),
            bad.unwrap_or_default()
        );
        Error::new(ErrorKind::Empty, message)
    }

    fn is_wanted(&self, device: u32) -> bool {
        self.options.device.is_none_or(|wanted| wanted == device)
    }

    /// The error that ends the reading, with the records passed over before it.
    fn too_bad(&self, message: String) -> String {
        let Some(first) = &self.counts.first_bad else { return message };
        let bad = self.counts.bad;
        format!(
            "{message}; more than {bad} bad records are not to be passed over, the first: {first}"
        )
    }

    /// Checks a decoded request and sets its time to the trace's own.
    fn check(&mut self, raw: Raw) -> Result<Record, String> {
        let Raw { time_ns, op, offset, len, device, latency_ns } = raw;
        if len > LEN_MAX {
            return Err(format!("length {len} is beyond {LEN_MAX} bytes"));
        }
        if offset > END_MAX - len && !cfg!(feature = "planted-bugs") {
            return Err(format!("offset {offset} is beyond {END_MAX} bytes"));
        }
        if self.last_device != Some(device) {
            self.devices.number(device)?;
            self.last_device = Some(device);
        }
        let decoder = &self.decoder;
        self.order.check(time_ns, || decoder.position())?;
        let first = *self.first_time_ns.get_or_insert(time_ns);
        self.before_first += u64::from(time_ns < first);
        let time_ns = time_ns.saturating_sub(first);
        Ok(Record { time_ns, op, offset, len: len as u32, device, latency_ns })
    }
}

impl Iterator for Reader {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Result<Record, Error>> {
        while !self.ended {
            let Some(step) = self.decoder.step(&mut self.source) else {
                self.ended = true;
                return (self.counts.records == 0).then(|| Err(self.empty()));
            };
            let bad = match step {
                Ok(Item::Nothing) => continue,
                Ok(Item::Request(raw)) if raw.len > 0 && self.is_wanted(raw.device) => {
                    match self.check(raw) {
                        Ok(record) => {
                            self.counts.records += 1;
                            return Some(Ok(record));
                        }
                        Err(what) => what,
                    }
                }
                Ok(_) => {
                    self.counts.ignored += 1;
                    continue;
                }
                Err(Failure::Bad(what)) => what,
                Err(Failure::Io(source)) => {
                    self.ended = true;
                    let place = format!("{}: after {}", self.name, self.decoder.position());
                    return Some(Err(Error::io(place, source)));
                }
            };
            let message = format!("{}: {}: {bad}", self.name, self.decoder.position());
            if self.counts.bad == self.options.skip_bad {
                self.ended = true;
                return Some(Err(Error::new(ErrorKind::BadRecord, self.too_bad(message))));
            }
            self.counts.bad += 1;
            self.counts.first_bad.get_or_insert(message);
        }
        None
    }
}

#[cfg(test)]
mod damaged;
#[cfg(test)]
mod round_trips;
#[cfg(test)]
mod tests;
