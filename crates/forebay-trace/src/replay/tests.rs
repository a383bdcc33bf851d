mod around;

use std::cell::Cell;

use forebay_backends::{OpenOptions, Uri};
use forebay_io::clock::now_nanos;

use super::*;
use crate::record::Op;
use crate::workload::{self, Workload};

fn target(uri: &str) -> Box<dyn Backend> {
    forebay_backends::open(&uri.parse::<Uri>().unwrap(), OpenOptions::default()).unwrap()
}

fn clock() -> Nanos {
    Nanos(now_nanos())
}

fn run(
    records: &[Record],
    target: &mut dyn Backend,
    settings: &Settings,
) -> Result<Outcome, Error> {
    let summary = Summary::of(records.iter().map(|&record| Ok(record))).unwrap();
    let mut reactor = Reactor::new(256, None).unwrap();
    let records = records.iter().map(|&record| Ok(record));
    replay(records, &summary, target, &mut reactor, settings, &clock, &mut |_| {
        ControlFlow::Continue(())
    })
}

fn record(time_ns: u64, op: Op, offset: u64, len: u32) -> Record {
    Record { time_ns, op, offset, len, device: 0, latency_ns: None }
}

const CLOSED: Pace = Pace::Closed { queue_depth: 8 };

fn closed() -> Settings {
    Settings { pace: CLOSED, memory_bytes: REQUEST_MAX, ..Settings::default() }
}

#[test]
fn every_request_of_a_workload_ends_and_is_counted() {
    let settings = workload::Settings {
        disk_bytes: 64 << 20,
        requests: 2000,
        interval_ns_mean: 10_000,
        seed: 1,
    };
    let records: Vec<_> = Workload::new(settings).collect();
    let summary = Summary::of(records.iter().map(|&record| Ok(record))).unwrap();
    for pace in [CLOSED, Pace::Clock { speed: 1.0 }] {
        let settings = Settings { pace, ..Settings::default() };
        let outcome = run(&records, &mut *target("mem:64MiB"), &settings).unwrap();
        assert_eq!((outcome.reads.count, outcome.writes.count), (summary.reads, summary.writes));
        assert_eq!(outcome.read_bytes, summary.read_bytes);
        assert_eq!(outcome.written_bytes, summary.written_bytes);
        assert_eq!((outcome.errors, outcome.is_cut_short()), (0, false));
        let timed = if pace == CLOSED { 0 } else { 2000 };
        assert_eq!(outcome.lag.count, timed);
        assert!(serde_json::to_string(&outcome).unwrap().contains("\"p99_ns\":"));
    }
}

#[test]
fn open_loop_issues_no_request_before_its_time() {
    let records: Vec<_> =
        (0..20).map(|i| record(i * 2_000_000, Op::Read, i * 4096, 4096)).collect();
    let outcome = run(
        &records,
        &mut *target("mem:1MiB"),
        &Settings { pace: Pace::Clock { speed: 4.0 }, ..Settings::default() },
    )
    .unwrap();
    assert!(outcome.elapsed_ns >= 19 * 500_000, "{outcome:?}");
    assert_eq!(outcome.trace_time_ns, 19 * 2_000_000);
    assert_eq!(outcome.lag.count, 20);
}

#[test]
fn a_dependent_replay_goes_on_past_requests_that_had_not_ended() {
    let timed = |n: u64, latency_ns| Record { latency_ns, ..record(n, Op::Read, n * 4096, 4096) };
    let records = [timed(0, Some(1)), timed(1, None), timed(2, Some(1)), timed(3, None)];
    for speed in [None, Some(1.0)] {
        let settings = Settings { pace: Pace::Dependent { speed }, ..Settings::default() };
        let outcome = run(&records, &mut *target("mem:1MiB"), &settings).unwrap();
        assert_eq!((outcome.reads.count, outcome.errors), (4, 0));
    }
}

