//! Requests of the control socket that change what disks are configured to be, and show it.
//!
//! ```text
//!   set, reset, add ─► Sources with the change ─► DaemonSpec, checked ─► differences of this disk ─┬─ dry run: that is all
//!                                                                                                   ▼
//!                             what was before ◄─ failed ─ taken over as by a reload ◄─ kept durably
//!   remove ─► Sources without it, checked ─► detached ─► kept durably, forgotten
//! ```
//! A change is kept in the state folder, and counts more than the configuration file. A daemon without a file keeps it as
//! long as it runs.
//!
//! **Invariant:** whenever the host dies, a start finds a disk where its log is. One that is opened again may leave its pool:
//! its change is kept after its log is empty and it has ended there, and before it is opened elsewhere.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use forebay_host::events::Severity;
use toml::{Table, Value};

use super::api::{Change, ConfigInfo, Origin, Reloaded, Removed, SettingInfo};
use super::change::Consent;
use super::control::{ControlState, Reply, refuse};
use super::frontends::Missing;
use super::questions::FLASH_MAX;
use super::{change, dry_run, kept, placement, refused, reload};
use crate::config::difference::{Difference, differences};
use crate::config::sources::Sources;
use crate::config::values::{Name, Size};
use crate::config::{DaemonSpec, DiskSpec};

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    #[serde(default)]
    dry_run: bool,
    /// Keys, with commas in between; of `reset` alone.
    #[serde(default)]
    keys: String,
}

/// What a change works on. It returns the keys that it names.
struct Before<'a> {
    sources: &'a mut Sources,
    spec: &'a DaemonSpec,
}

/// Changes settings of a disk.
pub(super) async fn set(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<Name>,
    Query(wish): Query<Wish>,
    settings: Result<Json<Table>, JsonRejection>,
) -> Reply<Reloaded> {
    let Json(settings) = settings?;
    let of = name.clone();
    let has_mode = settings.contains_key("mode");
    let edit = move |before: Before<'_>| {
        let disk = disk_of(before.spec, &of)?;
        ensure!(!settings.contains_key("name"), "a disk keeps its name");
        ensure!(
            before.sources.file.is_some() || !settings.contains_key("nbd"),
            "{}",
            only_at_start(&["nbd"])
        );
        let mut settings = settings;
        keep_log(disk, before.sources, &mut settings);
        before.sources.changes.set(&of, &settings);
        Ok(settings.keys().cloned().collect())
    };
    let Json(reloaded) = carry_out(state.clone(), name.clone(), wish.dry_run, edit).await?;
    let has_changed = reloaded.changes.iter().all(|change| change.error.is_none());
    if has_changed
        && !wish.dry_run
        && has_mode
        && let Ok(disk) = state.find(&name.0)
        && let Some(mode) = state.opener.spec().disks.iter().find(|it| it.name == name).map(|it| it.mode)
        // To ask for the mode that it has cancels a detach.
        && let Err(error) = change::ask_for_mode(&state, &disk, mode).await
    {
        return Err(refuse(StatusCode::CONFLICT, format!("disk '{name}': {error:#}")));
    }
    Ok(Json(reloaded))
}

/// Takes changes of a disk back: it is as the file says.
pub(super) async fn reset(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<Name>,
    Query(wish): Query<Wish>,
) -> Reply<Reloaded> {
    let of = name.clone();
    let keys: Vec<String> =
        wish.keys.split(',').filter(|key| !key.is_empty()).map(str::to_owned).collect();
    let edit = move |before: Before<'_>| {
        let sources = before.sources;
        let is_added = sources.changed(&of, "backend").is_some();
        ensure!(
            sources.file.is_none() || sources.has(&of) || !is_added,
            "it was added while Forebay ran, and the configuration file does not have it: 'forebay disk remove {of}' takes that back"
        );
        ensure!(sources.changes.reset(&of, &keys), "nothing of that was changed while Forebay ran");
        Ok(keys)
    };
    carry_out(state, name, wish.dry_run, edit).await
}

