//! A backend in memory: a sparse map of pages, gone with the process. Every I/O completes at once.
//!
//! It allocates as it is written to; it is for tests and demonstrations, not for the data path. A
//! flush has nothing to do. A discarded or never written range reads as zeroes, and is a hole.

use std::collections::BTreeMap;

use forebay_core::action::{Extent, ExtentState, IoOp, Span};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use forebay_core::status::IoStatus;
use forebay_io::arena::Arena;
use forebay_io::reactor::Completion;

use crate::backend::{
    Backend, BackendEvent, BackendIo, Context, HostLoses, Properties, TokenRange,
};
use crate::uri::MemUri;

/// Unit of allocation.
const PAGE: u64 = 64 << 10;

/// See the module.
#[derive(Debug)]
pub struct MemBackend {
    properties: Properties,
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl MemBackend {
    /// An empty one.
    pub fn new(uri: MemUri, read_only: bool) -> MemBackend {
        MemBackend {
            properties: Properties {
                size: uri.size,
                logical_block: uri.block,
                read_only,
                discard: true,
                write_zeroes: true,
                extents: true,
                host_loses: HostLoses::Nothing,
            },
            pages: BTreeMap::new(),
        }
    }

    fn read(&self, arena: &Arena, range: ByteRange, memory: Span) {
        for part in page_parts(range) {
            let to = memory.offset + (part.start - range.start);
            let within = part.start % PAGE;
            match self.pages.get(&(part.start / PAGE)) {
                Some(page) => {
                    arena.write_at(to, &page[within as usize..(within + part.len()) as usize]);
                }
                None => arena.zero(to, part.len() as u32),
            }
        }
    }

    fn write(&mut self, arena: &Arena, range: ByteRange, memory: Span) {
        for part in page_parts(range) {
            let from = memory.offset + (part.start - range.start);
            let within = part.start % PAGE;
            let page = self
                .pages
                .entry(part.start / PAGE)
                .or_insert_with(|| vec![0; PAGE as usize].into_boxed_slice());
            arena.read_at(from, &mut page[within as usize..(within + part.len()) as usize]);
        }
    }

    fn zero(&mut self, range: ByteRange) {
        for part in page_parts(range) {
            let index = part.start / PAGE;
            if part.len() == PAGE {
                self.pages.remove(&index);
            } else if let Some(page) = self.pages.get_mut(&index) {
                let within = (part.start % PAGE) as usize;
                page[within..within + part.len() as usize].fill(0);
            }
        }
    }

    fn extents(&self, range: ByteRange) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        for part in page_parts(range) {
            let state = match self.pages.contains_key(&(part.start / PAGE)) {
                true => ExtentState::Allocated,
                false => ExtentState::Hole,
            };
            match extents.last_mut() {
                Some(last) if last.state == state => last.len += part.len(),
                _ => extents.push(Extent { len: part.len(), state }),
            }
        }
        extents
    }
}

/// `range` cut at page boundaries.
fn page_parts(range: ByteRange) -> impl Iterator<Item = ByteRange> {
    let mut next = range.start;
    std::iter::from_fn(move || {
        let part = ByteRange { start: next, end: (next / PAGE * PAGE + PAGE).min(range.end) };
        next = part.end;
        (!part.is_empty()).then_some(part)
    })
}

impl Backend for MemBackend {
    fn length(&self) -> Option<u64> {
        Some(self.properties.size)
    }

    fn lengthen(&mut self, _size: u64) {
        unreachable!("memory stays as long as it is")
    }

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn attach(&mut self, _cx: &mut Context<'_>, _tokens: TokenRange) -> std::io::Result<()> {
        Ok(())
    }

    fn submit(&mut self, cx: &mut Context<'_>, io: BackendIo) {
        let id = io.id;
        if let Some(status) = io.refusal(&self.properties) {
            return cx.events.push(BackendEvent::Done { id, status });
        }
        match io.op {
            IoOp::Read { memory } => self.read(cx.reactor.arena(io.arena), io.range, memory),
            IoOp::Write { memory, .. } => self.write(cx.reactor.arena(io.arena), io.range, memory),
            IoOp::Flush => {}
            IoOp::Discard | IoOp::WriteZeroes { .. } => self.zero(io.range),
            IoOp::Progress { .. } => unreachable!("refused"),
            IoOp::Extents => {
                let extents = self.extents(io.range);
                return cx.events.push(BackendEvent::Extents { id, extents });
            }
        }
        cx.events.push(BackendEvent::Done { id, status: IoStatus::Ok });
    }

    fn on_completion(&mut self, _cx: &mut Context<'_>, _completion: Completion) {}

    fn on_wake(&mut self, _cx: &mut Context<'_>) {}

    fn next_deadline(&self) -> Nanos {
        Nanos::NEVER
    }
}
