//! The record of a disk: who it is, what it was on, and how it was left.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 64 | header of a page pair |
//! | 64 | 16 | UUID of the disk; zero: there is no disk, and all that follows is zero |
//! | 80 | 16 | boot ID of the host when it was last opened |
//! | 96 | 8 | generation committed: requests were last served under it |
//! | 104 | 8 | generation pending: nothing was ever written under a higher one |
//! | 112 | 8 | size of the disk in bytes |
//! | 120 | 4 | cache block in bytes |
//! | 124 | 4 | offset of the block grid in bytes |
//! | 128 | 8 | log: bytes that are its own |
//! | 136 | 8 | log: bytes that it may have |
//! | 144 | 8 | last opened, seconds since 1970 |
//! | 152 | 8 | last closed, seconds since 1970; 0: not since |
//! | 160 | 4 | flags: 1 read-only, 2 backend exclusive, 4 needs `resolve`, 8 deferred flushes agreed to, 16 log accepted as far as it goes, 32 log went on on weak evidence, 64 the session has a staging file, 128 primary storage may still carry out what a session sent, 256 somebody else has modified primary storage under the session |
//! | 164 | 1 | how the last session ended: 0 clean, 1 it runs or crashed |
//! | 165 | 3 | zero |
//! | 168 | 8 | evidence: size of primary storage in bytes |
//! | 176 | 8 | evidence: its modification time, seconds since 1970, signed |
//! | 184 | 4 | evidence: nanoseconds of that |
//! | 188 | 4 | evidence: what is there: 1 size, 2 time, 4 sample, 8 time of change; 16: it is final |
//! | 192 | 32 | evidence: hash over sampled ranges |
//! | 224 | 8 | evidence: when its metadata changed, seconds since 1970, signed |
//! | 232 | 4 | evidence: nanoseconds of that |
//! | 236 | 4 | zero |
//! | 240 | 8 | evidence: generation of the sidecar that the last session with one wrote; 0: none |
//! | 248 | 8 | zero, kept for evidence |
//! | 256 | 16 | mode requested, its name |
//! | 272 | 64 | name of the disk |
//! | 336 | 2048 | URI of primary storage |
//! | 2384 | 16 | identity of primary storage, however its URI is spelt; zero: not known. Bit 7 of the first byte: it goes with the device, so that another identity under the same URI is another device |
//! | 2400 | 8 | the last record of the log that an orderly end left: up to it they were durable; 0: none |
//! | 2408 | … | zero |
//!
//! Texts are UTF-8, filled up with zeroes.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::pair::{self, PairInvalid};
use super::superblock::Superblock;
use super::{DiskNumber, PairId};
use crate::geometry::{BLOCK_MAX, BLOCK_MIN, SECTOR};
use crate::ids::{Generation, Sequence, Uuid};
use crate::sealed::{self, Page};
use crate::write_back::format::{COUNT_MAX, DISK_SIZE_MAX};

/// Longest name, in bytes.
pub const NAME_MAX: usize = 64;
/// Longest URI, in bytes.
pub const URI_MAX: usize = 2048;
/// Longest name of a mode, in bytes.
pub const MODE_MAX: usize = 16;

/// How the last session of a disk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// In order: what the record says of primary storage held at that moment.
    Clean,
    /// Not yet, or by a crash.
    Running,
}

/// Flags of a disk, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskFlags(pub u32);

impl DiskFlags {
    /// Primary storage and its sidecar are never written.
    pub const READ_ONLY: DiskFlags = DiskFlags(1);
    /// The administrator says that primary storage has no other writer.
    pub const EXCLUSIVE: DiskFlags = DiskFlags(2);
    /// The dirty log must not be used until an administrator has resolved it.
    pub const UNRESOLVED: DiskFlags = DiskFlags(4);
    /// Flushes may be acknowledged before they are durable: agreed to.
    pub const DEFERRED: DiskFlags = DiskFlags(8);
    /// The log is to be used as far as it goes, although durable records are missing: said by the administrator.
    pub const ACCEPT_MISSING: DiskFlags = DiskFlags(16);
    /// The dirty log went on although nothing proves that primary storage was not changed.
    pub const WEAK: DiskFlags = DiskFlags(32);
    /// The session acknowledges writes that only its staging file has: after a kill it must be found.
    pub const STAGED: DiskFlags = DiskFlags(64);
    /// A session has not seen the end of everything that it sent to primary storage.
    pub const UNANSWERED: DiskFlags = DiskFlags(128);
    /// Somebody else has modified primary storage while the session served it, and no administrator has dealt with that.
    pub const MODIFIED: DiskFlags = DiskFlags(256);
    const ALL: u32 = 511;

