//! Bytes from the initiator go into the input, or straight to the memory of their task.

use forebay_core::action::Span;
use forebay_io::reactor::Completion;

use super::super::device::Device;
use super::super::session::Step;
use super::{Connection, INPUT_MAX, INPUT_MIN, Phase, SMALL_RECEIVES};
use crate::client::{Context, DiskId};

/// Bytes of answers that wait to be sent, from which no more PDUs are taken.
const COPIED_MAX: usize = 1 << 20;

impl Connection {
    pub(super) fn on_received(
        &mut self,
        cx: &mut Context<'_>,
        device: &mut Device,
        completion: Completion,
    ) {
        self.input.is_receiving = false;
        self.input.bytes = completion.buffer.unwrap_or_default();
        let direct = self.direct.take();
        let received = completion.result.as_ref().map_or(0, |count| *count);
        if let Some((disk, span)) = direct {
            // Nothing was in the input: what is there now came after the data.
            let count = (received - self.input.bytes.len()) as u32;
            if count > 0 && self.session.is_mid_pdu() {
                let sum = self.sum(cx, disk, span.part(0, count.into()));
                self.session.arrived(count, sum);
            }
            self.session.receive_ended(device);
        }
        if self.link.is_away() {
            // An end of the stream, or an error, is found again.
            if received > 0 {
                self.session.hear();
            }
            return;
        }
        if self.phase != Phase::Open {
            return;
        }
        match completion.result {
            Err(_) => self.disconnect(cx, device),
            Ok(0) if self.session.is_mid_pdu() || self.input.used < self.input.bytes.len() => {
                self.disconnect(cx, device);
            }
            Ok(0) => self.drain(cx, device),
            Ok(_) => {
                self.heard = cx.now;
                self.session.hear();
                self.resize_input(received);
                self.take_pdus(cx, device);
            }
        }
    }

    /// Takes PDUs from the input until it is used up, something has to be waited for, much is to be sent or others have their
    /// turn, then receives more unless the initiator does not read or has had its turn.
    pub(super) fn take_pdus(&mut self, cx: &mut Context<'_>, device: &mut Device) {
        self.input.needed = 0;
        if !self.input.is_receiving {
            self.direct = None;
        }
        while self.phase == Phase::Open && !self.input.is_receiving {
            if self.outbox.is_sending() || self.outbox.copied() > COPIED_MAX {
                self.blocked_at.get_or_insert(cx.now);
                break;
            }
            let (session, input) = (&mut self.session, &self.input.bytes[self.input.used..]);
            let step = self.outbox.append(|out| session.next(device, input, out));
            let Ok((consumed, step)) = step else { return self.disconnect(cx, device) };
            self.input.used += consumed;
            match step {
                Step::Done => {}
                Step::Managed => {
                    self.blocked_at.get_or_insert(cx.now);
                    break;
                }
                Step::NeedMore(bytes) => {
                    self.input.needed = bytes;
                    break;
                }
                Step::Memory(key) => {
                    if !self.give_memory(cx, device, key) {
                        let session = &mut self.session;
                        self.outbox.append(|out| session.hold(device, key, out));
                    }
                }
                Step::Payload(key, span) => {
                    if !self.take_payload(cx, device, key, span) {
                        break;
                    }
                }
                Step::Leave => {
                    self.drain(cx, device);
                    break;
                }
            }
        }
        self.run_ready(cx, device);
        self.receive(cx);
    }

    /// Moves data of a task from the input to their place; false when they have to be received first.
    pub(super) fn take_payload(
        &mut self,
        cx: &mut Context<'_>,
        device: &Device,
        key: u32,
        span: Span,
    ) -> bool {
        let unit = self.session.task(key).unit.expect("a task with memory has a unit");
        let disk = device.units[unit].disk;
        let here = &self.input.bytes[self.input.used..];
        let count = here.len().min(span.len as usize);
        if count == 0 {
            self.direct = Some((disk, span));
            return false;
        }
        cx.port(disk).memory.write_at(span.offset, &here[..count]);
        self.input.used += count;
        let sum = self.sum(cx, disk, span.part(0, count as u64));
        self.session.arrived(count as u32, sum);
        true
    }

    /// The sum of a piece of memory, if the session wants it.
    pub(super) fn sum(&self, cx: &mut Context<'_>, disk: DiskId, span: Span) -> Option<u32> {
        let wants = self.session.wants_sum();
        wants.then(|| cx.port(disk).memory.crc32c(span.offset, span.len))
    }

    /// Receives more, unless nothing may be taken.
    pub(super) fn receive(&mut self, cx: &mut Context<'_>) {
        if self.phase != Phase::Open || self.input.is_receiving || self.blocked_at.is_some() {
            return;
        }
        self.input.bytes.drain(..self.input.used);
        self.input.used = 0;
        let room = self.input.needed.max(INPUT_MIN).max(self.input.bytes.len() + 1);
        self.input.bytes.reserve_exact(room.saturating_sub(self.input.bytes.len()));
        self.input.is_partial = self.session.is_mid_pdu() || !self.input.bytes.is_empty();
        let first = self.direct.map(|(disk, span)| cx.port(disk).region(span));
        self.session.is_receiving_direct = first.is_some();
        self.input.is_receiving = true;
        let input = std::mem::take(&mut self.input.bytes);
        cx.reactor.recv(self.link.socket, first, input, self.link.tokens.recv);
    }

    /// Makes the input as large as what comes.
    pub(super) fn resize_input(&mut self, received: usize) {
        let capacity = self.input.bytes.capacity();
        if self.input.bytes.len() == capacity && capacity < INPUT_MAX {
            self.input.bytes.reserve_exact(capacity.min(INPUT_MAX - capacity));
        }
        let is_small =
            capacity > INPUT_MIN && received < capacity / 8 && self.input.bytes.len() < INPUT_MIN;
        self.input.small_receives = if is_small { self.input.small_receives + 1 } else { 0 };
        if self.input.small_receives > SMALL_RECEIVES {
            self.input.small_receives = 0;
            self.input.bytes.shrink_to(INPUT_MIN);
        }
    }
}
