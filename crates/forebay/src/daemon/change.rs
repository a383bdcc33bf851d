//! Requests of the control socket that change a disk: its mode, its destaging, its end.
//!
//! They are carried out whether or not who asked waits for the answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use forebay_backends::size::rounded;
use forebay_backends::{Look, Probe};
use forebay_host::events::Severity;
use forebay_shard::{DiskHandle, Drained, Dropped, Gone};
use serde::Deserialize;

use super::api::{DiskStats, Resized};
use super::control::{ControlState, Reply, refuse};
use super::ending::{self, Left};
use super::served::ServedDisk;
use super::{advice, kept};
use crate::config::values::Mode;

/// Time between two looks at the image of a disk that is being detached.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time from the last request of a hypervisor whose machine has ended until it closes its socket.
const LEAVES_IN: Duration = Duration::from_secs(2);

/// Asks a disk for a mode.
///
/// # Errors
/// It cannot have that one.
pub(super) async fn ask_for_mode(
    state: &ControlState,
    disk: &ServedDisk,
    mode: Mode,
) -> Result<()> {
    let before = disk.handle.stats().await?.engine.mode;
    disk.handle.set_mode(mode.0).await?;
    if before != mode.0 {
        let text = format!("mode {mode} was asked for, instead of {before}");
        state.report(Some(disk.name()), Severity::Info, &text);
    }
    Ok(())
}

