//! CHAP: an initiator proves that it knows a secret, and may ask the target to (RFC 7143, section
//! 12.1.3).
//!
//! ```text
//! initiator                       target
//! CHAP_A=7,5          ─────────►
//!                     ◄─────────  CHAP_A=7 CHAP_I=identifier CHAP_C=challenge
//! CHAP_N CHAP_R       ─────────►  response = H(identifier, secret, challenge)
//! [CHAP_I CHAP_C]     ◄─────────  [CHAP_N CHAP_R]
//! ```
//! The identifier and the challenge are the caller's random bytes. Responses are compared in constant
//! time. **Invariant:** a challenge that is our own is not answered: whoever sends it back has somebody
//! else's answer in mind.

use md5::Md5;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::target::Credentials;
use super::text;

/// Bytes of randomness for one login: the identifier and the challenge.
pub const RANDOM: usize = 33;
/// Longest challenge of an initiator.
const CHALLENGE_MAX: usize = 1024;

/// Hash algorithms, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// MD5, which every initiator knows.
    Md5 = 5,
    /// SHA-256.
    Sha256 = 7,
}

impl Algorithm {
    /// The best one of an initiator's list.
    pub fn choose(list: &str) -> Option<Algorithm> {
        let has = |algorithm: Algorithm| {
            list.split(',').any(|it| text::number(it) == Some(algorithm as u32))
        };
        [Algorithm::Sha256, Algorithm::Md5].into_iter().find(|algorithm| has(*algorithm))
    }

    fn response(self, identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        match self {
            Algorithm::Md5 => digest::<Md5>(identifier, secret, challenge),
            Algorithm::Sha256 => digest::<Sha256>(identifier, secret, challenge),
        }
    }
}

/// A challenge that was sent.
#[derive(Clone, Debug)]
pub struct Challenge {
    algorithm: Algorithm,
    identifier: u8,
    challenge: Vec<u8>,
}

/// An initiator's answer to a challenge, and its own challenge.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proof<'a> {
    /// CHAP_N.
    pub name: Option<&'a str>,
    /// CHAP_R.
    pub response: Option<&'a str>,
    /// CHAP_I.
    pub identifier: Option<&'a str>,
    /// CHAP_C.
    pub challenge: Option<&'a str>,
}

/// The proof is none, or what is asked in return cannot be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

impl Challenge {
    /// Makes one from `random`, and appends the keys that tell it.
    pub fn send(algorithm: Algorithm, random: &[u8; RANDOM], out: &mut Vec<u8>) -> Challenge {
        let [identifier, challenge @ ..] = random;
        // As long as the hash: longer ones add nothing, and some initiators take no longer one.
        let len = if algorithm == Algorithm::Md5 { 16 } else { 32 };
        let challenge = challenge[..len].to_vec();
        text::put(out, "CHAP_A", &(algorithm as u32).to_string());
        text::put(out, "CHAP_I", &identifier.to_string());
        text::put(out, "CHAP_C", &text::hex(&challenge));
        Challenge { algorithm, identifier: *identifier, challenge }
    }

    /// Checks a proof against `expected`, and appends the target's own when it is asked for.
    ///
    /// # Errors
    /// [`Failed`].
    pub fn verify(
        &self,
        proof: &Proof<'_>,
        expected: &Credentials,
        own: Option<&Credentials>,
        out: &mut Vec<u8>,
    ) -> Result<(), Failed> {
        let response = proof.response.and_then(text::binary).ok_or(Failed)?;
        let right = self.algorithm.response(self.identifier, &expected.secret, &self.challenge);
        let is_right = bool::from(response.ct_eq(&right));
        let is_known =
            bool::from(proof.name.unwrap_or("").as_bytes().ct_eq(expected.name.as_bytes()));
        if !(is_right && is_known) {
            return Err(Failed);
        }
        match (proof.identifier, proof.challenge, own) {
            (None, None, _) => Ok(()),
            (Some(identifier), Some(challenge), Some(own)) => {
                let identifier = text::number(identifier).and_then(|it| u8::try_from(it).ok());
                let challenge = text::binary(challenge).ok_or(Failed)?;
                let is_ours = challenge == self.challenge;
                if is_ours || challenge.is_empty() || challenge.len() > CHALLENGE_MAX {
                    return Err(Failed);
                }
                let identifier = identifier.ok_or(Failed)?;
                let response = self.algorithm.response(identifier, &own.secret, &challenge);
                text::put(out, "CHAP_N", &own.name);
                text::put(out, "CHAP_R", &text::hex(&response));
                Ok(())
            }
            _ => Err(Failed),
        }
    }
}

