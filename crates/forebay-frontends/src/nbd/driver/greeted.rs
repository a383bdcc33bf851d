//! A client between its handshake and its shard.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::super::export::Export;
use super::super::handshake::Negotiated;
use super::super::session::Session;
use super::Connection;
use crate::client::{Client, Context, DiskId, Newcomer, Tokens};

/// A client whose handshake is over.
#[derive(Debug)]
pub struct Greeted {
    /// The socket.
    pub socket: OwnedFd,
    /// The disk that it chose.
    pub disk: DiskId,
    /// The exports of its listener.
    pub exports: Arc<[Export]>,
    /// Which of them it chose.
    pub export: usize,
    /// What was agreed on.
    pub negotiated: Negotiated,
    /// What it sent after its handshake.
    pub leftover: Vec<u8>,
}

impl Newcomer for Greeted {
    fn disks(&self) -> &[DiskId] {
        std::slice::from_ref(&self.disk)
    }

    fn start(
        self: Box<Self>,
        cx: &mut Context<'_>,
        id: u32,
        tokens: Tokens,
    ) -> std::io::Result<Box<dyn Client>> {
        let socket = cx.reactor.add_socket(self.socket)?;
        let session = Session::new(&self.exports[self.export], self.negotiated);
        let connection =
            Connection::start(cx, socket, self.disk, session, &self.leftover, id, tokens);
        Ok(Box::new(connection))
    }
}
