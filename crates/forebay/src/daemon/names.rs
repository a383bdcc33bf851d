//! Hosts that listeners and portals are given by name.
//!
//! A name server that is dead takes seconds for each question. So a host that was not found for one disk is not looked up again
//! for the next one, until somebody tries again ([`Names::ask_again`]). A start looks them all up before the first disk is
//! attached ([`Names::look_up`]): a hypervisor that finds the socket of its device stands still until it is let in.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::control::lock;

/// Time to find the name of a host. Other places of a disk, and other disks, wait for that.
/// A name server that is dead takes 5 s of it, twice at most.
const FIND_TIME_MAX: Duration = Duration::from_secs(15);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Names {
    unknown: Mutex<Unknown>,
}

#[derive(Debug, Default)]
struct Unknown {
    /// The hosts that were not found, and why.
    hosts: BTreeMap<String, String>,
    /// How often somebody tried again.
    round: u64,
}

impl Names {
    /// What addresses `HOST:PORT` is.
    ///
    /// # Errors
    /// The host is not found.
    pub(super) async fn find(&self, address: &str) -> Result<Vec<SocketAddr>> {
        let look_up = async { Ok(tokio::net::lookup_host(address).await?.collect()) };
        self.find_by(address, look_up).await
    }

    /// Looks the hosts of these addresses up, each once and side by side.
    pub(super) async fn look_up(self: &Arc<Self>, addresses: impl Iterator<Item = &String>) {
        let hosts: BTreeMap<&str, &String> = addresses.map(|it| (host(it), it)).collect();
        let mut asked = JoinSet::new();
        for address in hosts.into_values() {
            let (names, address) = (self.clone(), address.clone());
            asked.spawn(async move { drop(names.find(&address).await) });
        }
        asked.join_all().await;
    }

    /// Those that were not found are looked up again from now on.
    pub(super) fn ask_again(&self) {
        let mut unknown = lock(&self.unknown);
        unknown.hosts.clear();
        unknown.round += 1;
    }

    async fn find_by(
        &self,
        address: &str,
        look_up: impl Future<Output = io::Result<Vec<SocketAddr>>>,
    ) -> Result<Vec<SocketAddr>> {
        let host = host(address);
        let (known, round) = {
            let unknown = lock(&self.unknown);
            (unknown.hosts.get(host).cloned(), unknown.round)
        };
        let why = match known {
            Some(why) => why,
            None => {
                let why = match timeout(FIND_TIME_MAX, look_up).await {
                    Ok(Ok(found)) => return Ok(found),
                    Ok(Err(error)) => format!("its name is not found: {error}"),
                    Err(_) => "its name is not found in time".to_owned(),
                };
                let mut unknown = lock(&self.unknown);
                // What was asked before somebody tried again is no answer to them.
                if unknown.round == round {
                    unknown.hosts.insert(host.to_owned(), why.clone());
                }
                why
            }
        };
        bail!("cannot listen at {address}: {why}")
    }
}

/// That of `HOST:PORT`.
fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn find(names: &Names, address: &str, found: io::Result<&str>) -> Result<(), String> {
        let mut is_asked = false;
        let look_up = async {
            is_asked = true;
            found.map(|it| vec![it.parse().unwrap()])
        };
        let found = names.find_by(address, look_up).await;
        match found.map_err(|error| format!("{error:#}")) {
            Ok(_) => Ok(()),
            Err(why) => Err(format!("{why}{}", if is_asked { "" } else { " (as before)" })),
        }
    }

    #[tokio::test]
    async fn a_host_that_is_not_found_is_looked_up_once_until_somebody_tries_again() {
        let names = Names::default();
        let dead = || Err(io::Error::other("no answer"));
        let said = find(&names, "store.example:10809", dead()).await.unwrap_err();
        assert_eq!(said, "cannot listen at store.example:10809: its name is not found: no answer");
        let said = find(&names, "store.example:3260", Ok("10.0.0.1:3260")).await.unwrap_err();
        let expect =
            "cannot listen at store.example:3260: its name is not found: no answer (as before)";
        assert_eq!(said, expect);
        assert_eq!(find(&names, "other.example:3260", Ok("10.0.0.1:3260")).await, Ok(()));
        names.ask_again();
        assert_eq!(find(&names, "store.example:3260", Ok("10.0.0.1:3260")).await, Ok(()));
        // Somebody tries again while the old question is open.
        let late = async {
            names.ask_again();
            Err(io::Error::other("no answer"))
        };
        names.find_by("store.example:3260", late).await.unwrap_err();
        assert_eq!(find(&names, "store.example:3260", Ok("10.0.0.1:3260")).await, Ok(()));
        assert_eq!(names.find("[::1]:3260").await.unwrap(), ["[::1]:3260".parse().unwrap()]);
    }
}
