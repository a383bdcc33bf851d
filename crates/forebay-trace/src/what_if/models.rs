//! The devices: primary storage and flash, from their latencies.

use forebay_backends::model::{Distribution, ModelConfig};
use forebay_core::ids::Nanos;

use super::{Survey, refused};
use crate::assumed::{self, BACKEND_NS, RAM_NS};
use crate::error::Error;

/// Bytes per second that flash reads and writes, about what one PCIe 3 device does.
const FLASH_BANDWIDTH: u64 = 2_000_000_000;

/// Latencies from the caller, in nanoseconds, as for an advice ([`crate::advise::Settings`]).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GivenLatencies {
    /// Of a hit in RAM, and of what every request takes besides its I/Os.
    pub ram_ns: Option<u64>,
    /// Of a hit on flash.
    pub flash_ns: Option<u64>,
    /// Of a durable write to flash.
    pub flash_write_ns: Option<u64>,
    /// Of a read of primary storage.
    pub backend_ns: Option<u64>,
    /// Of a write to primary storage.
    pub backend_write_ns: Option<u64>,
}

/// The devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Models {
    /// The time of each request besides its I/Os.
    pub request: Nanos,
    /// Primary storage.
    pub storage: ModelConfig,
    /// Flash.
    pub flash: ModelConfig,
}

impl Models {
    /// These devices: `storage` where that is given, else one of latencies from the caller, from
    /// the trace, or assumed. Such a device serves any number of requests at a time. Its
    /// latencies are spread exponentially around their mean. A flush takes no time, since its
    /// writes are durable.
    pub fn new(told: &GivenLatencies, storage: Option<ModelConfig>, survey: &Survey) -> Models {
        let request = told.ram_ns.unwrap_or(RAM_NS as u64);
        let of_flash = |told: Option<u64>, assumed: fn(f64) -> f64| {
            let ns = told.unwrap_or_else(|| assumed(request as f64) as u64);
            Some(Nanos(ns.saturating_sub(request)))
        };
        let read = told.backend_ns.or(survey.read_ns()).unwrap_or(BACKEND_NS as u64);
        let write = told.backend_write_ns.or(survey.write_ns()).unwrap_or(read);
        let simple = ModelConfig {
            latency: Some(Nanos(read)),
            write_latency: Some(Nanos(write)),
            flush_latency: Some(Nanos(0)),
            distribution: Distribution::Exponential,
            ..ModelConfig::default()
        };
        Models {
            request: Nanos(request),
            storage: storage.unwrap_or(simple),
            flash: ModelConfig {
                latency: of_flash(told.flash_ns, assumed::flash_ns),
                write_latency: of_flash(told.flash_write_ns, assumed::flash_write_ns),
                bandwidth: Some(FLASH_BANDWIDTH),
                distribution: Distribution::Uniform,
                ..ModelConfig::default()
            },
        }
    }

    /// Refuses devices that are none: nobody waits so long.
    pub(super) fn check(&self) -> Result<(), Error> {
        let Models { request, storage, flash } = self;
        let all = [
            ("a hit in RAM", "--ram-latency", Some(*request)),
            ("a read of primary storage", "--backend-latency", storage.latency),
            ("a write to primary storage", "--backend-write-latency", storage.write_latency),
            ("a hit on flash", "--flash-latency", flash.latency),
            ("a write to flash", "--flash-write-latency", flash.write_latency),
        ];
        for (what, option, latency) in all {
            let Some(latency) = latency.filter(|latency| *latency > ModelConfig::LATENCY_MAX)
            else {
                continue;
            };
            return Err(refused(format_args!(
                "{what} cannot take {} s: at most 1h can be simulated; say with {option} what it takes (where that is not said, it is what the \
                 trace's own requests took on average)",
                latency.0 / 1_000_000_000
            )));
        }
        Ok(())
    }
}
