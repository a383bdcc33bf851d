//! iSCSI PDUs: the 48-byte header of what initiators send, and of what a target answers (RFC 7143,
//! section 11).
//!
//! ```text
//! 0 opcode, I  1 F and flags  4 words of AHS  5..8 length of the data  8..16 LUN  16..20 task tag
//! 20.. depends on the opcode; 24 CmdSN or StatSN, 28 ExpStatSN or ExpCmdSN, 32 MaxCmdSN
//! header │ AHS │ header digest │ data │ padding to 4 │ data digest
//! ```
//! Numbers are big-endian, digests little-endian. A decoded PDU says what the bytes say; whether that
//! makes sense is the session's business.

/// Bytes of a header without what may follow it.
pub const HEADER: usize = 48;
/// Bytes of a digest.
pub const DIGEST: usize = 4;
/// The tag that names no task.
pub const NO_TAG: u32 = u32::MAX;

const IMMEDIATE: u8 = 0x40;
const FINAL: u8 = 0x80;

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

/// The numbers that every answer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Number of this answer, or of the next one when it has none of its own.
    pub stat_sn: u32,
    /// The next command.
    pub exp_cmd_sn: u32,
    /// The last command that may be sent.
    pub max_cmd_sn: u32,
}

/// How far the data that were transferred are from what the initiator expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residual {
    /// Bytes that the initiator had no room (or no data) for.
    pub over: u32,
    /// Bytes that it expected and that were not transferred.
    pub under: u32,
}

impl Residual {
    /// Of a transfer of `actual` bytes where `expected` were expected.
    pub fn of(expected: u64, actual: u64) -> Residual {
        let clipped = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Residual {
            over: clipped(actual.saturating_sub(expected)),
            under: clipped(expected.saturating_sub(actual)),
        }
    }

    fn flags(self) -> u8 {
        if self.over > 0 {
            0x04
        } else if self.under > 0 {
            0x02
        } else {
            0
        }
    }

    fn count(self) -> u32 {
        self.over.max(self.under)
    }
}

/// The kinds of PDU that a target sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A ping, or the answer to one.
    NopIn {
        /// Asks for an answer under this tag.
        transfer_tag: u32,
        /// The logical unit of a ping that asks for an answer.
        lun: [u8; 8],
    },
    /// The end of a SCSI command.
    Response {
        /// 0: the command was carried out by the target.
        response: u8,
        /// SCSI status.
        status: u8,
        /// What was not transferred.
        residual: Residual,
        /// R2T and Data-In of the task so far.
        exp_data_sn: u32,
    },
    /// The end of a task management function.
    TaskManagement {
        /// 11.6.1.
        response: u8,
    },
    /// The answer to a login step.
    Login {
        /// The target agrees to the next stage.
        transits: bool,
        /// The text goes on in the next PDU.
        goes_on: bool,
        /// The stage it is in.
        stage: u8,
        /// The next one.
        next_stage: u8,
        /// The initiator's part of the session's name.
        isid: [u8; 6],
        /// The target's part.
        tsih: u16,
        /// Class and detail (11.13.5).
        status: u16,
    },
    /// Keys and values.
    Text {
        /// The last of its exchange.
        is_final: bool,
        /// The text goes on in the next PDU.
        goes_on: bool,
        /// Names an exchange that goes on.
        transfer_tag: u32,
    },
    /// Data of a read.
    DataIn {
        /// The last of its sequence.
        is_final: bool,
        /// With it the command ends: status and residual.
        end: Option<(u8, Residual)>,
        /// Its number among those of the task.
        data_sn: u32,
        /// Where in the command's data it belongs.
        offset: u32,
    },
    /// The end of a logout.
    Logout {
        /// 11.15.1.
        response: u8,
    },
    /// Asks for data of a write.
    ReadyToTransfer {
        /// The logical unit.
        lun: [u8; 8],
        /// Names the data that are asked for.
        transfer_tag: u32,
        /// Its number among those of the task.
        r2t_sn: u32,
        /// Where in the command's data they begin.
        offset: u32,
        /// How many bytes.
        len: u32,
    },
    /// News without a question.
    Async {
        /// 11.9.1.
        event: u8,
        /// Depends on the event.
        parameters: [u16; 3],
    },
    /// A PDU was not understood; its header is the data.
    Reject {
        /// 11.17.1.
        reason: u8,
    },
}

