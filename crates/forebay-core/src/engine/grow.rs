//! A disk whose primary storage became longer: from one call to the next it is, too.
//!
//! The last granule of a disk need not lie wholly on it. What is in flight there, a request or the destager's, was laid
//! out for the old end, so the end moves when nothing is. What RAM has of such a granule goes: it says nothing of what
//! the granule has now. Flash never holds one. A destage journal is empty then, too: destaging is held until it is.

use super::{ConfigError, Parts, setup};
use crate::config::Config;
use crate::cx::{Cx, Shared};
use crate::geometry::{ByteRange, Grid};
use crate::ids::Nanos;

/// So long destaging is held after each time that somebody asks for a disk to grow whose journal is not empty.
const HOLD: Nanos = Nanos::from_millis(100);

/// Whether the disk has the new size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It has.
    Done,
    /// Something is in flight at the old end: ask again when something has ended.
    Busy,
}

/// Whether a disk can have `size` bytes.
pub(super) fn check_growth(config: &Config, size: u64) -> Result<(), ConfigError> {
    let old = config.backend.size;
    if size < old {
        return Err(ConfigError(format!(
            "a disk of {old} bytes does not become shorter ({size} bytes): what the guest has beyond would be lost"
        )));
    }
    let mut config = *config;
    config.backend.size = size;
    setup::check_size(&config)
}

impl Parts {
    /// Moves the end of the disk.
    pub(super) fn grow(&mut self, size: u64, cx: &mut Cx<'_>) -> Growth {
        let now = cx.now;
        let shared = &mut *cx.shared;
        if size == shared.config.backend.size {
            return Growth::Done;
        }
        if let Some(log) = self.write_back.as_mut().filter(|log| !log.journal_is_empty()) {
            log.hold_destaging(now.plus(HOLD));
            self.run(cx);
            return Growth::Busy;
        }
        let end = last_granule(shared);
        if self.write_back.as_ref().is_some_and(|log| log.is_destaging(end))
            || self.requests.overlap.touches(end)
        {
            return Growth::Busy;
        }
        if end.len() < shared.grid.granule_size() {
            self.cache.invalidate(end, shared);
        }
        shared.config.backend.size = size;
        shared.grid = Grid::new(size, shared.grid.block_size(), shared.grid.offset());
        Growth::Done
    }
}

/// What the disk has of its last granule.
fn last_granule(shared: &Shared) -> ByteRange {
    let (grid, end) = (shared.grid, shared.config.backend.size);
    let block = grid.block_of(end - 1);
    let granule = (grid.offset_in_block(end - 1) / grid.granule_size()) as u32;
    grid.granule_range(block, granule, granule + 1)
}
