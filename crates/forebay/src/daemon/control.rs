//! The control socket: HTTP with JSON over a unix socket, answered from shards by mailbox.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::sync::Notify;

use anyhow::{Context, Result, bail};
use forebay_backends::{Look, Witness};

use super::advice::{self, Keeper};
use super::api::{ApiError, DaemonInfo, DiskInfo, DiskStats, RefusedDisk};
use super::change;
use super::ending;
use super::events::{EventLine, EventLog, EventSender, Severity};
use super::fence::Place;
use super::iscsi::Behind;
use super::listener::ListenerState;
use super::observed;
use super::vhost_user::VhostUserState;
use crate::shard::{DiskHandle, Drained, Gone};

/// Time that primary storage has to say how long it is.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// What the control socket can tell.
#[derive(Debug)]
pub struct ControlState {
    /// The daemon; its listeners' counters are those of the start.
    pub daemon: DaemonInfo,
    /// The disks, in the order of [`DaemonInfo::disks`].
    pub disks: Vec<DiskHandle>,
    /// Where they have their flash, in the same order.
    pub(super) places: Vec<Option<Place>>,
    /// The advices that were kept for them, in the same order.
    pub(super) advices: Vec<Keeper>,
    /// Names of those that have ended: detached, or why it was not as it should be.
    pub ended: Mutex<BTreeMap<String, Option<String>>>,
    /// Looks at primary storage of those that are served, in the same order.
    pub(super) witnesses: Mutex<Vec<Option<Witness>>>,
    /// The listeners.
    pub listeners: Vec<Arc<ListenerState>>,
    /// iSCSI targets.
    pub(super) targets: Vec<Arc<Behind>>,
    /// vhost-user-blk devices, by the names of their disks.
    pub vhost_users: BTreeMap<String, Arc<VhostUserState>>,
    /// One disk is resized after the other.
    pub(super) resizing: tokio::sync::Mutex<()>,
    /// What happened.
    pub events: Arc<EventLog>,
    /// Takes what happens.
    pub sender: EventSender,
    /// Told when the last disk has ended.
    pub emptied: Arc<Notify>,
}

/// The requests that the control socket answers.
pub fn router(state: Arc<ControlState>) -> Router {
    Router::new()
        .route("/v1/daemon", get(daemon))
        .route("/v1/disks", get(disks))
        .route("/v1/disks/{name}", get(disk))
        .route("/v1/disks/{name}/stats", get(stats))
        .route("/v1/disks/{name}/mode", post(change::set_mode))
        .route("/v1/disks/{name}/pause", post(change::pause))
        .route("/v1/disks/{name}/resume", post(change::resume))
        .route("/v1/disks/{name}/flush", post(change::flush))
        .route("/v1/disks/{name}/drop-cache", post(change::drop_cache))
        .route("/v1/disks/{name}/resize", post(change::resize))
        .route("/v1/disks/{name}/detach", post(change::detach))
        .route("/v1/disks/{name}/records", get(observed::records))
        .route("/v1/disks/{name}/histograms", get(observed::histograms))
        .route("/v1/disks/{name}/histograms/{change}", post(observed::change_histograms))
        .route("/v1/disks/{name}/mrc", get(observed::mrc))
        .route(
            "/v1/disks/{name}/advice",
            get(advice::requests::advice).post(advice::requests::keep),
        )
        .route("/v1/disks/{name}/advice/forget", post(advice::requests::forget))
        .route("/v1/events", get(events))
        .fallback(|| async { refuse(StatusCode::NOT_FOUND, "no such path; try /v1/disks".into()) })
        .with_state(state)
}

async fn daemon(State(state): State<Arc<ControlState>>) -> Json<DaemonInfo> {
    let listeners = state.listeners.iter().map(|listener| listener.info()).collect();
    let refused = state.refused();
    Json(DaemonInfo { listeners, refused, disks: state.present(), ..state.daemon.clone() })
}

async fn disks(State(state): State<Arc<ControlState>>) -> Json<Vec<DiskInfo>> {
    Json(state.present())
}

async fn disk(State(state): State<Arc<ControlState>>, Path(name): Path<String>) -> Response {
    match state.find(&name) {
        Ok(index) => {
            let info = state.daemon.disks[index].clone();
            Json(DiskInfo { size: state.disks[index].size(), ..info }).into_response()
        }
        Err(refusal) => *refusal,
    }
}

async fn stats(State(state): State<Arc<ControlState>>, Path(name): Path<String>) -> Response {
    let index = match state.find(&name) {
        Ok(index) => index,
        Err(refusal) => return *refusal,
    };
    state.stats_of(index, &name).await
}

#[derive(Debug, serde::Deserialize)]
struct EventsQuery {
    disk: Option<String>,
}

