//! An NBD server that only copies: one thread per connection, or one for all of them; one `recv` for a batch of
//! requests, one copy from memory into the batch of replies, one `send`. No cache, no checks beyond bounds: the upper
//! limit for a server that copies.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, bail, ensure};
use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};

use crate::size;
use crate::target::{Listener, Target};

#[derive(Args)]
pub(crate) struct Options {
    /// unix:PATH or HOST:PORT
    listen: Target,
    /// Bytes served
    #[arg(long, default_value = "256MiB", value_parser = size::parse)]
    size: u64,
    /// One thread serves all connections; otherwise each has its own
    #[arg(long)]
    one_thread: bool,
}

const REQUEST: [u8; 4] = 0x2560_9513_u32.to_be_bytes();
const REQUEST_LENGTH: usize = 28;
const READ: [u8; 2] = [0, 0];
const DISCONNECT: [u8; 2] = [0, 2];
/// Fixed newstyle and no zeroes, in the greeting.
const HANDSHAKE_FLAGS: u16 = 3;
/// HAS_FLAGS, READ_ONLY, CAN_MULTI_CONN.
const EXPORT_FLAGS: u16 = 0b1_0000_0011;
const BATCH: usize = 1 << 20;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let listener = options.listen.address.listen()?;
    // Touched at the start, like any cache: a first touch would cost more than the copy.
    let memory: Arc<[u8]> = (0..options.size).map(|i| (i % 251) as u8).collect();
    println!("ready");
    if options.one_thread {
        return serve_in_turn(&listener, &memory);
    }
    loop {
        let socket = listener.accept()?;
        let memory = Arc::clone(&memory);
        thread::spawn(move || {
            let served = Connection::accepted(socket, &memory).and_then(|mut connection| {
                while connection.serve(&memory)? {}
                Ok(())
            });
            if let Err(e) = served {
                eprintln!("connection ended: {e:#}");
            }
        });
    }
}

/// Serves all connections with this thread: each that has requests gets one turn.
fn serve_in_turn(listener: &Listener, memory: &[u8]) -> anyhow::Result<()> {
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        let mut looked_at = vec![PollFd::new(listener, PollFlags::IN)];
        looked_at.extend(connections.iter().map(|c| PollFd::new(&c.stream, PollFlags::IN)));
        poll(&mut looked_at, None)?;
        let ready: Vec<bool> = looked_at.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut turns = ready[1..].iter();
        connections.retain_mut(|connection| {
            let has_turn = turns.next().is_some_and(|ready| *ready);
            !has_turn
                || connection.serve(memory).unwrap_or_else(|e| {
                    eprintln!("connection ended: {e:#}");
                    false
                })
        });
        if ready[0] {
            match Connection::accepted(listener.accept()?, memory) {
                Ok(connection) => connections.push(connection),
                Err(e) => eprintln!("connection refused: {e:#}"),
            }
        }
    }
}

/// A client that is past its handshake.
struct Connection {
    stream: File,
    input: Vec<u8>,
    /// Bytes of `input` that were received: the beginning of a request, between two turns.
    filled: usize,
    output: Vec<u8>,
}

impl Connection {
    fn accepted(socket: OwnedFd, memory: &[u8]) -> anyhow::Result<Connection> {
        let mut stream = File::from(socket);
        greet(&mut stream, memory.len() as u64).context("handshake")?;
        let output = Vec::with_capacity(BATCH * 2);
        Ok(Connection { stream, input: vec![0; 64 << 10], filled: 0, output })
    }

    /// Answers what has arrived; waits, if that is nothing. `false`: the client has ended.
    fn serve(&mut self, memory: &[u8]) -> anyhow::Result<bool> {
        let received = self.stream.read(&mut self.input[self.filled..])?;
        if received == 0 {
            return Ok(false);
        }
        self.filled += received;
        let whole = self.filled - self.filled % REQUEST_LENGTH;
        for request in self.input[..whole].chunks_exact(REQUEST_LENGTH) {
            if request[6..8] == DISCONNECT {
                return Ok(false);
            }
            answer(request, memory, &mut self.output)?;
            if self.output.len() >= BATCH {
                self.stream.write_all(&self.output)?;
                self.output.clear();
            }
        }
        self.stream.write_all(&self.output)?;
        self.output.clear();
        self.input.copy_within(whole..self.filled, 0);
        self.filled -= whole;
        Ok(true)
    }
}

fn answer(request: &[u8], memory: &[u8], output: &mut Vec<u8>) -> anyhow::Result<()> {
    ensure!(request[..4] == REQUEST, "bad magic in a request");
    ensure!(request[6..8] == READ, "only reads are served");
    let offset = u64::from_be_bytes(request[16..24].try_into()?) as usize;
    let length = u32::from_be_bytes(request[24..28].try_into()?) as usize;
    let data = memory.get(offset..).and_then(|m| m.get(..length)).context("outside the export")?;
    output.extend_from_slice(&0x6744_6698_u32.to_be_bytes());
    output.extend_from_slice(&[0; 4]);
    output.extend_from_slice(&request[8..16]);
    output.extend_from_slice(data);
    Ok(())
}

fn greet(stream: &mut File, size: u64) -> anyhow::Result<()> {
    stream.write_all(b"NBDMAGICIHAVEOPT")?;
    stream.write_all(&HANDSHAKE_FLAGS.to_be_bytes())?;
    let mut flags = [0; 4];
    stream.read_exact(&mut flags)?;
    let mut option = [0; 16];
    stream.read_exact(&mut option)?;
    let code = &option[8..12];
    let length = u32::from_be_bytes(option[12..].try_into()?);
    ensure!(length <= 8192, "an option of {length} bytes");
    let mut data = vec![0; length as usize];
    stream.read_exact(&mut data)?;
    if code != 7u32.to_be_bytes() {
        bail!("only GO is served");
    }
    let mut reply = Vec::new();
    let mut part = |kind: u32, data: &[u8]| {
        reply.extend(0x0003_e889_0455_65a9_u64.to_be_bytes());
        reply.extend(7u32.to_be_bytes());
        reply.extend(kind.to_be_bytes());
        reply.extend((data.len() as u32).to_be_bytes());
        reply.extend(data);
    };
    let mut info = vec![0, 0];
    info.extend(size.to_be_bytes());
    info.extend(EXPORT_FLAGS.to_be_bytes());
    part(3, &info);
    part(1, &[]);
    stream.write_all(&reply)?;
    Ok(())
}
