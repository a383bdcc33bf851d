//! A queue as its shard sees it: requests come in, answers go out, and when it has to be looked at.

use forebay_core::action::{ReplyData, Span};
use forebay_core::ids::Nanos;
use forebay_core::status::IoStatus;
use forebay_io::reactor::Completion;

use super::super::chain::{self, Broken};
use super::requests::Parts;
use super::{EARLY, Phase, Queue, Waiting, count, tag};
use crate::client::{Answer, Client, Context, DiskId, Tokens};

impl Client for Queue {
    fn disks(&self) -> &[DiskId] {
        std::slice::from_ref(&self.known.disk)
    }

    /// The guest has kicked, or cannot any more; or there are orders.
    fn on_completion(&mut self, cx: &mut Context<'_>, completion: Completion) {
        if completion.token == self.known.tokens.send {
            while let Some((order, done)) = self.control.next() {
                self.obey(cx, order, done);
            }
            if completion.result.is_err() {
                // Nobody hears of orders any more.
                self.break_off(Broken::Kick);
                self.drain(cx);
            }
            return;
        }
        if completion.result.is_err() {
            return self.break_off(Broken::Kick);
        }
        count(&self.tells.counters.kicks);
        match self.waiting {
            None => self.take_requests(cx),
            // It does not come again: the ring is looked at when nothing waits any more.
            Some(_) => self.disarm(),
        }
    }

    fn on_reply(&mut self, cx: &mut Context<'_>, answer: Answer<'_>) {
        let Answer { disk, reply, slices, .. } = answer;
        let head = reply.tag.0 as u16;
        let port = cx.port(disk);
        let (map, pieces, parts) = self.requests.data(head);
        let is_in_parts = parts.is_some();
        let mut written = parts.map_or(0, Parts::bytes_read);
        let mut copy = |span: Span| {
            port.memory.look(span.offset, span.len, |bytes| {
                chain::scatter(map, pieces, written, bytes);
            });
            written += u64::from(span.len);
        };
        match reply.data {
            ReplyData::Slots { first, count } => {
                slices[first as usize..][..count as usize].iter().for_each(|span| copy(*span));
            }
            ReplyData::Buffer { data, buffer } => {
                copy(data);
                cx.release(disk, buffer);
            }
            ReplyData::None | ReplyData::Extents { .. } | ReplyData::Difference { .. } => {}
        }
        if reply.status == IoStatus::ShuttingDown {
            self.end_unanswered(head);
        } else if is_in_parts && reply.status.is_ok() && self.requests.part_ended(head) {
            self.next_parts.push_back(head);
        } else {
            self.answer(head, reply.status.into(), written as u32);
        }
    }

    /// Wakes the guest for what was answered, and whoever waits for the end.
    fn flush(&mut self, cx: &mut Context<'_>) {
        self.early = EARLY;
        if self.ring.notify() {
            count(&self.tells.counters.calls);
        }
        if self.phase == Phase::Draining && self.requests.in_flight() == 0 {
            self.phase = Phase::Closed;
            self.bells.close(cx);
            self.tell_of_end();
        }
    }

    fn wants_resume(&self) -> bool {
        (self.waiting.is_some() || !self.next_parts.is_empty()) && !self.bells.are_away()
    }

    fn resume(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.wants_resume() || !self.retry(cx) {
            return false;
        }
        // A part is as much as a ring may have in its turn.
        if self.next_parts.is_empty() {
            self.take_requests(cx);
            return true;
        }
        self.submit_part(cx)
    }

    fn looks_out(&self) -> bool {
        self.takes() && self.waiting.is_none() && !self.is_armed
    }

    fn look(&mut self) -> bool {
        if self.looks_out() && self.ring.has_next() {
            self.waiting = Some(Waiting::Turn);
        }
        self.waiting.is_some()
    }

    fn rest(&mut self) -> bool {
        if self.looks_out() {
            match self.ring.arm() {
                Ok(true) => self.waiting = Some(Waiting::Turn),
                Ok(false) => self.is_armed = true,
                Err(broken) => self.break_off(broken),
            }
        }
        self.waiting.is_some()
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.drain(cx);
    }

    fn give_up(&mut self, cx: &mut Context<'_>) {
        // A guest does not have to take its answers. A disk that ended while it was held takes no further part.
        if self.phase == Phase::Draining && cx.port(self.known.disk).is_held {
            self.put_back(cx);
            for head in std::mem::take(&mut self.next_parts) {
                self.end_unanswered(head);
            }
        }
    }

    fn leave(&mut self, cx: &mut Context<'_>) -> bool {
        if self.phase != Phase::Closed && !self.bells.are_away() {
            let waits = !matches!(self.waiting, None | Some(Waiting::Turn));
            let waiting_here = usize::from(waits) + self.next_parts.len();
            debug_assert_eq!(
                self.requests.in_flight() as usize,
                waiting_here,
                "it is owed something"
            );
            self.bells.leave(cx);
        }
        self.bells.are_away()
    }

    fn enter(&mut self, cx: &mut Context<'_>, id: u32, tokens: Tokens) -> std::io::Result<()> {
        self.bells.enter(cx, tokens)?;
        (self.known.id, self.known.tokens) = (id, tokens);
        if let Some(Waiting::Place { request }) = &mut self.waiting {
            request.tag = tag(id, request.tag.0 as u16);
        }
        self.take_requests(cx);
        Ok(())
    }

    fn next_deadline(&self) -> Nanos {
        Nanos::NEVER
    }

    fn tick(&mut self, _cx: &mut Context<'_>) {}

    fn is_done(&self) -> bool {
        self.phase == Phase::Closed
    }
}

impl Queue {
    /// The disk ends without having done a request, or all parts of it: whoever comes next to a ring that survives does it again.
    #[cold]
    fn end_unanswered(&mut self, head: u16) {
        match self.ring.survives() {
            true => self.forget(head),
            false => self.answer(head, IoStatus::ShuttingDown.into(), 0),
        }
    }
}
