//! Requests of the control socket about disks that are refused: both sides are shown, an administrator decides, and the disk
//! is served, with nothing else disturbed.
//!
//! ```text
//!   refused ──resolve: pool and sidecar say what was decided──► open ──► its shard ──► its frontends
//!              └─ open: what was wrong is put right ─────────────┘└─ refused again, with the reason of now
//!              every 10 s, when it could not be opened ─────────┘
//!   served, but not everywhere ──open, or every 10 s──────────────────────────► its frontends
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use forebay_host::events::Severity;
use forebay_host::fence::resolve::{self, Decision};

use super::api::{RefusedDisk, Resolved, Sides};
use super::control::{ControlState, Reply, lock, refuse};
use super::frontends::Missing;
use super::opener::Opener;
use super::placement;
use super::questions::{About, Silence, in_time, late};
use super::reopen::{OPEN_MAX, TAKES_LONG};
use super::served::ServedDisk;
use crate::config::DiskSpec;

mod finish;

use finish::{Done, finish, finish_late};
pub(super) use finish::{Opening, open_at_start};

/// Places where clients do not find a disk are tried so often.
const TRY_EVERY: Duration = Duration::from_secs(10);
/// Time that flash has to tell what a log has.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// Time that the storage of a disk has to answer before it is opened.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How often it is looked at whether a disk is open.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// What is told when they do.
pub(super) const EVERYWHERE: &str = "the disk is served everywhere now";

