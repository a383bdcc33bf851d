//! Memory of the disks for the data of tasks: asked for, waited for, given back.

use forebay_core::action::Span;

use super::super::device::Device;
use super::super::session::Passed;
use super::super::task::Memory;
use super::{Connection, work};
use crate::client::Context;
use crate::scsi::Medium;

impl Connection {
    /// Memory for the data of a task, if there is any now.
    pub(super) fn give_memory(
        &mut self,
        cx: &mut Context<'_>,
        device: &mut Device,
        key: u32,
    ) -> bool {
        let task = self.session.task(key);
        let (wanted, unit) = (task.data.wanted, task.unit.expect("it has data for a unit"));
        let disk = device.units[unit].disk;
        if !self.session.may_begin(device, key) || !self.session.has_room(key, wanted.into()) {
            return false;
        }
        let memory = match self.session.task(key).work.medium {
            Some(Medium::Write { range, .. }) => {
                let range = work::first(range, wanted.into());
                cx.write_buffer(disk, range).map(|buffer| Memory {
                    buffer,
                    first: buffer.at(range),
                    second: Span { offset: 0, len: 0 },
                })
            }
            Some(Medium::CompareAndWrite { range, .. }) => work::compare_memory(cx, disk, range),
            ref other => unreachable!("{other:?} wants no memory"),
        };
        let Some(memory) = memory else { return false };
        let session = &mut self.session;
        let held = self.outbox.append(|out| session.give(device, key, memory, wanted.into(), out));
        let mut at = 0;
        while at < held.len() {
            let rest = memory.rest(at as u32);
            let end = held.len().min(at + rest.len as usize);
            cx.port(disk).memory.write_at(rest.offset, &held[at..end]);
            at = end;
        }
        true
    }

    /// Memory for tasks that wait for it, of each unit the oldest first; true when one got some.
    pub(super) fn find_memory(&mut self, cx: &mut Context<'_>, device: &mut Device) -> bool {
        let (mut found, mut passed) = (false, Passed::default());
        while let Some(key) = self.session.wanting(device, &passed) {
            let wanted = self.session.task(key).data.wanted;
            if !self.session.has_room(key, wanted.into()) {
                // It came before the others of its unit, and has it first.
                passed.for_room(self.session.task(key));
                continue;
            }
            match self.give_memory(cx, device, key) {
                true => found = true,
                false => self.session.pass(key, &mut passed),
            }
        }
        found
    }

    /// Gives memory of tasks back that are gone.
    pub(super) fn give_back(&mut self, cx: &mut Context<'_>, device: &mut Device) {
        while let Some((unit, buffer)) = self.session.take_released() {
            cx.release(device.units[unit].disk, buffer);
        }
    }
}
