//! `forebay events`.
//!
//! `--follow` asks again and again. A daemon that restarts goes on with its numbers, or begins anew when it has no state
//! folder. So it is asked for what has a higher number or a later time than what was shown last. Where no daemon answers, the
//! state folder has what those of before have left. One that starts later is asked for what is later.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Error, Result};
use forebay_host::date::{now_ms, utc};
use forebay_host::events::{EventFile, EventLine};
use forebay_host::folders;

use super::client;
use crate::cli::EventsArgs;

/// Pause between two questions.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// What was shown.
#[derive(Debug, Default)]
struct Shown {
    /// The number and the time of the last event of each daemon.
    of: BTreeMap<PathBuf, (u64, u64)>,
    /// The same for a daemon that was not asked yet.
    of_others: (u64, u64),
}

/// Prints what happened.
pub(crate) fn events(args: EventsArgs) -> Result<()> {
    client::block_on(async {
        let mut shown = Shown::default();
        match sockets(&args).await {
            Ok(sockets) => show_first(&args, sockets, &mut shown).await?,
            Err(error) if args.control.is_some() && args.state_dir.is_none() => return Err(error),
            Err(error) => show_left(&args, left(&args), error, &mut shown)?,
        }
        match args.follow {
            true => follow(&args, &mut shown).await,
            false => Ok(()),
        }
    })
}

/// Prints what daemons have. One that starts has nothing to say yet, and keeps none of the others from it.
///
/// # Errors
/// None says anything, they have left nothing either, and nobody waits for more.
async fn show_first(args: &EventsArgs, sockets: Vec<PathBuf>, shown: &mut Shown) -> Result<()> {
    let (mut count, mut is_heard, mut silent) = (0, false, Vec::new());
    for socket in sockets {
        match show_new(args, &socket, shown).await {
            Ok(new) => (count, is_heard) = (count + new, true),
            Err(error) if super::is_broken_pipe(&error) => return Err(error),
            Err(error) => silent.push(error),
        }
    }
    match silent.pop() {
        Some(error) if !is_heard => return show_left(args, left(args), error, shown),
        last => silent.extend(last),
    }
    silent.iter().for_each(|error| eprintln!("{error:#}"));
    if count == 0 && !args.json {
        eprintln!("no events: nothing out of the ordinary happened");
    }
    Ok(())
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
    let (after, since_ms) = shown.of.get(socket).copied().unwrap_or(shown.of_others);
    let mut path = format!("/v1/events?after={after}&since_ms={since_ms}");
    if let Some(disk) = &args.disk {
        path += &format!("&disk={disk}");
    }
    let mut lines = client::ask::<Vec<EventLine>>(socket, &path).await?;
    shown.of.insert(socket.to_owned(), shown_now((after, since_ms), &lines));
    retain_since(args, &mut lines);
    for line in &lines {
        print_line(line, args.json)?;
    }
    Ok(lines.len())
}

/// What daemons have left. Nobody knows where that of another socket keeps it.
fn left(args: &EventsArgs) -> Vec<EventLine> {
    let own = || args.control.is_none().then(folders::state_folder).flatten();
    let state = args.state_dir.clone().or_else(own);
    state.map(|state| EventFile::left_in(&state)).unwrap_or_default()
}

/// Prints what daemons have left, of which none answers.
///
/// # Errors
/// They have left nothing, and nobody waits for more: what kept them from answering.
fn show_left(
    args: &EventsArgs,
    mut lines: Vec<EventLine>,
    why: Error,
    shown: &mut Shown,
) -> Result<()> {
    lines.retain(|line| args.disk.as_ref().is_none_or(|disk| line.disk.as_ref() == Some(&disk.0)));
    if let Some(latest) = lines.iter().map(|line| line.time_ms).max() {
        shown.of_others = (u64::MAX, latest);
    }
    retain_since(args, &mut lines);
    let whose = args.disk.as_ref().map_or(String::new(), |disk| format!(" for disk '{disk}'"));
    match (lines.is_empty(), args.follow) {
        (false, _) => {
            eprintln!("{why:#}\nno daemon answers{whose}: these are the events of earlier runs")
        }
        (true, true) => eprintln!("{why:#}\nno daemon answers{whose}: events follow when one does"),
        (true, false) => return Err(why),
    }
    lines.iter().try_for_each(|line| print_line(line, args.json))
}

fn retain_since(args: &EventsArgs, lines: &mut Vec<EventLine>) {
    if let Some(since) = &args.since {
        let since = since.ms(now_ms());
        lines.retain(|line| line.last() >= since);
    }
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
            None if found.is_empty() => client::find(None, control).await.map(|_| found),
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
    use anyhow::anyhow;
    use clap::Parser;
    use forebay_host::events::Severity;

    use super::*;
    use crate::cli::{Cli, Command};

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

    #[test]
    fn what_daemons_have_left_is_shown_where_none_answers() {
        let folder = tempfile::tempdir().unwrap();
        let line = |number, time_ms, disk: &str| {
            format!(
                r#"{{"number":{number},"time_ms":{time_ms},"disk":"{disk}","severity":"info","text":"of {disk}"}}{}"#,
                "\n"
            )
        };
        let left =
            |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
        left("a.events.1", line(1, 10, "a"));
        left("a.events", line(2, 30, "a"));
        left("b.events", line(1, 20, "b"));
        let lines = EventFile::left_in(folder.path());
        let texts: Vec<_> = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["of a", "of b", "of a"]);
        let args = |words: &[&str]| match Cli::parse_from([&["forebay", "events"], words].concat())
            .command
        {
            Command::Events(args) => args,
            other => panic!("{other:?}"),
        };
        let show = |words: &[&str]| {
            let mut shown = Shown::default();
            let done = show_left(&args(words), lines.clone(), anyhow!("nobody runs"), &mut shown);
            done.map(|()| shown.of_others)
        };
        assert_eq!(show(&[]).unwrap(), (u64::MAX, 30), "later ones are shown when a daemon starts");
        assert_eq!(show(&["b"]).unwrap(), (u64::MAX, 20));
        assert_eq!(show(&["none"]).unwrap_err().to_string(), "nobody runs");
        assert_eq!(show(&["none", "--follow"]).unwrap(), (0, 0));
    }
}
