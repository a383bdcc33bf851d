//! An NBD server that only copies: one thread per connection, one `recv` for a batch of requests,
//! one copy from memory into the batch of replies, one `send`. No cache, no checks beyond bounds:
//! the upper limit for a server that copies.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, bail, ensure};
use clap::Args;

use crate::size;
use crate::target::Target;

#[derive(Args)]
pub(crate) struct Options {
    /// unix:PATH or HOST:PORT
    listen: Target,
    /// Bytes served
    #[arg(long, default_value = "256MiB", value_parser = size::parse)]
    size: u64,
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
    loop {
        let socket = listener.accept()?;
        let memory = Arc::clone(&memory);
        thread::spawn(move || {
            if let Err(e) = serve(File::from(socket), &memory) {
                eprintln!("connection ended: {e:#}");
            }
        });
    }
}

fn serve(mut stream: File, memory: &[u8]) -> anyhow::Result<()> {
    greet(&mut stream, memory.len() as u64).context("handshake")?;
    let mut input = vec![0; 64 << 10];
    let mut filled = 0;
    let mut output = Vec::with_capacity(BATCH * 2);
    loop {
        let received = stream.read(&mut input[filled..])?;
        if received == 0 {
            return Ok(());
        }
        filled += received;
        let whole = filled - filled % REQUEST_LENGTH;
        for request in input[..whole].chunks_exact(REQUEST_LENGTH) {
            if request[6..8] == DISCONNECT {
                return Ok(());
            }
            answer(request, memory, &mut output)?;
            if output.len() >= BATCH {
                stream.write_all(&output)?;
                output.clear();
            }
        }
        stream.write_all(&output)?;
        output.clear();
        input.copy_within(whole..filled, 0);
        filled -= whole;
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
