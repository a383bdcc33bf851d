//! A written trace reads again as it was.

use std::fs::File;
use std::io::Cursor;

use proptest::prelude::*;

use super::tests::written;
use super::*;

/// Writes and reads again.
fn through(format: Format, records: &[Record]) -> Vec<Record> {
    let reader =
        Reader::new(Cursor::new(written(format, records)), "x", &Options::default()).unwrap();
    assert_eq!(reader.format(), format, "found by content");
    reader.collect::<Result<_, _>>().unwrap()
}

/// The parts of a record that a format keeps: its unit of time, latencies, devices.
fn kept(format: Format, record: &Record) -> Record {
    let to = |ns: u64, unit: u64| ns / unit * unit;
    let (unit, latency_unit) = match format {
        Format::Fbt => (1, Some(1)),
        Format::Msr => (100, Some(100)),
        Format::VscsiV2 => (1000, Some(1000)),
        _ => (1000, None),
    };
    let latency_ns = record.latency_ns.zip(latency_unit).map(|(ns, unit)| to(ns, unit));
    // A latency of nothing is an unknown one, but for Forebay's own format.
    let latency_ns = latency_ns.filter(|&ns| ns > 0 || format == Format::Fbt);
    Record { time_ns: to(record.time_ns, unit), latency_ns, ..*record }
}

const WRITTEN: [Format; 7] = [
    Format::Fbt,
    Format::VscsiV1,
    Format::VscsiV2,
    Format::VscsiCsv,
    Format::Msr,
    Format::Fio2,
    Format::Fio3,
];

fn sectors() -> impl Strategy<Value = Vec<Record>> {
    let latency = prop::option::of(0..10_000_000_000u64);
    let one = (0..10_000_000u64, any::<bool>(), 0..1u64 << 50, 1..2048u32, latency);
    prop::collection::vec(one, 1..200).prop_map(|all| {
        let mut time_ns = 0;
        let record = |(n, (pause, reads, sector, sectors, latency_ns))| {
            time_ns += if n == 0 { 0 } else { pause };
            let op = if reads { Op::Read } else { Op::Write };
            let (offset, len) = (sector * 512, sectors * 512);
            Record { time_ns, op, offset, len, device: 0, latency_ns }
        };
        all.into_iter().enumerate().map(record).collect()
    })
}

proptest! {
    #[test]
    fn every_written_format_gives_back_what_it_keeps(all in sectors()) {
        for format in WRITTEN {
            let expect: Vec<_> = all.iter().map(|record| kept(format, record)).collect();
            prop_assert_eq!(through(format, &all), expect, "{}", format);
        }
    }

    #[test]
    fn our_own_format_gives_back_anything(
        all in prop::collection::vec(
            (0..1u64 << 62, any::<bool>(), 0..END_MAX - LEN_MAX, 1..=LEN_MAX as u32, any::<u32>(),
             prop::option::of(0..u64::MAX / 2)),
            1..100,
        ),
    ) {
        let record = |&(time_ns, reads, offset, len, device, latency_ns): &(_, bool, _, _, _, _)| {
            let op = if reads { Op::Read } else { Op::Write };
            Record { time_ns, op, offset, len, device, latency_ns }
        };
        let mut all: Vec<Record> = all.iter().map(record).collect();
        all.sort_by_key(|record| record.time_ns);
        let first = all[0].time_ns;
        for record in &mut all {
            // A trace is not always in order of time.
            let earlier = record.offset % 300_000_000_000;
            record.time_ns = (record.time_ns - first).saturating_sub(earlier);
        }
        prop_assert_eq!(through(Format::Fbt, &all), all);
    }
}

/// A kernel and a file system ask for other things than a generator makes up.
#[test]
fn recorded_traces_survive_every_written_format() {
    for name in ["pgbench", "build"] {
        let path = format!("{}/../../traces/{name}.fbt", env!("CARGO_MANIFEST_DIR"));
        let reader = Reader::open(path.as_ref(), &Options::default()).unwrap();
        let all: Vec<Record> = reader.collect::<Result<_, _>>().unwrap();
        let bytes = std::fs::metadata(&path).unwrap().len();
        assert!(bytes < 2 << 20 && all.len() > 10_000, "{name}: {bytes} bytes, {}", all.len());
        for format in WRITTEN {
            let expect: Vec<_> = all.iter().map(|record| kept(format, record)).collect();
            assert!(through(format, &all) == expect, "{name} as {format}");
        }
    }
}

