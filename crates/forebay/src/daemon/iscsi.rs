//! iSCSI portals: accept initiators, run their login and their discovery, hand sessions to the shard of
//! the target.
//!
//! ```text
//!   accept ──► room? ──► login (10 s) ──► Newcomer ──mailbox──► shard of the target's disks
//!                            └─ discovery, until the initiator leaves (60 s)
//! ```
//! Targets that name the same address share its portal. Units and targets may be added while they are served: sessions are
//! told of units, and discovery lists targets from then on. A connection counts against the portal's limit
//! from the accept until it is gone. Without room, a newcomer gets the place of one that has not logged in (`places.rs`).
//! Where all have, it is told so at its login (0302h, out of resources).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use forebay_frontends::iscsi::target::{Portal, Target};
use forebay_frontends::scsi;
use forebay_host::events::{EventSender, Severity};
use forebay_shard::DiskHandle;
use tokio::sync::Semaphore;

mod behind;
mod login;

use self::behind::{Behind, target};
use super::inherited::Inherited;
use super::listener::{ACCEPT_PAUSE, BoundTcp, LEFT, ListenerState, bind_tcp};
use super::names::Names;
use super::questions::{About, Questions};
use super::reservations::Kept;
use crate::config::iscsi::IscsiSpec;
use crate::config::values::Name;

/// The relative target port identifier of each target's one port. A disk is a unit of one target only, and stored
/// reservations name the port: it must not depend on what other targets there are.
const PORT: u16 = 1;
/// Connections beyond the limit that are told so at a time; more are just closed.
const TURNED_AWAY_MAX: usize = 32;

/// Time for reading the secrets of a target; unit tests wait for that.
const SECRET_MAX: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 5_000 });

/// The secrets of a target, as a question names them; `None` without any.
fn about_secrets(spec: &IscsiSpec) -> Option<About> {
    let chap = spec.chap.as_ref().or(spec.mutual_chap.as_ref())?;
    Some(About::Path(chap.secret_file.clone()))
}

fn silent() -> Error {
    anyhow!("the storage of its CHAP secret files does not answer")
}

/// All portals of a daemon, and the targets behind them.
#[derive(Debug)]
pub struct Portals {
    inherited: Arc<Inherited>,
    names: Arc<Names>,
    /// For files of secrets, which may be on storage that hangs.
    questions: Questions,
    bound: Mutex<Bound>,
}

#[derive(Debug, Default)]
struct Bound {
    /// By their addresses as they were configured.
    portals: BTreeMap<String, BoundPortal>,
    /// By the names of the targets.
    targets: BTreeMap<String, Arc<Behind>>,
}

/// A portal that listens.
#[derive(Debug)]
struct BoundPortal {
    address: SocketAddr,
    state: Arc<ListenerState>,
    served: SharedServed,
}

/// A portal that listens, not yet served.
#[derive(Debug)]
pub struct IscsiPortal {
    listener: BoundTcp,
    state: Arc<ListenerState>,
    served: SharedServed,
    /// Room for those who are told that there is none.
    turning: Arc<Semaphore>,
}

/// What a portal serves: targets, and what is behind them in the same order. Each login goes on with what there was when it
/// began.
#[derive(Debug, Default)]
struct Served {
    portal: Arc<Portal>,
    behind: Vec<Arc<Behind>>,
}

type SharedServed = Arc<Mutex<Arc<Served>>>;

/// A disk that is to be a logical unit.
pub struct UnitDisk {
    /// What initiators see of it.
    pub export: scsi::Export,
    /// The reservations that it had, where they are kept over a restart.
    pub(super) kept: Option<Kept>,
    /// Where it lives.
    pub handle: DiskHandle,
}

impl Portals {
    /// None yet; some may listen already.
    pub(super) fn new(inherited: Arc<Inherited>, names: Arc<Names>) -> Portals {
        Portals { inherited, names, questions: Questions::default(), bound: Mutex::default() }
    }

    /// Asks for the secrets of targets, of all at once. Those whose storage hangs hold up no disk that is attached then.
    pub async fn ask_for_secrets(&self, targets: &[IscsiSpec]) {
        let of = targets.iter().filter_map(|spec| Some((spec.clone(), about_secrets(spec)?)));
        let ask = |spec: &IscsiSpec| {
            let of = spec.clone();
            move || drop(target(&of))
        };
        self.questions.ask_each(of, SECRET_MAX, ask).await;
    }

