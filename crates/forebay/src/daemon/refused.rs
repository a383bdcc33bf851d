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
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forebay_backends::size::rounded;
use forebay_host::events::Severity;
use forebay_host::fence::resolve::{self, Decision};
use forebay_host::pool::Dirty;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::api::{RefusedDisk, Resolved, Sides};
use super::control::{ControlState, lock, refuse};
use super::frontends::Missing;
use super::opener::{Opener, Ready};
use super::served::ServedDisk;
use super::{placement, systemd};
use crate::config::DiskSpec;
use crate::config::values::Name;

/// Places where clients do not find a disk are tried so often.
const TRY_EVERY: Duration = Duration::from_secs(10);
/// Time that the storage of a disk has to answer before others are tried again.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// The same where somebody asks for this disk.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How often it is looked at whether a disk is open.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The same at a start, when paths to storage may have to be found first.
pub(super) const START_MAX: Duration = Duration::from_secs(15);
/// Disks whose storage is waited for at a time.
const LOOKS_MAX: usize = 256;
/// What is told when they do.
pub(super) const EVERYWHERE: &str = "the disk is served everywhere now";

/// Who waits for storage and flash to answer at all. What hangs is waited for in nobody's turn, by few, and once: whoever asks
/// for the same waits for the same.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<BTreeMap<Looked, Answer>>);

/// Primary storage and flash of a disk.
type Looked = (String, Option<PathBuf>);

/// Closed when they have answered.
type Answer = watch::Receiver<()>;

impl Looks {
    fn of(spec: &DiskSpec) -> Looked {
        (spec.backend.clone(), spec.flash.as_ref().map(|flash| flash.path.clone()))
    }

    fn looks(&self) -> MutexGuard<'_, BTreeMap<Looked, Answer>> {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What was found before says nothing of now.
        looks.retain(|_, answer| answer.has_changed().is_ok());
        looks
    }

    /// Whether what a disk needs is waited for, and has not answered yet.
    fn are_under_way(&self, spec: &DiskSpec) -> bool {
        self.looks().contains_key(&Looks::of(spec))
    }

    /// Looks whether what a disk needs answers; `None`: too many others are waited for.
    fn look(&self, opener: &Arc<Opener>, spec: &DiskSpec) -> Option<Answer> {
        let mut looks = self.looks();
        if let Some(under_way) = looks.get(&Looks::of(spec)) {
            return Some(under_way.clone());
        }
        if looks.len() >= LOOKS_MAX {
            return None;
        }
        let (waits, answer) = watch::channel(());
        let (opener, of) = (opener.clone(), spec.clone());
        tokio::task::spawn_blocking(move || {
            opener.wait_for_answers(&of);
            drop(waits);
        });
        looks.insert(Looks::of(spec), answer.clone());
        Some(answer)
    }

    /// Whether what a disk needs answers in time, as far as it can be looked at.
    async fn answers(
        &self,
        opener: &Arc<Opener>,
        spec: &DiskSpec,
        patience: Duration,
    ) -> Option<bool> {
        let mut answer = self.look(opener, spec)?;
        Some(tokio::time::timeout(patience, answer.changed()).await.is_ok())
    }

    /// Waits until what a disk needs answers, so that it is not opened in vain, with others waiting for that.
    ///
    /// # Errors
    /// It does not in time.
    pub(super) async fn wait(
        &self,
        opener: &Arc<Opener>,
        spec: &DiskSpec,
        patience: Duration,
    ) -> Result<()> {
        let why = match self.answers(opener, spec, patience).await {
            Some(true) => return Ok(()),
            Some(false) => "its primary storage or its flash does not answer",
            None => "too many other disks have storage that does not answer",
        };
        bail!("{why}; that is tried again every {} s", TRY_EVERY.as_secs())
    }
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
) -> Response {
    let asked = name.clone();
    // On a task of its own: who asked may leave, and what is looked at stays in use until then.
    let look = tokio::spawn(async move {
        let _one = state.opening_turn().await?;
        let spec = find(&state, &name)?;
        blocking(&state, move |opener| {
            let (disk, pool) = flash(opener, &spec)?;
            let sides = resolve::Sides::open(pool, &disk, opener.state())?;
            Ok(Sides { shown: sides.shown(), text: sides.describe() })
        })
        .await
    });
    respond(&asked, look).await
}

/// Carries out a decision, and serves the disk.
pub(super) async fn resolve(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
    choice: Result<Query<Choice>, QueryRejection>,
) -> Response {
    let decision = match choice {
        Ok(Query(choice)) => choice.decision(),
        Err(wrong) => return refuse(StatusCode::BAD_REQUEST, wrong.body_text()),
    };
    if decision.is_none() {
        let why = "one decision: use_log=true, discard_log=AMOUNT or discard_reservations=true";
        return refuse(StatusCode::BAD_REQUEST, why.to_owned());
    }
    answer(state, name, decision).await
}