fn line(n: u64) -> Record {
    let op = if n.is_multiple_of(3) { Op::Write } else { Op::Read };
    let offset = n * n * 7919 % (1 << 20) * 512;
    Record { time_ns: n * 1000, op, offset, len: 4096, device: (n % 5) as u32, latency_ns: None }
}

#[test]
fn a_long_trace_has_several_blocks_and_few_bytes_per_request() {
    let all: Vec<_> = (0..100_000).map(line).collect();
    let packed = written(Format::Fbt, &all);
    assert!(packed.len() < 6 * all.len(), "{}", packed.len());
    assert_eq!(through(Format::Fbt, &all), all);
    for format in [Format::Msr, Format::Fio2, Format::Fio3] {
        assert_eq!(through(format, &all).len(), all.len());
    }
}

#[test]
fn the_times_of_a_log_for_fio_begin_after_zero() {
    let one = |time_ns| Record {
        time_ns,
        op: Op::Read,
        offset: 0,
        len: 4096,
        device: 0,
        latency_ns: None,
    };
    let text = |format| String::from_utf8(written(format, &[one(0), one(5000)])).unwrap();
    let [of_version_3, of_version_2] = [Format::Fio3, Format::Fio2].map(text);
    let expect = "\n1 disk0 read 0 4096\n6 disk0 read 0 4096\n";
    assert!(of_version_3.contains(expect), "{of_version_3}");
    let expect = "\ndisk0 read 0 4096\ndisk0 wait 5 0\n";
    assert!(of_version_2.contains(&format!("disk0 open{expect}")), "{of_version_2}");
}

#[test]
fn a_trace_of_nothing_is_of_our_format_and_says_that_it_is_empty() {
    let file = written(Format::Fbt, &[]);
    let mut reader = Reader::new(Cursor::new(file), "x", &Options::default()).unwrap();
    assert_eq!(reader.next().unwrap().unwrap_err().kind(), ErrorKind::Empty);
}

fn error_of(file: Vec<u8>) -> (usize, String) {
    let reader = Reader::new(Cursor::new(file), "x", &Options::default()).unwrap();
    let mut records = 0;
    for record in reader {
        match record {
            Ok(_) => records += 1,
            Err(error) => return (records, error.to_string()),
        }
    }
    (records, String::new())
}

#[test]
fn a_trace_that_was_cut_off_gives_what_is_whole_and_then_tells() {
    let all: Vec<_> = (0..40_000).map(line).collect();
    let file = written(Format::Fbt, &all);
    let (mut last, mut seen) = (0, Vec::new());
    for len in (17..file.len()).step_by(file.len() / 300).chain([file.len() - 1]) {
        let (records, error) = error_of(file[..len].to_vec());
        assert!(error.contains("was cut off here"), "{len}: {error}");
        assert!(records >= last && records % (1 << 14) == 0 || records == 40_000);
        (last, seen) = (records, [seen, vec![records]].concat());
    }
    assert_eq!(last, 40_000, "all but the index");
    seen.dedup();
    assert_eq!(seen, [0, 1 << 14, 2 << 14, 40_000]);
}

#[test]
fn what_was_written_before_a_cut_is_in_the_file() {
    let (folder, all) = (tempfile::tempdir().unwrap(), (0..1000).map(line).collect::<Vec<_>>());
    let path = folder.path().join("cut.fbt");
    let mut writer = Writer::to_file(File::create(&path).unwrap(), &path, Format::Fbt).unwrap();
    for (n, record) in all.iter().enumerate() {
        writer.write(record).unwrap();
        if [9, 499, 500].contains(&n) {
            writer.cut().unwrap();
            writer.cut().unwrap();
            let (records, error) = error_of(std::fs::read(&path).unwrap());
            assert_eq!((records, error.contains("was cut off here")), (n + 1, true), "{error}");
        }
    }
    writer.finish().unwrap();
    let reader = Reader::open(&path, &Options::default()).unwrap();
    assert_eq!(reader.collect::<Result<Vec<_>, _>>().unwrap(), all);
}

