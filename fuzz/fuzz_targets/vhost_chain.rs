//! What a guest may write into the descriptors of a ring.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_frontends::vhost_user::fuzzing::vhost_chain(data));
