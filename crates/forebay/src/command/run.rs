//! `forebay run` and `forebay serve`: a daemon in the foreground, until a signal.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use forebay_backends::size::rounded;
use forebay_backends::uri::NbdUri;
use forebay_host::events::Severity;
use forebay_host::folders;
use forebay_host::shell::quoted;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::table::of;
use super::{client, last_words, signals};
use crate::cli::{RunArgs, ServeArgs};
use crate::config::sources::Sources;
use crate::config::{self, DaemonSpec, DiskSpec, ListenerSpec};
use crate::daemon::Daemon;
use crate::daemon::api::{DaemonInfo, DiskInfo};
use crate::daemon::inherited::Inherited;
use crate::daemon::preflight;

/// A signal that is repeated within this time was meant once.
const SAID_TWICE: Duration = Duration::from_secs(1);

/// A configuration without disks.
const NO_DISK: &str = "no disk is configured, so there is nothing to serve yet: add a [[disk]] to the configuration file, check \
                       it with 'forebay serve --config FILE --check', then: forebay reload";

/// Serves one disk.
pub(crate) fn run(args: RunArgs) -> Result<()> {
    let name = args.name.unwrap_or_else(|| config::name_from_backend(&args.backend));
    let listeners = args.disk.nbd.iter().map(|address| ListenerSpec {
        address: address.clone(),
        disks: vec![name.clone()],
        connections_max: config::CONNECTIONS_MAX,
    });
    let sources = Sources::of_command(&name, &args.backend, &args.disk)?;
    let spec = DaemonSpec {
        targets: args.iscsi.resolve(&name).into_iter().collect(),
        listeners: listeners.collect(),
        shards: config::shards(args.daemon.shards, 1)?,
        shards_asked: args.daemon.shards,
        reactor: args.daemon.reactor,
        control: args.daemon.control,
        state_dir: args.daemon.state_dir,
        sources: Some(sources),
        http: None,
        pools: Vec::new(),
        disks: vec![args.disk.resolve(name.clone(), args.backend)],
        name,
    };
    config::check::daemon(&spec)?;
    config::iscsi::check_secrets(&spec.targets)?;
    let inherited = Inherited::from_environment();
    client::block_on(serve_until_signal(spec, inherited, args.daemon.json))
}

/// Serves what a configuration file says.
pub(crate) fn serve(args: ServeArgs) -> Result<()> {
    // A secret that is wrong costs a start that target alone.
    let spec = config::file::load(&args.config).and_then(|spec| {
        if args.check {
            config::iscsi::check_secrets(&spec.targets)?;
        }
        Ok(spec)
    });
    let inherited = Inherited::from_environment();
    match args.check {
        true => {
            let (mut problems, mut warned) = (Vec::new(), Vec::new());
            if let Ok(spec) = &spec {
                let is_running = client::running(Some(spec)).is_some();
                problems = preflight::problems(spec, is_running, &inherited);
                warned = warnings(spec);
                warned.extend(preflight::warning(spec, is_running, &inherited));
            }
            // Whether anybody reads it or not, the answer is the exit code.
            let _ = write!(std::io::stdout(), "{}", checked(&args, &spec, &problems, &warned));
            spec?;
            match problems.is_empty() {
                true => Ok(()),
                false => bail!("{}\n  {}", not_as_it_should(&args), problems.join("\n  ")),
            }
        }
        false => client::block_on(serve_until_signal(spec?, inherited, args.json)),
    }
}

fn not_as_it_should(args: &ServeArgs) -> String {
    format!("what {} says cannot be served as it should be:", args.config.display())
}

/// What a check found; what is wrong is also told as any error is.
fn checked(
    args: &ServeArgs,
    spec: &Result<DaemonSpec>,
    problems: &[String],
    warnings: &[String],
) -> String {
    let path = args.config.display();
    if args.json {
        let names = |spec: &DaemonSpec| spec.disks.iter().map(|disk| disk.name.0.clone()).collect();
        let disks: Vec<String> = spec.as_ref().map_or(Vec::new(), names);
        let error = spec.as_ref().err().map(|error| format!("{error:#}"));
        let error = error.or_else(|| (!problems.is_empty()).then(|| problems.join("; ")));
        let found = serde_json::json!({
            "config": path.to_string(),
            "is_fine": error.is_none(),
            "disks": disks,
            "warnings": warnings,
            "problems": problems,
            "error": error,
        });
        return format!("{found}\n");
    }
    let Some(spec) = spec.as_ref().ok().filter(|_| problems.is_empty()) else {
        return String::new();
    };
    let warnings = warnings.iter().map(|text| format!("  warning: {text}\n"));
    let (disks, listeners) = (spec.disks.len(), spec.listeners.len());
    let (disks, listeners) = (of(disks as u64, "disk"), of(listeners as u64, "listener"));
    let fine = format!("{path} is fine: {disks}, {listeners}\n");
    fine + &warnings.collect::<String>()
}

