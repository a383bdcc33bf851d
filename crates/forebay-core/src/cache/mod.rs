//! The blocks of the disk that RAM and flash hold.

pub mod alignment;
pub mod directory;
pub(crate) mod returns;
pub(crate) mod sequential;
