//! An initiator on its way to the shard, and how its session begins there.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::super::login::Established;
use super::super::pdu_log::{Lines, PduLog};
use super::super::session::{Session, Start};
use super::{Connection, Disks, Input, Phase, SharedDevice, close_ended, lock};
use crate::client::{self, Client, Context, DiskId, Tokens};
use crate::link::Link;
use crate::outbox::Outbox;
use crate::scsi::Initiator;

/// An initiator on its way to the shard.
#[derive(Debug)]
pub struct Newcomer {
    /// Its socket.
    pub socket: OwnedFd,
    /// The target.
    pub device: SharedDevice,
    /// The disks of the target.
    pub disks: Vec<DiskId>,
    /// What its login led to.
    pub established: Established,
    /// The answer to SendTargets.
    pub targets: Vec<u8>,
    /// The relative identifier of the target port.
    pub port: u16,
    /// Where PDUs are logged.
    pub log: Option<Arc<dyn Lines>>,
}

impl client::Newcomer for Newcomer {
    fn disks(&self) -> &[DiskId] {
        &self.disks
    }

    fn meet(&mut self, is_served: &dyn Fn(DiskId) -> bool) -> bool {
        let mut device = lock(&self.device);
        device.show_served(is_served);
        self.disks = device.disks();
        !self.disks.is_empty()
    }

    fn start(
        self: Box<Self>,
        cx: &mut Context<'_>,
        id: u32,
        tokens: Tokens,
    ) -> io::Result<Box<dyn Client>> {
        let socket = cx.reactor.add_socket(self.socket)?;
        let mut established = self.established;
        let input = std::mem::take(&mut established.leftover);
        let initiator = Initiator { name: established.initiator.clone(), isid: established.isid };
        let log = self.log.map(|lines| PduLog::new(lines, &initiator));
        let member = {
            let mut device = lock(&self.device);
            let member = device.join(initiator, self.port, Some(socket));
            close_ended(cx, &mut device);
            member
        };
        let session = Session::new(Start { established, member, targets: self.targets, log });
        let mut connection = Connection {
            link: Link::new(id, tokens, socket),
            phase: Phase::Open,
            device: self.device,
            disks: Disks { list: self.disks, seen: None },
            session,
            outbox: Outbox::new(socket, tokens.send),
            input: Input::new(input),
            direct: None,
            blocked_at: None,
            heard: cx.now,
            scratch: Vec::new(),
        };
        connection.with(cx, |connection, cx, device| connection.take_pdus(cx, device));
        Ok(Box::new(connection))
    }
}
