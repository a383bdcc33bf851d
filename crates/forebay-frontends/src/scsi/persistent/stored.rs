//! The form in which reservations outlive a restart.
//!
//! ```text
//!  0  8  FBSCSIPR
//!  8  4  CRC32C of what follows
//! 12  2  version, 1
//! 14  2  registrations
//! 16  1  type of the reservation, 0: none
//! 17  1  zero
//! 18  2  index of the holder, FFFFh: none, or all
//! 20  …  registrations: key (8), port (2), ISID (6), length of the name (1), name
//! ```
//! Integers are little-endian. Nothing at all is stored unless the last registration asked for it
//! (APTPL); empty bytes are no reservations. The generation begins anew with each start. A disk without reservations that
//! are to outlive a restart has no other form than that.

use forebay_core::sealed::crc32c;

use super::{Kind, Persistent, REGISTRATIONS_MAX, Registration, Reservation};
use crate::scsi::nexus::{Initiator, Nexus};

const MAGIC: &[u8; 8] = b"FBSCSIPR";
const VERSION: u16 = 1;
const HEAD: usize = 20;
const NO_HOLDER: u16 = u16::MAX;
/// Longest iSCSI name.
const NAME_MAX: usize = 223;

/// Stored persistent reservations that cannot be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored persistent reservations: {0}")]
pub struct InvalidState(&'static str);

impl Persistent {
    /// The bytes; none when nothing is to outlive a restart.
    pub fn encode(&self) -> Vec<u8> {
        // What nobody has is no state: its disk may be moved, and its number used again.
        if !self.outlives_restart || self.registrations.is_empty() {
            return Vec::new();
        }
        let reservation = self.reservation.as_ref();
        let holder = reservation.and_then(|it| it.holder.as_ref());
        let holder = holder.and_then(|it| self.registrations.iter().position(|r| r.nexus == *it));
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(self.registrations.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&[reservation.map_or(0, |it| it.kind as u8), 0]);
        bytes.extend_from_slice(&holder.map_or(NO_HOLDER, |at| at as u16).to_le_bytes());
        for Registration { nexus, key } in &self.registrations {
            let name = nexus.initiator.name.as_bytes();
            let name = &name[..name.len().min(NAME_MAX)];
            bytes.extend_from_slice(&key.to_le_bytes());
            bytes.extend_from_slice(&nexus.port.to_le_bytes());
            bytes.extend_from_slice(&nexus.initiator.isid);
            bytes.push(name.len() as u8);
            bytes.extend_from_slice(name);
        }
        let checksum = crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// What `encode` was asked to say.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Persistent, InvalidState> {
        if bytes.is_empty() {
            return Ok(Persistent::default());
        }
        let head = bytes.first_chunk::<HEAD>().ok_or(InvalidState("too short"))?;
        if head[..8] != MAGIC[..] {
            return Err(InvalidState("not such a file"));
        }
        if head[8..12] != crc32c(&bytes[12..]).to_le_bytes() {
            return Err(InvalidState("the checksum does not match"));
        }
        if u16_at(head, 12) != VERSION {
            return Err(InvalidState("of a version that is not known"));
        }
        if head[17] != 0 {
            return Err(InvalidState("a byte that must be zero"));
        }
        let count = usize::from(u16_at(head, 14));
        if count > REGISTRATIONS_MAX {
            return Err(InvalidState("too many registrations"));
        }
        let mut state = Persistent { outlives_restart: true, ..Persistent::default() };
        let mut rest = &bytes[HEAD..];
        for _ in 0..count {
            let registration =
                take_registration(&mut rest).ok_or(InvalidState("a registration"))?;
            if state.key_of(&registration.nexus).is_some() {
                return Err(InvalidState("a nexus is registered twice"));
            }
            state.registrations.push(registration);
        }
        if !rest.is_empty() {
            return Err(InvalidState("bytes behind the last registration"));
        }
        state.reservation = reservation(&state, head[16], u16_at(head, 18))?;
        Ok(state)
    }
}

fn reservation(
    state: &Persistent,
    kind: u8,
    holder: u16,
) -> Result<Option<Reservation>, InvalidState> {
    if kind == 0 && holder == NO_HOLDER {
        return Ok(None);
    }
    let kind = Kind::from_wire(kind).ok_or(InvalidState("not a type of reservation"))?;
    let holder = match kind.is_of_all() {
        true if holder == NO_HOLDER && state.has_registrations() => None,
        // Planted: the index of the holder is believed.
        false
            if usize::from(holder) < state.registrations.len()
                || cfg!(feature = "planted-bugs") =>
        {
            Some(state.registrations[usize::from(holder)].nexus.clone())
        }
        true | false => return Err(InvalidState("the holder is not registered")),
    };
    Ok(Some(Reservation { kind, holder }))
}

fn take_registration(rest: &mut &[u8]) -> Option<Registration> {
    let (head, tail) = rest.split_first_chunk::<17>()?;
    let (name, tail) = tail.split_at_checked(usize::from(head[16]))?;
    let name = std::str::from_utf8(name).ok()?.to_owned();
    let key = u64::from_le_bytes(*head.first_chunk()?);
    if key == 0 || name.is_empty() || name.len() > NAME_MAX {
        return None;
    }
    *rest = tail;
    let isid = *head[10..].first_chunk()?;
    let nexus = Nexus { initiator: Initiator { name, isid }, port: u16_at(head, 8) };
    Some(Registration { nexus, key })
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}
