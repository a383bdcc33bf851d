//! What the commands do; one file each.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use forebay_trace::{Error as TraceError, ErrorKind};
use tracing_subscriber::filter::LevelFilter;

use self::output::Output;
use crate::cli::trace::PageArg;
use crate::cli::{Cli, Command};
use crate::config::values::ValueError;

mod advise;
mod bundle;
mod client;
mod completion;
mod config;
mod demo;
mod detail;
mod disk;
mod doctor;
mod events;
mod history;
mod image;
mod last_words;
mod list;
mod log;
mod manual;
mod observed;
mod output;
mod pool;
mod progress;
mod rates;
mod reload;
mod resolve;
mod run;
mod screen;
mod served;
mod signals;
mod stats;
mod table;
mod time;
mod top;
mod trace;

/// Exit code when the command line or the configuration file is wrong, as clap's.
const USAGE: u8 = 2;

/// Carries out a command line and tells how it ended; errors go to standard error.
pub fn execute(cli: Cli) -> ExitCode {
    let is_daemon = matches!(cli.command, Command::Run(_) | Command::Serve(_));
    log::to_stderr(if is_daemon { LevelFilter::INFO } else { LevelFilter::WARN });
    last_words::tell_panics();
    let result = match cli.command {
        Command::Run(args) => run::run(*args),
        Command::Serve(args) => run::serve(args),
        Command::Reload(args) => reload::reload(&args),
        Command::Stats(args) => stats::stats(args),
        Command::Top(args) => top::top(args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::SupportBundle(args) => bundle::bundle(&args),
        Command::Events(args) => events::events(args),
        Command::Disk(command) => disk::disk(command),
        Command::Pool(command) => pool::pool(command),
        Command::Config(command) => config::config(command),
        Command::Image(command) => image::image(command),
        Command::Trace(args) => trace::trace(args),
        Command::Demo(args) => demo::demo(args),
        Command::Completion(args) => completion::completion(args.shell),
        Command::Man => manual::page().and_then(|page| print(&page)),
        Command::Reference(args) => print(&args.page.text()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough. What serves was not there for its output.
        Err(error) if is_broken_pipe(&error) && !is_daemon => ExitCode::SUCCESS,
        Err(error) => {
            last_words::say(&format!("{}forebay: {error:#}", log::error_prefix()));
            if is_usage(&error) { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
        }
    }
}

/// Whether what was typed, here or in a configuration file, cannot work: trying again is no use.
fn is_usage(error: &anyhow::Error) -> bool {
    let is_setting = |error: &TraceError| error.kind() == ErrorKind::Invalid;
    error
        .chain()
        .any(|cause| cause.is::<ValueError>() || cause.downcast_ref().is_some_and(is_setting))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn print(text: &str) -> Result<()> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// Makes the file for a page, where one is wanted.
fn page_file(page: &PageArg) -> Result<Option<Output>> {
    page.html.as_deref().map(Output::create).transpose()
}

/// Writes a page, where one is wanted.
fn write_page(file: Option<Output>, page: impl FnOnce() -> String) -> Result<()> {
    let Some(mut file) = file else { return Ok(()) };
    file.write(&page())?;
    file.commit()
}
