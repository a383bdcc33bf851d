//! Damaged files of every format: what is wrong with each is said, as an error, as a bad record or as a warning.

use super::tests::{READ, blktrace, open, packed, samples, vscsi, written};
use super::*;

/// What a reader said of a file.
#[derive(Debug, Default)]
struct Said {
    error: Option<Error>,
    records: u64,
    bad: u64,
    warnings: Vec<String>,
}

fn read(format: Format, bytes: &[u8], skip_bad: u64) -> Said {
    let options = Options { format: Some(format), skip_bad, ..Options::default() };
    let mut reader = open(bytes, options).unwrap();
    let error = reader.find_map(Result::err);
    let Counts { records, bad, .. } = *reader.counts();
    Said { error, records, bad, warnings: reader.warnings() }
}

fn is_text(format: Format) -> bool {
    use Format::*;
    !matches!(format, VscsiV1 | VscsiV2 | Blktrace | Fbt)
}

#[test]
fn a_good_file_of_any_format_has_no_warning() {
    for (format, bytes) in samples() {
        let said = read(format, &bytes, 0);
        assert!(said.error.is_none() && said.warnings.is_empty(), "{format}: {said:?}");
    }
}

#[test]
fn a_file_of_any_format_that_ends_within_a_record_says_so() {
    for (format, bytes) in samples() {
        let whole = read(format, &bytes, 0).records;
        for cut in 1..bytes.len() {
            let said = read(format, &bytes[..cut], u64::MAX);
            let is_said = said.bad > 0 || said.error.is_some() || !said.warnings.is_empty();
            let is_between = match format {
                Format::VscsiV1 => cut % 32 == 0,
                Format::VscsiV2 => cut % 40 == 0,
                // The events of the file, the first and the fourth with what follows them.
                Format::Blktrace => [64, 112, 160, 213, 261, 309, 357].contains(&cut),
                Format::Fbt => false,
                _ => bytes[cut - 1] == b'\n' || bytes[cut] == b'\n',
            };
            // A comment may end anywhere, and so may an empty line.
            let line = bytes[..cut].rsplit(|&byte| byte == b'\n').next().unwrap().trim_ascii();
            let is_comment = is_text(format) && (line.is_empty() || line[0] == b'#');
            assert!(is_said || is_between || is_comment, "{format}, {cut} bytes: {said:?}");
            assert!(said.records <= whole);
        }
    }
}

#[test]
fn a_line_of_any_format_that_is_cut_in_the_middle_of_a_file_is_bad_and_shown() {
    for (format, bytes) in samples().into_iter().filter(|(format, _)| is_text(*format)) {
        let text = String::from_utf8(bytes).unwrap();
        let requests = read(format, text.as_bytes(), 0).records;
        let cut = text.lines().position(|line| {
            let alone = read(format, line.as_bytes(), 0);
            alone.error.is_none() && !line.contains("  Q  ")
        });
        let cut = cut.unwrap_or_else(|| panic!("{format} has a line with a request"));
        let lines: Vec<&str> = text.lines().collect();
        let part = lines[cut][..lines[cut].len() / 2].trim();
        let damaged: String = lines
            .iter()
            .enumerate()
            .map(|(at, line)| format!("{}\n", if at == cut { part } else { line }))
            .collect();
        let error = read(format, damaged.as_bytes(), 0).error.expect(part);
        assert_eq!(error.kind(), ErrorKind::BadRecord, "{format}: {error}");
        let message = error.to_string();
        assert!(message.contains(&format!("line {}: ", cut + 1)), "{format}: {message}");
        let shown = part.replace('\t', "\\t");
        assert!(message.contains(&format!("\"{shown}\"")), "{format}: {message}");
        let said = read(format, damaged.as_bytes(), 1);
        assert_eq!((said.bad, said.records), (1, requests - 1), "{format}");
    }
}

#[test]
fn the_last_line_without_its_end_is_taken_and_told() {
    for (format, bytes) in samples().into_iter().filter(|(format, _)| is_text(*format)) {
        let whole = read(format, &bytes, 0);
        let said = read(format, bytes.trim_ascii_end(), 0);
        assert!(said.error.is_none(), "{format}: {said:?}");
        assert_eq!(said.records, whole.records);
        let [warning] = &said.warnings[..] else { panic!("{format}: {said:?}") };
        assert!(warning.contains("the last line has no end of line"), "{warning}");
    }
    let said = read(Format::Alibaba, b"1,W,0,4096,10\n1,W,0,4096,20", 0);
    let expect = "x.trace: line 2: the last line has no end of line, and is taken for a whole one: \"1,W,0,4096,20\"";
    assert_eq!(said.warnings, [expect]);
}

