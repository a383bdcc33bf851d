//! The login of an initiator and its discovery, without I/O.
//!
//! ```text
//! Security ──CHAP or none──► Operational ──keys──► full feature: Outcome::Session
//!     └──────────────────────────┴────────────────► discovery: SendTargets, until it leaves
//! ```
//! A login may begin at either stage and skip the second. Where the target asks for CHAP nothing
//! else leads out of the first. Limits: PDUs of [`SEGMENT_DEFAULT`] bytes of data, `STEPS_MAX`
//! of them, texts as [`super::text`] has them; the caller limits the time. An error is answered
//! with the protocol's status for it, and the connection ends.

use std::net::SocketAddr;
use std::sync::Arc;

use super::chap::RANDOM;
use super::codec::{Answer, HEADER, LoginRequest, NO_TAG, Numbers, Pdu, Request, padding};
use super::negotiate::{Rules, SEGMENT_DEFAULT, SEGMENT_MAX, Taken};
use super::target::{NAME_MAX, PORTAL_GROUP, Portal, Target};
use super::text::{self, Assembly};
use super::text_exchange::Exchange;
use security::Security;

mod security;

/// PDUs of one login.
const STEPS_MAX: u32 = 64;
/// Commands that a discovery session may have outstanding.
const DISCOVERY_WINDOW: u32 = 8;

const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;

/// Why a login failed, with the status that says so (RFC 7143, 11.13.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A PDU or a key makes no sense here.
    Malformed = 0x0200,
    /// The initiator did not prove who it is.
    Authentication = 0x0201,
    /// The target is not for this initiator.
    Forbidden = 0x0202,
    /// There is no such target.
    NotFound = 0x0203,
    /// It speaks another version.
    Version = 0x0205,
    /// A key is missing.
    MissingKey = 0x0207,
    /// No session of this kind.
    SessionType = 0x0209,
    /// A session has one connection.
    NoSuchSession = 0x020a,
    /// The target is to come; so may the initiator.
    Unavailable = 0x0301,
    /// There is no room for another one; it may come again.
    OutOfResources = 0x0302,
}

/// What a login led to.
#[derive(Debug)]
pub enum Outcome {
    /// Go on.
    Continue,
    /// The initiator is through.
    Session(Box<Established>),
    /// The initiator has left, or has to.
    Close(Option<Refusal>),
    /// What was sent is no iSCSI.
    Broken,
}

/// A session that begins.
#[derive(Clone, Debug)]
pub struct Established {
    /// Which target of the portal.
    pub target: usize,
    /// The initiator's name.
    pub initiator: String,
    /// The initiator's part of the session's name.
    pub isid: [u8; 6],
    /// The target's part.
    pub tsih: u16,
    /// The connection.
    pub cid: u16,
    /// What was agreed on.
    pub rules: Rules,
    /// The number of the first command.
    pub exp_cmd_sn: u32,
    /// The number of the next answer.
    pub stat_sn: u32,
    /// Bytes that came after the login.
    pub leftover: Vec<u8>,
}

/// One connection before its session is in full feature phase, or in discovery.
#[derive(Debug)]
pub struct Login {
    portal: Arc<Portal>,
    input: Vec<u8>,
    steps: u32,
    text: Assembly,
    first: Option<First>,
    peer: Peer,
    security: Security,
    said: Said,
    rules: Rules,
    counts: Counts,
    discovering: Option<Exchange>,
    /// Whoever comes is turned away.
    is_full: bool,
}

/// Who comes, and what for.
#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    initiator: String,
    target: Option<usize>,
    is_discovery: bool,
}

/// What is said once.
#[derive(Debug, Default)]
struct Said {
    own_segment: bool,
    group: bool,
}

/// The session's number, and those of what comes and goes.
#[derive(Debug)]
struct Counts {
    tsih: u16,
    exp_cmd_sn: u32,
    stat_sn: u32,
}

/// Values of the first PDU that the others must repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct First {
    isid: [u8; 6],
    cid: u16,
    tag: u32,
}

