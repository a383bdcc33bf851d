//! Requests of the control socket that change a disk: its mode, its destaging, its end.
//!
//! They are carried out whether or not who asked waits for the answer.

use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::control::{ControlState, refuse};
use super::events::Severity;
use super::pool::EndOfSession;
use crate::config::values::Mode;
use crate::shard::Drained;

#[derive(Debug, serde::Deserialize)]
pub(super) struct ModeQuery {
    mode: Mode,
}

/// Asks for a mode; answers with the statistics, where the actual one is.
pub(super) async fn set_mode(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
    Query(query): Query<ModeQuery>,
) -> Response {
    change(&state, &name, async |index| state.disks[index].set_mode(query.mode.0).await).await
}

/// Stops destaging.
pub(super) async fn pause(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Response {
    change(&state, &name, async |index| Ok(state.disks[index].pause(true).await?)).await
}

/// Goes on with destaging.
pub(super) async fn resume(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Response {
    change(&state, &name, async |index| Ok(state.disks[index].pause(false).await?)).await
}

/// Drops what is cached.
pub(super) async fn drop_cache(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Response {
    let index = match state.find(&name) {
        Ok(index) => index,
        Err(refusal) => return *refusal,
    };
    match state.disks[index].drop_cache().await {
        Ok(dropped) => {
            let text = format!("the cache was dropped: {} blocks", dropped.blocks);
            state.report(Some(&name), Severity::Info, &text);
            Json(dropped).into_response()
        }
        Err(gone) => refuse(StatusCode::SERVICE_UNAVAILABLE, format!("disk '{name}': {gone}")),
    }
}

/// Destages everything and ends the disk; answers when it has ended.
pub(super) async fn detach(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Response {
    let index = match state.find(&name) {
        Ok(index) => index,
        Err(refusal) => return *refusal,
    };
    // On a task of its own: who asked may leave.
    let ended = tokio::spawn(async move { end(&state, &name, index).await }).await;
    match ended {
        Ok(Ok(())) => Json(serde_json::json!({ "detached": true })).into_response(),
        Ok(Err(error)) => refuse(StatusCode::CONFLICT, format!("{error:#}")),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

async fn end(state: &Arc<ControlState>, name: &str, index: usize) -> Result<()> {
    let drained = state.disks[index].detach().await?;
    let disk = || format!("disk '{name}'");
    if state.places[index].is_some() {
        let end = match end_of_session(&drained) {
            EndOfSession::Clean => EndOfSession::Detached,
            other => other,
        };
        // It looks at primary storage once more, and may wait for it.
        let (state, is_quiet) = (state.clone(), drained.is_quiet);
        let leave = move || state.places[index].as_ref().map(|place| place.leave(end, is_quiet));
        tokio::task::spawn_blocking(leave).await?.transpose().with_context(disk)?;
    }
    state.note_detached(name);
    state.report(
        Some(name),
        Severity::Info,
        "the disk was detached: primary storage has everything",
    );
    Ok(())
}

/// How a disk that has ended leaves its pool.
pub(super) fn end_of_session(disk: &Drained) -> EndOfSession {
    use forebay_core::status::IoStatus;
    let is_flushed = matches!(disk.status, IoStatus::Ok | IoStatus::Unsupported);
    match disk.log {
        Some(log) if !log.is_clean && !log.is_durable => EndOfSession::Failed,
        Some(log) if !log.is_clean => EndOfSession::Dirty,
        Some(_) | None if is_flushed => EndOfSession::Clean,
        Some(_) | None => EndOfSession::Failed,
    }
}

async fn change(
    state: &ControlState,
    name: &str,
    work: impl AsyncFnOnce(usize) -> Result<()>,
) -> Response {
    let index = match state.find(name) {
        Ok(index) => index,
        Err(refusal) => return *refusal,
    };
    match work(index).await {
        Ok(()) => state.stats_of(index, name).await,
        Err(error) => refuse(StatusCode::CONFLICT, format!("disk '{name}': {error:#}")),
    }
}
