//! `forebay trace record`: the requests of a disk that runs, into a trace.
//!
//! ```text
//!   flight recorder of the disk ──batch, when asked for──► this ──► FILE.part ──at the end──► FILE
//!          └ writes over what is not fetched in time: dropped, and counted
//! ```
//! The daemon keeps nothing for a recording. What ends one ends it well: the trace has what was recorded. Only a kill,
//! or a file that cannot be written, leaves a part without its end; what is whole of it can be read, at most
//! [`CUT_EVERY`] and one block short.

use std::io::{IsTerminal, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use forebay_backends::size::rounded;
use forebay_trace::formats::{Format, Writer};
use forebay_trace::record::{Op, Record};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::super::client::{self, Found};
use super::super::output::{Output, show};
use super::super::table::{count, of, time};
use crate::cli::trace::RecordArgs;
use crate::command::signals;
use crate::daemon::api::{RECORDS_MAX, RecordLine, Records};

/// Pause between two looks at a disk that has nothing new.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time that requests have at the end to be answered.
const ANSWERS_MAX: Duration = Duration::from_secs(1);
/// A block of the trace is ended after so long, full or not, so that a kill costs no more.
const CUT_EVERY: Duration = Duration::from_secs(10);
/// Time between two lines where there is no terminal.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// What a recording has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Recorded {
    disk: String,
    file: String,
    /// Requests in the trace.
    recorded: u64,
    /// Requests that came and are not in it.
    dropped: u64,
    /// Of those in it, how many had no answer at its end: their latency is not known.
    unanswered: u64,
    /// Flushes, discards and the like, which a trace has no place for; not known of what came before.
    passed_over: Option<u64>,
    /// From the first request to the last.
    span_ns: u64,
    /// Bytes of the file.
    bytes: u64,
    /// Why it ended before its time.
    ended_early: Option<String>,
}

/// Records until the time is over, a signal comes, or the disk is gone.
pub(super) fn record(args: &RecordArgs) -> Result<()> {
    let to = args.to.map_or_else(|| Format::of_name(&args.output), Ok)?;
    let ended = client::block_on(recorded(args, to))?;
    let shown = match args.json {
        true => show(format_args!("{}\n", serde_json::to_string(&ended)?)),
        false => show(ended.describe()),
    };
    match ended.ended_early {
        Some(why) => bail!("the recording ended early: {why}"),
        None => shown,
    }
}

/// What the flight recorder of `disk` has by now, as a file of our own format; how many requests those are.
pub(crate) async fn record_last(found: &Found, output: &Path) -> Result<u64> {
    let args = RecordArgs {
        disk: found.disk.parse()?,
        output: output.to_owned(),
        duration: None,
        last: true,
        to: Some(Format::Fbt),
        json: true,
        control: Some(found.control.clone()),
    };
    let ended = recorded(&args, Format::Fbt).await?;
    match ended.ended_early {
        Some(why) => bail!("its flight recorder could not be read to the end: {why}"),
        None => Ok(ended.recorded),
    }
}

async fn recorded(args: &RecordArgs, to: Format) -> Result<Recorded> {
    let found = client::find_one(&args.disk, args.control.as_deref()).await?;
    let start = positions(&found).await?;
    let mut signals = Signals::new()?;
    let output = Output::create_part(&args.output)?;
    let writer = Writer::to_file(output.file()?, &args.output, to)?;
    let mut recording = Recording::new(args, &start, writer);
    let cause = recording.run(&found, args, &start, &mut signals).await?;
    recording.finish(output, &found, args, &start, cause).await
}

/// Where the recorder is, without a request.
async fn positions(found: &Found) -> Result<Records> {
    client::ask(&found.control, &format!("/v1/disks/{}/records?max=0", found.disk)).await
}

/// What ends a recording from outside.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal is gone, unless that does not matter.
    hang_up: Option<Signal>,
}

impl Signals {
    fn new() -> Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signals::hang_up()?,
        })
    }

    async fn come(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = signals::next(&mut self.hang_up) => {}
        }
    }
}

/// How a recording came to its end.
enum Cause {
    Done,
    /// The disk does not answer any more as it did.
    Lost(anyhow::Error),
}

/// A recording that goes on.
struct Recording {
    writer: Writer,
    /// Number of the next request wanted.
    next: u64,
    /// Up to which number, once that is known.
    goal: Option<u64>,
    /// Its time is over: the next look says up to which number.
    is_ending: bool,
    /// When requests without an answer are taken as well.
    answers_by: Option<Instant>,
    ended: Recorded,
    first_ns: Option<u64>,
    cut: Instant,
    shown: Shown,
}

impl Recording {
    fn new(args: &RecordArgs, start: &Records, writer: Writer) -> Recording {
        let now = Instant::now();
        let ended = Recorded {
            disk: args.disk.to_string(),
            file: args.output.display().to_string(),
            ..Recorded::default()
        };
        let (next, goal) = match args.last {
            true => (start.oldest, Some(start.next)),
            false => (start.next, None),
        };
        let answers_by = args.last.then_some(now);
        let shown = Shown::new(args, now);
        let is_ending = args.last;
        Recording {
            writer,
            next,
            goal,
            is_ending,
            answers_by,
            ended,
            first_ns: None,
            cut: now,
            shown,
        }
    }

