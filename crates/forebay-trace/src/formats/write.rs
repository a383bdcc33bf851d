//! Writes traces in the formats that can be written.
//!
//! A format loses details that it has no place for: times finer than its unit, latencies. A
//! request that would become another one in it is an error: a place between two sectors, or one
//! of several devices where it knows of one.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::fields::SECTOR;
use super::fio::TITLES;
use super::msr::TICK_NS;
use super::vscsi::Version;
use super::{Format, fbt};
use crate::error::{Error, ErrorKind};
use crate::record::{Op, Record};

/// How hard zstd and xz try.
const ZSTD_LEVEL: i32 = 9;
const XZ_LEVEL: u32 = 6;
/// The first time of a log for fio. fio passes over the pause after a request at time 0.
const FIO_START_US: u64 = 1;

impl Format {
    /// True when traces can be written in it.
    pub fn is_written(self) -> bool {
        match self {
            Format::VscsiV1 | Format::VscsiV2 | Format::VscsiCsv | Format::Msr => true,
            Format::Fio2 | Format::Fio3 | Format::Fbt => true,
            Format::Ssdsim | Format::Arc | Format::Spc | Format::Blkparse => false,
            Format::Blktrace | Format::Alibaba | Format::Tencent => false,
        }
    }

    /// The format that a file's name tells, apart from what compresses it.
    ///
    /// # Errors
    /// It tells none that is written.
    pub fn of_name(path: &Path) -> Result<Format, Error> {
        let plain = match Packing::of(path) {
            Packing::None => path.to_owned(),
            _ => path.with_extension(""),
        };
        let suffix = plain.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        match suffix.as_str() {
            "fbt" => Ok(Format::Fbt),
            "vscsi" | "vscsi1" => Ok(Format::VscsiV1),
            "vscsi2" => Ok(Format::VscsiV2),
            "msr" => Ok(Format::Msr),
            "iolog" | "fio" | "fio3" => Ok(Format::Fio3),
            "fio2" => Ok(Format::Fio2),
            _ => Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "the name {} does not tell the format to write: name it, one of {}",
                    path.display(),
                    written()
                ),
            )),
        }
    }
}

/// The names of the formats that are written.
fn written() -> String {
    let names: Vec<&str> = Format::ALL
        .iter()
        .filter(|(format, _)| format.is_written())
        .map(|&(_, name)| name)
        .collect();
    names.join(", ")
}

/// The compression of a file, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    None,
    Zstd,
    Gzip,
    Xz,
}

impl Packing {
    fn of(path: &Path) -> Packing {
        match path.extension().and_then(|suffix| suffix.to_str()) {
            Some("zst") => Packing::Zstd,
            Some("gz") => Packing::Gzip,
            Some("xz") => Packing::Xz,
            _ => Packing::None,
        }
    }
}

/// Where the bytes go in the end, counted: that may be a pipe.
struct Counted {
    out: Box<dyn Write + Send>,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Where the bytes go, compressed or not.
enum Output {
    Plain(Counted),
    Zstd(zstd::Encoder<'static, Counted>),
    Gzip(flate2::write::GzEncoder<Counted>),
    Xz(liblzma::write::XzEncoder<Counted>),
}

impl Output {
    fn new(packing: Packing, out: Box<dyn Write + Send>) -> io::Result<Output> {
        let out = Counted { out, bytes: 0 };
        Ok(match packing {
            Packing::None => Output::Plain(out),
            Packing::Zstd => Output::Zstd(zstd::Encoder::new(out, ZSTD_LEVEL)?),
            Packing::Gzip => {
                Output::Gzip(flate2::write::GzEncoder::new(out, flate2::Compression::default()))
            }
            Packing::Xz => Output::Xz(liblzma::write::XzEncoder::new(out, XZ_LEVEL)),
        })
    }

    fn as_write(&mut self) -> &mut dyn Write {
        match self {
            Output::Plain(out) => out,
            Output::Zstd(out) => out,
            Output::Gzip(out) => out,
            Output::Xz(out) => out,
        }
    }

