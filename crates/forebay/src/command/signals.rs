//! SIGINT and SIGTERM for commands that clean up, or tell what they have, before they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use super::client;

/// Exit code of a command that was told to end at once.
const INTERRUPTED: i32 = 130;

/// When this returns, both signals do this, in a thread of its own.
pub(super) fn on_signal(mut act: impl FnMut() + Send + 'static) -> Result<()> {
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        client::block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            let _ = ready.send(());
            while tokio::select! {
                signal = terminate.recv() => signal,
                signal = interrupt.recv() => signal,
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
