//! The control socket: HTTP with JSON over a unix socket, answered from shards by mailbox.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

use super::api::{ApiError, DaemonInfo, DiskInfo, DiskStats};
use super::events::{EventLine, EventLog};
use super::listener::ListenerState;
use crate::shard::{DiskHandle, Gone};

/// What the control socket can tell.
#[derive(Debug)]
pub struct ControlState {
    /// The daemon; its listeners' counters are those of the start.
    pub daemon: DaemonInfo,
    /// The disks, in the order of [`DaemonInfo::disks`].
    pub disks: Vec<DiskHandle>,
    /// The listeners.
    pub listeners: Vec<Arc<ListenerState>>,
    /// What happened.
    pub events: Arc<EventLog>,
}

/// The requests that the control socket answers.
pub fn router(state: Arc<ControlState>) -> Router {
    Router::new()
        .route("/v1/daemon", get(daemon))
        .route("/v1/disks", get(disks))
        .route("/v1/disks/{name}", get(disk))
        .route("/v1/disks/{name}/stats", get(stats))
        .route("/v1/events", get(events))
        .fallback(|| async { refuse(StatusCode::NOT_FOUND, "no such path; try /v1/disks".into()) })
        .with_state(state)
}

async fn daemon(State(state): State<Arc<ControlState>>) -> Json<DaemonInfo> {
    let listeners = state.listeners.iter().map(|listener| listener.info()).collect();
    Json(DaemonInfo { listeners, ..state.daemon.clone() })
}

async fn disks(State(state): State<Arc<ControlState>>) -> Json<Vec<DiskInfo>> {
    Json(state.daemon.disks.clone())
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
    match state.disks[index].stats().await {
        Ok(stats) => Json::<DiskStats>(stats).into_response(),
        Err(Gone) => {
            refuse(StatusCode::SERVICE_UNAVAILABLE, format!("the shard of disk '{name}' has ended"))
        }
    }
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
    fn find(&self, name: &str) -> Result<usize, Box<Response>> {
        self.daemon.disks.iter().position(|disk| disk.name == name).ok_or_else(|| {
            let names: Vec<&str> =
                self.daemon.disks.iter().map(|disk| disk.name.as_str()).collect();
            let error = format!("no disk '{name}' here; there is: {}", names.join(", "));
            Box::new(refuse(StatusCode::NOT_FOUND, error))
        })
    }
}

fn refuse(status: StatusCode, error: String) -> Response {
    (status, Json(ApiError { error })).into_response()
}
