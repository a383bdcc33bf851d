//! SIGINT, SIGTERM and SIGHUP for commands that clean up, or tell what they have, before they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::client;

/// Exit code of a command that was told to end at once.
const INTERRUPTED: i32 = 130;

/// When this returns, these signals do this, in a thread of its own.
pub(super) fn on_signal(mut act: impl FnMut() + Send + 'static) -> Result<()> {
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        client::block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut hang_up = hang_up()?;
            let _ = ready.send(());
            while tokio::select! {
                signal = terminate.recv() => signal,
                signal = interrupt.recv() => signal,
                signal = next(&mut hang_up) => signal,
            }
            .is_some()
            {
                act();
            }
            Ok(())
        })
    })?;
    is_ready.recv().context("cannot be told of signals")
}

/// SIGHUP, unless whoever started this process has it ignored, as `nohup` does.
pub(super) fn hang_up() -> std::io::Result<Option<Signal>> {
    const SIGHUP_BIT: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let is_ignored = ignored.is_some_and(|mask| mask & SIGHUP_BIT != 0);
    (!is_ignored).then(|| signal(SignalKind::hangup())).transpose()
}

/// The next signal, if there can be one.
pub(super) async fn next(signal: &mut Option<Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

/// True from the first signal on; the second one ends the program.
pub(super) fn wants_end() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&flag);
    on_signal(move || {
        if told.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED);
        }
    })?;
    Ok(flag)
}
