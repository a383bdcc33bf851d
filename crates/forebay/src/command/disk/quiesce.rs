//! `forebay disk quiesce`.

use anyhow::Result;

use super::{client, find};
use crate::cli::disk::QuiesceArgs;
use crate::command::print;
use crate::command::table::time;
use crate::daemon::api::Quiesced;

pub(super) async fn quiesce(args: QuiesceArgs) -> Result<()> {
    let found = find(&args.disk, &args.common).await?;
    let path = match args.end {
        true => {
            let hold = args.hold.map_or(String::new(), |hold| format!("?hold={hold}"));
            format!("/v1/disks/{}/quiesce/end{hold}", found.disk)
        }
        false => format!(
            "/v1/disks/{}/quiesce?for_ms={}&timeout_ms={}",
            found.disk,
            args.span.0.as_millis(),
            args.timeout.0.as_millis()
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
        (true, true) if quiesced.paused => {
            format!("destaging stays paused: 'forebay disk resume {}' goes on with it", found.disk)
        }
        (true, true) => "destaging goes on".to_owned(),
        (true, false) => format!(
            "primary storage is a crash-consistent image, {} old; destaging is held for {} (hold {})",
            time(quiesced.primary_age_ns),
            args.span,
            quiesced.hold
        ),
    };
    print(&format!("disk {}: {said}\n", found.disk))
}