/// Why a disk is not opened whose storage, or flash, does not answer.
pub(super) fn silent(why: Silence) -> anyhow::Error {
    let why = match why {
        Silence::Late => "its primary storage or its flash does not answer",
        Silence::TooMany => "too many other disks have storage that does not answer",
    };
    anyhow!("{why}; that is tried again every {} s", TRY_EVERY.as_secs())
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Choice {
    #[serde(default)]
    use_log: bool,
    discard_log: Option<String>,
    #[serde(default)]
    discard_reservations: bool,
}

impl Choice {
    fn decision(self) -> Option<Decision> {
        match self {
            Choice { use_log: true, discard_log: None, discard_reservations: false } => {
                Some(Decision::UseLog)
            }
            Choice { use_log: false, discard_log: Some(amount), discard_reservations: false } => {
                Some(Decision::DiscardLog(amount))
            }
            Choice { use_log: false, discard_log: None, discard_reservations: true } => {
                Some(Decision::DiscardReservations)
            }
            Choice { .. } => None,
        }
    }
}

/// Both sides of a disk.
pub(super) async fn sides(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Reply<Sides> {
    respond(&name, look(&state, &name).await)
}

async fn look(state: &ControlState, name: &str) -> Result<Sides> {
    wait_for_answers(state, name).await?;
    let turn = state.opening_turn().await?;
    let spec = find(state, name)?;
    check_nobody_has(state, name)?;
    let (opener, about) = (state.opener.clone(), about(&spec));
    let look = move || -> Result<Sides> {
        let (disk, pool) = flash(&opener, &spec)?;
        let sides = resolve::Sides::open(pool, &disk, opener.state())?;
        Ok(Sides { shown: sides.shown(), text: sides.describe() })
    };
    let mut answer = state.opener.questions.begin(about, look).map_err(silent)?;
    if let Some((sides, _out)) = in_time(&mut answer, OPEN_MAX).await {
        return sides;
    }
    // Others have their turns, and this disk is nobody's else.
    drop(turn);
    late(answer).await.context("nobody could look")?.0
}

/// Carries out a decision, and serves the disk.
pub(super) async fn resolve(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
    choice: Result<Query<Choice>, QueryRejection>,
) -> Reply<Resolved> {
    let Query(choice) = choice?;
    let decision = choice.decision();
    if decision.is_none() {
        let why = "one decision: use_log=true, discard_log=AMOUNT or discard_reservations=true";
        return Err(refuse(StatusCode::BAD_REQUEST, why.to_owned()));
    }
    answer(state, name, decision).await
}

/// Tries again to serve a disk.
pub(super) async fn open(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Reply<Resolved> {
    answer(state, name, None).await
}

async fn answer(
    state: Arc<ControlState>,
    name: String,
    decision: Option<Decision>,
) -> Reply<Resolved> {
    let _ = tokio::time::timeout(ANSWER_MAX, placement::place_again(&state)).await;
    state.frontends.look_again();
    respond(&name, serve(&state, &name, decision).await)
}

/// Waits for the storage and flash of a disk that is decided about, in nobody's turn.
///
/// # Errors
/// They do not answer.
async fn wait_for_answers(state: &ControlState, name: &str) -> Result<()> {
    let answers = state.opener.wait_for_answers(&find(state, name)?, ANSWER_MAX).await;
    answers
        .map_err(|_| anyhow!("its primary storage or its flash does not answer: ask again later"))
}

/// Finds out that somebody opens a disk, looks at it or decides about it, who takes longer than a turn.
///
/// # Errors
/// That.
fn check_nobody_has(state: &ControlState, name: &str) -> Result<()> {
    ensure!(!state.is_at_work(name), TAKES_LONG);
    Ok(())
}

/// Waits a while for a disk that is opened again beneath its clients, who wait for it.
async fn wait_for_opening(state: &ControlState, before: &Arc<ServedDisk>) -> Result<()> {
    let give_up = Instant::now() + ANSWER_MAX;
    while state.disks().iter().any(|disk| Arc::ptr_eq(disk, before)) {
        let why = before.unopened().unwrap_or_default();
        anyhow::ensure!(Instant::now() < give_up, "that is done, but it is not served: {why}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

fn respond<T>(disk: &str, done: Result<T>) -> Reply<T> {
    done.map(Json)
        .map_err(|error| refuse(StatusCode::CONFLICT, format!("disk '{disk}': {error:#}")))
}

/// Serves a disk that is not served, or not everywhere; with a decision, after that is carried out.
///
/// # Errors
/// It is not served.
pub(super) async fn serve(
    state: &Arc<ControlState>,
    name: &str,
    decision: Option<Decision>,
) -> Result<Resolved> {
    if decision.is_some() {
        wait_for_answers(state, name).await?;
    } else if let Ok(spec) = find(state, name)
        && let Err(why) = state.opener.wait_for_answers(&spec, ANSWER_MAX).await
    {
        return Err(refuse_silent(state, name, why));
    }
    let (resolved, waits) = {
        let _one = state.opening_turn().await?;
        serve_in_turn(state, name, decision).await?
    };
    if let Some(before) = waits {
        wait_for_opening(state, &before).await?;
    }
    Ok(resolved)
}

/// Serves several, whose storage and flash are asked at once whether they answer: those that hang cost time once.
pub(super) async fn serve_each(
    state: &Arc<ControlState>,
    disks: Vec<DiskSpec>,
) -> BTreeMap<String, Result<Resolved>> {
    let mut done = BTreeMap::new();
    for (disk, answers) in state.opener.wait_for_each(disks, ANSWER_MAX).await {
        let name = disk.name.0;
        let served = match answers {
            Ok(()) => serve(state, &name, None).await,
            Err(why) => Err(refuse_silent(state, &name, why)),
        };
        done.insert(name, served);
    }
    done
}

/// A disk is not served because its storage, or its flash, does not answer.
fn refuse_silent(state: &ControlState, name: &str, why: Silence) -> anyhow::Error {
    let spec = match find(state, name) {
        Ok(spec) => spec,
        // Somebody has opened it meanwhile.
        Err(served) => return served,
    };
    let error = silent(why);
    match state.find(name) {
        Ok(_) => error,
        Err(_) => anyhow!("it is not served: {}", state.refuse(&spec, &error)),
    }
}

/// The same, in the turn of who calls; the disk, if it is one that is opened beneath its clients in a moment.
async fn serve_in_turn(
    state: &Arc<ControlState>,
    name: &str,
    decision: Option<Decision>,
) -> Result<(Resolved, Option<Arc<ServedDisk>>)> {
    let mut resolved = Resolved { decided: None, warnings: Vec::new() };
    if decision.is_none()
        && let Some(attached) = state.attach_again(name).await
    {
        anyhow::ensure!(state.find(name).is_ok(), "it was detached meanwhile");
        match attached {
            Ok(()) => state.report(Some(name), Severity::Info, EVERYWHERE),
            Err(error) => resolved.warnings.push(not_everywhere(state, name, &error)),
        }
        return Ok((resolved, None));
    }
    let spec = find(state, name)?;
    let is_changing = lock(&state.turns.changing).contains(name);
    anyhow::ensure!(!is_changing, "its settings are just being changed: ask again");
    let waits = state.waiting_for_opening(name);
    check_nobody_has(state, name).inspect_err(|busy| {
        // One that is new is to be in sight.
        if waits.is_none() && state.may_be_tried().iter().all(|known| known.name != name) {
            state.refuse(&spec, busy);
        }
    })?;
    if decision.is_none()
        && let Some(waits) = &waits
    {
        bail!("{}", waits.unopened().unwrap_or_default());
    }
    state.close_moved_flash(&spec).await;
    let (opener, of, decided) = (state.opener.clone(), spec.clone(), decision.clone());
    let is_opened = waits.is_none();
    let work = move || {
        let mut warnings = Vec::new();
        if let Some(decision) = &decided {
            let (disk, pool) = flash(&opener, &of)?;
            warnings = resolve::decide(pool, &disk, opener.state(), decision)?;
        }
        Ok(Done { warnings, opened: is_opened.then(|| opener.open(&of)) })
    };
    let mut answer = state.opener.questions.begin(about(&spec), work).map_err(silent)?;
    let Some((done, _out)) = in_time(&mut answer, OPEN_MAX).await else {
        // Others have their turns.
        tokio::spawn(finish_late(state.clone(), spec.clone(), decision, answer));
        ensure!(is_opened, TAKES_LONG);
        bail!("it is not served: {}", state.refuse(&spec, &anyhow!(TAKES_LONG)));
    };
    resolved.decided = decision.as_ref().map(|decision| decision.name().to_owned());
    resolved.warnings = finish(state, &spec, decision, done).await?;
    Ok((resolved, waits))
}

/// Tries again where clients do not find a disk, and where one could not be opened: an address, or storage, may come later than
/// the daemon.
pub(super) async fn follow(state: Arc<ControlState>) {
    loop {
        tokio::time::sleep(TRY_EVERY).await;
        // A device that hangs holds up nobody: the task goes on.
        let placing = state.clone();
        let placing = tokio::spawn(async move { placement::place_again(&placing).await });
        let _ = tokio::time::timeout(LOOK_MAX, placing).await;
        state.frontends.look_again();
        try_again(&state, |disk| disk.is_tried_again).await;
        for name in state.unattached() {
            let Ok(_one) = state.opening_turn().await else { continue };
            let attached = state.attach_again(&name).await;
            if matches!(attached, Some(Ok(()))) && state.find(&name).is_ok() {
                state.report(Some(&name), Severity::Info, EVERYWHERE);
            }
        }
    }
}

/// Tries to serve those of the refused disks whose storage and flash answer.
pub(super) async fn try_again(state: &Arc<ControlState>, which: impl Fn(&RefusedDisk) -> bool) {
    let tried = state.may_be_tried().into_iter().filter(&which);
    let tried = tried.filter_map(|disk| find(state, &disk.name).ok());
    let is_free = |spec: &DiskSpec| {
        !state.opener.questions.is_out(&Opener::about_storage(spec))
            && !state.is_at_work(&spec.name.0)
    };
    let tried: Vec<_> = tried.filter(is_free).collect();
    for (disk, answers) in state.opener.wait_for_each(tried, ANSWER_MAX).await {
        let name = &disk.name.0;
        let Ok(_one) = state.opening_turn().await else { continue };
        // Somebody may have opened it meanwhile, and detached it.
        let is_refused = state.may_be_tried().iter().any(|it| it.name == *name && which(it));
        if state.is_at_work(name) || !is_refused {
            continue;
        }
        // Why not, it tells itself, when that is something else than before.
        match answers {
            Ok(()) => drop(serve_in_turn(state, name, None).await),
            Err(why) => drop(refuse_silent(state, name, why)),
        }
    }
}

/// Tells of the disks that clients do not find everywhere.
pub(super) fn tell_missing(state: &ControlState, missing: Vec<(String, Missing)>) {
    for (disk, Missing { why, .. }) in missing {
        not_everywhere(state, &disk, &why);
    }
}

/// Tells that clients do not find a disk everywhere; in these words.
pub(super) fn not_everywhere(state: &ControlState, name: &str, error: &anyhow::Error) -> String {
    let text = format!(
        "the disk is served, but not everywhere: {error:#}; that is tried again every {} s, and by 'forebay disk open {name}{}'",
        TRY_EVERY.as_secs(),
        forebay_host::folders::option_for(std::path::Path::new(&state.info().control))
    );
    state.report(Some(name), Severity::Error, &text);
    text
}

/// A disk that is not served, and its flash, as questions name them.
pub(super) fn about(disk: &DiskSpec) -> About {
    About::Disk(disk.name.0.clone(), disk.flash.as_ref().map(|flash| flash.path.clone()))
}

/// The configuration of a disk that is not served.
pub(super) fn find(state: &ControlState, name: &str) -> Result<DiskSpec> {
    let spec = state.opener.spec();
    let disk = spec.disks.iter().find(|disk| disk.name.0 == name);
    let disk = disk.context("there is no such disk here")?;
    if let Some(served) = state.disks().iter().find(|disk| disk.name() == name) {
        match served.ended() {
            None if served.has_clients_wait() => {}
            None => bail!("it is served: there is nothing to open or to decide"),
            // It was detached: nothing of it is left.
            Some(None) => {}
            Some(Some(_)) if served.info.write_log_bytes > 0 => bail!(
                "it was served and has ended: stop the daemon before its log is decided about"
            ),
            Some(Some(_)) => {
                let is_listed = spec.sources.as_ref().is_some_and(|it| it.has(&disk.name));
                ensure!(
                    is_listed,
                    "it was served and has ended: a restart of the daemon serves it again"
                );
                bail!(
                    "it was served and has ended: a restart of the daemon serves it again, and so do 'forebay disk remove {name}' \
                     and then 'forebay disk reset {name}', which take back what commands have changed of it"
                )
            }
        }
    }
    Ok(disk.clone())
}

/// The name of a disk, and its pool.
fn flash(opener: &Opener, disk: &DiskSpec) -> Result<(String, forebay_host::pool::SharedPool)> {
    let (pool, _) = opener.pool(disk)?.context("it has no flash: there is nothing to decide")?;
    Ok((disk.name.to_string(), pool))
}

/// Does what may wait for flash or primary storage, while everything else goes on.
pub(super) async fn blocking<T: Send + 'static>(
    state: &ControlState,
    work: impl FnOnce(&Opener) -> Result<T> + Send + 'static,
) -> Result<T> {
    let opener = state.opener.clone();
    tokio::task::spawn_blocking(move || work(&opener)).await?
}

#[cfg(test)]
pub(super) mod tests;
