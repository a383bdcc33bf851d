//! What would keep a daemon from starting as it is configured, found without changing anything.
//!
//! A daemon may run with this very configuration meanwhile: nothing is locked, and what is in use is its own then.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind as IoErrorKind;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use forebay_backends::size::rounded;
use forebay_backends::{ErrorKind, OpenOptions, Uri};
use forebay_core::config::BackendTraits;
use forebay_core::engine::metadata_bytes;
use rustix::fs::{Access, access};

use forebay_host::folders;

use super::inherited::Inherited;
use super::opener::{Among, limited};
use super::questions::{About, Questions};
use super::{listener, opening, placement, raw};
use crate::config::pools::is_same;
use crate::config::values::Address;
use crate::config::{DaemonSpec, DiskSpec};

mod busy;

use busy::OfSystemd;

/// What is wrong, a sentence each; may wait for storage. `is_running`: the daemon at the control socket answers.
pub(crate) fn problems(spec: &DaemonSpec, is_running: bool, inherited: &Inherited) -> Vec<String> {
    let state = spec.state_dir.clone().or_else(folders::state_folder);
    let mut spec = spec.clone();
    // The daemon that runs has its devices, and knows who is on which.
    let wrong = placement::place(&mut spec, &[], &[]);
    let mut found = if is_running { Vec::new() } else { wrong };
    let spec = &spec;
    for disk in &spec.disks {
        let wrong = [image(disk, state.as_deref(), is_running), metadata((disk, &spec.disks))];
        let wrong = wrong.into_iter().filter_map(Result::err);
        found.extend(wrong.map(|why| format!("disk '{}': {why:#}", disk.name)));
    }
    found.extend(same_files(spec));
    found.extend(flash(spec));
    found.extend(memory(spec, is_running));
    let of_systemd = OfSystemd::look(inherited);
    found.extend(sockets(spec, |path| !is_running && busy::has_unix(path, &of_systemd)));
    found.extend(addresses(spec, &of_systemd, |address, resolved| {
        let why = busy::tcp(resolved, &of_systemd)?;
        let is_missing = why == IoErrorKind::AddrNotAvailable;
        // Disks are served without metrics.
        let is_metrics = spec.http.as_deref() == Some(address) && why == IoErrorKind::AddrInUse;
        (is_missing || !is_running && !is_metrics).then_some(why)
    }));
    found
}

/// What is served all the same, but not as it is configured. `is_running`: the daemon at the control socket answers.
pub(crate) fn warning(
    spec: &DaemonSpec,
    is_running: bool,
    inherited: &Inherited,
) -> Option<String> {
    let address = spec.http.as_deref().filter(|_| !is_running)?;
    let resolved: Vec<SocketAddr> = address.to_socket_addrs().ok()?.collect();
    let is_busy = busy::tcp(&resolved, &OfSystemd::look(inherited)) == Some(IoErrorKind::AddrInUse);
    is_busy.then(|| {
        format!(
            "metrics will not be served: another server is at {address}. Give each daemon of this host an address of its own \
             (http), or switch metrics off (http = \"off\")"
        )
    })
}

/// Primary storage that is a file or device: is it there, and could it be served?
pub(super) fn image(disk: &DiskSpec, state: Option<&Path>, is_running: bool) -> Result<()> {
    let uri: Uri = disk.backend.parse()?;
    let Some(path) = uri.path() else { return Ok(()) };
    // Others who only read may have it at the same time.
    let options = OpenOptions { read_only: true, lock_wait: Duration::ZERO };
    let backend = match forebay_backends::open(&uri, options) {
        // By the daemon that runs, it seems.
        Err(error) if error.kind() == ErrorKind::InUse && is_running => return Ok(()),
        opened => opened.map_err(|error| raw::explain(disk, &uri, error))?,
    };
    raw::check(disk, &uri, backend.probe().as_ref(), state)?;
    anyhow::ensure!(
        !is_written(disk, &uri) || access(path, Access::WRITE_OK).is_ok(),
        "this user may not write to its primary storage {}: give it the right, or set read-only = true",
        path.display()
    );
    Ok(())
}

fn is_written(disk: &DiskSpec, uri: &Uri) -> bool {
    !disk.read_only && !uri.is_read_only()
}

fn metadata(among: Among<'_>) -> Result<()> {
    let (needed, (disk, _)) = (metadata_of(among), among);
    anyhow::ensure!(
        needed <= disk.metadata_bytes_max,
        "its cache needs {} for metadata, limit {}: use a larger block-size, a smaller cache, or a higher metadata-limit",
        rounded(needed),
        rounded(disk.metadata_bytes_max)
    );
    Ok(())
}

