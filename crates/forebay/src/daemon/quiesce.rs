//! `disk quiesce`: destaging of a disk is held, so that a snapshot of primary storage needs no destage journal.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use forebay_core::stats::{LogState, LogStatistics};
use forebay_host::events::Severity;
use forebay_shard::EndedHold;

use super::api::Quiesced;
use super::control::{ControlState, Reply, refuse};
use super::served::ServedDisk;
use crate::config::values::Span;
use crate::messages;

/// Destaging is held for so long at most, and waited for.
const SPAN_MAX: Duration = Duration::from_secs(600);

#[derive(Debug, serde::Deserialize)]
pub(super) struct QuiesceQuery {
    for_ms: u64,
    timeout_ms: u64,
}

#[derive(Debug, serde::Deserialize)]
pub(super) struct EndQuery {
    hold: Option<u64>,
}

/// Holds destaging; answers when primary storage stands still.
pub(super) async fn quiesce(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
    Query(query): Query<QuiesceQuery>,
) -> Reply<Quiesced> {
    answer(&state, &name, async |disk| {
        let span = allowed("--for", query.for_ms)?;
        let patience = allowed("--timeout", query.timeout_ms)?;
        let Some(log) = log_in_use(disk).await? else { return Ok(NOT_HELD) };
        let Some(hold) = disk.handle.quiesce(span, patience).await? else {
            let limit = log_in_use(disk).await?.map_or("it changed its mode", |log| {
                messages::limit(log.limited_by)
            });
            bail!(
                "primary storage did not stand still within {} ({limit}): destaging is not held",
                Span(patience)
            );
        };
        let log = log_in_use(disk).await?.unwrap_or(log);
        let text = format!(
            "destaging is held for {} (hold {hold}): primary storage is a crash-consistent image without its journal",
            Span(span)
        );
        state.report(Some(&name), Severity::Info, &text);
        Ok(held(hold, &log))
    })
    .await
}

/// Goes on with destaging; an error when primary storage did not stand still all the time.
pub(super) async fn end(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
    Query(query): Query<EndQuery>,
) -> Reply<Quiesced> {
    answer(&state, &name, async |disk| {
        // First of all, whatever became of the disk meanwhile.
        let ended = disk.handle.end_hold(query.hold).await?;
        if ended == EndedHold::None && query.hold.is_none() {
            match log_in_use(disk).await? {
                None => return Ok(NOT_HELD),
                Some(_) => bail!("destaging is not held: 'forebay disk quiesce {name}' holds it"),
            }
        }
        if ended != EndedHold::StoodStill {
            bail!(
                "destaging was not held any more: the time was over, the mode changed, the write log failed, or somebody \
                 else ended the hold. What was copied from primary storage meanwhile may need the destage journal. Hold it \
                 for longer (--for), and copy again"
            );
        }
        let log = disk.handle.stats().await?.engine.log.unwrap_or_default();
        let text = match log.is_paused {
            true => {
                format!("destaging is not held any more, and stays paused: 'forebay disk resume {name}' goes on with it")
            }
            false => "destaging goes on: it is not held any more".to_owned(),
        };
        state.report(Some(&name), Severity::Info, &text);
        Ok(held(query.hold.unwrap_or(0), &log))
    })
    .await
}

const NOT_HELD: Quiesced = Quiesced { held: false, hold: 0, primary_age_ns: 0, paused: false };

fn held(hold: u64, log: &LogStatistics) -> Quiesced {
    Quiesced { held: true, hold, primary_age_ns: log.primary_age_ns, paused: log.is_paused }
}

/// A time that destaging may be held, or waited for.
///
/// # Errors
/// It is not.
fn allowed(option: &str, ms: u64) -> Result<Duration> {
    let span = Duration::from_millis(ms);
    ensure!(!span.is_zero() && span <= SPAN_MAX, "{option}: from 1ms to {}", Span(SPAN_MAX));
    Ok(span)
}

/// The log, unless the mode does without.
///
/// # Errors
/// The log failed: guests write past it, or not at all.
async fn log_in_use(disk: &ServedDisk) -> Result<Option<LogStatistics>> {
    let log = disk.handle.stats().await?.engine.log;
    match log.as_ref().map(|log| log.state) {
        Some(LogState::Lost) => bail!(
            "its write log is lost, and primary storage lacks writes of it: 'forebay disk show' says what to do"
        ),
        Some(LogState::Failed) => bail!(
            "its write log failed: writes go to primary storage itself, which never stands still"
        ),
        Some(LogState::Unused) | None => Ok(None),
        Some(_) => Ok(log),
    }
}

async fn answer(
    state: &ControlState,
    name: &str,
    work: impl AsyncFnOnce(&ServedDisk) -> Result<Quiesced>,
) -> Reply<Quiesced> {
    let disk = state.find(name)?;
    let quiesced = work(&disk).await;
    quiesced
        .map(Json)
        .map_err(|error| refuse(StatusCode::CONFLICT, format!("disk '{name}': {error:#}")))
}
