//! What an iSCSI initiator may send before its session begins.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_frontends::iscsi::fuzzing::iscsi_login(data));
