//! The load generator: connects, warms up, measures, drains.
//!
//! ```text
//!   warm-up │ measured time                      │ drain
//!           │ ─── I/Os per second: answers ───── │
//!           │ ─── latencies: requests sent ───── │ ─ until the last of them is answered
//! ```
//! A slow request counts with its whole latency, although its answer comes after the measured time.

use std::fs::File;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::connection::{Connection, Shape};
use crate::handshake;
use crate::offsets::{Offsets, Pattern};
use crate::process;
use crate::report::{Latencies, Report};
use crate::size;
use crate::target::Target;

/// A server that answers nothing for this long has hung.
const HUNG: Duration = Duration::from_secs(60);
/// Time without an answer until the oldest request is looked at.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Server: unix:PATH or HOST:PORT, with #EXPORT behind it for a named export; may be repeated
    #[arg(long = "target", required = true)]
    targets: Vec<Target>,
    /// Connections to each target
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Requests in flight on each connection
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: u32,
    /// Bytes of each request, up to 32MiB
    #[arg(long, default_value = "8KiB", value_parser = size::parse)]
    block_size: u64,
    /// Share of writes, which need --overwrite
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    write_percent: u32,
    /// Writes to the exports: what is there is lost
    #[arg(long)]
    overwrite: bool,
    /// Only the first bytes of each export
    #[arg(long, value_parser = size::parse)]
    region: Option<u64>,
    /// Order of offsets
    #[arg(long, value_enum, default_value = "random")]
    pattern: Pattern,
    /// Blocks of the order each-once or sequential to leave out at its start
    #[arg(long, default_value_t = 0)]
    skip: u64,
    /// Another seed, another sequence of random offsets
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads for all connections
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Time measured
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Time before it, not measured
    #[arg(long, default_value_t = 0.5)]
    warm_up: f64,
    /// Ends after that many requests on each connection instead; then nothing is warm-up
    #[arg(long)]
    requests: Option<u64>,
    /// Process whose CPU time counts as the server's; may be repeated
    #[arg(long = "server-pid")]
    server_pids: Vec<u32>,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Report> {
    ensure!(
        options.write_percent == 0 || options.overwrite,
        "writes destroy what is on the exports: give --overwrite if nobody needs it"
    );
    let mut connections = Vec::new();
    let of = options.connections as u64;
    for (t, target) in options.targets.iter().enumerate() {
        for c in 0..of {
            let seed = options.seed.wrapping_add(t as u64 * 0x1_0000);
            connections.push(open(options, target, seed, c, of)?);
        }
    }
    ensure!(!connections.is_empty(), "--connections must be at least 1");
    let threads = options.threads.clamp(1, connections.len());
    let mut groups: Vec<Vec<Connection>> = (0..threads).map(|_| Vec::new()).collect();
    for (i, connection) in connections.into_iter().enumerate() {
        groups[i % threads].push(connection);
    }
    let barrier = Barrier::new(threads + 1);
    thread::scope(|scope| {
        let workers: Vec<_> = groups
            .into_iter()
            .map(|group| scope.spawn(|| work(group, options, &barrier)))
            .collect();
        let window = observe(options, &barrier);
        let mut done = Vec::new();
        for worker in workers {
            done.extend(worker.join().map_err(|_| anyhow!("a worker panicked"))??);
        }
        report(options, window?, &done)
    })
}

fn open(
    options: &Options,
    target: &Target,
    seed: u64,
    index: u64,
    of: u64,
) -> anyhow::Result<Connection> {
    let mut stream = File::from(target.address.connect()?);
    let export = handshake::connect(&mut stream, &target.export).context("handshake")?;
    let region = options.region.unwrap_or(export.size).min(export.size);
    let block_size = u32::try_from(options.block_size).ok().filter(|b| (1..=32 << 20).contains(b));
    let block_size = block_size.context("--block-size must be from 1 to 32MiB")?;
    let blocks = region / u64::from(block_size);
    ensure!(blocks > 0, "the export has {} bytes, less than one block", export.size);
    let shape = Shape {
        depth: options.depth,
        block_size,
        write_percent: options.write_percent,
        requests_max: options.requests.unwrap_or(u64::MAX),
    };
    let offsets = Offsets::new(options.pattern, blocks, seed, options.skip, (index, of));
    Connection::new(stream.into(), shape, offsets)
}

/// What the servers and this process used during the measured time.
struct Window {
    server_cpu: Option<Duration>,
    client_cpu: Duration,
}

/// Reads CPU times while the workers work. The barrier marks the two ends of the measured time.
fn observe(options: &Options, barrier: &Barrier) -> anyhow::Result<Window> {
    let read = || -> anyhow::Result<(Duration, Duration)> {
        let mut servers = Duration::ZERO;
        for &pid in &options.server_pids {
            servers += process::cpu_time(pid)?;
        }
        Ok((servers, process::own_cpu_time()))
    };
    barrier.wait();
    let before = read();
    barrier.wait();
    let after = read();
    let (before, after) = (before?, after?);
    Ok(Window {
        server_cpu: (!options.server_pids.is_empty()).then(|| after.0 - before.0),
        client_cpu: after.1 - before.1,
    })
}

/// What was measured of a connection.
struct Done {
    /// Of the requests that were sent in the measured time.
    reads: Latencies,
    writes: Latencies,
    /// Requests that were answered in it.
    answered: u64,
    seconds: f64,
}

