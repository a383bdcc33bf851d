//! Identifiers that must not be mixed: each is a newtype over the integer that it counts.

/// Nanoseconds on the caller's monotonic clock. The engine never reads a clock: time is an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The instant that no clock reaches.
    pub const NEVER: Nanos = Nanos(u64::MAX);

    /// Whole milliseconds as nanoseconds.
    pub const fn from_millis(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    /// Whole microseconds as nanoseconds.
    pub const fn from_micros(micros: u64) -> Nanos {
        Nanos(micros * 1_000)
    }

    /// The time from `earlier` to `self`, zero when `earlier` is later.
    pub fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// This instant moved by `duration`; sticks at [`Nanos::NEVER`].
    pub fn plus(self, duration: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(duration.0))
    }
}

/// Number of a cache block on the disk's block grid (see [`crate::geometry::Grid`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockIndex(pub u32);

/// A place for one cache block in a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

/// An I/O that the engine asked for and that has not completed. Never used twice at the same time;
/// the upper half counts reuse, so that a late completion cannot be taken for a newer I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// The frontend's own name for a request, returned unchanged in its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestTag(pub u64);
