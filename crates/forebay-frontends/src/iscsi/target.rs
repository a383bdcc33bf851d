//! The offer of a portal: targets, who may use them, and how they prove it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The tag of the one portal group.
pub const PORTAL_GROUP: u16 = 1;
/// Bytes of an iSCSI name (RFC 7143, section 4.2.7.1).
pub const NAME_MAX: usize = 223;
/// Shortest secret that is accepted (RFC 7143, section 9.2.1: 96 bits where IPsec does not protect it).
pub const SECRET_MIN: usize = 12;

/// The targets of one address.
#[derive(Debug, Default)]
pub struct Portal {
    /// In the order in which discovery lists them.
    pub targets: Vec<Target>,
    /// Names of those that are to come: none of their disks is served yet.
    pub awaited: Vec<String>,
}

/// One target as a login sees it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// For people; empty: none is sent.
    pub alias: String,
    /// Where portals of it listen, as far as that is known.
    pub addresses: Vec<SocketAddr>,
    /// Initiators that may log in, by name; empty: all.
    pub initiators: Vec<String>,
    /// The credentials of an initiator; `None`: it needs none.
    pub chap: Option<Credentials>,
    /// The credentials of the target, for initiators that ask.
    pub mutual_chap: Option<Credentials>,
}

/// A name and a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Sent as it is.
    pub name: String,
    /// Never sent.
    pub secret: Vec<u8>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Target {
    /// A target for everybody.
    pub fn new(name: &str) -> Target {
        Target {
            name: name.to_owned(),
            alias: String::new(),
            addresses: Vec::new(),
            initiators: Vec::new(),
            chap: None,
            mutual_chap: None,
        }
    }

    /// True when an initiator of this name may see it and log in.
    pub fn admits(&self, initiator: &str) -> bool {
        let is_it = |name: &String| name.eq_ignore_ascii_case(initiator);
        self.initiators.is_empty() || self.initiators.iter().any(is_it)
    }
}

impl Portal {
    /// The target of a name, by its place.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.targets.iter().position(|target| target.name.eq_ignore_ascii_case(name))
    }

    /// True when a target of this name is to come.
    pub fn awaits(&self, name: &str) -> bool {
        self.awaited.iter().any(|awaited| awaited.eq_ignore_ascii_case(name))
    }

    /// Appends what `SendTargets` tells `initiator`: the targets that it may use (`only`: this one, if
    /// so), each at `address`, where it has come to, and at the other addresses of the target.
    pub fn list(
        &self,
        initiator: &str,
        only: Option<&str>,
        address: SocketAddr,
        out: &mut Vec<u8>,
    ) {
        let wanted = |target: &&Target| {
            only.is_none_or(|name| target.name.eq_ignore_ascii_case(name))
                && target.admits(initiator)
        };
        let here = told(address);
        for target in self.targets.iter().filter(wanted) {
            super::text::put(out, "TargetName", &target.name);
            let can_reach = |it: &SocketAddr| {
                // Without its interface an IPv6 address of a link leads nowhere else.
                let is_of_link = match it.ip() {
                    IpAddr::V4(ip) => ip.is_link_local() && !is_link_local(here.ip()),
                    IpAddr::V6(ip) => ip.is_unicast_link_local(),
                };
                *it != here
                    && !it.ip().is_unspecified()
                    && !is_of_link
                    && it.ip().is_loopback() == here.ip().is_loopback()
            };
            let others = target.addresses.iter().copied().map(told).filter(can_reach);
            for address in [here].into_iter().chain(others) {
                super::text::put(out, "TargetAddress", &format!("{address},{PORTAL_GROUP}"));
            }
        }
    }
}

/// An address as an initiator on another host can use it: an IPv4 address as such, and without the number of our interface.
fn told(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.is_link_local())
}

/// Whether `name` is an iSCSI name: `iqn.…`, `eui.…` or `naa.…`, of characters that need no
/// normalisation.
pub fn is_name(name: &str) -> bool {
    let kind = name.get(..4).map(str::to_ascii_lowercase);
    let is_character =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte) || !byte.is_ascii();
    matches!(kind.as_deref(), Some("iqn." | "eui." | "naa."))
        && (5..=NAME_MAX).contains(&name.len())
        && name.bytes().all(is_character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        let check = |name: &str, expect| assert_eq!(is_name(name), expect, "{name}");
        check("iqn.2026-01.org.example:db", true);
        check("IQN.2026-01.org.example:db", true);
        check("eui.02004567A425678D", true);
        check("naa.62004567BA64678D0123456789ABCDEF", true);
        check("iqn.", false);
        check("db", false);
        check("iqn.2026-01.org example", false);
        check("iqn.a\u{1}", false);
        check(&format!("iqn.{}", "a".repeat(220)), false);
    }

    #[test]
    fn discovery_lists_what_the_initiator_may_use() {
        let mut private = Target::new("iqn.2026-01.x:b");
        private.initiators = vec!["iqn.2026-01.x:host".to_owned()];
        let portal =
            Portal { targets: vec![Target::new("iqn.2026-01.x:a"), private], ..Portal::default() };
        let check = |initiator, only, address: &str, expect: &str| {
            let mut out = Vec::new();
            portal.list(initiator, only, address.parse().unwrap(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expect);
        };
        let a = "TargetName=iqn.2026-01.x:a\0TargetAddress=10.0.0.1:3260,1\0";
        let b = "TargetName=iqn.2026-01.x:b\0TargetAddress=10.0.0.1:3260,1\0";
        check("iqn.2026-01.x:other", None, "10.0.0.1:3260", a);
        check("iqn.2026-01.X:host", None, "10.0.0.1:3260", &format!("{a}{b}"));
        check("iqn.2026-01.x:host", Some("iqn.2026-01.x:b"), "10.0.0.1:3260", b);
        check("iqn.2026-01.x:other", Some("iqn.2026-01.x:b"), "10.0.0.1:3260", "");
        let six = "TargetName=iqn.2026-01.x:a\0TargetAddress=[fe80::1]:3260,1\0";
        check("iqn.2026-01.x:other", None, "[fe80::1]:3260", six);
        check("iqn.2026-01.x:other", None, "[fe80::1%2]:3260", six);
        check("iqn.2026-01.x:other", None, "[::ffff:10.0.0.1]:3260", a);
    }

    #[test]
    fn discovery_at_one_portal_tells_of_the_others_that_it_may_reach() {
        let mut target = Target::new("iqn.2026-01.x:a");
        let addresses = [
            "[::]:3260",
            "[fe80::1%2]:3260",
            "10.0.0.1:3260",
            "10.0.1.1:3260",
            "127.0.0.1:3260",
            "127.0.0.1:3261",
        ];
        target.addresses = addresses.iter().map(|it| it.parse().unwrap()).collect();
        let portal = Portal { targets: vec![target], ..Portal::default() };
        let check = |address: &str, expect: &[&str]| {
            let mut out = Vec::new();
            portal.list("iqn.2026-01.x:i", None, address.parse().unwrap(), &mut out);
            let text = String::from_utf8(out).unwrap();
            let told: Vec<&str> =
                text.split('\0').filter_map(|it| it.strip_prefix("TargetAddress=")).collect();
            assert_eq!(told, expect);
        };
        check("10.0.1.1:3260", &["10.0.1.1:3260,1", "10.0.0.1:3260,1"]);
        check("[::ffff:10.0.2.1]:3260", &["10.0.2.1:3260,1", "10.0.0.1:3260,1", "10.0.1.1:3260,1"]);
        check("127.0.0.1:3260", &["127.0.0.1:3260,1", "127.0.0.1:3261,1"]);
    }
}
