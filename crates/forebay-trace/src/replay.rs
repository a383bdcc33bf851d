//! Replay: sends the requests of a trace to a backend and measures it.
//!
//! Open loop ([`Pace::Clock`]) issues every request at its own time, as the guest did, whether or
//! not earlier ones have ended. The delay of a request is reported as *lag*. So no figure is
//! better only because requests were held back. Closed loop ([`Pace::Closed`]) ignores the
//! trace's time, and keeps a number of requests outstanding. With [`Pace::Dependent`] a request
//! waits for those that had ended before it in the trace (`pacing`).
//!
//! ```text
//! records ─► pacing ─► place (wrap, widen to logical blocks) ─► memory ─► Backend::submit ─► Done ─► histograms, slices
//!                                     └─► verifier: what a read may find ◄──────────────────┘
//! ```
//! Several devices of a trace fall on the same addresses of the one target. Writes carry bytes
//! that tell the seed, the request's number and the address (`pattern`). A replay overwrites
//! the target where the trace writes. A target that is not known to be empty is refused without
//! [`Settings::overwrite`].
//!
//! **Bounds:** at most [`Settings::in_flight_max`] requests and [`Settings::memory_bytes`] of their
//! data are outstanding; a request that finds no room waits, and that is lag. Longer requests than
//! [`REQUEST_MAX`] are left out and counted. A target that ends nothing for
//! [`Settings::stall_ns_max`] is given up. Verifying takes memory for what is written (`verify`).

mod around;
mod memory;
mod outcome;
mod pacing;
mod passes;
mod pattern;
mod place;
mod run;
mod slices;
mod sound;
mod touched;
mod verify;

use std::ops::ControlFlow;

use forebay_backends::Backend;
use forebay_core::geometry::REQUEST_MAX;
use forebay_core::ids::Nanos;
use forebay_io::reactor::Reactor;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::record::{Record, Summary};
pub use outcome::{EndedBy, Holes, Latency, Outcome};
pub use passes::{duration_ns, passes};
pub use slices::{Part, SLICES_MAX, Slice};
pub use touched::Touched;
pub use verify::Verified;

/// When requests are issued.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// At the trace's own time, divided by `speed`.
    Clock {
        /// 2 is twice as fast as recorded; positive.
        speed: f64,
    },
    /// As fast as possible.
    Closed {
        /// Requests kept outstanding.
        queue_depth: u32,
    },
    /// When those have ended that had ended before it in the trace.
    Dependent {
        /// The guest's own time between, divided by this; none: it has no time of its own.
        speed: Option<f64>,
    },
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::Clock { speed: 1.0 }
    }
}

/// How to replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// When to issue.
    pub pace: Pace,
    /// Issue nothing more after this time.
    pub duration_ns: Option<u64>,
    /// Fold addresses beyond the target's end back into it.
    pub wrap: bool,
    /// Most requests outstanding.
    pub in_flight_max: u32,
    /// Memory for the data of outstanding requests.
    pub memory_bytes: u64,
    /// Give up when nothing has ended for this time.
    pub stall_ns_max: u64,
    /// Of the bytes that writes carry. To verify, one that the target has not seen.
    pub seed: u64,
    /// Look at what reads bring back, and at the end at all that was written.
    pub verify: bool,
    /// Write to a target that holds data, or does not tell whether it does.
    pub overwrite: bool,
    /// Write all that the trace touches before it begins, so that no read finds a hole.
    pub prefill: bool,
}

/// Facts about the records, known beforehand.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Their sums.
    pub summary: &'a Summary,
    /// The places that they touch; `None`: nobody prefills the target, or looks for holes in it.
    pub touched: Option<&'a Touched>,
}

impl<'a> From<&'a Summary> for Asked<'a> {
    fn from(summary: &'a Summary) -> Asked<'a> {
        Asked { summary, touched: None }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            pace: Pace::default(),
            duration_ns: None,
            wrap: false,
            in_flight_max: 1024,
            memory_bytes: 64 << 20,
            stall_ns_max: 60_000_000_000,
            seed: 1,
            verify: false,
            overwrite: false,
            prefill: false,
        }
    }
}

/// How far a replay is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Time since it began.
    pub elapsed_ns: u64,
    /// Requests issued.
    pub issued: u64,
    /// Requests that have ended.
    pub ended: u64,
    /// The trace's own time of the last request issued.
    pub trace_time_ns: u64,
    /// The trace has not begun, and so many of so many bytes were written beforehand.
    pub prefilling: Option<(u64, u64)>,
    /// The trace is over, and so many of so many bytes were looked at again.
    pub reading_back: Option<(u64, u64)>,
}

/// Replays `records` on `target`, which it attaches to `reactor` and detaches at the end.
///
/// `asked` describes the same records beforehand (see [`Summary::of`], [`Touched`]). `clock` is a
/// monotonic clock. `progress` is called about ten times per second, and may ask for an end: then
/// nothing more is issued.
///
/// # Errors
/// The settings cannot work, the target is too small, read-only, or gave up; the trace's own. A record
/// that `asked` does not know of ends the replay before it is sent. A request that fails on the target
/// is no error but counted.
pub fn replay<'a>(
    records: impl Iterator<Item = Result<Record, Error>>,
    asked: impl Into<Asked<'a>>,
    target: &mut dyn Backend,
    reactor: &mut Reactor,
    settings: &Settings,
    clock: &dyn Fn() -> Nanos,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Outcome, Error> {
    let asked = asked.into();
    check(asked.summary, target, settings)?;
    // Whatever else comes was never checked.
    let records = records.map(|record| record.and_then(|record| asked.summary.expect(record)));
    run::ReplayRun::new(target, reactor, settings, clock)?.finish(records.fuse(), &asked, progress)
}

/// Refuses what cannot work.
fn check(summary: &Summary, target: &dyn Backend, settings: &Settings) -> Result<(), Error> {
    let refuse = |kind, message: String| Err(Error::new(kind, message));
    let size = target.properties().size;
    if summary.span_bytes > size && !settings.wrap {
        let message = format!(
            "the trace spans {} bytes but the target has only {size}: use a larger target, or \
             --wrap to fold what lies beyond its end back into it",
            summary.span_bytes
        );
        return refuse(ErrorKind::TargetTooSmall, message);
    }
    if target.properties().read_only && (summary.writes > 0 || settings.prefill) {
        let what = match settings.prefill {
            true => "--prefill writes".to_owned(),
            false => format!("the trace has {} writes", summary.writes),
        };
        return refuse(ErrorKind::Target, format!("{what} but the target is read-only"));
    }
    match settings.pace {
        Pace::Clock { speed } | Pace::Dependent { speed: Some(speed) }
            if !(speed.is_finite() && speed > 0.0) =>
        {
            refuse(ErrorKind::Invalid, format!("speed {speed}: use a number above 0"))
        }
        Pace::Closed { queue_depth: 0 } => {
            refuse(ErrorKind::Invalid, "queue depth 0: use 1 or more".into())
        }
        Pace::Closed { queue_depth } if queue_depth > settings.in_flight_max => {
            let most = settings.in_flight_max;
            refuse(ErrorKind::Invalid, format!("queue depth {queue_depth}: use at most {most}"))
        }
        _ if settings.memory_bytes < REQUEST_MAX => {
            let least = REQUEST_MAX;
            let message =
                format!("memory of {} bytes: use {least} at least", settings.memory_bytes);
            refuse(ErrorKind::Invalid, message)
        }
        Pace::Clock { .. } | Pace::Closed { .. } | Pace::Dependent { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests;
