//! The control socket: HTTP with JSON over a unix socket, answered from shards by mailbox.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::sync::Notify;

use super::api::{ApiError, DaemonInfo, DiskInfo, DiskStats};
use super::change;
use super::events::{EventLine, EventLog, EventSender, Severity};
use super::fence::Place;
use super::listener::ListenerState;
use super::vhost_user::VhostUserState;
use crate::shard::{DiskHandle, Gone};

/// What the control socket can tell.
#[derive(Debug)]
pub struct ControlState {
    /// The daemon; its listeners' counters are those of the start.
    pub daemon: DaemonInfo,
    /// The disks, in the order of [`DaemonInfo::disks`].
    pub disks: Vec<DiskHandle>,
    /// Where they have their flash, in the same order.
    pub(super) places: Vec<Option<Place>>,
    /// Names of those that were detached.
    pub detached: Mutex<BTreeSet<String>>,
    /// The listeners.
    pub listeners: Vec<Arc<ListenerState>>,
    /// vhost-user-blk devices, by the names of their disks.
    pub vhost_users: BTreeMap<String, Arc<VhostUserState>>,
    /// What happened.
    pub events: Arc<EventLog>,
    /// Takes what happens.
    pub sender: EventSender,
    /// Told when the last disk was detached.
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
        .route("/v1/disks/{name}/drop-cache", post(change::drop_cache))
        .route("/v1/disks/{name}/detach", post(change::detach))
        .route("/v1/events", get(events))
        .fallback(|| async { refuse(StatusCode::NOT_FOUND, "no such path; try /v1/disks".into()) })
        .with_state(state)
}

async fn daemon(State(state): State<Arc<ControlState>>) -> Json<DaemonInfo> {
    let listeners = state.listeners.iter().map(|listener| listener.info()).collect();
    Json(DaemonInfo { listeners, disks: state.present(), ..state.daemon.clone() })
}

async fn disks(State(state): State<Arc<ControlState>>) -> Json<Vec<DiskInfo>> {
    Json(state.present())
}

async fn disk(State(state): State<Arc<ControlState>>, Path(name): Path<String>) -> Response {
    match state.find(&name) {
        Ok(index) => Json(state.daemon.disks[index].clone()).into_response(),
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
    /// True when the disk was detached.
    pub fn is_detached(&self, name: &str) -> bool {
        self.detached.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    /// The disk was detached.
    pub(super) fn note_detached(&self, name: &str) {
        self.detached.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        if self.present().is_empty() {
            self.emptied.notify_one();
        }
    }

    /// Reports an event.
    pub(super) fn report(&self, disk: Option<&str>, severity: Severity, text: &str) {
        self.sender.report(disk, severity, text.to_owned());
    }

    /// The disks that were not detached.
    fn present(&self) -> Vec<DiskInfo> {
        let disks = self.daemon.disks.iter();
        disks.filter(|disk| !self.is_detached(&disk.name)).cloned().collect()
    }

    /// The statistics of a disk, as an answer.
    pub(super) async fn stats_of(&self, index: usize, name: &str) -> Response {
        match self.disks[index].stats().await {
            Ok(stats) => {
                let vhost_user = self.vhost_users.get(name).map(|device| device.info());
                Json(DiskStats { vhost_user, ..stats }).into_response()
            }
            Err(Gone) => {
                let error = format!("the shard of disk '{name}' has ended");
                refuse(StatusCode::SERVICE_UNAVAILABLE, error)
            }
        }
    }

    /// The index of a disk, or the answer that there is none.
    pub(super) fn find(&self, name: &str) -> Result<usize, Box<Response>> {
        let is_it = |disk: &DiskInfo| disk.name == name && !self.is_detached(name);
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
