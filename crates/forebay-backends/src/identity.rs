//! The identity of primary storage, however it is spelt: two URIs of the same bytes share it.
//!
//! | primary storage | its identity |
//! |---|---|
//! | file | its path without links |
//! | block device with a name of its own (`wwid`, UUID of device mapper or md) | that name |
//! | image of Ceph that the kernel has mapped (`/dev/rbd0`) | its cluster, pool, image and snapshot |
//! | loop device from a file's first byte on | the file's |
//! | another block device | where it is in sysfs, with its serial number if it has one: not the same after each restart of the host |
//! | partition | the device's, and its number |
//! | NBD over TCP | the server's address as connected, and the export's name |
//! | NBD over a unix socket | the socket's path without links, and the export's name |
//!
//! Options are no part of it, wrappers (`model:`, `fault:`) have that of what they wrap.
//!
//! A file with several names (hard links) is known by the one that its sidecar lies beside; that is the daemon's to find
//! ([`Probe::known_as`](crate::Probe::known_as)).
//!
//! **Limits.** Two servers, or two names on one server, may have the same bytes, and a device several paths that do not
//! tell. Then nothing here notices it.

use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::uri::{NbdAddress, NbdUri};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    text: String,
    is_for_good: bool,
}

impl Identity {
    /// It, in words.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True when it goes with the device: another one in its place has another one.
    pub fn is_for_good(&self) -> bool {
        self.is_for_good
    }

    fn of(text: String) -> Identity {
        Identity { text, is_for_good: false }
    }

    /// Of the file that `path` leads to.
    pub(crate) fn of_file(path: &Path) -> Option<Identity> {
        Some(Identity::of(format!("file {}", path.canonicalize().ok()?.display())))
    }

    /// Of an open block device.
    pub(crate) fn of_device(device: BorrowedFd<'_>) -> Option<Identity> {
        Identity::in_sysfs(&in_sysfs(device)?)
    }

    /// Of an export; `peer` is whom a TCP connection leads to.
    pub(crate) fn of_export(uri: &NbdUri, peer: Option<SocketAddr>) -> Option<Identity> {
        let server = match (&uri.address, peer) {
            (NbdAddress::Unix(path), _) => path.canonicalize().ok()?.display().to_string(),
            (NbdAddress::Tcp(..), Some(peer)) => {
                SocketAddr::new(plain(peer.ip()), peer.port()).to_string()
            }
            (NbdAddress::Tcp(..), None) => return None,
        };
        Some(Identity::of(format!("nbd {server} export {}", uri.export)))
    }

    /// Of the device with this folder in sysfs.
    fn in_sysfs(folder: &Path) -> Option<Identity> {
        if let Some(number) = line(&folder.join("partition")) {
            let whole = Identity::in_sysfs(folder.parent()?)?;
            return Some(Identity { text: format!("{} partition {number}", whole.text), ..whole });
        }
        if let Some(file) = backing_file(folder) {
            return Identity::of_file(&file);
        }
        let names = ["wwid", "device/wwid", "dm/uuid", "md/uuid"];
        if let Some(name) = names.iter().find_map(|name| line(&folder.join(name))) {
            return Some(Identity { text: format!("device {name}"), is_for_good: true });
        }
        if let Some(image) = image_of_ceph(&folder.join("device")) {
            return Some(Identity { text: image, is_for_good: true });
        }
        let place = folder.strip_prefix("/sys").unwrap_or(folder).display().to_string();
        let serial = ["serial", "device/serial"].iter().find_map(|name| line(&folder.join(name)));
        let serial = serial.map_or(String::new(), |serial| format!(" serial {serial}"));
        Some(Identity::of(format!("device {place}{serial}")))
    }
}

/// The image that a folder of `/sys/bus/rbd/devices` is about: what is mapped next has the same place.
fn image_of_ceph(folder: &Path) -> Option<String> {
    let of = |name: &str| line(&folder.join(name));
    let (cluster, pool, image) = (of("cluster_fsid")?, of("pool_id")?, of("image_id")?);
    // Each snapshot has bytes of its own.
    let snapshot = of("snap_id").map_or(String::new(), |snapshot| format!(" snapshot {snapshot}"));
    Some(format!("rbd cluster {cluster} pool {pool} image {image}{snapshot}"))
}

/// The file that a loop device shows from its first byte on.
pub(crate) fn file_of_loop(device: BorrowedFd<'_>) -> Option<PathBuf> {
    backing_file(&in_sysfs(device)?)
}

/// The same of the device with this number (`st_rdev`).
pub fn file_of_loop_device(number: u64) -> Option<PathBuf> {
    backing_file(&numbered(number)?)
}

