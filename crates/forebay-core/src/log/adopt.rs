//! Staged groups on their way into the log after a restart.
//!
//! ```text
//!  recover ─► records in staging? ─► fresh segment, generation + 1 ─► its header, the groups again ─► flush
//!                 no ─► go on                                          recover again: all is on flash
//! ```
//! Groups keep their numbers and records their sequences, so a crash on the way is harmless: what
//! reached the log is recognised, and the staging file is left alone until all of it did. Only then is the new
//! generation committed, which makes the old staging file stale.

use super::group::{self, GroupHeader, GroupView};
use super::recover::{RecordPlace, RecoveredLog};
use super::segment::SegmentHeader;
use crate::ids::{GroupNumber, Sequence};
use crate::sealed::Page;

/// A staged group as it is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Index of the group in what recovery was given.
    pub group: u32,
    /// Data pages that follow its header: the first ones of the group.
    pub data_pages: u32,
}

/// The staged groups that recovery found records in, in order.
pub fn adopted(found: &RecoveredLog) -> Vec<Adopted> {
    let mut groups: Vec<Adopted> = Vec::new();
    for record in &found.records {
        let RecordPlace::Staged { group, page } = record.place else { continue };
        let entry = group::Entry {
            range: record.range,
            epoch: record.epoch,
            kind: record.kind,
            more: record.more,
        };
        let data_pages = page + entry.data_pages(record.phase) as u32;
        match groups.last_mut().filter(|last| last.group == group) {
            Some(last) => last.data_pages = last.data_pages.max(data_pages),
            None => groups.push(Adopted { group, data_pages }),
        }
    }
    groups
}

/// The header page of a staged group for a segment with `header`, as group `number`.
///
/// # Panics
/// When the group is not one that recovery found.
pub fn encode(
    found: &RecoveredLog,
    staged: &Page,
    header: &SegmentHeader,
    number: GroupNumber,
    out: &mut Page,
) {
    let view = GroupView::staged(staged).expect("recovery read it");
    let first_sequence = view.header().first_sequence;
    let last = found.records.last().expect("a record is staged").sequence;
    let durable = header.durable.min(Sequence(first_sequence.0 - 1));
    group::begin(
        out,
        &GroupHeader {
            disk: header.disk,
            generation: header.generation,
            number,
            first_sequence,
            durable,
            nonce: header.nonce,
            phase: header.phase,
        },
    );
    for (_, page, entry) in view.entries().take_while(|(sequence, ..)| *sequence <= last) {
        let pages = entry.data_pages(header.phase) as u32;
        let checksums: Vec<u32> = (page..page + pages).map(|n| view.checksum(n)).collect();
        group::append(out, &entry, &checksums);
    }
    group::seal(out, durable);
}
