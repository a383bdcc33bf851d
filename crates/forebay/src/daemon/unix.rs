//! A unix socket that belongs to this process: bound where nobody listens, removed at the end.
//!
//! A socket file outlives a process that was killed. Whoever binds finds out whether anybody still
//! listens by connecting: refused means stale, and the file is replaced. A socket of systemd is not ours (`inherited.rs`).

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result, bail};

use super::inherited::Inherited;
use crate::config::values::Access;

/// A bound, listening unix socket. Dropping it removes the file, unless someone replaced it or it is systemd's.
#[derive(Debug)]
pub struct UnixSocket {
    path: PathBuf,
    /// Of the file that is ours to remove.
    inode: Option<u64>,
}

impl UnixSocket {
    /// Listens at `path`, for those whom `access` lets in, or takes the socket that listens there already; the listener is
    /// non-blocking.
    ///
    /// # Errors
    /// Someone listens there, something that is not a socket lies there, or the kernel refuses.
    pub fn bind(
        path: &Path,
        access: &Access,
        inherited: &Inherited,
    ) -> Result<(UnixSocket, UnixListener)> {
        if let Some(listener) = inherited.take_unix(path) {
            listener.set_nonblocking(true)?;
            return Ok((UnixSocket { path: path.to_owned(), inode: None }, listener));
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            make_folder(folder, access).with_context(|| {
                format!(
                    "cannot create the folder {}; create it or choose another path",
                    folder.display()
                )
            })?;
        }
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_stale(path)?;
                UnixListener::bind(path)
            }
            other => other,
        };
        let user = rustix::process::geteuid().as_raw();
        let listener =
            listener.with_context(|| format!("user {user} cannot listen at {}", path.display()))?;
        listener.set_nonblocking(true)?;
        let inode = fs::symlink_metadata(path)?.ino();
        let socket = UnixSocket { path: path.to_owned(), inode: Some(inode) };
        admit(path, access)?;
        Ok((socket, listener))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path).map(|found| found.ino()).ok();
        if self.inode.is_some() && self.inode == found {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Gives the socket at `path` its group and permissions.
fn admit(path: &Path, access: &Access) -> Result<()> {
    if let Some(group) = &access.group {
        chown(path, None, Some(number_of_group(group)?)).with_context(|| {
            format!(
                "cannot give {} to the group '{group}': only its members and root can",
                path.display()
            )
        })?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(access.mode))
        .with_context(|| format!("cannot set the permissions of {}", path.display()))
}

/// The number of a group that is given by name, as in /etc/group, or by number.
fn number_of_group(group: &str) -> Result<u32> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let groups = fs::read_to_string("/etc/group").context("cannot read /etc/group")?;
    let number = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(group)).then(|| fields.nth(1)?.parse().ok())?
    });
    number.with_context(|| format!("there is no group '{group}' in /etc/group; give its number"))
}

/// Makes a folder that is not there; with the umask of a service nobody else would get through to a socket that lets others in.
fn make_folder(folder: &Path, access: &Access) -> io::Result<()> {
    let ancestors = folder.ancestors().filter(|it| !it.as_os_str().is_empty());
    let missing: Vec<&Path> = ancestors.take_while(|it| !it.exists()).collect();
    fs::create_dir_all(folder)?;
    let others = if *access == Access::default() { &[] } else { &*missing };
    others.iter().try_for_each(|made| fs::set_permissions(made, fs::Permissions::from_mode(0o755)))
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

    fn bind(path: &Path, access: &Access) -> Result<(UnixSocket, UnixListener)> {
        UnixSocket::bind(path, access, &Inherited::default())
    }

    #[test]
    fn a_socket_in_use_is_refused_and_a_stale_one_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/a.sock");
        let (first, listener) = bind(&path, &Access::default()).unwrap();
        let error = bind(&path, &Access::default()).unwrap_err().to_string();
        assert!(error.contains("in use by another process"), "{error}");
        // As after a kill: the listener is gone, the file is there.
        std::mem::forget(first);
        drop(listener);
        let (second, _listener) = bind(&path, &Access::default()).unwrap();
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_is_the_owners_unless_its_address_lets_others_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let group = rustix::process::getegid().as_raw();
        for (options, mode) in [("", 0o600), (&*format!("mode=0660&group={group}"), 0o660)] {
            let (_socket, _listener) = bind(&path, &options.parse().unwrap()).unwrap();
            let found = fs::metadata(&path).unwrap();
            assert_eq!((found.mode() & 0o777, found.gid()), (mode, group));
        }
        let unknown = "group=no-such-group".parse().unwrap();
        let error = bind(&path, &unknown).unwrap_err().to_string();
        assert!(error.contains("'no-such-group'"), "{error}");
        assert!(!path.exists(), "what was begun is undone");
        assert_eq!(number_of_group("root").unwrap(), 0);
    }

    #[test]
    fn what_is_not_a_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "data").unwrap();
        let error = bind(&path, &Access::default()).unwrap_err().to_string();
        assert!(error.contains("not a socket"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"data");
    }
}
