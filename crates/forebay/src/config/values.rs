//! Values that options and configuration keys share: parsed from the same words on both sides.
//!
//! Each type parses with [`FromStr`], prints what it parsed, and reads from TOML as a string. Errors
//! name what was given and what is allowed.

use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use forebay_core::config as core;
use forebay_core::ids::{Nanos, Uuid};
use forebay_core::policy::PolicyKind;
use forebay_io::reactor::ReactorKind;
use schemars::{JsonSchema, SchemaGenerator};
use serde::de::Visitor;

mod address;
mod schema;
mod words;

pub use address::{Access, Address, HttpAddress, SocketPath};
pub use words::Words;

/// Why what was typed cannot work, in words for whoever typed it. Ends the program with exit code 2.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(pub String);

/// A disk, by its UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskId(pub Uuid);

impl FromStr for DiskId {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<DiskId, ValueError> {
        text.parse()
            .map(DiskId)
            .map_err(|error| ValueError(format!("'{text}' is no disk: {error}")))
    }
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads a string, and says of anything else that quotes are missing.
struct InQuotes<T>(PhantomData<T>);

impl<T: FromStr<Err = ValueError> + JsonSchema> Visitor<'_> for InQuotes<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = T::json_schema(&mut SchemaGenerator::default());
        let examples = schema.get("examples").or(schema.get("enum"));
        let example = examples.and_then(|examples| examples.as_array()?.last()?.as_str());
        write!(f, "a string in quotes, such as {:?}", example.unwrap_or_default())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// Makes a `FromStr` type readable from a configuration file's string.
macro_rules! from_string {
    ($($name:ty),+ $(,)?) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_str(InQuotes(PhantomData))
            }
        }
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
    )+};
}

/// Makes a type whose values are a fixed set of words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident($inner:ty): $what:literal, $($word:literal => $value:expr),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub $inner);

        impl FromStr for $name {
            type Err = ValueError;
            fn from_str(text: &str) -> Result<Self, ValueError> {
                $(if text == $word { return Ok($name($value)); })+
                Err(ValueError(format!(
                    concat!("'{}' is not a ", $what, "; allowed: {}"), text, [$($word),+].join(", ")
                )))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(if self.0 == $value { return f.write_str($word); })+
                unreachable!("every value has a word")
            }
        }

        impl clap::builder::ValueParserFactory for $name {
            type Parser = Words<$name>;
            fn value_parser() -> Words<$name> {
                Words::new([$($word),+])
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schema::words(&[$($word),+])
            }
        }
    };
}

words!(
    /// How a disk uses its cache.
    Mode(core::Mode): "mode",
    "write-through" => core::Mode::WriteThrough,
    "write-around" => core::Mode::WriteAround,
    "write-back" => core::Mode::WriteBack,
    "write-only" => core::Mode::WriteOnly,
    "pass-through" => core::Mode::PassThrough,
    "monitor" => core::Mode::Monitor,
);
words!(
    /// An eviction policy.
    Policy(PolicyKind): "policy",
    "auto" => PolicyKind::Auto,
    "s3fifo" => PolicyKind::S3Fifo,
    "lru" => PolicyKind::Lru,
    "fifo" => PolicyKind::Fifo,
);
words!(
    /// Which blocks go to flash.
    Admission(core::FlashAdmission): "flash admission",
    "history" => core::FlashAdmission::History,
    "always" => core::FlashAdmission::Always,
);
words!(
    /// The order in which primary storage receives what the write log holds.
    DestageOrder(core::DestageOrder): "destage order",
    "strict" => core::DestageOrder::Strict,
    "window" => core::DestageOrder::Window,
    "throughput" => core::DestageOrder::Throughput,
    "journaled" => core::DestageOrder::Journaled,
);
words!(
    /// Whether primary storage is flushed between flush epochs.
    Barrier(bool): "destage barrier",
    "none" => false,
    "flush" => true,
);
words!(
    /// Whether a guest's flush waits until its data are durable.
    FlushSemantics(bool): "kind of flush semantics",
    "honest" => false,
    "deferred" => true,
);
words!(
    /// What a client is told when primary storage exceeds its time.
    OnTimeout(core::OnTimeout): "time-out behaviour",
    "fail" => core::OnTimeout::Fail,
    "wait" => core::OnTimeout::Wait,
);
words!(
    /// On or off.
    Switch(bool): "switch",
    "on" => true,
    "off" => false,
);
words!(
    /// The kernel interface that shards run on; none: the best that works.
    Reactor(Option<ReactorKind>): "reactor",
    "auto" => None,
    "io_uring" => Some(ReactorKind::Uring),
    "epoll" => Some(ReactorKind::Epoll),
);

