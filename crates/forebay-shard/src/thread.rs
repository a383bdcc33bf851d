//! A shard's thread: started, pinned, and joined.

use forebay_host::events::EventSender;
use forebay_io::mailbox;
use forebay_io::reactor::{Reactor, ReactorKind, Waker};
use tokio::sync::oneshot;

use super::run::Shard;
use super::{MAILBOX_MAX, ShardHandle};

/// Operations that a shard's reactor has room for at a time, before it queues.
const REACTOR_ENTRIES: u32 = 1024;

/// What the thread says once its reactor stands.
struct Standing {
    waker: Waker,
    kind: ReactorKind,
    fallback_reason: Option<String>,
}

pub(super) fn start(
    index: usize,
    count: usize,
    kind: Option<ReactorKind>,
    events: EventSender,
) -> anyhow::Result<ShardHandle> {
    let (standing, stands) = std::sync::mpsc::channel();
    let (receiver_in, receiver_out) = std::sync::mpsc::channel();
    let (end, ended) = oneshot::channel();
    let thread = std::thread::Builder::new().name(format!("shard-{index}")).spawn(move || {
        forebay_io::thread::bind_shard(index, count);
        // The reactor is made on the thread that uses it: io_uring is told that there is one only.
        let reactor = match Reactor::new(REACTOR_ENTRIES, kind) {
            Ok(reactor) => reactor,
            Err(error) => {
                let _ = standing.send(Err(error));
                return;
            }
        };
        let _ = standing.send(Ok(Standing {
            waker: reactor.waker(),
            kind: reactor.kind(),
            fallback_reason: reactor.fallback_reason().map(str::to_owned),
        }));
        let Ok(mailbox) = receiver_out.recv() else { return };
        if let Err(error) = Shard::new(reactor, mailbox, events).run() {
            let _ = end.send(format!("its reactor failed: {error}"));
        }
    })?;
    let standing = stands
        .recv()
        .map_err(|_| anyhow::anyhow!("shard {index} ended as it started"))?
        .map_err(|error| {
            let advice = "try --reactor epoll where io_uring is not allowed";
            anyhow::Error::new(error).context(format!("shard {index} has no reactor; {advice}"))
        })?;
    let (sender, receiver) = mailbox::channel(MAILBOX_MAX, standing.waker);
    let _ = receiver_in.send(receiver);
    Ok(ShardHandle {
        sender,
        thread: Some(thread),
        ended: Some(ended),
        kind: standing.kind,
        fallback_reason: standing.fallback_reason,
    })
}
