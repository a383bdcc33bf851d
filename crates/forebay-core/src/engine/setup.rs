//! Making an engine: checks of the configuration, sizes of everything.

use super::flow::mode::Hold;
use super::flow::read;
use super::{Engine, Parts};
use crate::cache::{self, Cache};
use crate::cache_index::CacheIndex;
use crate::config::{Config, GridOffset, Mode, WriteLogConfig};
use crate::cx::Shared;
use crate::geometry::{BLOCK_MAX, BLOCK_MIN, Grid, PAGE, REQUEST_MAX, SECTOR};
use crate::ids::Nanos;
use crate::observer::{Observer, Uses};
use crate::primary::Primary;
use crate::requests::Requests;
use crate::requests::zero_memory::ZeroMemory;
use crate::write_back::WriteBack;
use crate::write_back::format::index::PageGrid;

/// Smallest segment of a log, in pages.
const LOG_SEGMENT_PAGES_MIN: u32 = 16;

/// Pages of the longest log: what its index has places for.
const LOG_PAGES_MAX: u64 = 1 << 31;

/// A configuration that cannot work, in words that name the setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// Bytes of cache metadata that a configuration needs, as they will be.
pub fn metadata_bytes(config: &Config) -> u64 {
    let log = config.write_log.map_or(0, |log| WriteBack::metadata_bytes_for(&log));
    Cache::metadata_bytes_for(config) + log
}

impl Engine {
    /// An engine with an empty cache.
    ///
    /// # Errors
    /// A sentence that names the setting and what is allowed.
    pub fn new(config: Config) -> Result<Engine, ConfigError> {
        config.check()?;
        let offset = match config.grid_offset {
            GridOffset::Fixed(offset) => offset,
            GridOffset::Auto => 0,
        };
        let grid = Grid::new(config.backend.size, config.block_size, offset);
        let base = config.buffer_bytes / PAGE * PAGE;
        // Twice: when flash hangs, its I/Os stay while their reads begin anew (`flow/timeout.rs`).
        let log_ios = config.write_log.map_or(0, |_| WriteBack::ios_max(&config));
        let ios_max =
            config.requests_max * read::FETCHES_MAX * 2 + cache::FILL_WRITES_MAX + 3 + log_ios;
        let places = config.requests_max;
        let ram_end = base + Cache::memory_bytes_for(&config);
        let zeroes = ram_end + CacheIndex::memory_pages(&config) * PAGE;
        let runs = zeroes + ZeroMemory::BYTES;
        let pages = PageGrid::new(grid.offset());
        let write_back = config.write_log.map(|log| WriteBack::new(log, &config, runs, pages));
        let cache = Cache::new(&config, &grid, base, ios_max);
        let cache_index = match (cache.flash_slots(), config.ring) {
            (Some(_), Some(ring)) => {
                let slots = (config.flash_bytes.max(config.flash_room) / config.block_size) as u32;
                Some(CacheIndex::new(ring, &config, slots, &grid, ram_end))
            }
            (None, _) | (_, None) => None,
        };
        let uses = config.curve.then(|| Box::new(Uses::new(config.block_size, offset)));
        let observer = Observer::new(config.recorder_bytes, uses);
        let mut requests = Requests::new(places, config.backend_timeout, observer, zeroes);
        requests.set_limits(config.limits);
        let parts = Parts {
            requests,
            cache,
            cache_index,
            write_back,
            primary: Primary::new(places, config.backend.read_only),
            // What an earlier run wrote beside the log is flushed before the log answers for it.
            mode: if config.mode.logs() { Mode::WriteThrough } else { config.mode },
            was_told: false,
            proceeded: Nanos(0),
            hold: Hold::Free,
            refuses: None,
        };
        let shared = Shared::new(config, grid, ios_max);
        Ok(Engine { shared, parts })
    }
}

impl Config {
    /// Whether an engine can be made of it.
    ///
    /// # Errors
    /// What is not possible, and what is.
    pub fn check(&self) -> Result<(), ConfigError> {
        check(self)
    }
}