fn metadata_of(among: Among<'_>) -> u64 {
    let disk = limited(among);
    let of_any_size = BackendTraits {
        size: 1 << 30,
        logical_block: 512,
        read_only: disk.read_only,
        discard: true,
        write_zeroes: true,
        extents: true,
    };
    metadata_bytes(&disk.engine_config(of_any_size))
}

/// Refuses flash that is also something else: a pool would be made on it. Of a path that does not answer in time nobody can
/// tell, and nothing is made there.
///
/// # Errors
/// What is the same, and what to do.
pub(super) async fn check_flash_is_apart(
    questions: &Questions,
    spec: &DaemonSpec,
    patience: Duration,
) -> Result<()> {
    let of = users(spec).into_iter().filter_map(|(place, _)| match place {
        // It is known by now that nobody can tell.
        Place::Path(path) if questions.is_any_out(&path) => None,
        Place::Path(path) => Some((path.clone(), About::Path(path))),
        Place::Export(_) => None,
    });
    let who = |path: &PathBuf| {
        let path = path.clone();
        move || identity(&path)
    };
    let found = questions.ask_each(of, patience, who).await;
    let found: BTreeMap<_, _> =
        found.into_iter().filter_map(|(path, who)| Some((path, who.ok()??))).collect();
    let shared = shared_files(spec, |path| found.get(path).cloned());
    let wrong = shared.into_iter().find(|users| users.iter().any(|user| user.is_flash));
    wrong.map_or(Ok(()), |users| bail!(one_and_the_same(&users)))
}

/// A part of the configuration that uses a file, device or export.
struct User {
    what: String,
    is_flash: bool,
    is_writer: bool,
    /// A device of a pool that no disk wants by this path.
    is_just_listed: bool,
}

/// Files, devices and exports that two parts of the configuration would write to.
fn same_files(spec: &DaemonSpec) -> Vec<String> {
    shared_files(spec, identity).iter().map(|users| one_and_the_same(users)).collect()
}

fn one_and_the_same(users: &[User]) -> String {
    let names: Vec<&str> = users.iter().map(|user| user.what.as_str()).collect();
    let advice = match users.iter().any(|user| user.is_flash) {
        true => "Give each flash a file or device of its own",
        false => "Let one disk serve it, or several with read-only",
    };
    format!("{} are one and the same. {advice}", names.join(" and "))
}

/// Where a part of the configuration has its data.
enum Place {
    Path(PathBuf),
    Export(String),
}

/// All users, each with its place.
fn users(spec: &DaemonSpec) -> Vec<(Place, User)> {
    let of_disk = |disk: &DiskSpec| {
        let uri = disk.backend.parse::<Uri>().ok()?;
        let place = match uri.path() {
            Some(path) => Place::Path(path.to_owned()),
            None => Place::Export(uri.export()?),
        };
        let what = format!("primary storage of disk '{}'", disk.name);
        Some((
            place,
            User {
                what,
                is_flash: false,
                is_writer: is_written(disk, &uri),
                is_just_listed: false,
            },
        ))
    };
    let of_flash = |path: &PathBuf, is_just_listed| {
        let what = format!("the flash {}", path.display());
        let user = User { what, is_flash: true, is_writer: true, is_just_listed };
        (Place::Path(path.clone()), user)
    };
    let placed = spec.disks.iter().filter(|disk| disk.unplaced.is_none());
    let wanted: BTreeSet<_> = placed.filter_map(|disk| Some(&disk.flash.as_ref()?.path)).collect();
    let listed = spec.pools.iter().flat_map(|pool| &pool.devices);
    let listed = listed.filter(|path| !wanted.contains(path)).map(|path| of_flash(path, true));
    let wanted = wanted.iter().map(|path| of_flash(path, false));
    spec.disks.iter().filter_map(of_disk).chain(wanted).chain(listed).collect()
}

/// The users of what several use, where one of them would spoil it for the others. `identity`: who is at a path.
fn shared_files(spec: &DaemonSpec, identity: impl Fn(&Path) -> Option<String>) -> Vec<Vec<User>> {
    let mut of_place: BTreeMap<String, Vec<User>> = BTreeMap::new();
    for (place, user) in users(spec) {
        let who = match place {
            Place::Path(path) => identity(&path),
            Place::Export(export) => Some(export),
        };
        let Some(who) = who else { continue };
        let known = of_place.entry(who).or_default();
        // A disk that is served has it by the path of before.
        if !user.is_just_listed || known.iter().all(|known| !known.is_flash) {
            known.push(user);
        }
    }
    let is_spoilt = |users: &Vec<User>| {
        let writers = users.iter().filter(|user| user.is_writer).count();
        writers > 1 || users.len() > 1 && users.iter().any(|user| user.is_flash)
    };
    of_place.into_values().filter(is_spoilt).collect()
}

