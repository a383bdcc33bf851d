//! The control socket while the daemon starts, which may wait for primary storage or read a long log: whoever asks is told
//! that it starts.

use std::os::unix::net::UnixListener;
use std::path::Path;

use anyhow::Result;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};

use super::api::DaemonInfo;
use super::control::refuse;
use crate::config::DaemonSpec;

/// Answers until it is dropped.
#[derive(Debug)]
pub(super) struct Starting(tokio::task::JoinHandle<()>);

/// Answers at the control socket of a daemon that starts.
///
/// # Errors
/// The kernel's.
pub(super) fn answer(
    listener: UnixListener,
    spec: &DaemonSpec,
    control: &Path,
) -> Result<Starting> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let daemon = DaemonInfo {
        name: spec.name.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        reactor: String::new(),
        reactor_fallback: None,
        shards: spec.shards,
        control: control.display().to_string(),
        http: None,
        disks: Vec::new(),
        listeners: Vec::new(),
        file: spec.file().map(|file| file.display().to_string()),
        refused: Vec::new(),
        detached: Vec::new(),
        starting: spec.disks.iter().map(|disk| disk.name.to_string()).collect(),
    };
    let why = format!("'{}' is starting: ask again when its disks are open", spec.name);
    let router = Router::new()
        .route("/v1/daemon", get(async move || Json(daemon)))
        .fallback(async move || refuse(StatusCode::SERVICE_UNAVAILABLE, why));
    Ok(Starting(tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!("the control socket failed: {error}");
        }
    })))
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.abort();
    }
}