    /// Makes a disk the logical unit that `targets` say, if any, of a target that is there, or of a new one, and shows that
    /// at its portals, as far as that is not so yet. Portals that are to be served from now on; and each address that cannot
    /// be had, or the secret that cannot be read.
    pub async fn attach(
        &self,
        targets: &[IscsiSpec],
        name: &Name,
        disk: UnitDisk,
    ) -> (Vec<IscsiPortal>, Vec<Error>) {
        let place = targets.iter().find_map(|spec| {
            let (number, _) = spec.luns.iter().find(|(_, unit)| *unit == name)?;
            Some((spec, *number))
        });
        let Some((spec, number)) = place else { return Default::default() };
        let handle = disk.handle.clone();
        let behind = match self.add(spec, number, disk).await {
            Ok(behind) => behind,
            Err(error) => return (Vec::new(), vec![error]),
        };
        // It may have grown since it was opened.
        behind.tell_size(&handle);
        let (mut new, mut missing) = (Vec::new(), Vec::new());
        for place in &spec.portals {
            match self.show(targets, &place.0, &behind).await {
                Ok(portal) => new.extend(portal),
                Err(error) => missing.push(error),
            }
        }
        let bound = self.bound();
        let portals = || spec.portals.iter().filter_map(|place| bound.portals.get(&place.0));
        let addresses: Vec<SocketAddr> = portals().map(|portal| portal.address).collect();
        for BoundPortal { state, served, .. } in portals() {
            let mut names = state.info().disks;
            if !names.contains(&name.0) {
                names.push(name.to_string());
                state.tell_disks(names);
            }
            tell_addresses(served, &behind, &addresses);
        }
        (new, missing)
    }

    /// What these targets do not say any more is not to come either.
    pub fn await_less(&self, targets: &[IscsiSpec]) {
        let bound = self.bound();
        for (name, behind) in &bound.targets {
            let spec = targets.iter().find(|spec| spec.target.0 == *name);
            let mut device = behind.device.lock().unwrap_or_else(PoisonError::into_inner);
            device.await_no_others(|number| spec.is_some_and(|it| it.luns.contains_key(&number)));
        }
        for portal in bound.portals.values() {
            let mut served = portal.served.lock().unwrap_or_else(PoisonError::into_inner);
            let is_said = |name: &String| targets.iter().any(|spec| spec.target.0 == *name);
            if !served.portal.awaited.iter().all(is_said) {
                let Portal { targets, awaited } = &*served.portal;
                let awaited = awaited.iter().filter(|name| is_said(name)).cloned().collect();
                let portal = Arc::new(Portal { targets: targets.clone(), awaited });
                *served = Arc::new(Served { portal, behind: served.behind.clone() });
            }
        }
    }

    /// A disk has ended for good: no initiator finds it any more, and another one may have its number.
    pub fn detach(&self, name: &str, disk: &DiskHandle) {
        let bound = self.bound();
        for portal in bound.portals.values() {
            let mut names = portal.state.info().disks;
            names.retain(|known| known != name);
            portal.state.tell_disks(names);
        }
        bound.targets.values().for_each(|target| target.detach(disk));
    }

    /// Adds a disk to its target, which begins with its first one, and once more when all have ended: its table may be
    /// another one than before.
    async fn add(&self, spec: &IscsiSpec, number: u16, disk: UnitDisk) -> Result<Arc<Behind>> {
        let known = self.bound().targets.get(&spec.target.0).cloned();
        if let Some(behind) = known.as_ref().filter(|behind| behind.has_disks()) {
            behind.add(spec, number, disk)?;
            return Ok(behind.clone());
        }
        // Each of its disks would wait for what keeps the first one waiting.
        let is_out = about_secrets(spec).is_some_and(|about| self.questions.is_out(&about));
        let target = if is_out { Err(silent()) } else { self.load(spec).await };
        let target = target.with_context(|| format!("iSCSI target {}", spec.target))?;
        let behind = Arc::new(Behind::begin((spec, target), known.as_deref(), number, disk)?);
        let target = behind.target().clone();
        let mut bound = self.bound();
        bound.targets.insert(spec.target.0.clone(), behind.clone());
        if let Some(before) = known {
            for (address, portal) in &bound.portals {
                let is_named = spec.portals.iter().any(|place| place.0 == *address);
                replace(&portal.served, &before, is_named.then_some((&target, &behind)));
            }
            // It waits until all that it has logged is in the file.
            tokio::task::spawn_blocking(move || drop(before));
        }
        Ok(behind)
    }

