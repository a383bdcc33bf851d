//! Requests of the control socket for the advice that was kept for a disk.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use forebay_host::events::Severity;
use forebay_trace::advise::Prediction;

use crate::daemon::api::AdviceInfo;
use crate::daemon::control::{ControlState, Reply, refuse};
use crate::daemon::served::ServedDisk;

/// What is kept, and what came of it.
pub(in crate::daemon) async fn advice(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Reply<AdviceInfo> {
    let disk = state.find(&name)?;
    Ok(told(&disk).await)
}

/// Keeps another one instead.
pub(in crate::daemon) async fn keep(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
    prediction: Result<Json<Prediction>, JsonRejection>,
) -> Reply<AdviceInfo> {
    let disk = state.find(&name)?;
    let Json(prediction) = prediction?;
    let what = prediction.words();
    if let Err(error) = disk.advice.keep(prediction).await {
        let why = format!("disk '{name}': the advice cannot be kept: {error:#}");
        return Err(refuse(StatusCode::CONFLICT, why));
    }
    state.report(Some(&name), Severity::Info, &format!("an advice is kept: {what}"));
    Ok(told(&disk).await)
}

/// Keeps none any more.
pub(in crate::daemon) async fn forget(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Reply<AdviceInfo> {
    let disk = state.find(&name)?;
    match disk.advice.forget().await {
        Ok(()) => Ok(told(&disk).await),
        Err(error) => Err(refuse(StatusCode::CONFLICT, format!("disk '{name}': {error:#}"))),
    }
}

async fn told(disk: &ServedDisk) -> Json<AdviceInfo> {
    let kept = disk.advice.told(&disk.handle).await;
    Json(AdviceInfo { kept, trouble: disk.advice.trouble() })
}
