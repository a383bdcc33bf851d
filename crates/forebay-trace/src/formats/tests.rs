mod samples;

use std::io::Cursor;

use proptest::prelude::*;

pub(super) use samples::*;

use super::*;

pub(super) fn open(bytes: impl Into<Vec<u8>>, options: Options) -> Result<Reader, Error> {
    Reader::new(Cursor::new(bytes.into()), "x.trace", &options)
}

fn records(bytes: impl Into<Vec<u8>>, options: Options) -> Vec<Record> {
    open(bytes, options).unwrap().collect::<Result<_, _>>().unwrap()
}

fn record(time_ns: u64, op: Op, offset: u64, len: u32, device: u32) -> Record {
    Record { time_ns, op, offset, len, device, latency_ns: None }
}

/// With its latency.
fn timed(record: Record, latency_ns: u64) -> Record {
    Record { latency_ns: Some(latency_ns), ..record }
}

#[test]
fn both_binary_versions_read_the_same() {
    for version in [vscsi::Version::V1, vscsi::Version::V2] {
        let mut reader = open(vscsi_file(version), Options::default()).unwrap();
        let found: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
        let expect = [
            record(0, Op::Write, 4096, 512, 0),
            record(10_000, Op::Read, 63 * 512, 4096, 0),
            record(20_000, Op::Read, 1 << 42, 69_632, 0),
        ]
        .map(|record| match version {
            vscsi::Version::V1 => record,
            vscsi::Version::V2 => timed(record, 99_000),
        });
        assert_eq!(found, expect, "{version:?}");
        assert_eq!((reader.counts().records, reader.counts().ignored), (3, 1));
    }
}

#[test]
fn a_request_that_is_requeued_and_issued_again_is_one() {
    let of_text = ["D", "R", "D", "C"].into_iter().zip(1..);
    let text: String = of_text
        .map(|(action, time)| format!("8,0 1 {time} 0.00000{time}000 5 {action} W 8 + 8 [0]\n"))
        .collect();
    let binary = [7, 6, 7, 8].into_iter().zip(1..);
    let binary: Vec<u8> = binary
        .flat_map(|(action, time)| blktrace(time * 1000, 8, 4096, WRITE | action, 7, b""))
        .collect();
    for bytes in [text.into_bytes(), binary] {
        let expect = timed(record(0, Op::Write, 4096, 4096, 0), 1000);
        assert_eq!(records(bytes, Options::default()), [expect]);
    }
}

#[test]
fn a_binary_trace_of_the_block_layer_pairs_issues_with_completions() {
    let expect = [
        timed(record(0, Op::Read, 4096, 4096, 0), 8000),
        timed(record(200, Op::Write, 8192, 512, 1), 300),
        record(8400, Op::Write, 12_288, 1024, 0),
    ];
    let mut reader = open(blktrace_file(), Options::default()).unwrap();
    let found: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(found, expect);
    // The process, what was queued, the discard.
    assert_eq!((reader.counts().records, reader.counts().ignored), (3, 3));
}

#[test]
fn a_trace_without_issues_has_the_requests_that_were_queued_or_that_completed() {
    let queued: String =
        BLKPARSE.lines().filter(|line| !line.contains("  D  ")).map(|l| format!("{l}\n")).collect();
    let found = records(queued.clone(), Options::default());
    assert_eq!(found, [timed(record(0, Op::Read, 282_624 * 512, 4096, 0), 13_163_464)]);
    let completed: String =
        queued.lines().filter(|line| !line.contains("  Q  ")).map(|l| format!("{l}\n")).collect();
    let found = records(completed, Options::default());
    let expect =
        [record(0, Op::Write, 8192, 8192, 0), record(13_144_464, Op::Read, 282_624 * 512, 4096, 1)];
    assert_eq!(found, expect);
}

#[test]
fn requests_that_never_complete_are_not_kept_for_ever() {
    let line = |n: u64, action| format!("8,0 0 {n} 0.{n:09} 1 {action} R {} + 8 [x]\n", n * 8);
    let lines: String = (0..10_000).map(|n| line(n, "D")).collect();
    let mut reader = open(lines, Options::default()).unwrap();
    let mut early = 0;
    while reader.decoder.position() != "line 9999" {
        assert!(reader.next().unwrap().is_ok());
        early += 1;
    }
    assert!(early >= 9999 - 4096 - 1, "{early}");
    assert_eq!(early + reader.count(), 10_000);
}

