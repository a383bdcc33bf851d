//! Looks at the primary storage of every disk several times a second: notes its modification time in the disk's note of
//! its last write, and tells when somebody else has changed it, cut it short or taken it away.
//!
//! A look may be held up by primary storage that hangs. Nobody waits for it: each round of looks has a thread of its own,
//! and one that hangs leaves the disks that it has not come to yet to the thread of the next round.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use forebay_backends::size::rounded;
use forebay_backends::{Probe, Standing};
use forebay_core::flash_pool::fence::Timestamp;
use forebay_host::events::{EventSender, Severity};
use forebay_host::fence::LastWrite;

use super::control::lock;
use super::served::{MODIFIED, ServedDisk};

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(240);
/// Looks of which one asks whether primary storage is where and as long as it was: an answer within a second. Who
/// modified it is asked by every look, because only writes around that moment explain it.
const STANDING_EVERY: u32 = 4;

/// A disk that is watched, as long as it is served.
#[derive(Debug)]
struct Watched {
    disk: Weak<ServedDisk>,
    probe: Probe,
    /// Where it has flash.
    last_write: Option<Weak<LastWrite>>,
    /// The modification time that was noted last, and explained.
    noted: Option<Timestamp>,
    /// The time that was told of, and that nothing of this disk explains.
    told: Option<Timestamp>,
    /// Bytes of the image when it had that time.
    size: u64,
    standing: Standing,
    length: Length,
    /// Where the staging file of its write log was looked for last.
    staging: Option<PathBuf>,
    /// How many looks found none.
    looks_without_staging: u32,
    /// Looks so far, from any number on, so that not all disks are asked for more by the same round.
    looks: u32,
}

/// What is known of the length of primary storage.
#[derive(Debug, Default)]
struct Length {
    /// It was cut short, and was not where and as long as it was after that.
    was_short: bool,
}

impl Length {
    /// It stands so now: whether it was cut short just now, and whether it was short before that.
    fn stands(&mut self, standing: &Standing) -> (bool, bool) {
        let was_short = self.was_short;
        self.was_short = match standing {
            Standing::Short(_) => true,
            Standing::Same => false,
            Standing::Replaced(_) | Standing::Unlinked(_) | Standing::Moved(_) | Standing::Gone => {
                was_short
            }
        };
        (self.was_short && !was_short, was_short)
    }
}

/// Watches disks; dropping it ends that after the round under way.
#[derive(Debug)]
pub(super) struct Watch {
    disks: Arc<Rounds<Box<Watched>>>,
}

impl Watch {
    /// Starts the thread that begins each round.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(super) fn start(events: EventSender) -> std::io::Result<Watch> {
        let disks = Arc::<Rounds<Box<Watched>>>::default();
        let of = Arc::downgrade(&disks);
        std::thread::Builder::new().name("watch".to_owned()).spawn(move || {
            while let Some(disks) = of.upgrade() {
                let events = events.clone();
                disks.begin(move |disk| disk.look(&events));
                drop(disks);
                std::thread::sleep(LOOK_EVERY);
            }
        })?;
        Ok(Watch { disks })
    }

    /// Watches one disk more, if its primary storage tells anything.
    pub(super) fn add(&self, disk: &Arc<ServedDisk>) {
        self.disks.add(Watched::of(disk).map(Box::new));
    }
}

/// What is looked at once in a round. What a thread looks at is in neither list.
#[derive(Debug)]
struct Rounds<T> {
    /// To look at in this round.
    due: Mutex<Vec<T>>,
    /// For the next round.
    looked_at: Mutex<Vec<T>>,
}

impl<T> Default for Rounds<T> {
    fn default() -> Rounds<T> {
        Rounds { due: Mutex::default(), looked_at: Mutex::default() }
    }
}

impl<T: Send + 'static> Rounds<T> {
    fn add(&self, new: impl IntoIterator<Item = T>) {
        lock(&self.looked_at).extend(new);
    }

    /// Begins a round on a thread of its own; `look` says whether there is another look to come.
    fn begin(self: &Arc<Rounds<T>>, look: impl Fn(&mut T) -> bool + Send + 'static) {
        let is_any_due = {
            let mut due = lock(&self.due);
            due.append(&mut lock(&self.looked_at));
            !due.is_empty()
        };
        let rounds = self.clone();
        let all = move || {
            while let Some(mut one) = rounds.next() {
                // Who has ended lets go of primary storage, and of its lock.
                if look(&mut one) {
                    rounds.add([one]);
                }
            }
        };
        if is_any_due {
            // Without a thread the next round looks.
            let _ = std::thread::Builder::new().name("looks".to_owned()).spawn(all);
        }
    }

    fn next(&self) -> Option<T> {
        lock(&self.due).pop()
    }
}

