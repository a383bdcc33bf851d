//! Requests of the control socket for the advice that was kept for a disk.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forebay_host::events::Severity;
use forebay_trace::advise::Prediction;

use crate::daemon::api::AdviceInfo;
use crate::daemon::control::{ControlState, refuse};
use crate::daemon::opener::ServedDisk;

/// What is kept, and what came of it.
pub(in crate::daemon) async fn advice(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Response {
    match state.find(&name) {
        Ok(disk) => told(&disk).await,
        Err(refusal) => *refusal,
    }
}

/// Keeps another one instead.
pub(in crate::daemon) async fn keep(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
    prediction: Result<Json<Prediction>, JsonRejection>,
) -> Response {
    let disk = match state.find(&name) {
        Ok(disk) => disk,
        Err(refusal) => return *refusal,
    };
    let Json(prediction) = match prediction {
        Ok(prediction) => prediction,
        Err(wrong) => return refuse(StatusCode::BAD_REQUEST, wrong.body_text()),
    };
    let what = prediction.words();
    if let Err(error) = disk.advice.keep(prediction).await {
        let why = format!("disk '{name}': the advice cannot be kept: {error:#}");
        return refuse(StatusCode::CONFLICT, why);
    }
    state.report(Some(&name), Severity::Info, &format!("an advice is kept: {what}"));
    told(&disk).await
}

/// Keeps none any more.
pub(in crate::daemon) async fn forget(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Response {
    let disk = match state.find(&name) {
        Ok(disk) => disk,
        Err(refusal) => return *refusal,
    };
    match disk.advice.forget().await {
        Ok(()) => told(&disk).await,
        Err(error) => refuse(StatusCode::CONFLICT, format!("disk '{name}': {error:#}")),
    }
}

async fn told(disk: &ServedDisk) -> Response {
    let kept = disk.advice.told(&disk.handle).await;
    Json(AdviceInfo { kept, trouble: disk.advice.trouble() }).into_response()
}
