//! The configuration file of `forebay serve`: several disks, listeners and shards, in TOML.
//!
//! ```toml
//! shards = 2                              # default: one per disk, at most one per CPU
//! state-dir = "/var/lib/forebay"          # what the host remembers of devices and exports
//! http = "127.0.0.1:7480"                 # /metrics
//!
//! [[disk]]
//! name = "db"
//! backend = "file:/san/db.raw"
//! ram = "256MiB"
//! flash = "/nvme/pool:4GiB"               # disks may share one flash file or device
//! nbd = ["unix:/run/forebay/db.sock"]     # a listener for this disk alone
//!
//! [[pool]]                                # flash = "fast:4GiB" is on one of these
//! name = "fast"
//! devices = ["/dev/nvme0n1", "/dev/nvme1n1"]
//!
//! [[nbd]]                                 # a listener for several disks
//! listen = "127.0.0.1:10809"
//! disks = ["db"]                          # default: all
//! connections-max = 128
//!
//! [[iscsi]]                               # an iSCSI target
//! listen = ["10.0.0.1:3260", "[::1]:3260"]
//! target = "iqn.2026-01.org.example:db"
//! disks = ["db"]                          # units 0, 1, …; or: luns = { 1 = "db" }; default: all
//! initiators = ["iqn.2026-01.org.example:host1"]
//! chap-user = "host1"
//! chap-secret-file = "/etc/forebay/host1.secret"
//! ```
//!
//! A key that is not known is an error, so that a misspelt one does not silently do nothing.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use forebay_backends::size::rounded;

use super::changes::Changes;
use super::disk_table::DiskTable;
use super::iscsi::IscsiTable;
use super::pools::PoolSpec;
use super::sources::Sources;
use super::values::{Address, HttpAddress, Name, Reactor, ValueError};
use super::{CONNECTIONS_MAX, DaemonSpec, DiskSpec, ListenerSpec};

/// A configuration file has no more bytes.
const BYTES_MAX: u64 = 16 << 20;

/// The configuration file of 'forebay serve'.
#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct File {
    /// Name of the daemon, which names its control socket [default: from the file's name]
    pub(super) name: Option<Name>,
    /// Shard threads, 1 to 64; one disk lives on one shard [default: one per disk, at most one per CPU]
    #[schemars(range(min = 1, max = 64))]
    shards: Option<usize>,
    /// Kernel interface: auto takes io_uring where that works, else epoll
    #[serde(default = "any_reactor")]
    reactor: Reactor,
    /// Control socket [default: NAME.control.sock in the user's folder]
    control: Option<PathBuf>,
    /// Where programs read '/metrics' over HTTP: HOST:PORT, or off. When another program has the address, an event says so, and
    /// every disk is served [default: 127.0.0.1:7480]
    http: Option<HttpAddress>,
    /// Folder where Forebay notes which disk a block device or an NBD export belongs to [default: /var/lib/forebay for root, $XDG_STATE_HOME/forebay or ~/.local/state/forebay]
    pub(super) state_dir: Option<PathBuf>,
    /// The disks
    #[serde(default)]
    disk: Vec<DiskTable>,
    /// Pools of several flash devices
    #[serde(default)]
    pool: Vec<PoolSpec>,
    /// NBD listeners for several disks
    #[serde(default)]
    nbd: Vec<Listener>,
    /// iSCSI targets
    #[serde(default)]
    iscsi: Vec<IscsiTable>,
}

/// An NBD listener for several disks.
#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "nbd")]
struct Listener {
    /// Where clients attach
    listen: Address,
    /// Names of the disks that it serves; the first is the default export [default: all]
    disks: Option<Vec<Name>>,
    /// Connections that may be open at a time [default: 128]
    connections_max: Option<NonZeroU32>,
}

fn any_reactor() -> Reactor {
    Reactor(None)
}

/// Reads the configuration file at `path`.
///
/// # Errors
/// A file that cannot be read or means nothing, with the place and what is allowed.
pub fn load(path: &Path) -> Result<DaemonSpec> {
    read(path, |text, name| Sources::of_file(path, text, name)?.spec())
}

/// The same for a daemon that runs with `before`. Its name and its state folder are those of its start, and so are the
/// changes that it keeps there.
///
/// # Errors
/// As [`load`].
pub fn load_again(path: &Path, before: &DaemonSpec) -> Result<DaemonSpec> {
    read(path, |text, name| Sources::of_same_daemon(before, path, text, name)?.spec())
}

/// The same for who attaches to its disks in a way of his own: they need no address, and there is no HTTP port.
///
/// # Errors
/// As [`load`].
pub fn load_unattached(path: &Path) -> Result<DaemonSpec> {
    read(path, |text, name| {
        let spec =
            DaemonSpec { http: None, ..describe(from_toml(text)?, name, &Changes::default())? };
        super::check::unattached(&spec)?;
        Ok(spec)
    })
}

fn read(path: &Path, parse: impl Fn(&str, Name) -> Result<DaemonSpec>) -> Result<DaemonSpec> {
    let text = text_of(path);
    let text =
        text.with_context(|| format!("cannot read the configuration file {}", path.display()));
    let text = text.map_err(as_wrong)?;
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("forebay");
    let name = stem.parse().unwrap_or(Name("forebay".to_owned()));
    let spec = parse(&text, name);
    spec.with_context(|| format!("in the configuration file {}", path.display())).map_err(as_wrong)
}

