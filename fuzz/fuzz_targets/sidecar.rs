//! What may stand in a file beside an image.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_core::fuzzing::sidecar(data));
