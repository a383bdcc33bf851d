//! Requests of the control socket about pools: what is on flash that this daemon uses, and that nobody else may read meanwhile.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forebay_core::stats::{IndexState, Statistics, TierState};
use forebay_host::pool;
use forebay_host::pool::report::{self, DiskReport, PoolReport};
use forebay_host::pool::survey::RingReport;

use super::control::{ControlState, refuse};
use super::{placement, refused};
use crate::messages;

/// All that it uses, in the order of their paths.
pub(super) async fn pools(State(state): State<Arc<ControlState>>) -> Response {
    match reports(&state).await {
        Ok(reports) => Json(reports).into_response(),
        Err(error) => refuse(StatusCode::SERVICE_UNAVAILABLE, format!("{error:#}")),
    }
}

async fn reports(state: &ControlState) -> Result<Vec<PoolReport>> {
    // The log of a disk that is being opened changes.
    let _one = state.opening_turn().await?;
    let mut served = Vec::new();
    for disk in state.disks().iter().filter(|disk| disk.ended().is_none()) {
        // One that has ended meanwhile is read as any other that is not served.
        if let (Some(place), Ok(now)) = (disk.in_pool(), disk.handle.stats().await) {
            served.push((place, now.engine));
        }
    }
    let (daemon, spec) = (state.info().name, state.opener.spec());
    let device_of = move |path: &PathBuf| {
        let pool = spec.pools.iter().find(|pool| placement::has_device(pool, path))?;
        Some(pool.name.to_string())
    };
    refused::blocking(state, move |opener| {
        let reports = opener.flash.pools().into_iter().map(|(path, shared)| {
            let pool = pool::lock(&shared).snapshot();
            let of_pool = served.iter().filter(|((flash, _), _)| *flash == path);
            let served: Vec<_> = of_pool.map(|((_, number), now)| (*number, now.clone())).collect();
            let shown = report::show_used(&pool, &served, with_shard);
            let (device_of, used_by) = (device_of(&path), Some(daemon.clone()));
            let path = std::path::absolute(&path).unwrap_or(path);
            PoolReport { path: path.display().to_string(), used_by, device_of, ..shown }
        });
        Ok(reports.collect())
    })
    .await
}

/// What its pool has of a disk that is served, and what its shard knows `now`.
fn with_shard(recorded: DiskReport, now: &Statistics) -> DiskReport {
    let log = now.log.clone().unwrap_or_default();
    let is_lost = log.state.has_failed();
    DiskReport {
        mode: now.mode.to_string(),
        dirty_records: log.last_sequence.saturating_sub(log.destaged_sequence),
        dirty_bytes: log.dirty_bytes,
        staged_records: log.last_sequence.saturating_sub(log.durable_sequence),
        error: is_lost.then(|| messages::log(&log)),
        faults: faults_since_start(now),
        ring: ring_in_use(now, recorded.generation_pending),
        ..recorded
    }
}

/// What has gone wrong with flash since a disk was started.
fn faults_since_start(now: &Statistics) -> Vec<String> {
    let counters = &now.counters;
    let mut faults = Vec::new();
    if now.flash.state == TierState::Failed {
        faults.push(format!("its cache {}", messages::tier(&now.flash)));
    }
    if let Some(log) = now.log.as_ref().filter(|log| log.state.has_failed()) {
        faults.push(format!("its write log {}", messages::log(log)));
    }
    let counted = [
        (counters.log_errors, "I/Os of its write log failed, or returned wrong bytes"),
        (counters.flash_errors, "I/Os of its cache failed"),
        (counters.flash_checksum_errors, "reads of its cache had a wrong checksum"),
        (counters.flash_slots_quarantined, "slots of its cache are not used any more"),
    ];
    let counted = counted.iter().filter(|(count, _)| *count > 0);
    faults.extend(counted.map(|(count, what)| format!("{count} {what}")));
    faults
}

/// The ring of a disk that is served, as it is `now`; `None`: it has none.
fn ring_in_use(now: &Statistics, generation: u64) -> Option<RingReport> {
    let ring = now.ring.as_ref()?;
    let is_recorded = matches!(ring.state, IndexState::Recorded | IndexState::Closed);
    let report = RingReport { generation, ..RingReport::default() };
    if !is_recorded {
        return Some(RingReport {
            cold: Some(format!("its index is {}", messages::index(ring.state))),
            ..report
        });
    }
    let blocks = now.flash.slots_used;
    let (pages, regions_marked) = (ring.pages, ring.regions_marked);
    Some(RingReport { pages, blocks, kept: blocks, regions_marked, ..report })
}

#[cfg(test)]
mod tests;
