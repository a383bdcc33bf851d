//! Another size of a disk's cache on flash.
//!
//! ```text
//!   larger:  the pool has given more ─► its parts are known ─► engine
//!   smaller: engine lets go of the end ─► it uses less ─► whoever asked sees that, and gives the rest back to the pool
//! ```

use forebay_core::engine::metadata_bytes;
use forebay_core::ids::Nanos;
use forebay_frontends::client::Port;

use super::ShardDisk;
use super::detach::ENDING;

/// What a disk uses of flash for cached data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashUse {
    /// Bytes from the start of its parts that it may use.
    pub bytes: u64,
    /// They are becoming fewer.
    pub is_shrinking: bool,
}

impl ShardDisk {
    /// Goes on with a cache of `bytes` on flash. `parts`: where its slots lie from now on, if there is more of them.
    ///
    /// # Errors
    /// It cannot have that, or it is ending. Nothing has changed.
    pub(crate) fn resize_flash(
        &mut self,
        now: Nanos,
        bytes: u64,
        parts: Option<&[(u64, u64)]>,
    ) -> Result<u64, String> {
        if self.is_ending() {
            return Err(ENDING.to_owned());
        }
        let Port { engine, actions, .. } = &mut self.port;
        engine.check_flash(bytes).map_err(|error| error.to_string())?;
        if let (Some(flash), Some(parts)) = (&mut self.storage.flash, parts) {
            flash.have(parts);
        }
        engine.resize_flash(now, bytes, actions).map_err(|error| error.to_string())?;
        Ok(metadata_bytes(engine.config()))
    }

    /// Whether it could have a cache of `bytes` on flash.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check_flash(&self, bytes: u64) -> Result<(), String> {
        self.port.engine.check_flash(bytes).map_err(|error| error.to_string())
    }

    /// What it uses of flash for cached data.
    pub(crate) fn flash_use(&self) -> FlashUse {
        let engine = &self.port.engine;
        FlashUse { bytes: engine.flash_size(), is_shrinking: engine.is_flash_shrinking() }
    }
}