/// Adds a disk and serves it.
pub(super) async fn add(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<Name>,
    Query(wish): Query<Wish>,
    settings: Result<Json<Table>, JsonRejection>,
) -> Reply<Reloaded> {
    let Json(settings) = settings?;
    let (of, served) = (name.clone(), state.clone());
    let edit = move |before: Before<'_>| {
        check_has_file(before.sources)?;
        ensure!(!settings.contains_key("name"), "the name of the disk is that of the request");
        ensure!(
            settings.contains_key("backend"),
            "'backend' is missing: the URI of primary storage"
        );
        let is_known = before.spec.disks.iter().any(|disk| disk.name == of);
        ensure!(
            !is_known || !served.is_detached(&of),
            "there is such a disk already, which was detached: 'forebay disk open {of}' has it served again"
        );
        ensure!(!is_known, "there is such a disk already; 'forebay disk set {of}' changes it");
        ensure!(
            !before.sources.has(&of),
            "the configuration file has such a disk, which was removed while Forebay ran: 'forebay disk reset {of}' brings it back"
        );
        before.sources.changes.add(&of, &settings);
        Ok(Vec::new())
    };
    carry_out(state, name, wish.dry_run, edit).await
}

/// Detaches a disk for good.
pub(super) async fn remove(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<Name>,
    Query(consent): Query<Consent>,
) -> Reply<Removed> {
    match end(&state, &name, &consent).await {
        Ok(left) => Ok(Json(Removed { removed: true, left })),
        Err(error) => Err(refuse(StatusCode::CONFLICT, format!("{error:#}"))),
    }
}

/// Destages everything, ends the disk, and serves it no more after a restart either. What its log keeps, if it was not served.
///
/// # Errors
/// It is served as before, or has ended and comes back with a restart.
async fn end(state: &Arc<ControlState>, name: &Name, consent: &Consent) -> Result<Option<String>> {
    let spec = state.opener.spec();
    check_has_file(spec.sources.as_ref().context("it has no configuration that could change")?)?;
    let disk = disk_of(&spec, name).with_context(|| format!("disk '{name}'"))?;
    check_without(state, name).await.with_context(|| format!("disk '{name}' was not removed"))?;
    let served = state.find(&name.0);
    let was_served = served.is_ok();
    let kept = match served {
        Ok(served) => {
            consent.check(state, &served).await?;
            change::end(state, &name.0, served, consent).await?
        }
        Err(_) => kept::in_log(state, disk).await,
    };
    let left = kept.map(|kept| kept::left_in_log(&kept, name));
    let _one = state.turns.reloading.lock().await;
    let comes_back =
        || format!("disk '{name}' was detached, and a restart serves it again as it was");
    // The file may have named it meanwhile.
    check_without(state, name).await.with_context(comes_back)?;
    let is_forgotten = state.forget(&name.0).await?;
    ensure!(is_forgotten, "disk '{name}' was detached, and is served again since");
    let spec = state.opener.spec();
    let sources = without(&spec, name)?;
    keep(&sources).await.with_context(comes_back)?;
    state.opener.change_spec(DaemonSpec { sources: Some(sources), ..(*spec).clone() });
    // Those that are left are found as they are listed now.
    change::close_places(state);
    state.report(Some(&name.0), Severity::Info, "the disk was removed from the configuration");
    if let Some(left) = &left {
        state.report(Some(&name.0), Severity::Warning, left);
        // Whoever asks takes the end of a disk that is served for one that leaves nothing behind.
        ensure!(!was_served, "disk '{name}' was removed with --force, and {left}");
    }
    Ok(left)
}

/// The configuration without a disk.
fn without(spec: &DaemonSpec, name: &Name) -> Result<Sources> {
    let mut sources = spec.sources.clone().context("it has no configuration that could change")?;
    let is_listed = sources.has(name);
    sources.changes.remove(name, is_listed);
    sources.note_units(&spec.targets);
    Ok(sources)
}

