//! Requests of the control socket about pools: what is on flash that this daemon uses, and that nobody else may read meanwhile.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::control::{ControlState, refuse};
use super::pool::report::{self, PoolReport};
use super::{pool, refused};

/// Time that a disk which is being opened, or decided about, has to come to its end.
const OPENING_MAX: Duration = Duration::from_secs(5);

/// All that it uses, in the order of their paths.
pub(super) async fn pools(State(state): State<Arc<ControlState>>) -> Response {
    match reports(&state).await {
        Ok(reports) => Json(reports).into_response(),
        Err(error) => refuse(StatusCode::SERVICE_UNAVAILABLE, format!("{error:#}")),
    }
}

async fn reports(state: &ControlState) -> Result<Vec<PoolReport>> {
    // The log of a disk that is being opened changes.
    let opening = tokio::time::timeout(OPENING_MAX, state.opening.lock());
    let _one = opening.await.context("a disk is being opened, and that takes long: ask again")?;
    let mut served = Vec::new();
    for disk in state.disks().iter().filter(|disk| disk.ended().is_none()) {
        // One that has ended meanwhile is read as any other that is not served.
        if let (Some(place), Ok(now)) = (disk.in_pool(), disk.handle.stats().await) {
            served.push((place, now.engine));
        }
    }
    let daemon = state.info().name;
    refused::blocking(state, move |opener| {
        let reports = opener.pools().map(|(path, shared)| {
            let pool = pool::lock(shared).snapshot();
            let of_pool = served.iter().filter(|((flash, _), _)| flash == path);
            let served: Vec<_> = of_pool.map(|((_, number), now)| (*number, now.clone())).collect();
            let shown = report::show_used(&pool, &served);
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            PoolReport { path: path.display().to_string(), used_by: Some(daemon.clone()), ..shown }
        });
        Ok(reports.collect())
    })
    .await
}
