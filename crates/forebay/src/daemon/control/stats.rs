//! Statistics of disks, as answers.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use forebay_shard::{DiskStatus, Gone};
use tokio::time::Instant;

use super::{ControlState, Refusal, Reply, refuse};
use crate::daemon::api::{AllStats, BriefStats, DiskStats};
use crate::daemon::figures::Known;
use crate::daemon::served::ServedDisk;

pub(super) async fn of_disk(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Reply<DiskStats> {
    let disk = state.find(&name)?;
    state.stats_of(&disk).await
}

/// How much of each disk is wanted.
#[derive(Debug, serde::Deserialize)]
pub(super) struct StatsQuery {
    #[serde(default)]
    brief: bool,
}

pub(super) async fn of_all(
    State(state): State<Arc<ControlState>>,
    Query(query): Query<StatsQuery>,
) -> Result<Response, Refusal> {
    let known = state.known_figures().await;
    let silent = known.iter().filter(|known| known.is_silent);
    let silent = silent.map(|known| known.disk.name().to_owned()).collect();
    let answered = known.iter().filter_map(|known| Some((&known.disk, known.figures.as_ref()?)));
    let answered = answered.map(|(disk, (at, figures))| (disk, *at, figures));
    let (refused, shards) = (state.refused(), state.opener.shards.loads());
    // Of hundreds of disks that is more than a megabyte, which `Json` would write piece by piece.
    let text = if query.brief {
        let disks = answered.map(|(disk, _, figures)| BriefStats {
            storage_changed: disk.changed(),
            ..BriefStats::from(&figures.status)
        });
        serde_json::to_vec(&AllStats { disks: disks.collect(), silent, refused, shards })
    } else {
        let disks = answered.map(|(disk, at, figures)| {
            let mut stats = state.stats_with(disk, figures.status.clone(), at);
            // Of one disk whoever wants them asks: of hundreds they would be megabytes.
            stats.engine.slowest = Vec::new();
            stats
        });
        serde_json::to_vec(&AllStats { disks: disks.collect(), silent, refused, shards })
    };
    match text {
        Ok(text) => Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response()),
        Err(error) => Err(refuse(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}

impl ControlState {
    /// The statistics of a disk, as an answer.
    pub(in crate::daemon) async fn stats_of(&self, disk: &ServedDisk) -> Reply<DiskStats> {
        match disk.handle.stats().await {
            Ok(status) => Ok(Json(self.stats_with(disk, status, Instant::now()))),
            Err(Gone) => {
                let error = format!("the shard of disk '{}' has ended", disk.name());
                Err(refuse(StatusCode::SERVICE_UNAVAILABLE, error))
            }
        }
    }

    /// What a disk's shard knew at that time, and what others know of it.
    pub(in crate::daemon) fn stats_with(
        &self,
        disk: &ServedDisk,
        status: DiskStatus,
        at: Instant,
    ) -> DiskStats {
        DiskStats {
            shard: disk.info.shard,
            opened_ms: disk.opened_ms(),
            elapsed_ns: disk.elapsed(at).as_nanos() as u64,
            vhost_user: self.frontends.device(disk.name()).map(|device| device.info()),
            evidence: disk.info.evidence.clone(),
            unguarded: disk.info.unguarded.clone(),
            storage_changed: disk.changed(),
            ..status.into()
        }
    }

    /// What is known of every disk that has not ended.
    pub(in crate::daemon) async fn known_figures(&self) -> Vec<Known> {
        let mut disks = self.disks();
        disks.retain(|disk| disk.ended().is_none());
        self.figures.all(disks).await
    }
}
