//! `forebay disk quiesce`.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{client, find};
use crate::cli::disk::QuiesceArgs;
use crate::command::print;
use crate::command::table::time;
use crate::daemon::api::Quiesced;

/// Destaging is held for so long at most.
const FOR_MAX: Duration = Duration::from_secs(600);

pub(super) async fn quiesce(args: QuiesceArgs) -> Result<()> {
    let (span, timeout) = (args.span.0, args.timeout.0);
    ensure!(!span.is_zero() && span <= FOR_MAX, "--for {}: from 1ms to 10m", args.span);
    let found = find(&args.disk, &args.common).await?;
    let path = match args.end {
        true => format!("/v1/disks/{}/quiesce/end", found.disk),
        false => format!(
            "/v1/disks/{}/quiesce?for_ms={}&timeout_ms={}",
            found.disk,
            span.as_millis(),
            timeout.as_millis()
        ),
    };
    let quiesced: Quiesced = client::tell_patiently(&found.control, &path).await?;
    if args.common.json {
        return print(&(serde_json::to_string(&quiesced)? + "\n"));
    }
    let said = match (quiesced.held, args.end) {
        (false, _) => {
            "nothing to hold: in this mode primary storage has every write that was answered"
                .to_owned()
        }
        (true, true) => "destaging goes on".to_owned(),
        (true, false) => format!(
            "primary storage is a crash-consistent image, {} old; destaging is held for {}",
            time(quiesced.primary_age_ns),
            args.span
        ),
    };
    print(&format!("disk {}: {said}\n", found.disk))
}
