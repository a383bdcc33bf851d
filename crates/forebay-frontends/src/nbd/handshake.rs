//! The server's side of the handshake, without I/O.
//!
//! ```text
//! start ──greeting──► Flags ──client flags──► Options ──EXPORT_NAME, GO──► Transmission
//!                       │                        │  ▲
//!                       │                        └──┘ LIST, INFO, STRUCTURED_REPLY, …
//!                       └──────── broken protocol, ABORT, limits ────────► Close
//! ```
//!
//! Limits: [`options_max`] options per connection, [`OPTION_DATA_MAX`] bytes of data each. A
//! client that exceeds them gets an error where the protocol allows it, and is closed. Time
//! limits are the caller's.
//!
//! Meta contexts belong to the export that they were selected for: they are forgotten when the client
//! then goes to another one.

use std::sync::Arc;

use forebay_nbd::flags::{ClientFlags, HandshakeFlags};
use forebay_nbd::greeting::Greeting;
use forebay_nbd::info::{Info, InfoKind};
use forebay_nbd::option::{
    InfoRequest, MetaContextRequest, OptionHeader, OptionKind, decode_export_name,
};
use forebay_nbd::option_reply::{self, ExportNameReply, OptionReply};
use forebay_nbd::{Invalid, OPTION_DATA_MAX};

use super::contexts::{Contexts, MetaContext};
use super::export::Export;

/// Options that a client may send before it must have chosen one of so many exports. A client that
/// lists them asks several things of each.
pub const fn options_max(exports: usize) -> u32 {
    256 + 8 * exports as u32
}

/// What was agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// Reads are answered with structured replies.
    pub structured_replies: bool,
    /// Meta contexts that `BLOCK_STATUS` answers.
    pub contexts: Contexts,
}

/// What to do after the bytes in `out` were sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Feed it more.
    Continue,
    /// The transmission phase begins.
    Transmission {
        /// Index of the export that the client chose.
        export: usize,
        /// What was agreed on.
        negotiated: Negotiated,
        /// Bytes that belong to the transmission phase.
        leftover: Vec<u8>,
    },
    /// Close the connection.
    Close(CloseReason),
}

/// Why a handshake ended without an export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The client left, as the protocol wants it.
    #[error("the client left")]
    Abort,
    /// The client does not speak the protocol.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// `EXPORT_NAME` with a name that is not offered.
    #[error("no export is named {0:?}")]
    UnknownExport(String),
    /// More than [`options_max`] options.
    #[error("more than {0} options")]
    TooManyOptions(u32),
}

/// One connection before its transmission phase. Sends nothing itself: bytes to send are appended to
/// `out`, and are to be sent before the [`Outcome`] is acted on.
#[derive(Debug)]
pub struct Handshake {
    exports: Arc<[Export]>,
    /// The first of them is also the one without a name.
    has_default: bool,
    /// Bytes that arrived and are not used up.
    input: Vec<u8>,
    /// `None` before they arrived.
    flags: Option<ClientFlags>,
    options: u32,
    structured_replies: bool,
    /// Contexts, and the export they were selected for.
    selected: Option<(usize, Contexts)>,
}

impl Handshake {
    /// A connection to a listener that offers `exports`, the first of them also as "". Appends the
    /// greeting to `out`.
    pub fn start(exports: Arc<[Export]>, out: &mut Vec<u8>) -> Handshake {
        let flags = HandshakeFlags::FIXED_NEWSTYLE.with(HandshakeFlags::NO_ZEROES);
        out.extend_from_slice(&Greeting { flags }.to_bytes());
        Handshake {
            exports,
            has_default: true,
            input: Vec::new(),
            flags: None,
            options: 0,
            structured_replies: false,
            selected: None,
        }
    }

    /// The same without an export that has no name.
    pub fn without_default(self) -> Handshake {
        Handshake { has_default: false, ..self }
    }

