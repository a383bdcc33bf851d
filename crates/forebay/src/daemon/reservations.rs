//! Persistent reservations of SCSI initiators that outlive a restart: in the pool, beside the record of their disk.
//!
//! ```text
//!   start   Pool ──state──► Kept ──restore──► logical unit;  what is left to others ──► the disk's port
//!   served  logical unit ──Keeper──► owner of the pool (its thread) ──durable──► the disk's shard: target's device, port
//! ```
//! **Invariant:** a disk whose reservations cannot be read is not served: nobody knows who may write to it. An
//! administrator gives them up with `disk resolve --discard-reservations`.

use std::sync::{Mutex, Weak};

use forebay_core::flash_pool::DiskNumber;
use forebay_core::flash_pool::reservations::STATE_MAX;
use forebay_frontends::client::Permission;
use forebay_frontends::iscsi::device::{Device, Keeper};
use forebay_frontends::iscsi::driver;
use forebay_frontends::scsi::{self, LogicalUnit};

use forebay_host::events::Severity;
use forebay_host::fence::Refused;
use forebay_host::pool::Pool;
use forebay_host::pool::owner::PoolHandle;
use forebay_shard::DiskHandle;

/// Bytes of reservations that can be kept for a disk on flash.
pub(super) const KEPT_MAX: usize = STATE_MAX;

/// What a disk had when it was opened, and where the next is kept.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    state: Vec<u8>,
    number: DiskNumber,
    owner: PoolHandle,
}

impl Kept {
    /// What is kept for a disk that was admitted.
    ///
    /// # Errors
    /// It cannot be read, or is not what a logical unit wrote.
    pub(super) fn find(
        pool: &Pool,
        number: DiskNumber,
        owner: &PoolHandle,
    ) -> Result<Kept, Refused> {
        let refused = |why: String| {
            let name = pool.record(number).name;
            let path = pool.path().display().to_string();
            Refused::reservations(&name, &path, &why)
        };
        let state = pool.reservations(number).map_err(|error| refused(error.to_string()))?;
        let kept = Kept { state, number, owner: owner.clone() };
        kept.access().map_err(|error| refused(error.to_string()))?;
        Ok(kept)
    }

    /// What they leave to clients that have no part in them.
    ///
    /// # Errors
    /// They are not what a logical unit wrote.
    pub(super) fn access(&self) -> Result<Permission, scsi::InvalidState> {
        let mut unit = LogicalUnit::new(scsi::Export::new("", 0));
        unit.restore(&self.state)?;
        Ok(unit.access_of_others())
    }

    /// What is worth telling of them.
    pub(super) fn note(&self) -> Option<(Severity, String)> {
        let left = match self.access() {
            Ok(Permission::Reads) => "may only read",
            Ok(Permission::Nothing) => "may neither read nor write",
            Ok(Permission::All) | Err(_) => return None,
        };
        let text = format!(
            "a persistent reservation of a SCSI initiator is in force: who has no part in it {left}"
        );
        Some((Severity::Info, text))
    }

    /// Lets `unit` go on with them.
    pub(super) fn restore(&self, unit: &mut LogicalUnit) {
        unit.restore(&self.state).expect("it was restored once, to look at it");
    }

    /// Who keeps what the unit of `disk` has from now on, which is one of `device`.
    pub(super) fn keeper(&self, disk: DiskHandle, device: Weak<Mutex<Device>>) -> Box<dyn Keeper> {
        Box::new(PoolKeeper { number: self.number, owner: self.owner.clone(), disk, device })
    }
}

/// Keeps the reservations of one disk.
#[derive(Debug)]
struct PoolKeeper {
    number: DiskNumber,
    owner: PoolHandle,
    disk: DiskHandle,
    /// It has this keeper.
    device: Weak<Mutex<Device>>,
}

impl Keeper for PoolKeeper {
    fn keep(&mut self, state: Vec<u8>, answer: Box<dyn FnOnce(bool) + Send>) {
        let (disk, device) = (self.disk.clone(), self.device.clone());
        let told = move |is_stored| {
            answer(is_stored);
            let id = disk.id();
            disk.visit(move |port| {
                if let Some(device) = device.upgrade() {
                    driver::settle(&device, id, port);
                }
            });
        };
        self.owner.reserve(self.number, state, Box::new(told));
    }
}
