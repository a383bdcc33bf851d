//! The HTTP port: what other programs on this host, or on others, read of the daemon. It has `/metrics` by now.
//!
//! No disk needs it. When its address cannot be had, as when another daemon of this host has it, an event says so, and a reload
//! tries again.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use forebay_host::events::Severity;
use tokio::sync::oneshot;

use super::control::{ControlState, lock};
use super::listener::bind_tcp;
use super::metrics::{Format, collect};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct HttpPort {
    serving: Mutex<Option<Serving>>,
}

#[derive(Debug)]
struct Serving {
    address: SocketAddr,
    /// Dropped, it ends the port: what is being answered is finished.
    _end: oneshot::Sender<()>,
}

impl HttpPort {
    /// Where it is.
    pub(super) fn address(&self) -> Option<String> {
        lock(&self.serving).as_ref().map(|serving| serving.address.to_string())
    }

    /// Nobody is answered any more.
    pub(super) fn close(&self) {
        *lock(&self.serving) = None;
    }
}

/// Opens the port, where one is configured and not open. An event tells when it cannot be opened.
pub(super) async fn open(state: &Arc<ControlState>) {
    let spec = state.opener.spec();
    let Some(address) = &spec.http else { return };
    if state.http.address().is_some() {
        return;
    }
    if let Err(error) = serve(state, address).await {
        let text = format!(
            "metrics are not served: {error:#}. Disks are. Give each daemon of this host an address of its own (http in its \
             configuration file), or switch metrics off there (http = \"off\"). 'forebay reload' tries again"
        );
        state.report(None, Severity::Warning, &text);
    }
}

async fn serve(state: &Arc<ControlState>, address: &str) -> Result<()> {
    let listener = bind_tcp(address, &state.frontends.inherited).await?;
    let (end, ends) = oneshot::channel::<()>();
    *lock(&state.http.serving) = Some(Serving { address: listener.local_addr()?, _end: end });
    let server = axum::serve(listener, router(state.clone()));
    let server = server.with_graceful_shutdown(async move { drop(ends.await) });
    tokio::spawn(async move {
        if let Err(error) = server.await {
            tracing::error!("the HTTP port failed: {error}");
        }
    });
    Ok(())
}

fn router(state: Arc<ControlState>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .fallback(|| async { (StatusCode::NOT_FOUND, "no such path; try /metrics\n") })
        .with_state(state)
}

async fn metrics(State(state): State<Arc<ControlState>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let format = Format::accepted(accept);
    let scrape = collect(&state).await;
    // A thousand disks are megabytes of text: clients that wait for other answers do not wait for that.
    match tokio::task::spawn_blocking(move || scrape.text(format)).await {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
