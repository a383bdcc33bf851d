//! `forebay events`.

use std::path::PathBuf;

use anyhow::Result;
use forebay_host::date::utc;
use forebay_host::events::EventLine;

use super::client;
use crate::cli::EventsArgs;

/// Prints what happened.
pub(crate) fn events(args: EventsArgs) -> Result<()> {
    client::block_on(async {
        let sockets = sockets(&args).await?;
        let mut count = 0;
        for socket in sockets {
            let path = match &args.disk {
                Some(disk) => format!("/v1/events?disk={disk}"),
                None => "/v1/events".to_owned(),
            };
            for line in client::ask::<Vec<EventLine>>(&socket, &path).await? {
                print_line(&line, args.json)?;
                count += 1;
            }
        }
        if count == 0 && !args.json {
            eprintln!("no events: nothing out of the ordinary happened since the start");
        }
        Ok(())
    })
}

/// The control sockets of the daemons to be asked: also of one that refuses the disk.
async fn sockets(args: &EventsArgs) -> Result<Vec<PathBuf>> {
    let control = args.control.as_deref();
    if let Some(disk) = &args.disk
        && let Some((socket, _)) = client::find_refusing(disk, control).await?
    {
        return Ok(vec![socket]);
    }
    let found = client::find(args.disk.as_ref(), control).await?;
    let mut sockets: Vec<PathBuf> = found.into_iter().map(|found| found.control).collect();
    sockets.dedup();
    Ok(sockets)
}

fn print_line(line: &EventLine, json: bool) -> Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(line)?)?;
    } else {
        let disk = line.disk.as_deref().unwrap_or("-");
        let severity = format!("{:?}", line.severity).to_lowercase();
        writeln!(out, "{}  {severity:<7}  {disk}  {}", utc(line.time_ms), line.text)?;
    }
    Ok(())
}
