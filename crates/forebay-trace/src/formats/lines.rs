//! Text traces: one request per line, comments and empty lines between them.

use std::fmt;
use std::io::BufRead;

use super::{Failure, Guess, Item, Raw, Step};

/// Longest line that is taken for one.
const LINE_MAX: usize = 4096;

/// Parses the lines of one format.
pub(super) trait Parser: fmt::Debug + Send {
    /// A line without its end, neither empty nor a `#` comment.
    fn parse(&mut self, line: &str) -> Result<Item, String>;

    /// What its numbers are taken for.
    fn guess(&self) -> Guess {
        Guess::default()
    }

    /// The input has ended: a request that was kept back, one at a time.
    fn kept_back(&mut self) -> Option<Raw> {
        None
    }
}

/// Cuts the input into lines and numbers them.
#[derive(Debug)]
pub(super) struct Lines {
    parser: Box<dyn Parser>,
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    pub(super) fn new(parser: Box<dyn Parser>) -> Lines {
        Lines { parser, line: Vec::with_capacity(LINE_MAX), number: 0 }
    }

    pub(super) fn guess(&self) -> Guess {
        self.parser.guess()
    }

    /// Number of the last line, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn step(&mut self, input: &mut dyn BufRead) -> Option<Step> {
        loop {
            match self.read_line(input) {
                Ok(Some(too_long)) => {
                    self.number += 1;
                    if too_long {
                        let what = format!("longer than {LINE_MAX} bytes: not a text trace?");
                        return Some(Err(Failure::Bad(what)));
                    }
                }
                Ok(None) => return self.parser.kept_back().map(|raw| Ok(Item::Request(raw))),
                Err(error) => return Some(Err(Failure::Io(error))),
            }
            let Ok(text) = str::from_utf8(&self.line) else {
                return Some(Err(Failure::Bad("not text (UTF-8)".into())));
            };
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            return Some(self.parser.parse(text).map_err(Failure::Bad));
        }
    }

    /// Reads one line into `self.line`; says whether it was cut. `None` at the end.
    fn read_line(&mut self, input: &mut dyn BufRead) -> std::io::Result<Option<bool>> {
        self.line.clear();
        let (mut any, mut too_long) = (false, false);
        loop {
            let bytes = input.fill_buf()?;
            if bytes.is_empty() {
                return Ok(any.then_some(too_long));
            }
            any = true;
            let newline = bytes.iter().position(|&byte| byte == b'\n');
            let part = &bytes[..newline.unwrap_or(bytes.len())];
            let room = LINE_MAX - self.line.len();
            too_long |= part.len() > room;
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            let used = part.len() + usize::from(newline.is_some());
            input.consume(used);
            if newline.is_some() {
                return Ok(Some(too_long));
            }
        }
    }
}
