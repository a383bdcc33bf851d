//! Errors of naming and opening a backend. I/O on an open one ends with an
//! [`IoStatus`](forebay_core::status::IoStatus) instead.

use std::error::Error as StdError;

use crate::format::ImageFormat;

/// The kind of an error, to match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The URI is malformed, or an option in it is.
    InvalidUri,
    /// The file, device or export does not exist.
    NotFound,
    /// Another process has it.
    InUse,
    /// Another process has locked the device, and is to let go of it by and by.
    Locked,
    /// Not permitted, or read-only.
    Denied,
    /// Nothing answers at the address.
    Connect,
    /// The other side broke its protocol, or offers what cannot be used.
    Protocol,
    /// It exists but cannot serve as a backend.
    Unsuitable,
    /// The same, and it looks like an image of this format.
    NotRaw(ImageFormat),
    /// The kernel refused for another reason.
    Io,
}

/// An error: its kind, what happened where and what to do about it, and the cause.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct Error {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error without a deeper cause.
    pub(crate) fn new(kind: ErrorKind, context: impl Into<String>) -> Error {
        Error { kind, context: context.into(), source: None }
    }

    /// The same error with its cause.
    pub(crate) fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        self.source = Some(source.into());
        self
    }

    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}
