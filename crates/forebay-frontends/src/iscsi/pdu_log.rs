//! A log of PDUs for field reports: a line of text for each header, never a byte of data.
//!
//! ```text
//! iqn.2026-01.org.example:host1,8000…01 > Command tag 5 lun 0 data 0 (…) 01c1…    what the initiator sent
//! iqn.2026-01.org.example:host1,8000…01 < Response 2180…                          what it was answered
//! ```
//! The 48 bytes of the header end the line, in hexadecimal: they have all that the protocol says, and no data of the disk.
//! Logins are not in it, so that neither CHAP's proofs nor names of others are.

use std::fmt::{self, Write};
use std::sync::Arc;

use super::codec::{HEADER, Pdu};
use crate::scsi::{Initiator, Lun};

/// Takes the lines; must not wait.
pub trait Lines: Send + Sync + fmt::Debug {
    /// One line, without its end.
    fn line(&self, line: String);
}

/// The log of one session.
#[derive(Clone, Debug)]
pub struct PduLog {
    lines: Arc<dyn Lines>,
    name: String,
}

impl PduLog {
    /// The log of a session of `initiator`.
    pub fn new(lines: Arc<dyn Lines>, initiator: &Initiator) -> PduLog {
        let isid: String = initiator.isid.iter().map(|byte| format!("{byte:02x}")).collect();
        // One word: the initiator makes it up.
        let name = initiator.name.replace(char::is_whitespace, "_");
        PduLog { lines, name: format!("{name},{isid}") }
    }

    /// The session begins, or ends.
    pub fn say(&self, what: &str) {
        self.lines.line(format!("{} {what}", self.name));
    }

    /// The initiator sent a header.
    pub fn received(&self, pdu: &Pdu, header: &[u8; HEADER]) {
        let lun = Lun::decode(pdu.lun).map_or("?".to_owned(), |lun| lun.number().to_string());
        let mut line = format!("{} > {}", self.name, word(header[0]));
        let _ = write!(line, " tag {:x} lun {lun} data {}", pdu.tag, pdu.data_len);
        self.end(line, header);
    }

    /// It is answered with a header.
    pub fn sent(&self, header: &[u8; HEADER]) {
        let mut line = format!("{} < {}", self.name, word(header[0]));
        let tag = u32::from_be_bytes([header[16], header[17], header[18], header[19]]);
        let data = u32::from_be_bytes([0, header[5], header[6], header[7]]);
        let _ = write!(line, " tag {tag:x} data {data}");
        self.end(line, header);
    }

    fn end(&self, mut line: String, header: &[u8; HEADER]) {
        line.push(' ');
        for byte in header {
            let _ = write!(line, "{byte:02x}");
        }
        self.lines.line(line);
    }
}

/// What an opcode is called.
fn word(opcode: u8) -> &'static str {
    match opcode & 0x3f {
        0x00 => "NOP-Out",
        0x01 => "Command",
        0x02 => "Task-Management",
        0x03 => "Login",
        0x04 => "Text",
        0x05 => "Data-Out",
        0x06 => "Logout",
        0x10 => "SNACK",
        0x20 => "NOP-In",
        0x21 => "Response",
        0x22 => "Task-Management-Response",
        0x23 => "Login-Response",
        0x24 => "Text-Response",
        0x25 => "Data-In",
        0x26 => "Logout-Response",
        0x31 => "R2T",
        0x32 => "Async",
        0x3f => "Reject",
        _ => "unknown",
    }
}