#[test]
fn text_formats_read_times_places_and_devices() {
    let cases: [(&str, &[Record]); 11] = [
        (
            VSCSI_CSV,
            &[
                record(0, Op::Write, 24_048_792 * 512, 4096, 0),
                record(10_000, Op::Write, 4096, 512, 0),
                record(12_000, Op::Read, 8192, 8192, 0),
            ],
        ),
        (
            MSR,
            &[
                timed(record(0, Op::Write, 7_014_912, 4096, 0), 2600),
                timed(record(1000, Op::Read, 512, 1024, 1), 3000),
                timed(record(1100, Op::Read, 0, 512, 2), 3000),
                timed(record(1200, Op::Read, 8192, 4096, 0), 100),
            ],
        ),
        (
            SSDSIM,
            &[
                record(0, Op::Write, 303_567 * 512, 3584, 0),
                record(26_214_000, Op::Read, 303_574 * 512, 4096, 21),
            ],
        ),
        (
            DISKSIM,
            &[
                record(0, Op::Write, 303_574 * 512, 512, 0),
                record(286_000, Op::Read, 240_840 * 512, 1024, 0),
            ],
        ),
        (
            ARC,
            &[
                record(0, Op::Read, 230_027 * 512, 4096, 0),
                record(0, Op::Read, 1_842_745 * 512, 32_768, 0),
            ],
        ),
        (
            SPC,
            &[
                record(0, Op::Write, 20_941_264 * 512, 8192, 0),
                record(2_335_000, Op::Read, 20_939_840 * 512, 8192, 1),
            ],
        ),
        (
            ALIBABA,
            &[
                record(0, Op::Write, 8_792_731_648, 16_384, 419),
                record(23_000, Op::Read, 512, 4096, 419),
            ],
        ),
        (
            TENCENT,
            &[
                record(0, Op::Write, 202_471_424 * 512, 4096, 1283),
                record(1_000_000_000, Op::Read, 42_983_424 * 512, 8192, 1360),
            ],
        ),
        (FIO2, &[record(0, Op::Read, 61_440, 4096, 0), record(1_500_000, Op::Write, 512, 1024, 1)]),
        (FIO3, &[record(0, Op::Read, 61_440, 4096, 0), record(1_500_000, Op::Write, 512, 1024, 1)]),
        (
            BLKPARSE,
            &[
                timed(record(0, Op::Read, 282_624 * 512, 4096, 0), 13_158_002),
                timed(record(3538, Op::Write, 8192, 8192, 1), 10_000),
                record(13_394_538, Op::Write, 12_288, 4096, 0),
            ],
        ),
    ];
    for (text, expect) in cases {
        assert_eq!(records(text, Options::default()), expect, "{text}");
        let dos = text.replace('\n', "\r\n\r\n");
        assert_eq!(records(dos.trim_end(), Options::default()), expect, "{text}");
    }
}

#[test]
fn the_format_is_found_by_content_plain_and_compressed() {
    for (format, bytes) in samples() {
        assert_eq!(open(bytes.clone(), Options::default()).unwrap().format(), format);
        for packing in 1..4 {
            let mut reader = open(packed(&bytes, packing), Options::default()).unwrap();
            assert_eq!(reader.format(), format);
            let unpacked: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
            assert_eq!(unpacked, records(bytes.clone(), Options::default()));
        }
    }
}

/// Plain, or as zstd, gzip or xz make it.
pub(super) fn packed(bytes: &[u8], packing: u8) -> Vec<u8> {
    match packing {
        0 => bytes.to_vec(),
        1 => zstd::encode_all(bytes, 3).unwrap(),
        2 => {
            let mut packed = Vec::new();
            flate2::read::GzEncoder::new(bytes, flate2::Compression::fast())
                .read_to_end(&mut packed)
                .unwrap();
            packed
        }
        _ => {
            let mut packed = Vec::new();
            liblzma::read::XzEncoder::new(bytes, 1).read_to_end(&mut packed).unwrap();
            packed
        }
    }
}