/// Who a file or device is, whatever path leads there. A loop device that shows a file is the file.
fn identity(path: &Path) -> Option<String> {
    let found = path.metadata().ok()?;
    if !found.file_type().is_block_device() {
        return Some(format!("file {} {}", found.dev(), found.ino()));
    }
    let shown = forebay_backends::file_of_loop_device(found.rdev());
    let file = shown.and_then(|file| file.metadata().ok());
    Some(match file {
        Some(file) => format!("file {} {}", file.dev(), file.ino()),
        None => format!("device {}", found.rdev()),
    })
}

/// Each flash file or device, and how much of it is wanted.
fn flash_paths(spec: &DaemonSpec) -> BTreeMap<&Path, u64> {
    let mut paths = BTreeMap::new();
    let placed = spec.disks.iter().filter(|disk| disk.unplaced.is_none());
    for flash in placed.filter_map(|disk| disk.flash.as_ref()) {
        *paths.entry(flash.path.as_path()).or_insert(0) += flash.bytes;
    }
    for device in spec.pools.iter().flat_map(|pool| &pool.devices) {
        // A disk that is served has it by the path of before.
        if !paths.keys().any(|path| is_same(path, device)) {
            paths.insert(device, 0);
        }
    }
    paths
}

fn flash(spec: &DaemonSpec) -> Vec<String> {
    let wrong = |(path, wanted): (&Path, u64)| {
        let shown = path.display();
        let folder = folder_of(path);
        let is_usable = |at: &Path| access(at, Access::READ_OK | Access::WRITE_OK).is_ok();
        match path.metadata() {
            Ok(found) if found.is_dir() => Some(format!("the flash {shown} is a folder")),
            Ok(_) if !is_usable(path) => {
                Some(format!("this user may not read and write the flash {shown}"))
            }
            Ok(_) => None,
            Err(_) if !folder.is_dir() => Some(format!(
                "the flash {shown} cannot be made: there is no folder {}",
                folder.display()
            )),
            Err(_) if !is_usable(folder) => Some(format!(
                "the flash {shown} cannot be made: this user may not write to {}",
                folder.display()
            )),
            Err(_) => {
                let found = rustix::fs::statvfs(folder).ok()?;
                let free = found.f_bavail * found.f_frsize;
                (free < wanted).then(|| {
                    format!(
                        "the flash {shown} is to have {}, and its file system has {} free",
                        rounded(wanted),
                        rounded(free)
                    )
                })
            }
        }
    };
    flash_paths(spec).into_iter().filter_map(wrong).collect()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// RAM of all disks. What a daemon with this configuration has by now counts as free.
fn memory(spec: &DaemonSpec, is_running: bool) -> Option<String> {
    let of =
        |disk: &DiskSpec| disk.ram_bytes + metadata_of((disk, &spec.disks)) + disk.recorder_bytes;
    let needed = spec.disks.iter().map(of).fold(0, u64::saturating_add);
    opening::check_memory(needed, is_running).err().map(|why| format!("all disks together: {why}"))
}

/// The control socket of a daemon.
pub(crate) fn control(spec: &DaemonSpec) -> PathBuf {
    spec.control.clone().unwrap_or_else(|| folders::socket_of(&folders::folder(), &spec.name.0))
}

/// Unix sockets, each with what it is for.
pub(crate) fn unix_sockets(spec: &DaemonSpec) -> Vec<(PathBuf, String)> {
    let of_listener = spec.listeners.iter().filter_map(|listener| match &listener.address {
        Address::Unix(path, _) => Some((path.clone(), "a listener".to_owned())),
        Address::Tcp(_) => None,
    });
    let of_device = spec.disks.iter().filter_map(|disk| {
        let path = disk.vhost_user.as_ref()?.socket.path.clone();
        Some((path, format!("the device of disk '{}'", disk.name)))
    });
    let control = (control(spec), "the control socket".to_owned());
    of_listener.chain(of_device).chain([control]).collect()
}

fn sockets(spec: &DaemonSpec, is_busy: impl Fn(&Path) -> bool) -> Vec<String> {
    let wrong = |(path, user): (PathBuf, String)| {
        let shown = path.display();
        // Folders that are missing are made.
        let folder = folder_of(&path).ancestors().find(|folder| folder.exists());
        let folder = folder.unwrap_or(Path::new("."));
        let why = if path.metadata().is_ok_and(|found| !found.file_type().is_socket()) {
            "something else than a socket is there".to_owned()
        } else if !folder.is_dir() {
            format!("{} is no folder", folder.display())
        } else if access(folder, Access::WRITE_OK).is_err() {
            format!("this user may not write to {}", folder.display())
        } else if is_busy(&path) {
            "another process listens there; stop it, or choose another path".to_owned()
        } else {
            return None;
        };
        Some(format!("{user} cannot have its socket {shown}: {why}"))
    };
    unix_sockets(spec).into_iter().filter_map(wrong).collect()
}

/// TCP addresses, as they were written and as they are.
fn tcp_addresses(spec: &DaemonSpec) -> Vec<(&str, std::io::Result<Vec<SocketAddr>>)> {
    let of_listener = spec.listeners.iter().filter_map(|listener| match &listener.address {
        Address::Tcp(address) => Some(address.as_str()),
        Address::Unix(..) => None,
    });
    // Targets may share a portal.
    let portals = spec.targets.iter().flat_map(|target| &target.portals);
    let portals: BTreeSet<&str> = portals.map(|portal| portal.0.as_str()).collect();
    let resolved = |address: &str| address.to_socket_addrs().map(Iterator::collect);
    let http = spec.http.as_deref();
    of_listener.chain(portals).chain(http).map(|address| (address, resolved(address))).collect()
}

/// Addresses that are used twice, under whatever names, or that cannot be had.
fn addresses(
    spec: &DaemonSpec,
    of_systemd: &OfSystemd,
    why_not: impl Fn(&str, &[SocketAddr]) -> Option<IoErrorKind>,
) -> Vec<String> {
    let mut found = Vec::new();
    let all = tcp_addresses(spec);
    for (at, (address, resolved)) in all.iter().enumerate() {
        let resolved = match resolved {
            Ok(resolved) => resolved,
            Err(error) => {
                found.push(format!("nobody can listen at {address}: {error}"));
                continue;
            }
        };
        if let Some(why) = why_not(address, resolved) {
            let why = listener::why_not(why, rustix::process::geteuid().as_raw());
            found.push(format!("nobody can listen at {address}: {why}"));
        }
        let is_same = |(_, other): &&(&str, std::io::Result<Vec<SocketAddr>>)| {
            // A socket unit may keep IPv6 to itself.
            let is_passed = |other| of_systemd.has_tcp(resolved) || of_systemd.has_tcp(other);
            let overlap_families = |other| families_overlap(resolved, other) && !is_passed(other);
            other.as_ref().is_ok_and(|other| overlap(resolved, other) || overlap_families(other))
        };
        if let Some((other, _)) = all[at + 1..].iter().find(is_same) {
            found.push(format!("two listeners use one address: {address} and {other}"));
        }
    }
    let mut places = BTreeMap::new();
    for (path, user) in unix_sockets(spec) {
        let folder = folder_of(&path).canonicalize().unwrap_or_else(|_| folder_of(&path).into());
        let place = folder.join(path.file_name().unwrap_or_default());
        if let Some(other) = places.insert(place.clone(), user.clone()) {
            found.push(format!("{other} and {user} have one socket: {}", place.display()));
        }
    }
    found
}

/// True when one listener keeps the other from its address. Port 0 is any that is free.
fn overlap(one: &[SocketAddr], other: &[SocketAddr]) -> bool {
    at_one_port(one, other, |a, b| {
        a.is_ipv4() == b.is_ipv4() && (a == b || a.is_unspecified() || b.is_unspecified())
    })
}

/// The same of IPv4 beside IPv6: by default a listener at all IPv6 addresses of a host is one at those of IPv4, too.
fn families_overlap(one: &[SocketAddr], other: &[SocketAddr]) -> bool {
    let v6_only = std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only");
    let is_all = |a: IpAddr| a.is_ipv6() && a.is_unspecified();
    v6_only.is_ok_and(|it| it.trim() == "0")
        && at_one_port(one, other, |a, b| is_all(a) && b.is_ipv4() || a.is_ipv4() && is_all(b))
}

fn at_one_port(
    one: &[SocketAddr],
    other: &[SocketAddr],
    is_same: impl Fn(IpAddr, IpAddr) -> bool,
) -> bool {
    let mut pairs = one.iter().flat_map(|a| other.iter().map(move |b| (a, b)));
    pairs.any(|(a, b)| a.port() != 0 && a.port() == b.port() && is_same(a.ip(), b.ip()))
}