impl Answer {
    /// Appends the header for `data_len` bytes of data; `tag` is the initiator's name of the task.
    pub fn encode(&self, tag: u32, numbers: Numbers, data_len: usize, out: &mut Vec<u8>) {
        let mut bytes = [0; HEADER];
        let flag = |is: bool, bit: u8| if is { bit } else { 0 };
        put(&mut bytes, 4, data_len as u32);
        put(&mut bytes, 16, tag);
        put(&mut bytes, 24, numbers.stat_sn);
        put(&mut bytes, 28, numbers.exp_cmd_sn);
        put(&mut bytes, 32, numbers.max_cmd_sn);
        let (opcode, flags) = match *self {
            Answer::NopIn { transfer_tag, lun } => {
                bytes[8..16].copy_from_slice(&lun);
                put(&mut bytes, 20, transfer_tag);
                (0x20, FINAL)
            }
            Answer::Response { response, status, residual, exp_data_sn } => {
                bytes[2] = response;
                bytes[3] = status;
                put(&mut bytes, 36, exp_data_sn);
                put(&mut bytes, 44, residual.count());
                (0x21, FINAL | residual.flags())
            }
            Answer::TaskManagement { response } => {
                bytes[2] = response;
                (0x22, FINAL)
            }
            Answer::Login { transits, goes_on, stage, next_stage, isid, tsih, status } => {
                bytes[8..14].copy_from_slice(&isid);
                bytes[14..16].copy_from_slice(&tsih.to_be_bytes());
                bytes[36..38].copy_from_slice(&status.to_be_bytes());
                let next_stage = if transits { next_stage } else { 0 };
                (0x23, flag(transits, FINAL) | flag(goes_on, 0x40) | stage << 2 | next_stage)
            }
            Answer::Text { is_final, goes_on, transfer_tag } => {
                put(&mut bytes, 20, transfer_tag);
                (0x24, flag(is_final, FINAL) | flag(goes_on, 0x40))
            }
            Answer::DataIn { is_final, end, data_sn, offset } => {
                put(&mut bytes, 20, NO_TAG);
                put(&mut bytes, 36, data_sn);
                put(&mut bytes, 40, offset);
                let mut flags = flag(is_final, FINAL);
                match end {
                    Some((status, residual)) => {
                        bytes[3] = status;
                        put(&mut bytes, 44, residual.count());
                        flags |= 0x01 | residual.flags();
                    }
                    None => put(&mut bytes, 24, 0),
                }
                (0x25, flags)
            }
            Answer::Logout { response } => {
                bytes[2] = response;
                (0x26, FINAL)
            }
            Answer::ReadyToTransfer { lun, transfer_tag, r2t_sn, offset, len } => {
                bytes[8..16].copy_from_slice(&lun);
                put(&mut bytes, 20, transfer_tag);
                put(&mut bytes, 36, r2t_sn);
                put(&mut bytes, 40, offset);
                put(&mut bytes, 44, len);
                (0x31, FINAL)
            }
            Answer::Async { event, parameters } => {
                bytes[36] = event;
                for (at, parameter) in [38, 40, 42].into_iter().zip(parameters) {
                    bytes[at..at + 2].copy_from_slice(&parameter.to_be_bytes());
                }
                (0x32, FINAL)
            }
            Answer::Reject { reason } => {
                bytes[2] = reason;
                (0x3f, FINAL)
            }
        };
        bytes[0] = opcode;
        bytes[1] = flags;
        out.extend_from_slice(&bytes);
    }
}

/// Bytes that follow `len` bytes of data to make them a multiple of four.
pub fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

fn word(bytes: &[u8; HEADER], at: usize) -> u32 {
    u32::from_be_bytes(piece(bytes, at))
}

fn piece<const N: usize>(bytes: &[u8; HEADER], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the length is in the type")
}

fn put(bytes: &mut [u8; HEADER], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests;
