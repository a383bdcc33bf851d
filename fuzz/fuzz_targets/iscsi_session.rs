//! What it may send afterwards: commands, data, task management, garbage.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_frontends::iscsi::fuzzing::iscsi_session(data));
