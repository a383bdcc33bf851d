//! Requests of the control socket for what a disk observed of its own requests.
//!
//! A disk's shard copies a bounded batch into memory that it is handed, and nothing more: whoever asks, however slow, keeps
//! what is to be told here, not there.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forebay_core::characteristics::Kind;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use forebay_core::observer::Recorded;
use forebay_io::clock;

use super::api::{RECORDS_MAX, RecordLine, Records};
use super::control::{ControlState, refuse};

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordsQuery {
    /// Number of the first request wanted.
    #[serde(default)]
    from: u64,
    /// How many.
    max: Option<u64>,
    /// Also those that have no answer yet.
    #[serde(default)]
    unanswered: bool,
}

/// Hands requests over that the flight recorder has, a batch at a time.
pub(super) async fn records(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
    query: Result<Query<RecordsQuery>, QueryRejection>,
) -> Response {
    let index = match state.find(&name) {
        Ok(index) => index,
        Err(refusal) => return *refusal,
    };
    let Query(RecordsQuery { from, max, unanswered }) = match query {
        Ok(query) => query,
        Err(wrong) => return refuse(StatusCode::BAD_REQUEST, wrong.body_text()),
    };
    let max = max.unwrap_or(RECORDS_MAX).min(RECORDS_MAX);
    // Touched here, so that the shard does not wait for the kernel to give it pages.
    let none = ByteRange::at(0, 0);
    let none = Recorded { time: Nanos(0), kind: Kind::Read, range: none, latency: None };
    let mut batch = vec![none; max as usize];
    let looked = state.disks[index].observe(move |observer| {
        let recorder = &observer.recorder;
        batch.clear();
        let first = recorder.read(from, max, unanswered, &mut batch);
        let (capacity, oldest, next) = (recorder.capacity(), recorder.oldest(), recorder.next());
        (batch, Records { first, capacity, oldest, next, ..Records::default() }, observer.others())
    });
    let (batch, records, others) = match looked.await {
        Ok(looked) => looked,
        Err(gone) => {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, format!("disk '{name}': {gone}"));
        }
    };
    if records.capacity == 0 {
        let why = format!(
            "disk '{name}' has no flight recorder: start it with another --recorder than 0 (recorder = \"8MiB\" in a file)"
        );
        return refuse(StatusCode::CONFLICT, why);
    }
    let requests = batch.iter().map(line).collect();
    let (pid, now_ns) = (state.daemon.pid, clock::now_nanos());
    Json(Records { pid, now_ns, others, requests, ..records }).into_response()
}

fn line(recorded: &Recorded) -> RecordLine {
    let Recorded { time, kind, range, latency } = *recorded;
    let (is_write, latency) = (kind == Kind::Write, latency.map(|latency| latency.0));
    RecordLine(time.0, is_write, range.start, range.len(), latency)
}