/// Whether a start could use the configuration without a disk.
///
/// # Errors
/// None could: the file names the disk elsewhere, for instance. Or a path that has to be followed does not answer.
async fn check_without(state: &ControlState, name: &Name) -> Result<()> {
    let spec = state.opener.spec();
    let after = without(&spec, name)?;
    let checked = move || after.spec_after(&spec).map(drop);
    placement::follow(&state.opener.questions, FLASH_MAX, checked).await?.with_context(|| {
        format!(
            "without it no start could use the configuration: first correct the file and give 'forebay reload'. If the disk \
             would have no address then, give it one of its own before: 'forebay disk set {name} --nbd unix:PATH'"
        )
    })
}

/// The settings of a disk, and where each comes from.
pub(super) async fn settings(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<Name>,
) -> Reply<Vec<SettingInfo>> {
    let spec = state.opener.spec();
    let shown = async || -> Result<Vec<SettingInfo>> {
        let disk = disk_of(&spec, &name)?;
        let sources = spec.sources.as_ref().context("it has no configuration")?;
        let (of, known, questions) = (sources.clone(), spec.clone(), &state.opener.questions);
        let asked = move || of.spec_after(&known);
        let asked = placement::follow(questions, FLASH_MAX, asked).await??;
        let served = placement::served(&state, &spec);
        let asked = placement::kept(questions, asked, served, FLASH_MAX).await?;
        let asked = asked.disks.iter().find(|it| it.name == name).map(DiskSpec::settings);
        let asked = asked.unwrap_or_default();
        let requested = |key: &str, value: &String| {
            let found = asked.iter().find(|(known, _)| *known == key).map(|(_, asked)| asked);
            found.filter(|asked| *asked != value).cloned()
        };
        let mut all = disk.settings();
        let listeners = spec.listeners.iter().filter(|it| it.disks.contains(&name));
        let addresses: Vec<String> = listeners.map(|it| it.address.to_string()).collect();
        all.push(("nbd", addresses.join(", ")));
        let info = |(key, value): (&str, String)| SettingInfo {
            key: key.to_owned(),
            requested: requested(key, &value),
            origin: origin(sources, &name, key),
            replaces: sources.changed(&name, key).and_then(|_| sources.said(&name, key)),
            value,
        };
        Ok(all.into_iter().map(info).collect())
    };
    shown()
        .await
        .map(Json)
        .map_err(|error| refuse(StatusCode::NOT_FOUND, format!("disk '{name}': {error:#}")))
}

/// The configuration file, and what was changed since.
pub(super) async fn config(State(state): State<Arc<ControlState>>) -> Reply<ConfigInfo> {
    let spec = state.opener.spec();
    let Some(sources) = &spec.sources else {
        let why = "this daemon has no configuration".to_owned();
        return Err(refuse(StatusCode::NOT_FOUND, why));
    };
    let shown = |path: &std::path::PathBuf| path.display().to_string();
    Ok(Json(ConfigInfo {
        file: sources.file.as_ref().map(shown),
        kept: sources.kept.as_ref().map(shown),
        changes: sources.changes.clone(),
    }))
}

fn origin(sources: &Sources, name: &Name, key: &str) -> Origin {
    match (sources.changed(name, key), sources.said(name, key)) {
        (Some(_), _) => Origin::Online,
        (None, Some(_)) if sources.file.is_some() => Origin::File,
        (None, Some(_)) => Origin::CommandLine,
        (None, None) => Origin::Default,
    }
}

/// A mode without a log keeps the log that the disk has, so that it can come back.
fn keep_log(disk: &DiskSpec, sources: &Sources, settings: &mut Table) {
    let key = "write-log";
    let is_said = sources.said(&disk.name, key).is_some()
        || sources.changed(&disk.name, key).is_some()
        || settings.contains_key(key);
    if let (Some(log), false, true) = (&disk.write_log, is_said, settings.contains_key("mode")) {
        settings.insert(key.to_owned(), Value::String(Size(log.bytes).to_string()));
    }
}

