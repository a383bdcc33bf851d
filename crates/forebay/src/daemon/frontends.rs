//! Where clients of a daemon's disks come in: NBD listeners, iSCSI portals, sockets of vhost-user devices.
//!
//! ```text
//!   a disk on its shard ──attach──► vhost-user device; listener, bound with its first disk; logical unit of a target
//!   every disk of the start is attached ──open──► clients are let in
//! ```
//! A disk that was refused and is served after all is attached later, in the same way. What fails at one place keeps it
//! from no other, and may be tried again.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use forebay_frontends::vhost_user;
use forebay_host::events::EventSender;
use forebay_shard::DiskHandle;
use tokio::task::JoinHandle;

use super::inherited::Inherited;
use super::iscsi::{Portals, UnitDisk};
use super::listener::{Listener, ListenerState, Served};
use super::names::Names;
use super::opener::Ready;
use super::unix::UnixSocket;
use super::vhost_user::{VhostUser, VhostUserState};
use crate::config::iscsi::IscsiSpec;
use crate::config::values::Name;
use crate::config::{DaemonSpec, ListenerSpec, VhostUserSpec};

/// A hypervisor's device that is not busy has been told the size of its disk by then.
const TELL_MAX: Duration = Duration::from_millis(100);

/// Where clients do not find a disk.
#[derive(Debug)]
pub(super) struct Missing {
    /// The NBD addresses among these.
    pub(super) places: Vec<String>,
    /// All, and why.
    pub(super) why: Error,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Frontends {
    pub(super) inherited: Arc<Inherited>,
    names: Arc<Names>,
    events: EventSender,
    portals: Portals,
    bound: Mutex<Bound>,
}

#[derive(Debug, Default)]
struct Bound {
    /// By their addresses as they were configured.
    listeners: BTreeMap<String, (Arc<ListenerState>, Arc<Served>)>,
    /// By the names of their disks.
    devices: BTreeMap<String, VhostUser>,
    /// Clients are let in.
    is_open: bool,
    /// Who are to accept clients then. Their sockets go at once when it does not come to that.
    waiting: Vec<Accepting>,
    /// Who accept clients.
    tasks: Vec<JoinHandle<()>>,
}

struct Accepting(Pin<Box<dyn Future<Output = ()> + Send>>);

impl fmt::Debug for Accepting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Accepting")
    }
}

impl Frontends {
    pub(super) fn new(inherited: Arc<Inherited>, events: EventSender) -> Frontends {
        let names = Arc::<Names>::default();
        let portals = Portals::new(inherited.clone(), names.clone());
        Frontends { inherited, names, events, portals, bound: Mutex::default() }
    }

    /// Looks up what a start is to listen at, and whom it is to let in, before any disk is attached.
    pub(super) async fn look_up(&self, spec: &DaemonSpec) {
        let names = self.names.look_up(spec.tcp_addresses());
        tokio::join!(names, self.portals.ask_for_secrets(&spec.targets));
    }

    /// Hosts that were not found may be known by now: whoever tries disks again asks for them once more.
    pub(super) fn look_again(&self) {
        self.names.ask_again();
    }

    /// Lets clients find a disk wherever the configuration says, and they do not yet.
    ///
    /// # Errors
    /// Each address that cannot be had, or secret that cannot be read; the disk is found everywhere else.
    pub(super) async fn attach(&self, spec: &DaemonSpec, disk: &Ready) -> Result<(), Missing> {
        let mut places = Vec::new();
        let mut missing: Vec<Error> = self
            .attach_device(&disk.name, disk.device.clone(), &disk.handle)
            .err()
            .into_iter()
            .collect();
        for listener in spec.listeners.iter().filter(|it| it.disks.contains(&disk.name)) {
            match self.listener(listener).await {
                Ok((state, served)) => {
                    let (export, handle) = (disk.export.clone(), disk.handle.clone());
                    state.tell_disks(served.add(&listener.disks, export, handle));
                }
                Err(error) => {
                    places.push(listener.place());
                    missing.push(error);
                }
            }
        }
        let (export, kept) = disk.unit.clone();
        let unit = UnitDisk { export, kept, handle: disk.handle.clone() };
        let (portals, errors) = self.portals.attach(&spec.targets, &disk.name, unit).await;
        for portal in portals {
            self.spawn(portal.serve(self.events.clone()));
        }
        missing.extend(errors);
        let first = missing.drain(..).reduce(|all, next| anyhow!("{all:#}; {next:#}"));
        first.map_or(Ok(()), |why| Err(Missing { places, why }))
    }

    fn attach_device(
        &self,
        Name(name): &Name,
        device: Option<(VhostUserSpec, vhost_user::Export)>,
        disk: &DiskHandle,
    ) -> Result<()> {
        let Some((spec, export)) = device else { return Ok(()) };
        if self.device(name).is_some() {
            return Ok(());
        }
        let (disk, events) = (disk.clone(), self.events.clone());
        let device = UnixSocket::bind(&spec.socket.path, &spec.socket.access, &self.inherited)
            .and_then(|socket| VhostUser::start(socket, export, name, disk, events))
            .with_context(|| format!("disk '{name}': its vhost-user device"))?;
        let mut bound = self.bound();
        if bound.is_open {
            device.open();
        }
        bound.devices.insert(name.clone(), device);
        Ok(())
    }

