//! The control socket: HTTP with JSON over a unix socket, answered from shards by mailbox.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use forebay_host::events::{EventLine, EventLog, EventSender, Severity};
use forebay_shard::Drained;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use anyhow::Result;

use super::api::{DaemonInfo, DiskInfo, RefusedDisk};
use super::figures::Figures;
use super::frontends::{Frontends, Missing};
use super::http::HttpPort;
use super::opener::{self, Opener, Ready};
use super::questions::FLASH_MAX;
use super::served::ServedDisk;
use super::watch::Watch;
use super::{
    advice, change, devices, history, metrics, move_shard, observed, pools, quiesce, refused,
    reload, settings, systemd,
};
use crate::config::DiskSpec;
use crate::config::values::Name;

mod attached;
mod reply;
mod stats;
mod turns;

pub(super) use reply::{Refusal, Reply, refuse};
use turns::Turns;

/// What the control socket can tell.
#[derive(Debug)]
pub struct ControlState {
    /// The daemon, without its disks and listeners.
    about: DaemonInfo,
    lists: Lists,
    /// Opens disks.
    pub(super) opener: Arc<Opener>,
    /// Where clients come in.
    pub(super) frontends: Arc<Frontends>,
    /// Looks at primary storage.
    watch: Watch,
    pub(super) turns: Turns,
    pub(super) end: End,
    /// What happened.
    pub events: Arc<EventLog>,
    /// Takes what happens.
    pub sender: EventSender,
    /// Figures of all disks.
    pub(super) figures: Figures,
    /// What scrapes of metrics remember.
    pub(super) metrics: metrics::Memory,
    /// The HTTP port.
    pub(super) http: HttpPort,
}

/// The disks.
#[derive(Debug, Default)]
struct Lists {
    /// Those that are served, or were.
    disks: Mutex<Vec<Arc<ServedDisk>>>,
    /// Those that were not opened.
    refused: Mutex<Vec<RefusedDisk>>,
    /// What the frontends have to know of those that are served.
    ready: Mutex<Vec<Ready>>,
    /// The names of those that clients do not find everywhere.
    unattached: Mutex<BTreeSet<String>>,
}

/// How the daemon ends.
#[derive(Debug, Default)]
pub(super) struct End {
    /// It does: no disk is opened any more.
    is_ending: AtomicBool,
    /// Told when the last disk has ended.
    pub(super) emptied: Arc<Notify>,
}

/// The requests that the control socket answers.
pub fn router(state: Arc<ControlState>) -> Router {
    // Whoever asked may leave. What is looked at stays in use until then.
    let done_to_their_end = Router::new()
        .route("/v1/reload", post(reload::asked))
        .route("/v1/pools", get(pools::pools))
        .route("/v1/devices", post(devices::change))
        .route("/v1/disks/{name}/set", post(settings::set))
        .route("/v1/disks/{name}/reset", post(settings::reset))
        .route("/v1/disks/{name}/add", post(settings::add))
        .route("/v1/disks/{name}/remove", post(settings::remove))
        .route("/v1/disks/{name}/pause", post(change::pause))
        .route("/v1/disks/{name}/resume", post(change::resume))
        .route("/v1/disks/{name}/quiesce/end", post(quiesce::end))
        .route("/v1/disks/{name}/flush", post(change::flush))
        .route("/v1/disks/{name}/drop-cache", post(change::drop_cache))
        .route("/v1/disks/{name}/resize", post(change::resize))
        .route("/v1/disks/{name}/move-shard", post(move_shard::move_shard))
        .route("/v1/disks/{name}/detach", post(change::detach))
        .route("/v1/disks/{name}/sides", get(refused::sides))
        .route("/v1/disks/{name}/resolve", post(refused::resolve))
        .route("/v1/disks/{name}/open", post(refused::open))
        .route("/v1/disks/{name}/advice", post(advice::requests::keep))
        .route("/v1/disks/{name}/advice/forget", post(advice::requests::forget))
        .layer(middleware::from_fn(on_its_own));
    Router::new()
        .route("/v1/daemon", get(daemon))
        .route("/v1/stats", get(stats::of_all))
        .route("/v1/disks", get(disks))
        .route("/v1/disks/{name}", get(disk))
        .route("/v1/disks/{name}/stats", get(stats::of_disk))
        .route("/v1/disks/{name}/history", get(history::history))
        .route("/v1/config", get(settings::config))
        .route("/v1/disks/{name}/settings", get(settings::settings))
        .route("/v1/disks/{name}/quiesce", post(quiesce::quiesce))
        .route("/v1/disks/{name}/records", get(observed::records))
        .route("/v1/disks/{name}/histograms", get(observed::histograms))
        .route("/v1/disks/{name}/histograms/{change}", post(observed::change_histograms))
        .route("/v1/disks/{name}/mrc", get(observed::mrc))
        .route("/v1/disks/{name}/advice", get(advice::requests::advice))
        .route("/v1/events", get(events))
        .merge(done_to_their_end)
        .fallback(|| async { refuse(StatusCode::NOT_FOUND, "no such path; try /v1/disks".into()) })
        .with_state(state)
}

