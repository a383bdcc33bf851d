//! What a target answers.

use super::{FINAL, HEADER, NO_TAG, put};

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
