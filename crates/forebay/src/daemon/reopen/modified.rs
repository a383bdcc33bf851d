//! A disk that is opened again, and what others have done to its primary storage.

use std::sync::Arc;

use forebay_host::events::Severity;
use tokio::task::spawn_blocking;

use super::Reopening;
use crate::daemon::served::ServedDisk;

impl Reopening<'_> {
    /// The one that has taken its place knows what it knew, before anybody looks at that one. Nobody waits until that is noted.
    pub(super) fn take_modified_over(&self, opened: &Arc<ServedDisk>) {
        if !opened.take_modified_over(&self.served) {
            return;
        }
        let (state, disk) = (self.state.clone(), opened.clone());
        spawn_blocking(move || {
            if let Err(error) = disk.keep_modified() {
                state.report(Some(disk.name()), Severity::Error, &disk.not_noted(&error));
            }
        });
    }
}
