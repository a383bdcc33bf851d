//! Whether the times of a trace go forwards. Tools write requests in order of completion, or CPU by CPU, so that times go
//! back a little. They go back far where a clock was set, files were put together, or a number was cut short.
//!
//! | a request comes before | what happens |
//! |---|---|
//! | the latest one, by [`USUAL_NS_MAX`] at most | nothing |
//! | the latest one, by more | it is taken, and [`Backwards`] tells of it |
//! | the one before it in the file, by more than [`QUEUED_NS_MAX`] | it is a bad record: figures by the clock would be wrong |

/// Buffers of several CPUs and requests in flight explain so much.
const USUAL_NS_MAX: u64 = 1_000_000_000;
/// No request is under way for longer: time-outs of guests end before.
const QUEUED_NS_MAX: u64 = 300_000_000_000;

/// Requests that came before others that the file has before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Backwards {
    /// How many.
    pub(super) requests: u64,
    /// How far before the latest of those, at most.
    pub(super) most_ns: u64,
    /// Where that is.
    pub(super) place: String,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Order {
    before_ns: u64,
    latest_ns: u64,
    backwards: Option<Backwards>,
}

impl Order {
    /// The next request of the file.
    pub(super) fn check(
        &mut self,
        time_ns: u64,
        place: impl FnOnce() -> String,
    ) -> Result<(), String> {
        let back_ns = self.before_ns.saturating_sub(time_ns);
        self.before_ns = time_ns;
        if back_ns > QUEUED_NS_MAX {
            let back = seconds(back_ns);
            return Err(format!(
                "its time is {back} before that of the request before it: a clock was set back, traces were put together \
                 (sort them by time), or a number was cut short"
            ));
        }
        self.latest_ns = self.latest_ns.max(time_ns);
        let behind_ns = self.latest_ns - time_ns;
        if behind_ns > USUAL_NS_MAX {
            let told = self.backwards.get_or_insert_with(|| Backwards {
                requests: 0,
                most_ns: 0,
                place: String::new(),
            });
            told.requests += 1;
            if behind_ns > told.most_ns {
                (told.most_ns, told.place) = (behind_ns, place());
            }
        }
        Ok(())
    }

    pub(super) fn backwards(&self) -> Option<&Backwards> {
        self.backwards.as_ref()
    }
}

/// A time in words.
pub(super) fn seconds(ns: u64) -> String {
    format!("{:.1} s", ns as f64 / 1e9)
}
