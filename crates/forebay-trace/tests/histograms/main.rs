//! The sixteen histograms against a second count that shares no code with the first: whole lists of numbers instead of running
//! state, limits tried one after the other. Of made-up and recorded requests always; of real traces, which the project does not keep
//! and which are read here a second time, too (`files.rs`), where `FOREBAY_TRACES` names their folder.

mod files;

use std::collections::BTreeMap;

use forebay_trace::Error;
use forebay_trace::characterise::{Device, characterise};
use forebay_trace::formats::{Options, Reader};
use forebay_trace::record::{Op, Record};
use forebay_trace::workload::{Settings, Workload};

/// As ESXi prints them.
const LENGTHS: [i64; 17] = [
    512, 1024, 2048, 4095, 4096, 8191, 8192, 16383, 16384, 32768, 49152, 65535, 65536, 81920,
    131072, 262144, 524288,
];
const DISTANCES: [i64; 33] = [
    -500000, -100000, -50000, -10000, -5000, -1000, -500, -128, -64, -32, -16, -8, -6, -4, -2, -1,
    0, 1, 2, 4, 6, 8, 16, 32, 64, 128, 500, 1000, 5000, 10000, 50000, 100000, 500000,
];
const TIMES: [i64; 10] = [1, 10, 100, 500, 1000, 5000, 15000, 30000, 50000, 100000];
const OUTSTANDING: [i64; 12] = [1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 64];

/// What a request is to the second count.
#[derive(Clone, Copy, Debug)]
struct Request {
    time_ns: i64,
    is_read: bool,
    start: i64,
    len: i64,
    latency_ns: Option<i64>,
}

impl Request {
    fn first(&self) -> i64 {
        self.start.div_euclid(512)
    }

    fn last(&self) -> i64 {
        (self.start + self.len - 1).div_euclid(512)
    }
}

/// Requests of each device.
type Devices = BTreeMap<u32, Vec<Request>>;

/// The numbers of the sixteen, in vscsiStats' order, and their limits.
fn sixteen(requests: &[Request]) -> Vec<(Vec<i64>, &'static [i64])> {
    let of = |is_read: bool| requests.iter().copied().filter(move |of| of.is_read == is_read);
    let kinds = [requests.to_vec(), of(true).collect(), of(false).collect()];
    let mut all = Vec::new();
    let mut each = |numbers: fn(&[Request]) -> Vec<i64>, limits: &'static [i64]| {
        all.extend(kinds.iter().map(|kind| (numbers(kind), limits)));
    };
    each(|of| of.iter().map(|one| one.len).collect(), &LENGTHS);
    each(|of| of.windows(2).map(|pair| pair[1].first() - pair[0].last()).collect(), &DISTANCES);
    each(|of| of.iter().filter_map(|one| Some(one.latency_ns? / 1000)).collect(), &TIMES);
    each(outstanding, &OUTSTANDING);
    each(|of| of.windows(2).map(|pair| apart(pair) / 1000).collect(), &TIMES);
    all.insert(6, (closest(requests), &DISTANCES));
    all
}

/// Nanoseconds between two; a trace is not always in order.
fn apart(pair: &[Request]) -> i64 {
    (pair[1].time_ns - pair[0].time_ns).max(0)
}

/// How many had come and not been answered when each comes, with itself.
fn outstanding(requests: &[Request]) -> Vec<i64> {
    let mut ends: Vec<i64> = Vec::new();
    let timed = requests.iter().filter_map(|of| Some((of.time_ns, of.latency_ns?)));
    let under_way = timed.map(|(time, latency)| {
        ends.retain(|&end| end > time);
        ends.push(time + latency);
        ends.len() as i64
    });
    under_way.collect()
}

/// The distance nearest to nothing from one of the sixteen before, of equals from the later one.
fn closest(requests: &[Request]) -> Vec<i64> {
    let nearest = |at: usize| {
        let before = requests[at.saturating_sub(16)..at].iter().rev();
        before.map(|of| requests[at].first() - of.last()).min_by_key(|distance| distance.abs())
    };
    (1..requests.len()).filter_map(nearest).collect()
}

