//! The memory of a disk: what its engine counts with, and where its data are.
//!
//! The disk begins to serve at once: request buffers take memory when they are used, and its RAM cache gets it part by part
//! (`forebay_host::population`).

use std::os::fd::AsFd;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use forebay_backends::size::rounded;
use forebay_core::config::{BackendTraits, Config, Mode};
use forebay_core::engine::{Engine, metadata_bytes};
use forebay_host::pool::staging::Staging;
use forebay_io::arena::{self, Arena, Available};

use crate::config::DiskSpec;

/// Room for more RAM cache, at most: what is not used of it takes addresses, and 2 bytes for each MiB of it.
const ROOM_MAX: u64 = 64 << 30;

/// An engine, whose memory the machine can give. It has room for as much RAM cache as the machine has memory. What is to be
/// there now is all but its RAM cache, which waits for memory where others have it.
///
/// # Errors
/// It cannot, or the cache needs more for metadata than it may have.
pub(super) fn engine(config: Config) -> Result<Engine> {
    check_engine(&config)?;
    let engine =
        Engine::new(Config { ram_room: ram_room(), ..config }).map_err(anyhow::Error::new)?;
    check_memory(size_now(&engine), true)?;
    check_memory(size_now(&engine).saturating_sub(config.ram_bytes), false)?;
    Ok(engine)
}

/// Whether primary storage with these `traits` can be served as a disk is to be, and there is memory for that. May find
/// that there is where the log needs more.
///
/// # Errors
/// It cannot, or there is not.
pub(in crate::daemon) fn check_spec(spec: &DiskSpec, traits: BackendTraits) -> Result<()> {
    let config = spec.engine_config(traits);
    check_engine(&config)?;
    check_config(&config)
}

/// Whether a disk can be like this, memory apart, before its flash is looked at.
///
/// # Errors
/// Why not, such as that it has too many blocks.
pub(super) fn check_config(config: &Config) -> Result<()> {
    // What a log needs depends on its pool.
    let config = Config { mode: Mode::WriteThrough, metadata_bytes_max: u64::MAX, ..*config };
    config.check().map_err(anyhow::Error::new)
}

/// Whether there is memory for an engine's metadata, and ever for its cache.
///
/// # Errors
/// There is not, or the cache needs more for metadata than it may have.
pub(super) fn check_engine(config: &Config) -> Result<()> {
    let (needed, limit) = (metadata_bytes(config), config.metadata_bytes_max);
    ensure!(
        needed <= limit,
        "the cache needs {} for metadata, limit {}: use a larger block size, a smaller cache, or a \
         higher metadata-limit",
        rounded(needed),
        rounded(limit)
    );
    check_memory(needed + config.ram_bytes, true)?;
    check_memory(needed, false)
}

/// Bytes of RAM cache that a disk at work has room for, if it did not begin with more.
pub(in crate::daemon) fn ram_room() -> u64 {
    let hard = arena::available().into_iter().filter(|available| available.is_hard);
    hard.map(|available| available.all).min().unwrap_or(0).min(ROOM_MAX)
}

/// Bytes of an engine's memory that are not room for more of it.
pub(super) fn size_now(engine: &Engine) -> u64 {
    engine.memory_size() - engine.ram_spare().map_or(0, |spare| spare.len())
}

/// The engine's memory, of which the end is the staging file.
///
/// # Errors
/// The kernel's.
pub(super) fn memory(engine: &Engine, staging: Option<&Staging>) -> Result<Arc<Arena>> {
    let size = engine.memory_size();
    let tail = staging.map(|staging| (engine.staging_start() as usize, staging.file().as_fd()));
    match (engine.ram_spare(), tail) {
        (Some(spare), tail) => Arena::with_room(size as usize, spare.start..spare.end, tail),
        (None, Some((tail, file))) => Arena::with_tail(size as usize, tail, file),
        (None, None) => Arena::reserve(size as usize),
    }
    .map(Arc::new)
    .with_context(|| format!("cannot reserve {} of memory", rounded(size)))
}

/// Refuses to want more memory than there is: being killed for it would be a bad way to learn. `of_all`: of all that there
/// is, and not of what is available now.
///
/// # Errors
/// There is less.
pub(in crate::daemon) fn check_memory(needed: u64, of_all: bool) -> Result<()> {
    let there = |it: &Available| if of_all { it.all } else { it.bytes };
    let hard = arena::available().into_iter().filter(|it| it.is_hard);
    let least = hard.min_by_key(there);
    let Some((there, of)) = least.map(|it| (there(&it), it.of)) else { return Ok(()) };
    let is = if of_all { "in all" } else { "available" };
    ensure!(
        needed <= there,
        "it needs {} of memory, {of} has {} {is}; choose a smaller --ram",
        rounded(needed),
        rounded(there)
    );
    Ok(())
}
