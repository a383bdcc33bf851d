//! What may be found where the reservations of a SCSI disk were stored.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_frontends::scsi::fuzzing::scsi_stored(data));
