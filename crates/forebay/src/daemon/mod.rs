//! The daemon: shards, listeners and the control socket of one [`DaemonSpec`], from start to end.
//!
//! Start-up is a list of named steps. Each step yields a value that undoes it when dropped (a socket
//! is removed, a thread joined, a lock let go), so a step that fails undoes all before it, in reverse:
//!
//! | step | undone by dropping |
//! |---|---|
//! | bind the control socket | [`unix::UnixSocket`] |
//! | open, lock and prepare pools | [`pool::Pool`] |
//! | start the shards | [`ShardHandle`] |
//! | open primary storage, judge whether it is what the disk left, recover the log, take memory, hand the disk to its shard | the shard |
//! | bind the listeners | [`listener::Listener`] |
//! | bind the sockets of vhost-user devices | [`vhost_user::VhostUser`] |
//!
//! The end, [`Daemon::shut_down`]: listeners close, disks finish what is in flight and flush primary
//! storage within [`DRAIN_TIME_MAX`], pools note how they were left, shards end, sockets go. Where everything is then, and
//! whether it is safe, says `ending.rs`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use forebay_io::reactor::ReactorKind;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

mod advice;
pub mod api;
mod change;
pub mod control;
mod ending;
pub mod events;
pub mod fence;
pub mod iscsi;
pub mod listener;
mod observed;
mod open;
mod pdu_log;
pub mod place;
pub mod pool;
mod reservations;
pub mod unix;
pub mod vhost_user;
mod warm;

use crate::config::values::{Access, Name};
use crate::config::{DaemonSpec, ListenerSpec};
use crate::shard::{DiskHandle, Drained, ShardHandle};
use advice::Keeper;
use api::{DaemonInfo, DiskInfo, RefusedDisk};
use control::ControlState;
use ending::Left;
use events::{EventLog, EventSender, Severity};
use fence::{Place, watch::Watch};
use listener::{Listener, ListenerState, Served};
use pool::owner::PoolOwner;
use pool::{Pool, Share, SharedPool};
use unix::UnixSocket;
use vhost_user::VhostUser;

/// Time that disks have to finish what is in flight when the daemon ends.
pub const DRAIN_TIME_MAX: Duration = Duration::from_secs(30);
/// Time that the control socket has to send its last answers.
const LAST_ANSWERS_MAX: Duration = Duration::from_secs(1);

/// A running daemon. Its fields are dropped in this order: nobody comes in, then disks end, then
/// locks and sockets go.
#[derive(Debug)]
pub struct Daemon {
    tasks: Vec<JoinHandle<()>>,
    shards: Vec<ShardHandle>,
    /// Their sessions end after the disks have: what is in flight is answered in their rings.
    vhost_users: Vec<VhostUser>,
    control: Arc<ControlState>,
    /// Ends the control socket when it is dropped.
    control_end: Option<oneshot::Sender<()>>,
    events: EventSender,
    pools: BTreeMap<PathBuf, (SharedPool, PoolOwner)>,
    _watch: Watch,
    _socket: UnixSocket,
}

