//! How fast the log of a write-back disk is carried to primary storage, and how writers are slowed
//! to that speed. Pieces of pure arithmetic; the engine's destager decides *what* is written.
//!
//! - [`window`]: how many destage writes may be outstanding, and when the next may start.
//! - [`epochs`]: how many flush epochs that is, and what it would be without their order.
//! - [`throttle`]: when the next acknowledgement may go, while the log fills.

pub mod epochs;
pub mod throttle;
pub mod window;
