//! A vhost-user-blk client without a guest: a thread per queue that keeps requests in flight, and either looks at its ring
//! all the time or sleeps until it is called.
//!
//! With `--check` it measures nothing, and finds out whether a small area reads back what was written to it, over
//! flushes, discards and writes of zeroes, on all queues.

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Barrier, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use forebay_io::arena::Arena;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use virtio_driver::{
    EventFd, QueueNotifier, VhostUser, VirtioBlkFeatureFlags, VirtioBlkQueue, VirtioBlkTransport,
    VirtioFeatureFlags,
};

use crate::offsets::{Offsets, Pattern};
use crate::process;
use crate::report::{Latencies, Report};
use crate::size;

/// Whoever waits longer for an answer gives up: the device may be gone.
const SILENT_MAX: Duration = Duration::from_secs(30);
/// Looks at a ring between two looks at the clock.
const LOOKS: u32 = 1 << 22;
/// Bytes of the requests that `--check` makes.
const CHECKED: [usize; 5] = [512, 4096, 12_288, 65_536, 1 << 20];

/// How a client learns of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Wait {
    /// It looks at its ring without end
    Poll,
    /// It sleeps until it is called
    Block,
}

#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Socket of the device
    #[arg(long)]
    socket: String,
    /// Queues, each driven by a thread
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    queues: u16,
    /// Requests in flight on each queue
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=128))]
    depth: u16,
    /// Bytes of each request
    #[arg(long, default_value = "8KiB", value_parser = size::parse)]
    block_size: u64,
    /// Writes instead of reads; needs --overwrite
    #[arg(long)]
    write: bool,
    /// Writes to the disk: what is there is lost
    #[arg(long)]
    overwrite: bool,
    /// Only the first bytes of the disk
    #[arg(long, value_parser = size::parse, default_value = "128MiB")]
    region: u64,
    /// How answers are waited for
    #[arg(long, value_enum, default_value = "poll")]
    wait: Wait,
    /// Time measured
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Time before it, not measured
    #[arg(long, default_value_t = 0.5)]
    warm_up: f64,
    /// Checks what is read instead of measuring; needs --overwrite
    #[arg(long)]
    check: bool,
    /// Process whose CPU time counts as the server's; may be repeated
    #[arg(long = "server-pid")]
    server_pids: Vec<u32>,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A queue and memory for its requests.
struct Client {
    queue: VirtioBlkQueue<'static, usize>,
    kick: Box<dyn QueueNotifier>,
    called: Arc<EventFd>,
    memory: Arena,
    wait: Wait,
    _file: OwnedFd,
}

type Transport = Arc<RwLock<Box<VirtioBlkTransport>>>;

/// Attaches, and runs or checks.
pub(crate) fn run(options: &Options) -> anyhow::Result<Report> {
    ensure!(
        options.overwrite || !(options.write || options.check),
        "--write and --check destroy what is on the disk: give --overwrite if nobody needs it"
    );
    let features = VirtioFeatureFlags::VERSION_1.bits()
        | VirtioFeatureFlags::RING_EVENT_IDX.bits()
        | VirtioFeatureFlags::RING_INDIRECT_DESC.bits()
        | VirtioBlkFeatureFlags::all().bits();
    let transport = VhostUser::new(&options.socket, features)
        .with_context(|| format!("no vhost-user-blk device at {}", options.socket))?;
    let mut transport: Box<VirtioBlkTransport> = Box::new(transport);
    let size = u64::from(transport.get_config()?.capacity) * 512;
    let queues: Vec<VirtioBlkQueue<'static, usize>> =
        VirtioBlkQueue::setup_queues(&mut *transport, options.queues.into(), 128)?;
    let transport: Transport = Arc::new(RwLock::new(transport));
    let each = options.block_size as usize * usize::from(options.depth);
    let mut clients = Vec::new();
    for (number, queue) in queues.into_iter().enumerate() {
        clients.push(Client::new(&transport, queue, number, each, options.wait)?);
    }
    if options.check {
        let longest = CHECKED[CHECKED.len() - 1] as u64;
        ensure!(size > longest, "--check needs a disk of more than {} MiB", longest >> 20);
        let started = Instant::now();
        for client in &mut clients {
            check(client, size).context("the device does not read back what was written")?;
        }
        return Ok(report(started.elapsed(), 0, None, Vec::new()));
    }
    let region = options.region.min(size);
    ensure!(region >= options.block_size, "the disk is smaller than a request");
    measure(options, clients, region / options.block_size)
}