/// A number of bytes, such as `512`, `8KiB` or `1.5GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Size, ValueError> {
        forebay_backends::size::parse(text).map(Size).map_err(|error| ValueError(error.to_string()))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        forebay_backends::size::exact(self.0).fmt(f)
    }
}

/// A time, such as `30s`, `500ms` or `2min`; digits alone are refused, they do not say what they count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Span, ValueError> {
        match forebay_backends::duration::parse(text) {
            Ok(nanos) => Ok(Span(Duration::from_nanos(nanos.0))),
            Err(error) => Err(ValueError(error.to_string())),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        forebay_backends::duration::exact(Nanos(self.0.as_nanos() as u64)).fmt(f)
    }
}

/// A moment in the past: a time ago, such as `2h`, or a date such as `2026-01-31T12:00:00Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// So long before now.
    Ago(Duration),
    /// Milliseconds since 1970.
    At(u64),
}

impl Since {
    /// Milliseconds since 1970.
    pub fn ms(self, now_ms: u64) -> u64 {
        match self {
            Since::Ago(time) => now_ms.saturating_sub(time.as_millis() as u64),
            Since::At(time_ms) => time_ms,
        }
    }
}

impl FromStr for Since {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Since, ValueError> {
        if let Some(time_ms) = forebay_host::date::parse(text) {
            return Ok(Since::At(time_ms));
        }
        text.parse().map(|Span(time)| Since::Ago(time)).map_err(|_| {
            ValueError(format!(
                "`{text}` is no time: give a time ago, such as 30min or 2h, or a time in UTC, such as 2026-01-31T12:00:00Z"
            ))
        })
    }
}

/// Where the grid of cache blocks lies: `auto` or a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridOffset(pub core::GridOffset);

impl FromStr for GridOffset {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<GridOffset, ValueError> {
        if text == "auto" {
            return Ok(GridOffset(core::GridOffset::Auto));
        }
        let bytes: Size = text.parse().map_err(|error| {
            ValueError(format!("{error}; a grid offset is 'auto' or a number of bytes"))
        })?;
        Ok(GridOffset(core::GridOffset::Fixed(bytes.0)))
    }
}

impl fmt::Display for GridOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            core::GridOffset::Auto => f.write_str("auto"),
            core::GridOffset::Fixed(bytes) => write!(f, "{bytes}"),
        }
    }
}

/// How often the flash may be written full in a day: drive writes per day, as data sheets have it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriveWrites(pub f64);

impl FromStr for DriveWrites {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<DriveWrites, ValueError> {
        let number =
            text.parse().ok().filter(|number| *number == 0.0 || (0.001..=1000.0).contains(number));
        number.map(DriveWrites).ok_or_else(|| {
            ValueError(format!(
                "'{text}' is no number of drive writes per day: use 0.001 to 1000, as the flash's data sheet says (often 1), or 0 for no limit"
            ))
        })
    }
}

impl fmt::Display for DriveWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which sequential streams bypass the cache: `auto`, those longer than a size, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bypass(pub core::SequentialBypass);

