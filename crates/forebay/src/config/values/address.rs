//! Where a frontend listens, and who may come to a unix socket.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::ValueError;

const ALLOWED: &str =
    "write unix:PATH or HOST:PORT, such as unix:/run/forebay/db.sock or 127.0.0.1:10809";

/// Where a frontend listens: `unix:PATH[?mode=0660][&group=NAME]` or `HOST:PORT` (port 0: any free one).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf, Access),
    /// A TCP host and port.
    Tcp(String),
}

/// Who may connect to a unix socket; by default its owner alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Permissions of the socket's file; to connect takes the right to write.
    pub mode: u32,
    /// Its group, by name or number.
    pub group: Option<String>,
}

impl Default for Access {
    fn default() -> Access {
        Access { mode: 0o600, group: None }
    }
}

impl FromStr for Address {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Address, ValueError> {
        if let Some(rest) = text.strip_prefix("unix:") {
            let (path, options) = rest.split_once('?').unwrap_or((rest, ""));
            // sun_path holds 108 bytes with its final zero.
            return match path.len() {
                0 => Err(ValueError(format!("'{text}' names no path; {ALLOWED}"))),
                1..=107 => Ok(Address::Unix(path.into(), options.parse()?)),
                _ => Err(ValueError(format!(
                    "'{path}' is longer than the 107 bytes of a unix socket"
                ))),
            };
        }
        let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        match port.and_then(|(_, port)| port.parse::<u16>().ok()) {
            Some(_) => Ok(Address::Tcp(text.to_owned())),
            None => Err(ValueError(format!("'{text}' is not an address; {ALLOWED}"))),
        }
    }
}

/// Where the HTTP port is: `HOST:PORT` (port 0: any free one), or `off`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAddress(pub Option<String>);

impl Default for HttpAddress {
    fn default() -> HttpAddress {
        HttpAddress(Some("127.0.0.1:7480".to_owned()))
    }
}

impl FromStr for HttpAddress {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<HttpAddress, ValueError> {
        if text == "off" {
            return Ok(HttpAddress(None));
        }
        match text.parse() {
            Ok(Address::Tcp(address)) => Ok(HttpAddress(Some(address))),
            Ok(Address::Unix(..)) | Err(_) => Err(ValueError(format!(
                "'{text}' is no address of the HTTP port; write HOST:PORT, such as 127.0.0.1:7480, or off"
            ))),
        }
    }
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("off"))
    }
}

/// A unix socket where a hypervisor finds its device: `PATH[?mode=0660][&group=NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketPath {
    /// Where.
    pub path: PathBuf,
    /// Who may come.
    pub access: Access,
}

impl FromStr for SocketPath {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<SocketPath, ValueError> {
        let plain = text.strip_prefix("unix:").unwrap_or(text);
        match format!("unix:{plain}").parse()? {
            Address::Unix(path, access) => Ok(SocketPath { path, access }),
            Address::Tcp(_) => unreachable!("it is a path"),
        }
    }
}

impl fmt::Display for SocketPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path.display(), self.access)
    }
}

impl FromStr for Access {
    type Err = ValueError;
    fn from_str(options: &str) -> Result<Access, ValueError> {
        let mut access = Access::default();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let mode = |octal| u32::from_str_radix(octal, 8).ok().filter(|mode| *mode <= 0o777);
            match option.split_once('=') {
                Some(("mode", octal)) if mode(octal).is_some() => {
                    access.mode = mode(octal).expect("it was tried");
                }
                Some(("group", name)) if !name.is_empty() => access.group = Some(name.to_owned()),
                _ => {
                    return Err(ValueError(format!(
                        "'{option}' says nothing about a socket; allowed: mode=0660 (octal), group=NAME"
                    )));
                }
            }
        }
        Ok(access)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path, access) => write!(f, "unix:{}{access}", path.display()),
            Address::Tcp(address) => f.write_str(address),
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Access { mode, group } = self;
        match group {
            None if *self == Access::default() => Ok(()),
            None => write!(f, "?mode={mode:04o}"),
            Some(group) => write!(f, "?mode={mode:04o}&group={group}"),
        }
    }
}