    /// Records to the end.
    ///
    /// # Errors
    /// The trace cannot be written.
    async fn run(
        &mut self,
        found: &Found,
        args: &RecordArgs,
        start: &Records,
        signals: &mut Signals,
    ) -> Result<Cause> {
        let until = args.duration.map(|span| tokio::time::Instant::now() + span.0);
        loop {
            let now = Instant::now();
            let wanted = self.goal.map_or(RECORDS_MAX, |goal| (goal - self.next).min(RECORDS_MAX));
            if wanted == 0 {
                return Ok(Cause::Done);
            }
            let unanswered = self.answers_by.is_some_and(|by| by <= now);
            let batch = match self.batch(found, wanted, unanswered).await {
                Ok(batch) => batch,
                Err(error) => return Ok(Cause::Lost(error)),
            };
            if batch.pid != start.pid || batch.next < self.next {
                let why = "it was ended, and a disk of this name was opened since";
                return Ok(Cause::Lost(anyhow::anyhow!(why)));
            }
            if self.is_ending && self.goal.is_none() {
                self.goal = Some(batch.next.max(self.next));
            }
            self.take(&batch)?;
            self.keep(now)?;
            self.shown.note(&self.ended, now);
            let is_full = batch.requests.len() as u64 == wanted;
            let pause = if is_full { Duration::ZERO } else { LOOK_EVERY };
            let over = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = signals.come(), if !self.is_ending => self.end(),
                () = over, if !self.is_ending => self.end(),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn batch(&self, found: &Found, wanted: u64, unanswered: bool) -> Result<Records> {
        let (disk, from) = (&found.disk, self.next);
        let path =
            format!("/v1/disks/{disk}/records?from={from}&max={wanted}&unanswered={unanswered}");
        client::ask(&found.control, &path).await
    }

    /// What came by now is fetched yet, when it is answered.
    fn end(&mut self) {
        self.is_ending = true;
        self.answers_by = Some(Instant::now() + ANSWERS_MAX);
    }

    /// Writes a batch, and counts what is missing before it.
    fn take(&mut self, batch: &Records) -> Result<()> {
        let first = self.goal.map_or(batch.first, |goal| batch.first.min(goal));
        self.ended.dropped += first - self.next.min(first);
        self.next = first.max(self.next);
        for &RecordLine(time, is_write, offset, len, latency_ns) in &batch.requests {
            if self.goal.is_some_and(|goal| self.next >= goal) {
                break;
            }
            let first_ns = *self.first_ns.get_or_insert(time);
            let time_ns = time.saturating_sub(first_ns);
            let op = if is_write { Op::Write } else { Op::Read };
            let len = u32::try_from(len).context("the daemon tells of an impossible length")?;
            self.writer.write(&Record { time_ns, op, offset, len, device: 0, latency_ns })?;
            self.next += 1;
            self.ended.recorded += 1;
            self.ended.unanswered += u64::from(latency_ns.is_none());
            self.ended.span_ns = time_ns;
        }
        Ok(())
    }

    /// Has what is recorded in the file, now and then.
    fn keep(&mut self, now: Instant) -> Result<()> {
        if now.duration_since(self.cut) >= CUT_EVERY {
            self.cut = now;
            self.writer.cut()?;
        }
        Ok(())
    }

    /// Ends the trace.
    async fn finish(
        self,
        output: Output,
        found: &Found,
        args: &RecordArgs,
        start: &Records,
        cause: Cause,
    ) -> Result<Recorded> {
        let Recording { writer, mut ended, shown, .. } = self;
        drop(shown);
        ended.bytes = writer.finish()?;
        output.commit()?;
        match cause {
            Cause::Lost(why) => ended.ended_early = Some(format!("{why:#}")),
            Cause::Done if args.last => {}
            Cause::Done => {
                let now = positions(found).await.ok().filter(|now| now.pid == start.pid);
                ended.passed_over = now.map(|now| now.others.saturating_sub(start.others));
            }
        }
        Ok(ended)
    }
}

impl Recorded {
    fn describe(&self) -> String {
        let mut text = format!(
            "{}: {} of disk {} in {}, {}; {} dropped\n",
            self.file,
            of(self.recorded, "request"),
            self.disk,
            time(self.span_ns),
            rounded(self.bytes),
            count(self.dropped),
        );
        if self.dropped > 0 {
            text += "  what was dropped had been written over before it was fetched (give the disk a larger --recorder), or the disk was \
                     opened again meanwhile\n";
        }
        if self.unanswered > 0 {
            text += &format!(
                "  {} had no answer yet; their latency is not in it\n",
                count(self.unanswered)
            );
        }
        if let Some(others) = self.passed_over.filter(|&others| others > 0) {
            text += &format!("  {} flushes, discards and the like passed over\n", count(others));
        }
        text
    }
}

/// How far it is: a line on a terminal, else one every [`SAY_EVERY`].
struct Shown {
    line: ProgressBar,
    is_terminal: bool,
    began: Instant,
    until: Option<Duration>,
    said: Instant,
}

impl Shown {
    fn new(args: &RecordArgs, now: Instant) -> Shown {
        let is_terminal = std::io::stderr().is_terminal() && !args.json;
        let target = match is_terminal {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let line = ProgressBar::with_draw_target(None, target);
        line.set_style(ProgressStyle::with_template("{msg}").expect("a template that is right"));
        Shown { line, is_terminal, began: now, until: args.duration.map(|span| span.0), said: now }
    }

    fn note(&mut self, so_far: &Recorded, now: Instant) {
        if !self.is_terminal && now.duration_since(self.said) < SAY_EVERY {
            return;
        }
        let elapsed = now.duration_since(self.began).as_secs();
        let of = match self.until {
            Some(until) => format!("{elapsed} of {} s", until.as_secs()),
            None => format!("{elapsed} s, Ctrl-C ends it"),
        };
        let (recorded, dropped) = (count(so_far.recorded), count(so_far.dropped));
        let text = format!("disk {}: {recorded} requests, {dropped} dropped; {of}", so_far.disk);
        if self.is_terminal {
            self.line.set_message(text);
        } else {
            self.said = now;
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}