/// Stops destaging.
pub(super) async fn pause(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Reply<DiskStats> {
    change(&state, &name, async |disk| {
        let was_paused = is_paused(disk).await?;
        disk.handle.pause(true).await?;
        if !was_paused {
            let text =
                format!("destaging was paused; 'forebay disk resume {name}' goes on with it");
            state.report(Some(&name), Severity::Warning, &text);
        }
        Ok(())
    })
    .await
}

/// Goes on with destaging.
pub(super) async fn resume(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Reply<DiskStats> {
    change(&state, &name, async |disk| {
        let was_detaching = disk.handle.stats().await?.is_detaching;
        // A detach is cancelled by it, also of a disk without a log.
        let was_paused = if was_detaching { false } else { is_paused(disk).await? };
        disk.handle.pause(false).await?;
        if was_detaching {
            state.report(Some(&name), Severity::Info, "the detach was cancelled: the disk goes on");
        }
        if was_paused {
            state.report(Some(&name), Severity::Info, "destaging goes on: it was resumed");
        }
        Ok(())
    })
    .await
}

async fn is_paused(disk: &ServedDisk) -> Result<bool> {
    let has_log = disk.info.write_log_bytes > 0;
    anyhow::ensure!(has_log, "it has no write log, so there is no destaging to pause or resume");
    let log = disk.handle.stats().await?.engine.log;
    Ok(log.is_some_and(|log| log.is_paused))
}

/// Flushes primary storage, for what is acknowledged without a log; answers when it is flushed.
pub(super) async fn flush(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Reply<serde_json::Value> {
    let disk = state.find(&name)?;
    let flushed = ask(&state, disk, async |disk| {
        // A flush that ends well brings back nothing of what was lost before.
        Ok(disk.handle.flush().await? && !disk.handle.has_untold_loss().await?)
    });
    match flushed.await {
        Ok(true) => Ok(Json(serde_json::json!({}))),
        Ok(false) => Err(refuse(
            StatusCode::BAD_GATEWAY,
            format!(
                "disk '{name}': primary storage failed the flush, or lost writes that no flush of a client has told of; what was \
                 written since the last good flush may be lost ('forebay events {name}' tells more)"
            ),
        )),
        Err(why) => Err(refuse(StatusCode::SERVICE_UNAVAILABLE, format!("disk '{name}': {why}"))),
    }
}

/// Drops what is cached.
pub(super) async fn drop_cache(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Reply<Dropped> {
    let disk = state.find(&name)?;
    let dropped = ask(&state, disk, async |disk| {
        // Whoever writes from now on is told of.
        let modified = disk.modified_up_to_now().await;
        let dropped = disk.advice.drop_cache(&disk.handle).await?;
        let noting = tokio::task::spawn_blocking(move || disk.deal_with_modified(modified));
        Ok((dropped, noting.await.map_err(anyhow::Error::from).flatten()))
    });
    let (dropped, noted) = dropped
        .await
        .map_err(|why| refuse(StatusCode::SERVICE_UNAVAILABLE, format!("disk '{name}': {why}")))?;
    let text = format!("the cache was dropped: {} blocks", dropped.blocks);
    state.report(Some(&name), Severity::Info, &text);
    if let Err(error) = noted {
        let text = format!(
            "the flash cannot note that the cache was dropped after somebody modified primary storage ({error:#}): the next \
             start drops it again, and refuses a write log that holds something. When the flash works, give 'forebay disk \
             drop-cache {name}' again"
        );
        state.report(Some(&name), Severity::Warning, &text);
    }
    Ok(Json(dropped))
}

/// Asks a disk for something, and once more whenever it was opened again before it has answered.
///
/// # Errors
/// Why it does not answer.
async fn ask<T>(
    state: &ControlState,
    mut disk: Arc<ServedDisk>,
    what: impl AsyncFn(Arc<ServedDisk>) -> Result<T, Gone>,
) -> Result<T, String> {
    loop {
        let gone = match what(disk.clone()).await {
            Ok(answer) => return Ok(answer),
            Err(gone) => gone,
        };
        // Whoever opens it again has this turn until then.
        drop(state.turns.resizing.lock().await);
        let now = state.as_it_is(&disk);
        if Arc::ptr_eq(&now, &disk) {
            return Err(disk.unopened().unwrap_or_else(|| gone.to_string()));
        }
        disk = now;
    }
}

/// Lets a disk have the size that primary storage has by now; answers when it has.
pub(super) async fn resize(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Reply<Resized> {
    let disk = state.find(&name)?;
    match grow(&state, disk).await {
        Ok(resized) => {
            if resized.after > resized.before {
                let (before, after) = (rounded(resized.before), rounded(resized.after));
                let text = format!("the disk was resized from {before} to {after}");
                state.report(Some(&name), Severity::Info, &text);
            }
            Ok(Json(resized))
        }
        Err(error) => Err(refuse(StatusCode::CONFLICT, format!("disk '{name}': {error:#}"))),
    }
}

async fn grow(state: &Arc<ControlState>, served: Arc<ServedDisk>) -> Result<Resized> {
    let _one = state.turns.resizing.lock().await;
    // It may have been opened again meanwhile.
    let served = state.as_it_is(&served);
    let disk = &served.handle;
    let before = disk.size();
    let look = match disk.measure(None).await? {
        Some(size) => Look { size, modified: None, changed: None },
        None => {
            let look = served.look(Probe::look_durably).await;
            let look = look.context("cannot see how long primary storage is")?;
            disk.measure(Some(look.size)).await?;
            look
        }
    };
    let after = look.size;
    if after > before {
        // A start after a crash has to know before anything is written there.
        let noting = served.clone();
        let noted = tokio::task::spawn_blocking(move || noting.grow_place(look)).await?;
        noted.context("its size cannot be noted")?;
        disk.grow(after).await?;
        tokio::task::spawn_blocking(state.tell_size(&served)).await?;
    }
    Ok(Resized { before, after })
}

/// What an administrator agrees to who ends a disk.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Consent {
    /// That its image is not where it was, or not what it was, or that a hypervisor has it and does not use it now.
    #[serde(default)]
    force: bool,
}

impl Consent {
    /// That of whoever waits for a detach which another one has begun, and looks after.
    pub(super) fn of_another() -> Consent {
        Consent { force: true }
    }

    /// Finds out whether a hypervisor has the disk, whose machine may be suspended, and whether primary storage is what was opened:
    /// otherwise the file that is open may be the last copy.
    ///
    /// # Errors
    /// One has, or it is not, and nobody agreed to that.
    pub(super) async fn check(&self, state: &ControlState, disk: &ServedDisk) -> Result<()> {
        let name = disk.name();
        // Why clients wait is told first, and how many are at work its shard says.
        let is_idle = disk.handle.stats().await.is_ok_and(|stats| stats.connections == 0);
        if !self.force && is_idle && disk.unopened().is_none() {
            let in_use = hypervisor_of(state, name).await;
            let text = in_use.map(|at| {
                format!(
                    "disk '{name}': a hypervisor is connected at {at}: its machine may be suspended, or about to start. Shut it down, \
                     or remove the device and its chardev, first. 'forebay disk detach {name} --force' ends the disk all the same"
                )
            });
            text.map_or(Ok(()), |text| Err(anyhow!(text)))?;
        }
        // One that is being opened again has no file open, and says so itself.
        if !disk.is_looked_at() {
            return Ok(());
        }
        let Some(standing) = disk.standing_now().await else { return Ok(()) };
        ensure!(
            self.force,
            "disk '{name}': {standing}: that is to be put right first. 'forebay disk detach {name} --force' ends the disk \
             all the same"
        );
        let text = format!("an administrator ends the disk with --force, although {standing}");
        state.report(Some(name), Severity::Warning, &text);
        Ok(())
    }
}

/// The socket of a disk at which a hypervisor is connected, and stays: one whose machine has ended a moment ago closes it.
async fn hypervisor_of(state: &ControlState, disk: &str) -> Option<String> {
    let asked = Instant::now();
    loop {
        let device = state.frontends.device(disk)?.info();
        if !device.is_connected {
            return None;
        }
        if asked.elapsed() > LEAVES_IN {
            return Some(device.socket);
        }
        tokio::time::sleep(LEAVES_IN / 20).await;
    }
}

/// Destages everything and ends the disk; answers when it has ended.
pub(super) async fn detach(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
    Query(consent): Query<Consent>,
) -> Reply<serde_json::Value> {
    let disk = state.find(&name)?;
    let ended = match consent.check(&state, &disk).await {
        Ok(()) => end(&state, &name, disk, &consent).await,
        Err(not) => Err(not),
    };
    match ended {
        Ok(None) => Ok(Json(serde_json::json!({ "detached": true }))),
        // Whoever asks takes a detach for one that leaves nothing behind.
        Ok(Some(kept)) => {
            let why = format!(
                "disk '{name}' was detached with --force, and its write log {kept}: 'forebay disk open {name}', or the next \
                 start, goes on with them"
            );
            Err(refuse(StatusCode::CONFLICT, why))
        }
        Err(error) => Err(refuse(StatusCode::CONFLICT, format!("{error:#}"))),
    }
}

/// Waits until everything is destaged and the disk has ended on its shard. That may take hours. When its image goes meanwhile,
/// the file that is open is the last copy: the detach is cancelled, and the disk goes on.
///
/// # Errors
/// The disk goes on.
async fn drain(state: &ControlState, disk: &ServedDisk, consent: &Consent) -> Result<Drained> {
    let mut detaching = std::pin::pin!(disk.handle.detach());
    let mut cancelled = None;
    loop {
        tokio::select! {
            ended = &mut detaching => {
                return match (ended, cancelled) {
                    (Err(_), Some(standing)) => {
                        let text = format!("the detach was cancelled: {standing}");
                        state.report(Some(disk.name()), Severity::Warning, &text);
                        Err(anyhow!(text))
                    }
                    (ended, _) => ended,
                };
            }
            () = tokio::time::sleep(LOOK_EVERY) => {
                if cancelled.is_none() && !consent.force && disk.is_looked_at() {
                    cancelled = cancel(&disk.handle, disk.standing_now().await).await;
                }
            }
        }
    }
}

/// Cancels a detach, of a disk whose primary storage was found like this; `None`: it was not, or the next look tries it again,
/// because the shard did not hear of it, or it has ended by itself.
async fn cancel(disk: &DiskHandle, standing: Option<String>) -> Option<String> {
    let standing = standing?;
    disk.pause(false).await.ok().map(|()| standing)
}

/// Destages everything and ends the disk. What its write log keeps, if it had ended already and cannot be opened again.
///
/// # Errors
/// It goes on, or did not end as it should; an event tells.
pub(super) async fn end(
    state: &Arc<ControlState>,
    name: &str,
    disk: Arc<ServedDisk>,
    consent: &Consent,
) -> Result<Option<String>> {
    if let Some(why) = disk.unopened() {
        ensure!(
            consent.force,
            "disk '{name}': {why}. 'forebay disk detach {name} --force' ends its clients, and leaves its write log as it is"
        );
        return give_up(state, &disk).await.with_context(|| format!("disk '{name}'"));
    }
    advice::settle(&disk).await;
    let drained = match drain(state, &disk, consent).await {
        Ok(drained) => drained,
        Err(why) => bail!("disk '{name}': {why:#}"),
    };
    // It stays its pool's and its sidecar's: whoever ends the daemon notes how it was left.
    ensure!(drained.is_detaching, "disk '{name}': it was not detached: the daemon ended");
    let disk = state.as_it_is(&disk);
    state.note_quiet(&disk, &drained);
    // Between two looks.
    let standing = if disk.is_looked_at() { disk.standing_now().await } else { None };
    let left = ending::left(&drained);
    let (noting, ended) = (disk.clone(), drained.clone());
    // It looks at primary storage once more, and may wait for it.
    let noted = tokio::task::spawn_blocking(move || noting.leave(&ended)).await?;
    let trouble = match (left, noted) {
        (Left::NotSafe(why), Ok(_)) => why,
        (Left::NotSafe(why), Err(error)) => format!("{why}. Besides: {error:#}"),
        (Left::InLog(bytes), _) => format!(
            "it ended before all was destaged: {} that primary storage does not have are durable in its write log; {}",
            rounded(bytes),
            ending::to_go_on(state.is_listed(name))
        ),
        (Left::OnPrimaryStorage, Err(error)) => format!(
            "primary storage has everything, but the flash still has the disk's record: {error:#}"
        ),
        (Left::OnPrimaryStorage, Ok(warning)) => {
            state.note_ended(&disk, None);
            if let Some(warning) = warning {
                state.report(Some(name), Severity::Warning, &warning);
            }
            let (severity, text) = match &standing {
                None => {
                    let text = "the disk was detached: primary storage has everything";
                    (Severity::Info, text.to_owned())
                }
                Some(standing) if consent.force => {
                    (Severity::Info, format!("the disk was detached with --force: {standing}"))
                }
                Some(standing) => {
                    (Severity::Error, format!("the disk was detached, and meanwhile {standing}"))
                }
            };
            state.report(Some(name), severity, &text);
            // This first: the daemon may end now, and waits for whoever has begun with that.
            state.close_unused_flash().await;
            close_places(state);
            ensure!(severity == Severity::Info, "disk '{name}': {text}");
            return Ok(None);
        }
    };
    let trouble =
        format!("it was not detached as it should be, and is not served any more: {trouble}");
    state.report(Some(name), Severity::Error, &trouble);
    state.note_ended(&disk, Some(trouble.clone()));
    close_places(state);
    bail!("disk '{name}': {trouble}")
}

/// Ends the clients of a disk that cannot be opened again, which is opened no more. What its write log keeps.
///
/// # Errors
/// Its clients wait on, or go on.
async fn give_up(state: &Arc<ControlState>, disk: &Arc<ServedDisk>) -> Result<Option<String>> {
    let (text, kept) = {
        let _nobody_opens_it = state.opening_turn().await?;
        let waits = state.waiting_for_opening(disk.name());
        ensure!(
            waits.is_some_and(|waits| Arc::ptr_eq(&waits, disk)),
            "it is just being opened, or goes on: ask again"
        );
        if let Err(error) = disk.handle.dismiss_clients().await {
            // A queue that left has nobody else who tells the hypervisor: it would wait for it for ever.
            if let Some(device) = state.frontends.device(disk.name()) {
                device.end_session();
            }
            return Err(error);
        }
        let spec = state.opener.spec();
        let configured = spec.disks.iter().find(|it| it.name.0 == disk.name());
        let kept = match configured {
            Some(configured) => kept::in_log(state, configured).await,
            None => None,
        };
        let why = disk.unopened().unwrap_or_default();
        let log = kept.as_ref().map_or(String::new(), |kept| format!(". Its write log {kept}"));
        let text = format!("the disk was detached with --force, and its clients ended: {why}{log}");
        let given_up = |kept| {
            format!(
                "it was detached with --force, and its write log {kept}: 'forebay disk open {}' goes on with it",
                disk.name()
            )
        };
        disk.note_unopened(kept.as_ref().map(given_up));
        state.note_ended(disk, None);
        (text, kept)
    };
    state.report(Some(disk.name()), Severity::Warning, &text);
    state.close_unused_flash().await;
    close_places(state);
    Ok(kept)
}

/// Closes where nobody is to find a disk any more; whoever asked for its end is answered meanwhile.
pub(super) fn close_places(state: &Arc<ControlState>) {
    let state = state.clone();
    tokio::spawn(async move { state.close_unused_places().await });
}

async fn change(
    state: &ControlState,
    name: &str,
    work: impl AsyncFnOnce(&ServedDisk) -> Result<()>,
) -> Reply<DiskStats> {
    let disk = state.find(name)?;
    match work(&disk).await {
        Ok(()) => state.stats_of(&disk).await,
        Err(error) => Err(refuse(StatusCode::CONFLICT, format!("disk '{name}': {error:#}"))),
    }
}

#[cfg(test)]
mod tests {
    use forebay_shard::testing;

    use super::*;

    #[tokio::test]
    async fn a_detach_is_not_cancelled_before_the_shard_has_heard_of_it() {
        let (disk, shard) = testing::hung(1 << 20);
        assert_eq!(cancel(&disk, None).await, None);
        while disk.figures().is_ok() {}
        assert_eq!(cancel(&disk, Some("it is gone".into())).await, None);
        drop(shard);
    }
}
