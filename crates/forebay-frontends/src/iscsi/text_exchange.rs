//! One exchange of keys after the login: a request in one or several PDUs, an answer in one or several.
//!
//! ```text
//! Text C=1 ──► empty answer    Text ──► first piece, transfer tag    empty Text, tag ──► next piece …
//! ```
//! Limits: one exchange at a time; a new request begins anew. A key that is said twice is an error: an answer is
//! as long as one answer to each key.

use super::codec::{Answer, NO_TAG};
use super::text::{self, Assembly, BadText};

/// Names the exchange while its answer goes on.
const TRANSFER_TAG: u32 = 1;

/// See the module.
#[derive(Debug)]
pub struct Exchange {
    segment_max: usize,
    request: Assembly,
    answer: Vec<u8>,
    /// So much of it was sent.
    sent: usize,
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Keys, or a part of them.
    pub text: Vec<u8>,
    is_final: bool,
    goes_on: bool,
}

impl Piece {
    /// The header of the PDU that carries it.
    pub fn answer(&self) -> Answer {
        let transfer_tag = if self.is_final { NO_TAG } else { TRANSFER_TAG };
        Answer::Text { is_final: self.is_final, goes_on: self.goes_on, transfer_tag }
    }
}

impl Exchange {
    /// For an initiator that takes `segment_max` bytes in one PDU.
    pub fn new(segment_max: usize) -> Exchange {
        Exchange { segment_max, request: Assembly::default(), answer: Vec::new(), sent: 0 }
    }

    /// Takes the text of one PDU, lets `key` answer each key of a whole request, and has the next piece
    /// of the answer.
    ///
    /// # Errors
    /// It is no text, or says a key twice.
    pub fn take(
        &mut self,
        data: &[u8],
        goes_on: bool,
        transfer_tag: u32,
        mut key: impl FnMut(&str, &str, &mut Vec<u8>),
    ) -> Result<Piece, BadText> {
        let asks_for_more = transfer_tag == TRANSFER_TAG && data.is_empty() && !goes_on;
        if !asks_for_more {
            (self.answer, self.sent) = (Vec::new(), 0);
            // A request that begins, whatever became of the one before.
            if transfer_tag == NO_TAG {
                self.request = Assembly::default();
            }
            let Some(request) = self.request.add(data, goes_on)? else {
                return Ok(Piece { text: Vec::new(), is_final: false, goes_on: false });
            };
            let keys = text::keys(&request)?;
            let is_said_before = |at| keys[..at].iter().any(|(name, _)| *name == keys[at].0);
            if (0..keys.len()).any(is_said_before) {
                return Err(BadText::Twice);
            }
            for (name, value) in keys {
                key(name, value, &mut self.answer);
            }
        }
        let left = &self.answer[self.sent..];
        let text = left[..left.len().min(self.segment_max)].to_vec();
        self.sent += text.len();
        let is_final = self.sent == self.answer.len();
        if is_final {
            (self.answer, self.sent) = (Vec::new(), 0);
        }
        Ok(Piece { text, is_final, goes_on: !is_final })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_answer_comes_in_pieces() {
        let mut exchange = Exchange::new(8);
        let mut take = |data: &[u8], tag| {
            exchange
                .take(data, false, tag, |name, _, out| text::put(out, name, "0123456789"))
                .unwrap()
        };
        let piece = take(b"A=\0", NO_TAG);
        assert_eq!((&piece.text[..], piece.is_final), (&b"A=012345"[..], false));
        let piece = take(b"", TRANSFER_TAG);
        assert_eq!((&piece.text[..], piece.is_final), (&b"6789\0"[..], true));
        let piece = take(b"", TRANSFER_TAG);
        assert_eq!((&piece.text[..], piece.is_final), (&b""[..], true));
    }

    #[test]
    fn a_key_that_is_said_twice_is_answered_once_at_most() {
        let mut exchange = Exchange::new(100);
        let mut answered = 0;
        let twice = exchange.take(b"A=1\0B=2\0A=1\0", false, NO_TAG, |_, _, _| answered += 1);
        assert_eq!((twice, answered), (Err(BadText::Twice), 0));
        let again = exchange.take(b"A=1\0", false, NO_TAG, |_, _, _| answered += 1);
        assert!(again.is_ok() && answered == 1, "each exchange has its own keys");
    }

    #[test]
    fn a_request_comes_in_pieces() {
        let mut exchange = Exchange::new(100);
        let mut take = |data: &[u8], goes_on, tag| {
            exchange.take(data, goes_on, tag, |name, value, out| text::put(out, name, value))
        };
        assert!(!take(b"A=1", true, NO_TAG).unwrap().is_final);
        assert_eq!(take(b"2\0", false, TRANSFER_TAG).unwrap().text, b"A=12\0");
        assert!(take(b"no key\0", false, NO_TAG).is_err());
        // One that is left unfinished is forgotten when another one begins.
        assert!(!take(b"A=1", true, NO_TAG).unwrap().is_final);
        assert_eq!(take(b"B=2\0", false, NO_TAG).unwrap().text, b"B=2\0");
    }
}