impl Daemon {
    /// Starts everything; clients can attach when this returns.
    ///
    /// # Errors
    /// The step that failed, and why; everything before it is undone.
    pub async fn start(spec: DaemonSpec) -> Result<Daemon> {
        allow_many_files();
        let socket_path = match &spec.control {
            Some(path) => path.clone(),
            None => place::default_socket(&spec.name)?,
        };
        let (socket, control_listener) = UnixSocket::bind(&socket_path, &Access::default())
            .with_context(|| format!("'{}' has no control socket", spec.name))?;
        let (log, events) = EventLog::start().context("no thread for the event log")?;
        let mut pools = BTreeMap::new();
        let mut handles = open::Pools::new();
        for (path, pool) in open_pools(&spec)? {
            let pool: SharedPool = Arc::new(Mutex::new(pool));
            let (owner, handle) = PoolOwner::start(pool.clone(), events.clone())?;
            handles.insert(path.clone(), (pool.clone(), handle));
            pools.insert(path, (pool, owner));
        }
        let state = spec.state_dir.clone().or_else(place::state_folder);
        let shards = (0..spec.shards)
            .map(|index| ShardHandle::start(index, spec.shards, spec.reactor.0, events.clone()))
            .collect::<Result<Vec<ShardHandle>>>()?;
        let mut disks = Vec::new();
        let mut devices = Vec::new();
        let mut places: Vec<Option<Place>> = Vec::new();
        let mut advices = Vec::new();
        let mut watched = Vec::new();
        let mut witnesses = Vec::new();
        let mut refused = Vec::new();
        let mut units = BTreeMap::new();
        for (index, disk) in spec.disks.iter().enumerate() {
            let shard = shard_of(&spec, index, shards.len());
            let opened = open::open(disk, &handles, state.as_deref())
                .with_context(|| format!("disk '{}'", disk.name));
            let mut opened = match opened {
                Ok(opened) => opened,
                Err(error) if error.chain().any(|cause| cause.is::<fence::Refused>()) => {
                    // The others are served.
                    let reason = format!("{:#}", error.root_cause());
                    let text = format!("the disk is not served: {reason}");
                    events.report(Some(&disk.name.0), Severity::Error, text);
                    let (name, backend) = (disk.name.to_string(), disk.backend.clone());
                    refused.push(RefusedDisk { name, backend, reason });
                    continue;
                }
                Err(error) => return Err(error),
            };
            for (severity, text) in &opened.notes {
                events.report(Some(&disk.name.0), *severity, text.clone());
            }
            let (info, export) = (opened.info(disk, shard), opened.export(disk));
            let device = disk.vhost_user.as_ref();
            let device = device.map(|spec| (spec, opened.device(disk, spec.queues)));
            units.insert(disk.name.clone(), (opened.unit(disk), opened.reservations()));
            let place = opened.take_place();
            let witness = opened.witness();
            let kept = Keeper::open(witness.as_ref(), state.as_deref());
            if let Some(trouble) = kept.trouble() {
                events.report(Some(&disk.name.0), Severity::Warning, trouble);
            }
            advices.push(kept);
            witnesses.push(witness);
            watched.extend(place.as_ref().and_then(Place::watched));
            places.push(place);
            let handle = shards[shard]
                .add(opened.into_new_disk(disk))
                .await
                .with_context(|| format!("disk '{}': its shard cannot take it", disk.name))?;
            devices
                .extend(device.map(|(spec, export)| (spec, export, handle.clone(), &disk.name.0)));
            disks.push((info, export, handle));
        }
        if let Some(first) = refused.first().filter(|_| disks.is_empty()) {
            bail!("disk '{}': {}", first.name, first.reason);
        }
        let served = served_listeners(&spec, &refused);
        let mut listeners = Vec::new();
        for listener in &served {
            listeners.push(Listener::bind(listener).await?);
        }
        let mut vhost_users = Vec::new();
        let mut device_states = BTreeMap::new();
        for (spec, export, handle, name) in devices {
            let device = VhostUser::start(spec, export, name, handle, events.clone())
                .with_context(|| format!("disk '{name}': its vhost-user device"))?;
            device_states.insert(name.clone(), device.state());
            vhost_users.push(device);
        }
        let unit = |name: &Name| {
            let (_, _, handle) = disks.iter().find(|(info, _, _)| info.name == name.0)?;
            let (export, kept) = units.get(name)?.clone();
            Some(iscsi::UnitDisk { export, kept, handle: handle.clone() })
        };
        let portals = iscsi::bind(&spec.targets, unit).await?;
        let states: Vec<Arc<ListenerState>> = listeners
            .iter()
            .map(Listener::state)
            .chain(portals.iter().map(iscsi::IscsiPortal::state))
            .collect();
        let info =
            DaemonInfo { refused, ..daemon_info(&spec, &socket_path, &shards, &disks, &states) };
        let handles: Vec<DiskHandle> = disks.iter().map(|(_, _, handle)| handle.clone()).collect();
        let state = Arc::new(ControlState {
            daemon: info,
            disks: handles,
            places,
            advices,
            ended: Mutex::default(),
            witnesses: Mutex::new(witnesses),
            listeners: states,
            targets: portals.iter().flat_map(|portal| portal.targets().iter().cloned()).collect(),
            vhost_users: device_states,
            resizing: tokio::sync::Mutex::default(),
            events: log,
            sender: events.clone(),
            emptied: Arc::default(),
        });
        let mut tasks = Vec::new();
        for (listener, spec) in listeners.into_iter().zip(&served) {
            let at = |name: &Name| {
                disks.iter().find(|(info, _, _)| info.name == name.0).expect("names were checked")
            };
            let served = Served {
                exports: spec.disks.iter().map(|name| at(name).1.clone()).collect(),
                disks: spec.disks.iter().map(|name| at(name).2.clone()).collect(),
            };
            tasks.push(tokio::spawn(listener.serve(served, events.clone())));
        }
        let serve = |portal: iscsi::IscsiPortal| tokio::spawn(portal.serve(events.clone()));
        tasks.extend(portals.into_iter().map(serve));
        tasks.push(tokio::spawn(advice::follow(state.clone())));
        let (control_end, control_ends) = oneshot::channel();
        tasks.push(serve_control(control_listener, state.clone(), control_ends)?);
        let watch =
            Watch::start(watched, events.clone()).context("no thread to watch primary storage")?;
        // Who is told that it is ready finds in the log what was found on the way.
        state.events.settle(&events).await;
        Ok(Daemon {
            tasks,
            shards,
            vhost_users,
            control: state,
            control_end: Some(control_end),
            events,
            pools,
            _watch: watch,
            _socket: socket,
        })
    }

