//! Models of slow devices, in virtual time: told of an I/O and the time, they say when it
//! completes.
//!
//! There are two models. Both are pure: no clock, no thread, and the same seed gives the same
//! times on every machine.
//! - [`san::San`] is five 15,000 rpm disks in RAID 5 behind a controller.
//! - [`simple::Simple`] is a latency, a rate and a bandwidth.
//!
//! [`backend::ModelBackend`] puts one in front of another backend. The bytes are the inner
//! backend's, the time is the model's.
//!
//! Options of `model:san?...&inner=URI`:
//!
//! | option | meaning |
//! |---|---|
//! | `write-cache=SIZE` | the controller's durable write-back cache (16MiB); 0: writes wait for the disks |
//! | `iops=N`, `latency=TIME`, `bandwidth=SIZE` | any of these: not the disks, but a simple device with this rate, latency, bytes per second |
//! | `write-latency=TIME`, `flush-latency=TIME` | the same, where writes and flushes of the simple device take another time than reads: flushes that of writes, writes that of reads |
//! | `distribution=fixed\|uniform\|exponential` | of the simple device's latencies, whose means these are (fixed) |
//! | `seed=N` | for what is random in the model (0) |

pub mod backend;
pub mod san;
pub mod simple;

use std::fmt;
use std::str::FromStr;

use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;

use crate::error::Error;
use crate::uri::{Options, invalid};
use crate::{duration, size};
use forebay_core::splitmix::Rng;
use san::San;
use simple::Simple;

/// A model's view of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelOp {
    /// A read.
    Read,
    /// A write of data.
    Write,
    /// A flush.
    Flush,
    /// A command without data: discard, write zeroes.
    Unmap,
}

/// How the latency of a simple device is spread around its mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribution {
    /// Always the mean.
    #[default]
    Fixed,
    /// Evenly from half of it to one and a half.
    Uniform,
    /// Exponential, cut at ten times the mean.
    Exponential,
}

impl Distribution {
    const ALL: [(Distribution, &'static str); 3] = [
        (Distribution::Fixed, "fixed"),
        (Distribution::Uniform, "uniform"),
        (Distribution::Exponential, "exponential"),
    ];
}

/// Which model, and how fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelConfig {
    /// Operations per second; makes the device a simple one.
    pub iops: Option<u64>,
    /// Mean latency; makes the device a simple one.
    pub latency: Option<Nanos>,
    /// Mean latency of writes and other changes; none: that of reads. Makes the device a simple one.
    pub write_latency: Option<Nanos>,
    /// Mean latency of flushes; none: that of writes. Makes the device a simple one.
    pub flush_latency: Option<Nanos>,
    /// Bytes per second; makes the device a simple one.
    pub bandwidth: Option<u64>,
    /// Of the simple device's latency.
    pub distribution: Distribution,
    /// Bytes of the controller's write-back cache; 0: none.
    pub write_cache: u64,
    /// For what is random in the model.
    pub seed: u64,
}

impl Default for ModelConfig {
    fn default() -> Self {
        ModelConfig {
            iops: None,
            latency: None,
            write_latency: None,
            flush_latency: None,
            bandwidth: None,
            distribution: Distribution::Fixed,
            write_cache: Self::WRITE_CACHE,
            seed: 0,
        }
    }
}

impl ModelConfig {
    /// The controller's write-back cache, unless the URI says otherwise.
    pub const WRITE_CACHE: u64 = 16 << 20;
    /// The longest latency that a model gives.
    pub const LATENCY_MAX: Nanos = Nanos::from_millis(3_600_000);

    /// The part behind `model:` in `uri`, without its inner backend.
    pub(crate) fn parse(uri: &str, text: &str) -> Result<ModelConfig, Error> {
        let (kind, query) = text.split_once('?').unwrap_or((text, ""));
        if kind != "san" {
            return Err(invalid(uri, format_args!("there is no model `{kind}`; allowed: san")));
        }
        let mut options = Options::split(uri, query)?;
        let config = ModelConfig::take(&mut options)?;
        options.finish()?;
        Ok(config)
    }

