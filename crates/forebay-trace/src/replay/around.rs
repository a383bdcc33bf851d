//! What a replay does before its first request and after its last: none of it is part of the figures.

use std::ops::ControlFlow;

use forebay_core::action::{ExtentState, IoOp};
use forebay_core::geometry::ByteRange;

use super::Progress;
use super::outcome::EndedBy;
use super::run::Run;
use crate::error::{Error, ErrorKind};

/// Bytes whose extents are asked for at a time.
const EXTENTS_BYTES: u64 = 1 << 30;
/// Bytes that are looked at again at a time.
const PIECE: u64 = 1 << 20;

impl Run<'_> {
    /// Refuses a target that holds data below `end`, or does not tell whether it does.
    pub(super) fn refuse_data(&mut self, end: u64) -> Result<(), Error> {
        let refuse = |what: String| {
            let message = format!(
                "the trace writes, and {what}: name a target that is empty (a sparse file, for example), \
                 or consent to lose what is there with --overwrite"
            );
            Err(Error::new(ErrorKind::HoldsData, message))
        };
        let properties = self.target.properties();
        let end = end.min(properties.size);
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
                match extent.state {
                    ExtentState::Hole | ExtentState::Zero => at += extent.len,
                    ExtentState::Allocated
                    | ExtentState::Uncached
                    | ExtentState::Clean
                    | ExtentState::Dirty => {
                        return refuse(format!("the target holds data (at byte {at})"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes what was written durable, so that nothing is left undone.
    pub(super) fn make_durable(&mut self) -> Result<(), Error> {
        if self.outcome().written_bytes == 0 {
            return Ok(());
        }
        let message = match self.alone(ByteRange::at(0, 0), IoOp::Flush)? {
            Some((status, _)) if status.is_ok() => return Ok(()),
            Some((status, _)) => format!("the target failed the flush at the end: {status:?}"),
            None => "the target does not end the flush at the end".to_owned(),
        };
        Err(Error::new(ErrorKind::Target, message))
    }

    /// Looks once more at all that was written, unless somebody wanted an end.
    pub(super) fn read_back(
        &mut self,
        progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let wants_end = self.outcome().ended_by == EndedBy::Interrupt;
        let Some(verifier) = &self.verifier else { return Ok(()) };
        let pieces = if wants_end { Vec::new() } else { verifier.written(PIECE) };
        let block = u64::from(self.target.properties().logical_block);
        debug_assert!(
            pieces.iter().all(|piece| piece.is_aligned(block)),
            "writes are whole blocks"
        );
        let all: u64 = pieces.iter().map(|piece| piece.len()).sum();
        let mut done = 0;
        for piece in pieces {
            while !self.look_again(piece) {
                self.wait_for_an_end()?;
            }
            done += piece.len();
            if progress(&self.progress_of_reading_back(done, all)).is_break() {
                self.outcome().ended_by = EndedBy::Interrupt;
                break;
            }
        }
        while self.in_flight() > 0 {
            self.wait_for_an_end()?;
        }
        let verifier = self.verifier.take().expect("it is there");
        self.outcome().verified = Some(verifier.found(done));
        Ok(())
    }
}
