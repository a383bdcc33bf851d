//! What a disk registers with its shard's reactor as it is attached: all of it, or nothing.

use std::io;
use std::sync::Arc;

use forebay_host::pool::{FailedFlushes, SharedFile};
use forebay_io::arena::Arena;
use forebay_io::reactor::{ArenaId, FileId, Reactor};

/// A pool's file in a reactor.
#[derive(Clone, Debug)]
pub(super) struct RegisteredFile {
    pub(super) id: FileId,
    pub(super) failed_flushes: Arc<FailedFlushes>,
}

/// What is registered so far. No operation uses it before all is.
#[derive(Default)]
pub(super) struct Registration {
    arenas: Vec<ArenaId>,
    files: Vec<FileId>,
}

impl Registration {
    /// Registers memory.
    ///
    /// # Errors
    /// As [`Reactor::add_arena`].
    pub(super) fn arena(
        &mut self,
        reactor: &mut Reactor,
        arena: Arc<Arena>,
    ) -> io::Result<ArenaId> {
        let arena = reactor.add_arena(arena)?;
        self.arenas.push(arena);
        Ok(arena)
    }

    /// Registers a file.
    ///
    /// # Errors
    /// As [`Reactor::add_file`].
    pub(super) fn file(
        &mut self,
        reactor: &mut Reactor,
        file: SharedFile,
    ) -> io::Result<RegisteredFile> {
        let SharedFile { fd, failed_flushes } = file;
        let id = reactor.add_file(fd, None)?;
        self.files.push(id);
        Ok(RegisteredFile { id, failed_flushes })
    }

    /// Lets go of everything as soon as nothing under way uses it: memory and locks are free for others. The file is that of
    /// the pool, which has it open as well, so it is not closed here: that could take as long as its file system likes.
    pub(super) fn let_go(self, reactor: &mut Reactor) {
        self.files.into_iter().for_each(|file| reactor.remove_file(file));
        self.arenas.into_iter().for_each(|arena| reactor.remove_arena(arena));
    }
}