/// What works, but is hardly meant.
fn warnings(spec: &DaemonSpec) -> Vec<String> {
    if spec.disks.is_empty() {
        return vec![NO_DISK.to_owned()];
    }
    let waiting = spec.sources.iter().flat_map(Sources::waiting);
    let waiting = waiting.map(|disk| {
        format!(
            "disk '{disk}': what was changed of it while Forebay ran waits: the configuration file has no such disk. 'forebay \
             config changes' shows it"
        )
    });
    let idle = spec.disks.iter().filter(|disk| disk.caches_nothing());
    let warning = |disk: &DiskSpec| {
        format!(
            "disk '{}': nothing will be cached: it has neither RAM nor flash. Give --ram or --flash, \
             or --mode {} instead of {}",
            disk.name,
            disk.mode_without_cache(),
            disk.mode
        )
    };
    idle.map(warning).chain(waiting).chain(relative_flash(spec)).collect()
}

/// Flash that a configuration file gives as a name, which is neither a pool nor there: it is made where the daemon was started.
fn relative_flash(spec: &DaemonSpec) -> Vec<String> {
    let is_pool = |path: &Path| spec.pools.iter().any(|pool| Path::new(&pool.name.0) == path);
    let of_disk = |disk: &DiskSpec| {
        let path = &disk.flash.as_ref()?.path;
        let is_meant = spec.file().is_none() || path.is_absolute() || path.exists();
        (!is_meant && !is_pool(path)).then(|| {
            format!(
                "disk '{}': its flash {1} is no pool and no file that is there: it is made in the folder that Forebay is \
                 started in. Give the path from / on, or a [[pool]] with the name {1}",
                disk.name,
                path.display()
            )
        })
    };
    spec.disks.iter().filter_map(of_disk).collect()
}

/// Serves until a signal. With a configuration file, SIGHUP reads it again; without one it ends the daemon in order.
async fn serve_until_signal(spec: DaemonSpec, inherited: Inherited, json: bool) -> Result<()> {
    for warning in warnings(&spec) {
        tracing::warn!("{warning}");
    }
    // Before anything that must be undone exists: from here on no signal can leave it behind.
    let mut signals = Signals::catch(spec.file().is_some())?;
    let mut daemon = tokio::select! {
        started = Daemon::start(spec, inherited) => started?,
        name = signals.next() => {
            // In order, as a later end: no client was let in. A service that is stopped meanwhile has not failed.
            last_words::say(&format!("forebay: {name}: ended before it was ready"));
            return Ok(());
        }
    };
    let early = tokio::select! {
        () = daemon.tell_ready() => None,
        name = signals.next() => Some(name),
    };
    let first = match early {
        Some(name) => name,
        None => match until_end(&mut daemon, &mut signals, json).await? {
            Some(name) => name,
            None => return daemon.shut_down().await,
        },
    };
    let text =
        format!("{first}: finishing what is in flight; once more, a second later, to end at once");
    daemon.report(Severity::Info, text);
    tokio::select! {
        ended = daemon.shut_down() => ended,
        name = signals.again(first) => bail!("ended by {name} after {first} before everything in flight was finished"),
    }
}

