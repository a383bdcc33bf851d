//! Requests of the control socket for what a disk observed of its own requests.
//!
//! A disk's shard copies a bounded batch into memory that it is handed, and nothing more: whoever asks, however slow, keeps
//! what is to be told here, not there.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use forebay_core::characteristics::Kind;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use forebay_core::observer::{Counting, Observer, Recorded};
use forebay_io::clock;
use forebay_trace::characterise::{Device, named};
use forebay_trace::mrc;

use super::api::{
    CACHE_SIZES_MAX, Curves, Histograms, HistogramsChange, RECORDS_MAX, RecordLine, Records,
};
use super::control::{ControlState, Refusal, Reply, refuse};
use super::served::ServedDisk;

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
) -> Reply<Records> {
    let disk = state.find(&name)?;
    let Query(RecordsQuery { from, max, unanswered }) = query?;
    let max = max.unwrap_or(RECORDS_MAX).min(RECORDS_MAX);
    // Touched here, so that the shard does not wait for the kernel to give it pages.
    let none = ByteRange::at(0, 0);
    let none = Recorded { time: Nanos(0), kind: Kind::Read, range: none, latency: None };
    let mut batch = vec![none; max as usize];
    let look = move |observer: &mut Observer| {
        let recorder = &observer.recorder;
        batch.clear();
        let first = recorder.read(from, max, unanswered, &mut batch);
        let (capacity, oldest, next) = (recorder.capacity(), recorder.oldest(), recorder.next());
        (batch, Records { first, capacity, oldest, next, ..Records::default() }, observer.others())
    };
    let (batch, records, others) = observe(&disk, look).await?;
    if records.capacity == 0 {
        let why = format!(
            "disk '{name}' has no flight recorder: start it with another --recorder than 0 (recorder = \"8MiB\" in a file)"
        );
        return Err(refuse(StatusCode::CONFLICT, why));
    }
    let requests = batch.iter().map(line).collect();
    let (pid, now_ns) = (std::process::id(), clock::now_nanos());
    Ok(Json(Records { pid, now_ns, others, requests, ..records }))
}

fn line(recorded: &Recorded) -> RecordLine {
    let Recorded { time, kind, range, latency } = *recorded;
    let (is_write, latency) = (kind == Kind::Write, latency.map(|latency| latency.0));
    RecordLine(time.0, is_write, range.start, range.len(), latency)
}

/// What `look` finds.
///
/// # Errors
/// The disk has ended.
async fn observe<T: Send + 'static>(
    disk: &ServedDisk,
    look: impl FnOnce(&mut Observer) -> T + Send + 'static,
) -> Result<T, Refusal> {
    disk.handle.observe(look).await.map_err(|gone| {
        let why = format!("disk '{}': {gone}", disk.name());
        refuse(StatusCode::SERVICE_UNAVAILABLE, why)
    })
}

/// The histograms, when they are counted.
pub(super) async fn histograms(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
) -> Reply<Histograms> {
    let disk = state.find(&name)?;
    let look = |observer: &mut Observer| observer.counting().cloned().map(Box::new);
    let Some(counting) = observe(&disk, look).await? else {
        let why = format!(
            "disk '{name}' does not count its histograms: 'forebay disk histogram {name} --start' begins"
        );
        return Err(refuse(StatusCode::CONFLICT, why));
    };
    let histograms = named(&counting.characteristics);
    let counted = Nanos(clock::now_nanos()).since(counting.since);
    let devices = vec![Device { device: 0, histograms }];
    Ok(Json(Histograms { counted_ns: counted.0, devices }))
}

/// Begins to count histograms, begins anew, or ends.
pub(super) async fn change_histograms(
    State(state): State<Arc<ControlState>>,
    Path((name, change)): Path<(String, String)>,
) -> Reply<HistogramsChange> {
    let disk = state.find(&name)?;
    // Memory comes from here and goes back to here: the shard neither takes nor frees any.
    let (empty, now) = (Box::<Counting>::default(), Nanos(clock::now_nanos()));
    let counted = match change.as_str() {
        "start" => {
            let start = move |observer: &mut Observer| match observer.counting() {
                Some(_) => Some(empty),
                None => observer.count(now, empty),
            };
            observe(&disk, start).await
        }
        "reset" => observe(&disk, move |observer| observer.count(now, empty)).await,
        "stop" => observe(&disk, Observer::stop_counting).await,
        _ => {
            let why = format!("'{change}' is no change of histograms: start, reset or stop");
            return Err(refuse(StatusCode::NOT_FOUND, why));
        }
    }?;
    // Each of them gives back memory exactly if there was a count.
    Ok(Json(HistogramsChange { were_counted: counted.is_some() }))
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MrcQuery {
    /// Bytes of caches, separated by commas.
    #[serde(default)]
    sizes: String,
}

/// The miss-ratio curve.
pub(super) async fn mrc(
    State(state): State<Arc<ControlState>>,
    Path(name): Path<String>,
    query: Result<Query<MrcQuery>, QueryRejection>,
) -> Reply<Curves> {
    let disk = state.find(&name)?;
    let Query(query) = query?;
    let sizes = sizes_of(&query).map_err(|why| refuse(StatusCode::BAD_REQUEST, why))?;
    let look = |observer: &mut Observer| {
        let uses = observer.uses()?;
        Some((uses.snapshot(), uses.block_size(), uses.grid_offset()))
    };
    let Some((snapshot, block_size, grid_offset)) = observe(&disk, look).await? else {
        let why = format!("disk '{name}' has no miss-ratio curve");
        return Err(refuse(StatusCode::CONFLICT, why));
    };
    let curves = vec![mrc::of_disk(&snapshot, block_size, grid_offset, &sizes)];
    Ok(Json(Curves { curves }))
}

fn sizes_of(query: &MrcQuery) -> Result<Vec<u64>, String> {
    let texts = query.sizes.split(',').filter(|text| !text.is_empty());
    let size = |text: &str| {
        text.parse().map_err(|_| format!("'{text}' is no size of a cache: give bytes"))
    };
    let sizes: Vec<u64> = texts.take(CACHE_SIZES_MAX + 1).map(size).collect::<Result<_, _>>()?;
    match sizes.len() > CACHE_SIZES_MAX {
        true => Err(format!("at most {CACHE_SIZES_MAX} sizes can be asked for at a time")),
        false => Ok(sizes),
    }
}
