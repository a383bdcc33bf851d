//! A disk whose primary storage became longer: from one call to the next it is, too.
//!
//! The last granule of a disk need not lie wholly on it. What is in flight there, a request or the destager's, was laid
//! out for the old end, so the end moves when nothing is. What RAM has of such a granule goes: it says nothing of what
//! the granule has now. Flash never holds one.

use super::{ConfigError, Engine, setup};
use crate::geometry::{ByteRange, Grid};

/// Whether the disk has the new size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It has.
    Done,
    /// Something is in flight at the old end: ask again when something has ended.
    Busy,
}

impl Engine {
    /// Whether the disk can have `size` bytes.
    ///
    /// # Errors
    /// It cannot, or it has more.
    pub fn check_growth(&self, size: u64) -> Result<(), ConfigError> {
        let old = self.config.backend.size;
        if size < old {
            return Err(ConfigError(format!(
                "a disk of {old} bytes does not become shorter ({size} bytes): what the guest has beyond would be lost"
            )));
        }
        let mut config = self.config;
        config.backend.size = size;
        setup::check_size(&config)
    }

    /// The disk is to have `size` bytes, which primary storage has. Nothing else changes: what is cached stays.
    ///
    /// # Errors
    /// As of [`Engine::check_growth`].
    pub fn grow(&mut self, size: u64) -> Result<Growth, ConfigError> {
        self.check_growth(size)?;
        if size == self.config.backend.size {
            return Ok(Growth::Done);
        }
        let end = self.last_granule();
        if self.is_destaging(end) || self.overlap.touches(end) {
            return Ok(Growth::Busy);
        }
        if end.len() < self.grid.granule_size() {
            self.invalidate(end);
        }
        self.config.backend.size = size;
        self.grid = Grid::new(size, self.grid.block_size(), self.grid.offset());
        Ok(Growth::Done)
    }

    /// What the disk has of its last granule.
    fn last_granule(&self) -> ByteRange {
        let end = self.config.backend.size;
        let block = self.grid.block_of(end - 1);
        let granule = (self.grid.offset_in_block(end - 1) / self.grid.granule_size()) as u32;
        self.grid.granule_range(block, granule, granule + 1)
    }
}