#[test]
fn no_wrong_bit_goes_unnoticed() {
    let all: Vec<_> = (0..300).map(line).collect();
    let file = written(Format::Fbt, &all);
    for bit in 0..file.len() * 8 {
        let mut wrong = file.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        let opened = Reader::new(Cursor::new(wrong), "x", &Options::default());
        let Ok(reader) = opened else { continue };
        assert!(reader.into_iter().any(|record| record.is_err()), "bit {bit}");
    }
    let mut longer = file.clone();
    longer.push(0);
    assert!(error_of(longer).1.contains("is not the end of the file"));
}

#[test]
fn a_block_with_damaged_contents_is_one_bad_record() {
    let all: Vec<_> = (0..40_000).map(line).collect();
    let mut file = written(Format::Fbt, &all);
    // Behind the headers of the file and of its first block.
    file[16 + 40] ^= 1;
    assert!(error_of(file.clone()).1.contains("block 1: its contents are damaged"));
    let options = Options { skip_bad: 1, ..Options::default() };
    let mut reader = Reader::new(Cursor::new(file), "x", &options).unwrap();
    let found: Vec<Record> = reader.by_ref().map(Result::unwrap).collect();
    let Counts { records, bad, .. } = *reader.counts();
    assert_eq!((records, bad), (40_000 - (1 << 14), 1));
    assert_eq!(found.last().unwrap().offset, all.last().unwrap().offset);
}

#[test]
fn a_newer_version_is_refused_politely() {
    let mut file = written(Format::Fbt, &[line(1)]);
    file[8] = 2;
    let sum = forebay_core::sealed::crc32c(&file[..12]).to_le_bytes();
    file[12..16].copy_from_slice(&sum);
    let (_, error) = error_of(file);
    assert!(error.contains("version 2 of the format; this program reads version 1"), "{error}");
}

#[test]
fn what_a_format_has_no_place_for_is_refused() {
    let write = |format, records: &[Record]| {
        let mut writer = Writer::new(std::io::sink(), "x", format).unwrap();
        records.iter().try_for_each(|record| writer.write(record)).unwrap_err().to_string()
    };
    let at = |offset, device| Record { offset, device, ..line(1) };
    for format in [Format::VscsiV1, Format::VscsiV2, Format::VscsiCsv] {
        let error = write(format, &[at(0, 0), at(513, 0)]);
        assert!(error.contains("request 2 cannot be written as vscsi"), "{error}");
        assert!(error.contains("byte 513 is not the start of a sector"), "{error}");
        let error = write(format, &[at(0, 4), at(0, 5)]);
        assert!(error.contains("this is 5 after 4: choose one, or write fbt or msr"), "{error}");
    }
    let error = Writer::new(std::io::sink(), "x", Format::Arc).unwrap_err().to_string();
    assert!(error.contains("arc traces are only read: write one of fbt, vscsi1"), "{error}");
}

#[test]
fn the_name_of_a_file_tells_its_format_and_what_compresses_it() {
    let folder = tempfile::tempdir().unwrap();
    let all: Vec<_> = (0..5000).map(|n| Record { device: 0, ..line(n) }).collect();
    for (name, format) in [
        ("a.fbt", Format::Fbt),
        ("a.vscsi.zst", Format::VscsiV1),
        ("a.vscsi2.gz", Format::VscsiV2),
        ("a.msr.xz", Format::Msr),
        ("a.iolog", Format::Fio3),
        ("a.fio2", Format::Fio2),
    ] {
        let path = folder.path().join(name);
        assert_eq!(Format::of_name(&path).unwrap(), format);
        let mut writer = Writer::to_file(File::create(&path).unwrap(), &path, format).unwrap();
        all.iter().for_each(|record| writer.write(record).unwrap());
        assert_eq!(writer.records(), 5000);
        writer.finish().unwrap();
        let reader = Reader::open(&path, &Options::default()).unwrap();
        assert_eq!(reader.format(), format);
        assert!(reader.map(Result::unwrap).eq(all.iter().copied()), "{name}");
    }
    let error = Format::of_name(Path::new("a.csv")).unwrap_err().to_string();
    assert!(error.contains("does not tell the format to write: name it, one of fbt"), "{error}");
}
