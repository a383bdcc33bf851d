//! Builds the log in a disk's memory, as the engine asks for it ([`LogAction`]).
//!
//! An executor of the engine's actions has one [`LogBuilder`] for each log. There is no other
//! code that does it, so a simulated crash tears what a shard writes.

use super::group::{self, GroupHeader};
use super::segment::SegmentHeader;
use super::summary::{self, Summarized};
use crate::action::{LogAction, Span};
use crate::geometry::PAGE;
use crate::ids::{Sequence, Uuid};
use crate::sealed::{Page, crc32c};

/// The memory of a disk, as a builder uses it.
pub trait LogMemory {
    /// Looks at a piece.
    fn look<T>(&self, at: Span, look: impl FnOnce(&[u8]) -> T) -> T;

    /// Changes a piece in place. Each store is in memory in its order, whatever becomes of the process.
    fn edit<T>(&mut self, at: Span, change: impl FnOnce(&mut [u8]) -> T) -> T;
}

/// See the module.
#[derive(Clone, Debug)]
pub struct LogBuilder {
    disk: Uuid,
    nonce: u64,
    /// Of the pages of one record.
    checksums: Vec<u32>,
}

impl LogBuilder {
    /// A builder for the log of `disk`, whose segments of this run carry `nonce`.
    pub fn new(disk: Uuid, nonce: u64) -> LogBuilder {
        LogBuilder { disk, nonce, checksums: Vec::with_capacity(1024) }
    }

    /// Builds a piece of the log in memory.
    pub fn build(&mut self, action: LogAction, memory: &mut impl LogMemory) {
        let LogBuilder { disk, nonce, ref mut checksums } = *self;
        match action {
            LogAction::OpenSegment {
                memory: at,
                segment,
                ordinal,
                generation,
                first_group,
                first_sequence,
                durable,
                epoch,
                phase,
            } => {
                let header = SegmentHeader {
                    disk,
                    generation,
                    ordinal,
                    first_group,
                    first_sequence,
                    durable,
                    epoch,
                    nonce,
                    segment,
                    phase,
                };
                edit_page(memory, at, |page| header.encode(page));
            }
            LogAction::OpenGroup { memory: at, number, generation, first_sequence, phase } => {
                // Until it is sealed it says nothing of what is durable.
                let durable = Sequence(0);
                let header =
                    GroupHeader { disk, generation, number, first_sequence, durable, nonce, phase };
                edit_page(memory, at, |page| group::begin(page, &header));
            }
            LogAction::Stage { memory: at, data, record } => {
                checksums.clear();
                if data.len > 0 {
                    memory.look(data, |bytes| {
                        checksums.extend(bytes.chunks(PAGE as usize).map(crc32c));
                    });
                }
                edit_page(memory, at, |page| group::append(page, &record, checksums));
            }
            LogAction::SealGroup { memory: at, durable, summary } => {
                edit_page(memory, at, |page| group::seal(page, durable));
                if let Some(place) = summary {
                    let group = edit_page(memory, at, |page| *page);
                    memory.edit(place, |out| summary::add_group(out, &group));
                }
            }
            LogAction::SealSegment {
                memory: at,
                segment,
                ordinal,
                generation,
                first_group,
                first_sequence,
                groups,
                bytes,
            } => {
                let of = Summarized {
                    disk,
                    generation,
                    ordinal,
                    first_group,
                    first_sequence,
                    nonce,
                    segment,
                };
                memory.edit(at, |out| summary::seal(out, &of, groups, bytes));
            }
        }
    }
}

fn edit_page<T>(memory: &mut impl LogMemory, at: Span, change: impl FnOnce(&mut Page) -> T) -> T {
    memory.edit(at, |bytes| change(bytes.try_into().expect("a page")))
}