/// Tries again to serve a disk.
pub(super) async fn open(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Response {
    answer(state, name, None).await
}

async fn answer(state: Arc<ControlState>, name: String, decision: Option<Decision>) -> Response {
    // On a task of its own: who asked may leave.
    let asked = name.clone();
    let work = tokio::spawn(async move {
        let _ = tokio::time::timeout(ANSWER_MAX, placement::place_again(&state)).await;
        serve(&state, &name, decision).await
    });
    respond(&asked, work).await
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

async fn respond<T: serde::Serialize>(disk: &str, work: JoinHandle<Result<T>>) -> Response {
    match work.await {
        Ok(Ok(done)) => Json(done).into_response(),
        Ok(Err(error)) => refuse(StatusCode::CONFLICT, format!("disk '{disk}': {error:#}")),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
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
    if decision.is_none()
        && let Ok(spec) = find(state, name)
        && let Err(error) = state.looks.wait(&state.opener, &spec, ANSWER_MAX).await
    {
        // Somebody may have opened it meanwhile.
        let spec = find(state, name)?;
        anyhow::ensure!(state.find(name).is_err(), "{error:#}");
        bail!("it is not served: {}", state.refuse(&spec, &error));
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
    if decision.is_none()
        && let Some(waits) = &waits
    {
        bail!("{}", waits.unopened().unwrap_or_default());
    }
    state.close_moved_flash(&spec).await;
    if let Some(decision) = decision.clone() {
        resolved.decided = Some(decision.name().to_owned());
        let text = format!("an administrator has decided: {}", decision.done());
        let of = spec.clone();
        resolved.warnings = blocking(state, move |opener| {
            let (disk, pool) = flash(opener, &of)?;
            resolve::decide(pool, &disk, opener.state(), &decision)
        })
        .await?;
        state.report(Some(name), Severity::Warning, &text);
    }
    if waits.is_some() {
        return Ok((resolved, waits));
    }
    let ready = match on_its_shard(state, &spec).await {
        Ok(ready) => ready,
        Err(error) => {
            let reason = state.refuse(&spec, &error);
            match decision {
                Some(decision) => bail!("{}, but it is not served: {reason}", decision.done()),
                None => bail!("it is not served: {reason}"),
            }
        }
    };
    let attached = state.serve(ready).await;
    systemd::disks_changed(state);
    state.report(Some(name), Severity::Info, "the disk is served now");
    if let Err(error) = attached {
        resolved.warnings.push(not_everywhere(state, name, &error));
    }
    Ok((resolved, None))
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
        try_again(&state, |disk| disk.is_tried_again).await;
        for name in state.unattached() {
            let _one = state.turns.opening.lock().await;
            let attached = state.attach_again(&name).await;
            if matches!(attached, Some(Ok(()))) && state.find(&name).is_ok() {
                state.report(Some(&name), Severity::Info, EVERYWHERE);
            }
        }
    }
}

/// Tries to serve those of the refused disks whose storage and flash answer.
pub(super) async fn try_again(state: &Arc<ControlState>, which: impl Fn(&RefusedDisk) -> bool) {
    for disk in state.may_be_tried().into_iter().filter(&which) {
        let Ok(spec) = find(state, &disk.name) else { continue };
        let is_new = !state.looks.are_under_way(&spec);
        if !is_new || state.looks.answers(&state.opener, &spec, LOOK_MAX).await != Some(true) {
            continue;
        }
        let Ok(_one) = state.opening_turn().await else { continue };
        // Somebody may have opened it meanwhile, and detached it.
        if state.may_be_tried().iter().any(|it| it.name == disk.name && which(it)) {
            // Why not, it tells itself, when that is something else than before.
            let _ = serve_in_turn(state, &disk.name, None).await;
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

async fn on_its_shard(state: &ControlState, spec: &DiskSpec) -> Result<Ready> {
    let of = spec.clone();
    let opened = blocking(state, move |opener| opener.open(&of)).await?;
    state.opener.hand_over(spec, opened).await
}

/// The configuration of a disk that is not served.
fn find(state: &ControlState, name: &str) -> Result<DiskSpec> {
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

/// What the log of a disk that goes from the configuration `kept`, and how to have it.
pub(super) fn left_in_log(kept: &str, disk: &Name) -> String {
    format!(
        "its write log {kept}. To have them, add disk '{disk}' again as it was, by 'forebay disk reset {disk}' or in the \
         configuration file"
    )
}

/// What the log of a disk that is not served keeps, in words. Nobody waits long for flash, and no pool is opened for that.
pub(super) async fn kept_in_log(state: &ControlState, disk: &DiskSpec) -> Option<String> {
    disk.flash.as_ref().filter(|_| !has_left_nothing(state, &disk.name))?;
    let of = disk.clone();
    let look = blocking(state, move |opener| {
        let pool = opener.flash.open_pool_of(&of).context("its flash is not in use")?;
        Ok(resolve::undestaged(&pool, &of.name.0))
    });
    let found = tokio::time::timeout(LOOK_MAX, look).await;
    match found.context("its flash does not answer").flatten() {
        Ok(None) => None,
        Ok(Some(Dirty { error: None, bytes, .. })) => {
            Some(format!("still holds {} that primary storage does not have", rounded(bytes)))
        }
        Ok(Some(Dirty { error: Some(error), .. })) => Some(format!("cannot be read: {error}")),
        // Nothing says that there is one.
        Err(_) if disk.write_log.is_none() => None,
        Err(why) => Some(format!("may hold writes that primary storage does not have: {why:#}")),
    }
}

/// True of a disk that was detached: primary storage has everything, unless it could not be opened again.
fn has_left_nothing(state: &ControlState, name: &Name) -> bool {
    let disks = state.disks();
    let disk = disks.iter().find(|disk| disk.name() == name.0);
    disk.is_some_and(|disk| disk.ended() == Some(&None) && disk.given_up().is_none())
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
mod tests;
