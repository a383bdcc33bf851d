//! The transmission phase, without I/O.