#[test]
fn writes_carry_the_same_bytes_in_every_replay() {
    let folder = tempfile::tempdir().unwrap();
    let records = [record(0, Op::Write, 4096, 8192), record(0, Op::Write, 32_768, 512)];
    let contents: Vec<Vec<u8>> = ["a", "b"]
        .map(|name| {
            let path = folder.path().join(name);
            std::fs::File::create(&path).unwrap().set_len(65_536).unwrap();
            run(&records, &mut *target(&format!("file:{}", path.display())), &closed()).unwrap();
            std::fs::read(path).unwrap()
        })
        .into();
    assert_eq!(contents[0], contents[1]);
    assert!(contents[0][4096..12_288].chunks(512).all(|sector| sector != [0; 512]));
    assert!(contents[0][..4096].iter().all(|&byte| byte == 0));
}

#[test]
fn a_target_smaller_than_the_trace_is_refused_unless_it_is_wrapped() {
    let records = [record(0, Op::Read, 0, 4096), record(0, Op::Read, 5 << 20, 4096)];
    let error = run(&records, &mut *target("mem:1MiB"), &closed()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TargetTooSmall);
    let message = error.to_string();
    for part in ["5246976 bytes", "1048576", "--wrap"] {
        assert!(message.contains(part), "{message}");
    }
    let settings = Settings { wrap: true, ..closed() };
    let outcome = run(&records, &mut *target("mem:1MiB"), &settings).unwrap();
    assert_eq!((outcome.reads.count, outcome.wrapped), (2, 1));
}

#[test]
fn the_time_allowed_cuts_a_replay_short() {
    let records: Vec<_> = (0..1000).map(|i| record(i * 1_000_000_000, Op::Read, 0, 512)).collect();
    let settings = Settings { duration_ns: Some(20_000_000), ..Settings::default() };
    let outcome = run(&records, &mut *target("mem:1MiB"), &settings).unwrap();
    assert_eq!(outcome.ended_by, EndedBy::Duration);
    assert_eq!(outcome.reads.count, 1);
}

#[test]
fn a_target_that_ends_requests_at_once_does_not_hold_up_the_end() {
    // Far more of them than fit in the time, all due at once.
    const COUNT: usize = 4_000_000;
    let records = || std::iter::repeat_n(record(0, Op::Read, 0, 512), COUNT).map(Ok);
    let summary =
        Summary { reads: COUNT as u64, span_bytes: 512, len_max: 512, ..Summary::default() };
    for pace in [CLOSED, Pace::Clock { speed: 1.0 }] {
        let settings = Settings { pace, duration_ns: Some(250_000_000), ..Settings::default() };
        // A clock that goes on by 1 µs each time that it is asked.
        let passed = Cell::new(0);
        let clock = || Nanos(passed.replace(passed.get() + 1000));
        let mut told = 0;
        let mut reactor = Reactor::new(256, None).unwrap();
        let mut progress = |_: &Progress| {
            told += 1;
            ControlFlow::Continue(())
        };
        let target = &mut *target("mem:1MiB");
        let outcome =
            replay(records(), &summary, target, &mut reactor, &settings, &clock, &mut progress)
                .unwrap();
        assert_eq!(outcome.ended_by, EndedBy::Duration, "{pace:?}");
        // After 100 and 200 ms, and at the end.
        assert_eq!(told, 3, "{pace:?}");
        assert!(outcome.elapsed_ns < 255_000_000, "{outcome:?}");
    }
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let cases = [
        (Settings { pace: Pace::Clock { speed: 0.0 }, ..closed() }, "a number above 0"),
        (Settings { pace: Pace::Clock { speed: f64::NAN }, ..closed() }, "a number above 0"),
        (Settings { pace: Pace::Closed { queue_depth: 0 }, ..closed() }, "use 1 or more"),
        (Settings { pace: Pace::Closed { queue_depth: 9999 }, ..closed() }, "use at most 1024"),
        (Settings { memory_bytes: 4096, ..closed() }, "at least"),
    ];
    for (settings, expect) in cases {
        let records = [record(0, Op::Read, 0, 512)];
        let error = run(&records, &mut *target("mem:1MiB"), &settings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(expect), "{error}");
    }
}

