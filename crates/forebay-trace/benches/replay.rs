//! How late a replay on the trace's clock issues its requests, at 10,000 per second, beside a loop that does nothing but wait for
//! the same times in the same way.
//!
//! Rounds are interleaved; the medians, the least and the most of five are printed.

use std::ops::ControlFlow;
use std::time::Duration;

use forebay_backends::{OpenOptions, Uri};
use forebay_core::ids::Nanos;
use forebay_io::clock::now_nanos;
use forebay_io::reactor::Reactor;
use forebay_trace::record::{Op, Record, Summary};
use forebay_trace::replay::{self, Latency, Settings};

const ROUNDS: usize = 5;
const INTERVAL_NS: u64 = 100_000;
const DISK_BYTES: u64 = 256 << 20;
/// A time that is sooner is waited for without sleeping, as the replay does.
const SPIN_NS: u64 = 60_000;

fn main() {
    // As a test (`cargo test --benches`) it runs tiny.
    let tiny = !std::env::args().any(|arg| arg == "--bench");
    let requests = if tiny { 200 } else { 30_000 };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk.raw");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(DISK_BYTES).expect("a sparse file");
    let targets = [format!("mem:{DISK_BYTES}"), format!("file:{}", path.display())];
    let records: Vec<Record> = (0..requests).map(record).collect();
    let mut bare = Vec::new();
    let mut late: Vec<Vec<[u64; 3]>> = vec![Vec::new(); targets.len()];
    for _ in 0..if tiny { 1 } else { ROUNDS } {
        bare.push(bare_loop(requests));
        for (target, late) in targets.iter().zip(&mut late) {
            let lag = replayed(&records, target);
            late.push([lag.p50_ns, lag.p99_ns, lag.max_ns]);
        }
    }
    println!(
        "issue-time error at 10,000 per second, µs: p50, p99, max; median (least to most) of {} rounds",
        bare.len()
    );
    show("a loop that only waits", &bare);
    for (name, rows) in ["replay on memory", "replay on a file"].into_iter().zip(&late) {
        show(name, rows);
    }
}

fn show(name: &str, rows: &[[u64; 3]]) {
    let column = |at: usize| {
        let mut values: Vec<u64> = rows.iter().map(|row| row[at]).collect();
        values.sort_unstable();
        let us = |n: usize| values[n] as f64 / 1e3;
        format!("{:.1} ({:.1} to {:.1})", us(values.len() / 2), us(0), us(values.len() - 1))
    };
    println!("  {name:<24} {:>28} {:>32} {:>36}", column(0), column(1), column(2));
}

/// Random pages, a third of them written.
fn record(n: u64) -> Record {
    let place = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let op = if n.is_multiple_of(3) { Op::Write } else { Op::Read };
    Record {
        time_ns: n * INTERVAL_NS,
        op,
        offset: place % (DISK_BYTES / 4096) * 4096,
        len: 4096,
        device: 0,
        latency_ns: None,
    }
}

fn replayed(records: &[Record], target: &str) -> Latency {
    let uri: Uri = target.parse().expect("a URI");
    let mut target = forebay_backends::open(&uri, OpenOptions::default()).expect("a target");
    let mut reactor = Reactor::new(1024, None).expect("a reactor");
    let all = || records.iter().copied().map(Ok);
    let summary = Summary::of(all()).expect("records");
    let settings = Settings { overwrite: true, ..Settings::default() };
    let clock = || Nanos(now_nanos());
    let mut progress = |_: &replay::Progress| ControlFlow::Continue(());
    let outcome = replay::replay(
        all(),
        &summary,
        target.as_mut(),
        &mut reactor,
        &settings,
        &clock,
        &mut progress,
    );
    let outcome = outcome.expect("a replay");
    assert_eq!(outcome.errors, 0);
    outcome.lag
}

fn bare_loop(requests: u64) -> [u64; 3] {
    let start = now_nanos();
    let mut late: Vec<u64> = (0..requests).map(|n| wait_until(start + n * INTERVAL_NS)).collect();
    late.sort_unstable();
    let at = |share: u64| late[((requests - 1) * share / 100) as usize];
    [at(50), at(99), at(100)]
}

/// How late it was.
fn wait_until(due: u64) -> u64 {
    loop {
        let now = now_nanos();
        if now >= due {
            return now - due;
        }
        if due - now >= SPIN_NS {
            #[allow(clippy::disallowed_methods)]
            std::thread::sleep(Duration::from_nanos(due - now - SPIN_NS / 2));
        }
    }
}
