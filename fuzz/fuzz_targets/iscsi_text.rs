//! The keys and values of an iSCSI login.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_frontends::iscsi::fuzzing::iscsi_text(data));
