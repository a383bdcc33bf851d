//! Opening: what is refused, and with which words.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use forebay_io::file::{FileErrorKind, OpenFile, Options};
use rustix::fs::{Mode, OFlags};

use crate::OpenOptions;
use crate::backend::HostLoses;
use crate::error::{Error, ErrorKind};
use crate::format::ImageFormat;
use crate::identity;
use crate::size;
use crate::uri::FileUri;

/// Opens what `uri` names, and checks that it is what the scheme says and can serve.
pub(super) fn open(uri: &FileUri, options: OpenOptions, block: bool) -> Result<OpenFile, Error> {
    let file = OpenFile::open(
        &uri.path,
        &Options {
            read_only: uri.read_only || options.read_only,
            buffered: !uri.direct,
            allocate: None,
            lock_wait: options.lock_wait,
        },
    )
    .map_err(|error| {
        let kind = match error.kind() {
            FileErrorKind::NotFound => ErrorKind::NotFound,
            FileErrorKind::InUse => ErrorKind::InUse,
            FileErrorKind::Locked => ErrorKind::Locked,
            FileErrorKind::Denied => ErrorKind::Denied,
            FileErrorKind::WrongType => ErrorKind::Unsuitable,
            FileErrorKind::NoSpace | FileErrorKind::Io => ErrorKind::Io,
        };
        Error::new(kind, format!("backend: {error}"))
    })?;
    match unfit(&file, block) {
        None if block && !(uri.read_only || options.read_only) => {
            check_writable(&uri.path, identity::in_sysfs(file.as_fd()).as_deref())?;
            Ok(file)
        }
        None => Ok(file),
        Some(why) => {
            // What is no disk by its size may be an image.
            let looks = reopen(file.as_fd()).map(File::from);
            let format = looks.and_then(|looks| ImageFormat::of(&looks, file.size()).ok()?);
            let kind = format.map_or(ErrorKind::Unsuitable, ErrorKind::NotRaw);
            Err(Error::new(kind, format!("backend {}: {why}", uri.path.display())))
        }
    }
}

/// Locks the file that a loop device shows, against who serves it as a file.
pub(super) fn lock_file_of_loop(
    device: BorrowedFd<'_>,
    uri: &FileUri,
    options: OpenOptions,
) -> Result<Option<OwnedFd>, Error> {
    let Some(path) = identity::file_of_loop(device) else { return Ok(None) };
    let read_only = uri.read_only || options.read_only;
    let lock_wait = options.lock_wait;
    match OpenFile::open(&path, &Options { read_only, buffered: true, allocate: None, lock_wait }) {
        Ok(file) => Ok(Some(file.into_fd())),
        Err(error) if error.kind() == FileErrorKind::InUse => {
            let what = format!("backend {}: {error}", uri.path.display());
            Err(Error::new(ErrorKind::InUse, what))
        }
        // Nobody who can serve it as a file has it from here.
        Err(_) => Ok(None),
    }
}

/// A file system in user space, by its number in the kernel's `magic.h`.
pub(super) const FUSE: u64 = 0x6573_5546;
/// File systems that keep nothing of direct I/O on this host, by the same numbers: NFS, CIFS and SMB2, Ceph, 9P.
const REMOTE: [u64; 5] = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x00c3_6400, 0x0102_1997];

/// The file system of an open file, by its number.
pub(super) fn file_system(file: &OpenFile) -> Option<u64> {
    rustix::fs::fstatfs(file.as_fd()).ok().map(|found| found.f_type as u64)
}

/// What is lost of it with this host.
pub(super) fn host_loses(file: &OpenFile) -> HostLoses {
    let is_block = file.is_block_device();
    let is_kept = match is_block {
        true => !identity::is_mapped(file.as_fd()),
        false => file_system(file).is_some_and(|found| REMOTE.contains(&found)),
    };
    if !file.is_direct() || is_block && identity::is_buffered_loop(file.as_fd()) {
        HostLoses::Anything
    } else if is_kept {
        HostLoses::Nothing
    } else {
        HostLoses::Places
    }
}

/// Another descriptor of a file, only to look at it. It has its own position, and reads through
/// the page cache. It has no lock, so the lock does not outlive its own descriptor.
pub(super) fn reopen(file: BorrowedFd<'_>) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// A device that is read-only lets itself be opened for writing, and refuses each write. `sysfs`: its folder there.
fn check_writable(path: &Path, sysfs: Option<&Path>) -> Result<(), Error> {
    if sysfs.and_then(|folder| identity::line(&folder.join("ro"))).as_deref() != Some("1") {
        return Ok(());
    }
    let path = path.display();
    let what = format!(
        "backend: cannot write to {path}: the device is read-only (as after blockdev --setro, lvchange -pr or losetup -r); make \
         it writable, or open it read-only (--read-only, or block:{path}?read-only=on)"
    );
    Err(Error::new(ErrorKind::Denied, what))
}

/// Why it cannot serve.
fn unfit(file: &OpenFile, block: bool) -> Option<String> {
    let unit = file.logical_block();
    if file.is_block_device() != block {
        return Some(match block {
            true => "it is a file: write file: instead of block:".to_owned(),
            false => "it is a block device: write block: instead of file:".to_owned(),
        });
    }
    if file.size() == 0 {
        return Some(empty(file.path(), block));
    }
    if !unit.is_power_of_two() || !(512..=4096).contains(&unit) {
        let unit = size::exact(unit.into());
        return Some(format!("its block is {unit}; from 512 to 4KiB can be used"));
    }
    if !file.size().is_multiple_of(unit.into()) {
        let size = file.size();
        return Some(format!(
            "its size of {size} bytes is no multiple of its block of {unit}: make it longer"
        ));
    }
    None
}

/// What has no bytes.
fn empty(path: &Path, block: bool) -> String {
    if block {
        return "the device is there and has no bytes: connect it, as nbd-client, qemu-nbd or losetup do, or give it a medium"
            .to_owned();
    }
    format!("it is empty: give it a size, such as truncate -s 10G {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_refuses_each_write_is_refused_itself() {
        let folder = tempfile::tempdir().unwrap();
        let check = |ro: &str| {
            std::fs::write(folder.path().join("ro"), ro).unwrap();
            check_writable(Path::new("/dev/sdb"), Some(folder.path()))
        };
        check("0\n").unwrap();
        let error = check("1\n").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.to_string().contains("block:/dev/sdb?read-only=on"), "{error}");
        std::fs::remove_file(folder.path().join("ro")).unwrap();
        for unknown in [Some(folder.path()), None] {
            check_writable(Path::new("/dev/sdb"), unknown).unwrap();
        }
    }

    #[test]
    fn an_empty_file_gets_a_size_and_an_empty_device_is_connected() {
        assert!(empty(Path::new("/x.raw"), false).contains("truncate -s 10G /x.raw"));
        let device = empty(Path::new("/dev/nbd0"), true);
        assert!(device.contains("connect it") && !device.contains("truncate"), "{device}");
    }
}
