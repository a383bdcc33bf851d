//! Where clients find the disks that are served, and where they do not.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use forebay_host::events::Severity;

use super::{ControlState, lock};
use crate::daemon::api::ListenerInfo;
use crate::daemon::frontends::Missing;
use crate::daemon::opener::Ready;

impl ControlState {
    /// Tries it again for a disk that clients do not find everywhere; `None`: it is none.
    pub(in crate::daemon) async fn attach_again(&self, name: &str) -> Option<Result<()>> {
        let is_it = |disk: &Ready| disk.name.0 == name && disk.disk.ended().is_none();
        let disk = lock(&self.lists.ready).iter().find(|disk| is_it(disk)).cloned();
        let disk = disk.filter(|_| lock(&self.lists.unattached).contains(name))?;
        Some(self.attach(&disk).await.map_err(|missing| missing.why))
    }

    /// The disks that clients do not find everywhere.
    pub(in crate::daemon) fn unattached(&self) -> BTreeSet<String> {
        lock(&self.lists.unattached).clone()
    }

    /// True when clients find the disk at one place at least.
    pub(in crate::daemon) fn is_found(&self, name: &str) -> bool {
        let mut listeners = self.listeners().into_iter();
        listeners.any(|it| it.disks.iter().any(|disk| disk == name))
            || self.frontends.device(name).is_some()
    }

    /// Clients find each disk where the configuration says by now; the disks that they do not find everywhere.
    pub(in crate::daemon) async fn attach_all(&self) -> Vec<(String, Missing)> {
        let mut ready = lock(&self.lists.ready).clone();
        // One is attached after the other: two would both bind an address that is new.
        let _one = match self.opening_turn().await {
            Ok(one) => one,
            Err(why) => {
                ready.retain(|disk| disk.disk.ended().is_none());
                let names = ready.iter().map(|disk| disk.name.0.clone());
                // They are tried again.
                lock(&self.lists.unattached).extend(names);
                let missing = |disk: &Ready| {
                    (disk.name.to_string(), Missing { places: Vec::new(), why: anyhow!("{why:#}") })
                };
                return ready.iter().map(missing).collect();
            }
        };
        self.frontends.look_again();
        let ready = lock(&self.lists.ready).clone();
        let mut missing = Vec::new();
        for disk in ready.iter().filter(|disk| disk.disk.ended().is_none()) {
            if let Err(error) = self.attach(disk).await {
                missing.push((disk.name.to_string(), error));
            }
        }
        missing
    }

    /// Nobody listens any more where the configuration names no place; these are free then.
    pub(in crate::daemon) async fn close_unused_places(&self) {
        // A disk that is being attached has made a place before it is there.
        let _no_other = match self.opening_turn().await {
            Ok(turn) => turn,
            Err(why) => {
                let text =
                    format!("places where nobody is to find a disk any more stay open: {why:#}");
                return self.report(None, Severity::Warning, &text);
            }
        };
        for served in self.frontends.close_unused(&self.opener.spec()) {
            served.wait_until_gone().await;
        }
    }

    /// What listeners and portals are, and count.
    pub(in crate::daemon) fn listeners(&self) -> Vec<ListenerInfo> {
        self.frontends.states().into_iter().map(|listener| listener.info()).collect()
    }
}