/// What a file says wrongly is as wrong as on the command line, and so is a file that is not there. Only what the kernel fails
/// to read may be read in a moment.
pub(super) fn as_wrong(error: anyhow::Error) -> anyhow::Error {
    use rustix::io::Errno;
    let may_pass = |error: &io::Error| {
        let passing = [
            Errno::IO,
            Errno::NOMEM,
            Errno::MFILE,
            Errno::NFILE,
            Errno::STALE,
            Errno::AGAIN,
            Errno::TIMEDOUT,
            Errno::NOTCONN,
            Errno::HOSTDOWN,
            Errno::HOSTUNREACH,
        ];
        Errno::from_io_error(error).is_some_and(|errno| passing.contains(&errno))
    };
    match error.chain().any(|cause| cause.downcast_ref().is_some_and(may_pass)) {
        true => error,
        false => ValueError(format!("{error:#}")).into(),
    }
}

/// What a text in TOML says.
///
/// # Errors
/// What is wrong, and where. Not the line itself, which may have a secret: it would come into the events.
pub(super) fn from_toml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, ValueError> {
    toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let at = before.map(|before| {
            let number = before.matches('\n').count() + 1;
            let line = before.rsplit('\n').next().unwrap_or("");
            // Before a value there is its key.
            let key = line.split_once('=').map(|(key, _)| format!(" ({})", key.trim()));
            let column = line.chars().count() + 1;
            format!("line {number}, column {column}{}: ", key.unwrap_or_default())
        });
        ValueError(format!("{}{}", at.unwrap_or_default(), error.message()))
    })
}

/// What a text file of a reasonable size says.
///
/// # Errors
/// As [`bytes_of`], or it is not UTF-8.
pub fn text_of(path: &Path) -> io::Result<String> {
    String::from_utf8(bytes_of(path)?).map_err(io::Error::other)
}

/// What a file of a reasonable size has. To open a pipe would wait, and a device may have no end.
///
/// # Errors
/// The kernel's, or what it is instead.
pub fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > BYTES_MAX {
        true => Err(io::Error::other(format!("it has more than {}", rounded(BYTES_MAX)))),
        false => Ok(bytes),
    }
}

/// The daemon that `text` describes; `name` is its name unless it says another.
///
/// # Errors
/// As [`load`].
pub fn parse(text: &str, name: Name) -> Result<DaemonSpec> {
    let spec = describe(from_toml(text)?, name, &Changes::default())?;
    super::check::daemon(&spec)?;
    Ok(spec)
}

/// The daemon that a file describes, not checked as a whole.
pub(super) fn describe(file: File, name: Name, changes: &Changes) -> Result<DaemonSpec> {
    let mut disks = Vec::new();
    let mut listeners = Vec::new();
    for (number, table) in file.disk.into_iter().enumerate() {
        let (disk, addresses) =
            disk(table).with_context(|| format!("in [[disk]] number {}", number + 1))?;
        listeners.extend(addresses.into_iter().map(|address| ListenerSpec {
            address,
            disks: vec![disk.name.clone()],
            connections_max: CONNECTIONS_MAX,
        }));
        disks.push(disk);
    }
    let names: Vec<Name> = disks.iter().map(|disk| disk.name.clone()).collect();
    let mut seen = BTreeSet::new();
    if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
        bail!("two disks are called '{twice}'; names must differ");
    }
    for listener in file.nbd {
        let disks = listener.disks.unwrap_or_else(|| names.clone());
        if let Some(unknown) = disks.iter().find(|name| !names.contains(name)) {
            bail!(
                "[[nbd]] {} names the disk '{unknown}', which is not configured",
                listener.listen
            );
        }
        ensure!(!disks.is_empty(), "[[nbd]] {} serves no disk", listener.listen);
        let connections_max = listener.connections_max.map_or(CONNECTIONS_MAX, NonZeroU32::get);
        listeners.push(ListenerSpec { address: listener.listen, disks, connections_max });
    }
    let targets = file.iscsi.into_iter().map(|table| table.resolve(&names, changes));
    let targets = targets.collect::<Result<Vec<_>, _>>()?;
    Ok(DaemonSpec {
        targets,
        name: file.name.unwrap_or(name),
        shards: super::shards(file.shards, disks.len())?,
        shards_asked: file.shards,
        disks,
        pools: file.pool,
        listeners,
        reactor: file.reactor,
        control: file.control,
        state_dir: file.state_dir,
        sources: None,
        http: file.http.unwrap_or_default().0,
    })
}

/// The disk of a table, and where clients attach to it alone.
fn disk(table: DiskTable) -> Result<(DiskSpec, Vec<Address>)> {
    let DiskTable { name, backend, options } = table;
    let backend = backend.context("'backend' is missing: the URI of primary storage")?;
    let name = name.unwrap_or_else(|| super::name_from_backend(&backend));
    ensure!(
        options.queues.is_none() || options.vhost_user.is_some(),
        "in the settings of disk '{name}': queues are of a vhost-user-blk device; give vhost-user as well, or leave them out"
    );
    let addresses = options.nbd.clone();
    Ok((options.resolve(name, backend), addresses))
}

#[cfg(test)]
mod tests;
