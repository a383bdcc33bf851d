//! What requests go through, where that takes more than one part.

mod acknowledge;
mod append;
mod destage;
mod read_log;
mod refuse;
