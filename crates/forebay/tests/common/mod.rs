//! A running `forebay` process, and a small NBD client, for tests.

#![allow(dead_code, clippy::disallowed_methods)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};

/// A process that is killed when the test ends.
pub struct Forebay {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: ChildStderr,
    /// What it said before `ready`.
    pub summary: String,
}

/// Runs `forebay` with `args` to its end.
pub fn forebay(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay")).args(args).output().unwrap()
}

impl Forebay {
    /// Starts `forebay` with `args` and waits until it is ready.
    pub fn start(args: &[&str]) -> Forebay {
        let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = child.stderr.take().unwrap();
        let mut summary = String::new();
        loop {
            let mut line = String::new();
            if stdout.read_line(&mut line).unwrap() == 0 {
                let mut error = String::new();
                stderr.read_to_string(&mut error).unwrap();
                child.wait().unwrap();
                panic!("it ended before it was ready: {error}");
            }
            if line == "ready\n" {
                break;
            }
            summary += &line;
        }
        Forebay { child, stdout, stderr, summary }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// The process.
    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// True until it has ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end: exit code, and what it said on standard error.
    pub fn wait(mut self) -> (Option<i32>, String) {
        let mut error = String::new();
        self.stderr.read_to_string(&mut error).unwrap();
        (self.child.wait().unwrap().code(), error)
    }

    /// SIGTERM, and its end.
    pub fn terminate(self) -> (Option<i32>, String) {
        self.signal(rustix::process::Signal::TERM);
        self.wait()
    }
}

impl Drop for Forebay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client of an export, in its transmission phase with simple replies.
pub struct Client {
    stream: UnixStream,
    next: u64,
    /// Size of the export.
    pub size: u64,
}

impl Client {
    /// Attaches to `export` at `socket`.
    pub fn attach(socket: &Path, export: &str) -> Client {
        let mut stream = UnixStream::connect(socket).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        let mut hello = 3u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT");
        hello.extend(7u32.to_be_bytes());
        hello.extend((export.len() as u32 + 6).to_be_bytes());
        hello.extend((export.len() as u32).to_be_bytes());
        hello.extend(export.as_bytes());
        hello.extend([0, 0]);
        stream.write_all(&hello).unwrap();
        let mut size = 0;
        loop {
            let mut header = [0; 20];
            stream.read_exact(&mut header).unwrap();
            let kind = u32::from_be_bytes(header[12..16].try_into().unwrap());
            let mut data = vec![0; u32::from_be_bytes(header[16..].try_into().unwrap()) as usize];
            stream.read_exact(&mut data).unwrap();
            match kind {
                1 => return Client { stream, next: 1, size },
                3 if data[..2] == [0, 0] => {
                    size = u64::from_be_bytes(data[2..10].try_into().unwrap());
                }
                3 => {}
                other => panic!("option reply {other:#x}"),
            }
        }
    }

    /// Sends a request and does not wait.
    pub fn send(&mut self, command: u16, offset: u64, len: u32, payload: &[u8]) -> u64 {
        let cookie = self.next;
        self.next += 1;
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend(0u16.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(payload);
        self.stream.write_all(&request).unwrap();
        cookie
    }

    /// Receives one reply: its cookie and error, then `len` bytes when it is none.
    pub fn receive(&mut self, len: usize) -> std::io::Result<(u64, u32, Vec<u8>)> {
        let mut header = [0; 16];
        self.stream.read_exact(&mut header)?;
        assert_eq!(header[..4], 0x6744_6698_u32.to_be_bytes());
        let error = u32::from_be_bytes(header[4..8].try_into().unwrap());
        let cookie = u64::from_be_bytes(header[8..].try_into().unwrap());
        let mut data = vec![0; if error == 0 { len } else { 0 }];
        self.stream.read_exact(&mut data)?;
        Ok((cookie, error, data))
    }

    /// Reads.
    pub fn read(&mut self, offset: u64, len: u32) -> Vec<u8> {
        let cookie = self.send(0, offset, len, &[]);
        let (answered, error, data) = self.receive(len as usize).unwrap();
        assert_eq!((answered, error), (cookie, 0));
        data
    }

    /// Writes.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let cookie = self.send(1, offset, bytes.len() as u32, bytes);
        let (answered, error, _) = self.receive(0).unwrap();
        assert_eq!((answered, error), (cookie, 0));
    }

    /// True when the server has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0) | Err(_))
    }
}

/// A folder for one test, and paths in it as text.
pub struct Folder(tempfile::TempDir);

impl Folder {
    /// A new one.
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A path in it, as text with something before it.
    pub fn text(&self, before: &str, name: &str) -> String {
        format!("{before}{}", self.path(name).display())
    }

    /// A file of zeroes in it.
    pub fn image(&self, name: &str, bytes: u64) {
        std::fs::File::create(self.path(name)).unwrap().set_len(bytes).unwrap();
    }
}
