//! Numbers for the disks of a trace that have names, in order of appearance.

use std::collections::HashMap;
use std::hash::Hash;

/// The most disks that a trace may have.
const DEVICES_MAX: usize = 1 << 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Devices<Name>(HashMap<Name, u32>);

impl<Name> Default for Devices<Name> {
    fn default() -> Self {
        Devices(HashMap::new())
    }
}

impl<Name: Eq + Hash> Devices<Name> {
    /// The number of a disk.
    pub(super) fn number(&mut self, name: Name) -> Result<u32, String> {
        let next = self.0.len();
        if next == DEVICES_MAX && !self.0.contains_key(&name) {
            return Err(format!("more than {DEVICES_MAX} disks"));
        }
        Ok(*self.0.entry(name).or_insert(next as u32))
    }
}
