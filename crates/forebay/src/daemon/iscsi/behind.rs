//! A target on its shard: what initiators see of it, its units and their disks.
//!
//! ```text
//!   first disk ──begin──► Behind ──the last disk has ended──► nobody can log in ──another disk──► the next Behind
//!                            └── its device: units, initiators that lost one ──────────────────────────┘
//! ```
//! Its table may be another one by then. A login that began before still has the one of before, and finds no disk there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use forebay_frontends::iscsi::device::{Device, Unit};
use forebay_frontends::iscsi::driver::SharedDevice;
use forebay_frontends::iscsi::target::{PORTAL_GROUP, Target};
use forebay_frontends::scsi::{self, LogicalUnit, Lun};
use forebay_shard::DiskHandle;

use super::{PORT, UnitDisk};
use crate::config::iscsi::IscsiSpec;
use crate::daemon::pdu_log::PduFile;
use crate::daemon::reservations::Kept;

/// A target on its shard.
#[derive(Debug)]
pub struct Behind {
    /// As those see it who log in from now on.
    target: Mutex<Target>,
    pub(super) device: SharedDevice,
    /// Its disks, but for those that have ended.
    handles: Mutex<Vec<DiskHandle>>,
    /// Where PDUs are logged.
    pub(super) log: Option<Arc<PduFile>>,
}

impl Behind {
    /// A target as its table says, with its first disk. What initiators knew of its units they know of those of `before`.
    ///
    /// # Errors
    /// PDUs cannot be logged; or as for [`Behind::add`].
    pub(super) fn begin(
        (spec, target): (&IscsiSpec, Target),
        before: Option<&Behind>,
        number: u16,
        disk: UnitDisk,
    ) -> Result<Behind> {
        let log = spec.log.as_deref().map(PduFile::open).transpose()?;
        let new = || Arc::new(Mutex::new(Device::new(Vec::new())));
        let device = before.map_or_else(new, |before| before.device.clone());
        let behind = Behind { target: Mutex::new(target), device, handles: Mutex::default(), log };
        behind.add(spec, number, disk)?;
        let mut device = behind.device.lock().unwrap_or_else(PoisonError::into_inner);
        // What is detached later is to go for good.
        device.set_awaited(spec.luns.keys().copied());
        drop(device);
        Ok(behind)
    }

    /// False once each of its disks has ended.
    pub(super) fn has_disks(&self) -> bool {
        !self.handles().is_empty()
    }

    pub(super) fn target(&self) -> MutexGuard<'_, Target> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another disk of the same shard, unless it is there.
    ///
    /// # Errors
    /// A disk has its number that has not ended yet: sessions may know that unit.
    pub(super) fn add(&self, spec: &IscsiSpec, number: u16, disk: UnitDisk) -> Result<()> {
        if self.shows(&disk.handle) {
            return Ok(());
        }
        // It may have ended while an address was bound.
        anyhow::ensure!(disk.handle.is_open(), "the disk is ending");
        let (handle, unit) = (disk.handle.clone(), self.unit(spec, number, disk));
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        anyhow::ensure!(
            device.has_room_for(unit.lun),
            "logical unit {number} of target {} is that of a disk that has not ended yet",
            spec.target
        );
        anyhow::ensure!(
            self.handles().iter().all(|known| known.is_beside(&handle)),
            "logical unit {number} of target {} is on another shard than the disks that the target has: a restart puts them on \
             one",
            spec.target
        );
        if let [lost, more @ ..] = device.cut_off_from(&unit) {
            anyhow::bail!(
                "logical unit {number} of target {} was another disk before, which the initiator '{}' and {} more lost without a \
                 logout: they could write here what they have for that one. The number is free when they have logged in again, or \
                 after a restart; another number may be free now",
                spec.target,
                lost.name,
                more.len()
            );
        }
        device.add(unit);
        drop(device);
        let mut handles = self.handles();
        // Sessions have to know that they use it before it may end; some disk of theirs is served.
        handles.iter().for_each(DiskHandle::wake);
        handles.push(handle);
        Ok(())
    }

    /// A disk as logical unit `number` of the target.
    fn unit(&self, spec: &IscsiSpec, number: u16, disk: UnitDisk) -> Unit {
        let UnitDisk { mut export, kept, handle } = disk;
        export.ports = vec![scsi::Port {
            relative: PORT,
            group: PORTAL_GROUP,
            target: spec.target.0.clone(),
            portal_group: PORTAL_GROUP,
        }];
        let device = Arc::downgrade(&self.device);
        Unit {
            lun: Lun::new(number).expect("the configuration was checked"),
            disk: handle.id(),
            keeper: kept.as_ref().map(|kept| kept.keeper(handle, device)),
            logical: logical(export, kept),
        }
    }

    pub(super) fn detach(&self, disk: &DiskHandle) {
        let known = self.handles().extract_if(.., |known| known.is(disk)).count();
        if known > 0 {
            let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
            device.end_disk(disk.id());
        }
    }

    pub(super) fn tell_size(&self, disk: &DiskHandle) {
        if self.shows(disk) {
            let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
            device.resize(disk.id(), disk.size());
        }
    }

    pub(super) fn shows(&self, disk: &DiskHandle) -> bool {
        self.handles().iter().any(|known| known.is(disk))
    }

    pub(super) fn handles(&self) -> MutexGuard<'_, Vec<DiskHandle>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn target(spec: &IscsiSpec) -> Result<Target> {
    let load = |chap: &Option<crate::config::iscsi::ChapSpec>| {
        chap.as_ref().map(crate::config::iscsi::ChapSpec::load).transpose()
    };
    let (chap, mutual_chap) = (load(&spec.chap)?, load(&spec.mutual_chap)?);
    let is_same =
        chap.as_ref().zip(mutual_chap.as_ref()).is_some_and(|(a, b)| a.secret == b.secret);
    anyhow::ensure!(
        !is_same,
        "the target's CHAP secret is that of the initiators; they must differ"
    );
    Ok(Target {
        initiators: spec.initiators.iter().map(|name| name.0.clone()).collect(),
        chap,
        mutual_chap,
        ..Target::new(&spec.target.0)
    })
}

/// A disk's logical unit, with the reservations that it had.
fn logical(export: scsi::Export, kept: Option<Kept>) -> LogicalUnit {
    let mut unit = LogicalUnit::new(export);
    if let Some(kept) = kept {
        kept.restore(&mut unit);
    }
    unit
}
