//! Asks running daemons over their control sockets.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use forebay_host::folders;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::config::pools::is_same;
use crate::config::values::Name;
use crate::config::{self, DaemonSpec};
use crate::daemon::THREADS_MAX;
use crate::daemon::api::{ApiError, DaemonInfo, DiskInfo, RefusedDisk};
use crate::daemon::preflight;

/// Time for one answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes of one answer. A thousand disks have about 10 MiB of statistics.
const ANSWER_LEN_MAX: usize = 64 << 20;

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

/// As [`tell_of`], however long it takes.
pub(crate) async fn tell_of_patiently<T: DeserializeOwned>(
    control: &Path,
    path: &str,
    what: &impl Serialize,
) -> Result<T> {
    let body = serde_json::to_vec(what)?.into();
    answer(control, Method::POST, path, body).await
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
    let connected = UnixStream::connect(control).await;
    let stream = connected.map_err(|error| {
        let why = unreachable(control, &error);
        anyhow::Error::new(error).context(why)
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
    let body = Limited::new(response.into_body(), ANSWER_LEN_MAX).collect().await;
    let body = body.map_err(|error| match error.downcast::<LengthLimitError>() {
        Ok(_) => {
            anyhow!("{} answered with more than {} MiB", control.display(), ANSWER_LEN_MAX >> 20)
        }
        Err(error) => anyhow!(error),
    })?;
    Ok((status, body.to_bytes()))
}

/// Why a control socket cannot be connected to, and what helps.
fn unreachable(control: &Path, error: &std::io::Error) -> String {
    let shown = control.display();
    match error.kind() {
        ErrorKind::PermissionDenied => {
            let user = rustix::process::geteuid().as_raw();
            let owner = std::fs::metadata(control).map(|found| format!(" (user {})", found.uid()));
            format!(
                "user {user} may not use the control socket {shown}: only its owner{} and root may. Run the command as one of \
                 them",
                owner.unwrap_or_default()
            )
        }
        ErrorKind::NotFound => {
            format!("nobody listens on the control socket {shown}: there is no such file")
        }
        ErrorKind::ConnectionRefused => {
            format!("nobody listens on the control socket {shown}: its daemon has ended")
        }
        _ => format!("the control socket {shown} cannot be used"),
    }
}

/// A daemon, by its control socket, and what it answers or why it does not.
pub(crate) type Heard<T> = (PathBuf, Result<T>);

/// What the daemon at `control` says of itself, or each of this user's folder.
pub(crate) async fn daemons(control: Option<&Path>) -> Vec<Heard<DaemonInfo>> {
    ask_all(control, "/v1/daemon").await
}

/// The daemon of a configuration, or the one that this user finds, if it runs.
pub(crate) fn running(spec: Option<&DaemonSpec>) -> Option<DaemonInfo> {
    let control = spec.map(preflight::control);
    let heard = block_on(async { Ok(daemons(control.as_deref()).await) });
    heard.ok()?.into_iter().find_map(|(_, heard)| heard.ok())
}

/// What the daemon at `control`, or each of this user's folder, answers to `path`. They are asked side by side. A killed
/// daemon leaves a socket behind, which is none.
pub(crate) async fn ask_all<T>(control: Option<&Path>, path: &'static str) -> Vec<Heard<T>>
where
    T: DeserializeOwned + Send + 'static,
{
    let sockets = match sockets(control) {
        Ok(sockets) => sockets,
        Err(error) => return vec![(folders::folder(), Err(error))],
    };
    let asked = sockets.into_iter().map(|socket| {
        tokio::spawn(async move {
            let heard = ask(&socket, path).await;
            (socket, heard)
        })
    });
    let mut heard = Vec::new();
    for asked in asked.collect::<Vec<_>>() {
        let Ok((socket, answer)) = asked.await else { continue };
        let is_there = !answer.as_ref().is_err_and(is_left_behind);
        if is_there || control.is_some() {
            heard.push((socket, answer));
        }
    }
    heard
}

/// True when nobody listens any more.
fn is_left_behind(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    matches!(kind, Some(ErrorKind::ConnectionRefused | ErrorKind::NotFound))
}

/// Finds `disk`, or every disk without a name: at `control`, or among the sockets of this user's folder.
///
/// # Errors
/// There is none, with what is there instead.
pub(crate) async fn find(disk: Option<&Name>, control: Option<&Path>) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let (mut refused, mut detached) = (Vec::new(), Vec::new());
    let (mut starting, mut silent) = (Vec::new(), Vec::new());
    for (socket, heard) in daemons(control).await {
        match heard {
            Err(error) if control.is_some() => return Err(error),
            Err(error) => silent.push(error),
            Ok(daemon) => {
                let of = |disk: DiskInfo| Found { control: socket.clone(), disk: disk.name };
                found.extend(daemon.disks.into_iter().map(of));
                refused.extend(daemon.refused);
                detached.extend(daemon.detached.into_iter().map(|name| (name, socket.clone())));
                starting.extend(daemon.starting);
            }
        }
    }
    let place = control.map_or_else(folders::folder, Path::to_owned);
    let place = place.display();
    let silent: String = silent.iter().map(|error| format!("; {error:#}")).collect();
    let Some(name) = disk else {
        if found.is_empty() && !starting.is_empty() {
            bail!("no disk is running yet; these start: {}", starting.join(", "));
        }
        let not_served: Vec<_> = refused
            .iter()
            .map(|disk| &*disk.name)
            .chain(detached.iter().map(|(name, _)| &**name))
            .collect();
        if found.is_empty() && !not_served.is_empty() {
            let option = control.map_or_else(String::new, folders::option_for);
            bail!(
                "no disk is served, not {}: 'forebay disk list{option}' says why{silent}",
                not_served.join(", ")
            );
        }
        if found.is_empty() && control.is_none() && folders::is_of_service_only() {
            bail!(
                "no disk of this user is running (looked in {place}): give 'sudo forebay' for those of the service{silent}"
            );
        }
        if found.is_empty() {
            bail!(
                "no disk is running (looked in {place}); start one with 'forebay run', or give --control PATH{silent}"
            );
        }
        return Ok(found);
    };
    let names: Vec<String> = found.iter().map(|found| found.disk.clone()).collect();
    found.retain(|found| found.disk == name.0);
    if found.is_empty() {
        if let Some(disk) = refused.into_iter().find(|disk| disk.name == name.0) {
            bail!("disk '{name}' is not served: {}", disk.reason);
        }
        if let Some((_, socket)) = detached.into_iter().find(|(disk, _)| *disk == name.0) {
            let option = folders::option_for(&socket);
            bail!(
                "disk '{name}' was detached: 'forebay disk open {name}{option}' has it served again"
            );
        }
        if starting.contains(&name.0) {
            bail!(
                "disk '{name}' is starting: it answers when its primary storage and its log are open"
            );
        }
        let running = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        bail!(
            "no disk '{name}' is running (looked in {place}; running: {running}); give --control PATH if it is \
             elsewhere{silent}"
        );
    }
    Ok(found)
}

/// Finds the one disk of that name.
///
/// # Errors
/// There is none, or several daemons have one.
pub(crate) async fn find_one(disk: &Name, control: Option<&Path>) -> Result<Found> {
    the_one(find(Some(disk), control).await?, "serve")
}

/// Finds the one daemon that serves `disk`, or has it in its configuration: it refuses to serve it, or has detached it.
///
/// # Errors
/// There is none, or there are several.
pub(crate) async fn find_configured(disk: &Name, control: Option<&Path>) -> Result<Found> {
    let none = match find(Some(disk), control).await {
        Ok(found) => return the_one(found, "serve"),
        Err(none) => none,
    };
    let mut found = Vec::new();
    for (socket, heard) in daemons(control).await {
        let Ok(daemon) = heard else { continue };
        let refused = daemon.refused.into_iter().map(|refused| refused.name);
        let of_it = refused.chain(daemon.detached).filter(|name| *name == disk.0);
        found.extend(of_it.map(|disk| Found { control: socket.clone(), disk }));
    }
    if found.is_empty() { Err(none) } else { the_one(found, "have") }
}

fn the_one(mut found: Vec<Found>, what: &str) -> Result<Found> {
    let one = found.pop().context("there is none")?;
    let count = found.len() + 1;
    ensure!(
        count == 1,
        "{count} daemons {what} a disk '{}'; say which with --control PATH",
        one.disk
    );
    Ok(one)
}

/// The control socket of the one daemon that has a configuration file.
///
/// # Errors
/// There is none, or several have one.
pub(crate) async fn with_file(control: Option<&Path>) -> Result<PathBuf> {
    let mut found = Vec::new();
    for (socket, heard) in daemons(control).await {
        match heard {
            Err(error) if control.is_some() => return Err(error),
            Ok(daemon) if daemon.file.is_some() || control.is_some() => found.push(socket),
            Ok(_) | Err(_) => {}
        }
    }
    match &found[..] {
        [one] => Ok(one.clone()),
        [] => bail!(
            "no daemon with a configuration file runs (looked in {}); give --control PATH if it is elsewhere",
            folders::folder().display()
        ),
        several => {
            let list: Vec<String> = several.iter().map(|it| it.display().to_string()).collect();
            bail!(
                "several daemons have a configuration file; give --control, one of {}",
                list.join(", ")
            )
        }
    }
}

/// The control socket of the daemon that has this configuration file: one of this user's folder, or the one that the file
/// names. A file that has changed since may name another one.
///
/// # Errors
/// The file means nothing, or nobody answers there.
pub(crate) async fn of_file(file: &Path) -> Result<PathBuf> {
    for (socket, heard) in daemons(None).await {
        let its_file = heard.ok().and_then(|daemon| daemon.file);
        if its_file.is_some_and(|its_file| is_same(Path::new(&its_file), file)) {
            return Ok(socket);
        }
    }
    let control = preflight::control(&config::file::load(file)?);
    let daemon: DaemonInfo = ask(&control, "/v1/daemon").await?;
    let at = control.display();
    let its_file =
        daemon.file.with_context(|| format!("the daemon at {at} has no configuration file"))?;
    ensure!(
        is_same(Path::new(&its_file), file),
        "the daemon at {at} has the configuration file {its_file}, and not {}",
        file.display()
    );
    Ok(control)
}

/// The control socket at `control`, or all of this user's folder.
///
/// # Errors
/// That folder belongs to somebody else.
pub(crate) fn sockets(control: Option<&Path>) -> Result<Vec<PathBuf>> {
    match control {
        Some(path) => Ok(vec![path.to_owned()]),
        None => folders::sockets(),
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
    for (socket, heard) in daemons(control).await {
        let daemon = match heard {
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

/// Runs `work` on a small runtime of this thread. What it began beside, and has not waited for, may wait for storage that
/// hangs: nobody waits for that.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(THREADS_MAX).build()?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_is_too_long_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let control = folder.path().join("c");
        let listener = UnixListener::bind(&control).unwrap();
        let answer = |len: usize| get(move || async move { " ".repeat(len - 1) + "7" });
        let router = Router::new()
            .route("/longest", answer(ANSWER_LEN_MAX))
            .route("/longer", answer(ANSWER_LEN_MAX + 1));
        tokio::spawn(async move { axum::serve(listener, router).await });
        assert_eq!(ask::<u32>(&control, "/longest").await.unwrap(), 7);
        let error = ask::<u32>(&control, "/longer").await.unwrap_err().to_string();
        assert!(error.contains("answered with more than 64 MiB"), "{error}");
    }
}
