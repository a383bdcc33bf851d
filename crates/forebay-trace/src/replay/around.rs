//! The work of a replay before its first request and after its last: none of it is part of the
//! figures.

use std::ops::ControlFlow;

use forebay_core::action::{ExtentState, IoOp};
use forebay_core::geometry::{ByteRange, PAGE};

use super::outcome::{EndedBy, Holes};
use super::run::ReplayRun;
use super::touched::Touched;
use super::{Asked, Progress};
use crate::error::{Error, ErrorKind};
use crate::record::Op;

/// Bytes whose extents are asked for at a time.
const EXTENTS_BYTES: u64 = 1 << 30;
/// Bytes that are looked at again at a time.
const PIECE: u64 = 1 << 20;

impl ReplayRun<'_> {
    /// Refuses a target that holds data which would be lost, and fills it, or finds its holes, where that is asked for.
    pub(super) fn prepare(
        &mut self,
        asked: &Asked<'_>,
        progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let writes = asked.summary.writes > 0 || self.settings.prefill;
        if writes && !self.settings.overwrite {
            self.refuse_data(asked.summary.span_bytes)?;
        }
        match asked.touched {
            Some(touched) if self.settings.prefill => self.prefill(touched, progress),
            Some(touched) => {
                let holes = self.holes(touched)?;
                self.outcome().holes = holes;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Refuses a target that holds data below `end`, or does not tell whether it does.
    fn refuse_data(&mut self, end: u64) -> Result<(), Error> {
        let refuse = |what: String| {
            let message = format!(
                "the replay writes, and {what}: name a target that is empty (a sparse file, for example), \
                 or consent to lose what is there with --overwrite"
            );
            Err(Error::new(ErrorKind::HoldsData, message))
        };
        let properties = self.target.properties();
        let end = written_end(end, properties.size, properties.logical_block);
        if !properties.extents {
            return refuse("the target does not tell whether it holds data".to_owned());
        }
        let mut at = 0;
        while at < end {
            let range = ByteRange::new(at, end.min(at + EXTENTS_BYTES));
            let Some((status, extents)) = self.alone(range, IoOp::Extents)? else {
                return refuse("the target does not tell in time whether it holds data".to_owned());
            };
            if !status.is_ok() {
                let what = format!("the target does not tell whether it holds data ({status:?})");
                return refuse(what);
            }
            for extent in extents {
                if !is_hole(extent.state) {
                    return refuse(format!("the target holds data (at byte {at})"));
                }
                at += extent.len;
            }
        }
        Ok(())
    }

    /// How much of what the trace reads first is holes of the target; `None`: it does not tell.
    fn holes(&mut self, touched: &Touched) -> Result<Option<Holes>, Error> {
        let properties = self.target.properties();
        if !properties.extents {
            return Ok(None);
        }
        let size = properties.size;
        let read = touched.read_first();
        let mut holes = Holes { bytes: 0, of: read.iter().map(|range| range.len()).sum() };
        // What the target told last: up to where, and whether it is a hole.
        let (mut told, mut told_hole) = (0, false);
        for range in read {
            let mut at = range.start;
            while at < range.end {
                if at >= told {
                    let end = size.min(at + EXTENTS_BYTES);
                    let asked = self.alone(ByteRange::new(at, end), IoOp::Extents)?;
                    let Some((status, extents)) = asked else { return Ok(None) };
                    let Some(first) = extents.first().filter(|_| status.is_ok()) else {
                        return Ok(None);
                    };
                    (told, told_hole) = (at + first.len.max(1), is_hole(first.state));
                }
                let end = range.end.min(told);
                holes.bytes += if told_hole { end - at } else { 0 };
                at = end;
            }
        }
        Ok(Some(holes))
    }

    /// Writes all that the trace touches, and makes it durable.
    fn prefill(
        &mut self,
        touched: &Touched,
        progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let pieces = touched.all();
        let all: u64 = pieces.iter().map(|range| range.len()).sum();
        // What is there beforehand is nothing to verify.
        let verifier = self.verifier.take();
        let mut done = 0;
        for piece in pieces {
            while !self.beside(Op::Write, piece) {
                self.wait_for_an_end()?;
            }
            done += piece.len();
            if progress(&self.progress_of_prefilling(done, all)).is_break() {
                self.outcome().ended_by = EndedBy::Interrupt;
                break;
            }
        }
        while self.in_flight() > 0 {
            self.wait_for_an_end()?;
        }
        self.verifier = verifier;
        self.is_measured_from_now_on();
        if let Some(error) = self.outcome().first_error.take() {
            let message = format!("the target cannot be filled before the replay: {error}");
            return Err(Error::new(ErrorKind::Target, message));
        }
        self.outcome().prefilled_bytes = done;
        self.flush("after --prefill")
    }

    /// Makes what was written durable, so that nothing is left undone.
    pub(super) fn make_durable(&mut self) -> Result<(), Error> {
        match self.outcome().written_bytes {
            0 => Ok(()),
            _ => self.flush("at the end"),
        }
    }

    fn flush(&mut self, when: &str) -> Result<(), Error> {
        let message = match self.alone(ByteRange::at(0, 0), IoOp::Flush)? {
            Some((status, _)) if status.is_ok() => return Ok(()),
            Some((status, _)) => format!("the target failed the flush {when}: {status:?}"),
            None => format!("the target does not end the flush {when}"),
        };
        Err(Error::new(ErrorKind::Target, message))
    }

    /// Looks once more at all that was written, unless somebody wanted an end.
    pub(super) fn read_back(
        &mut self,
        progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut goes_on = self.outcome().ended_by != EndedBy::Interrupt;
        let Some(verifier) = &self.verifier else { return Ok(()) };
        let pieces = verifier.written(PIECE);
        let block = u64::from(self.target.properties().logical_block);
        debug_assert!(
            pieces.iter().all(|piece| piece.is_aligned(block)),
            "writes are whole blocks"
        );
        let all: u64 = pieces.iter().map(|piece| piece.len()).sum();
        let mut done = 0;
        for piece in pieces {
            if !goes_on {
                break;
            }
            while !self.beside(Op::Read, piece) {
                self.wait_for_an_end()?;
            }
            done += piece.len();
            if progress(&self.progress_of_reading_back(done, all)).is_break() {
                goes_on = false;
            }
        }
        while self.in_flight() > 0 {
            self.wait_for_an_end()?;
        }
        let verifier = self.verifier.take().expect("it is there");
        self.outcome().verified = Some(verifier.found(done, all - done));
        Ok(())
    }
}

/// Where what a replay writes ends on a disk of `size`, of requests that end at `end`: it writes whole blocks, and fills pages.
fn written_end(end: u64, size: u64, block: u32) -> u64 {
    end.min(size).next_multiple_of(PAGE.max(block.into())).min(size)
}

/// A range that reads as zeroes without any work of storage.
fn is_hole(state: ExtentState) -> bool {
    match state {
        ExtentState::Hole | ExtentState::Zero => true,
        ExtentState::Allocated
        | ExtentState::Uncached
        | ExtentState::Clean
        | ExtentState::Dirty => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_ends_with_a_page_or_a_block_and_on_the_disk() {
        assert_eq!(written_end(512, 1 << 20, 512), 4096);
        assert_eq!(written_end(4097, 1 << 20, 16384), 16384);
        assert_eq!(written_end(5000, 6144, 512), 6144);
        assert_eq!(written_end(u64::MAX, 4096, 4096), 4096);
    }
}