    /// Takes `bytes` from the client. After any outcome but [`Outcome::Continue`] it must not be
    /// called again.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Outcome {
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let mut used = 0;
        loop {
            match self.step(&input[used..], out) {
                Ok(Step::NeedMore) => {
                    input.drain(..used);
                    self.input = input;
                    return Outcome::Continue;
                }
                Ok(Step::Done(consumed)) => used += consumed,
                Ok(Step::Chosen(consumed, export)) => {
                    input.drain(..used + consumed);
                    let negotiated = self.negotiated(export);
                    return Outcome::Transmission { export, negotiated, leftover: input };
                }
                Err(reason) => return Outcome::Close(reason),
            }
        }
    }

    /// The agreement with a client that goes to `export`.
    fn negotiated(&self, export: usize) -> Negotiated {
        let contexts = self.selected.filter(|(index, _)| *index == export).map(|(_, set)| set);
        Negotiated {
            structured_replies: self.structured_replies,
            contexts: contexts.unwrap_or_default(),
        }
    }

    /// Takes the client's flags or one option off the front of `input`.
    fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Step, CloseReason> {
        if self.flags.is_none() {
            self.flags = ClientFlags::decode(input)?;
            return Ok(match self.flags {
                None => Step::NeedMore,
                Some(_) => Step::Done(ClientFlags::SIZE),
            });
        }
        let Some(header) = OptionHeader::decode(input)? else { return Ok(Step::NeedMore) };
        if self.options == options_max(self.exports.len()) {
            return Err(CloseReason::TooManyOptions(self.options));
        }
        if cfg!(feature = "planted-bugs") && header.len == 13 {
            panic!("planted: an option with 13 bytes of data");
        }
        if header.len > OPTION_DATA_MAX {
            refuse(header.option, OptionReply::ErrTooBig, "option data over 64 KiB", out);
            let what = "length of an option's data";
            return Err(Invalid::new(what, u64::from(header.len)).into());
        }
        let size = OptionHeader::SIZE + header.len as usize;
        let Some(data) = input.get(OptionHeader::SIZE..size) else { return Ok(Step::NeedMore) };
        self.options += 1;
        let chosen = self.on_option(header.option, data, out)?;
        Ok(chosen.map_or(Step::Done(size), |export| Step::Chosen(size, export)))
    }

    /// Answers one option; `Some`: the transmission phase of that export begins.
    fn on_option(
        &mut self,
        option: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, CloseReason> {
        let Some(kind) = OptionKind::from_wire(option) else {
            refuse(option, OptionReply::ErrUnsupported, "unknown option", out);
            return Ok(None);
        };
        match kind {
            OptionKind::ExportName => return self.on_export_name(data, out).map(Some),
            OptionKind::Go => return Ok(self.on_info(option, data, out)),
            OptionKind::Info => {
                self.on_info(option, data, out);
            }
            OptionKind::Abort => {
                option_reply::encode_ack(option, out);
                return Err(CloseReason::Abort);
            }
            OptionKind::List => self.on_list(option, data, out),
            OptionKind::StructuredReply if data.is_empty() => {
                self.structured_replies = true;
                option_reply::encode_ack(option, out);
            }
            OptionKind::StructuredReply => {
                refuse(option, OptionReply::ErrInvalid, "this option has no data", out);
            }
            OptionKind::ListMetaContext => self.on_meta_context(option, true, data, out),
            OptionKind::SetMetaContext => self.on_meta_context(option, false, data, out),
            OptionKind::StartTls | OptionKind::ExtendedHeaders => {
                refuse(option, OptionReply::ErrUnsupported, "not supported", out);
            }
        }
        Ok(None)
    }

    /// The old way to choose an export: no answer but success or the end of the connection.
    fn on_export_name(&self, data: &[u8], out: &mut Vec<u8>) -> Result<usize, CloseReason> {
        let name = decode_export_name(data)?;
        let index = self.find(name).ok_or_else(|| CloseReason::UnknownExport(name.to_owned()))?;
        let export = &self.exports[index];
        let reply =
            ExportNameReply { size: export.size, flags: export.flags(self.structured_replies) };
        out.extend_from_slice(&reply.to_bytes());
        if !self.flags.unwrap_or_default().has(ClientFlags::NO_ZEROES) {
            out.extend_from_slice(&[0; ExportNameReply::ZEROES]);
        }
        Ok(index)
    }

    /// `INFO` and `GO`: the export when the answer was not an error.
    fn on_info(&self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let request = match InfoRequest::decode(data) {
            Ok(request) => request,
            Err(invalid) => {
                refuse(option, OptionReply::ErrInvalid, &invalid.to_string(), out);
                return None;
            }
        };
        let Some(index) = self.find(request.name) else {
            refuse(option, OptionReply::ErrUnknown, "no such export", out);
            return None;
        };
        let export = &self.exports[index];
        let main = Info::Export { size: export.size, flags: export.flags(self.structured_replies) };
        option_reply::encode_info(option, &main, out);
        option_reply::encode_info(option, &Info::BlockSize(export.block_sizes()), out);
        if request.wants(InfoKind::Name) {
            option_reply::encode_info(option, &Info::Name(&export.name), out);
        }
        if request.wants(InfoKind::Description) && !export.description.is_empty() {
            option_reply::encode_info(option, &Info::Description(&export.description), out);
        }
        option_reply::encode_ack(option, out);
        Some(index)
    }

    fn on_list(&self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        if !data.is_empty() {
            refuse(option, OptionReply::ErrInvalid, "this option has no data", out);
            return;
        }
        for export in self.exports.iter() {
            option_reply::encode_server(option, &export.name, out);
        }
        option_reply::encode_ack(option, out);
    }

    /// `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
    fn on_meta_context(&mut self, option: u32, is_list: bool, data: &[u8], out: &mut Vec<u8>) {
        if !is_list {
            self.selected = None;
        }
        if !self.structured_replies {
            let why = "structured replies must be negotiated first";
            refuse(option, OptionReply::ErrInvalid, why, out);
            return;
        }
        let request = match MetaContextRequest::decode(data) {
            Ok(request) => request,
            Err(invalid) => {
                refuse(option, OptionReply::ErrInvalid, &invalid.to_string(), out);
                return;
            }
        };
        let Some(index) = self.find(request.name) else {
            refuse(option, OptionReply::ErrUnknown, "no such export", out);
            return;
        };
        let mut chosen = Contexts::default();
        for context in MetaContext::ALL {
            let everything = is_list && request.is_empty();
            if everything || request.queries().any(|query| context.matches(query, is_list)) {
                let id = if is_list { 0 } else { context.id() };
                option_reply::encode_meta_context(option, id, context.name(), out);
                chosen.insert(context);
            }
        }
        option_reply::encode_ack(option, out);
        if !is_list {
            self.selected = Some((index, chosen));
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        if name.is_empty() && self.has_default && !self.exports.is_empty() {
            return Some(0);
        }
        self.exports.iter().position(|export| export.name == name)
    }
}

/// The result of one look at the input; the number is how much of it was used.
enum Step {
    NeedMore,
    Done(usize),
    Chosen(usize, usize),
}

fn refuse(option: u32, reply: OptionReply, why: &str, out: &mut Vec<u8>) {
    option_reply::encode_error(option, reply, why, out);
}

#[cfg(test)]
mod tests;
