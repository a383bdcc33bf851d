//! The requests to the disks of a trace, as vscsiStats counts them.
//!
//! ```text
//! record ─► its disk: answers due by now, then the request ─► Characteristics (forebay-core)
//! ```
//! Each device is counted by itself. A request is outstanding from its time until its latency has
//! passed. If the trace has no latencies, the histograms of latency and of outstanding requests
//! stay empty.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;

use forebay_core::characteristics::{Characteristics, Histogram, Kind, Split};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use serde::{Deserialize, Serialize};

use crate::error::{Error, UNDER_WAY_MAX};
use crate::record::{Op, Record};

/// A histogram under the name that vscsiStats prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The counted property, and of which requests.
    pub name: Cow<'static, str>,
    /// The smallest number, if there is any.
    pub min: Option<i64>,
    /// The largest.
    pub max: Option<i64>,
    /// The mean, the fraction cut off.
    pub mean: Option<i64>,
    /// How many numbers there are.
    pub count: u64,
    /// Upper bounds, each in its bucket, with how many numbers are in it; the last one is for what is beyond its bound.
    pub buckets: Vec<(i64, u64)>,
}

/// One device's sixteen histograms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its number in the trace.
    pub device: u32,
    /// In vscsiStats' order.
    pub histograms: Vec<Named>,
}

/// Devices that are being counted.
#[derive(Debug, Default)]
struct Counted {
    devices: BTreeMap<u32, Characteristics>,
    /// When requests are answered, the next first: time, device, kind, latency.
    under_way: BinaryHeap<Reverse<(u64, u32, Kind, u64)>>,
}

impl Counted {
    fn answer_until(&mut self, now_ns: u64) {
        while let Some(&Reverse((due, device, kind, latency))) = self.under_way.peek()
            && due <= now_ns
        {
            self.under_way.pop();
            self.devices.entry(device).or_default().on_answer(kind, Nanos(latency));
        }
    }
}

/// Counts all of a trace, device by device.
///
/// # Errors
/// The trace's own, or it keeps too many requests under way.
pub fn characterise(
    records: impl Iterator<Item = Result<Record, Error>>,
) -> Result<Vec<Device>, Error> {
    let mut counted = Counted::default();
    for (number, record) in (1_u64..).zip(records) {
        let Record { time_ns, op, offset, len, device, latency_ns } = record?;
        counted.answer_until(time_ns);
        let kind = kind_of(op);
        let range = ByteRange::at(offset, u64::from(len));
        let of_device = counted.devices.entry(device).or_default();
        of_device.on_request(Nanos(time_ns), kind, range, latency_ns.is_some());
        if let Some(latency) = latency_ns {
            if counted.under_way.len() == UNDER_WAY_MAX {
                return Err(Error::too_many_under_way(number));
            }
            let due = time_ns.saturating_add(latency);
            counted.under_way.push(Reverse((due, device, kind, latency)));
        }
    }
    counted.answer_until(u64::MAX);
    let named =
        |(device, counted): (u32, Characteristics)| Device { device, histograms: named(&counted) };
    Ok(counted.devices.into_iter().map(named).collect())
}

/// How it is counted.
pub(crate) fn kind_of(op: Op) -> Kind {
    match op {
        Op::Read => Kind::Read,
        Op::Write => Kind::Write,
    }
}

/// The sixteen histograms under their names, in vscsiStats' order.
pub fn named(of: &Characteristics) -> Vec<Named> {
    let split = |split: &Split, names: [&'static str; 3]| {
        [&split.all, &split.reads, &split.writes].into_iter().zip(names).map(one).collect()
    };
    let all: [Vec<Named>; 6] = [
        split(
            &of.lengths,
            [
                "IO lengths of commands",
                "IO lengths of Read commands",
                "IO lengths of Write commands",
            ],
        ),
        split(
            &of.distances,
            [
                "distance (in LBNs) between successive commands",
                "distance (in LBNs) between successive Read commands",
                "distance (in LBNs) between successive Write commands",
            ],
        ),
        vec![one((
            &of.closest,
            "distance (in LBNs) between each command from the closest of previous 16",
        ))],
        split(
            &of.latencies,
            [
                "latency of IOs in Microseconds (us)",
                "latency of Read IOs in Microseconds (us)",
                "latency of Write IOs in Microseconds (us)",
            ],
        ),
        split(
            &of.outstanding,
            [
                "number of outstanding IOs when a new IO is issued",
                "number of outstanding Read IOs when a new Read IO is issued",
                "number of outstanding Write IOs when a new Write IO is issued",
            ],
        ),
        split(
            &of.interarrivals,
            [
                "latency of IO interarrival time in Microseconds (us)",
                "latency of IO interarrival time for Reads in Microseconds (us)",
                "latency of IO interarrival time for Writes in Microseconds (us)",
            ],
        ),
    ];
    all.concat()
}