impl Client {
    fn new(
        transport: &Transport,
        mut queue: VirtioBlkQueue<'static, usize>,
        number: usize,
        bytes: usize,
        wait: Wait,
    ) -> anyhow::Result<Client> {
        let file = memfd_create("bench", MemfdFlags::CLOEXEC)?;
        let bytes = bytes.max(1 << 20);
        ftruncate(&file, bytes as u64)?;
        let memory = Arena::with_tail(bytes, 0, file.as_fd())?;
        let at = memory.look(0, 1, |first| first.as_ptr() as usize);
        let mut all = transport.write().expect("nobody panicked");
        all.map_mem_region(at, bytes, file.as_raw_fd(), 0)?;
        queue.set_used_notif_enabled(wait == Wait::Block);
        let (kick, called) = (all.get_submission_notifier(number), all.get_completion_fd(number));
        Ok(Client { queue, kick, called, memory, wait, _file: file })
    }

    fn submitted(&mut self) -> anyhow::Result<()> {
        if self.queue.avail_notif_needed() {
            self.kick.notify()?;
        }
        Ok(())
    }

    /// The contexts of what was answered, at least one.
    fn answers(&mut self, into: &mut Vec<usize>) -> anyhow::Result<()> {
        let mut looks = 0_u32;
        let mut silent_since = None;
        loop {
            for answer in self.queue.completions() {
                ensure!(answer.ret == 0, "a request failed: {}", answer.ret);
                into.push(answer.context);
            }
            match self.wait {
                _ if !into.is_empty() => return Ok(()),
                Wait::Poll => {
                    looks = looks.wrapping_add(1);
                    // The clock is looked at so rarely that it takes no part in what is measured.
                    if looks.is_multiple_of(LOOKS) {
                        let since = silent_since.get_or_insert_with(Instant::now);
                        ensure!(
                            since.elapsed() < SILENT_MAX,
                            "the device does not answer any more"
                        );
                    }
                    std::hint::spin_loop();
                }
                Wait::Block => self.sleep()?,
            }
        }
    }

    /// Sleeps until it is called.
    fn sleep(&self) -> anyhow::Result<()> {
        // A device may have made the descriptor that both have one that does not block.
        let mut called = [PollFd::from_borrowed_fd(self.called.as_fd(), PollFlags::IN)];
        let patience = Timespec { tv_sec: SILENT_MAX.as_secs() as i64, tv_nsec: 0 };
        ensure!(poll(&mut called, Some(&patience))? > 0, "the device does not answer any more");
        match self.called.read() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Submits one request and waits for it.
    fn one(
        &mut self,
        submit: impl FnOnce(&mut VirtioBlkQueue<'static, usize>, &mut [u8]) -> std::io::Result<()>,
    ) -> anyhow::Result<()> {
        let Client { queue, memory, .. } = self;
        memory.edit(0, memory.len() as u32, |memory| submit(queue, memory))?;
        self.submitted()?;
        self.answers(&mut Vec::new())
    }
}

fn measure(options: &Options, clients: Vec<Client>, blocks: u64) -> anyhow::Result<Report> {
    let barrier = Barrier::new(clients.len() + 1);
    let (warm_up, seconds) =
        (Duration::from_secs_f64(options.warm_up), Duration::from_secs_f64(options.seconds));
    let servers = || -> anyhow::Result<Duration> {
        options.server_pids.iter().map(|pid| process::cpu_time(*pid)).sum()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(index, client)| {
                let offsets = Offsets::new(Pattern::Random, blocks, 1, 0, (index as u64, 1 << 20));
                let barrier = &barrier;
                scope.spawn(move || drive(options, client, offsets, barrier, warm_up, seconds))
            })
            .collect();
        barrier.wait();
        thread::sleep(warm_up);
        let (server, own) = (servers()?, process::own_cpu_time());
        thread::sleep(seconds);
        let (server, own) = (servers()? - server, process::own_cpu_time() - own);
        let mut latencies = Latencies::default();
        let (mut each, mut count) = (Vec::new(), 0);
        for thread in threads {
            let found = thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            each.push(found.answered as f64 / options.seconds);
            count += found.answered;
            latencies.add(&found.latencies);
        }
        let count = count.max(1);
        let mut report = report(seconds, count, Some(own), each);
        let us = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
        report.server_cpu_us_per_request = (!options.server_pids.is_empty()).then(|| us(server));
        let summary = latencies.summary();
        (report.reads, report.writes) =
            if options.write { (None, summary) } else { (summary, None) };
        Ok(report)
    })
}

