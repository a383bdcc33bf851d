//! `forebay events`.
//!
//! `--follow` asks again and again. A daemon that restarts goes on with its numbers, or begins anew when it has no state
//! folder. So it is asked for what has a higher number or a later time than what was shown last.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use forebay_host::date::{now_ms, utc};
use forebay_host::events::EventLine;

use super::client;
use crate::cli::EventsArgs;

/// Pause between two questions.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The number and the time of the last event of a daemon that was shown.
type Shown = BTreeMap<PathBuf, (u64, u64)>;

/// Prints what happened.
pub(crate) fn events(args: EventsArgs) -> Result<()> {
    client::block_on(async {
        let mut shown = Shown::new();
        let mut count = 0;
        for socket in sockets(&args).await? {
            count += show_new(&args, &socket, &mut shown).await?;
        }
        if count == 0 && !args.json {
            eprintln!("no events: nothing out of the ordinary happened");
        }
        match args.follow {
            true => follow(&args, &mut shown).await,
            false => Ok(()),
        }
    })
}

/// Prints what happens, until nobody reads it.
async fn follow(args: &EventsArgs, shown: &mut Shown) -> Result<()> {
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        for socket in client::sockets(args.control.as_deref())? {
            match show_new(args, &socket, shown).await {
                // The daemon is there again later, or never.
                Err(error) if !super::is_broken_pipe(&error) => {}
                shown => drop(shown?),
            }
        }
    }
}

/// Prints what the daemon at a socket has that was not shown; how much that is.
async fn show_new(args: &EventsArgs, socket: &Path, shown: &mut Shown) -> Result<usize> {
    let (after, since_ms) = shown.get(socket).copied().unwrap_or_default();
    let mut path = format!("/v1/events?after={after}&since_ms={since_ms}");
    if let Some(disk) = &args.disk {
        path += &format!("&disk={disk}");
    }
    let mut lines = client::ask::<Vec<EventLine>>(socket, &path).await?;
    shown.insert(socket.to_owned(), shown_now((after, since_ms), &lines));
    if let Some(since) = &args.since {
        let since = since.ms(now_ms());
        lines.retain(|line| line.last() >= since);
    }
    for line in &lines {
        print_line(line, args.json)?;
    }
    Ok(lines.len())
}

/// The number of the last event that was shown, and the latest time of any: one clock may go back.
fn shown_now((after, since_ms): (u64, u64), lines: &[EventLine]) -> (u64, u64) {
    let latest = lines.iter().map(|line| line.time_ms).max().unwrap_or_default();
    (lines.last().map_or(after, |last| last.number), latest.max(since_ms))
}

/// The control sockets of the daemons to be asked: also of one that refuses the disk, or has none.
async fn sockets(args: &EventsArgs) -> Result<Vec<PathBuf>> {
    let control = args.control.as_deref();
    let Some(disk) = &args.disk else {
        let heard = client::daemons(control).await;
        let is_heard = |(socket, heard): (PathBuf, Result<_>)| heard.map(|_| socket);
        let (found, silent): (Vec<_>, Vec<_>) =
            heard.into_iter().map(is_heard).partition(Result::is_ok);
        let found: Vec<PathBuf> = found.into_iter().flatten().collect();
        return match silent.into_iter().find_map(Result::err) {
            Some(error) if found.is_empty() => Err(error),
            // There is no daemon at all: say where that was looked for.
            None if found.is_empty() && !args.follow => {
                client::find(None, control).await.map(|_| found)
            }
            _ => Ok(found),
        };
    };
    if let Some((socket, _)) = client::find_refusing(disk, control).await? {
        return Ok(vec![socket]);
    }
    let found = client::find(Some(disk), control).await?;
    let mut sockets: Vec<PathBuf> = found.into_iter().map(|found| found.control).collect();
    sockets.dedup();
    Ok(sockets)
}

fn print_line(line: &EventLine, json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(line)?)?;
    } else {
        writeln!(out, "{}", in_words(line))?;
    }
    Ok(out.flush()?)
}

fn in_words(line: &EventLine) -> String {
    let disk = line.disk.as_deref().unwrap_or("-");
    let severity = format!("{:?}", line.severity).to_lowercase();
    let again = match line.last_ms {
        Some(last) => format!(" ({} times, last at {})", line.count, utc(last)),
        None => String::new(),
    };
    format!("{}  {severity:<7}  {disk}  {}{again}", utc(line.time_ms), line.text)
}

#[cfg(test)]
mod tests {
    use forebay_host::events::Severity;

    use super::*;

    #[test]
    fn events_are_shown_once_also_when_a_clock_goes_back() {
        let line = |number, time_ms| EventLine {
            number,
            time_ms,
            disk: None,
            severity: Severity::Info,
            code: None,
            text: String::new(),
            count: 1,
            last_ms: None,
        };
        let shown = shown_now((0, 0), &[line(5, 1002), line(6, 1001)]);
        assert_eq!(shown, (6, 1002));
        assert_eq!(shown_now(shown, &[]), shown);
        // They were counted anew.
        assert_eq!(shown_now(shown, &[line(1, 2000)]), (1, 2000));
    }
}
