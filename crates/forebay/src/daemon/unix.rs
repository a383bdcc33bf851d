//! A unix socket that belongs to this process: bound where nobody listens, removed at the end.
//!
//! A socket file outlives a process that was killed. Whoever binds finds out whether anybody still
//! listens by connecting: refused means stale, and the file is replaced.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result, bail};

/// A bound, listening unix socket. Dropping it removes the file, unless someone replaced it.
#[derive(Debug)]
pub struct UnixSocket {
    path: PathBuf,
    inode: u64,
}

impl UnixSocket {
    /// Listens at `path`; the listener is non-blocking. With `private` only the own user may connect.
    ///
    /// # Errors
    /// Someone listens there, something that is not a socket lies there, or the kernel refuses.
    pub fn bind(path: &Path, private: bool) -> Result<(UnixSocket, UnixListener)> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot create the folder {}", folder.display()))?;
        }
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_stale(path)?;
                UnixListener::bind(path)
            }
            other => other,
        };
        let listener = listener.with_context(|| format!("cannot listen at {}", path.display()))?;
        listener.set_nonblocking(true)?;
        if private {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        }
        let inode = fs::symlink_metadata(path)?.ino();
        Ok((UnixSocket { path: path.to_owned(), inode }, listener))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes the socket at `path` if nobody listens on it.
fn remove_stale(path: &Path) -> Result<()> {
    let found =
        fs::symlink_metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    if !found.file_type().is_socket() {
        bail!("{} exists and is not a socket; choose another path or remove it", path.display());
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)
            .with_context(|| format!("cannot remove the stale socket {}", path.display())),
        _ => bail!(
            "{} is in use by another process; stop that one or choose another path",
            path.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_in_use_is_refused_and_a_stale_one_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/a.sock");
        let (first, listener) = UnixSocket::bind(&path, true).unwrap();
        let error = UnixSocket::bind(&path, true).unwrap_err().to_string();
        assert!(error.contains("in use by another process"), "{error}");
        // As after a kill: the listener is gone, the file is there.
        std::mem::forget(first);
        drop(listener);
        let (second, _listener) = UnixSocket::bind(&path, true).unwrap();
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_not_a_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "data").unwrap();
        let error = UnixSocket::bind(&path, false).unwrap_err().to_string();
        assert!(error.contains("not a socket"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"data");
    }
}