/// Carries a request out on a task of its own.
async fn on_its_own(request: Request, next: Next) -> Response {
    match tokio::spawn(next.run(request)).await {
        Ok(response) => response,
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn daemon(State(state): State<Arc<ControlState>>) -> Json<DaemonInfo> {
    Json(state.info())
}

async fn disks(State(state): State<Arc<ControlState>>) -> Json<Vec<DiskInfo>> {
    Json(state.present())
}

async fn disk(State(state): State<Arc<ControlState>>, Path(name): Path<String>) -> Reply<DiskInfo> {
    let found = state.present().into_iter().find(|disk| disk.name == name);
    found.map(Json).ok_or_else(|| state.no_disk(&name))
}

/// Which events are asked for: with a number above `after`, or later than `since_ms`, whose numbers may have begun anew.
#[derive(Debug, serde::Deserialize)]
struct EventsQuery {
    disk: Option<String>,
    #[serde(default)]
    after: u64,
    #[serde(default)]
    since_ms: u64,
}

async fn events(
    State(state): State<Arc<ControlState>>,
    Query(query): Query<EventsQuery>,
) -> Json<Vec<EventLine>> {
    let mut lines = state.events.lines(query.disk.as_deref());
    lines.retain(|line| line.number > query.after || line.time_ms > query.since_ms);
    Json(lines)
}

/// Answers at the control socket until it `ends`.
///
/// # Errors
/// The kernel's.
pub(super) fn serve_control(
    listener: std::os::unix::net::UnixListener,
    state: Arc<ControlState>,
    ends: oneshot::Receiver<()>,
) -> Result<JoinHandle<()>> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    Ok(tokio::spawn(async move {
        let ended = async move { drop(ends.await) };
        let served = axum::serve(listener, router(state)).with_graceful_shutdown(ended);
        if let Err(error) = served.await {
            tracing::error!("the control socket failed: {error}");
        }
    }))
}

impl ControlState {
    pub(super) fn new(
        about: DaemonInfo,
        opener: Arc<Opener>,
        frontends: Arc<Frontends>,
        watch: Watch,
        (events, sender): (Arc<EventLog>, EventSender),
    ) -> ControlState {
        ControlState {
            about,
            lists: Lists::default(),
            opener,
            frontends,
            watch,
            turns: Turns::default(),
            end: End::default(),
            events,
            sender,
            figures: Figures::default(),
            metrics: metrics::Memory::default(),
            http: HttpPort::default(),
        }
    }

    /// A disk of the configuration cannot be served: why, for whoever asks this daemon.
    pub(super) fn refuse(&self, disk: &DiskSpec, error: &anyhow::Error) -> String {
        let is_tried_again = opener::refusal(error).is_none();
        let disk = self.opener.refused(disk, opener::reason(error), is_tried_again);
        let reason = disk.reason.clone();
        let mut refused = lock(&self.lists.refused);
        let known = refused.extract_if(.., |known| known.name == disk.name).next();
        // One that is tried again and again for the same reason is told of once.
        if known.is_none_or(|known| known.reason != disk.reason || !is_tried_again) {
            let text = format!("the disk is not served: {}", disk.reason);
            self.report(Some(&disk.name), Severity::Error, &text);
        }
        refused.push(disk);
        reason
    }

    /// What kept these disks from being served is over: they are tried again soon.
    pub(super) fn try_again_soon(&self, disks: &[String]) {
        let mut refused = lock(&self.lists.refused);
        let of_these = refused.iter_mut().filter(|it| disks.contains(&it.name));
        of_these.for_each(|disk| disk.is_tried_again = true);
    }

    /// A disk is on its shard: it is watched, and clients find it.
    ///
    /// # Errors
    /// They do not find it everywhere.
    pub(super) async fn serve(&self, disk: Ready) -> Result<()> {
        lock(&self.lists.refused).retain(|known| known.name != disk.name.0);
        // One that was detached before, and came back.
        lock(&self.lists.disks).retain(|known| known.name() != disk.name.0);
        lock(&self.lists.disks).push(disk.disk.clone());
        self.watch.add(&disk.disk);
        lock(&self.lists.ready).push(disk.clone());
        self.attach(&disk).await.map_err(|missing| missing.why)
    }

    /// The daemon ends.
    pub(super) fn note_end(&self) {
        self.end.is_ending.store(true, Ordering::Release);
    }

    /// True once the daemon ends.
    pub(super) fn is_ending(&self) -> bool {
        self.end.is_ending.load(Ordering::Acquire)
    }

    /// A disk was opened again, beneath its clients, who find it where they did.
    pub(super) fn serve_again(&self, disk: Ready) {
        if !lock(&self.lists.disks).iter().any(|known| Arc::ptr_eq(known, &disk.disk)) {
            self.watch.add(&disk.disk);
        }
        self.frontends.tell_export(&disk);
        for known in lock(&self.lists.disks).iter_mut().filter(|known| known.name() == disk.name.0)
        {
            *known = disk.disk.clone();
        }
        for known in lock(&self.lists.ready).iter_mut().filter(|known| known.name == disk.name) {
            *known = disk.clone();
        }
    }

    /// Tells the clients of a disk how long it is, which may take a moment.
    pub(super) fn tell_size(&self, disk: &Arc<ServedDisk>) -> impl FnOnce() + Send + 'static {
        let (frontends, disk) = (self.frontends.clone(), disk.clone());
        move || frontends.tell_size(disk.name(), &disk.handle)
    }

    /// Clients find a disk, wherever the configuration says and that is not so yet.
    ///
    /// # Errors
    /// Not everywhere; it may be tried again.
    async fn attach(&self, disk: &Ready) -> Result<(), Missing> {
        let attached = self.frontends.attach(&self.opener.spec(), disk).await;
        if disk.disk.ended().is_some() {
            // Meanwhile: nobody is to find it any more.
            self.frontends.detach(&disk.name.0, &disk.handle);
            lock(&self.lists.unattached).remove(&disk.name.0);
            return Ok(());
        }
        let mut unattached = lock(&self.lists.unattached);
        match attached {
            Ok(()) => unattached.remove(&disk.name.0),
            Err(_) => unattached.insert(disk.name.0.clone()),
        };
        attached
    }

    /// The daemon, without its disks and listeners.
    pub(super) fn about(&self) -> &DaemonInfo {
        &self.about
    }

    /// The daemon as it is now.
    pub fn info(&self) -> DaemonInfo {
        let (refused, disks) = (self.refused(), self.present());
        let mut listeners = self.listeners();
        let names: BTreeSet<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
        for listener in &mut listeners {
            listener.disks.retain(|name| names.contains(name.as_str()));
        }
        let (http, detached) = (self.http.address(), self.detached());
        DaemonInfo { http, listeners, refused, detached, disks, ..self.about.clone() }
    }

    /// The disks that are served, or were.
    pub(super) fn disks(&self) -> Vec<Arc<ServedDisk>> {
        lock(&self.lists.disks).clone()
    }

    /// The disk has ended: was detached, or why it was not as it should be.
    pub(super) fn note_ended(&self, disk: &ServedDisk, trouble: Option<String>) {
        // The end of the daemon tells of trouble once more.
        disk.handle.let_go(trouble.is_none());
        let now = self.find(disk.name());
        let is_another = now.is_ok_and(|now| !now.handle.is(&disk.handle));
        // Whoever waited for the same end may come late: another disk has its name by then.
        if !disk.end(trouble) || is_another {
            return;
        }
        lock(&self.lists.ready).retain(|ready| ready.name.0 != disk.name());
        self.opener.shards.forget(disk.name());
        self.frontends.detach(disk.name(), &disk.handle);
        systemd::disks_changed(self);
        if self.present().is_empty() {
            self.end.emptied.notify_one();
        }
    }

    /// Notes whether something of a disk that has ended may be under way on its flash.
    pub(super) fn note_quiet(&self, disk: &ServedDisk, drained: &Drained) {
        if let (Some((path, _)), false) = (disk.in_pool(), drained.is_quiet) {
            self.opener.flash.note_unquiet(&path);
        }
    }

    /// Lets go of flash that no disk has, or is to have, but for those of this name; nobody opens a disk meanwhile.
    pub(super) async fn close_flash_but_of(&self, name: &str) {
        let served = self.disks();
        let is_another = |disk: &&Arc<ServedDisk>| disk.ended().is_none() && disk.name() != name;
        let of_served = served.iter().filter(is_another).filter_map(|disk| Some(disk.in_pool()?.0));
        // The others are not served, or are to be.
        let is_known = |name: &str| served.iter().any(|it| it.name() == name);
        let spec = self.opener.spec();
        let asked = spec.disks.iter().filter(|it| it.name.0 != name && !is_known(&it.name.0));
        let of_asked = asked.filter_map(|disk| Some(disk.flash.as_ref()?.path.clone()));
        let of_late = self.opener.questions.disks().into_iter().filter_map(|(_, flash)| flash);
        let used: BTreeSet<PathBuf> = of_served.chain(of_asked).chain(of_late).collect();
        self.opener.flash.close_unused(&used, FLASH_MAX).await;
    }

    /// Lets go of the flash of a disk that is to be opened, if it is not at its path any more and no disk uses it.
    pub(super) async fn close_moved_flash(&self, disk: &DiskSpec) {
        let Some(path) = disk.flash.as_ref().map(|flash| flash.path.clone()) else { return };
        let uses = |it: &Arc<ServedDisk>| it.in_pool().is_some_and(|(at, _)| at == path);
        let is_used = self.disks().iter().any(|it| it.ended().is_none() && uses(it));
        let late = self.opener.questions.disks();
        if is_used || late.iter().any(|(_, flash)| flash.as_ref() == Some(&path)) {
            return;
        }
        self.opener.flash.close_if_moved(&path, FLASH_MAX).await;
    }

    /// Lets go of the flash of disks that have ended; not while a disk is opened for long, which may be about to use it.
    pub(super) async fn close_unused_flash(&self) {
        let Ok(_no_other) = self.opening_turn().await else { return };
        self.close_flash_but_of("").await;
    }

    /// The refused disks that may be tried again: none that was served and has ended.
    pub(super) fn may_be_tried(&self) -> Vec<RefusedDisk> {
        lock(&self.lists.refused).clone()
    }

    /// The disks that are configured and not served.
    pub(super) fn refused(&self) -> Vec<RefusedDisk> {
        let disks = self.disks();
        let in_trouble = disks.iter().filter_map(|disk| {
            let reason = disk.ended()?.clone().or_else(|| disk.given_up())?;
            let (name, backend) = (disk.name().to_owned(), disk.info.backend.clone());
            Some(RefusedDisk { name, backend, reason, pool: None, is_tried_again: false })
        });
        // One that somebody has tried to open since is refused in words of its own.
        let mut refused = self.may_be_tried();
        let is_new = |disk: &RefusedDisk| refused.iter().all(|it| it.name != disk.name);
        let others: Vec<_> = in_trouble.filter(is_new).collect();
        refused.extend(others);
        refused
    }

    /// The names of the disks that are configured and were detached.
    fn detached(&self) -> Vec<String> {
        let (disks, spec) = (self.disks(), self.opener.spec());
        let detached =
            disks.iter().filter(|disk| disk.ended() == Some(&None) && disk.given_up().is_none());
        let mut names: Vec<String> = detached.map(|disk| disk.name().to_owned()).collect();
        // One may have gone from the configuration, or was to be opened again and could not be.
        names.retain(|name| spec.disks.iter().any(|disk| disk.name.0 == *name));
        let refused = lock(&self.lists.refused);
        names.retain(|name| refused.iter().all(|disk| disk.name != *name));
        names
    }

    /// True when a disk of this name is configured and was detached.
    pub(super) fn is_detached(&self, name: &Name) -> bool {
        self.detached().contains(&name.0)
    }

    /// Reports an event.
    pub(super) fn report(&self, disk: Option<&str>, severity: Severity, text: &str) {
        self.sender.report(disk, severity, text.to_owned());
    }

    /// How many disks have not ended.
    pub(super) fn served(&self) -> usize {
        self.disks().iter().filter(|disk| disk.ended().is_none()).count()
    }

    /// The disks that have not ended.
    fn present(&self) -> Vec<DiskInfo> {
        let (disks, listeners) = (self.disks(), self.listeners());
        let mut addresses = BTreeMap::<&str, Vec<String>>::new();
        for listener in &listeners {
            for name in &listener.disks {
                addresses.entry(name).or_default().push(listener.address.clone());
            }
        }
        let (spec, unattached) = (self.opener.spec(), self.unattached());
        let present = disks.iter().filter(|disk| disk.ended().is_none());
        let present = present.map(|disk| {
            let addresses = addresses.remove(disk.name()).unwrap_or_default();
            let is_unattached = unattached.contains(disk.name());
            let mut info = DiskInfo { addresses, is_unattached, ..disk.info() };
            // The mode may have been changed since it was opened.
            if let Some(now) = spec.disks.iter().find(|it| it.name.0 == info.name) {
                info.mode = now.mode.to_string();
            }
            info
        });
        present.collect()
    }

    /// A disk as it is served by now: it may have been opened again.
    pub(super) fn as_it_is(&self, disk: &Arc<ServedDisk>) -> Arc<ServedDisk> {
        self.listed(disk).unwrap_or_else(|| disk.clone())
    }

    /// The same; `None` once another disk has its name, or none.
    pub(super) fn listed(&self, disk: &ServedDisk) -> Option<Arc<ServedDisk>> {
        self.disks().into_iter().find(|it| it.handle.is(&disk.handle))
    }

    /// A disk that is served.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn find(&self, name: &str) -> Result<Arc<ServedDisk>, Refusal> {
        let is_it = |disk: &Arc<ServedDisk>| disk.name() == name && disk.ended().is_none();
        self.disks().into_iter().find(is_it).ok_or_else(|| self.no_disk(name))
    }

    /// The answer that no disk of this name is served.
    fn no_disk(&self, name: &str) -> Refusal {
        if let Some(disk) = self.refused().into_iter().find(|disk| disk.name == name) {
            let error = format!("disk '{name}' is not served: {}", disk.reason);
            return refuse(StatusCode::CONFLICT, error);
        }
        let present = self.present();
        let names: Vec<&str> = present.iter().map(|disk| disk.name.as_str()).collect();
        let error = format!("no disk '{name}' here; there is: {}", names.join(", "));
        refuse(StatusCode::NOT_FOUND, error)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
