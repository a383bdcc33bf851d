//! What initiators send.

use super::{FINAL, HEADER, IMMEDIATE, piece, put, word};

/// What an initiator sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pdu {
    /// Not counted in the window of commands.
    pub is_immediate: bool,
    /// Bytes of additional header segments.
    pub ahs_len: usize,
    /// Bytes of data, without padding.
    pub data_len: usize,
    /// The logical unit, as it was sent.
    pub lun: [u8; 8],
    /// The initiator's name of the task.
    pub tag: u32,
    /// Number of the command; those that carry none have 0.
    pub cmd_sn: u32,
    /// What it is.
    pub request: Request,
}

/// The kinds of PDU that an initiator sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A ping, or the answer to ours.
    NopOut {
        /// The ping that it answers.
        transfer_tag: u32,
    },
    /// A SCSI command.
    Command(Command),
    /// Something is to happen to tasks.
    TaskManagement {
        /// Which function (11.5.1).
        function: u8,
        /// The task that it is about, for ABORT TASK.
        referenced: u32,
        /// That task's number.
        referenced_sn: u32,
    },
    /// A step of the login.
    Login(LoginRequest),
    /// Keys and values.
    Text {
        /// The last of its exchange.
        is_final: bool,
        /// The text goes on in the next PDU.
        goes_on: bool,
        /// Names an exchange that goes on.
        transfer_tag: u32,
    },
    /// Data of a command.
    DataOut {
        /// The last of its sequence.
        is_final: bool,
        /// The R2T that asked for it.
        transfer_tag: u32,
        /// Its number in the sequence.
        data_sn: u32,
        /// Where in the command's data it belongs.
        offset: u32,
    },
    /// The initiator leaves.
    Logout {
        /// 0: the session, 1: the connection, 2: to recover the connection.
        reason: u8,
        /// The connection.
        cid: u16,
    },
    /// None that this target knows; SNACK is one, there is no recovery.
    Unknown(u8),
}

/// A SCSI command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// No unsolicited data follow.
    pub is_final: bool,
    /// The initiator expects data.
    pub reads: bool,
    /// The initiator has data.
    pub writes: bool,
    /// The task attribute (0 untagged, 1 simple, 2 ordered, 3 head of queue, 4 ACA).
    pub attribute: u8,
    /// Bytes that the initiator expects to transfer.
    pub expected_len: u32,
    /// The command's bytes.
    pub cdb: [u8; 16],
}

/// A step of the login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginRequest {
    /// The initiator is ready for the next stage.
    pub transits: bool,
    /// The text goes on in the next PDU.
    pub goes_on: bool,
    /// The stage it is in.
    pub stage: u8,
    /// The stage it wants next.
    pub next_stage: u8,
    /// The lowest version that the initiator speaks.
    pub version_min: u8,
    /// The initiator's part of the session's name.
    pub isid: [u8; 6],
    /// The target's part, 0 for a new session.
    pub tsih: u16,
    /// The connection.
    pub cid: u16,
}

impl Pdu {
    /// What the header says.
    pub fn decode(bytes: &[u8; HEADER]) -> Pdu {
        let is_final = bytes[1] & FINAL != 0;
        let goes_on = bytes[1] & 0x40 != 0;
        let request = match bytes[0] & 0x3f {
            0x00 => Request::NopOut { transfer_tag: word(bytes, 20) },
            0x01 => Request::Command(Command {
                is_final,
                reads: goes_on,
                writes: bytes[1] & 0x20 != 0,
                attribute: bytes[1] & 7,
                expected_len: word(bytes, 20),
                cdb: piece(bytes, 32),
            }),
            0x02 => Request::TaskManagement {
                function: bytes[1] & 0x7f,
                referenced: word(bytes, 20),
                referenced_sn: word(bytes, 32),
            },
            0x03 => Request::Login(LoginRequest {
                transits: is_final,
                goes_on,
                stage: bytes[1] >> 2 & 3,
                next_stage: bytes[1] & 3,
                version_min: bytes[3],
                isid: piece(bytes, 8),
                tsih: u16::from_be_bytes(piece(bytes, 14)),
                cid: u16::from_be_bytes(piece(bytes, 20)),
            }),
            0x04 => Request::Text { is_final, goes_on, transfer_tag: word(bytes, 20) },
            0x05 => Request::DataOut {
                is_final,
                transfer_tag: word(bytes, 20),
                data_sn: word(bytes, 36),
                offset: word(bytes, 40),
            },
            0x06 => Request::Logout {
                reason: bytes[1] & 0x7f,
                cid: u16::from_be_bytes(piece(bytes, 20)),
            },
            other => Request::Unknown(other),
        };
        let numbered = !matches!(request, Request::DataOut { .. } | Request::Unknown(_));
        Pdu {
            is_immediate: bytes[0] & IMMEDIATE != 0,
            ahs_len: 4 * usize::from(bytes[4]),
            data_len: (word(bytes, 4) & 0xff_ffff) as usize,
            lun: piece(bytes, 8),
            tag: word(bytes, 16),
            cmd_sn: if numbered { word(bytes, 24) } else { 0 },
            request,
        }
    }

    /// The header, as an initiator sends it; tests are initiators.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let flag = |is: bool, bit: u8| if is { bit } else { 0 };
        bytes[8..16].copy_from_slice(&self.lun);
        bytes[4..8].copy_from_slice(&(self.data_len as u32).to_be_bytes());
        bytes[4] = (self.ahs_len / 4) as u8;
        put(&mut bytes, 16, self.tag);
        put(&mut bytes, 24, self.cmd_sn);
        let opcode = match self.request {
            Request::NopOut { transfer_tag } => {
                bytes[1] = FINAL;
                put(&mut bytes, 20, transfer_tag);
                0x00
            }
            Request::Command(command) => {
                bytes[1] = flag(command.is_final, FINAL)
                    | flag(command.reads, 0x40)
                    | flag(command.writes, 0x20)
                    | command.attribute;
                put(&mut bytes, 20, command.expected_len);
                bytes[32..].copy_from_slice(&command.cdb);
                0x01
            }
            Request::TaskManagement { function, referenced, referenced_sn } => {
                bytes[1] = FINAL | function;
                put(&mut bytes, 20, referenced);
                put(&mut bytes, 32, referenced_sn);
                0x02
            }
            Request::Login(login) => {
                bytes[1] = flag(login.transits, FINAL)
                    | flag(login.goes_on, 0x40)
                    | login.stage << 2
                    | login.next_stage;
                bytes[3] = login.version_min;
                bytes[8..14].copy_from_slice(&login.isid);
                bytes[14..16].copy_from_slice(&login.tsih.to_be_bytes());
                bytes[20..22].copy_from_slice(&login.cid.to_be_bytes());
                0x03
            }
            Request::Text { is_final, goes_on, transfer_tag } => {
                bytes[1] = flag(is_final, FINAL) | flag(goes_on, 0x40);
                put(&mut bytes, 20, transfer_tag);
                0x04
            }
            Request::DataOut { is_final, transfer_tag, data_sn, offset } => {
                bytes[1] = flag(is_final, FINAL);
                put(&mut bytes, 20, transfer_tag);
                put(&mut bytes, 36, data_sn);
                put(&mut bytes, 40, offset);
                0x05
            }
            Request::Logout { reason, cid } => {
                bytes[1] = FINAL | reason;
                bytes[20..22].copy_from_slice(&cid.to_be_bytes());
                0x06
            }
            Request::Unknown(opcode) => opcode,
        };
        bytes[0] = opcode | flag(self.is_immediate, IMMEDIATE);
        bytes
    }
}
