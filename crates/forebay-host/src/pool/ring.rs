//! The ring of a cache at the start: reading what a former run left, ahead of the engine that takes it in.

use std::sync::mpsc::{Receiver, Sender, channel};

use forebay_core::cache_index::header::RingHeader;
use forebay_core::cache_index::recover::{Cold, RingReader};
use forebay_core::engine::{Engine, RestoredCache};
use forebay_core::geometry::{ByteRange, PAGE};
use forebay_core::sealed::Page;

use super::file::{PoolFile, PoolPage};
use super::{Area, Pool};

/// Pages of the ring: the first one, and how many.
type Wish = (u32, u32);
type Answer = Result<Vec<PoolPage>, String>;

impl Pool {
    /// Gives an engine, which has taken over its log, the cache that the ring says is on flash.
    ///
    /// # Errors
    /// It must not be believed; the engine is of no use then.
    pub fn restore_cache(
        &self,
        ring: Area,
        header: &RingHeader,
        engine: &mut Engine,
        logged: impl Iterator<Item = ByteRange>,
    ) -> Result<RestoredCache, Cold> {
        let (wishes, wished) = channel();
        let (answers, answered) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| read_wishes(&self.file, ring, wished, answers));
            let mut reader = Ahead { wishes, answered, asked: None, pages: Vec::new() };
            engine.restore_cache(header, &mut reader, logged)
            // The reader is dropped, and its thread ends.
        })
    }
}

fn read_wishes(file: &PoolFile, ring: Area, wished: Receiver<Wish>, answers: Sender<Answer>) {
    for (first, count) in wished {
        let mut pages = PoolPage::zeroes(count as usize);
        // Behind the header.
        let offset = ring.offset + (u64::from(first) + 1) * PAGE;
        let read = file.read(offset, &mut pages).map_err(|error| error.to_string());
        if answers.send(read.map(|()| pages)).is_err() {
            return;
        }
    }
}

/// Reads the next pages while the engine takes in the ones before.
struct Ahead {
    wishes: Sender<Wish>,
    answered: Receiver<Answer>,
    /// Asked for and not taken.
    asked: Option<Wish>,
    pages: Vec<PoolPage>,
}

impl Ahead {
    fn ask(&mut self, wish: Wish) {
        // Its thread lives as long as this.
        let _ = self.wishes.send(wish);
        self.asked = Some(wish);
    }

    fn take(&mut self) -> Answer {
        self.asked = None;
        self.answered.recv().map_err(|_| "its reader ended".to_owned())?
    }
}

impl RingReader for Ahead {
    fn load(&mut self, first: u32, count: u32, next: Option<Wish>) -> Result<(), String> {
        if self.asked.is_some_and(|asked| asked != (first, count)) {
            let _ = self.take();
        }
        if self.asked.is_none() {
            self.ask((first, count));
        }
        self.pages = self.take()?;
        if let Some(next) = next {
            self.ask(next);
        }
        Ok(())
    }

    fn page(&self, index: u32) -> &Page {
        &self.pages[index as usize].0
    }
}
