//! Primary storage alone: what requests take without Forebay.

use forebay_backends::model::ModelOp;
use forebay_core::ids::Nanos;

use super::arrivals::Arrivals;
use super::outcome::{Answers, Ios, Latencies};
use super::slices::Parts;
use super::{Models, Pacing, Survey};
use crate::error::Error;
use crate::record::{Op, Record};

/// What came of it.
#[derive(Debug)]
pub(super) struct Bare {
    pub answers: Answers,
    pub ios: Ios,
    pub parts: Parts,
}

/// Sends each request to primary storage.
pub(super) fn run(
    records: impl Iterator<Item = Result<Record, Error>>,
    survey: &Survey,
    models: &Models,
    pacing: Pacing,
) -> Result<Bare, Error> {
    let mut storage = models.storage.build(survey.traits().size);
    let mut arrivals = Arrivals::new(pacing, Nanos(0));
    let mut latencies = Latencies::default();
    let mut ios = Ios::default();
    let mut parts = Parts::new(survey.requests());
    for record in records {
        let record = record?;
        let (at, range) = (arrivals.next(&record), survey.place(&record)?);
        arrivals.came(at);
        let op = match record.op {
            Op::Read => ModelOp::Read,
            Op::Write => ModelOp::Write,
        };
        let done = storage.submit(at, op, range);
        latencies.of(record.op).record(done.since(at), 1);
        parts.next(at);
        let part = parts.number();
        parts.at(part).add(record.op, done.since(at));
        ios.add(record.op, range.len());
        arrivals.ended(done);
    }
    Ok(Bare { answers: latencies.answers(), ios, parts })
}
