//! Where control sockets and the state folder lie when nobody says otherwise.
//!
//! The state folder, which outlives a restart of the host: `/var/lib/forebay` for root, `$XDG_STATE_HOME/forebay` or
//! `~/.local/state/forebay` for other users.
//!
//! Sockets have one rule: `FOLDER/NAME.control.sock`, where FOLDER is `/run/forebay` for root,
//! `$XDG_RUNTIME_DIR/forebay` for other users, and `/tmp/forebay-UID` without that variable. Root's
//! folder does not depend on the environment, so that a service and a shell agree on it.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::shell::quoted;
use super::tmpfs;

const SUFFIX: &str = ".control.sock";

/// The folder of this user's control sockets.
pub fn folder() -> PathBuf {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return "/run/forebay".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        Some(folder) => Path::new(&folder).join("forebay"),
        None => format!("/tmp/forebay-{}", user.as_raw()).into(),
    }
}

/// The folder of what this host remembers of primary storage, unless another one is given; `None` where this user has none.
pub fn state_folder() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/forebay".into());
    }
    let of = |name| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let folder = of("XDG_STATE_HOME").or_else(|| Some(of("HOME")?.join(".local/state")))?;
    folder.is_absolute().then(|| folder.join("forebay"))
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
    if !tmpfs::is_this_users_folder(&folder) {
        bail!("{} is not a folder of this user; give --control PATH", folder.display());
    }
    Ok(socket_of(&folder, name))
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

/// Every control socket in `folder`, sorted by name.
pub fn sockets(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.to_str().is_some_and(|path| path.ends_with(SUFFIX)))
        .collect();
    found.sort();
    found
}
