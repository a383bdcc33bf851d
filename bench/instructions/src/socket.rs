//! A client at the other end of a socket. A batch is a write of its requests and a read of its
//! answers.

use std::io::{Read, Write};
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::load::{BATCH, BLOCK, Client, Hit};

/// A protocol whose requests are all of one length, and so are the headers of its answers.
pub trait Protocol {
    /// Bytes of a request.
    const REQUEST: usize;
    /// Bytes of an answer before its data.
    const HEADER: usize;

    /// Appends the request for a hit.
    fn encode(hit: &Hit, out: &mut Vec<u8>);

    /// Panics when this is not the header of the answer to it.
    fn check(header: &[u8], hit: &Hit);
}

/// See the module.
pub struct Socket<P> {
    pub(crate) stream: UnixStream,
    requests: Vec<u8>,
    answers: Vec<u8>,
    protocol: PhantomData<P>,
}

impl<P: Protocol> Socket<P> {
    /// Bytes of an answer.
    const ANSWER: usize = P::HEADER + BLOCK as usize;

    /// A client, and the socket for the one who serves it.
    pub fn pair() -> (Socket<P>, OwnedFd) {
        let (stream, theirs) = UnixStream::pair().expect("the kernel has two sockets");
        // What is not there is no answer.
        stream.set_nonblocking(true).expect("it is a socket");
        let answers = vec![0; BATCH * Self::ANSWER];
        let socket = Socket { stream, requests: Vec::new(), answers, protocol: PhantomData };
        (socket, theirs.into())
    }
}

impl<P: Protocol> Client for Socket<P> {
    fn prepare(&mut self, lap: &[Hit]) {
        self.requests.clear();
        lap.iter().for_each(|hit| P::encode(hit, &mut self.requests));
    }

    fn ask(&mut self, batch: usize) {
        let len = BATCH * P::REQUEST;
        let written = self.stream.write(&self.requests[batch * len..][..len]);
        assert!(matches!(written, Ok(count) if count == len), "there is room for requests");
    }

    fn take(&mut self, _batch: usize) -> bool {
        matches!(self.stream.read(&mut self.answers), Ok(count) if count == self.answers.len())
    }

    fn check(&self, batch: &[Hit]) {
        for (answer, hit) in self.answers.chunks(Self::ANSWER).zip(batch) {
            let (header, data) = answer.split_at(P::HEADER);
            P::check(header, hit);
            assert!(data.iter().all(|byte| *byte == 0), "the disk's bytes");
        }
    }
}
