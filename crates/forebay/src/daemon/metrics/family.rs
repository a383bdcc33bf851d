//! A metric as a row of a table: encoded for a scrape, described for the reference.

use std::fmt;

use forebay_core::stats::{LATENCY_STEPS, LatencySteps};
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, LabelSetEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::{disk, host};

/// A metric that each `T` has.
pub(super) struct Family<T: 'static> {
    /// Without unit and suffix.
    name: &'static str,
    help: &'static str,
    unit: Option<In>,
    /// Only grows.
    is_counter: bool,
    /// The label that names a `T`.
    of: &'static str,
    values: Values<T>,
}

/// A unit, which the name ends with.
#[derive(Clone, Copy)]
enum In {
    Bytes,
    Seconds,
}

impl In {
    fn unit(self) -> Unit {
        match self {
            In::Bytes => Unit::Bytes,
            In::Seconds => Unit::Seconds,
        }
    }
}

/// What is read, by labels or by the values of one.
type Labelled<F> = &'static [(&'static str, F)];

/// How a metric is read from a `T`. `None`: this one has it not.
pub(super) enum Values<T: 'static> {
    One(fn(&T) -> Option<f64>),
    /// One for each value of a label.
    Each(&'static str, Labelled<fn(&T) -> Option<f64>>),
    /// 1 for the value that a label has now.
    State(&'static str, fn(&T) -> Option<String>),
    /// Words, each under its label.
    Info(Labelled<fn(&T) -> String>),
    Histogram(fn(&T) -> Option<&LatencySteps>),
    /// One for each value of a label.
    Histograms(&'static str, Labelled<fn(&T) -> Option<&LatencySteps>>),
}

impl<T> Family<T> {
    const fn new(
        name: &'static str,
        of: &'static str,
        help: &'static str,
        values: Values<T>,
    ) -> Family<T> {
        Family { name, help, unit: None, is_counter: false, of, values }
    }

    /// What only grows.
    pub(super) const fn counter(
        name: &'static str,
        of: &'static str,
        help: &'static str,
        values: Values<T>,
    ) -> Family<T> {
        Family { is_counter: true, ..Family::new(name, of, help, values) }
    }

    /// What goes up and down.
    pub(super) const fn gauge(
        name: &'static str,
        of: &'static str,
        help: &'static str,
        values: Values<T>,
    ) -> Family<T> {
        Family::new(name, of, help, values)
    }

    pub(super) const fn bytes(self) -> Family<T> {
        self.in_unit(In::Bytes)
    }

    pub(super) const fn seconds(self) -> Family<T> {
        self.in_unit(In::Seconds)
    }

    const fn in_unit(self, unit: In) -> Family<T> {
        Family { unit: Some(unit), ..self }
    }

    fn kind(&self) -> MetricType {
        match self.values {
            Values::One(_) | Values::Each(..) if self.is_counter => MetricType::Counter,
            Values::One(_) | Values::Each(..) | Values::State(..) => MetricType::Gauge,
            Values::Info(_) => MetricType::Info,
            Values::Histogram(_) | Values::Histograms(..) => MetricType::Histogram,
        }
    }

    /// Writes it for `all`, whose names are `names`; of the daemon itself there is one, without a name.
    pub(super) fn encode(
        &self,
        to: &mut DescriptorEncoder<'_>,
        names: &[&str],
        all: &[&T],
    ) -> fmt::Result {
        let (kind, unit) = (self.kind(), self.unit.map(In::unit));
        let mut to = to.encode_descriptor(self.name, self.help, unit.as_ref(), kind)?;
        let name_of = |at: usize| names.get(at).map(|name| (self.of, *name));
        for (at, one) in all.iter().enumerate() {
            let mut number = |label: Option<(&str, &str)>, value: Option<f64>| {
                let Some(value) = value else { return Ok(()) };
                let labels = Labels([name_of(at), label]);
                let mut sample = to.encode_family(&labels)?;
                match kind {
                    MetricType::Counter => {
                        sample.encode_counter::<NoLabelSet, _, f64>(&value, None)
                    }
                    _ => sample.encode_gauge(&value),
                }
            };
            match &self.values {
                Values::One(value) => number(None, value(one))?,
                Values::Each(label, values) => {
                    values
                        .iter()
                        .try_for_each(|(of, value)| number(Some((label, of)), value(one)))?;
                }
                Values::State(label, value) => {
                    value(one).map_or(Ok(()), |now| number(Some((label, &now)), Some(1.0)))?;
                }
                Values::Info(values) => {
                    let words: Vec<_> =
                        values.iter().map(|(label, value)| (*label, value(one))).collect();
                    to.encode_info(&words)?;
                }
                Values::Histogram(value) => {
                    let labels = Labels([name_of(at), None]);
                    value(one).map_or(Ok(()), |steps| histogram(&mut to, &labels, steps))?;
                }
                Values::Histograms(label, values) => {
                    for (of, value) in *values {
                        let labels = Labels([name_of(at), Some((label, of))]);
                        value(one).map_or(Ok(()), |steps| histogram(&mut to, &labels, steps))?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn histogram(
    to: &mut prometheus_client::encoding::MetricEncoder<'_>,
    labels: &Labels<'_>,
    steps: &LatencySteps,
) -> fmt::Result {
    let bounds = LATENCY_STEPS.iter().map(|bound| seconds(bound.0)).chain([f64::INFINITY]);
    let buckets: Vec<_> = bounds.zip(steps.counts).collect();
    let count = steps.counts.iter().sum();
    let mut to = to.encode_family(labels)?;
    to.encode_histogram::<NoLabelSet>(seconds(steps.sum_ns), count, &buckets, None)
}

/// Seconds of so many nanoseconds.
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The labels of a sample.
struct Labels<'a>([Option<(&'a str, &'a str)>; 2]);

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, to: &mut LabelSetEncoder<'_>) -> fmt::Result {
        self.0.iter().flatten().try_for_each(|label| [*label].encode(to))
    }
}

/// A metric, for the reference.
pub(crate) struct Described {
    /// As a scrape has it; of a histogram without `_bucket`, `_sum` and `_count`.
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) help: &'static str,
    /// Each with the values that it can have, where these are a fixed set.
    pub(crate) labels: Vec<(&'static str, Vec<&'static str>)>,
}

impl<T> Family<T> {
    fn described(&self) -> Described {
        let unit = self.unit.map_or(String::new(), |unit| format!("_{}", unit.unit().as_str()));
        let (kind, suffix) = match self.kind() {
            MetricType::Counter => ("counter", "_total"),
            MetricType::Info => ("info", "_info"),
            MetricType::Histogram => ("histogram", ""),
            MetricType::Gauge | MetricType::Unknown => ("gauge", ""),
        };
        let own = match &self.values {
            Values::One(_) | Values::Histogram(_) => Vec::new(),
            Values::Each(label, values) => vec![(*label, values.iter().map(|it| it.0).collect())],
            Values::Histograms(label, values) => {
                vec![(*label, values.iter().map(|it| it.0).collect())]
            }
            Values::State(label, _) => vec![(*label, Vec::new())],
            Values::Info(words) => words.iter().map(|(label, _)| (*label, Vec::new())).collect(),
        };
        let of = (!self.of.is_empty()).then(|| (self.of, Vec::new()));
        let labels = of.into_iter().chain(own).collect();
        Described { name: format!("{}{unit}{suffix}", self.name), kind, help: self.help, labels }
    }
}

/// Every metric, under headings, in the order of a scrape.
pub(crate) fn describe() -> Vec<(&'static str, Vec<Described>)> {
    fn all<T>(families: &[Family<T>]) -> Vec<Described> {
        families.iter().map(Family::described).collect()
    }
    let served = disk::SERVED.iter().map(|part| all(part));
    let headings = [
        "State of a disk",
        "Requests of a disk",
        "Cache of a disk",
        "Write log of a disk",
        "Primary storage of a disk",
    ];
    let mut pages = vec![("The daemon", all(host::DAEMON)), ("Disks", all(disk::CONFIGURED))];
    pages.extend(headings.into_iter().zip(served));
    pages.extend([
        ("Shards", all(host::SHARD)),
        ("Listeners", all(host::LISTENER)),
        ("Flash pools", all(host::POOL)),
    ]);
    pages
}