#[test]
fn little_memory_only_holds_requests_back() {
    let records: Vec<_> = (0..8).map(|i| record(0, Op::Write, i << 20, 20 << 20)).collect();
    let outcome = run(&records, &mut *target("mem:128MiB"), &closed()).unwrap();
    assert_eq!((outcome.writes.count, outcome.in_flight_max), (8, 1));
}

#[test]
fn requests_that_no_target_takes_are_left_out_and_counted() {
    let records = [record(0, Op::Read, 0, 64 << 20), record(0, Op::Read, 0, 4096)];
    let outcome = run(&records, &mut *target("mem:64MiB"), &closed()).unwrap();
    assert_eq!((outcome.reads.count, outcome.too_long), (1, 1));
}

#[test]
fn a_request_that_fails_is_counted_and_the_rest_goes_on() {
    let records: Vec<_> = (0..5).map(|i| record(0, Op::Read, i * 4096, 4096)).collect();
    let mut target = target("fault:rule=error,op=read,nth=2&inner=mem:1MiB");
    let outcome = run(&records, &mut *target, &closed()).unwrap();
    assert_eq!((outcome.reads.count, outcome.errors), (4, 1));
    let first = outcome.first_error.unwrap();
    assert_eq!(first, "request 1: Read of 4096 bytes at 4096: IoError");
}

#[test]
fn a_target_that_ends_nothing_is_given_up() {
    let settings = Settings { stall_ns_max: 20_000_000, ..closed() };
    for (rule, op, expect) in [
        ("hang", Op::Read, "has ended none of 1 requests"),
        ("hang,op=flush", Op::Write, "does not end the flush"),
        ("error,op=flush", Op::Write, "failed the flush at the end: IoError"),
    ] {
        let mut target = target(&format!("fault:rule={rule}&inner=mem:1MiB"));
        let error = run(&[record(0, op, 0, 4096)], &mut *target, &settings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Target);
        assert!(error.to_string().contains(expect), "{error}");
    }
}

#[test]
fn progress_is_told_at_the_end_at_least() {
    let records = [record(0, Op::Read, 0, 4096)];
    let summary = Summary::of(records.iter().map(|&record| Ok(record))).unwrap();
    let mut reactor = Reactor::new(256, None).unwrap();
    let last = Cell::new(None);
    let mut progress = |progress: &Progress| {
        last.set(Some(*progress));
        ControlFlow::Continue(())
    };
    let mut target = target("mem:1MiB");
    let all = records.iter().map(|&record| Ok(record));
    replay(all, &summary, &mut *target, &mut reactor, &closed(), &clock, &mut progress).unwrap();
    let last = last.get().unwrap();
    assert_eq!((last.issued, last.ended), (1, 1));
}

#[test]
fn a_target_that_holds_data_is_refused_without_consent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::write(&path, [vec![0; 8192], vec![1; 8192]].concat()).unwrap();
    let uri = format!("file:{}", path.display());
    let writes = [record(0, Op::Read, 8192, 8192), record(0, Op::Write, 0, 4096)];
    let error = run(&writes, &mut *target(&uri), &closed()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HoldsData);
    assert!(error.to_string().contains("--overwrite"), "{error}");
    // What only reads may do so.
    run(&writes[..1], &mut *target(&uri), &closed()).unwrap();
    assert!(std::fs::read(&path).unwrap()[..8192].iter().all(|&byte| byte == 0));
    let settings = Settings { overwrite: true, ..closed() };
    run(&writes, &mut *target(&uri), &settings).unwrap();
    // A target that does not tell is none that is known to be empty.
    let error = run(&writes, &mut *target("fault:rule=error,op=extents&inner=mem:1MiB"), &closed());
    assert_eq!(error.unwrap_err().kind(), ErrorKind::HoldsData);
}

