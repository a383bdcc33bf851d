//! Memory of requests that is idle goes back to the host.

use forebay_core::action::Span;

use crate::world::World;

/// So much of it goes back at a time.
const AT_ONCE: u64 = 4 << 20;

impl World<'_> {
    /// Gives memory back that nobody uses: it reads as anything from then on.
    pub(crate) fn give_buffers_back(&mut self) {
        if let Some(idle) = self.engine.idle_buffers(AT_ONCE) {
            self.memory.spoil(Span { offset: idle.start, len: idle.len() as u32 });
            self.coverage.buffers_given_back += 1;
        }
    }
}