/// True of a loop device that reads and writes its file through the page cache.
pub(crate) fn is_buffered_loop(device: BorrowedFd<'_>) -> bool {
    let folder = in_sysfs(device);
    // A partition of one lies in its folder.
    let of = |folder: &Path| line(&folder.join("loop/dio"));
    let dio = folder.and_then(|folder| of(&folder).or_else(|| of(folder.parent()?)));
    dio.is_some_and(|dio| dio == "0")
}

/// True of a device that this host puts together, and may keep on it where data lie: a loop device over a file, one of the
/// device mapper, but for paths to the same storage, a cache, one that is served by a process (NBD, ublk), or one that lies
/// on such a device. True as well of one of which the kernel tells nothing.
pub(crate) fn is_mapped(device: BorrowedFd<'_>) -> bool {
    in_sysfs(device).is_none_or(|folder| puts_together(&folder))
}

fn puts_together(folder: &Path) -> bool {
    let is_put = |name: &OsStr| {
        let is_of = |kind: &str| name.as_bytes().starts_with(kind.as_bytes());
        is_of("nbd") || is_of("ublkb") || is_of("bcache")
    };
    let of = |folder: &Path| {
        let below = fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
        folder.join("loop").is_dir()
            || folder.join("dm").is_dir() && !is_path(&folder.join("dm/uuid"))
            || folder.file_name().is_some_and(is_put)
            || below.filter_map(|it| it.path().canonicalize().ok()).any(|it| puts_together(&it))
    };
    // A partition lies in the folder of its device.
    of(folder) || folder.parent().is_some_and(of)
}

/// True for paths to the same storage, and for a partition of them (`part1-mpath-`, and so on).
fn is_path(uuid: &Path) -> bool {
    let uuid = line(uuid).unwrap_or_default();
    let whole = uuid.split_once('-').filter(|(part, _)| part.starts_with("part"));
    whole.map_or(&*uuid, |(_, rest)| rest).starts_with("mpath-")
}

/// False for a block device that discards nothing.
pub(crate) fn discards(device: BorrowedFd<'_>) -> bool {
    in_sysfs(device).is_none_or(|folder| can(&folder, "discard_max_bytes"))
}

/// False for a block device that is zeroed by being written to, by the kernel if by nobody else.
pub(crate) fn zeroes(device: BorrowedFd<'_>) -> bool {
    in_sysfs(device).is_none_or(|folder| can(&folder, "write_zeroes_max_bytes"))
}

/// `limit`: how many bytes a device takes at a time, in what the kernel tells of its queue.
fn can(folder: &Path, limit: &str) -> bool {
    // A partition lies in the folder of its device.
    let of = |folder: &Path| line(&folder.join("queue").join(limit));
    of(folder).or_else(|| of(folder.parent()?)).is_none_or(|most| most != "0")
}

/// The folder of an open block device in sysfs.
pub(crate) fn in_sysfs(device: BorrowedFd<'_>) -> Option<PathBuf> {
    numbered(rustix::fs::fstat(device).ok()?.st_rdev)
}

