//! What a client may send before the transmission phase.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_frontends::nbd::fuzzing::nbd_handshake(data));