impl Watched {
    /// What watches a disk; `None`: its primary storage tells nothing.
    fn of(disk: &Arc<ServedDisk>) -> Option<Watched> {
        Some(Watched {
            disk: Arc::downgrade(disk),
            probe: disk.probe().ok()?,
            last_write: disk.last_write().map(|last_write| Arc::downgrade(&last_write)),
            noted: None,
            told: None,
            size: 0,
            standing: Standing::Same,
            length: Length::default(),
            staging: None,
            looks_without_staging: 0,
            looks: disk.handle.id().0,
        })
    }

    /// Looks once; false when the disk is gone.
    fn look(&mut self, events: &EventSender) -> bool {
        let Some(disk) = self.disk.upgrade().filter(|disk| disk.is_looked_at()) else {
            return false;
        };
        self.look_at_times(&disk, events);
        self.looks = self.looks.wrapping_add(1);
        if !self.looks.is_multiple_of(STANDING_EVERY) {
            return true;
        }
        self.look_at_staging(&disk, events);
        let Ok(standing) = self.probe.standing(disk.handle.size()) else { return true };
        if standing != self.standing {
            let words = describe(&self.probe, &standing, disk.handle.size());
            let (is_first, was_short) = self.length.stands(&standing);
            self.standing = standing;
            let (severity, text) = match &words {
                Some(words) => (Severity::Error, words.clone()),
                None => is_back(was_short),
            };
            events.report(Some(disk.name()), severity, text);
            disk.note_standing(words);
            if is_first {
                tell_unnoted(&disk, disk.note_cut_short(), events);
            }
        }
        true
    }

    /// Looks whether the staging file is where the next run looks for it after a kill. A disk that is ending removes it
    /// itself: only one that is missing at two looks was removed by somebody else.
    fn look_at_staging(&mut self, disk: &ServedDisk, events: &EventSender) {
        // To find out where that is takes longer than to look there.
        if self.staging.as_deref().is_some_and(Path::exists) {
            return;
        }
        self.staging = disk.staging_place();
        let is_missing = |path: &&Path| matches!(path.try_exists(), Ok(false));
        let Some(path) = self.staging.as_deref().filter(is_missing) else { return };
        self.looks_without_staging = self.looks_without_staging.saturating_add(1);
        if self.looks_without_staging == 2 {
            let text = format!(
                "the staging file {} was removed by somebody else: if Forebay is killed now, writes that it acknowledged are \
                 lost. End it in good order and start it again, and see that nobody removes the file: a service that is no \
                 system user loses it when that user logs out",
                path.display()
            );
            events.report(Some(disk.name()), Severity::Error, text);
        }
    }

    fn look_at_times(&mut self, disk: &ServedDisk, events: &EventSender) {
        let Some(last_write) = self.last_write.as_ref().and_then(Weak::upgrade) else { return };
        let looked = Instant::now();
        let Ok(look) = self.probe.look() else { return };
        let Some(modified) = look.modified.filter(|modified| self.noted != Some(*modified)) else {
            return;
        };
        let is_new = self.told != Some(modified);
        if is_new && last_write.is_beyond(modified) {
            last_write.clock_was_set();
        }
        let is_explained = last_write.note_seen(modified, looked);
        self.noted = is_explained.then_some(modified);
        let is_news = !is_explained && is_new;
        self.told = (!is_explained).then_some(modified);
        if is_news {
            // One that became longer may be resized by an administrator.
            let is_grown = look.size > self.size.max(disk.handle.size());
            self.size = look.size;
            events.report(Some(disk.name()), Severity::Error, MODIFIED.to_owned());
            if !is_grown {
                tell_unnoted(disk, disk.note_modified(modified), events);
            }
        }
    }
}

/// Tells that flash could not note what somebody has done. A disk that is ending takes what is known with it.
fn tell_unnoted(disk: &ServedDisk, noted: anyhow::Result<()>, events: &EventSender) {
    if let Err(error) = noted
        && disk.is_looked_at()
    {
        events.report(Some(disk.name()), Severity::Error, disk.not_noted(&error));
    }
}

/// What is told of primary storage that is where and as long as it was.
fn is_back(was_short: bool) -> (Severity, String) {
    match was_short {
        true => (
            Severity::Error,
            "primary storage is as long again as it was, and what was behind its end when it was cut short is not there any more: \
             it reads as zeroes, unless it is cached, or you have brought back a copy. Else stop the guest and bring one back. \
             In both cases give 'forebay disk drop-cache' then"
                .to_owned(),
        ),
        false => (
            Severity::Info,
            "primary storage is again where and as long as it was when the disk was opened".to_owned(),
        ),
    }
}