/// Serves until the signal that is returned; `None`: every disk was detached.
async fn until_end(
    daemon: &mut Daemon,
    signals: &mut Signals,
    json: bool,
) -> Result<Option<&'static str>> {
    if let Err(error) = announce(&daemon.info(), json) {
        // Clients can attach all the same.
        let text =
            format!("serving, but standard output did not take the start-up summary: {error}");
        daemon.report(Severity::Warning, text);
    }
    if signals.wants_reload {
        daemon.reload();
    }
    let emptied = daemon.emptied();
    loop {
        tokio::select! {
            signal = signals.any() => match signal {
                Told::End(name) => return Ok(Some(name)),
                Told::Reload => daemon.reload(),
            },
            why = daemon.failed() => bail!("{why}; clients lose their connection, start again"),
            // One with a file waits for disks.
            () = emptied.notified(), if !signals.has_file => {
                daemon.report(Severity::Info, "every disk was detached".to_owned());
                return Ok(None);
            }
        }
    }
}

/// What a signal asks for.
enum Told {
    /// An orderly end, by the name of the signal.
    End(&'static str),
    /// To read the configuration file again.
    Reload,
}

/// SIGTERM, SIGINT and SIGHUP.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Option<Signal>,
    /// There is a file that SIGHUP reads; without it, it asks for an end.
    has_file: bool,
    /// It came during the start, which had read the file before.
    wants_reload: bool,
}

impl Signals {
    fn catch(has_file: bool) -> Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signals::hang_up()?,
            has_file,
            wants_reload: false,
        })
    }

    /// The next signal after `first` that means: now.
    async fn again(&mut self, first: &'static str) -> &'static str {
        let since = Instant::now();
        loop {
            let name = self.next().await;
            if means_now(first, name, since.elapsed()) {
                return name;
            }
        }
    }

    /// The next signal that asks for an end, by its name.
    async fn next(&mut self) -> &'static str {
        loop {
            match self.any().await {
                Told::End(name) => return name,
                Told::Reload => self.wants_reload = true,
            }
        }
    }

    /// The next signal.
    async fn any(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::End("SIGTERM"),
            _ = self.interrupt.recv() => Told::End("SIGINT"),
            _ = signals::next(&mut self.hang_up) => match self.has_file {
                true => Told::Reload,
                false => Told::End("SIGHUP"),
            },
        }
    }
}

/// Whether a signal asks for an end at once. The first one repeated within [`SAID_TWICE`] does not: that is
/// one wish, said to the process and to its group, as `timeout` does.
fn means_now(first: &str, second: &str, after: Duration) -> bool {
    second != first || after >= SAID_TWICE
}

/// Says on standard output what is served, and last: `ready`.
fn announce(info: &DaemonInfo, json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(info)?)?;
    } else {
        write!(out, "{}", summary(info))?;
    }
    writeln!(out, "ready")?;
    out.flush()?;
    Ok(())
}

/// The start-up summary.
fn summary(info: &DaemonInfo) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let plural = if info.shards == 1 { "" } else { "s" };
    let _ = writeln!(
        text,
        "Forebay {}, process {}, {} shard{plural} on {}",
        info.version, info.pid, info.shards, info.reactor
    );
    if let Some(reason) = &info.reactor_fallback {
        let _ = writeln!(text, "  io_uring is not used: {reason}; epoll serves, somewhat slower");
    }
    for disk in &info.disks {
        describe_disk(disk, &mut text);
    }
    for disk in &info.refused {
        let _ = writeln!(text, "disk {}: NOT SERVED: {}", disk.name, disk.reason);
    }
    let _ = writeln!(text, "control  {}", info.control);
    if let Some(http) = &info.http {
        let _ = writeln!(text, "metrics  http://{http}/metrics");
    }
    if let Some(disk) = info.disks.first() {
        let control = folders::option_for(Path::new(&info.control));
        let _ = writeln!(text, "watch    forebay stats {} --watch{control}", disk.name);
    }
    text
}

