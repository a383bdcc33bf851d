//! A thread that looks at the primary storage of a disk several times a second, and notes its modification time in the
//! disk's trail.
//!
//! It may be held up by primary storage that hangs. Nobody waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_backends::Witness;

use super::{Fence, Trail};
use crate::daemon::events::{EventSender, Severity};

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A disk that is watched, as long as its fence is there.
#[derive(Debug)]
pub(in crate::daemon) struct Watched {
    name: String,
    witness: Witness,
    trail: Weak<Trail>,
    was_told: bool,
}

/// The thread; dropping this ends it after its next look.
#[derive(Debug)]
pub(in crate::daemon) struct Watch {
    ends: Arc<AtomicBool>,
}

impl Fence {
    /// What watches the disk's primary storage, where that tells anything.
    pub(in crate::daemon) fn watched(&self) -> Option<Watched> {
        Some(Watched {
            name: self.name.clone(),
            witness: self.witness.as_ref()?.copy().ok()?,
            trail: Arc::downgrade(self.trail.as_ref()?),
            was_told: false,
        })
    }
}

impl Watch {
    /// Starts it.
    pub(in crate::daemon) fn start(
        mut disk: Watched,
        events: EventSender,
    ) -> std::io::Result<Watch> {
        let ends = Arc::new(AtomicBool::new(false));
        let ended = ends.clone();
        std::thread::Builder::new().name("watch".to_owned()).spawn(move || {
            // Who has ended lets go of primary storage, and of its lock.
            while !ended.load(Ordering::Relaxed) && disk.look(&events) {
                std::thread::sleep(LOOK_EVERY);
            }
        })?;
        Ok(Watch { ends })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

impl Watched {
    /// Looks once; false when the disk is gone.
    fn look(&mut self, events: &EventSender) -> bool {
        let Some(trail) = self.trail.upgrade() else { return false };
        let Ok(look) = self.witness.look() else { return true };
        let Some(modified) = look.modified else { return true };
        let is_explained = trail.note_seen(modified);
        let is_news = !is_explained && !self.was_told;
        self.was_told = !is_explained;
        if is_news {
            let text = "primary storage was modified while no write of this disk was under way: if somebody else \
                        writes there, what is cached is wrong";
            events.report(Some(&self.name), Severity::Error, text.to_owned());
        }
        true
    }
}
