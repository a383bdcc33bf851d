//! What requests go through, where that takes more than one part.

mod acknowledge;
mod append;
mod compare;
mod destage;
mod drop_cache;
pub(super) mod edges;
mod flush;
mod in_log;
mod limits;
pub(super) mod mode;
mod query;
pub(super) mod read;
mod read_log;
mod refuse;
mod timeout;
pub(super) mod write;
mod zero;
