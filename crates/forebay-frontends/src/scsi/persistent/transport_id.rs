//! TransportIDs: how SCSI writes an iSCSI initiator port.
//!
//! ```text
//! 0  1  45h: format 1 (initiator port), protocol 5 (iSCSI)
//! 2  2  bytes that follow, a multiple of 4, at least 20
//! 4  …  iSCSI name ",i,0x" ISID in twelve hexadecimal digits, zeroes
//! ```

use crate::scsi::nexus::Initiator;

const INITIATOR_PORT: u8 = 0x45;
const NAME_MAX: usize = 223;

/// Appends the TransportID of `initiator`.
pub(super) fn write(initiator: &Initiator, out: &mut Vec<u8>) {
    let isid: String = initiator.isid.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("{},i,0x{isid}", initiator.name);
    let len = (name.len() + 1).next_multiple_of(4).max(20);
    out.extend_from_slice(&[INITIATOR_PORT, 0]);
    out.extend_from_slice(&(len as u16).to_be_bytes());
    out.extend_from_slice(name.as_bytes());
    out.resize(out.len() + len - name.len(), 0);
}

/// Reads the TransportID that `bytes` begin with, and says how long it is; `None` when it is none of an
/// initiator port.
pub(super) fn read(bytes: &[u8]) -> Option<(Initiator, usize)> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
    if head[0] != INITIATOR_PORT || len < 20 || !len.is_multiple_of(4) {
        return None;
    }
    let text = rest.get(..len)?;
    let end = text.iter().position(|byte| *byte == 0)?;
    let (name, isid) = std::str::from_utf8(&text[..end]).ok()?.split_once(",i,0x")?;
    let is_hex = !isid.is_empty() && isid.bytes().all(|byte| byte.is_ascii_hexdigit());
    if name.is_empty() || name.len() > NAME_MAX || !is_hex || isid.len() > 12 {
        return None;
    }
    let [_, _, isid @ ..] = u64::from_str_radix(isid, 16).ok()?.to_be_bytes();
    Some((Initiator { name: name.to_owned(), isid }, 4 + len))
}
