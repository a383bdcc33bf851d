//! Samples of primary storage, read on a thread of their own within a time limit.

use std::sync::mpsc;
use std::time::Duration;

use forebay_backends::Probe;
use forebay_core::flash_pool::DiskNumber;
use forebay_core::flash_pool::disk::{DiskRecord, Evidence};
use forebay_core::flash_pool::fence::Samples;
use forebay_core::flash_pool::sample::{self, PIECE_MAX, Sampler};
use forebay_core::geometry::BLOCK_MAX;
use forebay_core::ids::{Generation, Uuid};
use forebay_core::sealed::crc32c;

use super::last_write;
use crate::pool::Pool;

/// Compares primary storage with the sample of the last session's end.
pub(super) fn compare(
    probe: Option<&Probe>,
    record: &DiskRecord,
    size: u64,
    limit: Duration,
) -> Samples {
    let counts =
        record.evidence.is_final && size == record.size && !last_write::start_has_written(record);
    let sample = record.evidence.sample.filter(|_| counts);
    let Some((sample, probe)) = sample.zip(probe.map(Probe::copy)) else {
        return Samples::Unknown;
    };
    let (disk, generation) = (record.uuid, record.committed);
    let work = move || match hash(&probe, disk, generation, size)? == sample {
        true => Ok(Samples::Agree),
        false => Ok(Samples::Differ),
    };
    in_time(limit, work).unwrap_or(Samples::Unknown)
}

/// Granules that differ at least where a dirty log is refused for it: a single one may be an error of the cache.
pub(super) const DIFFER_MIN: usize = 2;

/// Compares primary storage with what the cache of the disk has of it: so many granules have to differ. Of those that are zeroes
/// now it takes a quarter: a few may have been discarded, and read as something else until the storage did that.
pub(super) fn compare_cached(
    probe: Option<&Probe>,
    (pool, number): (&Pool, DiskNumber),
    differ_min: usize,
    limit: Duration,
) -> Samples {
    // A start may have put writes in place that the cache does not know of.
    let probe = probe.filter(|_| !last_write::start_has_written(&pool.record(number)));
    let Some(probe) = probe.map(Probe::copy) else { return Samples::Unknown };
    let cached = pool.sample_cached(number);
    if cached.is_empty() {
        return Samples::Unknown;
    }
    let work = move || {
        let mut reader = probe.reader()?;
        let mut bytes = vec![0; BLOCK_MAX as usize];
        let (mut differ, mut zeroed) = (0, 0);
        let zeroed_max = (cached.len() / 4).max(differ_min);
        for granule in cached {
            let bytes = &mut bytes[..granule.range.len() as usize];
            reader.read(granule.range.start, bytes)?;
            let is_other = crc32c(bytes) != granule.checksum;
            match bytes.iter().any(|byte| *byte != 0) {
                true => differ += usize::from(is_other),
                false => zeroed += usize::from(is_other),
            }
            if differ >= differ_min || zeroed > zeroed_max {
                return Ok(Samples::Differ);
            }
        }
        Ok(Samples::Agree)
    };
    in_time(limit, work).unwrap_or(Samples::Unknown)
}

/// Looks at primary storage when the disk is served no more, and takes a sample; `None` when that takes too long, or
/// somebody else writes there now.
pub(super) fn last_look(
    probe: &Probe,
    (disk, generation): (Uuid, Generation),
    size: u64,
    limit: Duration,
) -> Option<Evidence> {
    let probe = probe.copy();
    let evidence = in_time(limit, move || {
        let look = probe.look_finally()?;
        let sample = hash(&probe, disk, generation, size)?;
        let is_same = probe.look()? == look;
        Ok(is_same.then_some(Evidence {
            size: Some(look.size),
            modified: look.modified,
            changed: look.changed,
            sample: Some(sample),
            is_final: true,
            ..Evidence::default()
        }))
    });
    evidence.flatten()
}

fn hash(probe: &Probe, disk: Uuid, generation: Generation, size: u64) -> std::io::Result<[u8; 32]> {
    let mut bytes = vec![0; PIECE_MAX as usize];
    let mut reader = probe.reader()?;
    let mut sampler = Sampler::default();
    for piece in sample::pieces(disk, generation, size) {
        let bytes = &mut bytes[..piece.len() as usize];
        reader.read(piece.start, bytes)?;
        sampler.add(bytes);
    }
    Ok(sampler.hash())
}

/// What `work` gives, unless it fails or takes longer; it is not waited for then.
fn in_time<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Option<T> {
    let (answer, answered) = mpsc::channel();
    let thread = std::thread::Builder::new().name("samples".to_owned());
    thread.spawn(move || answer.send(work())).ok()?;
    answered.recv_timeout(limit).ok()?.ok()
}
