//! Records of binary traces: whole ones, and little-endian numbers in them.

use std::io::{self, BufRead};

/// Reads until `record` is full or the input ends; returns how much there was.
pub(super) fn fill(input: &mut dyn BufRead, record: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < record.len() {
        match input.read(&mut record[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

pub(super) fn u16_at(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([record[at], record[at + 1]])
}

pub(super) fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from(u16_at(record, at)) | u32::from(u16_at(record, at + 2)) << 16
}

pub(super) fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from(u32_at(record, at)) | u64::from(u32_at(record, at + 4)) << 32
}
