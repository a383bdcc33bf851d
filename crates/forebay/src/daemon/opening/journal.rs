//! The destage journal of a disk that is opened: an empty one, which its sidecar names from now on.

use anyhow::{Context, Result};
use forebay_backends::{OpenOptions, Uri};
use forebay_core::config::DestageOrder;
use forebay_core::ids::Uuid;
use forebay_core::journal::{JournalConfig, Owner, Shape, Superblock};
use forebay_host::events::Severity;
use forebay_host::journal;
use forebay_host::pool::{LOCK_WAIT, OpenedLog, host};
use forebay_shard::JournalShare;

use super::Opening;
use super::session::Session;

impl Opening<'_> {
    /// Makes the journal, where windows are to go through one. Without one the disk is destaged in strict order.
    pub(super) fn make_journal(
        &mut self,
        session: &mut Session,
        log: Option<&OpenedLog>,
    ) -> Option<JournalShare> {
        let config = self.config.write_log.as_mut()?;
        let log = log.filter(|_| config.order == DestageOrder::Journaled)?;
        let pages = u64::from(config.segment_pages)
            * u64::from(config.segments_max.max(config.segments_found));
        let shape = Shape::for_log(pages);
        match make(session, log.disk, shape) {
            Ok((superblock, share)) => {
                config.journal = Some(JournalConfig::new(superblock, session.generation));
                Some(share)
            }
            Err(error) => {
                let text = format!("destaging is in strict order, without a journal: {error:#}");
                self.notes.push((Severity::Warning, text));
                None
            }
        }
    }
}

fn make(session: &mut Session, disk: Uuid, shape: Shape) -> Result<(Superblock, JournalShare)> {
    let path = session.fence.journal_path();
    let path = path.context("its place is beside an image file, and its sidecar has to name it")?;
    let nonce = host::new_nonce().context("the kernel gives no random number")?;
    let made = journal::make(&path, Owner { disk, nonce }, shape);
    let superblock = made.with_context(|| format!("cannot make {}", path.display()))?;
    let uri: Uri = format!("file:{}", path.display()).parse().context("its name makes no URI")?;
    let options = OpenOptions { read_only: false, lock_wait: LOCK_WAIT };
    let backend = forebay_backends::open(&uri, options)
        .with_context(|| format!("cannot use {}", path.display()))?;
    session.fence.name_journal(nonce).context("its sidecar cannot be written")?;
    Ok((superblock, JournalShare { backend, revoker: session.fence.revoker() }))
}