    /// What it is and serves.
    pub fn info(&self) -> &DaemonInfo {
        &self.control.daemon
    }

    /// Its disks, in the order of its configuration.
    pub fn disks(&self) -> &[DiskHandle] {
        &self.control.disks
    }

    /// Told when every disk has ended: was detached, or should have been.
    pub fn emptied(&self) -> Arc<tokio::sync::Notify> {
        self.control.emptied.clone()
    }

    /// Waits until a shard or the owner of a pool fails; a daemon that works never gets here.
    pub async fn failed(&mut self) -> String {
        type Wait<'a> = std::pin::Pin<Box<dyn Future<Output = String> + Send + 'a>>;
        let shards = self.shards.iter_mut().enumerate().map(|(index, shard)| -> Wait<'_> {
            Box::pin(async move { format!("shard {index} ended: {}", shard.failed().await) })
        });
        let owners = self.pools.iter_mut().map(|(path, (_, owner))| -> Wait<'_> {
            Box::pin(async move {
                owner.failed().await;
                format!("the thread that owns the flash {} panicked", path.display())
            })
        });
        let mut waits: Vec<Wait<'_>> = shards.chain(owners).collect();
        std::future::poll_fn(|cx| {
            for wait in &mut waits {
                if let std::task::Poll::Ready(why) = wait.as_mut().poll(cx) {
                    return std::task::Poll::Ready(why);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    /// Ends in order: nobody new, what is in flight finishes, logs are committed, primary storage is flushed. An event
    /// says whether a log holds what is not on primary storage.
    ///
    /// # Errors
    /// Not all of that succeeded: on which disks, and what is not safe. The daemon has ended nevertheless.
    pub async fn shut_down(mut self) -> Result<()> {
        // The control socket answers until the end; only the listeners close.
        let control = self.tasks.pop();
        for task in self.tasks.drain(..) {
            task.abort();
            let _ = task.await;
        }
        for index in 0..self.control.disks.len() {
            advice::settle(&self.control, index).await;
        }
        // All shards at once: one that hangs does not keep the others from ending well.
        let draining: Vec<_> = self.shards.iter().map(ShardHandle::drain).collect();
        let limit = Instant::now() + DRAIN_TIME_MAX;
        let mut trouble = Vec::new();
        let mut ended = Vec::new();
        for (shard, answer) in draining.into_iter().enumerate() {
            match answer {
                Ok(answer) => match timeout_at(limit, answer).await {
                    Ok(Ok(disks)) => ended.extend(disks),
                    Ok(Err(_)) => trouble.push(format!("shard {shard} ended early")),
                    Err(_) => trouble.push(self.late(shard)),
                },
                Err(gone) => trouble.push(format!("shard {shard}: {gone}")),
            }
        }
        let mut dirty = Vec::new();
        for disk in &ended {
            match ending::left(disk) {
                Left::OnPrimaryStorage => {}
                Left::InLog(_) => dirty.push(disk.name.clone()),
                Left::NotSafe(why) => trouble.push(format!("disk '{}': {why}", disk.name)),
            }
        }
        trouble.extend(self.leave_places(&ended));
        if let (Some(control), Some(end)) = (control, self.control_end.take()) {
            // Who waits for the end of a disk hears of it.
            drop(end);
            let _ = tokio::time::timeout(LAST_ANSWERS_MAX, control).await;
        }
        // Shards end now: nobody asks the owners of pools for anything any more.
        self.shards.clear();
        self.vhost_users.clear();
        for (_, (_, owner)) in std::mem::take(&mut self.pools) {
            owner.join();
        }
        if trouble.is_empty() {
            self.report(Severity::Info, ending::in_order(&dirty));
        }
        self.control.events.settle(&self.events).await;
        ensure!(trouble.is_empty(), "it did not end well: {}", trouble.join("; "));
        Ok(())
    }

    /// The disks of a shard took too long to end.
    fn late(&self, shard: usize) -> String {
        let disks = self.info().disks.iter().filter(|disk| disk.shard == shard);
        let names: Vec<&str> = disks.map(|disk| disk.name.as_str()).collect();
        format!(
            "not everything in flight finished within {}s on disk {}; what was not acknowledged may be lost",
            DRAIN_TIME_MAX.as_secs(),
            names.join(", ")
        )
    }

    /// Notes in the pools how each disk was left; what went wrong.
    fn leave_places(&self, ended: &[Drained]) -> Vec<String> {
        let leave = |disk: &Drained| {
            let disks = &self.control.daemon.disks;
            let index = disks.iter().position(|info| info.name == disk.name)?;
            let error = self.control.leave(index, disk).err()?;
            Some(format!("disk '{}': {error:#}", disk.name))
        };
        ended.iter().filter_map(leave).collect()
    }

    /// Reports an event of the daemon itself.
    pub fn report(&self, severity: Severity, text: String) {
        self.events.report(None, severity, text);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Each connection is a file: as many as the administrator allows at all. A refusal costs connections, nothing else.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Opens each flash file or device once, for the shares of all disks on it.
fn open_pools(spec: &DaemonSpec) -> Result<BTreeMap<PathBuf, Pool>> {
    let mut shares: BTreeMap<PathBuf, Vec<Share>> = BTreeMap::new();
    for disk in &spec.disks {
        let Some(flash) = &disk.flash else { continue };
        let log = disk.write_log.as_ref().map_or(0, |log| log.bytes);
        let cache = disk.flash_cache_bytes();
        let ring = open::ring_bytes_max(cache, disk.block_size);
        let share = Share { cache, ring, log };
        shares.entry(flash.path.clone()).or_default().push(share);
    }
    let open = |(path, shares): (PathBuf, Vec<Share>)| {
        let pool = Pool::open(&path, &shares)?;
        Ok((path, pool))
    };
    shares.into_iter().map(open).collect()
}

fn serve_control(
    listener: std::os::unix::net::UnixListener,
    state: Arc<ControlState>,
    ends: oneshot::Receiver<()>,
) -> Result<JoinHandle<()>> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    Ok(tokio::spawn(async move {
        let ended = async move { drop(ends.await) };
        let served = axum::serve(listener, control::router(state)).with_graceful_shutdown(ended);
        if let Err(error) = served.await {
            tracing::error!("the control socket failed: {error}");
        }
    }))
}

fn daemon_info(
    spec: &DaemonSpec,
    control: &std::path::Path,
    shards: &[ShardHandle],
    disks: &[(DiskInfo, forebay_frontends::nbd::Export, DiskHandle)],
    listeners: &[Arc<ListenerState>],
) -> DaemonInfo {
    let listeners: Vec<_> = listeners.iter().map(|listener| listener.info()).collect();
    let disks = disks.iter().map(|(info, _, _)| {
        let serves = |listener: &&api::ListenerInfo| listener.disks.contains(&info.name);
        let addresses = listeners.iter().filter(serves).map(|listener| listener.address.clone());
        DiskInfo { addresses: addresses.collect(), ..info.clone() }
    });
    DaemonInfo {
        name: spec.name.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        reactor: match shards[0].kind {
            ReactorKind::Uring => "io_uring".to_owned(),
            ReactorKind::Epoll => "epoll".to_owned(),
        },
        reactor_fallback: shards[0].fallback_reason.clone(),
        shards: shards.len(),
        control: control.display().to_string(),
        disks: disks.collect(),
        listeners,
        refused: Vec::new(),
    }
}

/// The shard of a disk: disks of one iSCSI target live on one.
fn shard_of(spec: &DaemonSpec, disk: usize, shards: usize) -> usize {
    let name = &spec.disks[disk].name;
    let target = spec.targets.iter().find(|it| it.luns.values().any(|unit| unit == name));
    let first = target.and_then(|target| {
        spec.disks.iter().position(|it| target.luns.values().any(|unit| *unit == it.name))
    });
    first.unwrap_or(disk) % shards
}

/// The listeners with the disks that are served; one without any is left out.
fn served_listeners(spec: &DaemonSpec, refused: &[RefusedDisk]) -> Vec<ListenerSpec> {
    let is_served = |name: &Name| !refused.iter().any(|disk| disk.name == name.0);
    let mut listeners = spec.listeners.clone();
    for listener in &mut listeners {
        listener.disks.retain(is_served);
    }
    listeners.retain(|listener| !listener.disks.is_empty());
    listeners
}
