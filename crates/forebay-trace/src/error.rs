//! The crate's error: what went wrong, where in which file, and what to do.

use std::io;

/// Requests of a trace that are under way at a time, at most.
pub(crate) const UNDER_WAY_MAX: usize = 1 << 20;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The file cannot be read.
    Io,
    /// The content is of no format that is read here.
    UnknownFormat,
    /// A record of the trace makes no sense.
    BadRecord,
    /// The trace has no read and no write.
    Empty,
    /// A setting that cannot work.
    Invalid,
    /// The target of a replay is smaller than the trace.
    TargetTooSmall,
    /// The target of a replay holds data, or may.
    HoldsData,
    /// The target of a replay failed.
    Target,
}

/// See the module. The source tells its part itself, to whoever prints the chain.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<io::Error>,
}

impl Error {
    /// An error of `kind` with a message that names the thing and says what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None }
    }

    /// An I/O error while doing `what`.
    pub fn io(what: impl Into<String>, source: io::Error) -> Error {
        Error { kind: ErrorKind::Io, message: what.into(), source: Some(source) }
    }

    /// What was read now is not what was read before, as `how` says.
    pub fn trace_changed(how: impl std::fmt::Display) -> Error {
        let message = format!("the trace changed while it was read: {how}: wait until it is whole");
        Error::new(ErrorKind::Io, message)
    }

    /// Request `number` has more than [`UNDER_WAY_MAX`] others under way.
    pub(crate) fn too_many_under_way(number: u64) -> Error {
        let message = format!(
            "more than {UNDER_WAY_MAX} requests of the trace are under way at request {number}: its latencies cannot be right"
        );
        Error::new(ErrorKind::Invalid, message)
    }

    /// The kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The same error with the name of the file in front.
    pub(crate) fn in_file(mut self, name: &str) -> Error {
        self.message = format!("{name}: {}", self.message);
        self
    }
}