#[test]
fn a_trace_that_changed_since_it_was_looked_at_writes_nowhere_else() {
    let (read, write) = (record(0, Op::Read, 8192, 4096), record(0, Op::Write, 0, 4096));
    let cases = [
        (read, write),
        (write, record(0, Op::Write, 8192, 4096)),
        // One that would be folded back.
        (write, record(0, Op::Write, (1 << 20) + 8192, 4096)),
    ];
    for (before, added) in cases {
        let folder = tempfile::tempdir().unwrap();
        let (path, uri) = sparse_file(&folder, 1 << 20);
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 8192], 8192).unwrap();
        let summary = Summary::of([Ok(before)].into_iter()).unwrap();
        let mut reactor = Reactor::new(256, None).unwrap();
        let (records, target) = ([before, added].into_iter().map(Ok), &mut *target(&uri));
        let mut progress = |_: &Progress| ControlFlow::Continue(());
        let ended =
            replay(records, &summary, target, &mut reactor, &closed(), &clock, &mut progress);
        let bytes = std::fs::read(&path).unwrap();
        assert!(before.op == Op::Write || bytes[..4096] == [0; 4096], "{added:?}");
        assert!(bytes[8192..16_384] == [7; 8192], "{added:?}");
        let error = ended.unwrap_err().to_string();
        assert!(error.contains("the trace changed while it was read"), "{error}");
    }
}

/// Writes and reads of the same few places, one at a time.
fn written_and_read() -> Vec<Record> {
    let one = |n: u64| {
        let op = if n % 3 == 2 { Op::Read } else { Op::Write };
        record(n, op, n / 3 % 4 * 8192, 8192)
    };
    (0..60).map(one).collect()
}

fn verified(uri: &str, queue_depth: u32) -> Verified {
    let pace = Pace::Closed { queue_depth };
    let settings = Settings { pace, verify: true, ..closed() };
    run(&written_and_read(), &mut *target(uri), &settings).unwrap().verified.unwrap()
}

#[test]
fn verifying_finds_nothing_wrong_with_a_target_that_is_right() {
    for queue_depth in [1, 8] {
        let delays = "fault:seed=3&rule=delay,p=0.5,time=1ms&inner=mem:1MiB";
        for uri in ["mem:1MiB", delays] {
            let found = verified(uri, queue_depth);
            assert_eq!((found.wrong(), found.findings.len()), (0, 0), "{uri}: {found:?}");
            assert_eq!(found.read_back_bytes, 4 * 8192);
            let all = 20 * 16 + 4 * 16;
            assert!(found.checked == all || queue_depth > 1 && found.checked <= all, "{found:?}");
        }
    }
}

#[test]
fn verifying_finds_a_write_that_was_acknowledged_and_never_done() {
    // The 38th write is one that a read comes back to before the next one, the last one is not read by the trace.
    for (nth, at) in
        [(38, "request 56, sector at byte 16384"), (40, "at the end, sector at byte 24576")]
    {
        let uri = format!("fault:rule=drop,nth={nth}&inner=mem:1MiB");
        let records = written_and_read();
        let settings = Settings { pace: Pace::Closed { queue_depth: 1 }, verify: true, ..closed() };
        let outcome = run(&records[..59], &mut *target(&uri), &settings).unwrap();
        let found = outcome.verified.unwrap();
        assert!(found.stale >= 16 && found.wrong() == found.stale, "{found:?}");
        assert!(found.findings[0].starts_with(at), "{found:?}");
        assert_eq!(outcome.errors, 0);
    }
    // The very first: what was there before comes back.
    let found = verified("fault:rule=drop,range=0+8KiB&inner=mem:1MiB", 1);
    assert!(found.lost > 0 && found.stale == 0, "{found:?}");
}