    /// True when all of `flags` are set.
    pub fn has(self, flags: DiskFlags) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// The last look at primary storage, to see whether somebody changed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Its size in bytes.
    pub size: Option<u64>,
    /// When it was modified: seconds since 1970 and nanoseconds.
    pub modified: Option<(i64, u32)>,
    /// When its metadata changed, which nobody can set: as `modified`.
    pub changed: Option<(i64, u32)>,
    /// Hash over sampled ranges.
    pub sample: Option<[u8; 32]>,
    /// Nothing of the disk was written there after this was taken; else it is how the session found it.
    pub is_final: bool,
    /// Generation of the sidecar that the last session with one wrote; 0: none.
    pub sidecar: Generation,
}

/// The record of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskRecord {
    /// Names it for good.
    pub uuid: Uuid,
    /// Of the host when the disk was last opened: a staging file of the same boot must still be there.
    pub boot: Uuid,
    /// Requests were last served under this generation; only its staging file counts.
    pub committed: Generation,
    /// Nothing was ever written under a higher one; never below `committed`.
    pub pending: Generation,
    /// Size of the disk in bytes.
    pub size: u64,
    /// Cache block in bytes.
    pub block_size: u32,
    /// Offset of the block grid in bytes.
    pub grid_offset: u32,
    /// Bytes of log that are always its own.
    pub log_reserved: u64,
    /// Bytes of log that it may have.
    pub log_max: u64,
    /// When it was last opened, seconds since 1970.
    pub opened: u64,
    /// When it was last closed in order, seconds since 1970; 0: not since it was opened.
    pub closed: u64,
    /// What is set.
    pub flags: DiskFlags,
    /// How the last session ended.
    pub session: SessionEnd,
    /// A look at primary storage.
    pub evidence: Evidence,
    /// The mode that was asked for, by its name.
    pub mode: String,
    /// The disk's name.
    pub name: String,
    /// Where primary storage is.
    pub uri: String,
    /// The identity of primary storage, however `uri` is spelt; [`Uuid::NIL`]: not known.
    pub identity: Uuid,
    /// The last record of the log that an orderly end left: up to it they were durable; 0: none.
    pub log_end: Sequence,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    uuid: [u8; 16],
    boot: [u8; 16],
    committed: U64,
    pending: U64,
    size: U64,
    block_size: U32,
    grid_offset: U32,
    log_reserved: U64,
    log_max: U64,
    opened: U64,
    closed: U64,
    flags: U32,
    session: u8,
    zero: [u8; 3],
    evidence: RawEvidence,
    mode: [u8; MODE_MAX],
    name: [u8; NAME_MAX],
    uri: [u8; URI_MAX],
    identity: [u8; 16],
    log_end: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEvidence {
    size: U64,
    seconds: I64,
    nanos: U32,
    present: U32,
    sample: [u8; 32],
    changed_seconds: I64,
    changed_nanos: U32,
    zero: [u8; 4],
    sidecar: U64,
    reserved: [u8; 8],
}

const _: () = assert!(size_of::<Raw>() + pair::CONTENTS == 2408);

impl DiskRecord {
    /// The page for version `version` of the pair.
    ///
    /// # Errors
    /// A text is too long or has a zero byte, or a number is outside its limits; names the field.
    pub fn encode(
        &self,
        pool: &Superblock,
        number: DiskNumber,
        version: u64,
        page: &mut Page,
    ) -> Result<(), PairInvalid> {
        self.check()?;
        let raw = Raw {
            uuid: self.uuid.0,
            boot: self.boot.0,
            committed: self.committed.0.into(),
            pending: self.pending.0.into(),
            size: self.size.into(),
            block_size: self.block_size.into(),
            grid_offset: self.grid_offset.into(),
            log_reserved: self.log_reserved.into(),
            log_max: self.log_max.into(),
            opened: self.opened.into(),
            closed: self.closed.into(),
            flags: self.flags.0.into(),
            session: match self.session {
                SessionEnd::Clean => 0,
                SessionEnd::Running => 1,
            },
            zero: [0; 3],
            evidence: RawEvidence::from(&self.evidence),
            mode: text_bytes(&self.mode).ok_or(PairInvalid::Field("mode"))?,
            name: text_bytes(&self.name).ok_or(PairInvalid::Field("name"))?,
            uri: text_bytes(&self.uri).ok_or(PairInvalid::Field("URI"))?,
            identity: self.identity.0,
            log_end: self.log_end.0.into(),
        };
        pair::encode(pool, PairId::Disk(number), version, &raw, page);
        Ok(())
    }

    /// The page that says that there is no disk `number`.
    pub fn encode_free(pool: &Superblock, number: DiskNumber, version: u64, page: &mut Page) {
        pair::encode(pool, PairId::Disk(number), version, &[0_u8; 0], page);
    }

