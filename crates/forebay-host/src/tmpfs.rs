//! Small files on tmpfs that outlive the process and not the host: what is staged, when a disk wrote last, losses that no
//! guest has heard of.
//!
//! ```text
//!   /dev/shm  (or $XDG_RUNTIME_DIR)      others may make files here, and links
//!     forebay-UID/                       ours alone: made with 0700, and looked at before it is used
//!       forebay-DISK.staging  forebay-DISK.trail  forebay-STORAGE.untold
//!     forebay-UID.RANDOM/                the same, where somebody else has taken that name
//! ```
//! Earlier versions had these files in `/dev/shm` itself. A file is brought into the folder when it is asked for.
//!
//! **Invariants**
//! - No link is followed, and nothing is written to a file that belongs to somebody else or has a second name.
//! - Whatever others put into `/dev/shm`, there is a folder for us.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::pool::host;

/// tmpfs, by its number in the kernel's `magic.h`.
const TMPFS: u64 = 0x0102_1994;
/// The shared memory of the host.
const SHARED: &str = "/dev/shm";

/// Our folder on tmpfs: in the shared memory of the host, or in this user's runtime folder. `None` where no file outlives
/// the process without being written to a device.
pub fn folder() -> Option<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let bases = [Some(PathBuf::from(SHARED)), runtime].into_iter().flatten();
    let is_tmpfs = |base: &PathBuf| {
        rustix::fs::statfs(base).is_ok_and(|found| found.f_type as u64 == TMPFS)
            && rustix::fs::access(base, rustix::fs::Access::WRITE_OK).is_ok()
    };
    bases.filter(is_tmpfs).find_map(|base| folder_in(&base).ok())
}

/// Our folder in `base`, made if it is not there.
fn folder_in(base: &Path) -> io::Result<PathBuf> {
    let name = folder_name(us());
    let mut folder = base.join(&name);
    loop {
        let made = DirBuilder::new().mode(0o700).create(&folder);
        match made {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) if is_folder_of_ours(&folder) => return Ok(folder),
            Err(_) => {}
        }
        // Somebody else has the name. All runs agree on the first one that is ours.
        if let Some(ours) = folders_in(base, us()).into_iter().next() {
            return Ok(ours);
        }
        folder = base.join(format!("{name}.{:016x}", host::new_nonce()?));
    }
}

/// This user's number.
fn us() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn folder_name(user: u32) -> String {
    format!("forebay-{user}")
}

/// All folders of a user's in `base`, sorted.
fn folders_in(base: &Path, user: u32) -> Vec<PathBuf> {
    let name = folder_name(user);
    let is_one = |path: &PathBuf| {
        let rest = path.file_name().and_then(|found| found.to_str()?.strip_prefix(&name));
        let is_named = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        is_named && is_folder_of_one(path, user)
    };
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_one).collect();
    found.sort();
    found
}

/// True for a folder of ours that nobody else can change.
fn is_folder_of_ours(path: &Path) -> bool {
    is_folder_of_one(path, us())
}

/// True for a folder of a user's that nobody else can change.
fn is_folder_of_one(path: &Path, user: u32) -> bool {
    let is_one =
        |found: fs::Metadata| found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0;
    fs::symlink_metadata(path).is_ok_and(is_one)
}

/// True for a folder, and no link to one, that belongs to this user.
pub fn is_this_users_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == us())
}

/// The place of a file called `name` in our `folder`. What an earlier version, or a run that had another folder of ours,
/// has left under that name is there then.
pub fn place(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    let found = find(folder, name);
    if found != path {
        // Without it the start says that the file is gone.
        let _ = adopt(&found, &path);
    }
    path
}

