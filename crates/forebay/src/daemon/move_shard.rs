//! `disk move-shard`: a disk goes to another shard, beneath its clients.
//!
//! ```text
//!   clients wait ─ nothing is owed to them ─► ended in order ─► opened on the other shard ─► clients go over, and go on
//!        │ not within 10 s, of one of them                       │ it cannot be
//!        ▼                                                       ▼
//!   clients go on where they were                           opened where it was, again and again until it can be
//! ```
//! It is an end and a start of this disk, as in [`reopen`](super::reopen): its write log goes on, and so does what is
//! cached on flash where a start would believe it. Its RAM cache begins empty. Sessions of an iSCSI target live on one shard, so its disks go together.
//!
//! **Invariant:** whatever fails, no client gets an error by it, but for one whose socket the kernel lets no reactor watch any
//! more. Storage of one disk that hangs holds up the others only until [`END_MAX`] or the time to open it is over.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use forebay_host::events::Severity;
use forebay_host::population::Wanted;
use forebay_shard::{DiskHandle, Drained};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout_at};

use super::advice;
use super::api::MovedShard;
use super::control::{ControlState, Reply, refuse};
use super::opener::Ready;
use super::reopen::{Noted, Reopening, TRY_AGAIN};
use super::served::ServedDisk;
use super::shards;
use crate::config::values::Name;
use crate::config::{DaemonSpec, DiskSpec};

