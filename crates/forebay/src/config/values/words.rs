//! How the command line parses a value that is one of a few words. The completion of a shell offers these words.

use std::error::Error;
use std::ffi::OsStr;
use std::marker::PhantomData;
use std::str::FromStr;

use clap::builder::{PossibleValue, TypedValueParser};

/// Parses with [`FromStr`], and knows what can be typed.
#[derive(Clone, Debug)]
pub struct Words<T> {
    words: Vec<&'static str>,
    value: PhantomData<T>,
}

impl<T> Words<T> {
    /// Of these words. What else can be typed, and what is an error, only the type knows.
    pub fn new(words: impl IntoIterator<Item = &'static str>) -> Words<T> {
        Words { words: words.into_iter().collect(), value: PhantomData }
    }
}

impl<T> TypedValueParser for Words<T>
where
    T: FromStr + Clone + Send + Sync + 'static,
    T::Err: Into<Box<dyn Error + Send + Sync>>,
{
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        T::from_str.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().map(PossibleValue::new)))
    }
}