    /// Reads the secrets of a target that is served again; whether they are others now. With `takes_over` they count from the
    /// next login on.
    ///
    /// # Errors
    /// One cannot be read. Nothing has changed.
    pub async fn read_secrets(&self, spec: &IscsiSpec, takes_over: bool) -> Result<bool> {
        let Target { chap, mutual_chap, .. } = self.load(spec).await?;
        let Some(behind) = self.bound().targets.get(&spec.target.0).cloned() else {
            // They count when it is served.
            return Ok(false);
        };
        let mut known = behind.target();
        let are_others = (&known.chap, &known.mutual_chap) != (&chap, &mutual_chap);
        if are_others && takes_over {
            (known.chap, known.mutual_chap) = (chap, mutual_chap);
            for BoundPortal { served, .. } in self.bound().portals.values() {
                change_target(served, &behind, |target| {
                    target.chap.clone_from(&known.chap);
                    target.mutual_chap.clone_from(&known.mutual_chap);
                });
            }
        }
        Ok(are_others)
    }

    /// A target as its table says.
    ///
    /// # Errors
    /// A secret cannot be read, or not in time.
    async fn load(&self, spec: &IscsiSpec) -> Result<Target> {
        let Some(about) = about_secrets(spec) else { return target(spec) };
        let of = spec.clone();
        let loaded = self.questions.ask(about, SECRET_MAX, move || target(&of)).await;
        loaded.map_err(|_| silent())?
    }

    /// Shows a target at an address; the portal there, when it listens from now on.
    async fn show(
        &self,
        targets: &[IscsiSpec],
        address: &str,
        behind: &Arc<Behind>,
    ) -> Result<Option<IscsiPortal>> {
        let known = self.bound().portals.get(address).map(|portal| {
            // A target that is new there brings its own.
            portal.state.tell_room(room(targets, address));
            portal.served.clone()
        });
        let (served, new) = match known {
            Some(served) => (served, None),
            None => {
                let portal =
                    IscsiPortal::bind(targets, address, &self.inherited, &self.names).await?;
                let (state, served) = (portal.state.clone(), portal.served.clone());
                let bound = BoundPortal {
                    address: portal.listener.local_addr()?,
                    state,
                    served: served.clone(),
                };
                self.bound().portals.insert(address.to_owned(), bound);
                (served, Some(portal))
            }
        };
        // Held until the portal shows it: whoever changes it meanwhile would miss this portal. Always before a portal.
        let target = behind.target();
        let mut served = served.lock().unwrap_or_else(PoisonError::into_inner);
        if !served.behind.iter().any(|known| Arc::ptr_eq(known, behind)) {
            let shown = served.portal.targets.iter().cloned().chain([target.clone()]);
            let shown: Vec<Target> = shown.collect();
            let is_to_come = |spec: &&IscsiSpec| {
                spec.portals.iter().any(|place| place.0 == address)
                    && shown.iter().all(|target| target.name != spec.target.0)
            };
            let to_come = targets.iter().filter(is_to_come);
            let awaited = to_come.map(|spec| spec.target.0.clone()).collect();
            let portal = Arc::new(Portal { targets: shown, awaited });
            let behind = served.behind.iter().cloned().chain([behind.clone()]).collect();
            *served = Arc::new(Served { portal, behind });
        }
        Ok(new)
    }

    /// What they count.
    pub fn states(&self) -> Vec<Arc<ListenerState>> {
        self.bound().portals.values().map(|portal| portal.state.clone()).collect()
    }

    /// All disks of the target that a disk is behind.
    pub fn bound_to(&self, disk: &DiskHandle) -> Vec<DiskHandle> {
        let bound = self.bound();
        let behind = bound.targets.values().filter(|target| target.shows(disk));
        behind.flat_map(|target| target.handles().clone()).collect()
    }