fn work(
    mut group: Vec<Connection>,
    options: &Options,
    barrier: &Barrier,
) -> anyhow::Result<Vec<Done>> {
    let measured = Duration::from_secs_f64(options.seconds);
    let warm_up = Duration::from_secs_f64(options.warm_up);
    let mut result = Ok(());
    if options.requests.is_none() {
        result = start(&mut group).and_then(|()| pump(&mut group, Some(warm_up)));
    }
    group.iter_mut().for_each(Connection::reset);
    // Both waits happen whatever fails, or the other threads would wait for ever.
    barrier.wait();
    let from = Instant::now();
    if result.is_ok() {
        result = match options.requests {
            None => pump(&mut group, Some(measured)),
            Some(_) => start(&mut group).and_then(|()| pump(&mut group, None)),
        };
    }
    let seconds = from.elapsed().as_secs_f64();
    barrier.wait();
    result?;
    let answered: Vec<u64> = group.iter().map(|connection| connection.answered).collect();
    group.iter_mut().for_each(Connection::stop);
    pump(&mut group, None)?;
    let done = group.into_iter().zip(answered).map(|(connection, answered)| Done {
        reads: connection.reads,
        writes: connection.writes,
        answered,
        seconds,
    });
    Ok(done.collect())
}

fn start(group: &mut [Connection]) -> anyhow::Result<()> {
    group.iter_mut().try_for_each(Connection::start)
}

/// Runs the connections for `time`, or until all are done.
fn pump(group: &mut [Connection], time: Option<Duration>) -> anyhow::Result<()> {
    let from = Instant::now();
    let mut ready = Vec::with_capacity(group.len());
    while time.map_or_else(|| !group.iter().all(Connection::is_done), |t| from.elapsed() < t) {
        let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(group.len());
        for connection in group.iter() {
            let out = if connection.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
            polled.push(PollFd::new(connection, PollFlags::IN | out));
        }
        let patience = time.map_or(LOOK, |t| t.saturating_sub(from.elapsed()).min(LOOK));
        let patience = Timespec::try_from(patience).expect("a second at most");
        let events = match poll(&mut polled, Some(&patience)) {
            Ok(n) => n,
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        };
        ready.clear();
        ready.extend(polled.iter().map(PollFd::revents));
        for (connection, events) in group.iter_mut().zip(&ready) {
            if events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                connection.receive()?;
            }
            connection.send()?;
        }
        if events == 0 {
            let now = Instant::now();
            let oldest = group.iter().map(|c| c.oldest(now)).max().unwrap_or_default();
            ensure!(oldest < HUNG, "no reply for {oldest:?}: the server hangs");
        }
    }
    Ok(())
}

fn report(options: &Options, window: Window, done: &[Done]) -> anyhow::Result<Report> {
    let (mut reads, mut writes) = (Latencies::default(), Latencies::default());
    let mut connections = Vec::new();
    for one in done {
        reads.add(&one.reads);
        writes.add(&one.writes);
        connections.push((one.answered as f64 / one.seconds).round());
    }
    let requests = done.iter().map(|one| one.answered).sum::<u64>().max(1) as f64;
    let per_request = |t: Duration| (t.as_secs_f64() * 1e8 / requests).round() / 100.0;
    let seconds = done.iter().map(|d| d.seconds).fold(0.0, f64::max);
    if let Some(n) = options.requests {
        let all = n * done.len() as u64;
        ensure!(reads.count() + writes.count() == all, "not all requests were answered");
    }
    Ok(Report {
        seconds,
        iops: connections.iter().sum(),
        reads: reads.summary(),
        writes: writes.summary(),
        server_cpu_us_per_request: window.server_cpu.map(per_request),
        client_cpu_us_per_request: per_request(window.client_cpu),
        connections,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(line: &str) -> Options {
        Line::parse_from(format!("load --target unix:/none {line}").split_whitespace()).options
    }

    /// Answers writes at once, except the second one with cookie 0: that waits until the client has sent nothing for so long.
    fn serve(mut client: UnixStream, silence: Duration) {
        client.set_read_timeout(Some(silence)).unwrap();
        let (mut request, mut of_cookie_0) = ([0; 28 + 512], 0);
        let reply = |mut client: &UnixStream, cookie: &[u8]| {
            client.write_all(&[&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], cookie].concat()).unwrap();
        };
        while client.read_exact(&mut request).is_ok() {
            let cookie = &request[8..16];
            of_cookie_0 += u32::from(cookie == [0; 8]);
            if cookie != [0; 8] || of_cookie_0 != 2 {
                reply(&client, cookie);
            }
        }
        reply(&client, &[0; 8]);
    }

    #[test]
    fn a_request_that_is_answered_after_the_measured_time_counts_with_its_whole_latency() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let silence = Duration::from_millis(300);
        let server = thread::spawn(move || serve(theirs, silence));
        let shape = Shape { depth: 2, block_size: 512, write_percent: 100, requests_max: u64::MAX };
        let offsets = Offsets::new(Pattern::Random, 8, 1, 0, (0, 1));
        let connection = Connection::new(ours.into(), shape, offsets).unwrap();
        let options = options("--seconds 0.5 --warm-up 0");
        let barrier = Barrier::new(2);
        let done = thread::scope(|scope| {
            let worker = scope.spawn(|| work(vec![connection], &options, &barrier));
            barrier.wait();
            barrier.wait();
            worker.join().unwrap().unwrap()
        });
        server.join().unwrap();
        let summary = done[0].writes.summary().unwrap();
        assert!(summary.max_us >= silence.as_micros() as f64 * 0.99, "{summary:?}");
        assert!(done[0].answered > 0);
    }

    #[test]
    fn writes_need_the_word_that_the_exports_may_be_overwritten() {
        let refused = |line: &str| run(&options(line)).err().unwrap().to_string();
        assert!(refused("--write-percent 1").contains("--overwrite"));
        for allowed in ["--write-percent 1 --overwrite", "--write-percent 0", ""] {
            assert!(!refused(allowed).contains("--overwrite"), "{allowed}");
        }
    }
}
