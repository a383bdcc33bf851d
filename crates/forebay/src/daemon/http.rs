//! The HTTP port: what other programs on this host, or on others, read of the daemon. It has `/metrics` by now.
//!
//! No disk needs it. When its address cannot be had, as when another daemon of this host has it, an event says so, and a reload
//! tries again.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use forebay_host::events::Severity;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, Sleep, sleep};

use super::control::{ControlState, lock};
use super::listener::{BoundTcp, bind_tcp};
use super::metrics::{self, Format};

/// Connections that may be open at a time. The next one waits: files are for clients of disks.
const CONNECTIONS_MAX: usize = 64;
/// How long nothing may come or go on a connection. Its place is then for another.
const IDLE_MAX: Duration = Duration::from_secs(120);
/// How old a scrape may be that answers one more client.
const AGE_MAX: Duration = Duration::from_secs(1);

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
    let bounded = Bounded { listener, places, idle_max: IDLE_MAX };
    let server = axum::serve(bounded, router(state.clone()));
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
    listener: BoundTcp,
    places: Arc<Semaphore>,
    idle_max: Duration,
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let place = self.places.clone().acquire_owned().await.expect("it is never closed");
        let (stream, from) = Listener::accept(&mut self.listener.listener).await;
        let idle = Box::pin(sleep(self.idle_max));
        (Connection { stream, idle_max: self.idle_max, idle, _place: place }, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection in its place.
struct Connection {
    stream: TcpStream,
    idle_max: Duration,
    /// Ends when nothing came or went for that long.
    idle: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    /// What `poll` of the stream says, unless it has been idle for too long.
    fn unless_idle<T>(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let polled = poll(Pin::new(&mut self.stream), cx);
        if polled.is_ready() {
            let end = Instant::now() + self.idle_max;
            self.idle.as_mut().reset(end);
            return polled;
        }
        self.idle.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.unless_idle(cx, |stream, cx| stream.poll_read(cx, to))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.unless_idle(cx, |stream, cx| stream.poll_write(cx, bytes))
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
    match metrics::shared(&state, format, AGE_MAX).await {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::daemon::inherited::Inherited;

    #[tokio::test]
    async fn an_idle_connection_gives_its_place_to_the_next() {
        let listener = bind_tcp("127.0.0.1:0", &Inherited::default()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let places = Arc::new(Semaphore::new(1));
        let bounded = Bounded { listener, places, idle_max: Duration::from_millis(20) };
        let router = Router::new().route("/", get(|| async { "here" }));
        tokio::spawn(async move { axum::serve(bounded, router).await });
        let mut idle = TcpStream::connect(address).await.unwrap();
        // A request that never ends keeps it no longer.
        idle.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let mut next = TcpStream::connect(address).await.unwrap();
        next.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        next.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("here"), "{answer}");
        assert_eq!(idle.read(&mut [0; 16]).await.unwrap(), 0);
    }
}
