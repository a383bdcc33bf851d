//! How a count is taken so that it repeats, and when it fails.

use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};

/// The C library chooses how it copies by the CPU. So it copies with what every x86-64 has.
const BASELINE: &str = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX_Fast_Unaligned_Load,-SSSE3,-ERMS,-FSRM,-Prefer_ERMS,-Prefer_FSRM";

/// What a benchmark may take.
pub fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let mut limit = Callgrind::default();
    limit.hard_limits([(EventKind::Ir, instructions)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(limit).env("GLIBC_TUNABLES", BASELINE);
    config
}
