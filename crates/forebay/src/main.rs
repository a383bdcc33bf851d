//! Forebay's command.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    forebay::command::execute(forebay::cli::Cli::parse())
}