    fn finish(self) -> io::Result<u64> {
        let mut out = match self {
            Output::Plain(out) => out,
            Output::Zstd(out) => out.finish()?,
            Output::Gzip(out) => out.finish()?,
            Output::Xz(out) => out.finish()?,
        };
        out.flush()?;
        Ok(out.bytes)
    }
}

/// Makes the bytes of one format.
#[derive(Debug)]
enum Encoder {
    Vscsi(Version),
    VscsiCsv,
    Msr,
    Fio { has_times: bool, devices: Vec<u32>, now_us: u64 },
    Fbt(fbt::Encoder),
}

/// A trace being written; [`Writer::finish`] ends it.
pub struct Writer {
    name: String,
    format: Format,
    encoder: Encoder,
    out: Output,
    text: String,
    records: u64,
    /// The only one, where the format knows of one.
    device: Option<u32>,
}

impl Writer {
    /// Writes to the file `path`, or to what will be it, compressed if its name ends in `.zst`, `.gz` or `.xz`.
    ///
    /// # Errors
    /// The format is one that is only read, or the file cannot be written.
    pub fn to_file(file: File, path: &Path, format: Format) -> Result<Writer, Error> {
        let name = path.display().to_string();
        Writer::with(Box::new(BufWriter::new(file)), &name, format, Packing::of(path))
    }

    /// Writes to anything; `name` is for error messages.
    ///
    /// # Errors
    /// The format is one that is only read.
    pub fn new(
        out: impl Write + Send + 'static,
        name: &str,
        format: Format,
    ) -> Result<Writer, Error> {
        Writer::with(Box::new(out), name, format, Packing::None)
    }

    fn with(
        out: Box<dyn Write + Send>,
        name: &str,
        format: Format,
        packing: Packing,
    ) -> Result<Writer, Error> {
        let encoder = match format {
            Format::VscsiV1 => Encoder::Vscsi(Version::V1),
            Format::VscsiV2 => Encoder::Vscsi(Version::V2),
            Format::VscsiCsv => Encoder::VscsiCsv,
            Format::Msr => Encoder::Msr,
            Format::Fio2 | Format::Fio3 => {
                let has_times = format == Format::Fio3;
                Encoder::Fio { has_times, devices: Vec::new(), now_us: FIO_START_US }
            }
            Format::Fbt => Encoder::Fbt(fbt::Encoder::default()),
            _ => {
                let message = format!("{format} traces are only read: write one of {}", written());
                return Err(Error::new(ErrorKind::Invalid, message));
            }
        };
        let name = name.to_owned();
        let out = Output::new(packing, out).map_err(|error| Error::io(name.clone(), error))?;
        let mut writer =
            Writer { name, format, encoder, out, text: String::new(), records: 0, device: None };
        writer.begin();
        writer.put()?;
        Ok(writer)
    }

    /// Number of requests written so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Writes a request.
    ///
    /// # Errors
    /// The format has no place for it, or the file cannot be written.
    pub fn write(&mut self, record: &Record) -> Result<(), Error> {
        self.check(record)?;
        self.records += 1;
        let (number, text) = (self.records, &mut self.text);
        match &mut self.encoder {
            Encoder::Fbt(encoder) => {
                return encoder
                    .add(self.out.as_write(), record)
                    .map_err(|error| Error::io(format!("cannot write {}", self.name), error));
            }
            Encoder::Vscsi(version) => {
                let bytes = vscsi(*version, number, record);
                return self.put_bytes(&bytes);
            }
            Encoder::VscsiCsv => {
                let op = word(record.op, "read", "write");
                let (sector, micros) = (record.offset / SECTOR, record.time_ns / 1000);
                let _ = writeln!(text, "{number},{},1,{op},{sector},{micros}", record.len);
            }
            Encoder::Msr => {
                let (ticks, op) = (record.time_ns / TICK_NS, word(record.op, "Read", "Write"));
                let response = record.latency_ns.unwrap_or(0) / TICK_NS;
                let (device, offset, len) = (record.device, record.offset, record.len);
                let _ = writeln!(text, "{ticks},forebay,{device},{op},{offset},{len},{response}");
            }
            Encoder::Fio { has_times, devices, now_us } => {
                let time_us = FIO_START_US + record.time_ns / 1000;
                fio(text, (*has_times, devices, now_us), time_us, record);
            }
        }
        self.put()
    }

    /// Puts all requests so far into the file, so that they can be read if the rest never comes.
    /// That works as far as the format, and its compression, can be read when cut off.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn cut(&mut self) -> Result<(), Error> {
        let out = self.out.as_write();
        let cut = match &mut self.encoder {
            Encoder::Fbt(encoder) => encoder.cut(out),
            Encoder::Vscsi(_) | Encoder::VscsiCsv | Encoder::Msr | Encoder::Fio { .. } => Ok(()),
        };
        let cut = cut.and_then(|()| out.flush());
        cut.map_err(|error| Error::io(format!("cannot write {}", self.name), error))
    }

