//! A SCSI disk: what a logical unit answers to a command.
//!
//! ```text
//! transport (iSCSI)                    LogicalUnit, one per disk, shared by all sessions
//!   attach(nexus) ────────────────────► NexusId
//!   command(nexus, CDB) ──────────────► Done(answer)
//!                                       DataOut(len) ── parameters(list) ──► Done | Medium | Settle
//!                                       Medium(reads, writes, flushes) ── medium_done ──► answer
//!                                       Settle(abort, then the answer)
//!                                       Store(reservations) ── stored ──► answer
//! ```
//!
//! It does no I/O. The transport moves data between the initiator and the disk's engine as
//! [`Medium`] says, and reports the result. One table (`opcodes.rs`) leads
//! [`LogicalUnit::command`]. REPORT SUPPORTED OPERATION CODES shows it. The table has the length
//! of the CDB and the bits of it that mean something. It has the effect of a reservation on the
//! command, and the function that answers it.
//!
//! Every CDB and every parameter list is hostile. **Invariant:** what a [`Medium`] names lies on
//! the disk, in whole logical blocks, and within the limits that VPD page B0 tells.
//!
//! Follows SPC-4 and SBC-3 (with the atomic writes of SBC-4). Not here: EXTENDED COPY, ACA,
//! protection information, removable media, thin provisioning thresholds.

mod capacity;
mod condition;
mod export;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod identity;
mod inquiry;
mod lun;
mod mode;
mod nexus;
mod opcodes;
mod persistent;
mod provisioning;
mod report;
mod reserve;
mod sense;
mod task;
mod transfer;
mod unit;
mod vpd;

#[cfg(test)]
mod tests;

pub use export::{Export, Port};
pub use inquiry::absent;
pub use lun::Lun;
pub use nexus::{Initiator, Nexus, NexusId};
pub use persistent::InvalidState;
pub use sense::{Code, Key, Sense};
pub use task::{CDB_LEN, Cdb, Command, Done, Medium, Outcome, Response, Status};
pub use unit::LogicalUnit;
