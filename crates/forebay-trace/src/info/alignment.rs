//! Where the data of guests lie on their disks, in words.

use super::{Alignment, Device};
use crate::report::figures::{count, percent};

/// Where a partition that begins at sector 63 lies to pages.
const SECTOR_63: u64 = 3584;

/// A line for each device whose alignment is known, and one for all others.
pub fn alignments(devices: &[&Device]) -> Vec<String> {
    let known = devices.iter().filter_map(|of| {
        let words = words(&of.alignment)?;
        Some(format!("device {}: {words}", of.device))
    });
    let mut lines: Vec<String> = known.collect();
    let mut not_known = devices.iter().filter(|of| of.alignment.grid_offset.is_none());
    if let Some(first) = not_known.next() {
        let others = match not_known.count() {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        let why = "requests of whole pages are few, or do not agree";
        lines.push(format!("device {}{others}: alignment not known, {why}", first.device));
    }
    lines
}

fn words(alignment: &Alignment) -> Option<String> {
    let Alignment { grid_offset, requests, agree } = *alignment;
    let of = format!(
        "{} of {} requests of whole pages",
        percent(agree.into(), requests.into()),
        count(requests.into())
    );
    Some(match grid_offset? {
        0 => format!("aligned to 4 KiB ({of})"),
        SECTOR_63 => {
            format!("guest partition starts at sector 63: grid offset {SECTOR_63} found ({of})")
        }
        offset => format!(
            "guest data start {offset} bytes behind a 4 KiB boundary: grid offset {offset} found ({of})"
        ),
    })
}
