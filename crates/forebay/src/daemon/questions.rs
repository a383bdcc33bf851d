//! Questions to storage and flash that may hang: they take a question and never answer.
//!
//! ```text
//!   ask ─► a thread of its own ─┬─ answers in time ─────────────────► who asked
//!                               └─ does not: who asked goes on ─► still out: nobody asks the same before it has come back
//! ```
//! So a device that hangs holds up one thread for each kind of question, however often that is asked, and nobody without a
//! limit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::anyhow;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::control::lock;

/// Questions that are out at a time: two for each of the most disks of a host.
pub(super) const OUT_MAX: usize = 1024;
/// Time that flash has to answer whoever changes something.
pub(super) const FLASH_MAX: Duration = Duration::from_secs(10);
/// The same at a start, when paths to storage may have to be found first.
pub(super) const START_MAX: Duration = Duration::from_secs(15);
/// Questions that are asked at once, of many.
pub(super) const AT_ONCE: usize = 192;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum About {
    /// Primary storage and flash of a disk: whether they answer at all.
    Storage(String, Option<PathBuf>),
    /// A disk that is not served, and its flash: it is opened, looked at or decided about.
    Disk(String, Option<PathBuf>),
    /// A pool that is open: how full it is.
    Usage(PathBuf),
    /// A pool that is open: all that it has.
    Pool(PathBuf),
    /// A pool that is not open: it is opened.
    Opening(PathBuf),
    /// Flash: what is on it, and whether it can be had.
    Flash(PathBuf),
    /// A path: where it leads.
    Path(PathBuf),
    /// A pool that nobody uses: it is let go of.
    Closing(PathBuf),
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// There is none yet.
    Late,
    /// Too many other questions are out.
    TooMany,
}

impl Silence {
    /// In words, about `what`.
    pub(super) fn of(self, what: &str) -> anyhow::Error {
        match self {
            Silence::Late => anyhow!("{what} does not answer"),
            Silence::TooMany => anyhow!("too much other storage does not answer to ask {what}"),
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Questions(Arc<Mutex<BTreeMap<About, watch::Receiver<()>>>>);

/// A question is out as long as this is kept.
#[derive(Debug)]
pub(super) struct Out(#[allow(dead_code, reason = "dropped, it tells")] watch::Sender<()>);

/// An answer, which may come late: the question is out as long as what comes with it is kept.
pub(super) type Answer<T> = oneshot::Receiver<(T, Out)>;

impl Questions {
    fn out(&self) -> MutexGuard<'_, BTreeMap<About, watch::Receiver<()>>> {
        let mut out = lock(&self.0);
        out.retain(|_, back| back.has_changed().is_ok());
        out
    }

    /// Whether a question is out.
    pub(super) fn is_out(&self, about: &About) -> bool {
        self.out().contains_key(about)
    }

    /// Whether a question is out that the flash or the file system at this path has to answer. How full a pool is may also
    /// wait for whoever has the pool.
    pub(super) fn is_any_out(&self, path: &Path) -> bool {
        self.out().keys().any(|about| match about {
            About::Opening(at) | About::Flash(at) | About::Path(at) | About::Closing(at) => {
                at == path
            }
            About::Usage(_) | About::Pool(_) | About::Storage(..) | About::Disk(..) => false,
        })
    }

    /// The disks that are opened, looked at or decided about, each with its flash.
    pub(super) fn disks(&self) -> Vec<(String, Option<PathBuf>)> {
        let out = self.out();
        let disks = out.keys().filter_map(|about| match about {
            About::Disk(name, flash) => Some((name.clone(), flash.clone())),
            About::Storage(..)
            | About::Usage(_)
            | About::Pool(_)
            | About::Opening(_)
            | About::Flash(_)
            | About::Path(_)
            | About::Closing(_) => None,
        });
        disks.collect()
    }

    /// Waits until none is out any more, so long at most.
    pub(super) async fn settle(&self, patience: Duration) {
        let give_up = Instant::now() + patience;
        loop {
            let Some(mut back) = self.out().values().next().cloned() else { return };
            if timeout_at(give_up, back.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Asks, on a thread of its own; what nobody waits for any more is dropped there.
    ///
    /// # Errors
    /// The same is out, or too many others are: nobody is asked.
    pub(super) fn begin<T: Send + 'static>(
        &self,
        about: About,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Answer<T>, Silence> {
        let mut out = self.out();
        match out.contains_key(&about) {
            true => Err(Silence::Late),
            false => begin(&mut out, about, question),
        }
    }

    /// Asks, and waits so long for the answer. While the same is out, that is waited for first.
    ///
    /// # Errors
    /// There is no answer in time.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        about: About,
        patience: Duration,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Silence> {
        let give_up = Instant::now() + patience;
        let answer = loop {
            let mut before = {
                let mut out = self.out();
                match out.get(&about) {
                    Some(before) => before.clone(),
                    None => break begin(&mut out, about, question)?,
                }
            };
            timeout_at(give_up, before.changed()).await.map_err(|_| Silence::Late)?.ok();
        };
        match timeout_at(give_up, answer).await {
            Ok(Ok((answer, _out))) => Ok(answer),
            // It panicked, or is late.
            Ok(Err(_)) | Err(_) => Err(Silence::Late),
        }
    }

    /// Asks the same about each of several, at once, and waits so long for all of them, or for each [`AT_ONCE`].
    pub(super) async fn ask_each<K: Clone, T: Send + 'static, Q>(
        &self,
        of: impl IntoIterator<Item = (K, About)>,
        patience: Duration,
        question: impl Fn(&K) -> Q,
    ) -> Vec<(K, Result<T, Silence>)>
    where
        Q: FnOnce() -> T + Send + 'static,
    {
        let room = Arc::new(Semaphore::new(AT_ONCE));
        let asked = of.into_iter().map(|(key, about)| {
            let (questions, question, room) = (self.clone(), question(&key), room.clone());
            let ask = async move {
                let _room = room.acquire().await;
                questions.ask(about, patience, question).await
            };
            (key, tokio::spawn(ask))
        });
        let mut answers = Vec::new();
        for (key, asked) in asked.collect::<Vec<_>>() {
            answers.push((key, asked.await.unwrap_or(Err(Silence::Late))));
        }
        answers
    }
}

fn begin<T: Send + 'static>(
    out: &mut BTreeMap<About, watch::Receiver<()>>,
    about: About,
    question: impl FnOnce() -> T + Send + 'static,
) -> Result<Answer<T>, Silence> {
    if out.len() >= OUT_MAX {
        return Err(Silence::TooMany);
    }
    let (is_out, back) = watch::channel(());
    let (tell, answer) = oneshot::channel();
    tokio::task::spawn_blocking(move || {
        let answer = question();
        // An answer that nobody waits for goes before the same may be asked again.
        drop(tell.send((answer, Out(is_out))));
    });
    out.insert(about, back);
    Ok(answer)
}

/// Waits so long for an answer; `None`: it is late, or there will be none.
pub(super) async fn in_time<T>(answer: &mut Answer<T>, patience: Duration) -> Option<(T, Out)> {
    timeout(patience, answer).await.ok()?.ok()
}

/// Waits for an answer that is late; `None`: there will be none.
pub(super) async fn late<T>(answer: Answer<T>) -> Option<(T, Out)> {
    if answer.is_terminated() { None } else { answer.await.ok() }
}

#[cfg(test)]
mod tests;