    /// Writes what is missing and lets the file go.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(mut self) -> Result<u64, Error> {
        match &mut self.encoder {
            Encoder::Fbt(encoder) => encoder
                .finish(self.out.as_write())
                .map_err(|error| Error::io(format!("cannot write {}", self.name), error))?,
            Encoder::Fio { has_times, devices, now_us } => {
                for device in devices {
                    let _ = writeln!(self.text, "{}disk{device} close", stamp(*has_times, *now_us));
                }
            }
            Encoder::Vscsi(_) | Encoder::VscsiCsv | Encoder::Msr => {}
        }
        self.put()?;
        let Writer { name, out, .. } = self;
        out.finish().map_err(|error| Error::io(format!("cannot write {name}"), error))
    }

    /// The header before the first request.
    fn begin(&mut self) {
        let title = match &self.encoder {
            Encoder::VscsiCsv => {
                "#Vscsi Cmd Trace. (Trace Format Version 1)\n\
                 #Serial Number,IO Data Length,Num SG Entries,Command Type,LBN,Time Stamp (microseconds)\n"
            }
            Encoder::Fio { has_times, .. } => {
                self.text.push_str(TITLES[usize::from(*has_times)]);
                "\n"
            }
            Encoder::Vscsi(_) | Encoder::Msr | Encoder::Fbt(_) => "",
        };
        self.text.push_str(title);
    }

    /// Refuses what would be another request in this format.
    fn check(&mut self, record: &Record) -> Result<(), Error> {
        let refuse = |what: String| {
            let message = format!(
                "request {} cannot be written as {}: {what}",
                self.records + 1,
                self.format
            );
            Err(Error::new(ErrorKind::Invalid, message))
        };
        let has_one_device = matches!(self.encoder, Encoder::Vscsi(_) | Encoder::VscsiCsv);
        let first = *self.device.get_or_insert(record.device);
        if has_one_device && first != record.device {
            return refuse(format!(
                "the format knows of one device, and this is {} after {first}: choose one, or write fbt or msr",
                record.device
            ));
        }
        if has_one_device && !record.offset.is_multiple_of(SECTOR) {
            return refuse(format!("byte {} is not the start of a sector of 512", record.offset));
        }
        Ok(())
    }

    fn put(&mut self) -> Result<(), Error> {
        let text = std::mem::take(&mut self.text);
        self.put_bytes(text.as_bytes())?;
        self.text = text;
        self.text.clear();
        Ok(())
    }

    fn put_bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.out
            .as_write()
            .write_all(bytes)
            .map_err(|error| Error::io(format!("cannot write {}", self.name), error))
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("name", &self.name).finish_non_exhaustive()
    }
}

fn word(op: Op, read: &'static str, write: &'static str) -> &'static str {
    match op {
        Op::Read => read,
        Op::Write => write,
    }
}

/// The start of a line of fio's.
fn stamp(has_times: bool, now_us: u64) -> String {
    if has_times { format!("{now_us} ") } else { String::new() }
}

/// A request for fio, after what it has to know before: the device, and in version 2 the pause.
fn fio(
    text: &mut String,
    (has_times, devices, now_us): (bool, &mut Vec<u32>, &mut u64),
    time_us: u64,
    record: &Record,
) {
    let Record { device, offset, len, .. } = *record;
    let pause = time_us.saturating_sub(*now_us);
    *now_us = time_us.max(*now_us);
    let stamp = stamp(has_times, time_us);
    if !devices.contains(&device) {
        devices.push(device);
        let _ = writeln!(text, "{stamp}disk{device} add\n{stamp}disk{device} open");
    }
    if !has_times && pause > 0 {
        let _ = writeln!(text, "disk{device} wait {pause} 0");
    }
    let op = word(record.op, "read", "write");
    let _ = writeln!(text, "{stamp}disk{device} {op} {offset} {len}");
}

/// A record of vscsiStats.
fn vscsi(version: Version, number: u64, record: &Record) -> Vec<u8> {
    let opcode: u16 = match record.op {
        Op::Read => 0x28,
        Op::Write => 0x2A,
    };
    let (sector, micros) = (record.offset / SECTOR, record.time_ns / 1000);
    let serial = (number as u32).to_le_bytes();
    let (len, entries) = (record.len.to_le_bytes(), 1u32.to_le_bytes());
    let (opcode, version_bytes) = (opcode.to_le_bytes(), version.number().to_le_bytes());
    let place = [sector.to_le_bytes(), micros.to_le_bytes()].concat();
    match version {
        Version::V1 => [&serial[..], &len, &entries, &opcode, &version_bytes, &place].concat(),
        Version::V2 => {
            let response = (record.latency_ns.unwrap_or(0) / 1000).to_le_bytes();
            [&opcode[..], &version_bytes, &serial, &len, &entries, &place, &response].concat()
        }
    }
}
