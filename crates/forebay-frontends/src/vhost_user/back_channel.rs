//! The way back to a hypervisor: tells it to look at the configuration space again.
//!
//! `vhost` takes the socket that a hypervisor sends for that (SET_BACKEND_REQ_FD), and has no call for this message. So
//! messages are peeked at before `vhost` reads them, and the socket of that one is kept, too.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};

/// The message that brings the socket.
const SET_BACKEND_REQ_FD: u32 = 21;
/// The message that the configuration space has changed, and the version of the protocol.
const CONFIG_CHANGE: u32 = 2;
const VERSION: u32 = 1;

/// See the module.
#[derive(Debug)]
pub struct BackChannel(OwnedFd);

impl BackChannel {
    /// Waits for the next message of a hypervisor, and leaves it there. The channel, if it is the one that brings it.
    pub fn await_message(stream: &UnixStream) -> Option<BackChannel> {
        let mut request = [0; 4];
        let flags = RecvFlags::PEEK | RecvFlags::WAITALL;
        let (_, len) =
            rustix::io::retry_on_intr(|| rustix::net::recv(stream, &mut request[..], flags))
                .ok()?;
        if len < request.len() || u32::from_ne_bytes(request) != SET_BACKEND_REQ_FD {
            return None;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC;
        rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut request)], &mut ancillary, flags)
            .ok()?;
        ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next().map(BackChannel),
            _ => None,
        })
    }

    /// Tells the hypervisor that the configuration space has changed. One that does not listen is not waited for.
    pub fn tell_config_change(&self) {
        let mut message = [0; 12];
        message[..4].copy_from_slice(&CONFIG_CHANGE.to_ne_bytes());
        message[4..8].copy_from_slice(&VERSION.to_ne_bytes());
        let _ = rustix::net::send(&self.0, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read};
    use std::os::fd::AsFd;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage};

    use super::*;

    fn send(to: &UnixStream, request: u32, sockets: &[&UnixStream]) {
        let mut message = [0; 12];
        message[..4].copy_from_slice(&request.to_ne_bytes());
        let fds: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        }
        let iov = [IoSlice::new(&message)];
        rustix::net::sendmsg(to, &iov, &mut ancillary, SendFlags::empty()).unwrap();
    }

    #[test]
    fn the_channel_is_found_and_every_message_stays() {
        let (hypervisor, mut device) = UnixStream::pair().unwrap();
        let (mut told, channel) = UnixStream::pair().unwrap();
        send(&hypervisor, 5, &[&channel]);
        assert!(BackChannel::await_message(&device).is_none(), "another message with a file");
        device.read_exact(&mut [0; 12]).unwrap();
        send(&hypervisor, SET_BACKEND_REQ_FD, &[]);
        assert!(BackChannel::await_message(&device).is_none(), "no socket");
        device.read_exact(&mut [0; 12]).unwrap();
        send(&hypervisor, SET_BACKEND_REQ_FD, &[&channel]);
        let back = BackChannel::await_message(&device).unwrap();
        let mut message = [0; 12];
        device.read_exact(&mut message).unwrap();
        assert_eq!(message[..4], SET_BACKEND_REQ_FD.to_ne_bytes());
        drop(channel);
        back.tell_config_change();
        told.read_exact(&mut message).unwrap();
        assert_eq!(message, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        drop((hypervisor, told));
        assert!(BackChannel::await_message(&device).is_none(), "the end");
        back.tell_config_change();
    }
}