/// What was measured of a queue.
struct Driven {
    /// Of the requests that were sent in the measured time, whenever they were answered.
    latencies: Latencies,
    /// Requests that were answered in it.
    answered: u64,
}

/// Keeps a queue busy, and then waits until its last request is answered.
fn drive(
    options: &Options,
    mut client: Client,
    mut offsets: Offsets,
    barrier: &Barrier,
    warm_up: Duration,
    seconds: Duration,
) -> anyhow::Result<Driven> {
    let block = options.block_size as usize;
    let mut begun = vec![Instant::now(); options.depth.into()];
    let mut free: Vec<usize> = (0..options.depth.into()).collect();
    let mut driven = Driven { latencies: Latencies::default(), answered: 0 };
    let mut in_flight = 0;
    barrier.wait();
    let from = Instant::now() + warm_up;
    let to = from + seconds;
    loop {
        let now = Instant::now();
        if now >= to {
            free.clear();
            if in_flight == 0 {
                return Ok(driven);
            }
        }
        in_flight += free.len();
        for slot in free.drain(..) {
            let offset = offsets.next() * options.block_size;
            begun[slot] = now;
            let Client { queue, memory, .. } = &mut client;
            memory.edit((slot * block) as u64, block as u32, |memory| match options.write {
                true => queue.write(offset, memory, slot),
                false => queue.read(offset, memory, slot),
            })?;
        }
        client.submitted()?;
        client.answers(&mut free)?;
        in_flight -= free.len();
        let now = Instant::now();
        if now >= from && now < to {
            driven.answered += free.len() as u64;
        }
        for slot in free.iter().filter(|slot| begun[**slot] >= from) {
            driven.latencies.record(now - begun[*slot]);
        }
    }
}

/// Writes, reads back, flushes, discards and zeroes.
fn check(client: &mut Client, size: u64) -> anyhow::Result<()> {
    for (round, len) in CHECKED.into_iter().enumerate() {
        let offset = (round as u64 * 1_234_567) / 512 * 512 % (size - len as u64) / 512 * 512;
        let byte = |at: usize| (at * 7 + at / 512 + round * 31 + 1) as u8;
        client.one(|queue, memory| {
            memory[..len].iter_mut().enumerate().for_each(|(at, to)| *to = byte(at));
            queue.write(offset, &memory[..len], 0)
        })?;
        client.one(|queue, _| queue.flush(0))?;
        client.memory.zero(0, len as u32);
        client.one(|queue, memory| queue.read(offset, &mut memory[..len], 0))?;
        let wrong = |read: &[u8]| read.iter().enumerate().position(|(at, it)| *it != byte(at));
        if let Some(at) = client.memory.look(0, len as u32, wrong) {
            bail!("byte {at} of {len} at {offset} is not what was written");
        }
        client.one(|queue, _| queue.write_zeroes(offset, len as u64, round % 2 == 0, 0))?;
        client.one(|queue, memory| queue.read(offset, &mut memory[..len], 0))?;
        let is_zero = |read: &[u8]| read.iter().all(|byte| *byte == 0);
        ensure!(client.memory.look(0, len as u32, is_zero), "zeroes at {offset}");
        client.one(|queue, _| queue.discard(offset, len as u64, 0))?;
    }
    Ok(())
}

fn report(time: Duration, count: u64, own: Option<Duration>, connections: Vec<f64>) -> Report {
    Report {
        seconds: time.as_secs_f64(),
        iops: count as f64 / time.as_secs_f64(),
        reads: None,
        writes: None,
        server_cpu_us_per_request: None,
        client_cpu_us_per_request: own
            .map_or(0.0, |own| own.as_secs_f64() * 1e6 / count.max(1) as f64),
        connections,
    }
}
