//! Requests of the control socket about pools: what is on flash that this daemon uses, and that nobody else may read meanwhile.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use forebay_core::stats::{IndexState, Statistics, TierState};
use forebay_host::pool;
use forebay_host::pool::report::{self, DiskReport, PoolReport};
use forebay_host::pool::survey::RingReport;

use super::control::{ControlState, Reply, lock, refuse};
use super::flash::OpenPool;
use super::left_behind;
use super::placement;
use super::questions::{About, Silence};
use crate::messages;

/// Time that a pool has to answer before others wait for what it has.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// Time that it has to tell that, for which write logs are read.
const REPORT_MAX: Duration = Duration::from_secs(20);

/// What is told of one that does not tell it then.
const SILENT: &str = "it does not answer, or takes long to read: what is told of it is of before";

/// All that it uses, in the order of their paths.
pub(super) async fn pools(State(state): State<Arc<ControlState>>) -> Reply<Vec<PoolReport>> {
    let reports = reports(&state).await;
    reports.map(Json).map_err(|error| refuse(StatusCode::SERVICE_UNAVAILABLE, format!("{error:#}")))
}

async fn reports(state: &ControlState) -> Result<Vec<PoolReport>> {
    let questions = &state.opener.questions;
    let of = |pool: OpenPool| (pool.clone(), About::Usage(pool.path));
    let used = state.opener.flash.pools().into_iter().map(of);
    // In nobody's turn: one that hangs is locked, perhaps for ever.
    let looked = questions.ask_each(used, LOOK_MAX, |open| {
        let pool = open.pool.clone();
        move || drop(pool::lock(&pool))
    });
    let (answer, silent): (Vec<_>, Vec<_>) =
        looked.await.into_iter().partition(|(_, answer)| answer.is_ok());
    let told = {
        // The log of a disk that is being opened changes.
        let _one = state.opening_turn().await?;
        // One that has ended meanwhile is read as any other that is not served.
        let known = state.known_figures().await.into_iter();
        let served: Vec<_> = known
            .filter_map(|known| {
                let now = known.figures.as_ref().map(|(_, now)| now.status.engine.clone());
                Some((known.disk.in_pool()?, now))
            })
            .collect();
        let (served, spec, used_by) = (Arc::new(served), state.opener.spec(), state.info().name);
        let asked = answer.into_iter().map(|(open, _)| (open.clone(), About::Pool(open.path)));
        let report = |open: &OpenPool| {
            let (open, served) = (open.clone(), served.clone());
            let (spec, used_by) = (spec.clone(), used_by.clone());
            let folder = state.opener.state().map(Path::to_owned);
            move || {
                let pool = pool::lock(&open.pool).snapshot();
                let of_pool = served.iter().filter(|((flash, _), _)| *flash == open.path);
                let of_pool: Vec<_> =
                    of_pool.map(|((_, number), now)| (*number, now.clone())).collect();
                let mut shown = report::show_used(&pool, &of_pool, as_known);
                // In the same order.
                let (placed, _) = report::placed(&pool);
                for (disk, placed) in shown.disks.iter_mut().zip(&placed) {
                    let of = (open.path.as_path(), placed);
                    disk.faults.extend(left_behind::fault(&spec, folder.as_deref(), of, disk));
                }
                let device_of = spec.pools.iter().find(|it| placement::has_device(it, &open.path));
                let device_of = device_of.map(|pool| pool.name.to_string());
                let report = PoolReport { used_by: Some(used_by), device_of, ..shown };
                lock(&open.said).clone_from(&report);
                report
            }
        };
        questions.ask_each(asked, REPORT_MAX, report).await
    };
    let silent = silent.into_iter().map(|(open, _)| (open, Err(Silence::Late)));
    let mut all: Vec<_> = told.into_iter().chain(silent).collect();
    all.sort_by(|(one, _), (other, _)| one.path.cmp(&other.path));
    let shown = all.into_iter().map(|(OpenPool { path, said, .. }, report)| {
        let report = report.unwrap_or_else(|_| PoolReport {
            faults: vec![SILENT.to_owned()],
            used_by: Some(state.info().name),
            ..lock(&said).clone()
        });
        let path = std::path::absolute(&path).unwrap_or(path);
        PoolReport { path: path.display().to_string(), ..report }
    });
    Ok(shown.collect())
}

/// What its pool has of a disk that is served, and what its shard said last, if it ever did.
fn as_known(recorded: DiskReport, now: &Option<Statistics>) -> DiskReport {
    match now {
        Some(now) => with_shard(recorded, now),
        None => recorded,
    }
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
