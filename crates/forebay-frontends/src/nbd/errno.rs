//! The one place where the outcome of a request becomes an NBD error number.

use forebay_core::status::IoStatus;
use forebay_nbd::errno::Errno;

/// What a client is told of `status`.
///
/// # Errors
/// The error number, of a request that failed.
pub fn result_of(status: IoStatus) -> Result<(), Errno> {
    match status {
        IoStatus::Ok => Ok(()),
        IoStatus::IoError | IoStatus::TimedOut => Err(Errno::Io),
        IoStatus::NoSpace => Err(Errno::NoSpc),
        IoStatus::Unsupported => Err(Errno::NotSup),
        IoStatus::ReadOnly | IoStatus::Reserved => Err(Errno::Perm),
        IoStatus::Invalid => Err(Errno::Inval),
        IoStatus::ShuttingDown => Err(Errno::Shutdown),
        // NBD cannot ask for what it answers.
        IoStatus::Miscompare => Err(Errno::Io),
    }
}
