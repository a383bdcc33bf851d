//! `forebay trace`.

use anyhow::{Result, bail};

use crate::cli::trace::TraceCommand;

/// Carries out a command on traces.
pub(crate) fn trace(command: TraceCommand) -> Result<()> {
    match command {
        TraceCommand::Simulate(_) | TraceCommand::Replay(_) => bail!("not built yet"),
    }
}
