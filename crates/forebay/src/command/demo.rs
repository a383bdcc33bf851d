//! `forebay demo`.

use anyhow::{Result, bail};

use crate::cli::DemoArgs;

/// Shows the gain.
pub(crate) fn demo(_args: DemoArgs) -> Result<()> {
    bail!("not built yet")
}
