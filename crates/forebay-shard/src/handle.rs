//! A shard as the control plane has it: started, handed disks, drained, ended.

use std::thread::JoinHandle;
use std::time::Duration;

use forebay_host::events::EventSender;
use forebay_io::mailbox::{SendError, Sender};
use forebay_io::reactor::ReactorKind;
use tokio::sync::oneshot;

use crate::mailbox::{Command, Home};
use crate::{DiskHandle, Drained, Gone, NewDisk, thread};

/// How often it is looked whether clients have left.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Pause before who found a full mailbox asks again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A running shard thread. Dropping it ends the thread at once.
#[derive(Debug)]
pub struct ShardHandle {
    pub(super) sender: Sender<Command>,
    pub(super) thread: Option<JoinHandle<()>>,
    pub(super) ended: Option<oneshot::Receiver<String>>,
    /// What its reactor runs on.
    pub kind: ReactorKind,
    /// Why that is not io_uring.
    pub fallback_reason: Option<String>,
}

/// Hands disks to a shard.
#[derive(Clone, Debug)]
pub struct ShardSender(pub(super) Sender<Command>);

impl ShardHandle {
    /// Starts shard `index` of `count`.
    ///
    /// # Errors
    /// The kernel gives no thread or no reactor.
    pub fn start(
        index: usize,
        count: usize,
        kind: Option<ReactorKind>,
        events: EventSender,
    ) -> anyhow::Result<ShardHandle> {
        thread::start(index, count, kind, events)
    }

    /// The way to hand disks to it.
    pub fn sender(&self) -> ShardSender {
        ShardSender(self.sender.clone())
    }

    /// Tells it to finish what is in flight and to flush; the thread ends, and its answer comes then.
    ///
    /// # Errors
    /// It ended before.
    pub fn drain(&self) -> Result<oneshot::Receiver<Vec<Drained>>, Gone> {
        let (answer, receiver) = oneshot::channel();
        // However many commands wait.
        self.sender.answer(Command::Drain(answer)).then_some(receiver).ok_or(Gone)
    }

    /// How those of its disks ended that have by now.
    ///
    /// # Errors
    /// It ended before.
    pub fn ended(&self) -> Result<oneshot::Receiver<Vec<Drained>>, Gone> {
        let (answer, receiver) = oneshot::channel();
        self.sender.answer(Command::Ended(answer)).then_some(receiver).ok_or(Gone)
    }

    /// Waits for the thread to end by itself, which it only does when it fails: why.
    pub async fn failed(&mut self) -> String {
        match &mut self.ended {
            Some(ended) => (&mut *ended).await.unwrap_or_else(|_| "it panicked".to_owned()),
            None => std::future::pending().await,
        }
    }
}

impl ShardSender {
    /// Waits until the shard has come round to its mailbox: CPU time of its thread so far; `None`: it has ended.
    pub async fn turn(&self) -> Option<Duration> {
        let (answer, turned) = oneshot::channel();
        let mut asked = self.0.send(Command::Turn(answer));
        // A full mailbox is one that the shard does not come round to.
        while let Err(SendError::Full(turn)) = asked {
            tokio::time::sleep(ASK_AGAIN).await;
            asked = self.0.send(turn);
        }
        asked.ok()?;
        turned.await.ok()
    }

    /// Hands a disk over.
    ///
    /// # Errors
    /// What the kernel or the backend said.
    pub async fn add(&self, disk: NewDisk) -> anyhow::Result<DiskHandle> {
        let (answer, receiver) = oneshot::channel();
        let add = Command::Add(Box::new(disk), self.0.clone(), answer);
        self.0.send(add).map_err(|_| Gone)?;
        receiver.await.map_err(|_| Gone)?.map_err(anyhow::Error::msg)
    }

    /// Hands a disk over that takes the place of one that has ended beneath its clients: they go on. If that is on another
    /// shard they do so once they are here ([`ShardSender::take_clients`]). How often the RAM cache was resized until then.
    ///
    /// # Errors
    /// What the kernel or the backend said; the clients wait on.
    pub async fn replace(&self, ended: &DiskHandle, mut disk: NewDisk) -> anyhow::Result<u64> {
        ended.heritage().await?.give_to(&mut disk);
        let (answer, receiver) = oneshot::channel();
        let replace = Command::Replace(ended.clone(), Box::new(disk), self.0.clone(), answer);
        self.0.send(replace).map_err(|_| Gone)?;
        receiver.await.map_err(|_| Gone)?.map_err(anyhow::Error::msg)
    }

    /// Takes the clients of disks that have ended beneath them on another shard, together: other disks have taken their
    /// place here. Those that come late are sent here from then on.
    ///
    /// # Errors
    /// A disk has not ended, or a shard ends or has ended. All is as before.
    pub async fn take_clients(&self, disks: &[DiskHandle]) -> anyhow::Result<()> {
        let Some(first) = disks.first() else { return Ok(()) };
        let from = first.home.shard();
        loop {
            let (answer, receiver) = oneshot::channel();
            match from.send(Command::Leave(disks.to_vec(), self.0.clone(), answer)) {
                Ok(()) => {
                    let left = receiver.await.map_err(|_| Gone)?;
                    if left.map_err(anyhow::Error::msg)? {
                        return Ok(());
                    }
                }
                Err(SendError::Full(_)) => {}
                Err(SendError::Closed(_)) => return Err(Gone.into()),
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Ends a disk that has taken the place of another one of another shard, whose clients have not come; so that another
    /// one can take its place there.
    ///
    /// # Errors
    /// The shard has ended.
    pub async fn give_back(&self, disk: &DiskHandle) -> anyhow::Result<Drained> {
        let here = DiskHandle { home: Home::new(self.0.clone()), ..disk.clone() };
        let ended = here.end_beneath(false).await?;
        self.0.answer(Command::Forget(disk.clone(), disk.home.shard()));
        Ok(ended)
    }
}

impl Drop for ShardHandle {
    fn drop(&mut self) {
        self.sender.answer(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
