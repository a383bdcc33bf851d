//! Names of backends: what `forebay run BACKEND` takes.
//!
//! | URI | backend |
//! |---|---|
//! | `file:/path[?direct=on\|off&read-only=on\|off]` | a file; `direct=off` uses the page cache |
//! | `block:/dev/x[?...]` | a block device, same options |
//! | `nbd://host[:port]/export[?connections=N&timeout=30s&fence=10s&...]` | an NBD export over TCP |
//! | `nbd+unix:///export?socket=PATH[&...]` | an NBD export over a unix socket |
//! | `mem:SIZE[?block=512]` | memory of this process, gone with it |
//! | `model:san?OPTIONS&inner=URI` | `inner` at the speed of a device model ([`crate::model`]) |
//! | `fault:OPTIONS&inner=URI` | `inner` with faults ([`crate::fault`]) |
//!
//! Paths, export names and socket paths are percent-decoded. `inner` comes last and takes the rest
//! of the text as it is. [`Uri`] prints a text that parses back to the same value.

mod options;
mod percent;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use forebay_core::ids::Nanos;

use crate::error::Error;
use crate::fault::FaultConfig;
use crate::model::ModelConfig;
use crate::{duration, size};
pub(crate) use options::{Options, invalid};

/// Wrappers inside of wrappers, at most.
const DEPTH_MAX: u32 = 8;
/// Longest text that is looked at.
const TEXT_MAX: usize = 16 << 10;
/// Longest export name (the NBD protocol's limit for strings).
const EXPORT_MAX: usize = 4096;

/// A backend's name.
#[derive(Clone, Debug, PartialEq)]
pub enum Uri {
    /// A regular file.
    File(FileUri),
    /// A block device.
    Block(FileUri),
    /// An export of an NBD server.
    Nbd(NbdUri),
    /// Memory of this process.
    Mem(MemUri),
    /// Another backend at the speed of a modelled device.
    Model {
        /// The device.
        config: ModelConfig,
        /// Where the bytes are.
        inner: Box<Uri>,
    },
    /// Another backend with faults.
    Fault {
        /// The faults.
        config: FaultConfig,
        /// Where the bytes are.
        inner: Box<Uri>,
    },
}

impl Uri {
    /// True when it says that nothing is to be written.
    pub fn is_read_only(&self) -> bool {
        match self {
            Uri::File(uri) | Uri::Block(uri) => uri.read_only,
            Uri::Nbd(uri) => uri.read_only,
            Uri::Model { inner, .. } | Uri::Fault { inner, .. } => inner.is_read_only(),
            Uri::Mem(_) => false,
        }
    }

    /// The export that it leads to, by server and name, also within wrappers.
    pub fn export(&self) -> Option<String> {
        match self {
            Uri::Nbd(uri) => Some(format!("{} {}", uri.address, uri.export)),
            Uri::Model { inner, .. } | Uri::Fault { inner, .. } => inner.export(),
            Uri::File(_) | Uri::Block(_) | Uri::Mem(_) => None,
        }
    }

    /// True when its bytes are there while nobody has it open, also within wrappers.
    pub fn outlives_its_opening(&self) -> bool {
        match self {
            Uri::File(_) | Uri::Block(_) | Uri::Nbd(_) => true,
            Uri::Model { inner, .. } | Uri::Fault { inner, .. } => inner.outlives_its_opening(),
            Uri::Mem(_) => false,
        }
    }

    /// The file or device that it leads to, also within wrappers.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Uri::File(uri) | Uri::Block(uri) => Some(&uri.path),
            Uri::Model { inner, .. } | Uri::Fault { inner, .. } => inner.path(),
            Uri::Nbd(_) | Uri::Mem(_) => None,
        }
    }
}

/// A file or a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileUri {
    /// Where it is.
    pub path: PathBuf,
    /// Bypass the page cache.
    pub direct: bool,
    /// Refuse writes, and take no lock against other writers.
    pub read_only: bool,
}

/// Memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemUri {
    /// Bytes, a multiple of `block`.
    pub size: u64,
    /// Logical block, a power of two from 512 to 4096.
    pub block: u32,
}

/// Where an NBD server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// A host name or address, and a port.
    Tcp(String, u16),
    /// A unix socket.
    Unix(PathBuf),
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdAddress::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            NbdAddress::Tcp(host, port) => write!(f, "{host}:{port}"),
            NbdAddress::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// An export of an NBD server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    /// The server.
    pub address: NbdAddress,
    /// The export's name; the empty one is the server's default.
    pub export: String,
    /// Connections to open if the server promises that a flush on one covers all.
    pub connections: u32,
    /// An I/O unanswered for this long ends the session.
    pub timeout: Nanos,
    /// A server that neither answers nor lets go of a lost connection counts as dead after this.
    pub fence: Nanos,
    /// Refuse writes.
    pub read_only: bool,
}

impl FromStr for Uri {
    type Err = Error;

    fn from_str(text: &str) -> Result<Uri, Error> {
        if text.len() > TEXT_MAX {
            let start: String = text.chars().take(40).collect();
            return Err(invalid(&start, format_args!("longer than {TEXT_MAX} bytes")));
        }
        parse(text, 0)
    }
}

fn parse(text: &str, depth: u32) -> Result<Uri, Error> {
    let Some((scheme, rest)) = text.split_once(':') else {
        return Err(invalid(
            text,
            "it has no scheme; allowed: file:, block:, nbd:, nbd+unix:, mem:, \
             model:, fault: (a file is file:PATH)",
        ));
    };
    let plain = || rest.split_once('?').unwrap_or((rest, ""));
    match scheme {
        "file" => Ok(Uri::File(parse_file(text, plain())?)),
        "block" => Ok(Uri::Block(parse_file(text, plain())?)),
        "nbd" => parse_nbd_tcp(text, plain()),
        "nbd+unix" => parse_nbd_unix(text, plain()),
        "mem" => parse_mem(text, plain()),
        "model" => {
            let (outer, inner) = split_inner(text, rest, depth)?;
            let config = ModelConfig::parse(text, outer)?;
            Ok(Uri::Model { config, inner })
        }
        "fault" => {
            let (outer, inner) = split_inner(text, rest, depth)?;
            let mut options = Options::split(text, outer.trim_start_matches('?'))?;
            let config = FaultConfig::parse(&mut options)?;
            options.finish()?;
            Ok(Uri::Fault { config, inner })
        }
        _ => Err(invalid(
            text,
            format_args!(
                "there is no scheme `{scheme}:`; allowed: file:, block:, nbd:, nbd+unix:, \
                 mem:, model:, fault:"
            ),
        )),
    }
}

/// Splits a wrapper's text before its `inner=`, and parses what comes after.
fn split_inner<'a>(text: &str, rest: &'a str, depth: u32) -> Result<(&'a str, Box<Uri>), Error> {
    if depth + 1 >= DEPTH_MAX {
        return Err(invalid(text, format_args!("more than {DEPTH_MAX} wrappers")));
    }
    let found = rest
        .match_indices("inner=")
        .find(|(at, _)| *at == 0 || matches!(rest.as_bytes()[at - 1], b'&' | b'?'));
    let Some((at, _)) = found else {
        return Err(invalid(text, "it wraps another backend: end it with inner=URI"));
    };
    let inner = parse(&rest[at + "inner=".len()..], depth + 1)?;
    Ok((rest[..at].trim_end_matches(['&', '?']), Box::new(inner)))
}

fn parse_file(text: &str, (path, query): (&str, &str)) -> Result<FileUri, Error> {
    // `file:///path` is the same file as `file:/path` (RFC 8089).
    let path = match path.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => return Err(invalid(text, "it names a host; write file:/path or file:///path")),
        None => path,
    };
    let path = decode_path(text, path, "the path")?;
    let mut options = Options::split(text, query)?;
    let direct = options.switch("direct", true)?;
    let read_only = options.switch("read-only", false)?;
    options.finish()?;
    Ok(FileUri { path, direct, read_only })
}

