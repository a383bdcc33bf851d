//! The texts of scrapes. Clients of the HTTP port share them: many clients, or one that asks without a pause, cost the shards
//! no more than one client does.
//!
//! ```text
//!   shared ──lock──► a young text? ──yes──► it
//!                         └─ no ──► collect ──► a thread writes the text ──► kept for the next
//! ```
//! The lock is held until the text is there, so one text is written at a time. A text has megabytes where there are a thousand
//! disks. The control socket, which belongs to the user of the daemon, shares nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use tokio::sync::Mutex;
use tokio::task::{JoinError, spawn, spawn_blocking};

use super::{Format, collect};
use crate::daemon::control::ControlState;

/// The last text in each format, and when it was ready.
pub(super) type Texts = Arc<Mutex<BTreeMap<Format, (Instant, Bytes)>>>;

/// A scrape as text: the last one if it is younger than `age_max`, or a new one.
///
/// # Errors
/// The text cannot be written.
pub(in crate::daemon) async fn shared(
    state: &Arc<ControlState>,
    format: Format,
    age_max: Duration,
) -> Result<Bytes, JoinError> {
    let mut texts = state.metrics.texts.clone().lock_owned().await;
    if let Some((ready, text)) = texts.get(&format)
        && ready.elapsed() < age_max
    {
        return Ok(text.clone());
    }
    let state = state.clone();
    // The client may leave meanwhile. This scrape ends nevertheless before the next one begins.
    let scrape = spawn(async move {
        let scrape = collect(&state).await;
        let text = Bytes::from(spawn_blocking(move || scrape.text(format)).await?);
        texts.insert(format, (Instant::now(), text.clone()));
        Ok(text)
    });
    scrape.await?
}