    /// The record and its version; `None` where there is no disk.
    ///
    /// # Errors
    /// Neither copy is valid, or the newer one makes no sense.
    pub fn decode(
        pool: &Superblock,
        number: DiskNumber,
        copies: [&Page; 2],
    ) -> Result<(u64, Option<DiskRecord>), PairInvalid> {
        let (version, page) = pair::choose(pool, PairId::Disk(number), copies)?;
        let (raw, _) = sealed::record::<Raw>(pair::contents(page));
        if raw.uuid == Uuid::NIL.0 {
            return Ok((version, None));
        }
        let record = DiskRecord {
            uuid: Uuid(raw.uuid),
            boot: Uuid(raw.boot),
            committed: Generation(raw.committed.get()),
            pending: Generation(raw.pending.get()),
            size: raw.size.get(),
            block_size: raw.block_size.get(),
            grid_offset: raw.grid_offset.get(),
            log_reserved: raw.log_reserved.get(),
            log_max: raw.log_max.get(),
            opened: raw.opened.get(),
            closed: raw.closed.get(),
            flags: DiskFlags(raw.flags.get()),
            session: match raw.session {
                0 => SessionEnd::Clean,
                1 => SessionEnd::Running,
                _ => return Err(PairInvalid::Field("end of its session")),
            },
            evidence: raw.evidence.decode()?,
            mode: text(&raw.mode).ok_or(PairInvalid::Field("mode"))?,
            name: text(&raw.name).ok_or(PairInvalid::Field("name"))?,
            identity: Uuid(raw.identity),
            log_end: Sequence(raw.log_end.get()),
            uri: text(&raw.uri).ok_or(PairInvalid::Field("URI"))?,
        };
        record.check()?;
        Ok((version, Some(record)))
    }

    fn check(&self) -> Result<(), PairInvalid> {
        let block = u64::from(self.block_size);
        let offset = u64::from(self.grid_offset);
        let checks = [
            (self.uuid != Uuid::NIL, "UUID"),
            (self.committed <= self.pending && self.pending.0 <= COUNT_MAX, "generation"),
            (self.size <= DISK_SIZE_MAX && self.size.is_multiple_of(SECTOR), "size"),
            (block.is_power_of_two() && (BLOCK_MIN..=BLOCK_MAX).contains(&block), "block size"),
            (offset < block && offset.is_multiple_of(SECTOR), "grid offset"),
            (self.log_reserved <= self.log_max && self.log_max <= DISK_SIZE_MAX, "log limit"),
            (self.flags.0 & !DiskFlags::ALL == 0, "flag"),
            (self.evidence.sidecar <= self.pending, "evidence"),
            (self.log_end.0 <= COUNT_MAX, "end of the log"),
            (!self.name.is_empty(), "name"),
        ];
        match checks.into_iter().find(|(is_right, _)| !is_right) {
            None => Ok(()),
            Some((_, what)) => Err(PairInvalid::Field(what)),
        }
    }
}

impl From<&Evidence> for RawEvidence {
    fn from(evidence: &Evidence) -> RawEvidence {
        let mut raw = RawEvidence::new_zeroed();
        let mut present = 0;
        if let Some(size) = evidence.size {
            raw.size = size.into();
            present |= 1;
        }
        if let Some((seconds, nanos)) = evidence.modified {
            raw.seconds = seconds.into();
            raw.nanos = nanos.into();
            present |= 2;
        }
        if let Some(sample) = evidence.sample {
            raw.sample = sample;
            present |= 4;
        }
        if let Some((seconds, nanos)) = evidence.changed {
            raw.changed_seconds = seconds.into();
            raw.changed_nanos = nanos.into();
            present |= 8;
        }
        if evidence.is_final {
            present |= 16;
        }
        raw.present = present.into();
        raw.sidecar = evidence.sidecar.0.into();
        raw
    }
}

impl RawEvidence {
    fn decode(&self) -> Result<Evidence, PairInvalid> {
        let present = self.present.get();
        if present > 31 {
            return Err(PairInvalid::Field("evidence"));
        }
        Ok(Evidence {
            size: (present & 1 != 0).then_some(self.size.get()),
            modified: (present & 2 != 0).then_some((self.seconds.get(), self.nanos.get())),
            changed: (present & 8 != 0)
                .then_some((self.changed_seconds.get(), self.changed_nanos.get())),
            sample: (present & 4 != 0).then_some(self.sample),
            is_final: present & 16 != 0,
            sidecar: Generation(self.sidecar.get()),
        })
    }
}

fn text_bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.bytes().any(|byte| byte == 0) {
        return None;
    }
    bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
    Some(bytes)
}

fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    if bytes[end..].iter().any(|byte| *byte != 0) {
        return None;
    }
    std::str::from_utf8(&bytes[..end]).ok().map(str::to_owned)
}
