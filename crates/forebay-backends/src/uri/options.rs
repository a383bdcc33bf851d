//! The `key=value&...` part of a URI. Each option is taken by the code that knows it. An option
//! that nobody took is an error that names the known ones.

use std::fmt::Display;

use forebay_core::ids::Nanos;

use crate::error::{Error, ErrorKind};
use crate::{duration, size};

/// Options of one URI, some of them already taken.
#[derive(Debug)]
pub(crate) struct Options<'a> {
    uri: &'a str,
    left: Vec<(&'a str, &'a str)>,
    known: Vec<&'static str>,
}

impl<'a> Options<'a> {
    /// Splits `query` (without its `?`); `uri` is for messages.
    pub(crate) fn split(uri: &'a str, query: &'a str) -> Result<Options<'a>, Error> {
        let mut left = Vec::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let Some((key, value)) = part.split_once('=') else {
                return Err(invalid(uri, format_args!("option `{part}` has no value (key=value)")));
            };
            left.push((key, value));
        }
        Ok(Options { uri, left, known: Vec::new() })
    }

    /// The value of `key`, which may be given once.
    pub(crate) fn take(&mut self, key: &'static str) -> Result<Option<&'a str>, Error> {
        let value = self.take_next(key);
        if value.is_some() && self.left.iter().any(|(left, _)| *left == key) {
            return Err(invalid(self.uri, format_args!("option `{key}` is given twice")));
        }
        Ok(value)
    }

    /// The next value of `key`, which may be given several times.
    pub(crate) fn take_next(&mut self, key: &'static str) -> Option<&'a str> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        let found = self.left.iter().position(|(left, _)| *left == key)?;
        Some(self.left.remove(found).1)
    }

    /// `on` or `off`.
    pub(crate) fn switch(&mut self, key: &'static str, default: bool) -> Result<bool, Error> {
        match self.take(key)? {
            None => Ok(default),
            Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(other) => Err(self.bad(key, other, "allowed: on, off")),
        }
    }

    /// A whole number from `min` to `max`.
    pub(crate) fn number(
        &mut self,
        key: &'static str,
        min: u64,
        max: u64,
    ) -> Result<Option<u64>, Error> {
        let Some(text) = self.take(key)? else { return Ok(None) };
        match text.parse() {
            Ok(number) if (min..=max).contains(&number) => Ok(Some(number)),
            _ => Err(self.bad(key, text, format_args!("allowed: a whole number {min} to {max}"))),
        }
    }

    /// A size in bytes.
    pub(crate) fn size(&mut self, key: &'static str) -> Result<Option<u64>, Error> {
        let Some(text) = self.take(key)? else { return Ok(None) };
        size::parse(text).map(Some).map_err(|error| self.bad(key, text, error))
    }

    /// A length of time.
    pub(crate) fn duration(&mut self, key: &'static str) -> Result<Option<Nanos>, Error> {
        let Some(text) = self.take(key)? else { return Ok(None) };
        duration::parse(text).map(Some).map_err(|error| self.bad(key, text, error))
    }

    /// The error for a value that cannot be used.
    pub(crate) fn bad(&self, key: &str, value: &str, why: impl Display) -> Error {
        invalid(self.uri, format_args!("{key}={value}: {why}"))
    }

    /// Ends the parse: an option that nobody took is an error.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let Some((key, _)) = self.left.first() else { return Ok(()) };
        let known = match self.known.as_slice() {
            [] => "it takes none".to_owned(),
            known => format!("allowed: {}", known.join(", ")),
        };
        Err(invalid(self.uri, format_args!("option `{key}` is not known; {known}")))
    }
}

/// The error for a URI that cannot be used.
pub(crate) fn invalid(uri: &str, why: impl Display) -> Error {
    Error::new(ErrorKind::InvalidUri, format!("backend `{uri}`: {why}"))
}
