//! Primary storage of a disk that is opened: is it there, is it raw, does another disk have it, what did a former run lose?

use std::io::ErrorKind;

use anyhow::{Context, Result, ensure};
use forebay_backends::{OpenOptions, Properties, Uri};
use forebay_core::config::{BackendTraits, Config};
use forebay_host::events::Severity;
use forebay_host::fence::{self, SidecarPlace, UnreportedLoss, names};
use forebay_host::pool::{LOCK_WAIT, host};

use super::{Identified, Notes, Opening, memory};
use crate::config::DiskSpec;
use crate::daemon::raw;

/// What is told of a server that is too slow to say what its export holds.
const NOT_KNOWN_AGAIN: &str = "primary storage has not answered reads for ten seconds: should it come back with another image, \
    Forebay may not notice that";

impl<'a> Opening<'a> {
    /// Opens and locks primary storage, and finds out who it is.
    ///
    /// # Errors
    /// It cannot be opened, is not raw, is empty, or another process has it.
    pub(super) fn primary_storage(
        spec: &'a DiskSpec,
        state: Option<&'a std::path::Path>,
    ) -> Result<(Opening<'a>, Identified)> {
        let unusable = || format!("its primary storage {} cannot be used", spec.backend);
        let uri: Uri = spec.backend.parse().with_context(unusable)?;
        let options = OpenOptions { read_only: spec.read_only, lock_wait: LOCK_WAIT };
        let opened = forebay_backends::open(&uri, options);
        let opened = opened.map_err(|why| raw::explain(spec, &uri, why));
        let backend = opened.with_context(unusable)?;
        let probe = backend.probe().map(|probe| names::known(probe, state));
        let place = SidecarPlace::of(probe.as_ref(), state);
        let mut notes = Vec::new();
        notes.extend(raw::check(spec, &uri, probe.as_ref(), state)?);
        let lock = fence::lock(&place, spec.read_only).with_context(unusable)?;
        let properties = backend.properties();
        let found = UnreportedLoss::find(probe.as_ref());
        let unreported_loss = for_first_flush(found, spec, properties, &mut notes);
        notes.extend(lock.missing().map(|why| (Severity::Warning, why.to_owned())));
        ensure!(properties.size > 0, "its primary storage {} is empty", spec.backend);
        let index_salt = host::new_nonce().context("the kernel gives no random number")?;
        let config = Config { index_salt, ..spec.engine_config(traits(spec, properties)) };
        memory::check_config(&config)?;
        let opening = Opening { spec, state, config, notes, unreported_loss, lock, backend };
        Ok((opening, Identified { probe, place }))
    }

    /// Reads what primary storage is known by when it comes back. Nobody but the disk writes there from now on, unless changes
    /// have to wait. It has been judged, and nothing is noted of that yet: a start that fails here leaves what it found.
    ///
    /// # Errors
    /// The connection was lost: whatever is served next was not judged.
    pub(super) fn take_samples(&mut self) -> Result<()> {
        if let Err(error) = self.backend.take_samples() {
            let is_slow = error.kind() == ErrorKind::TimedOut;
            ensure!(is_slow, "the connection to primary storage was lost meanwhile: {error}");
            self.notes.push((Severity::Warning, NOT_KNOWN_AGAIN.to_owned()));
        }
        Ok(())
    }

    /// Lets changes of primary storage wait when it may still carry out what a former process sent.
    pub(super) fn hold_changes(&mut self, is_unanswered: bool) {
        if is_unanswered && let Some(time) = self.backend.hold_changes() {
            self.notes.push((Severity::Warning, fence::held(time)));
        }
    }
}

/// The loss that the first flush is to report.
fn for_first_flush(
    mut loss: UnreportedLoss,
    spec: &DiskSpec,
    properties: &Properties,
    notes: &mut Notes,
) -> UnreportedLoss {
    if spec.read_only || properties.read_only {
        // Nobody who reads relies on what was lost: the next one who writes is told.
        notes.extend(loss.is_noted().then(fence::unreported_loss_later));
        loss = UnreportedLoss::default();
    }
    notes.extend(loss.is_noted().then(fence::unreported_loss));
    notes.extend(loss.obstacle().map(fence::not_noted));
    loss
}

/// What the engine is told of primary storage.
fn traits(spec: &DiskSpec, properties: &Properties) -> BackendTraits {
    BackendTraits {
        size: properties.size,
        logical_block: properties.logical_block,
        read_only: properties.read_only || spec.read_only,
        discard: properties.discard,
        write_zeroes: properties.write_zeroes,
        extents: properties.extents,
    }
}