fn describe_disk(disk: &DiskInfo, text: &mut String) {
    use std::fmt::Write as _;
    let access = if disk.read_only { ", read-only" } else { "" };
    let _ = writeln!(text, "disk {}: {}{access}, {}", disk.name, rounded(disk.size), disk.mode);
    let _ = writeln!(text, "  primary storage  {}", disk.backend);
    let mut cache = format!(
        "{} blocks, RAM {}, metadata {}",
        rounded(disk.block_size),
        rounded(disk.ram_bytes),
        rounded(disk.metadata_bytes)
    );
    if let Some(flash) = &disk.flash {
        let how = if disk.flash_direct == Some(false) { " (through the page cache)" } else { "" };
        cache += &format!(", flash {flash}{how}");
    }
    let _ = writeln!(text, "  cache            {cache}");
    if disk.write_log_bytes > 0 {
        let deferred = match disk.flushes_deferred {
            true => "; FLUSHES ARE DEFERRED: a loss of power loses flushed writes",
            false => "",
        };
        let log = rounded(disk.write_log_bytes);
        let _ = writeln!(text, "  write log        up to {log} of the flash{deferred}");
    }
    let _ = writeln!(text, "  memory           up to {}", rounded(disk.memory_bytes));
    if let Some((socket, queues)) = &disk.vhost_user {
        text.push_str(&attach_a_guest(socket, queues));
    }
    for address in &disk.addresses {
        if let Some(portal) = address.strip_prefix("iscsi:") {
            let _ = writeln!(text, "  attach           iscsi-ls -s iscsi://{portal}/");
            continue;
        }
        let uri = match address.strip_prefix("unix:") {
            Some(path) => NbdUri::at_socket(&disk.name, Path::new(path)).to_string(),
            None => format!("nbd://{address}/{}", disk.name),
        };
        let _ = writeln!(text, "  attach           nbdinfo '{uri}'");
        // QEMU reads two commas as one.
        let in_qemu = uri.replace(',', ",,");
        let _ = writeln!(
            text,
            "                   qemu-system-x86_64 … -drive file='{in_qemu}',format=raw,cache=none,if=virtio"
        );
    }
}

/// How QEMU attaches to a vhost-user device, in the words of versions that go on and of those before.
fn attach_a_guest(socket: &str, queues: impl Display) -> String {
    let device =
        quoted(format!("socket,id=disk,path={},reconnect-ms=1000", socket.replace(',', ",,")));
    format!(
        "  attach           qemu-system-x86_64 … -object memory-backend-memfd,id=mem,size=SIZE,share=on \\
                   -machine memory-backend=mem -chardev {device} \\
                   -device vhost-user-blk-pci,chardev=disk,num-queues={queues}
                   (QEMU before 9.2: reconnect=1 instead of reconnect-ms=1000)\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_for_a_guest_is_right_for_old_and_new_qemu() {
        let hint = attach_a_guest("/run/db.vhost", 2);
        let lines: Vec<&str> = hint.lines().collect();
        assert!(lines[1].ends_with(",path=/run/db.vhost,reconnect-ms=1000 \\"), "{hint}");
        let odd = attach_a_guest("/run/a b,c", 2);
        let expect = "-chardev 'socket,id=disk,path=/run/a b,,c,reconnect-ms=1000' \\";
        assert!(odd.contains(expect), "{odd}");
        assert!(lines[2].ends_with("chardev=disk,num-queues=2"), "{hint}");
        let old = "(QEMU before 9.2: reconnect=1 instead of reconnect-ms=1000)";
        assert_eq!(lines[3].trim(), old);
    }

    #[test]
    fn a_relative_path_of_flash_that_is_not_there_is_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.toml");
        let warned = |flash: &str, more: &str| {
            let text = format!(
                "[[disk]]\nname = \"db\"\nbackend = \"mem:1MiB\"\nflash = \"{flash}:64MiB\"\nnbd = \
                 [\"unix:/run/x\"]\n{more}"
            );
            std::fs::write(&path, text).unwrap();
            warnings(&config::file::load(&path).unwrap())
        };
        let told = warned("fats", "");
        assert!(told.len() == 1 && told[0].contains("its flash fats is no pool"), "{told:?}");
        let pool = "[[pool]]\nname = \"fast\"\ndevices = [\"/dev/none\"]\n";
        for (meant, more) in [("fast", pool), ("/nvme/pool", ""), ("src", "")] {
            assert_eq!(warned(meant, more), [""; 0], "{meant}");
        }
    }

    #[test]
    fn a_signal_that_is_said_twice_is_one_wish() {
        let check = |first, second, millis, expect| {
            assert_eq!(means_now(first, second, Duration::from_millis(millis)), expect);
        };
        check("SIGTERM", "SIGTERM", 0, false);
        check("SIGTERM", "SIGTERM", 999, false);
        check("SIGTERM", "SIGTERM", 1000, true);
        check("SIGTERM", "SIGINT", 0, true);
        check("SIGINT", "SIGTERM", 0, true);
    }
}