/// Time that all disks have to end, once nothing is owed to their clients.
const END_MAX: Duration = Duration::from_secs(10);
/// Time that those that end late have before they are left to themselves.
const LATE_MAX: Duration = Duration::from_secs(1);

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
) -> Reply<MovedShard> {
    state.find(&name)?;
    let moved = go(&state, &Name(name.clone()), query.to).await;
    moved
        .map(Json)
        .map_err(|error| refuse(StatusCode::CONFLICT, format!("disk '{name}': {error:#}")))
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
    let _no_change = state.turns.reloading.lock().await;
    let _no_other = state.opening_turn().await?;
    let _its_size = state.turns.resizing.lock().await;
    let spec = opener.spec();
    let together = together(state, &spec, name)?;
    let disks: Vec<String> = together.iter().map(|served| served.name().to_owned()).collect();
    let from = together[0].info.shard;
    let to = to.unwrap_or_else(|| opener.shards.least_busy_but(from));
    ensure!(
        together.iter().all(|served| served.info.shard == from),
        "disks of its target are on several shards: a restart puts them on one"
    );
    if from == to {
        return Ok(MovedShard { disks, from, to, waited_ms: 0 });
    }
    ensure!(opener.shards.answers(to).await, "shard {to} does not answer");
    // Until all are there it is left to them.
    let mut memory = Vec::new();
    let mut flash_as_it_is = Vec::new();
    let mut moving = Vec::new();
    for served in &together {
        let of = || format!("disk '{}'", served.name());
        let disk = spec.disks.iter().find(|disk| disk.name.0 == served.name());
        let disk = disk.context("it is leaving").with_context(of)?;
        let reopening = Reopening::of(state, served);
        reopening.check(disk, (disk, &spec.disks)).await.with_context(of)?;
        memory.push(reopening);
        flash_as_it_is.push(served.hold_flash().await.with_context(of)?);
        advice::settle(served).await;
        moving.push(Moving { disk, served: served.clone(), stage: Stage::Serving });
    }
    for (served, reopening) in together.iter().zip(&memory) {
        let of = || format!("disk '{}'", served.name());
        reopening.check_unmodified(false).await.with_context(of)?;
    }
    let began = Instant::now();
    if let Err(why) = carry_out(state, &spec.disks, &mut moving, to).await {
        bail!("{why:#}; it is on shard {from} as before");
    }
    // Those of their targets that come later go there, too: also of one that shows a disk which is not listed there any more.
    for served in &together {
        let listed = shards::target_of(&spec, &Name(served.name().to_owned()));
        let shown = state.frontends.targets_of(&served.handle);
        let targets = listed.map(|it| it.target.0.clone()).into_iter().chain(shown);
        opener.shards.note_targets(targets, to);
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

/// This disk, and all that sessions may use together with it, now or once their target is shown; the one that was asked for
/// first.
///
/// # Errors
/// It is not served any more.
fn together(state: &ControlState, spec: &DaemonSpec, name: &Name) -> Result<Vec<Arc<ServedDisk>>> {
    let mut served = state.disks();
    served.retain(|disk| disk.ended().is_none());
    let of_target = shards::target_of(spec, name).map(|target| &target.luns);
    let is_configured = |disk: &ServedDisk| {
        let units = of_target.into_iter().flat_map(|units| units.values());
        disk.name() == name.0 || units.into_iter().any(|unit| unit.0 == disk.name())
    };
    let configured = served.iter().filter(|disk| is_configured(disk));
    let bound = configured.flat_map(|disk| state.frontends.bound_to(&disk.handle));
    let bound: Vec<DiskHandle> = bound.collect();
    served.retain(|disk| is_configured(disk) || bound.iter().any(|handle| handle.is(&disk.handle)));
    served.sort_by_key(|disk| disk.name() != name.0);
    ensure!(served.first().is_some_and(|disk| disk.name() == name.0), "it is not served any more");
    Ok(served)
}

/// A disk that moves.
struct Moving<'a> {
    /// As it is configured.
    disk: &'a DiskSpec,
    /// As it is served where it was.
    served: Arc<ServedDisk>,
    stage: Stage,
}

/// How far it is.
enum Stage {
    /// Its clients may be held.
    Serving,
    Ending(JoinHandle<Result<Noted>>),
    Ended,
    /// On the other shard.
    Opened(Box<(Ready, Option<Wanted>)>),
}

/// Has the clients of all wait, and moves them.
///
/// # Errors
/// Clients go on where they were, or wait there until their disk can be opened.
async fn carry_out(
    state: &Arc<ControlState>,
    disks: &[DiskSpec],
    moving: &mut [Moving<'_>],
    to: usize,
) -> Result<()> {
    let Err(why) = end_and_open(state, disks, moving, to).await else { return Ok(()) };
    match go_back(state, disks, moving, to).await {
        Some(waits) => bail!("{why:#}; {waits:#}"),
        None => Err(why),
    }
}

async fn end_and_open(
    state: &Arc<ControlState>,
    disks: &[DiskSpec],
    moving: &mut [Moving<'_>],
    to: usize,
) -> Result<()> {
    // All are held before one ends: what a session has begun on one may be behind what waits for another. All at once, so
    // that nobody waits for longer than for one.
    let mut holding = JoinSet::new();
    for Moving { served, .. } in moving.iter() {
        let (handle, name) = (served.handle.clone(), served.name().to_owned());
        let held = async move { handle.hold_clients().await };
        holding.spawn(async move { held.await.with_context(|| format!("disk '{name}'")) });
    }
    // None is left on its way: it would hold clients again that were let go.
    let held = holding.join_all().await;
    held.into_iter().collect::<Result<()>>()?;
    for Moving { served, stage, .. } in moving.iter_mut() {
        let handle = served.handle.clone();
        let ending = async move { handle.end_beneath(false).await };
        *stage = Stage::Ending(tokio::spawn(Reopening::of(state, served).ended(ending)));
    }
    let limit = Instant::now() + END_MAX;
    for Moving { served, stage, .. } in moving.iter_mut() {
        let Stage::Ending(ending) = stage else { continue };
        let ended = timeout_at(limit, ending).await;
        let ended = ended.with_context(|| format!("disk '{}' does not end", served.name()))?;
        *stage = Stage::Serving;
        let noted = ended??;
        *stage = Stage::Ended;
        noted?;
    }
    for Moving { disk, served, stage } in moving.iter_mut() {
        let reopening = Reopening::of(state, served);
        let opened = reopening.open_up((disk, disks)).await;
        let opened = opened.with_context(|| format!("disk '{}' does not open", served.name()))?;
        let opened = reopening.hand_over(to, disk, opened).await?;
        // The end of the daemon notes how it is left, also before its clients have come.
        state.serve_again(opened.0.clone());
        *stage = Stage::Opened(Box::new(opened));
    }
    let handles: Vec<_> = moving.iter().map(|it| it.served.handle.clone()).collect();
    state.opener.shards.take_clients(to, &handles).await?;
    for Moving { served, stage, .. } in moving.iter_mut() {
        if let Stage::Opened(opened) = std::mem::replace(stage, Stage::Serving) {
            Reopening::of(state, served).serve(*opened);
        }
    }
    Ok(())
}

/// Clients go on where they were; of a disk that cannot be opened there they wait, in these words. One whose storage hangs
/// holds up no other for long.
async fn go_back(
    state: &Arc<ControlState>,
    disks: &[DiskSpec],
    moving: &mut [Moving<'_>],
    to: usize,
) -> Option<anyhow::Error> {
    let mut ending = Vec::new();
    for Moving { disk, served, stage } in moving.iter_mut() {
        let ended = match std::mem::replace(stage, Stage::Serving) {
            Stage::Serving => {
                served.handle.let_clients_go_on();
                continue;
            }
            Stage::Ending(ending) => Some(ending),
            Stage::Opened(opened) => {
                let there = give_back(state.clone(), to, opened.0.handle.clone());
                Some(tokio::spawn(Reopening::of(state, &opened.0.disk).ended(there)))
            }
            Stage::Ended => None,
        };
        ending.push((*disk, Reopening::of(state, served), ended));
    }
    let limit = Instant::now() + LATE_MAX;
    let mut waits = None;
    for (disk, reopening, ended) in ending {
        if let Some(mut ended) = ended {
            match timeout_at(limit, &mut ended).await {
                Ok(Ok(Ok(noted))) => reopening.tell_unnoted(noted),
                // One that does not end lets its clients go on.
                Ok(_) => continue,
                Err(_) => {
                    let ended = async move { ended.await? };
                    waits = Some(reopening.open_once_ended(ended, (disk, disks), false));
                    continue;
                }
            }
        }
        waits = reopening.open_as_before((disk, disks)).await.err().or(waits);
    }
    waits
}

/// Ends a disk on the other shard, whose clients have not come.
async fn give_back(state: Arc<ControlState>, to: usize, disk: DiskHandle) -> Result<Drained> {
    loop {
        match state.opener.shards.give_back(to, &disk).await {
            Err(_) if !state.is_ending() => {
                // Its shard is busy.
                sleep(TRY_AGAIN).await;
            }
            ended => return ended,
        }
    }
}
