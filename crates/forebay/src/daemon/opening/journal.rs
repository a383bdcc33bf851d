//! The destage journal of a disk that is opened: an empty one, which its sidecar names from now on.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use forebay_backends::HostLoses;
use forebay_core::config::DestageOrder;
use forebay_core::ids::{Nanos, Uuid};
use forebay_core::journal::{JournalConfig, Owner, Shape, Superblock};
use forebay_host::events::Severity;
use forebay_host::journal::{self, JournalPlace};
use forebay_host::pool::{OpenedLog, host};
use forebay_shard::JournalShare;

use super::Opening;
use super::session::Session;

impl Opening<'_> {
    /// Makes the journal, where windows are to go through one and there is a place for it. Without one the disk is destaged
    /// in strict order.
    pub(super) fn make_journal(
        &mut self,
        session: &mut Session,
        log: Option<&OpenedLog>,
    ) -> Option<JournalShare> {
        let config = self.config.write_log.as_mut()?;
        if config.order != DestageOrder::Journaled {
            return None;
        }
        let pages = u64::from(config.segment_pages)
            * u64::from(config.segments_max.max(config.segments_found));
        let spec = self.spec.write_log.as_ref();
        let place = match spec.and_then(|spec| spec.journal.as_deref()) {
            Some(uri) => Some(JournalPlace::at(uri)),
            None => session.fence.journal_place(),
        };
        let is_asked = spec.is_some_and(|spec| spec.order.is_some());
        let nowhere = "its place is beside an image file; elsewhere it needs --destage-journal URI";
        let mut is_beside = true;
        let made = match (place, log) {
            (Some(place), Some(log)) => place.and_then(|place| {
                is_beside = place.is_beside();
                let shape = Shape::for_log(pages);
                make(session, place, log.disk, shape, (self.state, self.config.backend_timeout))
            }),
            (None, _) if is_asked => Err(anyhow::Error::msg(nowhere)),
            (None, _) | (_, None) => {
                config.order = DestageOrder::Strict;
                return None;
            }
        };
        match made {
            Ok((superblock, share)) => {
                // What the host loses of it need not be what it loses of primary storage.
                is_beside &= share.backend.properties().host_loses == HostLoses::Nothing;
                let journal = JournalConfig::new(superblock, session.generation);
                config.journal = Some(JournalConfig { is_beside, ..journal });
                Some(share)
            }
            Err(error) => {
                config.order = DestageOrder::Strict;
                let text = format!("destaging is in strict order, without a journal: {error:#}");
                self.notes.push((Severity::Warning, text));
                None
            }
        }
    }
}

fn make(
    session: &mut Session,
    place: JournalPlace,
    disk: Uuid,
    shape: Shape,
    (state, patience): (Option<&Path>, Nanos),
) -> Result<(Superblock, JournalShare)> {
    let has_name = session.fence.names_journals();
    ensure!(has_name, "no sidecar can name it: nobody knows who primary storage is");
    let nonce = host::new_nonce().context("the kernel gives no random number")?;
    let guard = place.lock(session.fence.primary(), state)?;
    let owner = Owner { disk, nonce };
    let made = journal::make(&place, owner, shape);
    let superblock = made.with_context(|| format!("cannot make {place}"))?;
    let backend = place.open(session.is_unanswered);
    let mut backend = backend.with_context(|| format!("cannot use {place}"))?;
    backend.give_up_after(patience);
    backend.expect_journal(owner).with_context(|| format!("cannot use {place}"))?;
    session.fence.name_journal(&place, nonce).context("its sidecar cannot be written")?;
    let share = JournalShare { backend, revoker: session.fence.revoker(), guard };
    Ok((superblock, share))
}