/// Where the file is that [`place`] would bring to its place.
pub fn find(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    let is_one_of_ours = |name: &str| name.starts_with(&folder_name(us()));
    let base = folder.parent().filter(|_| {
        folder.file_name().and_then(|name| name.to_str()).is_some_and(is_one_of_ours)
            && fs::symlink_metadata(&path).is_err()
    });
    let Some(base) = base else { return path };
    let left =
        folders_in(base, us()).into_iter().chain([base.to_owned()]).map(|left| left.join(name));
    left.into_iter().find(|left| is_ours(left) == Some(true)).unwrap_or(path)
}

/// Moves a file of ours to where nobody else can change what is there.
fn adopt(left: &Path, path: &Path) -> io::Result<()> {
    fs::rename(left, path)?;
    // Only now nobody can put something else into its place.
    if is_ours(path) != Some(true) {
        return fs::remove_file(path);
    }
    if fs::symlink_metadata(path)?.nlink() == 1 {
        return Ok(());
    }
    // Whoever gave it another name may mean a file that is not Forebay's: that is read, and left as it is.
    let copy = path.with_extension("copy");
    let _ = fs::remove_file(&copy);
    let mut to = File::options().write(true).create_new(true).open(&copy)?;
    rustix::fs::fchmod(&to, Mode::RUSR | Mode::WUSR)?;
    let from = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    io::copy(&mut File::from(from), &mut to)?;
    fs::rename(&copy, path)
}

/// Whether what is at `path` is a file of this user; `None`: there is nothing.
pub fn is_ours(path: &Path) -> Option<bool> {
    let found = fs::symlink_metadata(path).ok()?;
    Some(found.is_file() && found.uid() == us())
}

/// Opens a file of ours.
///
/// # Errors
/// The kernel's, or it is a link, belongs to somebody else, or has a second name.
pub fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    open_of(us(), path, flags)
}

/// Opens the file of this name that a user has on tmpfs, to read it. Root looks so at what a service has left.
pub fn read_of(user: u32, name: &str) -> Option<File> {
    match user == us() {
        // A daemon of an earlier version may still have it where that puts it.
        true => open(&find(&folder()?, name), OFlags::RDONLY).ok(),
        false => read_in(Path::new(SHARED), user, name),
    }
}

fn read_in(base: &Path, user: u32, name: &str) -> Option<File> {
    let files = folders_in(base, user).into_iter().map(|folder| folder.join(name));
    files.into_iter().find_map(|path| open_of(user, &path, OFlags::RDONLY).ok())
}

