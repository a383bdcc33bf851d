//! Who listens already where a daemon is to listen, found without listening there.
//!
//! Sockets of systemd keep nobody from a start: it passes them to the daemon (`inherited.rs`). Nothing connects to them here,
//! because systemd would start the service. The control socket is looked at elsewhere.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use super::{Inherited, folder_of};

/// A socket that listens, in `/proc/net/unix`: of a stream, and accepting.
const UNIX: (&str, &str, &str) = ("00010000", "0001", "01");
/// A socket that listens, in `/proc/net/tcp`.
const TCP: &str = "0A";

/// What systemd listens at.
#[derive(Debug)]
pub(super) struct OfSystemd<'a> {
    /// What it passed to this process.
    inherited: &'a Inherited,
    /// The inodes of its sockets.
    sockets: BTreeSet<String>,
    /// This user may not look into a systemd, so any socket of root may be its.
    is_hidden: bool,
}

impl OfSystemd<'_> {
    /// Looks into the systemd of the host and those of users.
    pub(super) fn look(inherited: &Inherited) -> OfSystemd<'_> {
        // Where processes of others are out of sight, so is the first one.
        let is_hidden = fs::read_to_string("/proc/1/comm").is_err();
        let mut found = OfSystemd { inherited, sockets: BTreeSet::new(), is_hidden };
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = fs::read_to_string(process.path().join("comm"));
            if name.is_ok_and(|name| name == "systemd\n") {
                match fs::read_dir(process.path().join("fd")) {
                    Ok(files) => {
                        let shown =
                            files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
                        let inode = |link: &Path| {
                            let inode = link.to_str()?.strip_prefix("socket:[")?;
                            Some(inode.strip_suffix(']')?.to_owned())
                        };
                        found.sockets.extend(shown.filter_map(|link| inode(&link)));
                    }
                    Err(_) => found.is_hidden = true,
                }
            }
        }
        found
    }

    fn has(&self, inode: &str, owner: u32) -> bool {
        self.sockets.contains(inode) || self.is_hidden && owner == 0
    }

    fn has_unix(&self, path: &Path) -> bool {
        let place = |path: &Path| {
            Some((folder_of(path).canonicalize().ok()?, path.file_name()?.to_owned()))
        };
        let owner = path.metadata().map_or(u32::MAX, |found| found.uid());
        let wanted = place(path);
        let listed = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let is_here = listed.lines().filter_map(unix_listener).any(|(inode, at)| {
            self.has(inode, owner) && wanted.is_some() && place(Path::new(at)) == wanted
        });
        is_here || self.inherited.take_unix(path).is_ok_and(|taken| taken.is_some())
    }

    pub(super) fn has_tcp(&self, addresses: &[SocketAddr]) -> bool {
        let listed = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
        let listed: String = listed.into_iter().flatten().collect();
        // The start takes over a socket of just this address.
        let is_here = listed
            .lines()
            .filter_map(tcp_listener)
            .any(|(inode, owner, at)| self.has(inode, owner) && addresses.contains(&at));
        is_here || self.inherited.take_tcp(addresses).is_ok_and(|taken| taken.is_some())
    }
}

/// The inode and the path of a listener in a line of `/proc/net/unix`.
fn unix_listener(line: &str) -> Option<(&str, &str)> {
    let mut fields = line.splitn(7, ' ').skip(3);
    let is_listener = (fields.next()?, fields.next()?, fields.next()?) == UNIX;
    let (inode, path) = fields.next()?.trim_start().split_once(' ')?;
    is_listener.then_some((inode, path))
}

/// The inode, the owner and the address of a listener in a line of `/proc/net/tcp` or `tcp6`.
fn tcp_listener(line: &str) -> Option<(&str, u32, SocketAddr)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let &[_, local, _, state, _, _, _, owner, _, inode, ..] = &fields[..] else { return None };
    let (host, port) = local.rsplit_once(':')?;
    // Words of this host's byte order.
    let words = host.as_bytes().chunks(8).map(|word| {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        Some(word.to_ne_bytes())
    });
    let bytes = words.collect::<Option<Vec<_>>>()?.concat();
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
    };
    let at = SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?);
    (state == TCP).then_some((inode, owner.parse().ok()?, at))
}

/// True when another process listens at a unix socket.
pub(super) fn has_unix(path: &Path, of_systemd: &OfSystemd) -> bool {
    !of_systemd.has_unix(path) && forebay_io::socket::is_in_use(path).unwrap_or(false)
}

/// What keeps a daemon from listening at one of these addresses; none does when it can listen at one of them.
pub(super) fn tcp(addresses: &[SocketAddr], of_systemd: &OfSystemd) -> Option<ErrorKind> {
    let mut why = None;
    for address in addresses {
        match try_out(address) {
            Ok(()) => return None,
            Err(error) => why = Some(error.kind()),
        }
    }
    why.filter(|why| *why != ErrorKind::AddrInUse || !of_systemd.has_tcp(addresses))
}

/// Takes an address as a listener does, and does not listen: a client that comes meanwhile is not let in.
fn try_out(address: &SocketAddr) -> io::Result<()> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(bind(&socket, address)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_found_in_what_the_kernel_lists() {
        let unix = "00000000179a4ff4: 00000002 00000000 00010000 0001 01 494878 /run/a b.sock";
        assert_eq!(unix_listener(unix), Some(("494878", "/run/a b.sock")));
        let short = "00000000179a4ff4: 00000002 00000000 00010000 0001 01  1675 /run/a";
        assert_eq!(unix_listener(short), Some(("1675", "/run/a")));
        let connected = "0000000061dddf55: 00000003 00000000 00000000 0001 03 420461 /run/a";
        assert_eq!(unix_listener(connected), None);
        let tcp = "   1: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000   990        0 1679 1 x 100";
        assert_eq!(tcp_listener(tcp), Some(("1679", 990, "0.0.0.0:2024".parse().unwrap())));
        let at = tcp.replace("00000000:07E8", "0100007F:07E8");
        assert_eq!(tcp_listener(&at), Some(("1679", 990, "127.0.0.1:2024".parse().unwrap())));
        let at = tcp.replace("00000000:07E8", "00000000000000000000000001000000:07E8");
        assert_eq!(tcp_listener(&at), Some(("1679", 990, "[::1]:2024".parse().unwrap())));
        assert_eq!(tcp_listener(&tcp.replace(" 0A ", " 01 ")), None);
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        assert_eq!(tcp_listener(head), None);
    }
}
