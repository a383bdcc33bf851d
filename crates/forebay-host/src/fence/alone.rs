//! A disk without flash: nothing but a sidecar in the state folder remembers how it was left.
//!
//! It says that the disk was served, so that a start after a kill knows that writes may still be under way
//! ([`Backend::hold_changes`](forebay_backends::Backend::hold_changes)), and that a disk with flash does not take what it
//! finds for what it left. Beside an image file there is none: its lock ends when its last write has, and its
//! time of modification tells the rest. Only the sidecar of another disk that was not left in order is written over there: after
//! a loss of that disk's host the time alone would not tell.

use std::path::Path;

use anyhow::{Context, Result};
use forebay_backends::Probe;
use forebay_core::flash_pool::sidecar::SidecarState;
use forebay_core::ids::{Generation, Uuid};

use super::claims::check_claim;
use super::detached::Detached;
use super::sidecar::SidecarPlace;
use super::{Fence, examined::superseded, identity, names, words};
use crate::events::Severity;
use crate::pool::host;

/// What was found, and what is left.
#[derive(Debug)]
pub struct Alone {
    /// Until the disk is left.
    pub fence: Option<Fence>,
    /// Primary storage may still carry out what a former process sent.
    pub is_unanswered: bool,
}

impl Alone {
    /// A disk `name` without flash is to be served.
    ///
    /// # Errors
    /// Primary storage belongs to another disk, whose log may hold newer data.
    pub fn begin(
        probe: Option<Probe>,
        place: SidecarPlace,
        name: &str,
        takes_over: Option<Uuid>,
        state: Option<&Path>,
        notes: &mut Vec<(Severity, String)>,
    ) -> Result<Alone> {
        let found = check_claim(probe.as_ref(), &place, takes_over, state)?;
        if let (Some(probe), Some(_)) = (&probe, takes_over) {
            // From now on no sidecar beside a former name counts.
            let _ = names::remember(probe, state);
        }
        // Beside an image there is none, but in place of one that would say that the image is another disk's.
        let is_written = place.is_apart() || found.is_not_clean() || takes_over.is_some();
        let probe = probe.filter(|probe| is_written && !probe.is_read_only());
        let Some(probe) = probe else {
            return Ok(Alone { fence: None, is_unanswered: false });
        };
        let is_unanswered =
            place.is_apart() && (found.is_open() || place.is_open_elsewhere(name, &found));
        let identity = identity(Some(&probe));
        let mut fence = Fence {
            look: probe.look().context("cannot look at its primary storage")?,
            probe: Some(probe),
            place,
            disk: host::new_uuid().context("cannot name a disk")?,
            name: name.to_owned(),
            generation: Generation(1),
            sidecar: None,
            is_said_clean: false,
            ahead_ns: 0,
            is_weak: false,
            last_write: None,
            revoker: None,
            detached: Detached::of(identity, state),
        };
        fence.supersede(superseded(&found, takes_over), notes);
        // It has no pool that an old copy could be of, and so no detach to remember.
        fence.detached = Detached::of(Uuid::NIL, None);
        fence.set_writer(Uuid::NIL);
        if let Err(error) = fence.write_sidecar(SidecarState::Open) {
            notes.push((Severity::Warning, words::no_sidecar(&fence.place, &error)));
        }
        Ok(Alone { fence: Some(fence), is_unanswered })
    }
}
