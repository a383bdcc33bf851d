//! Memory of caches that are served already: one thread has the kernel give it to them, part by part.
//!
//! ```text
//!   give ─► line of disks ─► the first: enough available? ─yes─► a part ─► its owner is told ─► end of the line
//!                ▲                        │
//!                └──── looks again ◄──no──┘  an event, once per disk
//! ```
//! Every disk gets a part in its turn, so that a small one does not wait for a large one. The thread leaves
//! headroom to others ([`check_available`]): the kernel never has to end a process for a cache.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use forebay_backends::size::rounded;
use forebay_io::arena::{self, Arena, Available};

use crate::events::{EventSender, Severity};

/// What a disk gets in its turn.
const PART: u64 = 64 << 20;
/// Time after which the thread looks again whether there is memory.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Whoever waited longer for all of its memory is told that it is there.
const WORTH_TELLING: Duration = Duration::from_secs(5);
/// Memory of a disk of which it matters how much is on huge pages.
const WORTH_COUNTING: u64 = 1 << 30;

/// The thread. Dropped, it gives no more.
#[derive(Debug)]
pub struct Population {
    sender: mpsc::Sender<Wanted>,
    kept: Arc<AtomicU64>,
}

/// Memory that is left to a disk which is being opened again, as long as this is there: clients wait for it.
#[derive(Debug)]
pub struct Kept {
    all: Arc<AtomicU64>,
    own: u64,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

/// Memory that a disk wants.
pub struct Wanted {
    /// Its name, for events.
    pub disk: Arc<str>,
    /// The memory; nobody waits for it when it is gone.
    pub memory: Weak<Arena>,
    /// The part of it that is wanted, in bytes from its start.
    pub place: Range<u64>,
    /// Whether it is wanted still, all of it. While memory is made usable, or given back, that changes before
    /// ([`Arena::populate`]).
    pub is_wanted: Box<dyn Fn() -> bool + Send>,
    /// Is told up to where it is there.
    pub tell: Box<dyn FnMut(u64) + Send>,
}

/// A disk in the line.
struct Waiting {
    wanted: Wanted,
    since: Instant,
    was_told: bool,
}

impl Population {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(events: EventSender) -> std::io::Result<Population> {
        let (sender, receiver) = mpsc::channel();
        let kept = Arc::new(AtomicU64::new(0));
        let of_disks = kept.clone();
        let is_there = move |part| {
            check_available(&arena::available(), part + of_disks.load(Ordering::Relaxed))
        };
        let run = move || run(&receiver, &events, is_there, LOOK_AGAIN);
        std::thread::Builder::new().name("population".into()).spawn(run)?;
        Ok(Population { sender, kept })
    }

    /// Leaves so many bytes more to others from now on.
    pub fn keep(&self, own: u64) -> Kept {
        self.kept.fetch_add(own, Ordering::Relaxed);
        Kept { all: self.kept.clone(), own }
    }