fn numbered(number: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

fn backing_file(folder: &Path) -> Option<PathBuf> {
    let file = line(&folder.join("loop/backing_file"))?;
    let is_whole = line(&folder.join("loop/offset"))? == "0";
    // A file that was removed, or is of another mount namespace, leads nowhere.
    PathBuf::from(file).canonicalize().ok().filter(|file| is_whole && file.is_file())
}

/// The content of a file of sysfs, if any.
pub(crate) fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Uri;

    fn nbd(text: &str, peer: Option<&str>) -> Option<Identity> {
        let Uri::Nbd(uri) = text.parse().unwrap() else { panic!("{text}") };
        Identity::of_export(&uri, peer.map(|peer| peer.parse().unwrap()))
    }

    #[test]
    fn an_export_is_the_same_however_it_is_spelt() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        fs::write(&socket, "").unwrap();
        std::os::unix::fs::symlink(&socket, folder.path().join("link")).unwrap();
        let at = |export: &str, name: &str, more: &str| {
            let path = folder.path().join(name).display().to_string();
            nbd(&format!("nbd+unix:///{export}?socket={path}{more}"), None).unwrap()
        };
        assert_eq!(at("a", "socket", ""), at("a", "link", "&connections=2&fence=0s&timeout=1s"));
        assert_eq!(at("a", "socket", ""), at("%61", "./socket", "&read-only=on"));
        assert_ne!(at("a", "socket", ""), at("b", "socket", ""));
        let peer = Some("127.0.0.1:10809");
        let one = nbd("nbd://localhost/a", peer).unwrap();
        assert_eq!(Some(&one), nbd("nbd://127.0.0.1:10809/a?connections=1", peer).as_ref());
        assert_eq!(Some(&one), nbd("nbd://x/a", Some("[::ffff:127.0.0.1]:10809")).as_ref());
        assert_ne!(Some(&one), nbd("nbd://localhost/a", Some("127.0.0.1:10810")).as_ref());
        assert!(!one.is_for_good());
    }

    #[test]
    fn a_device_is_known_by_its_own_name_or_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let sysfs = |name: &str, files: &[(&str, &str)]| {
            let device = folder.path().join(name);
            for (file, text) in files {
                let path = device.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Identity::in_sysfs(&device).unwrap()
        };
        let sdb = sysfs("sdb", &[("device/wwid", "naa.5000c500a1b2c3d4\n")]);
        assert_eq!(sdb, sysfs("sdc", &[("device/wwid", "naa.5000c500a1b2c3d4")]));
        assert!(sdb.is_for_good());
        let first = sysfs("sdb/sdb1", &[("partition", "1\n")]);
        assert_eq!(first.text(), "device naa.5000c500a1b2c3d4 partition 1");
        assert_ne!(first, sysfs("sdb/sdb2", &[("partition", "2\n")]));
        let vda = sysfs("vda", &[("serial", "same"), ("dm/uuid", "\n")]);
        assert_ne!(vda, sysfs("vdb", &[("serial", "same")]), "two may be called the same");
        assert!(!vda.is_for_good());
        sysfs("thin", &[("dm/uuid", "LVM-x"), ("queue/write_zeroes_max_bytes", "0\n")]);
        sysfs("thin", &[("queue/discard_max_bytes", "1073741824\n")]);
        sysfs("thin/thin1", &[("partition", "1\n")]);
        for device in ["thin", "thin/thin1"] {
            let can = |limit| can(&folder.path().join(device), limit);
            assert!(can("discard_max_bytes") && !can("write_zeroes_max_bytes"), "{device}");
        }
        assert!(can(&folder.path().join("sdb"), "write_zeroes_max_bytes"), "nobody says otherwise");
        sysfs("paths", &[("dm/uuid", "part1-mpath-3600")]);
        sysfs("loop0", &[("loop/backing_file", "/x"), ("loop/offset", "0")]);
        sysfs("nbd0/nbd0p1", &[("partition", "1\n")]);
        sysfs("ublkb0", &[("serial", "x")]);
        sysfs("bcache0", &[("serial", "x")]);
        sysfs("by-hand", &[("dm/uuid", "\n")]);
        sysfs("crypt", &[("dm/uuid", "CRYPT-LUKS2-00-mpath-x")]);
        sysfs("md0", &[("md/uuid", "1:2")]);
        sysfs("md1", &[("md/uuid", "3:4")]);
        for (device, below) in [("md0", "sdb"), ("md1", "thin/thin1"), ("paths", "sdb")] {
            fs::create_dir_all(folder.path().join(device).join("slaves")).unwrap();
            let link = folder.path().join(device).join("slaves/below");
            std::os::unix::fs::symlink(folder.path().join(below), link).unwrap();
        }
        for (device, expect) in [
            ("thin", true),
            ("thin/thin1", true),
            ("loop0", true),
            ("nbd0", true),
            ("nbd0/nbd0p1", true),
            ("ublkb0", true),
            ("bcache0", true),
            ("by-hand", true),
            ("crypt", true),
            ("md0", false),
            ("md1", true),
            ("paths", false),
            ("sdb", false),
        ] {
            assert_eq!(puts_together(&folder.path().join(device)), expect, "{device}");
        }
        let mapped = |place: &str, image: &str, snapshot: &str| {
            let of = ["cluster_fsid", "pool_id", "image_id", "snap_id"];
            let of = of.map(|file| format!("device/{file}"));
            let texts = ["8b1c7c9e-1f0a\n", "2\n", image, snapshot];
            let files: Vec<_> = of.iter().map(String::as_str).zip(texts).collect();
            sysfs(place, &files)
        };
        let rbd = mapped("rbd0", "3c8a5d2f1e90\n", "18446744073709551614\n");
        assert!(rbd.is_for_good() && rbd.text().contains("image 3c8a5d2f1e90"), "{}", rbd.text());
        assert_eq!(rbd, mapped("rbd1", "3c8a5d2f1e90", "18446744073709551614"), "elsewhere");
        assert_ne!(rbd, mapped("rbd0", "3c8a5d2f1e91", "18446744073709551614"), "in its place");
        assert_ne!(rbd, mapped("rbd0", "3c8a5d2f1e90", "4"), "a snapshot of it");
        let image = folder.path().join("image");
        fs::write(&image, "x").unwrap();
        let backing = image.display().to_string();
        let of =
            |offset| sysfs(offset, &[("loop/backing_file", &backing), ("loop/offset", offset)]);
        assert_eq!(Some(of("0")), Identity::of_file(&image));
        assert_ne!(Some(of("512")), Identity::of_file(&image));
    }
}
