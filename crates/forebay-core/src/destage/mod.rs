//! How fast the log of a write-back disk is carried to primary storage, and how writers are slowed
//! to that speed. Two pieces of pure arithmetic; the engine's destager decides *what* is written.
//!
//! - [`window`]: how many destage writes may be outstanding, and when the next may start.
//! - [`throttle`]: when the next acknowledgement may go, while the log fills.

pub mod throttle;
pub mod window;