fn decode_path(text: &str, path: &str, what: &str) -> Result<PathBuf, Error> {
    let bytes = percent::decode(path).ok_or_else(|| {
        invalid(text, format_args!("{what} has a % without two hex digits (write %25 for %)"))
    })?;
    if bytes.is_empty() {
        return Err(invalid(text, format_args!("{what} is missing")));
    }
    if bytes.contains(&0) {
        return Err(invalid(text, format_args!("{what} contains a zero byte")));
    }
    Ok(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

fn decode_export(text: &str, export: &str) -> Result<String, Error> {
    let bytes = percent::decode(export).ok_or_else(|| {
        invalid(text, "the export has a % without two hex digits (write %25 for %)")
    })?;
    if bytes.len() > EXPORT_MAX {
        return Err(invalid(
            text,
            format_args!("the export's name is longer than {EXPORT_MAX} bytes"),
        ));
    }
    String::from_utf8(bytes).map_err(|_| invalid(text, "the export's name is not UTF-8"))
}

fn parse_nbd_tcp(text: &str, (rest, query): (&str, &str)) -> Result<Uri, Error> {
    let Some(rest) = rest.strip_prefix("//") else {
        return Err(invalid(text, "write nbd://host[:port]/export"));
    };
    let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) =
                rest.split_once(']').ok_or_else(|| invalid(text, "the address lacks its `]`"))?;
            match rest.strip_prefix(':') {
                Some(port) => (host, port),
                None if rest.is_empty() => (host, ""),
                None => return Err(invalid(text, "after `]` comes :port or /export")),
            }
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    if host.is_empty() || host.contains(['[', ']', '@', ' ']) {
        return Err(invalid(
            text,
            "the host is missing or malformed; write nbd://host[:port]/export",
        ));
    }
    let port = match port {
        "" => forebay_nbd::PORT,
        port => match port.parse() {
            Ok(0) | Err(_) => {
                return Err(invalid(text, format_args!("port `{port}`: allowed: 1 to 65535")));
            }
            Ok(port) => port,
        },
    };
    let mut options = Options::split(text, query)?;
    finish_nbd(text, NbdAddress::Tcp(host.to_owned(), port), export, &mut options)
        .and_then(|uri| options.finish().map(|()| uri))
}

fn parse_nbd_unix(text: &str, (rest, query): (&str, &str)) -> Result<Uri, Error> {
    let Some(export) = rest.strip_prefix("///").or(if rest == "//" { Some("") } else { None })
    else {
        return Err(invalid(text, "write nbd+unix:///export?socket=PATH"));
    };
    let mut options = Options::split(text, query)?;
    let Some(socket) = options.take("socket")? else {
        return Err(invalid(
            text,
            "option `socket` is missing; write nbd+unix:///export?socket=PATH",
        ));
    };
    let socket = decode_path(text, socket, "the socket")?;
    finish_nbd(text, NbdAddress::Unix(socket), export, &mut options)
        .and_then(|uri| options.finish().map(|()| uri))
}

fn finish_nbd(
    text: &str,
    address: NbdAddress,
    export: &str,
    options: &mut Options<'_>,
) -> Result<Uri, Error> {
    let export = decode_export(text, export)?;
    let connections = options.number("connections", 1, 16)?.unwrap_or(NbdUri::CONNECTIONS as u64);
    let timeout = options.duration("timeout")?.unwrap_or(NbdUri::TIMEOUT);
    if timeout < Nanos::from_millis(1) {
        return Err(invalid(text, "timeout: at least 1ms"));
    }
    let fence = options.duration("fence")?.unwrap_or(NbdUri::FENCE);
    let read_only = options.switch("read-only", false)?;
    let connections = connections as u32;
    Ok(Uri::Nbd(NbdUri { address, export, connections, timeout, fence, read_only }))
}

fn parse_mem(text: &str, (size, query): (&str, &str)) -> Result<Uri, Error> {
    let size = size::parse(size).map_err(|error| invalid(text, error))?;
    let mut options = Options::split(text, query)?;
    let block = options.size("block")?.unwrap_or(512);
    options.finish()?;
    if !block.is_power_of_two() || !(512..=4096).contains(&block) {
        return Err(invalid(text, "block: allowed: 512, 1KiB, 2KiB, 4KiB"));
    }
    if size == 0 || size % block != 0 {
        return Err(invalid(
            text,
            format_args!("the size must be a multiple of {block}, and not 0"),
        ));
    }
    Ok(Uri::Mem(MemUri { size, block: block as u32 }))
}

impl NbdUri {
    /// Connections to open where the server allows several, unless the URI says otherwise.
    pub const CONNECTIONS: u32 = 4;
    /// Time for an I/O, unless the URI says otherwise.
    pub const TIMEOUT: Nanos = Nanos::from_millis(30_000);
    /// Time until a lost server counts as dead, unless the URI says otherwise.
    pub const FENCE: Nanos = Nanos::from_millis(10_000);

    /// An export at a unix socket, with nothing else said.
    pub fn at_socket(export: &str, socket: &Path) -> NbdUri {
        NbdUri {
            address: NbdAddress::Unix(socket.to_owned()),
            export: export.to_owned(),
            connections: Self::CONNECTIONS,
            timeout: Self::TIMEOUT,
            fence: Self::FENCE,
            read_only: false,
        }
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uri::File(file) => write!(f, "file:{file}"),
            Uri::Block(file) => write!(f, "block:{file}"),
            Uri::Nbd(nbd) => nbd.fmt(f),
            Uri::Mem(mem) => {
                write!(f, "mem:{}", size::exact(mem.size))?;
                match mem.block {
                    512 => Ok(()),
                    block => write!(f, "?block={}", size::exact(block.into())),
                }
            }
            Uri::Model { config, inner } => write!(f, "model:san?{config}inner={inner}"),
            Uri::Fault { config, inner } => write!(f, "fault:{config}inner={inner}"),
        }
    }
}

