//! `vscsiStats -e`: serial number, length in bytes, scatter-gather entries, command, first sector of
//! 512 bytes, time in µs. Header lines come with or without a leading `#`; the command is a word
//! (`read`, `write`) or the SCSI opcode as a number.

use super::fields::{SECTOR, bytes, exactly, number, shown};
use super::lines::Parser;
use super::vscsi::op_of;
use super::{Item, Raw};
use crate::record::Op;

/// The columns, for errors.
const COLUMNS: &str = "serial number, length, SG entries, command, LBN, time in µs";

/// See the module.
#[derive(Debug)]
pub(super) struct VscsiCsv;

/// True for the lines that introduce the columns.
pub(super) fn is_header(line: &str) -> bool {
    let line = line.trim_start_matches(['#', ' ']);
    line.starts_with("Vscsi Cmd Trace") || line.starts_with("Serial Number,")
}

impl Parser for VscsiCsv {
    fn parse(&mut self, line: &str) -> Result<Item, String> {
        if is_header(line) {
            return Ok(Item::PassedOver);
        }
        let [serial, len, _entries, command, sector, micros] = exactly(line.split(','), COLUMNS)?;
        number(serial, "serial number")?;
        let Some(op) = op(command)? else { return Ok(Item::PassedOver) };
        Ok(Item::Request(Raw {
            time_ns: bytes(micros, 1000, "time")?,
            op,
            offset: bytes(sector, SECTOR, "LBN")?,
            len: number(len, "length")?,
            device: 0,
            latency_ns: None,
        }))
    }
}

/// The command; `None` for one that neither reads nor writes.
fn op(command: &str) -> Result<Option<Op>, String> {
    if command.eq_ignore_ascii_case("read") {
        return Ok(Some(Op::Read));
    }
    if command.eq_ignore_ascii_case("write") {
        return Ok(Some(Op::Write));
    }
    let hex = command.strip_prefix("0x").or_else(|| command.strip_prefix("0X"));
    let opcode = match hex {
        Some(hex) => u16::from_str_radix(hex, 16).ok(),
        None => command.parse().ok(),
    };
    if let Some(opcode) = opcode {
        return Ok(op_of(opcode));
    }
    let is_word = !command.is_empty()
        && command.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" _-()".contains(&byte));
    if is_word { Ok(None) } else { Err(format!("command \"{}\" is no word", shown(command))) }
}
