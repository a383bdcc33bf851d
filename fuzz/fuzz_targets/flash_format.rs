//! What a pool and a log on flash may contain.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_core::fuzzing::flash_format(data));
