//! How an initiator proves who it is.

use super::super::chap::{Algorithm, Challenge, Proof};
use super::super::text;
use super::{Login, RANDOM, Refusal, Reply};

/// What there is of a proof.
#[derive(Debug)]
pub(super) struct Security {
    random: [u8; RANDOM],
    challenge: Option<Challenge>,
    /// The initiator is who it says.
    pub(super) is_proven: bool,
}

impl Security {
    pub(super) fn new(random: [u8; RANDOM]) -> Security {
        Security { random, challenge: None, is_proven: false }
    }
}

impl Login {
    /// The steps of an authentication.
    pub(super) fn take_security(
        &mut self,
        keys: &[(&str, &str)],
        reply: &mut Reply,
    ) -> Result<(), Refusal> {
        let find = |name| keys.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        if let Some(methods) = find("AuthMethod") {
            let offers = |method| methods.split(',').any(|it| it == method);
            // A challenge is answered once: to begin anew takes a new connection.
            if self.security.challenge.is_some() || self.security.is_proven {
                return Err(Refusal::Malformed);
            }
            if self.wants_proof() {
                if !offers("CHAP") {
                    return Err(Refusal::Authentication);
                }
                text::put(&mut reply.text, "AuthMethod", "CHAP");
                reply.stays = true;
            } else if offers("None") {
                text::put(&mut reply.text, "AuthMethod", "None");
            } else {
                return Err(Refusal::Authentication);
            }
        }
        if let Some(list) = find("CHAP_A") {
            if self.security.challenge.is_some() || !self.wants_proof() {
                return Err(Refusal::Malformed);
            }
            let algorithm = Algorithm::choose(list).ok_or(Refusal::Authentication)?;
            let challenge = Challenge::send(algorithm, &self.security.random, &mut reply.text);
            self.security.challenge = Some(challenge);
            reply.stays = true;
        }
        if find("CHAP_R").is_some() || find("CHAP_N").is_some() {
            let challenge = self.security.challenge.as_ref().ok_or(Refusal::Malformed)?;
            let target = self.chosen().ok_or(Refusal::Malformed)?;
            let expected = target.chap.as_ref().ok_or(Refusal::Malformed)?;
            let proof = Proof {
                name: find("CHAP_N"),
                response: find("CHAP_R"),
                identifier: find("CHAP_I"),
                challenge: find("CHAP_C"),
            };
            let own = target.mutual_chap.as_ref();
            challenge
                .verify(&proof, expected, own, &mut reply.text)
                .map_err(|_| Refusal::Authentication)?;
            self.security.is_proven = true;
        }
        Ok(())
    }

    /// True when whoever comes has to prove who he is.
    pub(super) fn wants_proof(&self) -> bool {
        self.chosen().is_some_and(|target| target.chap.is_some())
    }
}
