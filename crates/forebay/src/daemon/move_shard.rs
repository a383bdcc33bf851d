//! `disk move-shard`: a disk goes to another shard, beneath its clients.
//!
//! ```text
//!   clients wait ─ nothing is owed to them ─► ended in order ─► opened on the other shard ─► clients go over, and go on
//!        │ not within 10 s, of one of them                       │ it cannot be
//!        ▼                                                       ▼
//!   opened again where they were; clients go on             opened where it was, again and again until it can be
//! ```
//! It is an end and a start of this disk, as in [`reopen`](super::reopen): its write log and what is cached on flash go on, and
//! its RAM cache begins empty. Sessions of an iSCSI target live on one shard, so its disks go together.
//!
//! **Invariant:** whatever fails, no client gets an error by it.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forebay_host::events::Severity;
use tokio::time::{Instant, sleep};

use super::advice;
use super::api::MovedShard;
use super::control::{ControlState, refuse};
use super::reopen::{Reopening, TRY_AGAIN};
use super::served::ServedDisk;
use crate::config::DiskSpec;
use crate::config::values::Name;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MoveQuery {
    to: Option<usize>,
}

/// Moves a disk; answers when its clients go on.
pub(super) async fn move_shard(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
    Query(query): Query<MoveQuery>,
) -> Response {
    if let Err(refusal) = state.find(&name) {
        return *refusal;
    }
    // On a task of its own: who asked may leave.
    let of = name.clone();
    match tokio::spawn(async move { go(&state, &Name(of), query.to).await }).await {
        Ok(Ok(moved)) => Json(moved).into_response(),
        Ok(Err(error)) => refuse(StatusCode::CONFLICT, format!("disk '{name}': {error:#}")),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

async fn go(state: &Arc<ControlState>, name: &Name, to: Option<usize>) -> Result<MovedShard> {
    let opener = &state.opener;
    let shards = opener.shards();
    ensure!(
        shards > 1,
        "there is one shard only; with 'shards = 2' or more in the configuration file a restart gives more"
    );
    let to = to.unwrap_or_else(|| opener.emptiest());
    ensure!(to < shards, "there is no shard {to}: there are 0 to {}", shards - 1);
    let mut others_wait = Some((state.reloading.lock().await, state.resizing.lock().await));
    let spec = opener.spec();
    let together = opener.bound_to(name);
    let asked = spec.disks.iter().filter(|disk| together.contains(&disk.name));
    // One that is refused goes there when it is opened.
    let moving = asked.filter_map(|disk| Some((disk, state.find(&disk.name.0).ok()?)));
    let moving: Vec<(&DiskSpec, Arc<ServedDisk>)> = moving.collect();
    let (_, first) = moving.first().context("it is not served any more")?;
    let from = first.info.shard;
    let disks: Vec<String> = moving.iter().map(|(disk, _)| disk.name.to_string()).collect();
    if from == to {
        return Ok(MovedShard { disks, from, to, waited_ms: 0 });
    }
    let mut flash_as_it_is = Vec::new();
    for (disk, served) in &moving {
        let of = || format!("disk '{}'", disk.name);
        Reopening::of(state, served).check(disk, disk).await.with_context(of)?;
        flash_as_it_is.push(served.hold_flash().await.with_context(of)?);
        advice::settle(served).await;
    }
    let began = Instant::now();
    let (ended, mut trouble) = end(state, &moving).await;
    let mut shard = if trouble.is_none() { to } else { from };
    let mut opened = Vec::new();
    for (disk, served) in ended {
        let reopening = Reopening::of(state, served);
        loop {
            let one = state.opening.lock().await;
            match reopening.open_on(shard, (disk, &spec.disks)).await {
                Ok(ready) => break opened.push(ready),
                // Whose clients it has are closed, and the next start opens it.
                Err(_) if state.is_ending() => bail!("the daemon is ending"),
                Err(why) if shard == to && opened.is_empty() => {
                    (shard, trouble) = (from, Some(why));
                }
                Err(why) => {
                    if others_wait.take().is_some() {
                        reopening.clients_wait(&why);
                    }
                    drop(one);
                    sleep(TRY_AGAIN).await;
                }
            }
        }
    }
    if shard != from {
        opener.take_clients(shard, opened.iter().map(|(ready, _)| &ready.handle)).await?;
    }
    for (ready, missing) in opened {
        opener.give_memory(&ready, missing);
    }
    if let Some(why) = trouble {
        bail!("{why:#}; it goes on where it was, on shard {from}");
    }
    let waited_ms = began.elapsed().as_millis() as u64;
    for disk in &disks {
        let text = format!(
            "the disk went from shard {from} to shard {to}; its clients waited for {waited_ms} ms"
        );
        state.report(Some(disk), Severity::Info, &text);
    }
    Ok(MovedShard { disks, from, to, waited_ms })
}

/// Ends disks beneath their clients, up to one that cannot be ended, or noted to have: those that have ended, and why not all.
async fn end<'a>(
    state: &Arc<ControlState>,
    disks: &'a [(&'a DiskSpec, Arc<ServedDisk>)],
) -> (&'a [(&'a DiskSpec, Arc<ServedDisk>)], Option<anyhow::Error>) {
    for (at, (disk, served)) in disks.iter().enumerate() {
        let (ended, result) = match served.handle.end_beneath(false).await {
            Ok(drained) => (at + 1, Reopening::of(state, served).leave(drained).await.map(drop)),
            Err(why) => (at, Err(why)),
        };
        if let Err(why) = result {
            return (&disks[..ended], Some(why.context(format!("disk '{}'", disk.name))));
        }
    }
    (disks, None)
}
