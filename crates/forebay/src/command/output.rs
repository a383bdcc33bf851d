//! Where a command puts what it found: standard output, and files.
//!
//! ```text
//!   nothing there, or a regular file:  a file without a name in its folder ──commit──► a name beside it ──► its name
//!   a pipe, a terminal, /dev/null:     written as it comes
//!   a block device:                    refused: what is on it would be gone
//!   '-':                               standard output, as it comes; what else the command says goes to standard error
//! ```
//! **Invariant:** a file that is there stays as it is until all of what replaces it is on storage. A command that fails, or that is ended
//! however, leaves nothing behind. Where the file system knows no files without a name (NFS), the file has one beside the other from the start,
//! which a command that is killed does leave.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat};
use tempfile::TempPath;

/// What is typed for standard output, or input, instead of a file.
pub(super) const STANDARD: &str = "-";
/// What a new file's name begins with until it has its own.
const PREFIX: &str = ".forebay-";

/// A file of the command is standard output.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Writes to standard output, or beside it when it is a file of the command.
pub(super) fn show(text: impl Display) -> Result<()> {
    if IS_TAKEN.load(Ordering::Relaxed) {
        return write!(io::stderr(), "{text}").context("cannot write to standard error");
    }
    let mut out = io::stdout().lock();
    let shown = write!(out, "{text}").and_then(|()| out.flush());
    shown.context("cannot write to standard output")
}

/// A file that is being written; [`Output::commit`] puts it where it belongs. See the module.
#[derive(Debug)]
pub(super) struct Output {
    /// As it was typed.
    path: PathBuf,
    file: File,
    destination: Destination,
}

#[derive(Debug)]
enum Destination {
    /// There is no file to replace: a pipe, a terminal, /dev/null.
    Straight,
    /// It will be `to`; it may have a name until then.
    Beside { name: Option<TempPath>, to: PathBuf },
    /// It will be `to`, and is `part` until then, whatever happens.
    Part { part: PathBuf, to: PathBuf },
}

impl Output {
    /// Makes the file for a result, before the work that it costs.
    ///
    /// # Errors
    /// It could not be written or replaced.
    pub fn create(path: &Path) -> Result<Output> {
        Output::make(path, |to| {
            let (file, name) = beside(to)?;
            Ok((file, Destination::Beside { name, to: to.to_owned() }))
        })
    }

