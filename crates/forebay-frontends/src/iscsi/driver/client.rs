//! The connection as its shard sees it.

use std::io;

use forebay_core::ids::Nanos;
use forebay_io::reactor::Completion;

use super::{Connection, Phase, lock};
use crate::client::{Answer, Client, Context, DiskId, Tokens};

impl Client for Connection {
    fn disks(&self) -> &[DiskId] {
        &self.disks.list
    }

    fn on_completion(&mut self, cx: &mut Context<'_>, completion: Completion) {
        self.with(cx, |connection, cx, device| {
            if completion.token == connection.link.tokens.recv {
                return connection.on_received(cx, device, completion);
            }
            assert_eq!(
                completion.token, connection.link.tokens.send,
                "a completion of someone else"
            );
            if connection.link.is_away() {
                return connection.outbox.on_taken(completion.result, completion.buffer);
            }
            let sent = connection.outbox.on_sent(completion.result, completion.buffer);
            if connection.phase != Phase::Closed {
                match sent {
                    Ok(()) => connection.send(cx, device),
                    Err(_) => connection.disconnect(cx, device),
                }
            }
        });
    }

    fn on_reply(&mut self, cx: &mut Context<'_>, answer: Answer<'_>) {
        self.with(cx, |connection, cx, device| {
            connection.on_engine(cx, device, answer);
            connection.give_back(cx, device);
            if connection.phase == Phase::Closed {
                connection.outbox.discard(cx);
            }
        });
    }

    fn flush(&mut self, cx: &mut Context<'_>) {
        if self.phase != Phase::Closed {
            self.with(cx, Connection::send);
        }
    }

    fn wants_resume(&self) -> bool {
        if self.phase == Phase::Closed || self.link.is_away() || self.outbox.is_sending() {
            return false;
        }
        self.blocked_at.is_some() || self.session.has_waiting()
    }

    fn resume(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.wants_resume() {
            return false;
        }
        let mut goes_on = false;
        self.with(cx, |connection, cx, device| {
            if let Some(blocked_at) = connection.blocked_at.take() {
                goes_on = true;
                let span = cx.now.since(blocked_at);
                connection.heard = connection.heard.plus(span);
                connection.session.skip_time(span);
            }
            // Twice: who cannot begin for want of something else lets others have the room that it waited for.
            for _ in 0..2 {
                goes_on |= connection.find_memory(cx, device);
                goes_on |= connection.run_ready(cx, device);
            }
            if goes_on {
                connection.take_pdus(cx, device);
            }
        });
        goes_on
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.with(cx, |connection, cx, device| {
            if connection.phase == Phase::Open {
                let session = &mut connection.session;
                connection.outbox.append(|out| session.say_goodbye(out));
                connection.drain(cx, device);
            }
            // A task that goes on in parts waits for its disk, also after the initiator has left. One that has ended, or is on no
            // shard, takes no further part.
            let disks = &mut *cx.disks;
            let has_ended = |disk| disks.find_port(disk).is_none_or(|port| port.is_held);
            connection.session.abort_unstarted_of(device, has_ended);
        });
    }

    fn leave(&mut self, cx: &mut Context<'_>) -> bool {
        self.with(cx, |connection, cx, device| {
            let is_here = connection.phase != Phase::Closed && !connection.link.is_away();
            if is_here && connection.link.leave(cx) {
                device.move_socket(connection.session.member(), None);
            }
        });
        self.link.is_away() && !self.input.is_receiving && !self.outbox.is_sending()
    }

    fn enter(&mut self, cx: &mut Context<'_>, id: u32, tokens: Tokens) -> io::Result<()> {
        if let Err(error) = self.link.enter(cx, id, tokens) {
            self.with(cx, |connection, _, device| connection.end_away(device));
            return Err(error);
        }
        self.heard = cx.now;
        self.blocked_at = self.blocked_at.map(|_| cx.now);
        self.session.come_back(cx.now);
        self.outbox.enter(self.link.socket, tokens.send);
        if !lock(&self.device).move_socket(self.session.member(), Some(self.link.socket)) {
            cx.reactor.remove_socket(self.link.socket);
        }
        self.with(cx, |connection, cx, device| connection.take_pdus(cx, device));
        Ok(())
    }

    fn wake(&mut self, cx: &mut Context<'_>) {
        self.with(cx, |_, _, _| {});
    }

    fn give_up(&mut self, cx: &mut Context<'_>) {
        self.with(cx, |connection, cx, device| {
            if connection.phase == Phase::Draining && connection.session.is_answered() {
                connection.disconnect(cx, device);
            }
        });
    }

    fn next_deadline(&self) -> Nanos {
        if self.phase == Phase::Closed || self.link.is_away() {
            return Nanos::NEVER;
        }
        self.stalls_at().min(self.outbox.hold_deadline()).min(self.asks_at())
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.with(cx, |connection, cx, device| {
            if connection.phase == Phase::Closed {
                return;
            }
            connection.session.settle_deadline();
            if connection.stalls_at() <= cx.now {
                connection.disconnect(cx, device);
            } else if connection.outbox.hold_deadline() <= cx.now {
                connection.outbox.let_go(cx);
            } else if connection.asks_at() <= cx.now {
                let session = &mut connection.session;
                connection.outbox.append(|out| session.ping(out));
            }
        });
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Closed
            && !self.input.is_receiving
            && !self.outbox.is_sending()
            && self.session.in_flight() == 0
    }
}
