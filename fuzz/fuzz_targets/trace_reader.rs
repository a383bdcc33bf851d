//! What a trace file may contain.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_trace::formats::fuzzing::trace_reader(data));