/// Fails where a histogram is not what the second count has.
fn compare(name: &str, found: &[Device], expect: &Devices) {
    assert_eq!(found.len(), expect.len(), "{name}: devices");
    for (Device { device, histograms }, requests) in found.iter().zip(expect.values()) {
        let sixteen = sixteen(requests);
        assert_eq!(histograms.len(), sixteen.len());
        for (found, (numbers, limits)) in histograms.iter().zip(sixteen) {
            let mut counts = vec![0; limits.len() + 1];
            for number in &numbers {
                counts[limits.iter().position(|limit| number <= limit).unwrap_or(limits.len())] +=
                    1;
            }
            let beyond = limits[limits.len() - 1];
            let buckets: Vec<(i64, u64)> =
                limits.iter().copied().chain([beyond]).zip(counts).collect();
            let what = format!("{name}, device {device}: {}", found.name);
            assert_eq!(found.buckets, buckets, "{what}");
            let mean = numbers.iter().sum::<i64>().checked_div(numbers.len() as i64);
            let (min, max) = (numbers.iter().min().copied(), numbers.iter().max().copied());
            assert_eq!((found.min, found.max, found.mean), (min, max, mean), "{what}");
            assert_eq!(found.count, numbers.len() as u64, "{what}");
        }
    }
}

fn by_device(records: &[Record]) -> Devices {
    let mut devices = Devices::new();
    for of in records {
        let request = Request {
            time_ns: of.time_ns as i64,
            is_read: of.op == Op::Read,
            start: of.offset as i64,
            len: of.len.into(),
            latency_ns: of.latency_ns.map(|ns| ns as i64),
        };
        devices.entry(of.device).or_default().push(request);
    }
    devices
}

#[test]
fn histograms_of_made_up_requests_equal_another_count() {
    let settings =
        Settings { disk_bytes: 1 << 30, requests: 20_000, interval_ns_mean: 200_000, seed: 5 };
    let mut records: Vec<Record> = Workload::new(settings).collect();
    for (n, of) in (0u64..).zip(&mut records) {
        // In no order that the count would follow: sixes, sevens and elevens.
        let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        of.device = (mixed % 3) as u32;
        of.latency_ns = (mixed % 7 > 0).then_some(mixed * mixed % 9_000_000);
        of.offset += mixed % 11 * 100;
        of.len = of.len.saturating_sub((mixed % 6 * 700) as u32).max(1);
        // A trace is not always in order; who is outstanding is told of those that are.
        if of.device == 2 {
            of.time_ns = of.time_ns.saturating_sub(mixed % 5 * 100_000);
            of.latency_ns = None;
        }
    }
    let found = characterise(records.iter().copied().map(Ok)).unwrap();
    compare("made up", &found, &by_device(&records));
}

#[test]
fn histograms_of_recorded_requests_equal_another_count() {
    for name in ["pgbench", "build"] {
        let path = format!("{}/../../traces/{name}.fbt", env!("CARGO_MANIFEST_DIR"));
        let reader = Reader::open(path.as_ref(), &Options::default()).unwrap();
        let records = reader.collect::<Result<Vec<_>, Error>>().unwrap();
        let found = characterise(records.iter().copied().map(Ok)).unwrap();
        compare(name, &found, &by_device(&records));
    }
}

#[test]
fn histograms_of_real_traces_equal_another_count() {
    let Some(folder) = std::env::var_os("FOREBAY_TRACES") else {
        println!("not asked for: FOREBAY_TRACES names no folder of traces");
        return;
    };
    for file in files::ALL {
        let path = std::path::Path::new(&folder).join(file.name);
        let expect = files::read(&path, file.format);
        let options = Options { time_unit: file.time_unit(), ..Options::default() };
        let found = characterise(Reader::open(&path, &options).unwrap()).unwrap();
        compare(file.name, &found, &expect);
        let requests: usize = expect.values().map(Vec::len).sum();
        println!("{}: {requests} requests, {} devices", file.name, expect.len());
    }
}
