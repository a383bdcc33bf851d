//! Units of time columns.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};

/// The unit of a time column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeUnit {
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
}

impl TimeUnit {
    /// All units with their names.
    pub const ALL: [(TimeUnit, &'static str); 4] = [
        (TimeUnit::Nanoseconds, "ns"),
        (TimeUnit::Microseconds, "us"),
        (TimeUnit::Milliseconds, "ms"),
        (TimeUnit::Seconds, "s"),
    ];

    pub(super) fn ns(self) -> u64 {
        match self {
            TimeUnit::Nanoseconds => 1,
            TimeUnit::Microseconds => 1_000,
            TimeUnit::Milliseconds => 1_000_000,
            TimeUnit::Seconds => 1_000_000_000,
        }
    }
}

impl FromStr for TimeUnit {
    type Err = Error;

    fn from_str(name: &str) -> Result<TimeUnit, Error> {
        let found = TimeUnit::ALL.iter().find(|(_, known)| *known == name);
        found.map(|&(unit, _)| unit).ok_or_else(|| {
            let message = format!("unknown unit of time \"{name}\": use one of ns, us, ms, s");
            Error::new(ErrorKind::Invalid, message)
        })
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TimeUnit::Nanoseconds => "nanoseconds",
            TimeUnit::Microseconds => "microseconds",
            TimeUnit::Milliseconds => "milliseconds",
            TimeUnit::Seconds => "seconds",
        })
    }
}