impl FromStr for Bypass {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Bypass, ValueError> {
        Ok(Bypass(match text {
            "auto" => core::SequentialBypass::Auto,
            "off" => core::SequentialBypass::Off,
            _ => {
                let bytes: Size = text.parse().map_err(|error| {
                    ValueError(format!("{error}; or 'auto', or 'off' for no bypass"))
                })?;
                core::SequentialBypass::Longer(bytes.0)
            }
        }))
    }
}

impl fmt::Display for Bypass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            core::SequentialBypass::Auto => f.write_str("auto"),
            core::SequentialBypass::Off => f.write_str("off"),
            core::SequentialBypass::Longer(bytes) => Size(bytes).fmt(f),
        }
    }
}

/// A share of a flash file or device: `PATH:SIZE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flash {
    /// The file or block device.
    pub path: PathBuf,
    /// Bytes for cached data.
    pub bytes: u64,
}

impl FromStr for Flash {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Flash, ValueError> {
        let (path, size) =
            text.rsplit_once(':').filter(|(path, _)| !path.is_empty()).ok_or_else(|| {
                ValueError(format!(
                    "'{text}' lacks a part; write PATH:SIZE, such as /nvme/pool:4GiB"
                ))
            })?;
        let bytes = size.parse::<Size>().map_err(|error| {
            ValueError(format!("{error}; write PATH:SIZE, such as /nvme/pool:4GiB"))
        })?;
        Ok(Flash { path: path.into(), bytes: bytes.0 })
    }
}

impl fmt::Display for Flash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), Size(self.bytes))
    }
}

/// An amount of flash, with or without the place where it is, such as `4GiB` or `/nvme/pool:4GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashSize(pub u64);

impl FromStr for FlashSize {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<FlashSize, ValueError> {
        match text.contains(':') {
            true => text.parse().map(|Flash { bytes, .. }| FlashSize(bytes)),
            false => text.parse().map(|Size(bytes)| FlashSize(bytes)),
        }
    }
}

/// What may be written to a flash device in its life, as data sheets say it: `600TB`, in powers of 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endurance(pub u64);

impl FromStr for Endurance {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Endurance, ValueError> {
        let wrong = || {
            let text = format!(
                "'{text}' is no endurance; write terabytes as a data sheet does: 600TB, 1.2PB"
            );
            ValueError(text)
        };
        let decimal = [("TB", 1_000_000_000_000.0), ("PB", 1_000_000_000_000_000.0)];
        let found =
            decimal.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, bytes)));
        match found {
            Some((number, unit)) => {
                let number: f64 = number.trim().parse().map_err(|_| wrong())?;
                let bytes = number * unit;
                let is_possible = bytes.is_finite() && (1.0..1e19).contains(&bytes);
                is_possible.then_some(Endurance(bytes as u64)).ok_or_else(wrong)
            }
            // Bytes alone are a mistake.
            None if text.ends_with(|last: char| last.is_ascii_digit()) => Err(wrong()),
            None => text.parse().map(|Size(bytes)| Endurance(bytes)).map_err(|_| wrong()),
        }
    }
}

/// A disk's name: what clients ask for as export and what its control socket is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub String);

impl FromStr for Name {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Name, ValueError> {
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if text.is_empty() || text.len() > 64 || text.starts_with('.') || !text.chars().all(fine) {
            return Err(ValueError(format!(
                "'{text}' is not a name; 1 to 64 letters, digits, '-', '_' or '.', not starting with '.'"
            )));
        }
        Ok(Name(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

from_string!(
    DiskId,
    Mode,
    Policy,
    Admission,
    DestageOrder,
    Barrier,
    FlushSemantics,
    OnTimeout,
    Switch,
    Reactor,
    Size,
    Span,
    GridOffset,
    Bypass,
    DriveWrites,
    Flash,
    Address,
    HttpAddress,
    SocketPath,
    Name,
);

#[cfg(test)]
mod tests;
