//! The connection as its shard sees it.

use forebay_core::action::ReplyData;
use forebay_core::ids::Nanos;
use forebay_core::status::IoStatus;
use forebay_io::reactor::Completion;

use super::{Connection, Phase, STALL_MAX, Waiting, tag};
use crate::client::{Answer, Client, Context, DiskId, Tokens};

impl Client for Connection {
    fn disks(&self) -> &[DiskId] {
        std::slice::from_ref(&self.disk)
    }

    fn on_completion(&mut self, cx: &mut Context<'_>, completion: Completion) {
        if completion.token == self.tokens.recv {
            self.on_received(cx, completion);
        } else {
            assert_eq!(completion.token, self.tokens.send, "a completion of someone else");
            if self.taken.is_some() {
                return self.outbox.on_taken(completion.result, completion.buffer);
            }
            let sent = self.outbox.on_sent(completion.result, completion.buffer);
            if self.phase != Phase::Closed {
                match sent {
                    Ok(()) => self.flush(cx),
                    Err(_) => self.disconnect(cx),
                }
            }
        }
    }

    fn on_reply(&mut self, cx: &mut Context<'_>, answer: Answer<'_>) {
        let Answer { disk, reply, slices, extents } = answer;
        debug_assert_eq!((reply.tag.0 >> 32) as u32, self.id);
        if reply.status == IoStatus::ShuttingDown {
            // A client that comes back repeats what has no answer. An error would reach its guest.
            self.session.forget(reply.tag.0 as u32);
            return self.drain(cx);
        }
        let session = &mut self.session;
        let with_data = self.outbox.append(|out| session.reply(reply, slices, extents, out));
        match reply.data {
            ReplyData::Slots { first, count } if with_data => {
                let slices = &slices[first as usize..][..count as usize];
                self.outbox.push_slots(cx.port(disk), slices);
            }
            ReplyData::Buffer { data, buffer } if with_data => {
                self.outbox.push_buffer(cx.port(disk).region(data), disk, buffer);
            }
            ReplyData::Buffer { buffer, .. } => cx.release(disk, buffer),
            ReplyData::None
            | ReplyData::Slots { .. }
            | ReplyData::Extents { .. }
            | ReplyData::Difference { .. } => {}
        }
        if self.phase == Phase::Closed {
            self.outbox.discard(cx);
        }
    }

    fn flush(&mut self, cx: &mut Context<'_>) {
        if self.phase == Phase::Closed || self.taken.is_some() {
            return;
        }
        let sent = self.outbox.flush(cx);
        if sent.is_err() || (self.phase == Phase::Draining && self.is_drained()) {
            self.disconnect(cx);
        }
    }

    fn wants_resume(&self) -> bool {
        match self.waiting {
            _ if self.taken.is_some() => false,
            None => false,
            Some(Waiting::Room { in_flight }) => {
                self.outbox.is_empty() && self.session.in_flight() < in_flight
            }
            Some(Waiting::Memory { .. } | Waiting::Place { .. }) => true,
        }
    }

    fn resume(&mut self, cx: &mut Context<'_>) -> bool {
        let goes_on = self.wants_resume() && self.retry(cx);
        if goes_on {
            self.take_requests(cx);
        }
        goes_on
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.drain(cx);
    }

    fn give_up(&mut self, cx: &mut Context<'_>) {
        if self.phase == Phase::Draining && self.is_answered() {
            self.disconnect(cx);
        }
    }

    fn leave(&mut self, cx: &mut Context<'_>) -> bool {
        if self.phase != Phase::Closed && self.taken.is_none() {
            debug_assert!(self.is_answered() && self.incoming.is_none(), "it is owed something");
            // Without a descriptor for it, it tries again.
            self.taken = cx.reactor.take_socket(self.socket).ok();
        }
        self.taken.is_some() && !self.is_receiving && !self.outbox.is_sending()
    }

    fn enter(&mut self, cx: &mut Context<'_>, id: u32, tokens: Tokens) -> std::io::Result<()> {
        let taken = self.taken.take().expect("it has left");
        self.socket = cx.reactor.add_socket(taken)?;
        (self.id, self.tokens) = (id, tokens);
        self.outbox.enter(self.socket, tokens.send);
        if let Some(Waiting::Place { request, .. }) = &mut self.waiting {
            request.tag = tag(id, request.tag.0 as u32);
        }
        self.take_requests(cx);
        Ok(())
    }

    fn next_deadline(&self) -> Nanos {
        if self.phase == Phase::Closed || self.taken.is_some() {
            return Nanos::NEVER;
        }
        let send = self.outbox.sending_since().plus(STALL_MAX);
        self.receive_deadline.min(send).min(self.outbox.hold_deadline())
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        if self.phase == Phase::Closed {
            return;
        }
        let stalled = self.outbox.sending_since().plus(STALL_MAX).min(self.receive_deadline);
        if stalled <= cx.now {
            self.disconnect(cx);
        } else if self.outbox.hold_deadline() <= cx.now {
            self.outbox.let_go(cx);
        }
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Closed
            && !self.is_receiving
            && !self.outbox.is_sending()
            && self.session.in_flight() == 0
    }
}
