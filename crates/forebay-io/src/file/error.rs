//! Errors of a file, in words for an operator.

use std::io;
use std::path::{Path, PathBuf};

/// An attempt, its path, why it failed, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {why}; {advice}", path.display())]
pub struct FileError {
    kind: FileErrorKind,
    action: &'static str,
    path: PathBuf,
    why: String,
    advice: &'static str,
    source: Option<io::Error>,
}

/// Kinds of [`FileError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileErrorKind {
    /// Nothing is there.
    NotFound,
    /// Another process has it.
    InUse,
    /// Another process has locked a block device, and is to let go of it by and by.
    Locked,
    /// The kernel forbids it, or it can only be read.
    Denied,
    /// Neither a regular file nor a block device.
    WrongType,
    /// The file system is full.
    NoSpace,
    /// Anything else.
    Io,
}

impl FileError {
    pub(super) fn new(action: &'static str, path: &Path, source: io::Error) -> FileError {
        let (kind, why, advice) = explain(&source);
        // What the kernel says is told once.
        let (why, source) = match why {
            Some(why) => (why.to_owned(), Some(source)),
            None => (source.to_string(), None),
        };
        FileError { kind, action, path: path.to_owned(), why, advice, source }
    }

    /// A living process has it locked, for a moment only if its lock `passes`.
    pub(super) fn held_by(path: &Path, process: Option<u32>, passes: bool) -> FileError {
        let held = process.map_or_else(
            || "already in use by a process that cannot be seen from here".to_owned(),
            |process| format!("already in use by process {process}"),
        );
        let in_use = FileErrorKind::InUse;
        let (kind, why, advice) = match passes {
            _ if process == Some(std::process::id()) => {
                (in_use, held + ", which is this one", "use it for one purpose only")
            }
            true => (FileErrorKind::Locked, held, "wait until that one lets go of it, or stop it"),
            false => (in_use, held, "stop that one or choose another"),
        };
        FileError { kind, action: "lock", path: path.to_owned(), why, advice, source: None }
    }

    pub(super) fn wrong_type(path: &Path, what: &str) -> FileError {
        FileError {
            kind: FileErrorKind::WrongType,
            action: "open",
            path: path.to_owned(),
            why: format!("it is {what}"),
            advice: "name a regular file or a block device",
            source: None,
        }
    }

    /// What kind it is.
    pub fn kind(&self) -> FileErrorKind {
        self.kind
    }

    /// Why, without advice.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Where it happened.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn explain(error: &io::Error) -> (FileErrorKind, Option<&'static str>, &'static str) {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR | libc::ENXIO | libc::ENODEV) => {
            (FileErrorKind::NotFound, None, "check the path, or create it first")
        }
        Some(libc::EWOULDBLOCK | libc::EBUSY | libc::ETXTBSY) => (
            FileErrorKind::InUse,
            Some("already in use by another process (or mounted)"),
            "stop that one (`fuser -v` or `lslocks` show it) or choose another",
        ),
        Some(libc::EACCES | libc::EPERM) => (
            FileErrorKind::Denied,
            None,
            "run as a user who may read and write it, or open it read-only",
        ),
        Some(libc::EROFS) => (FileErrorKind::Denied, None, "open it read-only"),
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => {
            (FileErrorKind::NoSpace, None, "free some space there, or ask for less")
        }
        Some(_) | None => (FileErrorKind::Io, None, "check the device and the kernel's log"),
    }
}