    fn take(options: &mut Options<'_>) -> Result<ModelConfig, Error> {
        let mut config = ModelConfig {
            iops: options.number("iops", 1, 100_000_000)?,
            latency: options.duration("latency")?,
            write_latency: options.duration("write-latency")?,
            flush_latency: options.duration("flush-latency")?,
            bandwidth: options.size("bandwidth")?,
            ..ModelConfig::default()
        };
        if config.bandwidth == Some(0) {
            return Err(options.bad("bandwidth", "0", "must be more than 0"));
        }
        for (name, latency) in config.latencies() {
            if latency.is_some_and(|latency| latency > Self::LATENCY_MAX) {
                return Err(options.bad(name, "", "at most 1h"));
            }
        }
        if let Some(name) = options.take("distribution")? {
            let found = Distribution::ALL.iter().find(|(_, known)| *known == name);
            let Some((distribution, _)) = found else {
                return Err(options.bad(
                    "distribution",
                    name,
                    "allowed: fixed, uniform, exponential",
                ));
            };
            config.distribution = *distribution;
        }
        config.write_cache = options.size("write-cache")?.unwrap_or(Self::WRITE_CACHE);
        config.seed = options.number("seed", 0, u64::MAX)?.unwrap_or(0);
        Ok(config)
    }

    fn latencies(&self) -> [(&'static str, Option<Nanos>); 3] {
        [
            ("latency", self.latency),
            ("write-latency", self.write_latency),
            ("flush-latency", self.flush_latency),
        ]
    }

    /// True when a rate, latency or bandwidth replaces the modelled disks.
    pub fn is_simple(&self) -> bool {
        let has_latency = self.latencies().iter().any(|(_, latency)| latency.is_some());
        self.iops.is_some() || has_latency || self.bandwidth.is_some()
    }

    /// The model, for a device of `size` bytes.
    pub fn build(&self, size: u64) -> Model {
        let rng = Rng::new(self.seed);
        if self.is_simple() {
            Model::Simple(Simple::new(self, rng))
        } else {
            Model::San(Box::new(San::new(size, self.write_cache, rng)))
        }
    }
}

impl FromStr for ModelConfig {
    type Err = Error;

    /// A device alone: `model:san?OPTIONS`, without `inner`.
    fn from_str(text: &str) -> Result<ModelConfig, Error> {
        match text.strip_prefix("model:") {
            Some(model) => ModelConfig::parse(text, model),
            None => Err(invalid(
                text,
                "it is no model: write model:san or model:san?latency=3ms&iops=900",
            )),
        }
    }
}

impl fmt::Display for ModelConfig {
    /// Each option that is not the default, followed by `&`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(iops) = self.iops {
            write!(f, "iops={iops}&")?;
        }
        for (name, latency) in self.latencies() {
            if let Some(latency) = latency {
                write!(f, "{name}={}&", duration::exact(latency))?;
            }
        }
        if let Some(bandwidth) = self.bandwidth {
            write!(f, "bandwidth={}&", size::exact(bandwidth))?;
        }
        for (distribution, name) in Distribution::ALL {
            if distribution == self.distribution && distribution != Distribution::Fixed {
                write!(f, "distribution={name}&")?;
            }
        }
        if self.write_cache != Self::WRITE_CACHE {
            write!(f, "write-cache={}&", size::exact(self.write_cache))?;
        }
        match self.seed {
            0 => Ok(()),
            seed => write!(f, "seed={seed}&"),
        }
    }
}

/// A device model.
#[derive(Clone, Debug)]
pub enum Model {
    /// Five disks behind a controller.
    San(Box<San>),
    /// A latency, a rate and a bandwidth.
    Simple(Simple),
}

impl Model {
    /// Starts an I/O at `now` (never earlier than the last one) and says when it completes.
    pub fn submit(&mut self, now: Nanos, op: ModelOp, range: ByteRange) -> Nanos {
        match self {
            Model::San(san) => san.submit(now, op, range),
            Model::Simple(simple) => simple.submit(now, op, range),
        }
    }
}
