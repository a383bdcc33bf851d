//! Text traces: one request per line, comments and empty lines between them.

use std::fmt;
use std::io::BufRead;

use super::fields::shown;
use super::{Failure, Guess, Item, Raw, Step};

/// Longest line that is taken for one.
const LINE_MAX: usize = 4096;

/// Parses the lines of one format.
pub(super) trait Parser: fmt::Debug + Send {
    /// A line without its end, neither empty nor a `#` comment.
    fn parse(&mut self, line: &str) -> Result<Item, String>;

    /// The assumed units of its numbers.
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
    /// The last line, if the input ended within it.
    unended: Option<String>,
}

/// What a line ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Newline,
    /// More than a line can have.
    TooLong,
    /// The end of the input.
    Input,
}

impl Lines {
    pub(super) fn new(parser: Box<dyn Parser>) -> Lines {
        Lines { parser, line: Vec::with_capacity(LINE_MAX), number: 0, unended: None }
    }

    pub(super) fn guess(&self) -> Guess {
        self.parser.guess()
    }

    /// Number of the last line, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The last line, if the input ended within it and it reads as a whole one.
    pub(super) fn unended(&self) -> Option<&str> {
        self.unended.as_deref()
    }

    pub(super) fn step(&mut self, input: &mut dyn BufRead) -> Option<Step> {
        loop {
            let end = match self.read_line(input) {
                Ok(Some(end)) => end,
                Ok(None) => return self.parser.kept_back().map(|raw| Ok(Item::Request(raw))),
                Err(error) => return Some(Err(Failure::Io(error))),
            };
            self.number += 1;
            if end == End::TooLong {
                let what = format!("longer than {LINE_MAX} bytes: not a text trace?");
                return Some(Err(Failure::Bad(what)));
            }
            let Ok(text) = str::from_utf8(&self.line) else {
                return Some(Err(Failure::Bad("not text (UTF-8)".into())));
            };
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let item = match self.parser.parse(text) {
                Err(what) => {
                    let cut =
                        if end == End::Input { "; the file ends within this line" } else { "" };
                    return Some(Err(Failure::Bad(format!("{what}: \"{}\"{cut}", shown(text)))));
                }
                Ok(item) => item,
            };
            self.unended = (end == End::Input).then(|| shown(text));
            return Some(Ok(item));
        }
    }

    /// Reads one line into `self.line`, as much of it as a line can have. `None` at the end.
    fn read_line(&mut self, input: &mut dyn BufRead) -> std::io::Result<Option<End>> {
        self.line.clear();
        let (mut any, mut too_long) = (false, false);
        loop {
            let bytes = input.fill_buf()?;
            if bytes.is_empty() {
                let end = if too_long { End::TooLong } else { End::Input };
                return Ok(any.then_some(end));
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
                return Ok(Some(if too_long { End::TooLong } else { End::Newline }));
            }
        }
    }
}
