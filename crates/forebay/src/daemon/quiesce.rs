//! `disk quiesce`: destaging of a disk is held, so that a snapshot of primary storage needs no destage journal.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forebay_core::stats::{LogState, LogStatistics};
use forebay_host::events::Severity;

use super::api::Quiesced;
use super::control::{ControlState, refuse};
use super::served::ServedDisk;
use crate::config::values::Span;
use crate::messages;

#[derive(Debug, serde::Deserialize)]
pub(super) struct QuiesceQuery {
    for_ms: u64,
    timeout_ms: u64,
}

/// Holds destaging; answers when primary storage stands still.
pub(super) async fn quiesce(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
    Query(query): Query<QuiesceQuery>,
) -> Response {
    answer(&state, &name, async |disk| {
        let Some(log) = log_in_use(disk).await? else { return Ok(NOT_HELD) };
        let (span, patience) =
            (Duration::from_millis(query.for_ms), Duration::from_millis(query.timeout_ms));
        if !disk.handle.quiesce(span, patience).await? {
            let limit = log_in_use(disk).await?.map_or("it changed its mode", |log| {
                messages::limit(log.limited_by)
            });
            bail!(
                "primary storage did not stand still within {}, and destaging goes on ({limit})",
                Span(patience)
            );
        }
        let log = log_in_use(disk).await?.unwrap_or(log);
        let text = format!(
            "destaging is held for {}: primary storage is a crash-consistent image without its journal",
            Span(span)
        );
        state.report(Some(&name), Severity::Info, &text);
        Ok(Quiesced { held: true, primary_age_ns: log.primary_age_ns })
    })
    .await
}

/// Goes on with destaging; an error when primary storage did not stand still all the time.
pub(super) async fn end(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Response {
    answer(&state, &name, async |disk| {
        let Some(log) = log_in_use(disk).await? else { return Ok(NOT_HELD) };
        if !disk.handle.end_hold().await? {
            bail!(
                "destaging was not held any more: what was copied from primary storage meanwhile may need the destage \
                 journal. Hold it for longer (--for), and copy again"
            );
        }
        state.report(Some(&name), Severity::Info, "destaging goes on: it is not held any more");
        Ok(Quiesced { held: true, primary_age_ns: log.primary_age_ns })
    })
    .await
}

const NOT_HELD: Quiesced = Quiesced { held: false, primary_age_ns: 0 };

/// The log, unless the mode does without.
async fn log_in_use(disk: &ServedDisk) -> Result<Option<LogStatistics>> {
    let log = disk.handle.stats().await?.engine.log;
    Ok(log.filter(|log| log.state != LogState::Unused))
}

async fn answer(
    state: &ControlState,
    name: &str,
    work: impl AsyncFnOnce(&ServedDisk) -> Result<Quiesced>,
) -> Response {
    let disk = match state.find(name) {
        Ok(disk) => disk,
        Err(refusal) => return *refusal,
    };
    match work(&disk).await {
        Ok(quiesced) => Json(quiesced).into_response(),
        Err(error) => refuse(StatusCode::CONFLICT, format!("disk '{name}': {error:#}")),
    }
}