fn one((histogram, name): (&Histogram, &'static str)) -> Named {
    Named {
        name: Cow::Borrowed(name),
        min: histogram.min(),
        max: histogram.max(),
        mean: histogram.mean(),
        count: histogram.count(),
        buckets: histogram.buckets().collect(),
    }
}

/// The layout of `vscsiStats -p all -c`. A machine has no number here, a disk that of its device.
pub fn csv(devices: &[Device]) -> String {
    let mut text = String::new();
    for Device { device, histograms } in devices {
        for Named { name, min, max, mean, count, buckets } in histograms {
            let number = |number: &Option<i64>| number.unwrap_or(0);
            let _ = writeln!(
                text,
                "Histogram: {name},virtual machine worldGroupID,0,virtual disk handleID,{device} (scsi0:{device})\n\
                 min,{}\nmax,{}\nmean,{}\ncount,{count}\nFrequency,Histogram Bucket Limit",
                number(min),
                number(max),
                number(mean)
            );
            for (limit, count) in buckets {
                let _ = writeln!(text, "{count},{limit}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(time_us: u64, op: Op, sector: u64, latency_us: Option<u64>) -> Record {
        Record {
            time_ns: time_us * 1000,
            op,
            offset: sector * 512,
            len: 4096,
            device: 7,
            latency_ns: latency_us.map(|us| us * 1000),
        }
    }

    fn histogram<'a>(devices: &'a [Device], name: &str) -> &'a Named {
        devices[0].histograms.iter().find(|histogram| histogram.name == name).unwrap()
    }

    fn counts(named: &Named) -> Vec<(i64, u64)> {
        named.buckets.iter().copied().filter(|(_, count)| *count > 0).collect()
    }

    #[test]
    fn a_request_is_outstanding_until_its_latency_has_passed() {
        let trace = [
            record(0, Op::Read, 0, Some(100)),
            record(50, Op::Read, 8, Some(200)),
            record(100, Op::Write, 800, Some(20)), // the first is answered by now
            record(400, Op::Read, 16, Some(20)),
        ];
        let devices = characterise(trace.into_iter().map(Ok)).unwrap();
        assert_eq!((devices.len(), devices[0].device), (1, 7));
        assert_eq!(devices[0].histograms.len(), 16);
        let outstanding = histogram(&devices, "number of outstanding IOs when a new IO is issued");
        assert_eq!(counts(outstanding), [(1, 2), (2, 2)]);
        let latency = histogram(&devices, "latency of IOs in Microseconds (us)");
        assert_eq!(
            (latency.count, latency.min, latency.max, latency.mean),
            (4, Some(20), Some(200), Some(85))
        );
        let reads = histogram(&devices, "distance (in LBNs) between successive Read commands");
        assert_eq!(counts(reads), [(1, 2)]);
    }

    #[test]
    fn latencies_that_never_pass_are_an_error_and_take_no_memory_without_end() {
        let device = |n: u64| (n % 7) as u32;
        let never = |n| Record { device: device(n), ..record(n, Op::Read, 0, Some(1 << 40)) };
        let came = characterise((0..2 << 20).map(never).map(Ok)).unwrap_err().to_string();
        assert!(came.contains("more than 1048576 requests"), "{came}");
        assert!(characterise((0..1 << 20).map(never).map(Ok)).is_ok());
    }

    #[test]
    fn without_latencies_nothing_is_said_of_them_nor_of_what_is_outstanding() {
        let trace = (0..5).map(|n| Ok(record(n * 10, Op::Write, n * 100, None)));
        let devices = characterise(trace).unwrap();
        for named in &devices[0].histograms {
            let has_none = named.name.contains("outstanding")
                || named.name.contains("latency") && !named.name.contains("interarrival")
                || named.name.contains("Read");
            assert_eq!(named.count == 0, has_none, "{}", named.name);
        }
    }

    #[test]
    fn the_csv_has_the_layout_of_vscsi_stats() {
        let trace = (0..5).map(|n| Ok(record(n * 10, Op::Write, n * 8, Some(50))));
        let text = csv(&characterise(trace).unwrap());
        let mut lines = text.lines();
        let title = "Histogram: IO lengths of commands,virtual machine worldGroupID,0,virtual disk handleID,7 (scsi0:7)";
        assert_eq!(lines.next(), Some(title));
        let head: Vec<&str> = lines.by_ref().take(5).collect();
        let expect =
            ["min,4096", "max,4096", "mean,4096", "count,5", "Frequency,Histogram Bucket Limit"];
        assert_eq!(head, expect);
        assert_eq!(lines.clone().take(5).last(), Some("5,4096"));
        // As many lines as the sixteen sections of that tool have.
        assert_eq!(text.lines().count(), 391);
        assert_eq!(text.lines().filter(|line| line.starts_with("Histogram: ")).count(), 16);
    }
}
