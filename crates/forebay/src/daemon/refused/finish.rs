//! What was done about a disk on a thread of its own, and what comes of it: the disk is served, or refused.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use forebay_host::events::Severity;
use forebay_host::fence::resolve::Decision;
use tokio::time::timeout;

use super::{about, find, not_everywhere, silent};
use crate::config::DiskSpec;
use crate::daemon::control::{ControlState, lock};
use crate::daemon::opener::Opener;
use crate::daemon::opening::Opened;
use crate::daemon::questions::{Answer, late};
use crate::daemon::reopen::TAKES_LONG;
use crate::daemon::systemd;

/// What was done about a disk on a thread of its own.
pub(super) struct Done {
    /// What came of a decision.
    pub(super) warnings: Vec<String>,
    /// None: it is opened beneath clients who wait.
    pub(super) opened: Option<Result<Opened>>,
}

/// Serves a disk that was opened; what somebody has to know of that, and of a decision.
pub(super) async fn finish(
    state: &Arc<ControlState>,
    spec: &DiskSpec,
    decision: Option<Decision>,
    done: Result<Done>,
) -> Result<Vec<String>> {
    let (name, Done { mut warnings, opened }) = (&spec.name.0, done?);
    if let Some(decision) = &decision {
        tell_decided(state, name, decision, &warnings);
    }
    let ready = match opened {
        None => return Ok(warnings),
        Some(Ok(opened)) => state.opener.hand_over(spec, opened).await,
        Some(Err(error)) => Err(error),
    };
    let ready = match ready {
        Ok(ready) => ready,
        Err(error) => {
            let reason = state.refuse(spec, &error);
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
        warnings.push(not_everywhere(state, name, &error));
    }
    Ok(warnings)
}

fn tell_decided(state: &ControlState, name: &str, decision: &Decision, warnings: &[String]) {
    let text = format!("an administrator has decided: {}", decision.done());
    let text = warnings.iter().fold(text, |text, warning| format!("{text}; {warning}"));
    state.report(Some(name), Severity::Warning, &text);
}

/// The same of one that took longer than a turn, unless it is to be another one by now. Until then it is nobody else's.
pub(super) async fn finish_late(
    state: Arc<ControlState>,
    spec: DiskSpec,
    decision: Option<Decision>,
    answer: Answer<Result<Done>>,
) {
    let Some((done, out)) = late(answer).await else { return };
    let _one = loop {
        if let Ok(one) = state.opening_turn().await {
            break one;
        }
    };
    let name = &spec.name.0;
    let is_changing = lock(&state.turns.changing).contains(name);
    if is_changing || state.is_ending() || find(&state, name).ok().as_ref() != Some(&spec) {
        if let (Some(decision), Ok(done)) = (&decision, &done) {
            tell_decided(&state, name, decision, &done.warnings);
        }
        // It lets go of all that it has, and may wait for that.
        let _ = tokio::task::spawn_blocking(move || drop((done, out))).await;
        // Nobody may have another disk there.
        return state.close_flash_but_of("").await;
    }
    let decides = decision.is_some() && done.is_err();
    if let Err(error) = finish(&state, &spec, decision, done).await
        && decides
    {
        let text = format!("nothing was decided: {error:#}");
        state.report(Some(name), Severity::Error, &text);
    }
    drop(out);
}

/// How far a disk has come that is opened at the start.
pub(in crate::daemon) enum Opening {
    /// It is open.
    Done(Box<Opened>),
    /// That takes longer.
    Late(Box<Late>),
}

/// A disk whose opening takes longer than a start waits for it.
pub(in crate::daemon) struct Late {
    spec: DiskSpec,
    answer: Answer<Result<Done>>,
}

impl Late {
    /// Tells that it is not served yet.
    pub(in crate::daemon) fn refuse(&self, state: &ControlState) {
        state.refuse(&self.spec, &anyhow!(TAKES_LONG));
    }

    /// Serves it when it is open.
    pub(in crate::daemon) async fn follow(self, state: Arc<ControlState>) {
        finish_late(state, self.spec, None, self.answer).await;
    }
}

/// Opens a disk at the start, and waits so long for that.
///
/// # Errors
/// It cannot be opened.
pub(in crate::daemon) async fn open_at_start(
    opener: &Arc<Opener>,
    spec: &DiskSpec,
    patience: Duration,
) -> Result<Opening> {
    let (opening, of) = (opener.clone(), spec.clone());
    let open = move || Ok(Done { warnings: Vec::new(), opened: Some(opening.open(&of)) });
    let mut answer = opener.questions.begin(about(spec), open).map_err(silent)?;
    match timeout(patience, &mut answer).await {
        Ok(answer) => {
            let (done, _out) = answer.context("nobody could open it")?;
            let opened = done?.opened.context("nobody was asked to open it")?;
            opened.map(|opened| Opening::Done(Box::new(opened)))
        }
        Err(_) => Ok(Opening::Late(Box::new(Late { spec: spec.clone(), answer }))),
    }
}