    /// Makes the file for what cannot be had again. Until it is whole it is named PATH.part, which stays when it never gets so.
    ///
    /// # Errors
    /// It could not be written or replaced, or such a part is there, with something in it or in use.
    pub fn create_part(path: &Path) -> Result<Output> {
        Output::make(path, |to| {
            let part = part_of(to);
            let file = new_part(&part).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => anyhow!(
                    "{} is there, what an earlier recording left that was cut off, or one that goes on: move it away, or choose another name",
                    part.display()
                ),
                _ => anyhow!(error).context(format!("cannot write {}", part.display())),
            })?;
            Ok((file, Destination::Part { part, to: to.to_owned() }))
        })
    }

    fn make(path: &Path, new: impl FnOnce(&Path) -> Result<(File, Destination)>) -> Result<Output> {
        if path == Path::new(STANDARD) {
            return Output::standard();
        }
        let cannot = || format!("cannot write {}", path.display());
        let folder = folder_of(path);
        if !folder.is_dir() {
            let folder = folder.display();
            bail!("the folder {folder} does not exist; create it or choose another path");
        }
        // Whatever is there is not emptied by that.
        let there = match File::options().append(true).open(path) {
            Ok(file) => Some((file.metadata().with_context(cannot)?, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(cannot),
        };
        let is_device =
            there.as_ref().is_some_and(|(found, _)| found.file_type().is_block_device());
        ensure!(!is_device, "{}: it is a block device, and would lose what is on it", cannot());
        let to = without_links(path).with_context(cannot)?;
        let (file, destination) = match (there, to) {
            (Some((found, file)), to) if to.is_none() || !found.is_file() => {
                (file, Destination::Straight)
            }
            (there, Some(to)) => {
                let beside = || {
                    format!("{}, which is made in the folder {} first", cannot(), folder.display())
                };
                let (file, destination) = new(&to).with_context(beside)?;
                if let Some((found, _)) = there {
                    take_after(&file, &found).with_context(cannot)?;
                }
                (file, destination)
            }
            (_, None) => bail!("{}: there is nothing at its end", cannot()),
        };
        Ok(Output { path: path.to_owned(), file, destination })
    }

    /// Standard output.
    fn standard() -> Result<Output> {
        if IS_TAKEN.swap(true, Ordering::Relaxed) {
            bail!(
                "two files cannot both be standard output ('{STANDARD}'): name a file for one of them"
            );
        }
        let file =
            io::stdout().as_fd().try_clone_to_owned().context("cannot write to standard output")?;
        Ok(Output { path: STANDARD.into(), file: file.into(), destination: Destination::Straight })
    }

    /// The same file, for who keeps it.
    ///
    /// # Errors
    /// Too many files are open.
    pub fn file(&self) -> Result<File> {
        self.file.try_clone().with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Writes `text` behind what was written.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&mut self, text: &str) -> Result<()> {
        let written = self.file.write_all(text.as_bytes());
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// Its end cannot be written, or it cannot be renamed; what was there before is there, then.
    pub fn commit(self) -> Result<()> {
        let Output { path, file, destination } = self;
        let cannot = || format!("cannot write {}", path.display());
        match destination {
            Destination::Straight => Ok(()),
            Destination::Beside { name, to } => {
                file.sync_all().with_context(cannot)?;
                let name = name.map_or_else(|| named(&file, &to), Ok).with_context(cannot)?;
                name.persist(&to).or_else(|refused| {
                    let kept = refused.path.keep().with_context(cannot)?;
                    let kept = format!("{}; all of it is in {}", cannot(), kept.display());
                    Err(refused.error).context(kept)
                })
            }
            Destination::Part { part, to } => {
                file.sync_all().with_context(cannot)?;
                fs::rename(&part, to)
                    .with_context(|| format!("{}; all of it is in {}", cannot(), part.display()))
            }
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn part_of(path: &Path) -> PathBuf {
    [path.as_os_str().to_owned(), OsString::from(".part")].into_iter().collect::<OsString>().into()
}

/// A part, which is locked as long as it is open. An earlier one is taken that has nothing in it and that nobody writes.
fn new_part(path: &Path) -> io::Result<File> {
    let file = match File::create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let left = File::options().append(true).open(path)?;
            let is_taken = left.try_lock().is_err() || left.metadata()?.len() > 0;
            return if is_taken { Err(error) } else { Ok(left) };
        }
        made => made?,
    };
    // A file system without locks has an owner for each part all the same.
    let _ = file.try_lock();
    Ok(file)
}

/// The path that symbolic links lead to, be there something or not; none where they lead to a file that a process has open, such as
/// /dev/stdout.
fn without_links(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut path = path.to_owned();
    loop {
        let folder = folder_of(&path).canonicalize()?;
        if folder.starts_with("/proc") {
            return Ok(None);
        }
        let destination = folder.join(path.file_name().ok_or(io::ErrorKind::IsADirectory)?);
        match fs::read_link(&destination) {
            Ok(to) => path = folder.join(to),
            Err(_) => return Ok(Some(destination)),
        }
    }
}

/// A new file in the folder of `to`, with a name where it needs one.
fn beside(to: &Path) -> io::Result<(File, Option<TempPath>)> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(folder_of(to), flags, Mode::from_raw_mode(0o666)).map(File::from);
    match file {
        Ok(file) if link(&file).exists() => Ok((file, None)),
        _ => {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
            let made = tempfile::Builder::new()
                .prefix(PREFIX)
                .permissions(mode)
                .tempfile_in(folder_of(to))?;
            let (file, name) = made.into_parts();
            Ok((file, Some(name)))
        }
    }
}

/// What leads to an open file.
fn link(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Gives a file without a name one beside `to`: a link replaces nothing, only a renaming does.
fn named(file: &File, to: &Path) -> io::Result<TempPath> {
    let link_at = |path: &Path| Ok(linkat(CWD, link(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?);
    let named = tempfile::Builder::new().prefix(PREFIX).make_in(folder_of(to), link_at)?;
    Ok(named.into_temp_path())
}

/// Lets those use the new file who could use the old one. Its owner stays the same where we may give files away.
fn take_after(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    let mut permissions = old.permissions();
    let is_anothers = (new.uid(), new.gid()) != (old.uid(), old.gid());
    if is_anothers
        && fchown(file, Some(old.uid()), Some(old.gid())).is_err()
        && fchown(file, None, Some(old.gid())).is_err()
    {
        // What that group could do is not for ours.
        permissions.set_mode(permissions.mode() & !0o070);
    }
    file.set_permissions(permissions)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Names in a folder.
    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_file_is_replaced_by_all_of_another_or_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let mut output = Output::create(&path).unwrap();
        output.write("half").unwrap();
        assert_eq!((read(&path).as_str(), names(folder.path())), ("old", vec!["out".to_owned()]));
        drop(output);
        assert_eq!((read(&path).as_str(), names(folder.path())), ("old", vec!["out".to_owned()]));
        let mut output = Output::create(&path).unwrap();
        output.file().unwrap().write_all(b"all of ").unwrap();
        output.write("it").unwrap();
        output.commit().unwrap();
        assert_eq!(
            (read(&path).as_str(), names(folder.path())),
            ("all of it", vec!["out".to_owned()])
        );
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
    }

    #[test]
    fn a_link_stays_one_and_what_it_leads_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (link, far) = (folder.path().join("link"), folder.path().join("far"));
        fs::create_dir(&far).unwrap();
        symlink("far/file", &link).unwrap();
        for text in ["new", "newer"] {
            let mut output = Output::create(&link).unwrap();
            output.write(text).unwrap();
            output.commit().unwrap();
            assert_eq!(read(&far.join("file")), text);
            assert!(link.is_symlink() && names(&far) == ["file"]);
        }
    }

    #[test]
    fn what_is_no_regular_file_is_written_straight() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || read(&pipe)
        });
        let mut output = Output::create(&pipe).unwrap();
        output.write("through").unwrap();
        output.commit().unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        // An open file is one that somebody else writes to as well.
        let log = folder.path().join("log");
        fs::write(&log, "before ").unwrap();
        let open = File::options().append(true).open(&log).unwrap();
        let mut output = Output::create(&link(&open)).unwrap();
        output.write("behind").unwrap();
        output.commit().unwrap();
        assert_eq!(read(&log), "before behind");
        let mut full = Output::create(Path::new("/dev/full")).unwrap();
        let said = format!("{:#}", full.write("x").unwrap_err());
        assert!(said.starts_with("cannot write /dev/full: No space left"), "{said}");
        assert_eq!(names(folder.path()), ["log", "pipe"]);
    }

    #[test]
    fn a_part_has_its_name_until_it_is_whole_and_keeps_it_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        fs::write(&path, "old").unwrap();
        let mut output = Output::create_part(&path).unwrap();
        output.write("new").unwrap();
        assert_eq!((read(&path).as_str(), read(&part_of(&path)).as_str()), ("old", "new"));
        let again = Output::create_part(&path).unwrap_err();
        assert!(format!("{again:#}").contains("out.part is there"), "{again:#}");
        output.commit().unwrap();
        assert_eq!((read(&path).as_str(), names(folder.path())), ("new", vec!["out".to_owned()]));
        let mut output = Output::create_part(&path).unwrap();
        let again = Output::create_part(&path).unwrap_err();
        assert!(format!("{again:#}").contains("one that goes on"), "it is empty yet: {again:#}");
        output.write("half").unwrap();
        drop(output);
        assert_eq!(names(folder.path()), ["out", "out.part"]);
        assert!(Output::create_part(&path).is_err(), "it has what cannot be had again");
        // As a full file system leaves one.
        fs::write(part_of(&path), "").unwrap();
        let mut output = Output::create_part(&path).unwrap();
        output.write("newest").unwrap();
        output.commit().unwrap();
        assert_eq!(
            (read(&path).as_str(), names(folder.path())),
            ("newest", vec!["out".to_owned()])
        );
    }

    #[test]
    fn what_cannot_be_written_is_refused_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        for (path, says) in [
            (folder.path().join("none/out"), "does not exist; create it"),
            (folder.path().to_owned(), "Is a directory"),
            (folder.path().join(".."), "Is a directory"),
            (PathBuf::from("/proc/self/none"), "cannot write /proc/self/none"),
        ] {
            let error = format!("{:#}", Output::create(&path).unwrap_err());
            assert!(error.contains(says), "{error}");
        }
    }
}