fn check_has_file(sources: &Sources) -> Result<()> {
    ensure!(
        sources.file.is_some(),
        "this daemon serves the one disk of its command line; 'forebay serve' serves several, and adds and removes them"
    );
    Ok(())
}

fn disk_of<'a>(spec: &'a DaemonSpec, name: &Name) -> Result<&'a DiskSpec> {
    spec.disks.iter().find(|disk| disk.name == *name).context("there is no such disk here")
}

/// Carries out a change; answers with what changed.
async fn carry_out(
    state: Arc<ControlState>,
    name: Name,
    dry_run: bool,
    edit: impl FnOnce(Before<'_>) -> Result<Vec<String>>,
) -> Reply<Reloaded> {
    let changed = change_config(&state, &name, dry_run, edit).await;
    changed
        .map(Json)
        .map_err(|error| refuse(StatusCode::CONFLICT, format!("disk '{name}': {error:#}")))
}

/// Carries out a change of a disk's configuration.
async fn change_config(
    state: &Arc<ControlState>,
    name: &Name,
    dry_run: bool,
    edit: impl FnOnce(Before<'_>) -> Result<Vec<String>>,
) -> Result<Reloaded> {
    let _one = state.turns.reloading.lock().await;
    let old = state.opener.spec();
    let before = old.sources.clone().context("it has no configuration that could change")?;
    let mut after = before.clone();
    let keys = edit(Before { sources: &mut after, spec: &old })?;
    let (sources, known, of) = (after.clone(), old.clone(), name.clone());
    let asked = move || sources.spec_after_change(&before, &known, (&of, &keys));
    let asked = placement::follow(&state.opener.questions, FLASH_MAX, asked).await??;
    let new = reload::prepared(state, asked).await?;
    // With the numbers of its units.
    let after = new.sources.as_ref().unwrap_or(&after);
    // Others' changes that wait for a restart are not of this one.
    let is_of_it = |it: &Difference| matches!(it, Difference::Listeners) || it.disk() == Some(name);
    let found: Vec<Difference> = differences(&old, &new).into_iter().filter(is_of_it).collect();
    let late = found.iter().find_map(|it| match it {
        Difference::AtNextStart(_, keys) if after.file.is_none() => Some(keys),
        _ => None,
    });
    if let Some(keys) = late {
        bail!(only_at_start(keys));
    }
    let mut changes: Vec<Change> = found.iter().map(reload::shown_as).collect();
    if dry_run {
        dry_run::try_out(state, &new, &found, &mut changes).await;
    } else {
        after.check_place()?;
        // One that is opened again may be elsewhere then: that is kept while it is open nowhere.
        if !found.iter().any(|it| matches!(it, Difference::OpenedAgain(..))) {
            keep(after).await?;
        }
        let mut missing = reload::take_over(state, &new, Some(name), &found, &mut changes).await;
        let has_failed = changes.iter().any(|change| change.error.is_some());
        let comes_back = after.has(name) && found.contains(&Difference::Added(name.clone()));
        if has_failed && !(comes_back && waits_for_decision(state, name)) {
            missing = take_back(state, name, &old, &found).await;
        }
        state.close_unused_places().await;
        refused::tell_missing(state, missing);
    }
    let file = after.file.as_ref().map(|file| file.display().to_string());
    Ok(Reloaded { file, dry_run, changes, overridden: Vec::new() })
}

/// Whether a disk is not served before somebody has decided. One that is not configured could not be decided about.
fn waits_for_decision(state: &ControlState, name: &Name) -> bool {
    state.refused().iter().any(|it| it.name == name.0 && !it.is_tried_again)
}

/// Why a daemon without a configuration file does not change these.
fn only_at_start(keys: &[&str]) -> String {
    let options: Vec<String> = keys.iter().map(|key| format!("--{key}")).collect();
    format!(
        "only a start changes {}, and the command line of this daemon says it: start it with other options",
        options.join(" and ")
    )
}

/// What could not be made is not asked for any more. The disks that clients do not find everywhere.
async fn take_back(
    state: &Arc<ControlState>,
    name: &Name,
    old: &DaemonSpec,
    found: &[Difference],
) -> Vec<(String, Missing)> {
    // One that was added, and is served but not everywhere, or that somebody is opening, stays.
    let is_new = found.iter().any(|it| matches!(it, Difference::Added(_)));
    if is_new {
        match state.forget(&name.0).await {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(error) => {
                let spec = state.opener.spec();
                let disk = spec.disks.iter().find(|disk| disk.name == *name);
                if let Some(disk) = disk.filter(|_| state.find(&name.0).is_err()) {
                    state.refuse(disk, &error);
                }
                return Vec::new();
            }
        }
    }
    // What cannot be taken back stays asked for: a start finds the disk where it is.
    let mut sources = state.opener.spec().sources.clone();
    match change_back(state, name, old).await {
        Ok(()) => sources.clone_from(&old.sources),
        Err(error) => {
            let text = format!("what the disk has taken over cannot be taken back: {error:#}");
            state.report(Some(&name.0), Severity::Error, &text);
        }
    }
    if let Some(sources) = &sources
        && let Err(error) = keep(sources).await
    {
        state.report(Some(&name.0), Severity::Error, &format!("{error:#}"));
    }
    let spec = (*state.opener.spec()).clone();
    // Nobody has closed the places of before.
    let listeners = old.listeners.clone();
    state.opener.change_spec(DaemonSpec { sources, listeners, ..spec });
    state.attach_all().await
}

/// What the disk has taken over, at work or opened again, goes back to what was in force with `old`.
async fn change_back(state: &Arc<ControlState>, name: &Name, old: &DaemonSpec) -> Result<()> {
    let now = state.opener.spec();
    let (sources, listeners) = (old.sources.clone(), old.listeners.clone());
    let mut asked = DaemonSpec { sources, listeners, ..(*now).clone() };
    let before = old.disks.iter().find(|disk| disk.name == *name);
    let disks = asked.disks.iter_mut().filter(|disk| disk.name == *name);
    disks.zip(before).for_each(|(disk, before)| disk.clone_from(before));
    let mut found = differences(&now, &asked);
    found.retain(|it| match it {
        Difference::Changed(disk, _) | Difference::OpenedAgain(disk, ..) => disk == name,
        _ => false,
    });
    if found.is_empty() {
        return Ok(());
    }
    let mut changes: Vec<Change> = found.iter().map(reload::shown_as).collect();
    reload::take_over(state, &asked, Some(name), &found, &mut changes).await;
    match changes.into_iter().find_map(|change| change.error) {
        Some(error) => bail!(error),
        None => Ok(()),
    }
}

/// What a start finds of a disk that is opened again by a command. By default nothing is kept.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    /// As long as the disk is what it was.
    pub(super) before: Option<Sources>,
    pub(super) after: Option<Sources>,
}

impl Keeping {
    /// Keeps what the disk is from now on.
    ///
    /// # Errors
    /// As [`keep`].
    pub(super) async fn keep(&self) -> Result<()> {
        match &self.after {
            Some(sources) => keep(sources).await,
            None => Ok(()),
        }
    }

    /// Keeps what it was before.
    ///
    /// # Errors
    /// As [`keep`].
    pub(super) async fn take_back(&self) -> Result<()> {
        match &self.before {
            Some(sources) => keep(sources).await,
            None => Ok(()),
        }
    }
}

/// Keeps what was changed, as files of this host.
pub(super) async fn keep(sources: &Sources) -> Result<()> {
    let sources = sources.clone();
    tokio::task::spawn_blocking(move || sources.keep()).await?
}
