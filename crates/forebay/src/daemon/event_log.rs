//! The event log of a daemon, with the file in its state folder that keeps events over a restart.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use forebay_host::events::{EventFile, EventLog, EventSender, Severity};
use forebay_host::folders;
use tokio::time::timeout;

use crate::config::DaemonSpec;

/// Time that the state folder has to give the events of earlier runs.
const READ_TIME_MAX: Duration = Duration::from_secs(5);

/// Starts the log. Without a state folder, or where that fails, events are those of this run.
///
/// # Errors
/// There is no thread.
pub(super) async fn start(spec: &DaemonSpec) -> Result<(Arc<EventLog>, EventSender)> {
    let (file, trouble) = match file(spec).await {
        Ok(file) => (file, None),
        Err(trouble) => (None, Some(trouble)),
    };
    let (log, events) = EventLog::start(file).context("no thread for the event log")?;
    if let Some(text) = trouble {
        events.report(None, Severity::Warning, text);
    }
    Ok((log, events))
}

/// The file, if there is a state folder. A disk that is served to be measured has no configuration that could change, and the
/// events of another daemon are not its own.
///
/// # Errors
/// Why it cannot be had, in words. A folder that hangs is not waited for.
async fn file(spec: &DaemonSpec) -> Result<Option<EventFile>, String> {
    if spec.sources.is_none() {
        return Ok(None);
    }
    let Some(state) = spec.state_dir.clone().or_else(folders::state_folder) else {
        return Ok(None);
    };
    let (name, path) = (spec.name.to_string(), EventFile::path(&state, &spec.name.0));
    let opening = tokio::task::spawn_blocking(move || EventFile::open(&state, &name));
    let opened = match timeout(READ_TIME_MAX, opening).await {
        Ok(opened) => opened.map_err(io::Error::other).flatten(),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    opened.map(Some).map_err(|error| {
        format!("events are not kept over a restart, {} cannot be had: {error}", path.display())
    })
}
