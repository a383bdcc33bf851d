//! What is said on standard error before the process ends: why, or where it panicked. Nobody needs to read it.
//!
//! Standard error may be a pipe that is full. Whoever writes events there waits for it, with the lock of
//! [`std::io::stderr`]; so this writes past that, to the descriptor, and only when it takes bytes within [`PATIENCE`].

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::PanicHookInfo;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Time for all of it.
const PATIENCE: Duration = Duration::from_secs(1);
/// What a pipe takes without waiting when it says that it takes any (`PIPE_BUF`).
const PIECE: usize = 4096;

/// Writes a line to standard error, unless nobody reads it.
pub(super) fn say(text: &str) {
    let _ = write(io::stderr().as_fd(), format!("{text}\n").as_bytes());
}

/// Panics are told so, too: a thread that panics comes to its end.
pub(super) fn tell_panics() {
    std::panic::set_hook(Box::new(|panic| say(&panic_in_words(panic))));
}

fn panic_in_words(panic: &PanicHookInfo<'_>) -> String {
    let thread = thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let backtrace = Backtrace::capture();
    let backtrace = match backtrace.status() {
        BacktraceStatus::Captured => format!("\n{backtrace}"),
        _ => String::new(),
    };
    format!("thread '{name}' {panic}{backtrace}")
}

fn write(out: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    let give_up = Instant::now() + PATIENCE;
    while !bytes.is_empty() {
        let left = give_up.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut ready = [PollFd::new(&out, PollFlags::OUT)];
        if poll(&mut ready, Some(&left))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let written = rustix::io::write(out, &bytes[..bytes.len().min(PIECE)])?;
        bytes = &bytes[written..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn all_of_it_is_written_where_somebody_reads() {
        let (mut reader, writer) = io::pipe().unwrap();
        let text = vec![b'x'; 300_000];
        let said = text.clone();
        let speaker = thread::spawn(move || write(writer.as_fd(), &said).unwrap());
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        speaker.join().unwrap();
        assert!(read == text);
    }

    /// Run by the test below, with a standard error that is full and never read.
    #[test]
    fn child() {
        if std::env::var_os("FOREBAY_TEST_CHILD").is_none() {
            return;
        }
        tell_panics();
        // As whoever writes events: it has the lock, and waits.
        thread::spawn(|| {
            let mut out = io::stderr().lock();
            while out.write_all(&[b'x'; 4096]).is_ok() {}
        });
        while poll(&mut [PollFd::new(&io::stderr(), PollFlags::OUT)], Some(&Timespec::default()))
            .unwrap()
            > 0
        {
            thread::yield_now();
        }
        assert!(thread::spawn(|| panic!("told to nobody")).join().is_err());
        say("nor is this");
        std::process::exit(7);
    }

    #[test]
    fn a_process_ends_although_nobody_reads_why() {
        let (_never_read, full) = io::pipe().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "command::last_words::tests::child", "--nocapture"])
            .env("FOREBAY_TEST_CHILD", "1")
            .stdout(Stdio::null())
            .stderr(full)
            .spawn()
            .unwrap();
        let give_up = Instant::now() + Duration::from_secs(60);
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > give_up {
                child.kill().unwrap();
                panic!("it waits for its reader");
            }
            thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(7));
    }
}
