//! The HTTP port: what other programs on this host, or on others, read of the daemon. It has `/metrics` by now.
//!
//! No disk needs it. When its address cannot be had, as when another daemon of this host has it, an event says so, and a reload
//! tries again.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use forebay_host::events::Severity;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::control::{ControlState, lock};
use super::listener::{BoundTcp, bind_tcp};
use super::metrics::{self, Format};
use super::names::Names;

/// What clients may take. Each connection ends by itself, so that nobody waits for a place for ever.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Connections at a time. The next one waits: files are for clients of disks.
    connections: usize,
    /// Time from the start of a connection until its request is there. It has one request: a client that reads metrics every
    /// few seconds connects each time, and holds no place meanwhile.
    headers: Duration,
    /// Time of a connection in all. A client may be slow to read the answer.
    whole: Duration,
}

const LIMITS: Limits =
    Limits { connections: 64, headers: Duration::from_secs(10), whole: Duration::from_secs(30) };
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
    let listener = bind_tcp(address, &state.frontends.inherited, &Names::default()).await?;
    let (end, ends) = oneshot::channel::<()>();
    *lock(&state.http.serving) = Some(Serving { address: listener.local_addr()?, _end: end });
    tokio::spawn(connections(listener, router(state.clone()), LIMITS, ends));
    Ok(())
}

/// Serves connections until `end`. What is being answered then is finished.
async fn connections(
    mut listener: BoundTcp,
    router: Router,
    limits: Limits,
    mut end: oneshot::Receiver<()>,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let open = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.headers).keep_alive(false);
    loop {
        let next = async {
            let place = places.clone().acquire_owned().await.expect("it is never closed");
            (place, Listener::accept(&mut listener.listener).await.0)
        };
        let (place, stream) = tokio::select! {
            next = next => next,
            _ = &mut end => break,
        };
        let service = TowerToHyperService::new(router.clone());
        let served = open.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            // A client that is too slow, or gone, harms only itself.
            let _ = timeout(limits.whole, served).await;
            drop(place);
        });
    }
    drop(listener);
    open.shutdown().await;
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
    use tokio::net::TcpStream;
    use tokio::sync::Notify;
    use tokio::time::interval;

    use super::*;
    use crate::daemon::inherited::Inherited;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(600);

    /// A port with one place; where it is, and what ends it.
    async fn port(headers: Duration, whole: Duration) -> (SocketAddr, oneshot::Sender<()>) {
        let listener =
            bind_tcp("127.0.0.1:0", &Inherited::default(), &Names::default()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/large", get(|| async { vec![b'x'; 64 << 20] }));
        let (end, ends) = oneshot::channel();
        tokio::spawn(connections(
            listener,
            router,
            Limits { connections: 1, headers, whole },
            ends,
        ));
        (address, end)
    }

    /// A client is answered, though another one came before it.
    async fn is_answered(address: SocketAddr) {
        let mut next = TcpStream::connect(address).await.unwrap();
        next.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        next.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("here"), "{answer}");
    }

    #[tokio::test]
    async fn a_client_that_sends_nothing_gives_its_place_to_the_next() {
        let (address, _end) = port(SHORT, LONG).await;
        let mut idle = TcpStream::connect(address).await.unwrap();
        is_answered(address).await;
        assert_eq!(idle.read(&mut [0; 16]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_client_that_sends_a_byte_now_and_then_gives_its_place_to_the_next() {
        let (address, _end) = port(SHORT, LONG).await;
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\nX: ").await.unwrap();
        let trickle = async {
            let mut ticks = interval(SHORT / 10);
            while slow.write_all(b"x").await.is_ok() {
                ticks.tick().await;
            }
        };
        tokio::join!(trickle, is_answered(address));
    }

    #[tokio::test]
    async fn a_client_that_was_answered_gives_its_place_to_the_next() {
        let (address, _end) = port(LONG, LONG).await;
        let mut answered = TcpStream::connect(address).await.unwrap();
        answered.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        is_answered(address).await;
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_its_answer_gives_its_place_to_the_next() {
        let (address, _end) = port(LONG, SHORT).await;
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        is_answered(address).await;
    }

    #[tokio::test]
    async fn a_port_that_ends_finishes_its_answer_and_its_address_is_free() {
        let listener =
            bind_tcp("127.0.0.1:0", &Inherited::default(), &Names::default()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (is_asked, is_to_finish) = (asked.clone(), finish.clone());
        let answer = async move || {
            is_asked.notify_one();
            is_to_finish.notified().await;
            "done"
        };
        let (end, ends) = oneshot::channel();
        let router = Router::new().route("/", get(answer));
        let port = tokio::spawn(connections(listener, router, LIMITS, ends));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        asked.notified().await;
        drop(end);
        while TcpStream::connect(address).await.is_ok() {}
        bind_tcp(&address.to_string(), &Inherited::default(), &Names::default()).await.unwrap();
        finish.notify_one();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("done"), "{answer}");
        port.await.unwrap();
    }
}
