//! Another size of the RAM cache, or of the one on flash, while the disk is at work. What is warm stays (`cache/resize.rs`,
//! `cache/flash/resize.rs`).

use super::{ConfigError, Engine, Parts, setup};
use crate::action::Actions;
use crate::cache::Cache;
use crate::config::Config;
use crate::cx::{Cx, Shared};
use crate::geometry::ByteRange;
use crate::ids::Nanos;
use crate::list::SLOTS_MAX;
use crate::policy::PolicyKind;

impl Engine {
    /// The part of the disk's memory that the slots of a RAM cache of `bytes` take, if it can be had.
    ///
    /// # Errors
    /// It is larger than the room for it ([`Config::ram_room`]), or needs more metadata than there may be, or a tier would
    /// come into being, or vanish.
    pub fn check_ram(&self, bytes: u64) -> Result<ByteRange, ConfigError> {
        check(&self.shared.config, bytes)?;
        let slots = bytes / self.shared.config.block_size;
        let start = self.ram_room().map_or(0, |room| room.start);
        Ok(ByteRange::at(start, slots * self.shared.config.block_size))
    }

    /// Goes on with a RAM cache of `bytes`. More slots are there when [`Engine::have_memory`] says that their memory is:
    /// the part that is to come is returned, also what was to come already. Of fewer slots those that are used most stay;
    /// when the others are empty, [`Event::RamShrunk`](crate::action::Event::RamShrunk) says so.
    ///
    /// # Errors
    /// As of [`Engine::check_ram`]. Nothing has changed.
    pub fn resize_ram(
        &mut self,
        now: Nanos,
        bytes: u64,
        actions: &mut Actions,
    ) -> Result<Option<ByteRange>, ConfigError> {
        if bytes == self.shared.config.ram_bytes {
            return Ok(self.ram_missing());
        }
        check(&self.shared.config, bytes)?;
        let (parts, mut cx) = self.at(now, actions);
        Ok(parts.resize_ram(bytes, &mut cx))
    }

    /// The part of the disk's memory that RAM slots wait for, to be there ([`Engine::have_memory`]).
    pub fn ram_missing(&self) -> Option<ByteRange> {
        self.parts.cache.ram_missing()
    }

    /// The part of the disk's memory that RAM slots have a place in; `None`: there is no RAM tier.
    pub fn ram_room(&self) -> Option<ByteRange> {
        let place = self.parts.cache.ram_place()?;
        Some(ByteRange::at(place.start, Cache::memory_bytes_for(&self.shared.config)))
    }

    /// The part of that room that no slot takes now.
    pub fn ram_spare(&self) -> Option<ByteRange> {
        let (room, place) = (self.ram_room()?, self.parts.cache.ram_place()?);
        (place.end < room.end).then(|| ByteRange::new(place.end, room.end))
    }
}

impl Engine {
    /// Whether [`Engine::resize_flash`] can be had.
    ///
    /// # Errors
    /// There is no room for so much ([`Config::flash_room`]), or it needs more metadata than there may be, or a tier would
    /// come into being, or vanish. Flash has failed, or is becoming smaller, or a restart might believe what is not so.
    pub fn check_flash(&self, bytes: u64) -> Result<(), ConfigError> {
        check_flash(&self.shared.config, bytes)?;
        self.parts.check_flash()
    }

    /// Goes on with a flash cache of `bytes`. More flash is used at once: the caller has it already. Of less flash the end
    /// is given up, with the blocks in it; [`Event::FlashShrunk`](crate::action::Event::FlashShrunk) says when.
    ///
    /// # Errors
    /// As of [`Engine::check_flash`]. Nothing has changed.
    pub fn resize_flash(
        &mut self,
        now: Nanos,
        bytes: u64,
        actions: &mut Actions,
    ) -> Result<(), ConfigError> {
        if bytes == self.shared.config.flash_bytes {
            return Ok(());
        }
        self.check_flash(bytes)?;
        let (parts, mut cx) = self.at(now, actions);
        parts.resize_flash(bytes, &mut cx);
        Ok(())
    }

    /// True while the flash cache becomes smaller.
    pub fn is_flash_shrinking(&self) -> bool {
        self.parts.cache.is_flash_shrinking()
    }
}

impl Parts {
    fn check_flash(&self) -> Result<(), ConfigError> {
        let fail = |text: &str| Err(ConfigError(text.to_owned()));
        if !self.cache.is_flash_working() {
            return fail(
                "the flash cache has failed: restart the disk when the flash is well again",
            );
        }
        if self.cache_index.as_ref().is_some_and(|index| !index.is_written()) {
            return fail("the index of the flash cache is not written any more: restart the disk");
        }
        if self.cache.is_flash_shrinking() {
            return fail("the flash cache is becoming smaller already: try again when it has");
        }
        Ok(())
    }

    fn resize_flash(&mut self, bytes: u64, cx: &mut Cx<'_>) {
        // The places of the cache index were made with this room.
        let config = &mut cx.shared.config;
        config.flash_room = config.flash_room.max(config.flash_bytes);
        config.flash_bytes = bytes;
        let shared: &Shared = cx.shared;
        self.cache.resize_flash(shared);
        self.run(cx);
    }

    fn resize_ram(&mut self, bytes: u64, cx: &mut Cx<'_>) -> Option<ByteRange> {
        // The layout of the memory was made with this room.
        let config = &mut cx.shared.config;
        config.ram_room = config.ram_room.max(config.ram_bytes);
        config.ram_bytes = bytes;
        let shared: &Shared = cx.shared;
        let missing = self.cache.resize_ram(shared);
        self.run(cx);
        missing
    }
}

/// Whether a disk of this configuration can go on with `bytes` of RAM.
fn check(config: &Config, bytes: u64) -> Result<(), ConfigError> {
    let Config { ram_bytes, ram_room, .. } = *config;
    check_tier("RAM", config, (ram_bytes, ram_room), bytes)?;
    setup::check_metadata(&Config { ram_bytes: bytes, ..*config })
}

/// Whether a disk of this configuration can go on with `bytes` of flash.
fn check_flash(config: &Config, bytes: u64) -> Result<(), ConfigError> {
    let Config { flash_bytes, flash_room, .. } = *config;
    check_tier("flash", config, (flash_bytes, flash_room), bytes)?;
    setup::check_metadata(&Config { flash_bytes: bytes, ..*config })
}

/// Whether a tier of `has` bytes, with room for `room`, can go on with `bytes`.
fn check_tier(
    tier: &str,
    config: &Config,
    (has, room): (u64, u64),
    bytes: u64,
) -> Result<(), ConfigError> {
    let fail = |text: String| Err(ConfigError(text));
    let (block_size, room) = (config.block_size, room.max(has));
    if has < block_size && bytes >= block_size {
        return fail(format!(
            "the disk has no {tier} cache, and gets one only when it is restarted"
        ));
    }
    if bytes < block_size {
        return fail(format!(
            "a {tier} cache of {bytes} bytes holds no block of {block_size} bytes: give it more, or restart the disk \
             without one"
        ));
    }
    if bytes / block_size > room / block_size || bytes / block_size > u64::from(SLOTS_MAX) {
        return fail(format!(
            "a {tier} cache of {bytes} bytes has no room: the disk was started with room for {room}, restart it for more"
        ));
    }
    if matches!(config.policy, PolicyKind::Custom(_)) {
        return fail(format!(
            "the policy {} cannot change its size: restart the disk",
            config.policy
        ));
    }
    Ok(())
}
