//! `forebay-bench`: a batching NBD load generator, and a bare NBD server that only copies.
//!
//! The generator shares its machine with the server that it measures, so it spends as little as it
//! can: one thread for all connections or for some, one `recv` that takes what has arrived, one
//! `send` for all requests that take the place of those answered.
//!
//! ```text
//! forebay-bench load --target unix:/run/db.sock --depth 32 --block-size 8KiB --seconds 5 --json
//! forebay-bench vhost --socket /run/db.vhost --depth 32 --wait poll --json
//! forebay-bench serve unix:/tmp/bare.sock --size 256MiB
//! forebay-bench serve-vhost /tmp/bare.vhost --size 256MiB
//! ```

mod bare;
mod bare_vhost;
mod connection;
mod handshake;
mod load;
mod offsets;
mod process;
mod report;
mod size;
mod target;
mod vhost;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "forebay-bench", about = "NBD load generator and bare server")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Drives one or more NBD servers and reports I/Os per second and latency
    Load(load::Options),
    /// Drives a vhost-user-blk device without a guest
    Vhost(vhost::Options),
    /// Serves memory with nothing between the socket and a copy: what the socket allows at best
    Serve(bare::Options),
    /// The same as a vhost-user-blk device
    ServeVhost(bare_vhost::Options),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Load(options) => print(load::run(&options)?, options.json),
        Command::Vhost(options) => print(vhost::run(&options)?, options.json),
        Command::Serve(options) => bare::run(&options),
        Command::ServeVhost(options) => bare_vhost::run(&options),
    }
}

fn print(report: report::Report, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!("{report}");
    }
    Ok(())
}