    /// No client finds a disk that has ended. Its device goes.
    pub(super) fn detach(&self, disk: &str, handle: &DiskHandle) {
        self.portals.detach(disk, handle);
        let mut bound = self.bound();
        for (state, served) in bound.listeners.values() {
            state.tell_disks(served.remove(disk));
        }
        let device = bound.devices.remove(disk);
        drop(bound);
        // It waits for whoever is at its socket.
        tokio::task::spawn_blocking(move || drop(device));
    }

    /// NBD clients and hypervisors who come from now on see a disk as it was opened again.
    pub(super) fn tell_export(&self, disk: &Ready) {
        let bound = self.bound();
        for (_, served) in bound.listeners.values() {
            served.change(&disk.export);
        }
        let device = bound.devices.get(&disk.name.0).zip(disk.device.as_ref());
        if let Some((device, (_, export))) = device {
            device.change(export);
        }
    }

    /// Nobody listens any more where the configuration names no place, or where no disk is served. Who listened there.
    pub(super) fn close_unused(&self, spec: &DaemonSpec) -> Vec<Arc<Served>> {
        self.portals.await_less(&spec.targets);
        let is_unused =
            |place: &String, (state, served): &mut (Arc<ListenerState>, Arc<Served>)| {
                let Some(wanted) = spec.listeners.iter().find(|it| it.place() == *place) else {
                    return true;
                };
                // A disk that is elsewhere by now is not found here, also while none of those is served that are to be.
                state.tell_disks(served.keep(&wanted.disks));
                served.is_empty()
            };
        let mut bound = self.bound();
        let unused = bound.listeners.extract_if(.., is_unused).map(|(_, (_, served))| served);
        unused.inspect(|served| served.end()).collect()
    }

    /// The listener of the configuration, which is bound if it is not yet.
    async fn listener(&self, spec: &ListenerSpec) -> Result<(Arc<ListenerState>, Arc<Served>)> {
        let place = spec.place();
        if let Some(known) = self.bound().listeners.get(&place) {
            return Ok(known.clone());
        }
        let listener = Listener::bind(spec, &self.inherited, &self.names).await?;
        let bound = (listener.state(), listener.served());
        let (serving, served) = (listener.serve(self.events.clone()), bound.1.clone());
        self.spawn(async move {
            serving.await;
            served.note_gone();
        });
        self.bound().listeners.insert(place, bound.clone());
        Ok(bound)
    }

    /// Runs what accepts clients, as soon as they are let in.
    fn spawn(&self, accepting: impl Future<Output = ()> + Send + 'static) {
        let mut bound = self.bound();
        match bound.is_open {
            true => bound.tasks.push(tokio::spawn(accepting)),
            false => bound.waiting.push(Accepting(Box::pin(accepting))),
        }
    }

    /// Lets clients in.
    pub(super) fn open(&self) {
        let mut bound = self.bound();
        bound.is_open = true;
        bound.devices.values().for_each(VhostUser::open);
        let waiting = std::mem::take(&mut bound.waiting);
        bound.tasks.extend(waiting.into_iter().map(|Accepting(it)| tokio::spawn(it)));
    }

    /// Nobody comes in any more, but over vhost-user.
    pub(super) async fn close(&self) {
        for task in self.abort() {
            let _ = task.await;
        }
    }

    /// The same without waiting for it.
    pub(super) fn abort(&self) -> Vec<JoinHandle<()>> {
        let tasks = std::mem::take(&mut self.bound().tasks);
        tasks.iter().for_each(JoinHandle::abort);
        tasks
    }

    /// Ends the vhost-user devices, whose disks have ended: what was in flight is answered in their rings.
    pub(super) fn end_devices(&self) {
        let devices = std::mem::take(&mut self.bound().devices);
        drop(devices);
    }

    /// As [`Portals::read_secrets`].
    ///
    /// # Errors
    /// The same.
    pub(super) async fn read_secrets(&self, target: &IscsiSpec, takes_over: bool) -> Result<bool> {
        self.portals.read_secrets(target, takes_over).await
    }

    /// Whether anybody listens for NBD there.
    pub(super) fn listens_at(&self, place: &str) -> bool {
        self.bound().listeners.contains_key(place)
    }

    /// What listeners and portals count.
    pub(super) fn states(&self) -> Vec<Arc<ListenerState>> {
        let listeners: Vec<_> =
            self.bound().listeners.values().map(|(state, _)| state.clone()).collect();
        listeners.into_iter().chain(self.portals.states()).collect()
    }

    /// What is known of a disk's vhost-user device.
    pub(super) fn device(&self, disk: &str) -> Option<Arc<VhostUserState>> {
        self.bound().devices.get(disk).map(VhostUser::state)
    }

    /// The disks that sessions may use together with this one.
    pub(super) fn bound_to(&self, disk: &DiskHandle) -> Vec<DiskHandle> {
        self.portals.bound_to(disk)
    }

    /// The names of the targets that show a disk.
    pub(super) fn targets_of(&self, disk: &DiskHandle) -> Vec<String> {
        self.portals.targets_of(disk)
    }

    /// Tells whoever can be told what size a disk has now. NBD clients see it when they connect. It may take a moment.
    pub(super) fn tell_size(&self, name: &str, disk: &DiskHandle) {
        self.portals.tell_size(disk);
        let device = self.device(name);
        if let Some(tell) = device.and_then(|device| device.telling(disk.size())) {
            let (told, is_told) = channel();
            tokio::task::spawn_blocking(move || {
                tell();
                let _ = told.send(());
            });
            // It may be busy with a message for as long as primary storage takes for a request: nobody waits for that.
            let _ = is_told.recv_timeout(TELL_MAX);
        }
    }

    fn bound(&self) -> MutexGuard<'_, Bound> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