fn digest<D: Digest>(identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
    D::new()
        .chain_update([identifier])
        .chain_update(secret)
        .chain_update(challenge)
        .finalize()
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(name: &str, secret: &str) -> Credentials {
        Credentials { name: name.to_owned(), secret: secret.as_bytes().to_vec() }
    }

    #[test]
    fn the_best_algorithm_of_a_list_is_chosen() {
        let check = |list, expect| assert_eq!(Algorithm::choose(list), expect, "{list}");
        check("5", Some(Algorithm::Md5));
        check("5,7", Some(Algorithm::Sha256));
        check("7,6,5", Some(Algorithm::Sha256));
        check("6,8", None);
        check("", None);
        check("five", None);
    }

    /// Against values made with another implementation (Python's hashlib).
    #[test]
    fn responses_are_those_of_the_field() {
        let check = |algorithm: Algorithm, expect: &str| {
            let response = algorithm.response(0x27, b"a secret of use", &[0xab; 16]);
            assert_eq!(text::hex(&response), expect);
        };
        check(Algorithm::Md5, "0x43fe88c4f0b7b8c8180a74fa8461e8e3");
        check(
            Algorithm::Sha256,
            "0xd4e757618a1824ce0396707c7e2f679ea0f44b6956c8442beb83a8afebe3522a",
        );
    }

    #[test]
    fn proofs_are_checked() {
        let expected = credentials("user", "twelve bytes or more");
        let own = credentials("target", "another long secret");
        for algorithm in [Algorithm::Md5, Algorithm::Sha256] {
            let mut out = Vec::new();
            let challenge = Challenge::send(algorithm, &[7; RANDOM], &mut out);
            let right = |secret: &str| {
                text::hex(&algorithm.response(7, secret.as_bytes(), &challenge.challenge))
            };
            let good = right("twelve bytes or more");
            let bad = right("twelve bytes or less");
            let check = |name: &str, response: &str, expect: Result<(), Failed>| {
                let proof =
                    Proof { name: Some(name), response: Some(response), ..Proof::default() };
                let result = challenge.verify(&proof, &expected, Some(&own), &mut Vec::new());
                assert_eq!(result, expect, "{name} {response}");
            };
            check("user", &good, Ok(()));
            check("user", &good.to_uppercase().replace("0X", "0x"), Ok(()));
            check("user", &bad, Err(Failed));
            check("other", &good, Err(Failed));
            check("", &good, Err(Failed));
            check("user", &good[..good.len() - 2], Err(Failed));
            check("user", "0x", Err(Failed));
            check("user", "", Err(Failed));
        }
    }

    #[test]
    fn the_target_proves_itself_when_asked_but_not_with_its_own_challenge() {
        let expected = credentials("user", "twelve bytes or more");
        let own = credentials("target", "another long secret");
        let algorithm = Algorithm::Sha256;
        let challenge = Challenge::send(algorithm, &[7; RANDOM], &mut Vec::new());
        let response = text::hex(&algorithm.response(7, &expected.secret, &challenge.challenge));
        let check = |identifier, asked: &str, own: Option<&Credentials>, expect: Option<String>| {
            let proof = Proof {
                name: Some("user"),
                response: Some(&response),
                identifier,
                challenge: Some(asked),
            };
            let mut out = Vec::new();
            let result = challenge.verify(&proof, &expected, own, &mut out);
            assert_eq!(result.ok().map(|()| String::from_utf8(out).unwrap()), expect);
        };
        let answer = text::hex(&algorithm.response(9, &own.secret, &[1, 2, 3]));
        check(Some("9"), "0x010203", Some(&own), Some(format!("CHAP_N=target\0CHAP_R={answer}\0")));
        check(Some("9"), "0x010203", None, None);
        check(None, "0x010203", Some(&own), None);
        check(Some("256"), "0x010203", Some(&own), None);
        check(Some("7"), &text::hex(&[7; 32]), Some(&own), None);
        check(Some("9"), &text::hex(&[1; 1025]), Some(&own), None);
        check(Some("9"), "0x", Some(&own), None);
    }
}
