//! Requests and distinct pages by windows of time.
//!
//! The length of the trace is known only at its end. Windows are a millisecond long at first.
//! When there would be more than 128, each two become one, twice as long. Distinct pages do not
//! add up. So each window keeps a sample of its pages (all of them while they are few), and two
//! samples become one at the smaller share.

use std::collections::HashSet;

use forebay_core::geometry::PAGE;
use forebay_core::mrc::Sampler;
use rustc_hash::FxBuildHasher;
use serde::Serialize;

use crate::mrc::key_of;
use crate::record::{Op, Record};

/// Windows at most; at the end there are more than half as many, unless the trace is short.
const WINDOWS_MAX: usize = 128;
/// Length of a window at first.
const FIRST_NS: u64 = 1_000_000;
/// Pages that a window keeps at most.
const PAGES_MAX: usize = 2048;

/// What was asked in one window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Window {
    /// When it begins, from the first request.
    pub start_ns: u64,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Bytes of its distinct pages, known to about 2 %.
    pub working_set: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Windows {
    width_ns: u64,
    windows: Vec<Filling>,
    sampler: Sampler,
}

#[derive(Debug, Default)]
struct Filling {
    reads: u64,
    writes: u64,
    bytes: u64,
    /// Pages whose position in the order of sampling is below 2³² divided by two to the power of `halved`.
    pages: HashSet<u64, FxBuildHasher>,
    halved: u32,
}

impl Default for Windows {
    fn default() -> Self {
        Windows { width_ns: FIRST_NS, windows: Vec::new(), sampler: Sampler::default() }
    }
}

impl Windows {
    pub fn add(&mut self, record: &Record) {
        while record.time_ns / self.width_ns >= WINDOWS_MAX as u64 {
            self.widen();
        }
        let at = (record.time_ns / self.width_ns) as usize;
        if at >= self.windows.len() {
            self.windows.resize_with(at + 1, Filling::default);
        }
        let window = &mut self.windows[at];
        match record.op {
            Op::Read => window.reads += 1,
            Op::Write => window.writes += 1,
        }
        window.bytes += u64::from(record.len);
        for page in record.offset / PAGE..=(record.end() - 1) / PAGE {
            let key = key_of(record.device, page);
            if window.is_sampled(&mut self.sampler, key) {
                window.pages.insert(key);
                window.shrink(&mut self.sampler);
            }
        }
    }

    fn widen(&mut self) {
        self.width_ns *= 2;
        let mut windows = std::mem::take(&mut self.windows).into_iter();
        while let Some(mut window) = windows.next() {
            if let Some(second) = windows.next() {
                window.join(second, &mut self.sampler);
            }
            self.windows.push(window);
        }
    }

    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }

    pub fn told(&self) -> Vec<Window> {
        let told = |(n, of): (u64, &Filling)| Window {
            start_ns: n * self.width_ns,
            reads: of.reads,
            writes: of.writes,
            bytes: of.bytes,
            working_set: ((of.pages.len() as u64) << of.halved) * PAGE,
        };
        (0..).zip(&self.windows).map(told).collect()
    }
}

impl Filling {
    fn is_sampled(&self, sampler: &mut Sampler, key: u64) -> bool {
        u64::from(sampler.position_of(key)) < 1 << (32 - self.halved)
    }

    /// Halves the sample until it is small enough.
    fn shrink(&mut self, sampler: &mut Sampler) {
        while self.pages.len() > PAGES_MAX && self.halved < 32 {
            self.halved += 1;
            self.drop_unsampled(sampler);
        }
    }

    fn drop_unsampled(&mut self, sampler: &mut Sampler) {
        let limit = 1 << (32 - self.halved);
        self.pages.retain(|&page| u64::from(sampler.position_of(page)) < limit);
    }

    fn join(&mut self, other: Filling, sampler: &mut Sampler) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.bytes += other.bytes;
        self.halved = self.halved.max(other.halved);
        self.pages.extend(other.pages);
        self.drop_unsampled(sampler);
        self.shrink(sampler);
    }
}