impl fmt::Display for FileUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.as_os_str().as_bytes();
        // A path that begins with two slashes would read as a host.
        let guard = if path.starts_with(b"//") { "//" } else { "" };
        write!(f, "{guard}{}", percent::encode(path))?;
        write_options(f, &[(!self.direct, &"direct=off"), (self.read_only, &"read-only=on")], '?')
    }
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = percent::encode(self.export.as_bytes());
        let first = match &self.address {
            NbdAddress::Tcp(..) => {
                write!(f, "nbd://{}/{export}", self.address)?;
                '?'
            }
            NbdAddress::Unix(path) => {
                let path: &OsStr = path.as_os_str();
                write!(f, "nbd+unix:///{export}?socket={}", percent::encode(path.as_bytes()))?;
                '&'
            }
        };
        write_options(
            f,
            &[
                (
                    self.connections != Self::CONNECTIONS,
                    &format_args!("connections={}", self.connections),
                ),
                (
                    self.timeout != Self::TIMEOUT,
                    &format_args!("timeout={}", duration::exact(self.timeout)),
                ),
                (self.fence != Self::FENCE, &format_args!("fence={}", duration::exact(self.fence))),
                (self.read_only, &"read-only=on"),
            ],
            first,
        )
    }
}

/// Prints those options that are wanted, the first after `separator`, the others after `&`.
fn write_options(
    f: &mut fmt::Formatter<'_>,
    options: &[(bool, &dyn fmt::Display)],
    mut separator: char,
) -> fmt::Result {
    for (_, option) in options.iter().filter(|(wanted, _)| *wanted) {
        write!(f, "{separator}{option}")?;
        separator = '&';
    }
    Ok(())
}
