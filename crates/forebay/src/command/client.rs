//! Asks running daemons over their control sockets.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::config::values::Name;
use crate::daemon::api::{ApiError, DaemonInfo, DiskInfo, RefusedDisk};
use crate::daemon::place;

/// Time for one answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// A disk that somebody serves, and the control socket of that daemon.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) control: PathBuf,
    pub(crate) disk: String,
}

/// What the daemon at `control` answers to `path`.
pub(crate) async fn ask<T: DeserializeOwned>(control: &Path, path: &str) -> Result<T> {
    in_time(control, answer(control, Method::GET, path, Bytes::new())).await
}

/// As [`ask`], however long it takes.
pub(crate) async fn ask_patiently<T: DeserializeOwned>(control: &Path, path: &str) -> Result<T> {
    answer(control, Method::GET, path, Bytes::new()).await
}

/// What the daemon at `control` answers when it is told `path`, which changes something.
pub(crate) async fn tell<T: DeserializeOwned>(control: &Path, path: &str) -> Result<T> {
    in_time(control, answer(control, Method::POST, path, Bytes::new())).await
}

/// What the daemon at `control` answers when it is told `what` at `path`.
pub(crate) async fn tell_of<T: DeserializeOwned>(
    control: &Path,
    path: &str,
    what: &impl Serialize,
) -> Result<T> {
    let body = serde_json::to_vec(what)?.into();
    in_time(control, answer(control, Method::POST, path, body)).await
}

/// As [`tell`], however long it takes.
pub(crate) async fn tell_patiently<T: DeserializeOwned>(control: &Path, path: &str) -> Result<T> {
    answer(control, Method::POST, path, Bytes::new()).await
}

async fn in_time<T>(control: &Path, answer: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(ANSWER_TIME_MAX, answer).await.with_context(|| {
        format!("no answer from {} within {}s", control.display(), ANSWER_TIME_MAX.as_secs())
    })?
}

async fn answer<T: DeserializeOwned>(
    control: &Path,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<T> {
    let shown = control.display();
    let (status, body) = exchange(control, method, path, body).await?;
    if !status.is_success() {
        match serde_json::from_slice::<ApiError>(&body) {
            Ok(refusal) => bail!("{} (asked {shown})", refusal.error),
            Err(_) => bail!("{shown} answered {status} to {path}"),
        }
    }
    serde_json::from_slice(&body)
        .with_context(|| format!("{shown} answered what is not understood"))
}

async fn exchange(
    control: &Path,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<(hyper::StatusCode, Bytes)> {
    let stream = UnixStream::connect(control).await.with_context(|| {
        format!(
            "nobody listens on the control socket {}; is the daemon running?",
            control.display()
        )
    })?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "forebay")
        .header("content-type", "application/json")
        .body(Full::new(body))?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

/// Finds `disk`, or every disk without a name: at `control`, or among the sockets of this user's folder.
///
/// # Errors
/// There is none, with what is there instead.
pub(crate) async fn find(disk: Option<&Name>, control: Option<&Path>) -> Result<Vec<Found>> {
    let folder = place::folder();
    let sockets = sockets(control);
    let mut found = Vec::new();
    for socket in sockets {
        let disks: Vec<DiskInfo> = match ask(&socket, "/v1/disks").await {
            Ok(disks) => disks,
            Err(error) if control.is_some() => return Err(error),
            // Left behind by a daemon that was killed; others may answer.
            Err(_) => continue,
        };
        found.extend(
            disks.into_iter().map(|disk| Found { control: socket.clone(), disk: disk.name }),
        );
    }
    let place = control.map_or(folder, Path::to_owned);
    let place = place.display();
    let Some(name) = disk else {
        if found.is_empty() {
            bail!(
                "no disk is running (looked in {place}); start one with 'forebay run', or give --control PATH"
            );
        }
        return Ok(found);
    };
    let all = found.clone();
    let names: Vec<String> = found.iter().map(|found| found.disk.clone()).collect();
    found.retain(|found| found.disk == name.0);
    if found.is_empty() {
        if let Some(disk) = refused(&all).await.into_iter().find(|disk| disk.name == name.0) {
            bail!("disk '{name}' is not served: {}", disk.reason);
        }
        let running = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        bail!(
            "no disk '{name}' is running (looked in {place}; running: {running}); give --control PATH if it is elsewhere"
        );
    }
    Ok(found)
}

/// Finds the one disk of that name.
///
/// # Errors
/// There is none, or several daemons have one.
pub(crate) async fn find_one(disk: &Name, control: Option<&Path>) -> Result<Found> {
    let mut found = find(Some(disk), control).await?;
    if found.len() > 1 {
        bail!("{} daemons serve a disk '{disk}'; say which with --control PATH", found.len());
    }
    Ok(found.remove(0))
}

/// The control socket at `control`, or all of this user's folder.
pub(crate) fn sockets(control: Option<&Path>) -> Vec<PathBuf> {
    match control {
        Some(path) => vec![path.to_owned()],
        None => place::sockets(&place::folder()),
    }
}

/// Finds the daemon that refuses to serve `disk`, and why: at `control`, or among the sockets of this user's folder.
///
/// # Errors
/// Nobody answers at `control`, or several refuse one.
pub(crate) async fn find_refusing(
    disk: &Name,
    control: Option<&Path>,
) -> Result<Option<(PathBuf, RefusedDisk)>> {
    let mut found = Vec::new();
    for socket in sockets(control) {
        let daemon: DaemonInfo = match ask(&socket, "/v1/daemon").await {
            Ok(daemon) => daemon,
            Err(error) if control.is_some() => return Err(error),
            Err(_) => continue,
        };
        let refused = daemon.refused.into_iter().filter(|it| it.name == disk.0);
        found.extend(refused.map(|refused| (socket.clone(), refused)));
    }
    if found.len() > 1 {
        bail!("{} daemons refuse a disk '{disk}'; say which with --control PATH", found.len());
    }
    Ok(found.pop())
}

/// The disks that the daemons of `found` refuse to serve.
pub(crate) async fn refused(found: &[Found]) -> Vec<RefusedDisk> {
    let mut sockets: Vec<&Path> = found.iter().map(|found| found.control.as_path()).collect();
    sockets.dedup();
    let mut refused = Vec::new();
    for socket in sockets {
        if let Ok(daemon) = ask::<DaemonInfo>(socket, "/v1/daemon").await {
            refused.extend(daemon.refused);
        }
    }
    refused
}

/// Runs `work` on a small runtime of this thread. What it began beside, and has not waited for, may wait for storage that
/// hangs: nobody waits for that.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}