fn check(config: &Config) -> Result<(), ConfigError> {
    let fail = |text: String| Err(ConfigError(text));
    let Config { backend, block_size, .. } = *config;
    if !block_size.is_power_of_two() || !(BLOCK_MIN..=BLOCK_MAX).contains(&block_size) {
        return fail(format!(
            "block size {block_size} is not possible: use a power of two from {BLOCK_MIN} (4 KiB) to {BLOCK_MAX} (1 MiB)"
        ));
    }
    let logical = u64::from(backend.logical_block);
    if !logical.is_power_of_two() || !(SECTOR..=PAGE).contains(&logical) {
        return fail(format!(
            "primary storage has logical blocks of {logical} bytes: a power of two from 512 to 4096 is supported"
        ));
    }
    check_size(config)?;
    if let GridOffset::Fixed(offset) = config.grid_offset
        && (offset >= block_size || !offset.is_multiple_of(logical))
    {
        return fail(format!(
            "grid offset {offset} is not possible: use a multiple of {logical} (the logical block of primary storage) below the block size {block_size}"
        ));
    }
    let room = config.flash_room.max(config.flash_bytes);
    for (name, bytes) in [("RAM", config.ram_bytes), ("flash", config.flash_bytes), ("flash", room)]
    {
        if bytes > 0 && bytes < block_size {
            return fail(format!(
                "a {name} cache of {bytes} bytes holds no block of {block_size} bytes: give it more, or 0 for none"
            ));
        }
        if bytes / block_size > u64::from(crate::list::SLOTS_MAX) {
            return fail(format!(
                "a {name} cache of {bytes} bytes has too many blocks of {block_size} bytes: use a larger block size"
            ));
        }
    }
    if config.requests_max == 0 || config.requests_max > 65_536 {
        return fail(format!("{} requests in flight: use 1 to 65536", config.requests_max));
    }
    if config.buffer_bytes < REQUEST_MAX + 4 * BLOCK_MAX {
        return fail(format!(
            "{} bytes of request buffers are too few: use at least {} (36 MiB), so that the longest request fits",
            config.buffer_bytes,
            REQUEST_MAX + 4 * BLOCK_MAX
        ));
    }
    match &config.write_log {
        None if config.mode.logs() => {
            return fail("a write-back mode needs a write log: give the disk flash for one".into());
        }
        None => {}
        Some(log) => check_log(log)?,
    }
    check_metadata(config)
}

/// Whether the metadata of a configuration keep to its limit.
pub(super) fn check_metadata(config: &Config) -> Result<(), ConfigError> {
    let needed = metadata_bytes(config);
    if needed > config.metadata_bytes_max {
        return Err(ConfigError(format!(
            "needs {needed} bytes for metadata, limit {}: use a larger block size, a smaller cache or a higher limit",
            config.metadata_bytes_max
        )));
    }
    Ok(())
}

/// Whether a disk of this configuration can have its size.
pub(super) fn check_size(config: &Config) -> Result<(), ConfigError> {
    let fail = |text: String| Err(ConfigError(text));
    let Config { backend, block_size, .. } = *config;
    let (size, logical) = (backend.size, u64::from(backend.logical_block));
    if size == 0 || !size.is_multiple_of(logical) {
        return fail(format!(
            "primary storage of {size} bytes: its size must be a multiple of {logical} and not 0"
        ));
    }
    if size / block_size >= u64::from(u32::MAX) - 1 {
        return fail(format!(
            "a disk of {size} bytes has too many blocks of {block_size} bytes: use a larger block size"
        ));
    }
    Ok(())
}

fn check_log(log: &WriteLogConfig) -> Result<(), ConfigError> {
    let fail = |text: String| Err(ConfigError(text));
    if log.segment_pages < LOG_SEGMENT_PAGES_MIN {
        return fail(format!(
            "log segments of {} pages: use at least {LOG_SEGMENT_PAGES_MIN}",
            log.segment_pages
        ));
    }
    if log.segments_max < WriteLogConfig::SEGMENTS_MIN {
        return fail(format!(
            "a write log of {} segments: use at least {}",
            log.segments_max,
            WriteLogConfig::SEGMENTS_MIN
        ));
    }
    if log.pages() > LOG_PAGES_MAX {
        return fail("a write log of more than 8 TiB: use a smaller one".into());
    }
    if log.group_pages_first == 0 {
        return fail("groups of a write log that begin without memory: give them a page".into());
    }
    if !(1..=99).contains(&log.throttle_percent) {
        return fail(format!("a throttle at {} % of the log: use 1 to 99", log.throttle_percent));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BackendTraits;

    #[test]
    fn a_log_of_any_length_is_refused_or_its_memory_known() {
        let backend = BackendTraits {
            size: 1 << 20,
            logical_block: 512,
            read_only: false,
            discard: false,
            write_zeroes: false,
            extents: false,
        };
        for (segments, fits) in [(1 << 23, true), ((1 << 23) + 1, false), (u32::MAX, false)] {
            let log = WriteLogConfig::new(256, segments);
            let config = Config { write_log: Some(log), ..Config::for_disk(backend) };
            assert!(metadata_bytes(&config) > u64::from(segments) << 8);
            assert_eq!(check_log(&log).is_ok(), fits, "{segments} segments of 1 MiB");
        }
    }
}
