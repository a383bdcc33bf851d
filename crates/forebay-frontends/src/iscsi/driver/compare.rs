//! What an initiator asks to compare with what it sent (COMPARE AND WRITE is the engine's).

use forebay_core::action::Span;

use super::super::task::Sink;
use super::Connection;
use crate::client::{Context, DiskId};
use crate::scsi::{Done, Medium};

impl Connection {
    /// Compares what was read with a task's data.
    pub(super) fn compare(
        &mut self,
        cx: &mut Context<'_>,
        disk: DiskId,
        key: u32,
        spans: impl Iterator<Item = Span>,
    ) -> Result<(), Done<'static>> {
        let task = self.session.task(key);
        let Sink::Bytes(expected) = &task.sink else { return Ok(()) };
        let is_pattern = matches!(task.work.medium, Some(Medium::Compare { pattern: true, .. }));
        let mut at = if is_pattern { 0 } else { task.work.progress as usize };
        for span in spans {
            let mut offset = span.offset;
            let end = offset + u64::from(span.len);
            while offset < end {
                if is_pattern && at == expected.len() {
                    at = 0;
                }
                let len = (end - offset).min((expected.len() - at) as u64).min(64 << 10);
                self.scratch.resize(len as usize, 0);
                cx.port(disk).memory.read_at(offset, &mut self.scratch);
                let expected = &expected[at..at + len as usize];
                let differs = self.scratch.iter().zip(expected).position(|(a, b)| a != b);
                if let Some(differs) = differs {
                    return Err(Done::Miscompare((at + differs) as u64));
                }
                at += len as usize;
                offset += len;
            }
        }
        Ok(())
    }
}
