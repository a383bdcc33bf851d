//! The write log of a disk that is opened: what a former run left in it goes on, or an empty one begins.

use anyhow::{Result, anyhow};
use forebay_backends::size::rounded;
use forebay_backends::{HostLoses, Uri};
use forebay_core::config::{DestageOrder, GridOffset, Mode, WriteLogConfig};
use forebay_core::geometry::PAGE;
use forebay_core::write_back::format::GROUP_PAGES_FIRST;
use forebay_host::events::Severity;
use forebay_host::fence;
use forebay_host::pool::report::staging_lost;
use forebay_host::pool::{self, OpenedLog};

use super::session::Session;
use super::{Notes, Opening};
use crate::config::WriteLogSpec;

impl Opening<'_> {
    /// Recovers the log, where the disk is to have one or a former run left one. The engine is to go on with it.
    ///
    /// # Errors
    /// The log must not be used as it is, or the medium's.
    pub(super) fn recover_log(&mut self, session: &mut Session) -> Result<Option<OpenedLog>> {
        if self.spec.write_log.is_none() && !session.begun.has_log(session.disk.number) {
            return Ok(None);
        }
        let wanted = session.disk.wish.grid_offset;
        let (logical, name) = (self.backend.properties().logical_block, &self.spec.name.0);
        let primary: Uri = self.spec.backend.parse()?;
        let is_read_only = self.config.backend.read_only;
        let fits = |phase| match longer_blocks(phase, logical, name, &primary) {
            _ if is_read_only => Err(anyhow!(cannot_be_destaged(name))),
            None => Ok(()),
            Some(why) => Err(anyhow!(why)),
        };
        let mut log = session.open_log(fits).map_err(|why| fence::Refused::log(&why))?;
        // The blocks may have been larger: those of any size begin where larger ones do.
        log.grid_offset %= self.spec.block_size;
        self.notes.extend(describe(&log));
        prepare_staging(&mut log, &mut self.notes);
        let wish = &mut session.disk.wish;
        wish.is_staged = log.staging.is_some();
        wish.grid_offset = Some(log.grid_offset);
        let config = &mut self.config;
        let log_config = config.write_log.insert(log_config(self.spec.write_log.as_ref(), &log));
        self.notes.extend(keep_order(log_config, self.backend.properties().host_loses));
        config.grid_offset = GridOffset::Fixed(log.grid_offset);
        if wanted.is_some_and(|wanted| wanted != log.grid_offset) {
            self.notes.push((Severity::Warning, other_grid(log.grid_offset)));
        }
        if !log.found.records.is_empty() && !config.mode.logs() {
            // It is drained in a mode with a log; the shard asks for the other one.
            config.mode = Mode::WriteBack;
        }
        Ok(Some(log))
    }
}

impl Session {
    /// Opens the log under the generation that has begun, if it is empty or where its pages lie `fits`; others wait while it
    /// goes on, not while it is read.
    fn open_log(&self, fits: impl Fn(u64) -> Result<()>) -> Result<OpenedLog> {
        let (shared, number) = (&self.disk.pool.shared, self.disk.number);
        pool::lock(shared).begin_log(number)?;
        let begun = pool::lock(shared).snapshot();
        let found = begun.find_log(number)?;
        found.phase().map_or(Ok(()), fits)?;
        if found.lacks_what_was_sent() {
            let has_log = !found.lacks_what_was_acknowledged();
            self.fence.flush_primary(self.is_unanswered, has_log)?;
        }
        let grid_offset = self.disk.wish.grid_offset;
        pool::lock(shared).go_on_with_log(number, self.generation, grid_offset, found)
    }
}

/// The log as the engine is to use it: as configured, or just to be drained.
fn log_config(spec: Option<&WriteLogSpec>, log: &OpenedLog) -> WriteLogConfig {
    let size = log.pool.geometry.segment_size();
    let config = match spec {
        Some(spec) => spec.engine_config(size),
        None => WriteLogConfig::of_bytes(log.bytes_max, size),
    };
    WriteLogConfig {
        generation: log.generation,
        staging: log.staging.is_some(),
        // What was found has to have a place, with what it goes on in.
        segments_found: log.found.segments.len() as u32 + 1,
        // As `Staging::renew` takes memory for them.
        group_pages_first: GROUP_PAGES_FIRST,
        ..config
    }
}

/// Keeps the order of destaging also where the kernel makes writes durable in whatever order it likes.
fn keep_order(log: &mut WriteLogConfig, host_loses: HostLoses) -> Option<(Severity, String)> {
    let is_ordered = matches!(log.order, DestageOrder::Strict | DestageOrder::Journaled);
    if log.barrier || !is_ordered || host_loses == HostLoses::Nothing {
        return None;
    }
    log.barrier = true;
    if host_loses == HostLoses::Places {
        return None;
    }
    let text = "primary storage is written through the page cache of this host, or by a server on it, and so in any order: \
                destaging flushes it between epochs, as with destage-barrier \"flush\"";
    Some((Severity::Info, text.to_owned()))
}

