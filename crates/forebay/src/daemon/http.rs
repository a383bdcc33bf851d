//! The HTTP port: what other programs on this host, or on others, read of the daemon. It has `/metrics` by now.
//!
//! No disk needs it. When its address cannot be had, as when another daemon of this host has it, an event says so, and a reload
//! tries again.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use forebay_host::events::Severity;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::control::{ControlState, lock};
use super::listener::bind_tcp;
use super::metrics::{Format, collect};

/// Connections that may be open at a time. The next one waits: files are for clients of disks.
const CONNECTIONS_MAX: usize = 64;

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
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let server = axum::serve(Bounded { listener, places }, router(state.clone()));
    let server = server.with_graceful_shutdown(async move { drop(ends.await) });
    tokio::spawn(async move {
        if let Err(error) = server.await {
            tracing::error!("the HTTP port failed: {error}");
        }
    });
    Ok(())
}

/// A listener that accepts no more connections than it has places for.
struct Bounded {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let place = self.places.clone().acquire_owned().await.expect("it is never closed");
        let (stream, from) = Listener::accept(&mut self.listener).await;
        (Connection { stream, _place: place }, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection in its place.
struct Connection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, to)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
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
