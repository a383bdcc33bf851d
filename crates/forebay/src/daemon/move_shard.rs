//! `disk move-shard`: a disk goes to another shard, beneath its clients.
//!
//! ```text
//!   clients wait ─ nothing is owed to them ─► ended in order ─► opened on the other shard ─► clients go over, and go on
//!        │ not within 10 s, of one of them                       │ it cannot be
//!        ▼                                                       ▼
//!   clients go on where they were                           opened where it was, again and again until it can be
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
use tokio::time::Instant;

use super::advice;
use super::api::MovedShard;
use super::control::{ControlState, refuse};
use super::opener::{Missing, Ready};
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
    let shards = opener.shards.count();
    ensure!(
        shards > 1,
        "there is one shard only; with 'shards = 2' or more in the configuration file a restart gives more"
    );
    ensure!(
        to.is_none_or(|to| to < shards),
        "there is no shard {}: there are 0 to {}",
        to.unwrap_or_default(),
        shards - 1
    );
    // Nothing else opens or changes a disk: whoever came to the target meanwhile would be on the wrong shard.
    let _no_change = state.reloading.lock().await;
    let _no_other = state.opening.lock().await;
    let _its_size = state.resizing.lock().await;
    let spec = opener.spec();
    let moving = together(state, &spec.disks, name)?;
    let disks: Vec<String> = moving.iter().map(|(disk, _)| disk.name.to_string()).collect();
    let from = moving[0].1.info.shard;
    let to = to.unwrap_or_else(|| opener.shards.least_busy_but(from));
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
    if let Err(why) = carry_out(state, &spec.disks, &moving, to).await {
        bail!("{why:#}; it is on shard {from} as before");
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

/// A disk that moves, as it is configured and as it is served.
type Moving<'a> = (&'a DiskSpec, Arc<ServedDisk>);

/// This disk, and all that sessions may use together with it; the one that was asked for first.
///
/// # Errors
/// It is not served any more.
fn together<'a>(
    state: &ControlState,
    disks: &'a [DiskSpec],
    name: &Name,
) -> Result<Vec<Moving<'a>>> {
    let mut served = state.disks();
    served.retain(|disk| disk.ended().is_none());
    let asked = served.iter().position(|disk| disk.name() == name.0);
    let asked = served.remove(asked.context("it is not served any more")?);
    let bound = state.frontends.bound_to(&asked.handle);
    served.retain(|disk| bound.iter().any(|handle| handle.is(&disk.handle)));
    let all = [asked].into_iter().chain(served);
    all.map(|served| {
        let disk = disks.iter().find(|disk| disk.name.0 == served.name());
        Ok((disk.with_context(|| format!("disk '{}' is leaving", served.name()))?, served))
    })
    .collect()
}

/// How far a move is.
#[derive(Default)]
struct Progress {
    /// So many of the disks have ended.
    ended: usize,
    /// On the other shard.
    opened: Vec<(Ready, Option<Missing>)>,
}

/// Has the clients of all wait, and moves them.
///
/// # Errors
/// Clients go on where they were, or wait there until their disk can be opened.
async fn carry_out(
    state: &Arc<ControlState>,
    disks: &[DiskSpec],
    moving: &[Moving<'_>],
    to: usize,
) -> Result<()> {
    let (opener, mut progress) = (&state.opener, Progress::default());
    let done = end_and_open(state, disks, moving, to, &mut progress).await;
    let Progress { ended, opened } = progress;
    let Err(why) = done else {
        let handles: Vec<_> = opened.iter().map(|(ready, _)| ready.handle.clone()).collect();
        opener.shards.take_clients(to, &handles).await?;
        for (ready, _) in &opened {
            if !state.frontends.bound_to(&ready.handle).is_empty() {
                opener.shards.note_target(&opener.spec(), &ready.name, to);
            }
        }
        for ((_, served), opened) in moving.iter().zip(opened) {
            Reopening::of(state, served).serve(opened);
        }
        return Ok(());
    };
    for (ready, _) in &opened {
        let given_back = loop {
            match opener.shards.give_back(to, &ready.handle).await {
                Ok(given_back) => break given_back,
                Err(_) if state.is_ending() => bail!("the daemon is ending"),
                // Its shard is busy.
                Err(_) => tokio::time::sleep(TRY_AGAIN).await,
            }
        };
        if let Err(error) = Reopening::of(state, &ready.disk).leave(given_back).await {
            // It is opened from what was noted before, as after a crash.
            state.report(Some(ready.disk.name()), Severity::Warning, &format!("{error:#}"));
        }
    }
    for (_, served) in &moving[ended..] {
        served.handle.let_clients_go_on();
    }
    let mut waits = None;
    for (disk, served) in &moving[..ended] {
        waits = Reopening::of(state, served).open_as_before((disk, disks)).await.err().or(waits);
    }
    match waits {
        Some(waits) => bail!("{why:#}; {waits}"),
        None => Err(why),
    }
}

async fn end_and_open(
    state: &Arc<ControlState>,
    disks: &[DiskSpec],
    moving: &[Moving<'_>],
    to: usize,
    progress: &mut Progress,
) -> Result<()> {
    // All are held before one ends: what a session has begun on one may be behind what waits for another.
    for (_, served) in moving {
        served.handle.hold_clients().await?;
    }
    for (_, served) in moving {
        let drained = served.handle.end_beneath(false).await?;
        progress.ended += 1;
        Reopening::of(state, served).leave(drained).await?;
    }
    for (disk, served) in moving {
        let opened = Reopening::of(state, served).open_on(to, (disk, disks)).await?;
        progress.opened.push(opened);
    }
    Ok(())
}
