//! The NBD server.
//!
//! ```text
//! control plane   Handshake   bytes ◄──► options           one per connection, until GO
//!     │ socket, export, Negotiated, leftover bytes
//!     ▼
//! shard           Connection  reactor ◄──► Session ◄──► engine
//!                     └ Outbox  headers, slot memory and buffers on their way to the socket
//! ```
//!
//! [`handshake`] and [`session`] do no I/O: bytes in, bytes and requests out. [`driver`] owns the
//! socket. Everything a client sends is hostile: it is bounded before it is believed, and the worst
//! it can do is to lose its own connection.
//!
//! Not here: TLS, extended headers, resize, old-style handshake.

mod contexts;
pub mod driver;
pub mod errno;
mod export;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod handshake;
pub mod session;

pub use contexts::Contexts;
pub use driver::{Connection, Greeted};
pub use export::Export;
pub use handshake::{Handshake, Negotiated, Outcome};
