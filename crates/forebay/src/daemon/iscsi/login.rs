//! From the accept of an initiator until its session is on a shard.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use forebay_frontends::iscsi::chap::RANDOM;
use forebay_frontends::iscsi::driver::Newcomer;
use forebay_frontends::iscsi::login::{Established, Login, Outcome};
use forebay_frontends::iscsi::pdu_log::Lines;
use forebay_host::pool::host;
use forebay_shard::DiskHandle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::{PORT, Served};
use crate::daemon::listener::{HANDSHAKE_TIME_MAX, LEFT};
use crate::daemon::places::Entry;
use crate::messages;

/// Time that each of them has to begin its login.
const TURN_AWAY_TIME_MAX: Duration = Duration::from_secs(2);

/// Time for a discovery.
const DISCOVERY_TIME_MAX: Duration = Duration::from_secs(60);

/// Tells an initiator for which there is no room that there is none; just closes its connection when many are being told.
pub(super) fn turn_away(mut stream: TcpStream, turning: &Arc<Semaphore>) {
    let Ok(room) = turning.clone().try_acquire_owned() else { return };
    tokio::spawn(async move {
        let told = async {
            let mut login = Login::turn_away(stream.local_addr()?);
            let (mut out, mut input) = (Vec::new(), vec![0; 1024]);
            while out.is_empty() {
                let len = stream.read(&mut input).await?;
                let outcome = login.feed(&input[..len], &mut out);
                if len == 0 || matches!(outcome, Outcome::Broken) {
                    break;
                }
            }
            stream.write_all(&out).await
        };
        let _ = timeout_at(Instant::now() + TURN_AWAY_TIME_MAX, told).await;
        drop(room);
    });
}

/// Runs the login, then hands the session to its shard. A login that is refused is also reported.
pub(super) async fn log_in(
    mut stream: TcpStream,
    served: &Served,
    entry: Entry,
    report: impl Fn(&str),
) -> Result<()> {
    stream.set_nodelay(true)?;
    let address = stream.local_addr()?;
    let negotiated = negotiate(&mut stream, served, address, report).await?;
    let Some(established) = negotiated else { return Ok(()) };
    let behind = &served.behind[established.target];
    let mut targets = Vec::new();
    let name = &served.portal.targets[established.target].name;
    served.portal.list(&established.initiator, Some(name), address, &mut targets);
    let newcomer = Newcomer {
        socket: OwnedFd::from(stream.into_std()?),
        device: behind.device.clone(),
        disks: behind.handles().iter().map(DiskHandle::id).collect(),
        established,
        targets,
        port: PORT,
        log: behind.log.clone().map(|log| log as Arc<dyn Lines>),
    };
    let place = entry.settle().context(LEFT)?;
    // One that has ended may be where the target was before.
    let shard = behind.handles().iter().find(|disk| disk.is_open()).cloned();
    let shard = shard.context("no disk of the target is served")?;
    shard.hand_over(Box::new(newcomer), Box::new(place)).await?;
    Ok(())
}

/// The session that a login led to; `None` when the initiator left as the protocol wants it.
async fn negotiate(
    stream: &mut TcpStream,
    served: &Served,
    address: SocketAddr,
    report: impl Fn(&str),
) -> Result<Option<Established>> {
    let random: [u8; RANDOM] = host::random()?;
    let mut login = Login::start(served.portal.clone(), address, random, new_tsih());
    let (mut out, mut input) = (Vec::new(), vec![0; 4096]);
    let begun = Instant::now();
    loop {
        let time = if login.is_discovering() { DISCOVERY_TIME_MAX } else { HANDSHAKE_TIME_MAX };
        let received = timeout_at(begun + time, stream.read(&mut input));
        let len = received.await.context("no login in time")??;
        if len == 0 {
            anyhow::ensure!(login.is_discovering(), "the initiator left during its login");
            return Ok(None);
        }
        out.clear();
        let outcome = login.feed(&input[..len], &mut out);
        timeout_at(begun + time, stream.write_all(&out)).await.context("no login in time")??;
        match outcome {
            Outcome::Continue => {}
            Outcome::Session(established) => return Ok(Some(*established)),
            Outcome::Close(None) => return Ok(None),
            Outcome::Close(Some(refusal)) => {
                let (name, why) = (login.initiator(), messages::refused_login(refusal));
                report(&format!("initiator '{name}' may not log in: {why}"));
                anyhow::bail!("login refused: {refusal:?}");
            }
            Outcome::Broken => anyhow::bail!("what it sent is no login"),
        }
    }
}

/// The target's part of a session's name: not 0.
fn new_tsih() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    loop {
        let tsih = NEXT.fetch_add(1, Ordering::Relaxed);
        if tsih != 0 {
            return tsih;
        }
    }
}
