//! The disk's memory, and who owns which part of it at the moment.
//!
//! The rules of `forebay_core::action` as assertions:
//! - memory that a device fills is nobody else's until the I/O completes: it holds rubbish meanwhile;
//! - memory that a device writes from does not change until the I/O completes;
//! - slots and buffers of a reply do not change until they were sent or given back;
//! - source and destination of a copy do not overlap;
//! - nobody touches memory that is not there: room for RAM slots that there are none of, and for groups of the log that
//!   the staging file has not grown to.
//!
//! Memory that nobody has written yet holds rubbish. To make a run cheap it is kept for the next one
//! on the same thread, and only what was touched is made rubbish again.

use std::cell::RefCell;
use std::ops::Range;

use forebay_core::action::Span;
use forebay_core::geometry::PAGE;
use forebay_core::write_back::format::build::LogMemory;

/// The content of memory that nobody wrote.
pub const RUBBISH: u8 = 0xdb;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Why a piece of memory must not be changed, or not even be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A device fills it: nobody reads or changes it.
    Filling(u64),
    /// A device reads it: nobody changes it.
    Draining(u64),
    /// A reply refers to it.
    Replied(u64),
}

/// See the module.
#[derive(Debug)]
pub struct Memory {
    bytes: Vec<u8>,
    size: u64,
    /// Pages that are not all rubbish.
    touched: Vec<bool>,
    claims: Vec<(Span, Claim)>,
    /// What is not there.
    missing: Range<u64>,
    /// The same of the groups: the staging file has no memory for it yet.
    unstaged: Vec<Range<u64>>,
}

fn end(span: Span) -> u64 {
    span.offset + u64::from(span.len)
}

fn overlap(a: Span, b: Span) -> bool {
    a.offset < end(b) && b.offset < end(a)
}

fn place(span: Span) -> std::ops::Range<usize> {
    span.offset as usize..end(span) as usize
}

impl Memory {
    /// `size` bytes of rubbish.
    pub fn new(size: u64) -> Memory {
        let mut bytes = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
        if bytes.len() < size as usize {
            bytes.resize(size as usize, RUBBISH);
        }
        let touched = vec![false; size.div_ceil(PAGE) as usize];
        Memory { bytes, size, touched, claims: Vec::new(), missing: 0..0, unstaged: Vec::new() }
    }

    /// This part is not there from now on, and the rest is.
    pub fn miss(&mut self, missing: Range<u64>) {
        for (claimed, claim) in &self.claims {
            let is_there = missing.end <= claimed.offset || end(*claimed) <= missing.start;
            assert!(is_there, "{claimed:?} is gone, but {claim:?}");
        }
        self.missing = missing;
    }

    /// These parts of the groups are not there from now on.
    pub fn unstage(&mut self, parts: impl Iterator<Item = Range<u64>>) {
        self.unstaged = parts.collect();
    }

    /// What a process leaves of a group: zeroes where the file has no memory.
    pub fn left(&self, span: Span) -> Vec<u8> {
        let end_of_memory = |part: &Range<u64>| part.end == end(span);
        let there = self.unstaged.iter().find(|part| end_of_memory(part));
        let there = there.map_or(span.len.into(), |part| part.start - span.offset);
        let mut left = self.at(span.part(0, there)).to_vec();
        left.resize(span.len as usize, 0);
        left
    }

    fn assert_there(&self, span: Span) {
        assert!(end(span) <= self.size, "{span:?} lies outside the memory");
        let is_there = self.missing.end <= span.offset || end(span) <= self.missing.start;
        assert!(is_there, "{span:?} is not there: {:?} is missing", self.missing);
        let is_beyond = |part: &Range<u64>| part.start < end(span) && span.offset < part.end;
        assert!(
            !self.unstaged.iter().any(is_beyond),
            "{span:?} is beyond the staging file's memory"
        );
    }

    /// Its bytes.
    pub fn at(&self, span: Span) -> &[u8] {
        self.assert_there(span);
        &self.bytes[place(span)]
    }

    /// Its bytes, to change: panics when somebody has a claim on them.
    pub fn change(&mut self, span: Span) -> &mut [u8] {
        for (claimed, claim) in &self.claims {
            assert!(!overlap(*claimed, span), "{span:?} is changed, but {claimed:?} is {claim:?}");
        }
        self.touch(span)
    }

    fn touch(&mut self, span: Span) -> &mut [u8] {
        self.assert_there(span);
        for page in span.offset / PAGE..end(span).div_ceil(PAGE) {
            self.touched[page as usize] = true;
        }
        &mut self.bytes[place(span)]
    }

    /// Copies; panics when a device fills the source.
    pub fn copy(&mut self, from: Span, to: Span) {
        assert_eq!(from.len, to.len, "a copy of unequal lengths");
        assert!(!overlap(from, to), "a copy onto itself: {from:?} to {to:?}");
        self.assert_readable(from);
        self.change(to);
        self.assert_there(from);
        self.bytes.copy_within(place(from), to.offset as usize);
    }

    fn assert_readable(&self, span: Span) {
        for (claimed, claim) in &self.claims {
            let filling = matches!(claim, Claim::Filling(_));
            assert!(
                !filling || !overlap(*claimed, span),
                "{span:?} is read, but {claimed:?} is {claim:?}"
            );
        }
    }

    /// Somebody else owns `span` from now on.
    pub fn claim(&mut self, span: Span, claim: Claim) {
        match claim {
            Claim::Filling(_) => self.change(span).fill(RUBBISH),
            Claim::Draining(_) | Claim::Replied(_) => self.assert_readable(span),
        }
        self.claims.push((span, claim));
    }

    /// The claim has ended.
    pub fn unclaim(&mut self, claim: Claim) {
        let before = self.claims.len();
        self.claims.retain(|(_, c)| *c != claim);
        assert!(self.claims.len() < before, "{claim:?} was never made");
    }

    /// These bytes are needed no more: makes them rubbish, to catch late readers.
    pub fn spoil(&mut self, span: Span) {
        self.change(span).fill(RUBBISH);
    }

    /// Claims that are left.
    pub fn claims(&self) -> &[(Span, Claim)] {
        &self.claims
    }
}

impl LogMemory for Memory {
    fn look<T>(&self, at: Span, look: impl FnOnce(&[u8]) -> T) -> T {
        look(self.at(at))
    }

    fn edit<T>(&mut self, at: Span, change: impl FnOnce(&mut [u8]) -> T) -> T {
        change(self.change(at))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        for (page, touched) in self.touched.iter().enumerate() {
            if *touched {
                let start = page * PAGE as usize;
                let stop = (start + PAGE as usize).min(bytes.len());
                bytes[start..stop].fill(RUBBISH);
            }
        }
        SPARE.with_borrow_mut(|spare| spare.push(bytes));
    }
}