    /// Puts a disk at the end of the line.
    pub fn give(&self, wanted: Wanted) {
        // The thread ends after this does.
        let _ = self.sender.send(wanted);
    }
}

/// Refuses to take `needed` bytes where that leaves others too little: the machine, and each control group, keeps a headroom
/// of its own.
///
/// # Errors
/// Who has too little.
pub fn check_available(available: &[Available], needed: u64) -> Result<(), String> {
    let has_less = |it: &&Available| it.bytes < headroom(it.all) + needed;
    match available.iter().find(has_less) {
        Some(Available { bytes, of, .. }) => {
            Err(format!("{of} has only {} available", rounded(*bytes)))
        }
        None => Ok(()),
    }
}

/// What is left to others of so many bytes in all.
fn headroom(all: u64) -> u64 {
    (all / 32).clamp(64 << 20, 1 << 30)
}

fn run(
    receiver: &Receiver<Wanted>,
    events: &EventSender,
    is_there: impl Fn(u64) -> Result<(), String>,
    look_again: Duration,
) {
    let mut line: VecDeque<Waiting> = VecDeque::new();
    // So many at the front of the line have found too little since somebody got something.
    let mut found_too_little = 0;
    loop {
        let patience = match line.len() {
            0 => Duration::MAX,
            waiting if found_too_little < waiting => Duration::ZERO,
            _ => look_again,
        };
        match receiver.recv_timeout(patience) {
            Ok(wanted) => {
                line.push_back(Waiting { wanted, since: Instant::now(), was_told: false });
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some(mut first) = line.pop_front() else { continue };
        let Some(memory) = first.wanted.memory.upgrade() else { continue };
        match first.give(&memory, &is_there) {
            Ok(()) => found_too_little = 0,
            Err(why) => {
                found_too_little += 1;
                first.tell_why(why, events);
            }
        }
        if !(first.wanted.is_wanted)() {
            continue;
        }
        if first.wanted.place.is_empty() {
            first.tell_end(&memory, events);
        } else {
            line.push_back(first);
        }
    }
}

impl Waiting {
    /// Gives it a part, or what is left.
    ///
    /// # Errors
    /// Why it gets nothing now.
    fn give(
        &mut self,
        memory: &Arena,
        is_there: impl Fn(u64) -> Result<(), String>,
    ) -> Result<(), String> {
        let place = &mut self.wanted.place;
        let end = place.end.min(place.start + PART);
        is_there(end - place.start)?;
        let len = (end - place.start) as usize;
        if !memory.populate(place.start, len, &self.wanted.is_wanted) {
            return Ok(());
        }
        place.start = end;
        (self.wanted.tell)(end);
        Ok(())
    }

    fn tell_why(&mut self, why: String, events: &EventSender) {
        if !std::mem::replace(&mut self.was_told, true) {
            let missing = rounded(self.wanted.place.end - self.wanted.place.start);
            let text = format!(
                "the RAM cache goes on without {missing} of its memory: {why}; it gets the rest when there is more"
            );
            events.report(Some(&self.wanted.disk), Severity::Warning, text);
        }
    }

    fn tell_end(&self, memory: &Arena, events: &EventSender) {
        let took = self.since.elapsed();
        if self.was_told || took > WORTH_TELLING {
            let spare = memory.spare();
            let there = memory.len() as u64 - (spare.end - spare.start);
            let mut text =
                format!("the RAM cache has all of its memory now, after {} s", took.as_secs());
            // The kernel counts pages of the whole process for that. With many small caches it would do so for each.
            if there >= WORTH_COUNTING {
                let huge = memory.huge_bytes() as u64 * 100 / there;
                text += &format!("; {huge} % of the disk's memory is on huge pages");
            }
            events.report(Some(&self.wanted.disk), Severity::Info, text);
        }
    }
}

impl std::fmt::Debug for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wanted").field("disk", &self.disk).field("place", &self.place).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const ALL: u64 = 4 << 30;

    /// Runs with so much available, which each part makes less; what was told, and the events.
    fn given(arenas: &[(&'static str, u64)], at_first: u64) -> (Vec<(String, u64)>, Vec<String>) {
        let (events, mut lines) = EventSender::for_test();
        let (sender, receiver) = mpsc::channel();
        let left = Arc::new(AtomicU64::new(at_first));
        let told = Arc::new(Mutex::new(Vec::new()));
        let mut memories = Vec::new();
        for &(name, len) in arenas {
            let memory = Arc::new(Arena::reserve(len as usize).unwrap());
            let (left, told) = (left.clone(), told.clone());
            let mut before = 0;
            let tell = move |end: u64| {
                left.fetch_sub(end - std::mem::replace(&mut before, end), Ordering::Relaxed);
                told.lock().unwrap().push((name.to_owned(), end));
            };
            let wanted = Wanted {
                disk: name.into(),
                memory: Arc::downgrade(&memory),
                place: 0..len,
                is_wanted: Box::new(|| true),
                tell: Box::new(tell),
            };
            memories.push(memory);
            sender.send(wanted).unwrap();
        }
        // Looks are counted; after many the disks are gone, and then the sender is.
        let state = Mutex::new((0, Some(sender), memories));
        let (state, left) = (&state, &left);
        let is_there = |part| {
            let mut state = state.lock().unwrap();
            state.0 += 1;
            if state.0 > 40 {
                state.1 = None;
                state.2.clear();
            }
            let of = arena::Holder::Machine;
            let bytes = left.load(Ordering::Relaxed);
            check_available(&[Available { bytes, all: ALL, is_hard: true, of }], part)
        };
        let until_done = Duration::from_micros(1);
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || run(&receiver, &events, is_there, until_done));
            let wanted: u64 = arenas.iter().map(|(_, len)| len).sum();
            while !thread.is_finished() {
                if at_first - left.load(Ordering::Relaxed) == wanted {
                    state.lock().unwrap().1 = None;
                }
                std::thread::yield_now();
            }
        });
        let mut texts = Vec::new();
        while let Ok(line) = lines.try_recv() {
            texts.push(line.text);
        }
        let told = told.lock().unwrap().clone();
        (told, texts)
    }

    #[test]
    fn disks_get_their_memory_by_turns_so_that_a_small_one_does_not_wait_for_a_large_one() {
        let (told, events) = given(&[("large", 3 * PART), ("small", PART / 2)], ALL);
        let places: Vec<(&str, u64)> = told.iter().map(|(name, at)| (name.as_str(), *at)).collect();
        let expected =
            [("large", PART), ("small", PART / 2), ("large", 2 * PART), ("large", 3 * PART)];
        assert_eq!(places, expected);
        assert!(events.is_empty(), "{events:?}");
    }

    #[test]
    fn a_cache_gets_no_memory_that_others_need_and_says_so_once() {
        let (told, events) = given(&[("large", 3 * PART)], headroom(ALL) + 2 * PART);
        assert_eq!(told.last().unwrap().1, 2 * PART);
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(
            events[0].contains("without 64 MiB of its memory: this machine has only"),
            "{events:?}"
        );
    }

    #[test]
    fn what_is_kept_for_a_disk_that_is_opened_again_is_given_to_nobody() {
        let (events, mut lines) = EventSender::for_test();
        let population = Population::start(events).unwrap();
        let kept = population.keep(1 << 60);
        let memory = Arc::new(Arena::reserve(PART as usize).unwrap());
        let told = Arc::new(AtomicU64::new(0));
        let tells = told.clone();
        population.give(Wanted {
            disk: "disk".into(),
            memory: Arc::downgrade(&memory),
            place: 0..PART,
            is_wanted: Box::new(|| true),
            tell: Box::new(move |end| tells.store(end, Ordering::Relaxed)),
        });
        let line = lines.blocking_recv().unwrap();
        assert!(line.text.contains("goes on without 64 MiB of its memory"), "{}", line.text);
        assert_eq!(told.load(Ordering::Relaxed), 0);
        drop(kept);
        assert_eq!(population.kept.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_machine_and_each_control_group_keep_a_headroom_of_their_own() {
        const MIB: u64 = 1 << 20;
        let machine =
            |bytes| Available { bytes, all: 256 << 30, is_hard: true, of: arena::Holder::Machine };
        let group = |bytes| Available {
            bytes,
            all: 2 << 30,
            is_hard: false,
            of: arena::Holder::ControlGroup,
        };
        // The machine leaves 1 GiB to others, the group 64 MiB.
        let short = |available: [Available; 2]| check_available(&available, 100 * MIB).err();
        assert_eq!(short([machine(1124 * MIB), group(164 * MIB)]), None);
        let why = short([machine(1123 * MIB), group(164 * MIB)]).unwrap();
        assert!(why.starts_with("this machine has only"), "{why}");
        let why = short([machine(1124 * MIB), group(163 * MIB)]).unwrap();
        assert!(why.starts_with("the control group"), "{why}");
        assert_eq!(check_available(&[], u64::MAX), Ok(()));
    }
}
