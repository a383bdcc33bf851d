//! `forebay disk histogram` and `forebay disk mrc`: what a disk that runs was asked, and what a cache would make of it.

use anyhow::Result;
use forebay_backends::size::rounded;
use forebay_trace::characterise;

use super::client::{self, Found};
use super::table::time;
use super::trace::{describe_curves, describe_histograms};
use crate::cli::disk::{HistogramArgs, MrcArgs};
use crate::config::values::ValueError;
use crate::daemon::api::{Curves, DiskStats, Histograms, HistogramsChange};

/// Shows the histograms, or changes whether they are counted: the text.
pub(super) async fn histogram(args: HistogramArgs) -> Result<String> {
    let found = client::find_one(&args.disk, args.common.control.as_deref()).await?;
    let path = format!("/v1/disks/{}/histograms", found.disk);
    let changes = [(args.start, "start"), (args.reset, "reset"), (args.stop, "stop")];
    if let Some((_, change)) = changes.into_iter().find(|(is_asked, _)| *is_asked) {
        let path = format!("{path}/{change}");
        let done: HistogramsChange = client::tell(&found.control, &path).await?;
        if args.common.json {
            return Ok(serde_json::to_string(&done)? + "\n");
        }
        let what = match (change, done.were_counted) {
            ("start", true) => "are counted already, and go on",
            ("stop", true) => "are not counted any more",
            ("stop", false) => "were not counted",
            _ => "are counted from now on",
        };
        return Ok(format!("disk {}: its histograms {what}\n", found.disk));
    }
    let histograms: Histograms = client::ask(&found.control, &path).await?;
    if args.common.json {
        return Ok(serde_json::to_string(&histograms.devices)? + "\n");
    }
    if args.csv {
        return Ok(characterise::csv(&histograms.devices));
    }
    let title = format!("disk {}, counted for {}", found.disk, time(histograms.counted_ns));
    let text = describe_histograms(&histograms.devices, |_| title.clone());
    Ok(text)
}

/// Shows the miss-ratio curve: the text.
pub(super) async fn mrc(args: MrcArgs) -> Result<String> {
    let found = client::find_one(&args.disk, args.common.control.as_deref()).await?;
    let sizes: Vec<u64> = args.cache_size.iter().map(|size| size.0).collect();
    let curves = curves(&found, &sizes).await?;
    let block_size = curves.curves.iter().map(|curve| curve.block_size).max().unwrap_or(0);
    if let Some(small) = sizes.iter().find(|size| **size < block_size) {
        let why = format!("cache size {small} is below the block size {block_size}");
        return Err(ValueError(why).into());
    }
    if args.common.json {
        return Ok(serde_json::to_string(&curves)? + "\n");
    }
    let text = describe_curves(&curves.curves, "disk");
    Ok(format!("disk {}: miss ratio by cache size, since the start\n{text}", found.disk))
}

/// The miss-ratio curve of a disk, for caches of these sizes.
pub(super) async fn curves(found: &Found, sizes: &[u64]) -> Result<Curves> {
    let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
    let path = format!("/v1/disks/{}/mrc?sizes={}", found.disk, sizes.join(","));
    client::ask(&found.control, &path).await
}

/// What half, one, two and four times a disk's cache would do; without a cache: an eighth, a quarter, half and all of what
/// the disk touched. `None`: nothing is known: nobody has read the disk.
pub(super) async fn expectations(found: &Found, stats: &DiskStats) -> Option<Curves> {
    let (engine, block) = (&stats.engine, stats.engine.block_size);
    if engine.counters.reads == 0 {
        return None;
    }
    let mut all = (engine.ram.slots + engine.flash.slots) * block;
    let mut eighths = [4, 8, 16, 32];
    if all == 0 {
        all = curves(found, &[block]).await.ok()?.curves.first()?.footprint;
        eighths = [1, 2, 4, 8];
    }
    let sizes = eighths.map(|n| (all / 8 * n / block * block).max(block));
    let curves = curves(found, &sizes).await.ok()?;
    (all > 0 && curves.curves.first()?.footprint > 0).then_some(curves)
}

/// A line about them.
pub(super) fn expected(curves: &Curves) -> String {
    let points = curves.curves.iter().flat_map(|curve| &curve.points);
    let point = |point: &forebay_trace::mrc::Point| {
        format!("{:.0} % with {}", point.read_hit_ratio * 100.0, rounded(point.cache_size))
    };
    points.map(point).collect::<Vec<_>>().join(", ")
}
