//! The file of a kept advice: in the state folder of this host, named after who primary storage is, as a sidecar is.
//!
//! JSON, {`schema`: `forebay-advice`, `version`: 1, `prediction`, `since_ms`, `counted`}; replaced as a whole. It may be read by another
//! version, and by whoever wrote it: nothing in it is believed that cannot be.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use forebay_backends::Probe;
use forebay_core::ids::Uuid;
use forebay_core::stats::{Latency, LatencyBuckets};
use forebay_host::fence;
use forebay_trace::advise::{Prediction, Reads};
use serde::{Deserialize, Serialize};

use super::follow::Follower;

const SCHEMA: &str = "forebay-advice";
/// Changes when a field changes its meaning or goes.
const VERSION: u64 = 1;
/// Longer files are not ours.
const BYTES_MAX: u64 = 1 << 20;
/// Reads that a disk may have counted: no disk does as many, and what comes can be added to them.
const COUNT_MAX: u64 = 1 << 53;

#[derive(Serialize, Deserialize)]
struct Contents {
    schema: String,
    version: u64,
    prediction: Prediction,
    since_ms: Option<u64>,
    counted: Counted,
}

#[derive(Serialize, Deserialize)]
struct Counted {
    ram: LatencyBuckets,
    flash: LatencyBuckets,
    backend: LatencyBuckets,
    /// Files of before it was counted have none.
    #[serde(default)]
    joined: u64,
    bypassed: u64,
}

/// The file for a disk; why there can be none, otherwise.
pub(super) fn path(probe: Option<&Probe>, state: Option<&Path>) -> Result<PathBuf, String> {
    let identity = fence::identity(probe);
    match state {
        _ if identity == Uuid::NIL => {
            Err("nobody knows after a restart that primary storage is the same: it has no identity"
                .into())
        }
        None => Err("this user has no state folder: start the daemon with --state-dir".into()),
        Some(folder) => Ok(folder.join(format!("{identity}.advice"))),
    }
}

/// What is kept at `path`, if anything is.
///
/// # Errors
/// It cannot be read, or is no kept advice of this version.
pub(super) fn read(path: &Path) -> Result<Option<(Prediction, Follower)>> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read?,
    };
    ensure!(bytes.len() as u64 <= BYTES_MAX, "it is longer than a kept advice");
    parse(&bytes).map(Some)
}

fn parse(bytes: &[u8]) -> Result<(Prediction, Follower)> {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
        version: u64,
    }
    let head: Head = serde_json::from_slice(bytes).context("it is no kept advice")?;
    ensure!(head.schema == SCHEMA, "it is no kept advice");
    if head.version != VERSION {
        bail!("it is of version {}, this Forebay knows {VERSION}", head.version);
    }
    let Contents { prediction, since_ms, counted, .. } = serde_json::from_slice(bytes)?;
    ensure!(prediction.is_sound(), "it expects what cannot be");
    let of = |kept| Latency::of_buckets(kept).context("it counted what cannot be");
    let Counted { ram, flash, backend, joined, bypassed } = &counted;
    let (ram, flash, backend) = (of(ram)?, of(flash)?, of(backend)?);
    let counts = [&ram, &flash, &backend].map(Latency::count);
    let sum = counts.into_iter().try_fold(0u64, u64::checked_add);
    let is_count = |count: u64| count <= COUNT_MAX;
    // Reads count as bypassed when they begin, so that there may be more of these than have ended.
    let is_sound = sum.is_some_and(is_count) && *joined <= backend.count() && is_count(*bypassed);
    ensure!(is_sound, "it counted what cannot be");
    let counted = Reads { ram, flash, backend, joined: *joined, bypassed: *bypassed };
    Ok((prediction, Follower::new(since_ms, counted)))
}

/// The bytes of the file.
pub(super) fn bytes(prediction: &Prediction, follower: &Follower) -> Vec<u8> {
    let Reads { ram, flash, backend, joined, bypassed } = &follower.counted;
    let contents = Contents {
        schema: SCHEMA.to_owned(),
        version: VERSION,
        prediction: prediction.clone(),
        since_ms: follower.since_ms,
        counted: Counted {
            ram: ram.buckets(),
            flash: flash.buckets(),
            backend: backend.buckets(),
            joined: *joined,
            bypassed: *bypassed,
        },
    };
    serde_json::to_vec(&contents).expect("figures and texts are JSON")
}

/// Replaces what is at `path`, durably.
///
/// # Errors
/// The kernel's; the old one is there then, or the new one.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    fence::replace(path, bytes).map(drop)
}

/// Removes it.
///
/// # Errors
/// The kernel's.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
