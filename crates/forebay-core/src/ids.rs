//! Identifiers that must not be mixed: each is a newtype over the integer that it counts.

use crate::splitmix;

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

impl BlockIndex {
    /// Well-mixed bits, the same for the same block everywhere.
    pub fn hash(self) -> u64 {
        splitmix::hash(self.0.into())
    }
}

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

/// Number of a record in a disk's log: +1 each, never used twice for what may still be read.
/// Real records count from 1; 0 is "before the first".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The sequence `count` records later.
    pub const fn plus(self, count: u64) -> Sequence {
        Sequence(self.0 + count)
    }
}

/// The span between two acknowledged flushes that a write belongs to: what a later epoch holds must not
/// be on primary storage without all of the earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlushEpoch(pub u64);

/// Counts the sessions that may have written under a disk's name; what an older one left is fenced off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// Number of a segment of the flash pool, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u32);

/// Number of a group in a disk's log, +1 each over all segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNumber(pub u64);

/// Names a disk or a pool for good; never zero for a real one.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Nobody.
    pub const NIL: Uuid = Uuid([0; 16]);
}

impl std::fmt::Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// A text is no UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a UUID is 32 hexadecimal digits, with dashes as in 01234567-89ab-cdef-0123-456789abcdef")]
pub struct NoUuid;

impl std::str::FromStr for Uuid {
    type Err = NoUuid;

    fn from_str(text: &str) -> Result<Uuid, NoUuid> {
        let mut bytes = [0; 16];
        let mut digits = text.bytes().filter(|byte| *byte != b'-');
        for byte in &mut bytes {
            let mut digit = || digits.next().and_then(|d| char::from(d).to_digit(16)).ok_or(NoUuid);
            *byte = (digit()? << 4 | digit()?) as u8;
        }
        let uuid = Uuid(bytes);
        let is_spelled = uuid.to_string() == text.to_ascii_lowercase();
        if is_spelled { Ok(uuid) } else { Err(NoUuid) }
    }
}

impl std::fmt::Debug for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}