#[test]
fn a_file_of_any_format_without_a_request_is_an_error() {
    for (format, bytes) in samples() {
        let headers: Vec<&[u8]> = match format {
            Format::VscsiCsv => vec![b"Serial Number,IO Data Length\n"],
            Format::Msr => vec![b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n"],
            Format::Blkparse => vec![b"CPU0 (259,2):\n"],
            Format::Fio2 => vec![b"fio version 2 iolog\n", b"fio version 2 iolog\n/dev/a add\n"],
            Format::Fio3 => vec![b"fio version 3 iolog\n", b"fio version 3 iolog\n1 a add\n"],
            _ => vec![],
        };
        let empty: &[u8] = if format == Format::Fbt { &bytes[..16] } else { b"" };
        for file in headers.into_iter().chain([empty]) {
            let said = read(format, file, u64::MAX);
            let error = said.error.unwrap_or_else(|| panic!("{format}"));
            assert_eq!(error.kind(), ErrorKind::Empty, "{format}");
            assert!(error.to_string().contains("no read or write is in it"), "{error}");
        }
    }
    let said = read(Format::Fbt, &written(Format::Fbt, &[]), 0);
    assert_eq!(said.error.unwrap().kind(), ErrorKind::Empty);
    let options = Options { device: Some(7), ..Options::default() };
    let error = open("0 0 8 8 1\n", options).unwrap().next().unwrap().unwrap_err().to_string();
    assert!(error.contains("no read or write of device 7 is in it"), "{error}");
}

#[test]
fn garbage_is_an_error_whatever_format_it_is_taken_for() {
    let noise: Vec<u8> =
        (1..2000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (format, _) in samples() {
        for garbage in [&b"what is this\nand this\n"[..], &noise, &[0; 4096], b"\n\n\n"] {
            let said = read(format, garbage, 0);
            assert!(said.error.is_some() && said.records == 0, "{format}: {said:?}");
            let said = read(format, garbage, u64::MAX);
            assert_eq!(said.error.unwrap().kind(), ErrorKind::Empty, "{format}");
        }
    }
}

/// A request of each format that has times, at this second.
fn at(format: Format, second: u64) -> Option<Vec<u8>> {
    let text = match format {
        Format::VscsiV1 => {
            return Some(vscsi(vscsi::Version::V1, 0x28, 512, 8, second * 1_000_000));
        }
        Format::VscsiV2 => {
            return Some(vscsi(vscsi::Version::V2, 0x28, 512, 8, second * 1_000_000));
        }
        Format::Blktrace => {
            return Some(blktrace(second * 1_000_000_000, 8, 512, READ | 7, 1, b""));
        }
        Format::VscsiCsv => format!("1,512,1,read,8,{}\n", second * 1_000_000),
        Format::Msr => format!("{},hm,0,Read,0,512,30\n", second * 10_000_000),
        Format::Ssdsim => format!("{} 0 8 8 1\n", second * 1_000_000_000),
        Format::Spc => format!("0,8,512,R,{second}.5\n"),
        Format::Blkparse => format!("8,0 0 1 {second}.000000000 1 D R 8 + 8 [x]\n"),
        Format::Fio3 => format!("{} a read 0 512\n", second * 1_000_000),
        Format::Alibaba => format!("1,R,0,512,{}\n", second * 1_000_000),
        Format::Tencent => format!("{second},8,8,0,1\n"),
        // They have no times, or none that can go back, or more than a record for each.
        Format::Arc | Format::Fio2 | Format::Fbt => return None,
    };
    Some(text.into_bytes())
}

fn file_at(format: Format, seconds: &[u64]) -> Option<Vec<u8>> {
    let record = |&second: &u64| Record {
        time_ns: second * 1_000_000_000,
        op: Op::Read,
        offset: 0,
        len: 512,
        device: 0,
        latency_ns: None,
    };
    if format == Format::Fbt {
        return Some(written(format, &seconds.iter().map(record).collect::<Vec<_>>()));
    }
    let requests: Option<Vec<Vec<u8>>> = seconds.iter().map(|&second| at(format, second)).collect();
    requests.map(|requests| requests.concat())
}

#[test]
fn times_that_go_back_far_are_bad_and_less_far_are_told_in_any_format() {
    let mut tried = 0;
    for (format, _) in samples() {
        let Some(hour_back) = file_at(format, &[0, 8000, 4400, 4401]) else { continue };
        tried += 1;
        let error = read(format, &hour_back, 0).error.expect("an hour").to_string();
        let expect = "its time is 3600.0 s before that of the request before it";
        assert!(error.contains(expect), "{format}: {error}");
        let said = read(format, &hour_back, 1);
        assert_eq!((said.bad, said.records), (1, 3), "{format}");
        let told = said.warnings.join("");
        assert!(told.contains("1 request comes after later ones, by up to 3599.0 s"), "{told}");

        let said = read(format, &file_at(format, &[0, 100, 70, 80, 101]).unwrap(), 0);
        assert!(said.error.is_none() && said.records == 5, "{format}: {said:?}");
        let told = said.warnings.join("");
        assert!(told.contains("2 requests come after later ones, by up to 30.0 s"), "{told}");

        let said = read(format, &file_at(format, &[0, 100, 99, 101]).unwrap(), 0);
        assert!(said.error.is_none() && said.warnings.is_empty(), "{format}: {said:?}");
    }
    assert_eq!(tried, 13);
}

#[test]
fn a_compressed_file_that_is_damaged_from_the_beginning_is_not_called_empty() {
    for magic in [&b"\x28\xB5\x2F\xFD"[..], b"\x1F\x8B", b"\xFD7zXZ\0"] {
        let error = open([magic, b" and something else"].concat(), Options::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    }
}

#[test]
fn a_gzip_file_with_a_wrong_trailer_is_damaged_whether_or_not_another_follows() {
    let (first, second) = (packed(b"0 0 8 8 1\n", 2), packed(b"1 0 8 8 1\n", 2));
    for at in 1..=8 {
        let mut wrong = first.clone();
        wrong[first.len() - at] ^= 1;
        for file in [wrong.clone(), [&wrong[..], &second].concat()] {
            let mut reader = open(file, Options::default()).unwrap();
            assert!(reader.next().unwrap().is_ok(), "the line is there");
            let error = reader.next().expect("no end").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            assert!(reader.next().is_none(), "the trace ends at the error");
        }
    }
    let both = open([first, second].concat(), Options::default()).unwrap();
    assert_eq!(both.map(Result::unwrap).count(), 2);
}
