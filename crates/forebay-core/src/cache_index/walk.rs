//! The walk over all slots and words that every page goes on with, and what its past says of the ring's tail.
//!
//! The positions are divided in up to `STEPS` steps of one size. Of each step it is known in which page the
//! walk last entered it; nothing that is older than the last time round counts any more. Inside a step
//! what is ahead may stand in the page of the time before.

/// Steps at most.
const STEPS: u32 = 1024;

/// See the module.
#[derive(Debug)]
pub struct Walk {
    positions: u32,
    step: u32,
    /// The next position.
    at: u32,
    /// The page in which each step was entered last.
    entered: Box<[u64]>,
    /// Nothing in pages below this one counts.
    tail: u64,
    /// Positions to pass before the ring says all that the cache had when the ring began.
    pub(super) unsaid: u32,
}

impl Walk {
    /// A walk over `positions` positions that begins with the first page.
    pub fn new(positions: u32) -> Walk {
        let step = positions.div_ceil(STEPS).max(1);
        let entered = vec![1; positions.div_ceil(step) as usize].into();
        Walk { positions, step, at: 0, entered, tail: 1, unsaid: 0 }
    }

    /// Goes on where a former run was: behind its last page, whose tail was `tail`. Then
    /// [`Walk::restore_page`] for every page, newest first.
    pub fn restore(&mut self, at: u32, tail: u64) {
        self.at = at % self.positions;
        self.tail = tail;
        self.entered.fill(0);
    }

    /// Page `number` of the former run took the walk from one position to another.
    pub fn restore_page(&mut self, number: u64, (from, to): (u32, u32)) {
        let (from, to) = (from.min(self.positions), to.min(self.positions));
        let mut mark = |from: u32, to: u32| {
            for step in from.div_ceil(self.step)..to.div_ceil(self.step) {
                let entered = &mut self.entered[step as usize];
                *entered = if *entered == 0 { number } else { *entered };
            }
        };
        // A page walks one position at least, and once round at most.
        match from < to {
            true => mark(from, to),
            false => {
                mark(from, self.positions);
                mark(0, to);
            }
        }
    }

    /// All pages of the former run were entered. Anything that none of them entered was before
    /// the tail's page.
    pub fn end_restore(&mut self) {
        let tail = self.tail;
        self.entered.iter_mut().filter(|page| **page < tail).for_each(|page| *page = tail);
    }

    /// The next position.
    pub fn at(&self) -> u32 {
        self.at
    }

    /// The first page that counts.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// The position is passed in page `number`.
    pub fn advance(&mut self, number: u64) {
        if self.at.is_multiple_of(self.step) {
            let entered = &mut self.entered[(self.at / self.step) as usize];
            self.tail = self.tail.max(std::mem::replace(entered, number));
        }
        self.at = if self.at + 1 == self.positions { 0 } else { self.at + 1 };
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.entered) as u64
    }
}
