//! What a client may send in the transmission phase.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_frontends::nbd::fuzzing::nbd_session(data));