/// What has become of primary storage, and what to do.
pub(super) fn describe(probe: &Probe, standing: &Standing, size: u64) -> Option<String> {
    let copy = probe.open_at().unwrap_or_default();
    let rescue = format!(
        "this disk goes on with the file that it has open, which is gone when it ends, with all that is written: let it be \
         destaged ('forebay disk flush') and copy {} before that",
        copy.display()
    );
    Some(match standing {
        Standing::Same => return None,
        Standing::Replaced(path) => {
            format!(
                "another file is at {} by now (somebody replaced the image): {rescue}",
                path.display()
            )
        }
        Standing::Unlinked(path) => {
            format!("the image {} was removed: {rescue}", path.display())
        }
        Standing::Moved(path) => format!(
            "the image is not at {} any more (it was renamed, or has another link): this disk goes on with it, and the next \
             start will not find it there: put it back",
            path.display()
        ),
        Standing::Short(len) => format!(
            "primary storage was cut short by somebody else: it has {} of {}. What was behind its end is lost there, and cannot \
             be read unless it is cached or in the write log; a write behind the end makes it longer again, and what lies between \
             reads as zeroes then. Stop the guest and bring back a copy",
            rounded(*len),
            rounded(size)
        ),
        Standing::Gone => "the device of primary storage is gone (logged out, unmapped or unplugged), and all I/O on it fails. \
                           What is on it is probably intact: do not put a copy in its place. Bring the device back, then \
                           restart Forebay, which opens it again. A write log keeps what was written and is not on the \
                           device; without one, writes that the guest had not flushed may be lost"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use forebay_backends::OpenOptions;

    use super::*;

    #[test]
    fn nobody_is_told_to_replace_a_device_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("db.raw");
        std::fs::write(&image, vec![7; 65536]).unwrap();
        let uri = format!("file:{}", image.display()).parse().unwrap();
        let probe = forebay_backends::open(&uri, OpenOptions::default()).unwrap().probe().unwrap();
        let text = |standing| describe(&probe, &standing, 65536);
        assert_eq!(text(Standing::Same), None);
        let gone = text(Standing::Gone).unwrap();
        assert!(gone.starts_with("the device of primary storage is gone"), "{gone}");
        assert!(gone.contains("Bring the device back, then restart Forebay"), "{gone}");
        assert!(!gone.contains("cut short") && !gone.contains("bring back a copy"), "{gone}");
        assert!(text(Standing::Short(512)).unwrap().contains("it has 512 B of 64 KiB"));
    }

    #[test]
    fn what_was_cut_short_is_not_as_it_was_when_it_is_as_long_again() {
        use Standing::{Moved, Same, Short};
        let mut length = Length::default();
        let moved = || Moved("/db".into());
        // Each with whether that was cut short just then, and what its return is told as.
        let looks = [
            (Short(512), (true, false)),
            (Short(1024), (false, true)),
            (moved(), (false, true)),
            (Same, (false, true)),
            (moved(), (false, false)),
            (Same, (false, false)),
            (Short(512), (true, false)),
        ];
        for (standing, expect) in looks {
            assert_eq!(length.stands(&standing), expect, "{standing:?}");
        }
        let (severity, text) = is_back(true);
        assert!(severity == Severity::Error && !text.contains("again where"), "{text}");
        assert!(is_back(false).1.contains("again where"));
    }

    #[test]
    fn a_look_that_hangs_holds_up_nobody_else() {
        const PATIENCE: Duration = Duration::from_secs(20);
        let rounds = Arc::<Rounds<u32>>::default();
        let (looked, looks) = channel();
        let (release, released) = channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let begin = || {
            let (looked, released) = (looked.clone(), released.clone());
            rounds.begin(move |one| {
                looked.send(*one).unwrap();
                if *one == 2 {
                    let _ = lock(&released).recv();
                }
                *one != 3
            });
        };
        rounds.add([1, 3, 2]);
        begin();
        // The first to be looked at hangs. The thread of the next round goes on behind it.
        assert_eq!(looks.recv_timeout(PATIENCE), Ok(2));
        begin();
        assert_eq!(looks.recv_timeout(PATIENCE), Ok(3));
        assert_eq!(looks.recv_timeout(PATIENCE), Ok(1));
        // What hung is looked at again once it goes on, and what ended is not.
        drop(release);
        let mut seen = Vec::new();
        while !seen.contains(&2) || !seen.contains(&1) {
            begin();
            seen.extend(looks.recv_timeout(Duration::from_millis(20)));
        }
        assert!(!seen.contains(&3));
    }
}