/// Empties the staging file, whose groups are in the log by now, for this run; without space for it there is none.
fn prepare_staging(log: &mut OpenedLog, notes: &mut Notes) {
    let Some(staging) = &log.staging else {
        let text = "there is no folder on tmpfs for a staging file: each write is acknowledged when it is on flash";
        return notes.push((Severity::Info, text.to_owned()));
    };
    if let Err(error) = staging.renew(log.disk, log.generation, log.pool.geometry.segment_pages()) {
        let text = format!("{error:#}: each write is acknowledged when it is on flash");
        notes.push((Severity::Warning, text));
        log.staging = None;
    }
}

/// Why a disk that is read-only is not served with a log that is not empty: it would be drained for ever.
fn cannot_be_destaged(name: &str) -> String {
    format!(
        "the write log of disk '{name}' holds writes that primary storage does not have, and the disk is read-only: it must not \
         write them there. The log is kept. Start the disk once where it may write, without read-only in its settings or its URI, \
         empty the log (forebay disk flush {name}), stop, and change back"
    )
}

/// Why a log whose pages lie at byte `phase` of those of primary storage cannot be destaged in blocks of `logical` bytes.
fn longer_blocks(phase: u64, logical: u32, name: &str, primary: &Uri) -> Option<String> {
    if phase.is_multiple_of(logical.into()) {
        return None;
    }
    let emptied = format!(
        "start, empty the log (forebay disk flush {name}), stop, and set grid-offset to a multiple of {logical}"
    );
    let way_out = match innermost(primary) {
        Uri::File(_) => format!(
            "Add direct=off to its URI: the page cache takes blocks of 512 bytes. Then {emptied}, and take direct=off away"
        ),
        Uri::Block(_) => format!(
            "Its sectors were shorter when that was written: go back to the device, or the emulation, with sectors of 512 \
             bytes. Then {emptied}, and change over"
        ),
        Uri::Nbd(_) | Uri::Mem(_) | Uri::Model { .. } | Uri::Fault { .. } => format!(
            "Its blocks were shorter when that was written: let the server offer those of 512 bytes again. Then {emptied}, \
             and change over"
        ),
    };
    Some(format!(
        "the write log of disk '{name}' has pages from byte {phase} of those of its primary storage on, which is written in \
         blocks of {logical} bytes now. Another grid-offset counts only when the log is empty. {way_out}"
    ))
}

/// The primary storage within wrappers.
fn innermost(uri: &Uri) -> &Uri {
    match uri {
        Uri::Model { inner, .. } | Uri::Fault { inner, .. } => innermost(inner),
        Uri::File(_) | Uri::Block(_) | Uri::Nbd(_) | Uri::Mem(_) => uri,
    }
}

/// The block grid lies where the log of a former run has it.
fn other_grid(offset: u64) -> String {
    format!(
        "the block grid is at byte offset {offset} in this run, where the write log of a former one lies on it: a start that finds the \
         log empty puts it where it is to be"
    )
}

/// What recovery did, in words.
fn describe(log: &OpenedLog) -> Notes {
    let mut notes = Vec::new();
    let records = log.found.records.len();
    if records > 0 {
        let pages = log.found.checksums.len() as u64;
        let text = format!(
            "the write log of a former run goes on: {records} writes ({}) are to be destaged, {} of them from the \
             staging file",
            rounded(pages * PAGE),
            log.adopted
        );
        notes.push((Severity::Info, text));
    }
    let damaged = log.found.report.summaries_damaged;
    if damaged > 0 {
        let text = format!(
            "{damaged} segments of the write log were read whole: their summaries are torn or rotten"
        );
        notes.push((Severity::Info, text));
    }
    let unreadable = log.found.report.summaries_unreadable;
    if unreadable > 0 {
        let text = format!(
            "{unreadable} segments of the write log were read whole: flash does not read their summaries"
        );
        notes.push((Severity::Warning, text));
    }
    notes.extend(log.staging_lost.map(|fault| (Severity::Error, staging_lost(fault))));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_longer_blocks_do_not_fit_names_the_way_to_empty_it() {
        let check = |phase, logical, uri: &str, expect: Option<&str>| {
            let why = longer_blocks(phase, logical, "db", &uri.parse().unwrap());
            assert_eq!(why.is_some(), expect.is_some(), "{why:?}");
            let why = why.unwrap_or_default();
            assert!(why.contains(expect.unwrap_or_default()), "{why}");
            let all = ["forebay disk flush db", "grid-offset to a multiple of 4096"];
            assert!(expect.is_none() || all.iter().all(|text| why.contains(text)), "{why}");
        };
        for uri in ["file:/x.raw", "block:/dev/x", "nbd://host/x"] {
            check(3584, 512, uri, None);
            check(0, 4096, uri, None);
        }
        check(3584, 4096, "file:/x.raw", Some("Add direct=off"));
        check(512, 4096, "model:san?latency=1ms&inner=file:/x.raw", Some("Add direct=off"));
        check(3584, 4096, "block:/dev/x", Some("go back to the device"));
        check(3584, 4096, "nbd://host/x", Some("let the server"));
    }
}
