//! Where control sockets and the state folder lie when nobody says otherwise.
//!
//! | user | sockets, `FOLDER/NAME.control.sock` | state folder, which outlives a restart of the host |
//! |---|---|---|
//! | root | `/run/forebay` | `/var/lib/forebay` |
//! | a systemd service | `RuntimeDirectory=`: `$RUNTIME_DIRECTORY` | `StateDirectory=`: `$STATE_DIRECTORY` |
//! | whom root's folder belongs to | as root | as root |
//! | others | `$XDG_RUNTIME_DIR/forebay`, without that variable `/tmp/forebay-UID` | `$XDG_STATE_HOME/forebay` or `~/.local/state/forebay` |
//!
//! Root's folders do not depend on the environment, so that a shell finds the sockets of a service that has another user. So
//! does a shell of that user, which the package gives these folders.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::shell::quoted;
use super::tmpfs;

const SUFFIX: &str = ".control.sock";
/// Root's folders.
const RUNTIME: &str = "/run/forebay";
const STATE: &str = "/var/lib/forebay";

/// The folder of this user's control sockets.
pub fn folder() -> PathBuf {
    let user = rustix::process::geteuid();
    if let Some(folder) = of_host(RUNTIME, "RUNTIME_DIRECTORY") {
        return folder;
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        Some(folder) => Path::new(&folder).join("forebay"),
        None => format!("/tmp/forebay-{}", user.as_raw()).into(),
    }
}

/// True where a service has a folder of control sockets, and this user is neither it nor root.
pub fn is_of_service_only() -> bool {
    Path::new(RUNTIME).is_dir() && folder() != Path::new(RUNTIME)
}

/// The folder of what this host remembers of primary storage, unless another one is given; `None` where this user has none.
pub fn state_folder() -> Option<PathBuf> {
    if let Some(folder) = of_host(STATE, "STATE_DIRECTORY") {
        return Some(folder);
    }
    let of = |name| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let folder = of("XDG_STATE_HOME").or_else(|| Some(of("HOME")?.join(".local/state")))?;
    folder.is_absolute().then(|| folder.join("forebay"))
}

/// Root's folder, or that of a service: the one that the variable names, or root's if it belongs to this user.
fn of_host(folder: &str, variable: &str) -> Option<PathBuf> {
    let root = || Some(folder.into());
    if rustix::process::geteuid().is_root() {
        return root();
    }
    let is_ours = || tmpfs::is_this_users_folder(Path::new(folder)).then(root).flatten();
    of_service(variable).or_else(is_ours)
}

/// The folder that systemd made for this service, the first of several.
fn of_service(variable: &str) -> Option<PathBuf> {
    let folders = std::env::var(variable).ok()?;
    let first = folders.split(':').next().filter(|folder| folder.starts_with('/'))?;
    Some(first.into())
}

/// The control socket of the daemon called `name`, in a folder that exists and is ours. Others may pass
/// through the folder, because it may hold disks' sockets, too; each socket says whom it lets in.
///
/// # Errors
/// The folder cannot be made, or belongs to somebody else.
pub fn default_socket(name: &str) -> Result<PathBuf> {
    let folder = folder();
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&folder).with_context(|| {
        format!("cannot create the folder {}; give --control PATH", folder.display())
    })?;
    check_owner(&folder)?;
    Ok(socket_of(&folder, name))
}

/// Refuses a folder that somebody else may have made, as anybody can in `/tmp`: what listens there is no daemon of ours.
fn check_owner(folder: &Path) -> Result<()> {
    // Root's lies where nobody else can make one. It may be that of a service.
    if !rustix::process::geteuid().is_root() && !tmpfs::is_this_users_folder(folder) {
        bail!("{} is not a folder of this user; give --control PATH", folder.display());
    }
    Ok(())
}

/// The control socket of `name` in `folder`.
pub fn socket_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}{SUFFIX}"))
}

/// The option that a command needs to find the daemon at `control`: none where it looks.
pub fn option_for(control: &Path) -> String {
    let is_socket = control.to_str().is_some_and(|path| path.ends_with(SUFFIX));
    match is_socket && control.parent() == Some(&folder()) {
        true => String::new(),
        false => format!(" --control {}", quoted(control)),
    }
}

/// Every control socket in this user's folder, sorted by name.
///
/// # Errors
/// The folder belongs to somebody else.
pub fn sockets() -> Result<Vec<PathBuf>> {
    let folder = folder();
    if std::fs::symlink_metadata(&folder).is_err() {
        return Ok(Vec::new());
    }
    check_owner(&folder)?;
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.to_str().is_some_and(|path| path.ends_with(SUFFIX)))
        .collect();
    found.sort();
    Ok(found)
}