async fn events(
    State(state): State<Arc<ControlState>>,
    Query(query): Query<EventsQuery>,
) -> Json<Vec<EventLine>> {
    Json(state.events.lines(query.disk.as_deref()))
}

impl ControlState {
    /// The disk has ended: was detached, or why it was not as it should be.
    pub(super) fn note_ended(&self, name: &str, trouble: Option<String>) {
        self.ended().insert(name.to_owned(), trouble);
        if self.present().is_empty() {
            self.emptied.notify_one();
        }
    }

    fn ended(&self) -> MutexGuard<'_, BTreeMap<String, Option<String>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes in its pool how a disk was left; once, whoever asks.
    ///
    /// # Errors
    /// The medium's.
    pub(super) fn leave(&self, index: usize, disk: &Drained) -> Result<()> {
        self.witnesses()[index] = None;
        match &self.places[index] {
            Some(place) => {
                place.leave(ending::end_of_session(disk), disk.is_quiet, disk.clean_up_to)
            }
            None => Ok(()),
        }
    }

    /// Notes that a disk has become longer, where that is noted.
    ///
    /// # Errors
    /// The medium's.
    pub(super) fn grow_place(&self, index: usize, look: Look) -> Result<()> {
        self.places[index].as_ref().map_or(Ok(()), |place| place.grow(look))
    }

    /// What primary storage of a disk looks like, durably.
    ///
    /// # Errors
    /// The kernel's, or it takes longer than [`LOOK_MAX`].
    pub(super) async fn look(&self, index: usize) -> Result<Look> {
        let witness = match &self.witnesses()[index] {
            Some(witness) => witness.copy()?,
            None => bail!("it cannot be looked at while the disk is served"),
        };
        let looking = tokio::task::spawn_blocking(move || witness.look_durably());
        let looked = tokio::time::timeout(LOOK_MAX, looking).await;
        Ok(looked.context("it does not answer")???)
    }

    fn witnesses(&self) -> MutexGuard<'_, Vec<Option<Witness>>> {
        self.witnesses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whoever can be told what size a disk has now. NBD clients see it when they connect.
    pub(super) fn tell_size(&self, index: usize) {
        let disk = &self.disks[index];
        for target in &self.targets {
            target.tell_size(disk);
        }
        if let Some(device) = self.vhost_users.get(&self.daemon.disks[index].name) {
            device.tell_size(disk.size());
        }
    }

    /// The disks that are configured and not served.
    fn refused(&self) -> Vec<RefusedDisk> {
        let ended = self.ended();
        let in_trouble = self.daemon.disks.iter().filter_map(|disk| {
            let reason = ended.get(&disk.name)?.clone()?;
            let (name, backend) = (disk.name.clone(), disk.backend.clone());
            Some(RefusedDisk { name, backend, reason })
        });
        self.daemon.refused.iter().cloned().chain(in_trouble).collect()
    }

    /// Reports an event.
    pub(super) fn report(&self, disk: Option<&str>, severity: Severity, text: &str) {
        self.sender.report(disk, severity, text.to_owned());
    }

    /// The disks that have not ended.
    fn present(&self) -> Vec<DiskInfo> {
        let ended = self.ended();
        let disks = self.daemon.disks.iter();
        let sized = disks.zip(&self.disks);
        let sized = sized.map(|(info, disk)| DiskInfo { size: disk.size(), ..info.clone() });
        sized.filter(|disk| !ended.contains_key(&disk.name)).collect()
    }

    /// The statistics of a disk, as an answer.
    pub(super) async fn stats_of(&self, index: usize, name: &str) -> Response {
        match self.disks[index].stats().await {
            Ok(stats) => {
                let vhost_user = self.vhost_users.get(name).map(|device| device.info());
                let evidence = self.daemon.disks[index].evidence.clone();
                Json(DiskStats { vhost_user, evidence, ..stats }).into_response()
            }
            Err(Gone) => {
                let error = format!("the shard of disk '{name}' has ended");
                refuse(StatusCode::SERVICE_UNAVAILABLE, error)
            }
        }
    }

    /// The index of a disk, or the answer that there is none.
    pub(super) fn find(&self, name: &str) -> Result<usize, Box<Response>> {
        let is_it = |disk: &DiskInfo| disk.name == name && !self.ended().contains_key(name);
        self.daemon.disks.iter().position(is_it).ok_or_else(|| {
            let present = self.present();
            let names: Vec<&str> = present.iter().map(|disk| disk.name.as_str()).collect();
            let error = format!("no disk '{name}' here; there is: {}", names.join(", "));
            Box::new(refuse(StatusCode::NOT_FOUND, error))
        })
    }
}

pub(super) fn refuse(status: StatusCode, error: String) -> Response {
    (status, Json(ApiError { error })).into_response()
}
