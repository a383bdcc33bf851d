//! How an I/O or a request ended: one vocabulary on the data path, mapped once per frontend.

use serde::{Deserialize, Serialize};

/// The outcome of an I/O on a device, and of a guest's request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum IoStatus {
    /// Everything was done that was asked for; never a short transfer.
    #[default]
    Ok,
    /// The device failed, or transferred less than was asked for.
    IoError,
    /// No answer within the time allowed; the I/O may still happen.
    TimedOut,
    /// The device is full, or its quota is.
    NoSpace,
    /// The device or this backend cannot do this operation.
    Unsupported,
    /// The device or the export is read-only.
    ReadOnly,
    /// The request lies outside the disk or breaks a documented constraint.
    Invalid,
    /// The disk is shutting down and takes no new requests.
    ShuttingDown,
    /// A compare-and-write found other bytes than were expected, and wrote nothing. Not an error.
    Miscompare,
    /// An initiator has reserved the disk. Frontends give this status, the engine and its devices never do.
    Reserved,
}

impl IoStatus {
    /// True for [`IoStatus::Ok`].
    pub fn is_ok(self) -> bool {
        self == IoStatus::Ok
    }

    /// True where something went wrong. A comparison may find a difference, and zeroes that cannot be written fast are for
    /// the client to write.
    pub fn is_failure(self) -> bool {
        !matches!(self, IoStatus::Ok | IoStatus::Miscompare | IoStatus::Unsupported)
    }
}

impl std::fmt::Display for IoStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            IoStatus::Ok => "ok",
            IoStatus::IoError => "I/O error",
            IoStatus::TimedOut => "no answer in time",
            IoStatus::NoSpace => "no space left",
            IoStatus::Unsupported => "not supported",
            IoStatus::ReadOnly => "read-only",
            IoStatus::Invalid => "invalid request",
            IoStatus::ShuttingDown => "shutting down",
            IoStatus::Miscompare => "other bytes than expected",
            IoStatus::Reserved => "reserved by somebody else",
        })
    }
}
