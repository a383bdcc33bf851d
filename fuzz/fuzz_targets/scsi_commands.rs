//! What SCSI initiators may send to a disk.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_frontends::scsi::fuzzing::scsi_commands(data));