    /// The names of the targets that a disk is behind.
    pub fn targets_of(&self, disk: &DiskHandle) -> Vec<String> {
        let bound = self.bound();
        let behind = bound.targets.iter().filter(|(_, target)| target.shows(disk));
        behind.map(|(name, _)| name.clone()).collect()
    }

    /// Tells initiators what size a disk has now, if it is behind a target.
    pub fn tell_size(&self, disk: &DiskHandle) {
        let targets: Vec<Arc<Behind>> = self.bound().targets.values().cloned().collect();
        targets.iter().for_each(|target| target.tell_size(disk));
    }

    fn bound(&self) -> MutexGuard<'_, Bound> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells a portal where else a target is: discovery at one address tells of all.
fn tell_addresses(served: &SharedServed, behind: &Arc<Behind>, addresses: &[SocketAddr]) {
    change_target(served, behind, |target| target.addresses = addresses.to_vec());
}

/// Those who log in from now on find `after` in the place of a target that has ended, or nothing.
fn replace(served: &SharedServed, before: &Arc<Behind>, after: Option<(&Target, &Arc<Behind>)>) {
    let mut served = served.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(place) = served.behind.iter().position(|known| Arc::ptr_eq(known, before)) else {
        return;
    };
    let (mut targets, mut behind) = (served.portal.targets.clone(), served.behind.clone());
    targets.splice(place..=place, after.map(|(target, _)| target.clone()));
    behind.splice(place..=place, after.map(|(_, behind)| behind.clone()));
    let portal = Arc::new(Portal { targets, awaited: served.portal.awaited.clone() });
    *served = Arc::new(Served { portal, behind });
}

/// Those who log in from now on see a target otherwise.
fn change_target(served: &SharedServed, behind: &Arc<Behind>, change: impl FnOnce(&mut Target)) {
    let mut served = served.lock().unwrap_or_else(PoisonError::into_inner);
    let place = served.behind.iter().position(|known| Arc::ptr_eq(known, behind));
    if let Some(place) = place {
        let mut targets = served.portal.targets.clone();
        change(&mut targets[place]);
        let awaited = served.portal.awaited.clone();
        let portal = Arc::new(Portal { targets, awaited });
        *served = Arc::new(Served { portal, behind: served.behind.clone() });
    }
}

/// The connections that may be open at an address: those of all targets that have it.
fn room(targets: &[IscsiSpec], address: &str) -> u32 {
    let is_here = |target: &&IscsiSpec| target.portals.iter().any(|place| place.0 == address);
    let here = targets.iter().filter(is_here);
    here.fold(0_u32, |room, target| room.saturating_add(target.connections_max))
}

impl IscsiPortal {
    /// Listens at an address, with room for all targets that have it.
    async fn bind(
        targets: &[IscsiSpec],
        address: &str,
        inherited: &Inherited,
        names: &Names,
    ) -> Result<IscsiPortal> {
        let listener = bind_tcp(address, inherited, names).await?;
        let room = room(targets, address);
        let state = ListenerState::new(format!("iscsi:{}", listener.local_addr()?), room);
        let turning = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
        Ok(IscsiPortal { listener, state, served: Arc::default(), turning })
    }

    /// Accepts initiators until dropped.
    pub async fn serve(self, events: EventSender) {
        let mut is_failing = false;
        loop {
            let (stream, from) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        let text = format!("{} cannot accept: {error}", self.state.address());
                        events.report(None, Severity::Warning, text);
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            is_failing = false;
            let Some((entry, has_to_leave)) = self.state.enter(Some(from.ip()), &events) else {
                login::turn_away(stream, &self.turning);
                continue;
            };
            let served = self.served.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let (state, events) = (self.state.clone(), events.clone());
            tokio::spawn(async move {
                let report = |why: &str| state.report_refusal(Some(from.ip()), why, &events);
                let ended = tokio::select! {
                    Ok(()) = has_to_leave => Err(anyhow::anyhow!(LEFT)),
                    ended = login::log_in(stream, &served, entry, report) => ended,
                };
                if let Err(error) = ended {
                    state.count_failed();
                    tracing::debug!("{}: an initiator was closed: {error:#}", state.address());
                }
            });
        }
    }
}

#[cfg(test)]
mod tests;