fn open_of(user: u32, path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let not_ours = || {
        let why = "it is a link, is somebody else's, or has a second name";
        let text = format!("{} is not ours alone ({why}): remove it", path.display());
        io::Error::new(io::ErrorKind::PermissionDenied, text)
    };
    let file = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::LOOP) => return Err(not_ours()),
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    let is_ours = found.uid() == user && found.is_file() && found.nlink() <= 1;
    if is_ours { Ok(file) } else { Err(not_ours()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const NAME: &str = "forebay-00000000-0000-0000-0000-000000000007.staging";

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A folder that everybody may write to.
    fn base() -> tempfile::TempDir {
        let base = tempfile::tempdir().unwrap();
        mode(base.path(), 0o1777);
        base
    }

    #[test]
    fn a_folder_of_our_own_is_made_once_and_only_for_us() {
        let base = base();
        let folder = folder_in(base.path()).unwrap();
        assert_eq!(folder, base.path().join(folder_name(us())));
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        assert_eq!(folder_in(base.path()).unwrap(), folder);
        assert!(folder_in(&base.path().join("nowhere")).is_err());
    }

    #[test]
    fn what_a_user_has_left_is_read_and_nothing_that_others_put_there() {
        let base = base();
        let folder = folder_in(base.path()).unwrap();
        let read =
            |user| read_in(base.path(), user, NAME).map(|file| io::read_to_string(file).unwrap());
        fs::write(folder.join(NAME), "staged").unwrap();
        assert_eq!(read(us()).as_deref(), Some("staged"));
        // A folder of that name which is another user's, as its files are.
        fs::rename(&folder, base.path().join(folder_name(12345))).unwrap();
        assert_eq!((read(us()), read(12345)), (None, None));
        let folder = folder_in(base.path()).unwrap();
        symlink("/etc/passwd", folder.join(NAME)).unwrap();
        assert_eq!(read(us()), None);
        fs::remove_file(folder.join(NAME)).unwrap();
        fs::write(folder.join(NAME), "staged").unwrap();
        mode(&folder, 0o777);
        assert_eq!(read(us()), None, "others can put files there");
    }

    #[test]
    fn whoever_takes_the_name_of_our_folder_gets_no_file_and_keeps_nobody_from_starting() {
        let elsewhere = tempfile::tempdir().unwrap();
        let taken: [&dyn Fn(&Path); 5] = [
            &|path| fs::write(path, "").unwrap(),
            &|path| symlink(elsewhere.path(), path).unwrap(),
            &|path| symlink("nowhere", path).unwrap(),
            &|path| {
                fs::create_dir(path).unwrap();
                mode(path, 0o777);
            },
            &|path| {
                fs::create_dir(path).unwrap();
                // Only root can give it away.
                let given = std::os::unix::fs::chown(path, Some(12345), None);
                given.unwrap_or_else(|_| mode(path, 0o722));
            },
        ];
        for take in taken {
            let base = base();
            let name = base.path().join(folder_name(us()));
            take(&name);
            let folder = folder_in(base.path()).unwrap();
            assert_ne!(folder, name);
            assert!(is_folder_of_ours(&folder));
            assert_eq!(folder_in(base.path()).unwrap(), folder, "the next start finds it");
            fs::write(place(&folder, NAME), "staged").unwrap();
            // Somebody makes room again: what was left is not forgotten.
            let _ = fs::remove_file(&name);
            let _ = fs::remove_dir(&name);
            let other = folder_in(base.path()).unwrap();
            assert_eq!(other, name);
            assert_eq!(fs::read_to_string(place(&other, NAME)).unwrap(), "staged");
            assert!(!folder.join(NAME).exists());
        }
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_an_earlier_version_left_is_brought_into_the_folder() {
        let base = base();
        let folder = folder_in(base.path()).unwrap();
        let old = base.path().join(NAME);
        fs::write(&old, "staged").unwrap();
        let path = place(&folder, NAME);
        assert_eq!(fs::read_to_string(&path).unwrap(), "staged");
        assert!(!old.exists());
        // What is in the folder counts.
        fs::write(&old, "planted").unwrap();
        assert_eq!(fs::read_to_string(place(&folder, NAME)).unwrap(), "staged");
    }

    #[test]
    fn a_file_of_an_earlier_version_with_a_second_name_is_read_and_left_alone() {
        let base = base();
        let folder = folder_in(base.path()).unwrap();
        let precious = base.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        fs::hard_link(&precious, base.path().join(NAME)).unwrap();
        let path = place(&folder, NAME);
        fs::write(&path, "emptied").unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        open(&path, OFlags::RDWR).unwrap();
    }

    #[test]
    fn a_link_at_the_name_of_an_earlier_version_is_left_alone() {
        let base = base();
        let folder = folder_in(base.path()).unwrap();
        let precious = base.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        symlink(&precious, base.path().join(NAME)).unwrap();
        let path = place(&folder, NAME);
        assert!(!path.exists());
        open(&path, OFlags::RDWR | OFlags::CREATE).unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    }

    #[test]
    fn neither_links_nor_files_of_two_names_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "").unwrap();
        fs::hard_link(at("file"), at("second")).unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        for name in ["second", "link", "dangling", "folder"] {
            let flags =
                if name == "folder" { OFlags::RDONLY } else { OFlags::RDWR | OFlags::CREATE };
            let refused = open(&at(name), flags).unwrap_err().to_string();
            assert!(refused.contains("is not ours alone"), "{name}: {refused}");
        }
        assert!(!at("nowhere").exists());
    }
}
