//! Data of a read on their way to the initiator: straight from the slots, or from a request buffer.
//!
//! ```text
//! header │ slot, slot, … │ padding, digest │ header │ … │ header with the status │ …
//! ```
//! A digest is taken over the slots' bytes before they are sent.

use forebay_core::action::{Reply, ReplyData, Span};

use super::super::codec::padding;
use super::super::device::Device;
use super::super::digest;
use super::Connection;
use crate::client::{Context, DiskId};

impl Connection {
    /// Answers a read with what the engine found.
    pub(super) fn send_read(
        &mut self,
        cx: &mut Context<'_>,
        device: &mut Device,
        key: u32,
        (disk, reply): (DiskId, &Reply),
        mut spans: impl Iterator<Item = Span>,
    ) {
        let actual = self.session.task(key).medium_len();
        let session = &mut self.session;
        let mut piece = self.outbox.append(|out| session.answer_read(device, key, actual, out));
        let mut left_of_all = piece.total();
        let mut span = Span { offset: 0, len: 0 };
        let buffer = match reply.data {
            ReplyData::Buffer { buffer, .. } => Some(buffer),
            ReplyData::None
            | ReplyData::Slots { .. }
            | ReplyData::Extents { .. }
            | ReplyData::Difference { .. } => None,
        };
        let is_unsent = left_of_all == 0;
        loop {
            let session = &mut self.session;
            let Some(len) = self.outbox.append(|out| session.next_piece(&mut piece, out)) else {
                break;
            };
            let mut left = len;
            let mut sum = None;
            while left > 0 {
                if span.len == 0 {
                    span = spans.next().expect("a read has the bytes that it was asked for");
                }
                let count = left.min(span.len);
                let part = span.part(0, count.into());
                span = span.part(count.into(), u64::from(span.len - count));
                left -= count;
                left_of_all -= count;
                sum = self.join_sum(cx, disk, sum, part);
                let port = cx.port(disk);
                match buffer {
                    // The pieces before the last are in the buffer too, which stays until the last is sent.
                    Some(buffer) if left_of_all == 0 => {
                        self.outbox.push_buffer(port.region(part), disk, buffer);
                    }
                    _ => self.outbox.push_slots(port, &[part]),
                }
            }
            let wants_sum = self.session.wants_sum();
            self.outbox.append(|out| {
                let zeroes = &[0; 3][..padding(len as usize)];
                out.extend_from_slice(zeroes);
                if let (true, Some(sum)) = (wants_sum, sum) {
                    let sum = digest::join(sum, digest::sum(zeroes), zeroes.len() as u64);
                    out.extend_from_slice(&sum.to_le_bytes());
                }
            });
        }
        if let (true, Some(buffer)) = (is_unsent, buffer) {
            cx.release(disk, buffer);
        }
    }

    fn join_sum(
        &self,
        cx: &mut Context<'_>,
        disk: DiskId,
        before: Option<u32>,
        part: Span,
    ) -> Option<u32> {
        let sum = self.sum(cx, disk, part)?;
        Some(before.map_or(sum, |before| digest::join(before, sum, part.len.into())))
    }
}
