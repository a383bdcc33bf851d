//! Latencies where nobody told others: the same for an advice and for a simulation, so that the two agree.

/// Nanoseconds of a hit in RAM, as measured (docs/benchmarks.md) at queue depth 1 over NBD: what every request takes besides
/// its I/Os.
pub const RAM_NS: f64 = 11_000.0;
/// Of a durable write into the log, measured in the same way.
const FLASH_WRITE_NS: f64 = 94_000.0;
/// Of a hit on flash: a read of common flash, and what a RAM hit takes.
const FLASH_NS: f64 = 100_000.0;
/// Of primary storage of which nothing is known.
pub const BACKEND_NS: f64 = 5_000_000.0;
/// Requests with a latency that a trace needs for it to be believed.
pub const LATENCIES_MIN: u64 = 100;

/// Of a hit on flash, where one in RAM takes so much.
pub fn flash_ns(ram_ns: f64) -> f64 {
    FLASH_NS - RAM_NS + ram_ns
}

/// Of a durable write into the log, where a hit in RAM takes so much.
pub fn flash_write_ns(ram_ns: f64) -> f64 {
    FLASH_WRITE_NS - RAM_NS + ram_ns
}
