//! Finds the format of a trace by its first bytes.
//!
//! Binary formats by the version that every record carries; text formats by the number and kind of
//! the columns of the first lines. A file of a known tool whose format is not read is named in the
//! error.

use super::fields::op;
use super::{Format, blkparse, blktrace, fbt, fio, msr, vscsi, vscsi_csv};
use crate::error::{Error, ErrorKind};

/// Binary records that must agree.
const RECORDS_SAMPLED: usize = 256;
/// Lines that are looked at for the first request.
const LINES_SAMPLED: usize = 64;

/// The format of a file that starts with `sample`.
pub(super) fn detect(sample: &[u8]) -> Result<Format, Error> {
    if sample.iter().all(u8::is_ascii_whitespace) {
        return Err(unknown("it is empty"));
    }
    if let Some(what) = other_tool(sample) {
        return Err(unknown(&format!("it looks like {what}, which is not read yet")));
    }
    let binary = sample.iter().take(4096).any(|&byte| byte < 0x20 && !b"\t\n\r".contains(&byte));
    let found = if binary { detect_binary(sample) } else { detect_text(sample) };
    found.ok_or_else(|| {
        if binary {
            let start: Vec<String> = sample.iter().take(8).map(|b| format!("{b:02x}")).collect();
            return unknown(&format!("it is binary and starts with the bytes {}", start.join(" ")));
        }
        let start = String::from_utf8_lossy(&sample[..sample.len().min(60)]);
        let start = start.lines().next().unwrap_or_default();
        unknown(&format!("it starts with \"{}\"", start.escape_debug()))
    })
}

fn unknown(why: &str) -> Error {
    let names = Format::ALL.map(|(_, name)| name).join(", ");
    let message = format!("no known trace format: {why}. Name the format if it is one of {names}");
    Error::new(ErrorKind::UnknownFormat, message)
}

/// A well-known format that is not among ours.
fn other_tool(sample: &[u8]) -> Option<&'static str> {
    let begins: [(&[u8], &str); 4] = [
        (b"Histogram:", "histograms of vscsiStats"),
        (b"#DUMP_OFFSET", "a NetApp trace"),
        (&[0x65, 0x61, 0x74, 0x07], "a trace that blktrace wrote on a big-endian machine"),
        (b"PK\x03\x04", "a zip file"),
    ];
    begins.iter().find(|(begin, _)| sample.starts_with(begin)).map(|&(_, what)| what)
}

fn detect_binary(sample: &[u8]) -> Option<Format> {
    if fbt::is_of(sample) {
        return Some(Format::Fbt);
    }
    if blktrace::is_of(sample) {
        return Some(Format::Blktrace);
    }
    let all = |version: vscsi::Version| {
        let records = sample.chunks_exact(version.record_len()).take(RECORDS_SAMPLED);
        records.len() > 0 && records.into_iter().all(|record| version.is_of(record))
    };
    match (all(vscsi::Version::V1), all(vscsi::Version::V2)) {
        (true, _) => Some(Format::VscsiV1),
        (false, true) => Some(Format::VscsiV2),
        (false, false) => None,
    }
}

fn detect_text(sample: &[u8]) -> Option<Format> {
    let text = String::from_utf8_lossy(sample);
    text.lines().take(LINES_SAMPLED).find_map(|line| detect_line(line.trim()))
}

/// The format that a line belongs to, `None` when it does not tell.
fn detect_line(line: &str) -> Option<Format> {
    if vscsi_csv::is_header(line) {
        return Some(Format::VscsiCsv);
    }
    if msr::is_header(line) {
        return Some(Format::Msr);
    }
    if let Some(version) = fio::TITLES.iter().position(|title| *title == line) {
        return Some([Format::Fio2, Format::Fio3][version]);
    }
    if blkparse::is_event(line) {
        return Some(Format::Blkparse);
    }
    let is_whole = |field: &&str| {
        let field = field.trim();
        !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_word = |field: &str| {
        let field = field.trim();
        field.eq_ignore_ascii_case("read") || field.eq_ignore_ascii_case("write")
    };
    let columns: Vec<&str> = line.split(',').collect();
    match columns[..] {
        [_, _, _, kind, _, _, _] if is_word(kind) => return Some(Format::Msr),
        [a, b, c, _, e, f] if [a, b, c, e, f].iter().all(is_whole) => {
            return Some(Format::VscsiCsv);
        }
        [a, kind, b, c, d] if op(kind).is_some() && [a, b, c, d].iter().all(is_whole) => {
            return Some(Format::Alibaba);
        }
        [a, b, c, "0" | "1", d] if [a, b, c, d].iter().all(is_whole) => {
            return Some(Format::Tencent);
        }
        [a, b, c, kind, time, ..]
            if op(kind).is_some()
                && [a, b, c].iter().all(is_whole)
                && time.trim().parse::<f64>().is_ok() =>
        {
            return Some(Format::Spc);
        }
        _ => {}
    }
    let columns: Vec<&str> = line.split_ascii_whitespace().collect();
    match columns[..] {
        [time, b, c, d, "0" | "1"]
            if [b, c, d].iter().all(is_whole) && time.parse::<f64>().is_ok() =>
        {
            Some(Format::Ssdsim)
        }
        [a, b, c, d] if [a, b, c, d].iter().all(is_whole) => Some(Format::Arc),
        _ => None,
    }
}
