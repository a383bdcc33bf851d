//! What the engine tells about itself.

use super::Engine;
use super::inflight::{IoEntry, IoKind};
use crate::action::Actions;
use crate::config::Mode;
use crate::geometry::PAGE;
use crate::ids::Nanos;
use crate::stats::{Statistics, TierStatistics, VfrcStatistics};
use crate::status::IoStatus;

impl Engine {
    /// A snapshot of everything that is shown of the disk.
    pub fn statistics(&self) -> Statistics {
        let mode = Mode::ALL.iter().find(|(mode, _)| *mode == self.config.mode);
        let ram = self.ram.as_ref().map(|ram| TierStatistics {
            state: "active".into(),
            slots: ram.dir.slots().into(),
            slots_used: ram.dir.len().into(),
            metadata_bytes: ram.metadata_bytes(),
        });
        let flash = self.flash.as_ref().map(|flash| TierStatistics {
            state: flash.failed.map_or("active".into(), |status| format!("failed: {status}")),
            slots: flash.dir.slots().into(),
            slots_used: flash.dir.len().into(),
            metadata_bytes: flash.metadata_bytes(),
        });
        let none = || TierStatistics { state: "none".into(), ..TierStatistics::default() };
        let (ram, flash) = (ram.unwrap_or_else(none), flash.unwrap_or_else(none));
        Statistics {
            mode: mode.map_or("", |(_, name)| name).into(),
            block_size: self.config.block_size,
            granule_size: self.grid.granule_size(),
            grid_offset: self.grid.offset(),
            disk_size: self.config.backend.size,
            policy: self.config.policy.name().into(),
            requests_in_flight: self.requests.len() as u64,
            unflushed_bytes: self.flush.unflushed_bytes(),
            metadata_bytes: ram.metadata_bytes + flash.metadata_bytes,
            buffer_bytes: u64::from(self.buffers.pages()) * PAGE,
            buffer_bytes_free: u64::from(self.buffers.pages_free()) * PAGE,
            vfrc: self.vfrc(&ram, &flash),
            ram,
            flash,
            counters: self.counters,
            latency: self.latencies.summary(),
        }
    }

    fn vfrc(&self, ram: &TierStatistics, flash: &TierStatistics) -> VfrcStatistics {
        let c = &self.counters;
        let per = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        VfrcStatistics {
            num_blocks: ram.slots + flash.slots,
            num_blocks_currently_cached: ram.slots_used + flash.slots_used,
            evict_avg_num_blocks_per_op: per(c.ram_evicted + c.flash_evicted, c.evict_ops),
            cache_hit_percentage: 100.0 * per(c.read_hits_ram + c.read_hits_flash, c.reads),
        }
    }

    /// Counts how an I/O ended, and gives flash up when it fails too often.
    pub(super) fn note_io(
        &mut self,
        now: Nanos,
        entry: &IoEntry,
        status: IoStatus,
        actions: &mut Actions,
    ) {
        let latency = now.since(entry.issued);
        match entry.kind {
            IoKind::FlashRead { .. }
            | IoKind::FlashFill { .. }
            | IoKind::Orphan { flash_slot: Some(_), .. } => {
                self.latencies.flash_io.record(latency, 1);
                self.counters.flash_errors += u64::from(!status.is_ok());
                let give_up = self.flash.as_mut().is_some_and(|flash| flash.note(status));
                if give_up {
                    self.fail_flash(status, actions);
                }
            }
            IoKind::BackendRead { .. }
            | IoKind::EdgeRead { .. }
            | IoKind::Write { .. }
            | IoKind::Zero { .. }
            | IoKind::Extents { .. }
            | IoKind::Flush
            | IoKind::Orphan { flash_slot: None, .. } => {
                self.latencies.backend_io.record(latency, 1);
                let failed = !status.is_ok() && status != IoStatus::Unsupported;
                self.counters.backend_errors += u64::from(failed);
            }
        }
    }
}
