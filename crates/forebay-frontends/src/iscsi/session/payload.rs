//! The data of a PDU on their way to a task.
//!
//! ```text
//! data ──► nowhere, bytes of the task, or memory of the disk (by the driver) ─► padding ─► digest
//! ```

use super::super::codec::{DIGEST, padding};
use super::super::digest;
use super::super::task::Sink;
use super::{Broken, Device, Session, Step};

/// A PDU whose data are arriving.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    /// Whose they are; `None`: they are skipped.
    task: Option<u32>,
    /// Bytes that have still to come.
    left: u32,
    padding: usize,
    /// The sum so far.
    sum: Option<u32>,
}

impl Session {
    /// The next `len` bytes are data, of this task.
    pub(super) fn expect(&mut self, task: Option<u32>, len: usize) {
        let incoming = Incoming { task, left: len as u32, padding: padding(len), sum: None };
        self.incoming = (len > 0).then_some(incoming);
    }

    /// True while a PDU with data of this task is arriving.
    pub(super) fn is_arriving(&self, key: u32) -> bool {
        self.incoming.is_some_and(|incoming| incoming.task == Some(key))
    }

    /// Bytes that still arrive for the task are skipped.
    pub(super) fn skip_rest(&mut self, key: u32) {
        if let Some(incoming) = self.incoming.as_mut().filter(|it| it.task == Some(key)) {
            incoming.task = None;
        }
    }

    /// True when [`Session::arrived`] wants the sum of the data.
    pub fn wants_sum(&self) -> bool {
        self.terms.rules.data_digest
    }

    /// `len` bytes of data are where [`Step::Payload`] said; `sum` is theirs, when it is wanted.
    pub fn arrived(&mut self, len: u32, sum: Option<u32>) {
        let incoming = self.incoming.as_mut().expect("data are arriving");
        incoming.left -= len;
        incoming.add(sum, len);
        if let Some(key) = incoming.task {
            self.task_mut(key).data.arrived += len;
        }
    }

    pub(super) fn take_payload(
        &mut self,
        device: &mut Device,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Step), Broken> {
        let incoming = self.incoming.expect("data are arriving");
        if incoming.left > 0 {
            return Ok(self.take_data(incoming, input));
        }
        let tail = incoming.padding + if self.terms.rules.data_digest { DIGEST } else { 0 };
        if input.len() < tail {
            return Ok((0, Step::NeedMore(tail)));
        }
        if self.terms.rules.data_digest {
            let (padding, rest) = input.split_at(incoming.padding);
            let mut whole = incoming;
            whole.add(Some(digest::sum(padding)), padding.len() as u32);
            let expected = rest.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
            if whole.sum != expected {
                return Err(Broken("the digest of data is wrong"));
            }
        }
        self.incoming = None;
        if let Some(key) = incoming.task {
            self.go_on(device, key, out);
        }
        Ok((tail, Step::Done))
    }

    /// Data, up to the end of the input or of the piece that goes to one place.
    fn take_data(&mut self, incoming: Incoming, input: &[u8]) -> (usize, Step) {
        let wants_sum = self.wants_sum();
        let here = input.len().min(incoming.left as usize);
        let place = incoming.task.map(|key| self.task_mut(key));
        let room = place.as_ref().map_or(0, |task| task.data.wanted - task.data.arrived);
        let count = match place {
            Some(task) if room > 0 => match &mut task.sink {
                Sink::Memory(memory) => {
                    let rest = memory.rest(task.data.arrived);
                    let len = rest.len.min(room).min(incoming.left);
                    let key = incoming.task.expect("it has a task");
                    return (0, Step::Payload(key, rest.part(0, len.into())));
                }
                Sink::Bytes(bytes) => {
                    let count = here.min(room as usize);
                    bytes.extend_from_slice(&input[..count]);
                    task.data.arrived += count as u32;
                    count
                }
                Sink::Nowhere => {
                    let count = here.min(room as usize);
                    task.data.arrived += count as u32;
                    count
                }
            },
            _ => here,
        };
        if count == 0 {
            return (0, Step::NeedMore(1));
        }
        let incoming = self.incoming.as_mut().expect("data are arriving");
        incoming.left -= count as u32;
        incoming.add(wants_sum.then(|| digest::sum(&input[..count])), count as u32);
        (count, Step::Done)
    }
}

impl Incoming {
    fn add(&mut self, sum: Option<u32>, len: u32) {
        if let Some(sum) = sum {
            self.sum = Some(self.sum.map_or(sum, |before| digest::join(before, sum, len.into())));
        }
    }
}