#[test]
fn an_xz_file_that_needs_much_memory_is_refused() {
    let needs = |len: u32| {
        let mut options = liblzma::stream::LzmaOptions::new_preset(0).unwrap();
        options.dict_size(len);
        let mut filters = liblzma::stream::Filters::new();
        filters.lzma2(&options);
        let check = liblzma::stream::Check::Crc32;
        let stream = liblzma::stream::Stream::new_stream_encoder(&filters, check).unwrap();
        let mut packed = Vec::new();
        let lines = &b"0 0 0 8 1\n"[..];
        liblzma::read::XzEncoder::new_stream(lines, stream).read_to_end(&mut packed).unwrap();
        packed
    };
    assert_eq!(records(needs(64 << 20), Options::default()).len(), 1);
    let error = open(needs(512 << 20), Options::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
}

#[test]
fn a_trace_of_more_disks_than_anybody_has_is_refused() {
    let line = |disk: u32| format!("{disk} {disk} {} 8 1\n", disk * 8);
    let lines: String = (0..1 << 16).map(line).collect();
    assert_eq!(records(lines.clone().into_bytes(), Options::default()).len(), 1 << 16);
    let mut reader = open((lines + &line(1 << 16)).into_bytes(), Options::default()).unwrap();
    let error = reader.find_map(Result::err).expect("one disk too many").to_string();
    assert!(error.contains("more than 65536 disks"), "{error}");
}

#[test]
fn files_longer_than_the_sample_read_to_their_end() {
    let lines: String = (0..50_000).map(|i| format!("{i} 0 {} 8 1\n", i * 8)).collect();
    for packed in [lines.clone().into_bytes(), zstd::encode_all(lines.as_bytes(), 1).unwrap()] {
        let found = records(packed, Options::default());
        assert_eq!(found.len(), 50_000);
        assert_eq!(found.last(), Some(&record(49_999, Op::Read, 49_999 * 4096, 4096, 0)));
    }
}

#[test]
fn unknown_content_is_refused_with_what_it_looks_like_or_the_formats() {
    let cases: [(&[u8], &str); 9] = [
        (b"", "it is empty"),
        (b" \n\n", "it is empty"),
        (b"hello world\n", "it starts with \"hello world\""),
        (b"hello world\n", "fbt, vscsi1, vscsi2, vscsi-csv, msr, ssdsim, mqsim, disksim, arc"),
        (b"\0\x01\x02\x03", "it is binary and starts with the bytes 00 01 02 03."),
        (&[0; 4096][..], "starts with the bytes 00 00 00 00 00 00 00 00."),
        (b"\x65\x61\x74\x07\0\0\0\0", "big-endian"),
        (b"Histogram: IO lengths,x", "histograms"),
        (b"1 2 3\n", "it starts with \"1 2 3\""),
    ];
    for (bytes, expect) in cases {
        let error = open(bytes, Options::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownFormat);
        assert!(error.to_string().contains(expect), "{error}");
        assert!(error.to_string().starts_with("x.trace: "), "{error}");
    }
}

#[test]
fn a_bad_record_is_named_with_its_place_and_what_is_wrong() {
    let v1 = vscsi_file(vscsi::Version::V1);
    let text = |text: &str| text.as_bytes().to_vec();
    let cases = [
        (text("0 0 8 8 1\n1 0 8 8\n"), "line 2: 4 fields, not 5 (time, device, sector"),
        (text("0 0 8 8 1\n\n1 0 x 8 1\n"), "line 3: sector \"x\" is not a whole number"),
        (text("0 0 8 8 1\n1 0 -8 8 1\n"), "sector \"-8\" is not a whole number"),
        (text("0 0 8 8 1\n1 0 +8 8 1\n"), "sector \"+8\" is not a whole number"),
        (text("0 0 8 8 1\n1 0 8 8 2\n"), "type \"2\" is neither 0 nor 1"),
        (text("0 0 8 8 1\n-1 0 8 8 1\n"), "time \"-1\" is not a time"),
        (text("0 0 8 8 1\n1e9 0 8 8 1\n"), "time \"1e9\" is not a time"),
        (text("0 0 8 8 1\n99999999999999999999 0 8 8 1\n"), "is not a time"),
        (text("0 0 8 8 1\n1 4294967296 8 8 1\n"), "device 4294967296 is too large"),
        (text("0 0 8 8 1\n1 0 99999999999999999 8 1\n"), "sector 99999999999999999 is too large"),
        (text("0 0 8 8 1\n1 0 9007199254740992 8 1\n"), "offset 4611686018427387904 is beyond"),
        (text("0 0 8 8 1\n1 0 8 2097153 1\n"), "length 1073742336 is beyond"),
        (text(&MSR.replace("Read,512", "Trim,512")), "type \"Trim\" is neither Read nor Write"),
        (text(&MSR.replacen(",30\n", "\n", 1)), "line 3: 6 fields, not 7"),
        (text(&VSCSI_CSV.replace(",42,", ",4;2,")), "line 4: command \"4;2\" is no word"),
        (b"0 0 8 8 1\n\xff\xfe\n".to_vec(), "line 2: not text"),
        (text(&format!("0 0 8 8 1\n{}", "9".repeat(9000))), "line 2: longer than 4096 bytes"),
        (v1[..v1.len() - 1].to_vec(), "record 4: the file ends after 31 of its 32 bytes"),
        (
            text(&FIO3.replace("a datasync", "a frob")),
            "line 5: no line of an iolog: \"208 a frob 0 0\"",
        ),
        (text(&FIO2.replace("wait 1500", "wait x")), "line 5: wait \"x\" is not a whole number"),
        (text(&SPC.replace(",r,", ",t,")), "line 2: opcode \"t\" is neither r nor w"),
        (text(&ALIBABA.replace(",R,", ",T,")), "line 2: opcode \"T\" is neither R nor W"),
        (text(&TENCENT.replace(",0,", ",2,")), "line 2: type \"2\" is neither 0 nor 1"),
        (blktrace_file()[..404].to_vec(), "event 8: the file ends after 47 of its 48 bytes"),
    ];
    for (bytes, expect) in cases {
        let mut reader = open(bytes.clone(), Options::default()).unwrap();
        let error = reader.find_map(Result::err).expect(expect);
        assert_eq!(error.kind(), ErrorKind::BadRecord);
        assert!(error.to_string().contains(expect), "{error}, not {expect}");
        assert!(reader.next().is_none(), "the trace ends at the error");

        let mut reader = open(bytes, Options { skip_bad: 1, ..Options::default() }).unwrap();
        assert!(reader.by_ref().count() > 0);
        assert_eq!(reader.counts().bad, 1);
        assert!(reader.counts().first_bad.as_ref().unwrap().contains(expect));
    }
}

#[test]
fn reading_goes_on_after_a_line_that_was_passed_over() {
    let text = format!("0 0 8 8 1\n{}\n5 0 8 8 1\nx\n7 0 8 8 0", "a".repeat(100_000));
    let reading =
        |skip_bad| open(text.clone(), Options { skip_bad, ..Options::default() }).unwrap();
    for enough in [2, u64::MAX] {
        let mut reader = reading(enough);
        let times: Vec<_> = reader.by_ref().map(|record| record.unwrap().time_ns).collect();
        assert_eq!(times, [0, 5, 7]);
        assert_eq!(reader.counts().bad, 2);
    }
    let mut reader = reading(1);
    let error = reader.find_map(Result::err).expect("one too many").to_string();
    let says = "line 4: 1 fields, not 5 (time, device, sector, sectors, type): \"x\"; more than 1 bad records are not to be passed over";
    assert!(error.contains(says) && error.contains("the first: "), "{error}");
    assert!(error.contains("line 2: longer than 4096 bytes"), "{error}");
    assert!(reader.next().is_none());
}

#[test]
fn what_numbers_are_taken_for_is_told_unless_it_was_said() {
    let guess = |text: &str, options| open(text, options).unwrap().guess();
    let default = Options::default();
    let (nanos, millis) = (TimeUnit::Nanoseconds, TimeUnit::Milliseconds);
    let of = |time_unit, len_unit| Guess { time_unit, len_unit };
    assert_eq!(guess("0 0 8 8 1\n", default), of(Some(nanos), Some(512)));
    assert_eq!(guess("0.5 0 8 8 1\n", default), of(Some(millis), Some(512)));
    let time_unit = Options { time_unit: Some(millis), ..default };
    assert_eq!(guess("0 0 8 8 1\n", time_unit), of(None, Some(512)));
    let both = Options { len_unit: Some(4096), ..time_unit };
    assert_eq!(guess("0 0 8 8 1\n", both), Guess::default());
    assert_eq!(guess(MSR, default), Guess::default());
}

#[test]
fn a_damaged_compressed_file_is_an_error_not_an_end() {
    let lines: String = (0..50_000).map(|i| format!("{i} 0 {} 8 1\n", i * 977 % 10_007)).collect();
    let packed = zstd::encode_all(lines.as_bytes(), 1).unwrap();
    let reader = open(&packed[..packed.len() / 2], Options::default()).unwrap();
    let last = reader.last().unwrap();
    assert_eq!(last.unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn a_format_can_be_forced_and_units_be_set() {
    let read = |text: &str, options| records(text, options)[1];
    let default = Options::default();
    let micros = Options { time_unit: Some(TimeUnit::Microseconds), ..default };
    assert_eq!(read("0 0 8 8 1\n979 0 8 8 1\n", micros).time_ns, 979_000);
    let seconds = Options { time_unit: Some(TimeUnit::Seconds), ..default };
    assert_eq!(read("0 0 8 8 1\n1.000000001 0 8 8 1\n", seconds).time_ns, 1_000_000_001);
    assert_eq!(read("0 0 8 8 1\n.5 0 8 8 1\n", default).time_ns, 500_000);
    let pages = Options { len_unit: Some(4096), ..default };
    assert_eq!(read("0 0 8 8 1\n1 0 8 2 1\n", pages).len, 8192);
    let one_device = Options { device: Some(5), ..default };
    assert_eq!(records("0 0 8 8 1\n1 5 16 8 1\n2 5 8 8 1\n", one_device).len(), 2);

    let forced = Options { format: Some(Format::Arc), ..default };
    let error = open("0 0 8 8 1\n", forced).unwrap().next().unwrap().unwrap_err();
    assert!(error.to_string().contains("line 1: 5 fields, not 4"), "{error}");
}

#[test]
fn times_before_the_first_request_count_as_zero_and_that_is_told() {
    let times = |text: &str| {
        let mut reader = open(text, Options::default()).unwrap();
        let times: Vec<u64> = reader.by_ref().map(|record| record.unwrap().time_ns).collect();
        (times, reader.warnings())
    };
    assert_eq!(times("100 0 8 8 1\n120 0 8 8 1\n110 0 8 8 1\n"), (vec![0, 20, 10], vec![]));
    let (times, warnings) = times("100 0 8 8 1\n90 0 8 8 1\n120 0 8 8 1\n");
    assert_eq!(times, [0, 0, 20]);
    let expect = "x.trace: 1 request has a time before that of the first one, from which times count: such a time counts as 0";
    assert_eq!(warnings, [expect]);
}

#[test]
fn names_parse_and_others_name_the_choices() {
    for (format, name) in Format::ALL {
        assert_eq!(name.parse::<Format>().unwrap(), format);
        assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
    }
    let error = "netapp".parse::<Format>().unwrap_err().to_string();
    assert!(error.contains("use one of fbt, vscsi1, vscsi2, vscsi-csv, msr"), "{error}");
    let error = "min".parse::<TimeUnit>().unwrap_err().to_string();
    assert!(error.contains("use one of ns, us, ms, s"), "{error}");
}

/// The choice of the fuzz target's first byte that forces a format, or leaves it open.
fn choice(format: Option<Format>) -> u8 {
    let place = Format::ALL.iter().position(|&(known, _)| Some(known) == format);
    place.unwrap_or(Format::ALL.len()) as u8
}

fn read_all(bytes: &[u8], format: Option<Format>) {
    fuzzing::trace_reader(&[&[choice(format)], bytes].concat());
}

#[cfg(feature = "planted-bugs")]
#[test]
#[should_panic]
fn the_planted_bug_is_found() {
    read_all(b"9007199254740992 8 0 0\n", Some(Format::Arc));
}

#[cfg(not(feature = "planted-bugs"))]
proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        forced in 0..=Format::ALL.len() as u8,
    ) {
        fuzzing::trace_reader(&[&[forced], &bytes[..]].concat());
        fuzzing::trace_reader(&[&[forced, 0x28, 0xB5, 0x2F, 0xFD], &bytes[..]].concat());
    }

    #[test]
    fn arbitrary_lines_never_panic(
        text in "([-+.,0-9a-z#\t \n]|9999999999|18446744073709551615|read|\u{20ac}){0,100}",
        forced in 0..=Format::ALL.len() as u8,
    ) {
        fuzzing::trace_reader(&[&[forced], text.as_bytes()].concat());
    }

    #[test]
    fn good_files_with_a_few_wrong_bytes_never_panic(
        which in any::<prop::sample::Index>(),
        wrong in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        packing in 0..4u8,
    ) {
        let (format, bytes) = which.get(&samples()).clone();
        let mut bytes = packed(&bytes, packing);
        for (at, byte) in wrong {
            *at.get_mut(&mut bytes) = byte;
        }
        read_all(&bytes, None);
        read_all(&bytes, Some(format));
        read_all(&bytes[..cut.index(bytes.len())], Some(format));
    }
}

proptest! {
    #[test]
    fn decimal_times_are_exact(ns in 0..u64::MAX / 2) {
        let ms = format!("{}.{:06}", ns / 1_000_000, ns % 1_000_000);
        prop_assert_eq!(fields::decimal_ns(&ms, 1_000_000, "time"), Ok(ns));
        let seconds = format!("{}.{:09}77", ns / 1_000_000_000, ns % 1_000_000_000);
        prop_assert_eq!(fields::decimal_ns(&seconds, 1_000_000_000, "time"), Ok(ns));
    }
}