#[test]
fn an_end_may_be_asked_for_and_leaves_what_was_measured() {
    let records: Vec<_> = (0..1000).map(|i| record(i * 1_000_000_000, Op::Read, 0, 512)).collect();
    let summary = Summary::of(records.iter().map(|&record| Ok(record))).unwrap();
    let mut reactor = Reactor::new(256, None).unwrap();
    let settings = Settings::default();
    let records = records.into_iter().map(Ok);
    let mut stop = |_: &Progress| ControlFlow::Break(());
    let mut target = target("mem:1MiB");
    let outcome =
        replay(records, &summary, &mut *target, &mut reactor, &settings, &clock, &mut stop);
    let outcome = outcome.unwrap();
    assert_eq!((outcome.ended_by, outcome.reads.count), (EndedBy::Interrupt, 1));
}

#[test]
fn a_dependent_replay_keeps_as_many_outstanding_as_the_trace_had() {
    // Two at a time: each begins when the one before the last has ended.
    let timed = |n: u64| Record {
        latency_ns: Some(20_000),
        ..record(n * 10_000, Op::Read, n * 4096, 4096)
    };
    let records: Vec<_> = (0..100).map(timed).collect();
    for speed in [None, Some(1.0)] {
        let settings = Settings { pace: Pace::Dependent { speed }, ..Settings::default() };
        let slow = "fault:rule=delay,time=100us&inner=mem:1MiB";
        let outcome = run(&records, &mut *target(slow), &settings).unwrap();
        assert_eq!((outcome.reads.count, outcome.in_flight_max), (100, 2));
        assert!(outcome.elapsed_ns >= 50 * 100_000, "{}", outcome.elapsed_ns);
    }
    let settings = Settings { pace: Pace::Dependent { speed: None }, ..Settings::default() };
    let error = run(&[record(0, Op::Read, 0, 512)], &mut *target("mem:1MiB"), &settings);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn slices_and_histograms_are_of_all_requests() {
    let records: Vec<_> = (0..200).map(|n| record(n, Op::Read, n % 16 * 4096, 4096)).collect();
    let outcome = run(&records, &mut *target("mem:1MiB"), &closed()).unwrap();
    assert_eq!(outcome.slices.iter().map(|slice| slice.reads.count).sum::<u64>(), 200);
    assert_eq!(outcome.histograms.len(), 16);
    assert_eq!(outcome.histograms[0].count, 200);
    assert!(outcome.read_cdf.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1));
    assert_eq!(outcome.read_cdf.last().unwrap().1, 1.0);
    assert!(outcome.write_cdf.is_empty());
    let text = serde_json::to_string(&outcome).unwrap();
    assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome);
}

/// As [`run`], with what is touched known beforehand.
fn run_prepared(
    records: &[Record],
    target: &mut dyn Backend,
    settings: &Settings,
) -> Result<Outcome, Error> {
    let all = || records.iter().map(|&record| Ok(record));
    let properties = target.properties();
    let mut touched = Touched::new(properties.size, properties.logical_block);
    let summary = Summary::of(touched.counted(all())).unwrap();
    let asked = Asked { summary: &summary, touched: Some(&touched) };
    let mut reactor = Reactor::new(256, None).unwrap();
    replay(all(), asked, target, &mut reactor, settings, &clock, &mut |_| ControlFlow::Continue(()))
}

fn sparse_file(folder: &tempfile::TempDir, len: u64) -> (std::path::PathBuf, String) {
    let path = folder.path().join("disk.raw");
    std::fs::File::create(&path).unwrap().set_len(len).unwrap();
    let uri = format!("file:{}", path.display());
    (path, uri)
}

