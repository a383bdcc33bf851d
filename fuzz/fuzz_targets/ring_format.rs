//! What the ring of a cache on flash may contain.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_core::fuzzing::ring_format(data));
