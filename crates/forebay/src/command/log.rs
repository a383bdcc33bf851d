//! Where this process logs: standard error, for a person or for the journal.

use std::fmt;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// Logs from `level` up, or as FOREBAY_LOG says. Where nobody reads standard error, lines are lost and nothing else.
pub(super) fn to_stderr(level: LevelFilter) {
    let asked = std::env::var("FOREBAY_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = asked.unwrap_or_else(|| Targets::new().with_default(level));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        // It would tell of its errors on standard error, and panic where that is closed.
        .log_internal_errors(false);
    let lines = match is_journal() {
        true => lines.event_format(ForJournal).boxed(),
        false => lines.boxed(),
    };
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
}

/// What begins a line of standard error that tells of an error.
pub(super) fn error_prefix() -> &'static str {
    if is_journal() { severity(Level::ERROR) } else { "" }
}

/// True when standard error is the journal: systemd names it by device and inode.
fn is_journal() -> bool {
    let Ok(found) = rustix::fs::fstat(io::stderr().as_fd()) else { return false };
    let own = format!("{}:{}", found.st_dev, found.st_ino);
    std::env::var("JOURNAL_STREAM").is_ok_and(|journal| journal == own)
}

/// A line as the journal takes it: it has the time, and reads the severity from the beginning.
struct ForJournal;

impl<S, N> FormatEvent<S, N> for ForJournal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(line, "{}", severity(*event.metadata().level()))?;
        context.field_format().format_fields(line.by_ref(), event)?;
        writeln!(line)
    }
}

/// The severities of syslog.
fn severity(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        Level::DEBUG | Level::TRACE => "<7>",
    }
}