#[test]
fn a_prefilled_target_has_data_wherever_the_trace_reads_and_holes_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let (path, uri) = sparse_file(&folder, 8 << 20);
    let records = [
        record(0, Op::Read, 1 << 20, 300 << 10),
        record(0, Op::Write, 4 << 20, 4096),
        record(0, Op::Read, (8 << 20) - 512, 512),
    ];
    let settings = Settings { prefill: true, verify: true, ..closed() };
    let outcome = run_prepared(&records, &mut *target(&uri), &settings).unwrap();
    assert_eq!(outcome.prefilled_bytes, (300 << 10) + 4096 + 4096);
    assert_eq!((outcome.reads.count, outcome.writes.count, outcome.holes), (2, 1, None));
    assert_eq!(outcome.verified.unwrap().wrong(), 0);
    let bytes = std::fs::read(path).unwrap();
    let is_filled = |at: usize| bytes[at..at + 512].iter().any(|&byte| byte != 0);
    assert!((1 << 20..(1 << 20) + (300 << 10)).step_by(512).all(is_filled));
    assert!(is_filled(4 << 20) && is_filled((8 << 20) - 512));
    assert!(!is_filled(0) && !is_filled((1 << 20) + (300 << 10)) && !is_filled((4 << 20) + 4096));
    let packed = zstd::encode_all(&bytes[1 << 20..(1 << 20) + (256 << 10)], 1).unwrap();
    assert!(packed.len() > 240 << 10, "{}", packed.len());
}

#[test]
fn a_target_that_holds_data_is_not_prefilled_without_consent_even_for_reads() {
    let folder = tempfile::tempdir().unwrap();
    let (path, uri) = sparse_file(&folder, 1 << 20);
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let reads = [record(0, Op::Read, 0, 4096)];
    let settings = Settings { prefill: true, ..closed() };
    let error = run_prepared(&reads, &mut *target(&uri), &settings).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HoldsData);
    assert!(std::fs::read(&path).unwrap().iter().all(|&byte| byte == 7));
    let settings = Settings { overwrite: true, ..settings };
    let outcome = run_prepared(&reads, &mut *target(&uri), &settings).unwrap();
    assert_eq!(outcome.prefilled_bytes, 4096);
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes[..4096] != [7; 4096] && bytes[4096..].iter().all(|&byte| byte == 7));
}

#[test]
fn holes_that_the_trace_reads_are_counted_and_those_that_it_writes_first_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let (path, uri) = sparse_file(&folder, 16 << 20);
    let file = std::fs::File::options().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 1 << 20], 2 << 20).unwrap();
    file.sync_all().unwrap();
    let records = [
        record(0, Op::Write, 8 << 20, 1 << 20),
        record(0, Op::Read, 8 << 20, 1 << 20),
        record(0, Op::Read, 1 << 20, 2 << 20),
        record(0, Op::Read, 12 << 20, 8192),
    ];
    let settings = Settings { overwrite: true, ..closed() };
    let outcome = run_prepared(&records, &mut *target(&uri), &settings).unwrap();
    let holes = Holes { bytes: (1 << 20) + 8192, of: (2 << 20) + 8192 };
    assert_eq!(outcome.holes, Some(holes));
}

#[test]
fn who_wants_an_end_while_the_target_is_filled_gets_it() {
    let all = [record(0, Op::Read, 0, 8 << 20)].map(Ok::<_, Error>);
    let mut touched = Touched::new(8 << 20, 512);
    let summary = Summary::of(touched.counted(all.into_iter())).unwrap();
    let asked = Asked { summary: &summary, touched: Some(&touched) };
    let mut reactor = Reactor::new(256, None).unwrap();
    let mut progress = |progress: &Progress| match progress.prefilling {
        Some((done, all)) if done >= all / 2 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let settings = Settings { prefill: true, ..closed() };
    let records = [record(0, Op::Read, 0, 4096)].into_iter().map(Ok);
    let mut target = target("mem:8MiB");
    let outcome =
        replay(records, asked, &mut *target, &mut reactor, &settings, &clock, &mut progress);
    let outcome = outcome.unwrap();
    assert_eq!((outcome.ended_by, outcome.reads.count), (EndedBy::Interrupt, 0));
    assert!(outcome.prefilled_bytes < 8 << 20);
}
