//! A unix socket that belongs to this process: bound where nobody listens, removed at the end.
//!
//! A socket file that a killed process left is replaced. A socket of systemd is not ours (`inherited.rs`).

use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result, anyhow, ensure};
use forebay_io::socket::listen_unix;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, chownat, fstat, openat};

use super::inherited::{Inherited, Lent};
use crate::config::values::Access;

/// A bound, listening unix socket. Dropping it removes the file, unless someone replaced it or it is systemd's.
#[derive(Debug)]
pub struct UnixSocket {
    path: PathBuf,
    file: Whose,
}

/// Whose the socket file is.
#[derive(Debug)]
enum Whose {
    /// Ours to remove, if it has this inode still.
    Ours(u64),
    /// systemd's.
    Systemd { _lent: Lent },
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
        if let Some((listener, lent)) = inherited.take_unix(path)? {
            listener.set_nonblocking(true)?;
            let file = Whose::Systemd { _lent: lent };
            return Ok((UnixSocket { path: path.to_owned(), file }, listener));
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            make_folder(folder, access).with_context(|| {
                format!(
                    "cannot create the folder {}; create it or choose another path",
                    folder.display()
                )
            })?;
        }
        let listener = listen_unix(path).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                anyhow!("user {} may not: {error}", rustix::process::geteuid().as_raw())
            }
            _ => error.into(),
        })?;
        listener.set_nonblocking(true)?;
        let inode = fs::symlink_metadata(path)?.ino();
        let socket = UnixSocket { path: path.to_owned(), file: Whose::Ours(inode) };
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
        let found = fs::symlink_metadata(&self.path).map(|found| found.ino());
        if found.is_ok_and(|found| matches!(self.file, Whose::Ours(inode) if inode == found)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Gives the socket at `path` its group and permissions. Who may write in its folder may have put a link there meanwhile: it
/// is not followed.
fn admit(path: &Path, access: &Access) -> Result<()> {
    let shown = path.display();
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = openat(CWD, path, flags, Mode::empty())?;
    let is_socket = FileType::from_raw_mode(fstat(&socket)?.st_mode) == FileType::Socket;
    ensure!(is_socket, "{shown} was replaced by something that is no socket");
    if let Some(group) = &access.group {
        let number = Some(Gid::from_raw(number_of_group(group)?));
        chownat(&socket, "", None, number, AtFlags::EMPTY_PATH).with_context(|| {
            format!("cannot give {shown} to the group '{group}': only its members and root can")
        })?;
    }
    // A descriptor of a path alone takes no permissions, but its name does.
    let name = format!("/proc/self/fd/{}", socket.as_raw_fd());
    fs::set_permissions(name, fs::Permissions::from_mode(access.mode))
        .with_context(|| format!("cannot set the permissions of {shown}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(path: &Path, access: &Access) -> Result<(UnixSocket, UnixListener)> {
        UnixSocket::bind(path, access, &Inherited::default())
    }

    #[test]
    fn what_replaced_a_socket_gets_no_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, path) = (folder.path().join("secret"), folder.path().join("a.sock"));
        fs::write(&secret, "").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        let error = admit(&path, &Access::default()).unwrap_err().to_string();
        assert!(error.contains("replaced by something that is no socket"), "{error}");
        assert_eq!(secret.metadata().unwrap().permissions().mode() & 0o777, 0o600);
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