/// An answer in the making.
#[derive(Debug, Default)]
struct Reply {
    text: Vec<u8>,
    /// The initiator may not go to the next stage with this answer.
    stays: bool,
}

impl Login {
    /// A connection that came in at `address`. `tsih` names its session if one begins; it is not 0.
    pub fn start(
        portal: Arc<Portal>,
        address: SocketAddr,
        random: [u8; RANDOM],
        tsih: u16,
    ) -> Login {
        Login {
            portal,
            input: Vec::new(),
            steps: 0,
            text: Assembly::default(),
            first: None,
            peer: Peer { address, initiator: String::new(), target: None, is_discovery: false },
            security: Security::new(random),
            said: Said::default(),
            rules: Rules::default(),
            counts: Counts { tsih, exp_cmd_sn: 0, stat_sn: 0 },
            discovering: None,
            is_full: false,
        }
    }

    /// A connection for which there is no room: its first PDU is answered so.
    pub fn turn_away(address: SocketAddr) -> Login {
        Login { is_full: true, ..Login::start(Arc::default(), address, [0; RANDOM], 0) }
    }

    /// The initiator sent `bytes`; answers are appended to `out`.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Outcome {
        self.input.extend_from_slice(bytes);
        loop {
            let Some(header) = self.input.first_chunk::<HEADER>() else { return Outcome::Continue };
            let pdu = Pdu::decode(header);
            if pdu.data_len > SEGMENT_DEFAULT {
                return Outcome::Broken;
            }
            let start = HEADER + pdu.ahs_len;
            let end = start + pdu.data_len + padding(pdu.data_len);
            if self.input.len() < end {
                return Outcome::Continue;
            }
            let data = self.input[start..start + pdu.data_len].to_vec();
            self.input.drain(..end);
            let outcome = match self.discovering {
                Some(_) => self.discover(&pdu, &data, out),
                None => self.step(&pdu, &data, out),
            };
            if !matches!(outcome, Outcome::Continue) {
                return outcome;
            }
        }
    }

    /// The name that the initiator gave; empty before that.
    pub fn initiator(&self) -> &str {
        &self.peer.initiator
    }

    /// True in a discovery session.
    pub fn is_discovering(&self) -> bool {
        self.discovering.is_some()
    }

    /// One PDU of the login.
    fn step(&mut self, pdu: &Pdu, data: &[u8], out: &mut Vec<u8>) -> Outcome {
        let Request::Login(login) = pdu.request else { return Outcome::Broken };
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Outcome::Broken;
        }
        let first = First { isid: login.isid, cid: login.cid, tag: pdu.tag };
        let mut reply = Reply::default();
        let result = match self.first {
            None => {
                self.first = Some(first);
                self.counts.exp_cmd_sn = pdu.cmd_sn;
                self.check_first(&login)
            }
            Some(known) if known != first => Err(Refusal::Malformed),
            Some(_) => Ok(()),
        };
        let result = result.and_then(|()| self.answer(&login, data, &mut reply));
        let (transits, status) = match result {
            Ok(transits) => (transits, 0),
            Err(refusal) => (false, refusal as u16),
        };
        if status != 0 || login.goes_on {
            reply.text.clear();
        }
        // An answer is as long as one PDU at most: keys are short, and only those known are answered at length.
        if reply.text.len() > SEGMENT_DEFAULT {
            return Outcome::Broken;
        }
        let is_through = transits && login.next_stage == FULL_FEATURE;
        let answer = Answer::Login {
            transits,
            goes_on: false,
            stage: login.stage,
            next_stage: login.next_stage,
            isid: login.isid,
            tsih: if is_through { self.counts.tsih } else { login.tsih },
            status,
        };
        let window = if self.peer.is_discovery { DISCOVERY_WINDOW } else { super::session::WINDOW };
        answer.encode(pdu.tag, self.numbers(window), reply.text.len(), out);
        put_data(&reply.text, out);
        self.counts.stat_sn = self.counts.stat_sn.wrapping_add(1);
        match result {
            Err(refusal) => Outcome::Close(Some(refusal)),
            Ok(_) if is_through => self.establish(first),
            Ok(_) => Outcome::Continue,
        }
    }

    fn check_first(&self, login: &LoginRequest) -> Result<(), Refusal> {
        match login {
            _ if self.is_full => Err(Refusal::OutOfResources),
            LoginRequest { version_min: 1.., .. } => Err(Refusal::Version),
            LoginRequest { tsih: 1.., .. } => Err(Refusal::NoSuchSession),
            _ => Ok(()),
        }
    }

    /// Works through the keys of a step; true when the next stage begins.
    fn answer(
        &mut self,
        login: &LoginRequest,
        data: &[u8],
        reply: &mut Reply,
    ) -> Result<bool, Refusal> {
        if !matches!(login.stage, SECURITY | OPERATIONAL) || (login.transits && login.goes_on) {
            return Err(Refusal::Malformed);
        }
        let text = self.text.add(data, login.goes_on).map_err(|_| Refusal::Malformed)?;
        let Some(text) = text else { return Ok(false) };
        let keys = text::keys(&text).map_err(|_| Refusal::Malformed)?;
        self.take_names(&keys, reply)?;
        let wants_proof = self.wants_proof();
        // Planted: whoever goes past the security stage is let in.
        if login.stage == SECURITY {
            self.take_security(&keys, reply)?;
        } else if wants_proof && !self.security.is_proven && !cfg!(feature = "planted-bugs") {
            return Err(Refusal::Authentication);
        }
        for (name, value) in keys {
            self.take_key(name, value, reply);
        }
        let says_segment = login.stage == OPERATIONAL && !self.said.own_segment;
        if says_segment {
            self.said.own_segment = true;
            text::put(&mut reply.text, "MaxRecvDataSegmentLength", &SEGMENT_MAX.to_string());
        }
        if !login.transits || reply.stays {
            return Ok(false);
        }
        let may_leave = self.security.is_proven || !wants_proof;
        match (login.stage, login.next_stage) {
            (SECURITY, _) if !may_leave => Err(Refusal::Authentication),
            (SECURITY, OPERATIONAL) | (SECURITY | OPERATIONAL, FULL_FEATURE) => Ok(true),
            _ => Err(Refusal::Malformed),
        }
    }

    /// Its name and its wish, which the first whole text has to say.
    fn take_names(&mut self, keys: &[(&str, &str)], reply: &mut Reply) -> Result<(), Refusal> {
        let find = |name| keys.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        if self.peer.initiator.is_empty() {
            let initiator = find("InitiatorName").ok_or(Refusal::MissingKey)?;
            // Not more strictly: QEMU names itself after its virtual machine, whatever that is called.
            let is_line = !initiator.chars().any(char::is_control);
            if initiator.is_empty() || initiator.len() > NAME_MAX || !is_line {
                return Err(Refusal::Malformed);
            }
            initiator.clone_into(&mut self.peer.initiator);
            self.peer.is_discovery = match find("SessionType") {
                Some("Discovery") => true,
                Some("Normal") | None => false,
                Some(_) => return Err(Refusal::SessionType),
            };
            if !self.peer.is_discovery {
                let name = find("TargetName").ok_or(Refusal::MissingKey)?;
                let target = self.portal.find(name).ok_or(match self.portal.awaits(name) {
                    true => Refusal::Unavailable,
                    false => Refusal::NotFound,
                })?;
                if !self.portal.targets[target].admits(&self.peer.initiator) {
                    return Err(Refusal::Forbidden);
                }
                self.peer.target = Some(target);
            }
        }
        if !self.said.group && !self.peer.is_discovery {
            self.said.group = true;
            text::put(&mut reply.text, "TargetPortalGroupTag", &PORTAL_GROUP.to_string());
            let alias = self.chosen().map_or("", |target| target.alias.as_str());
            if !alias.is_empty() {
                let alias = alias.to_owned();
                text::put(&mut reply.text, "TargetAlias", &alias);
            }
        }
        Ok(())
    }

    /// One key of an operational negotiation.
    fn take_key(&mut self, name: &str, value: &str, reply: &mut Reply) {
        let taken = self.rules.take(name, value, self.peer.is_discovery, &mut reply.text);
        let is_handled = matches!(
            name,
            "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType" | "AuthMethod"
        ) || name.starts_with("CHAP_");
        // Answers to what nobody asked are not answered again.
        let is_answer = matches!(value, "NotUnderstood" | "Irrelevant" | "Reject");
        if taken == Taken::Unknown && !is_handled && !is_answer {
            text::put(&mut reply.text, name, "NotUnderstood");
        }
    }

    fn chosen(&self) -> Option<&Target> {
        self.peer.target.map(|target| &self.portal.targets[target])
    }

    /// The login is over.
    fn establish(&mut self, first: First) -> Outcome {
        self.rules.settle();
        let Some(target) = self.peer.target else {
            self.discovering = Some(Exchange::new(self.rules.segment_max.min(SEGMENT_DEFAULT)));
            return Outcome::Continue;
        };
        Outcome::Session(Box::new(Established {
            target,
            initiator: std::mem::take(&mut self.peer.initiator),
            isid: first.isid,
            tsih: self.counts.tsih,
            cid: first.cid,
            rules: self.rules,
            exp_cmd_sn: self.counts.exp_cmd_sn,
            stat_sn: self.counts.stat_sn,
            leftover: std::mem::take(&mut self.input),
        }))
    }

    /// One PDU of a discovery session.
    fn discover(&mut self, pdu: &Pdu, data: &[u8], out: &mut Vec<u8>) -> Outcome {
        let is_numbered = !pdu.is_immediate && !matches!(pdu.request, Request::DataOut { .. });
        if is_numbered {
            if pdu.cmd_sn != self.counts.exp_cmd_sn {
                return Outcome::Broken;
            }
            self.counts.exp_cmd_sn = self.counts.exp_cmd_sn.wrapping_add(1);
        }
        match pdu.request {
            Request::NopOut { .. } if pdu.tag == NO_TAG => return Outcome::Continue,
            Request::NopOut { .. } => {
                let answer = Answer::NopIn { transfer_tag: NO_TAG, lun: [0; 8] };
                answer.encode(pdu.tag, self.numbers(DISCOVERY_WINDOW), data.len(), out);
                put_data(data, out);
            }
            Request::Text { goes_on, transfer_tag, .. } => {
                let (portal, initiator, address) =
                    (&self.portal, &self.peer.initiator, self.peer.address);
                let exchange = self.discovering.as_mut().expect("it is discovering");
                let answered =
                    exchange.take(data, goes_on, transfer_tag, |name, value, out| {
                        match (name, value) {
                            ("SendTargets", "All") => portal.list(initiator, None, address, out),
                            ("SendTargets", "") => text::put(out, name, "Reject"),
                            ("SendTargets", it) => portal.list(initiator, Some(it), address, out),
                            _ => text::put(out, name, "NotUnderstood"),
                        }
                    });
                let Ok(piece) = answered else { return Outcome::Broken };
                let numbers = self.numbers(DISCOVERY_WINDOW);
                piece.answer().encode(pdu.tag, numbers, piece.text.len(), out);
                put_data(&piece.text, out);
            }
            Request::Logout { .. } => {
                let answer = Answer::Logout { response: 0 };
                answer.encode(pdu.tag, self.numbers(DISCOVERY_WINDOW), 0, out);
                return Outcome::Close(None);
            }
            Request::Command(_)
            | Request::TaskManagement { .. }
            | Request::Login(_)
            | Request::DataOut { .. }
            | Request::Unknown(_) => return Outcome::Broken,
        }
        self.counts.stat_sn = self.counts.stat_sn.wrapping_add(1);
        Outcome::Continue
    }

    fn numbers(&self, window: u32) -> Numbers {
        Numbers {
            stat_sn: self.counts.stat_sn,
            exp_cmd_sn: self.counts.exp_cmd_sn,
            max_cmd_sn: self.counts.exp_cmd_sn.wrapping_add(window - 1),
        }
    }
}

/// Appends data and what pads them.
fn put_data(data: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(data);
    out.resize(out.len() + padding(data.len()), 0);
}

#[cfg(test)]
mod tests;
