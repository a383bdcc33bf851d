use super::*;
use crate::clock::{now_nanos, thread_cpu_time};
use crate::reactor::Lookout;

#[test]
fn a_wait_without_anything_ends_at_its_timeout() {
    on_each_kind(|mut reactor| {
        let mut completions = Vec::new();
        let start = now_nanos();
        reactor.wait(Some(Duration::from_millis(20)), &mut completions).unwrap();
        assert!(now_nanos() - start >= 20_000_000);
        reactor.wait(Some(Duration::ZERO), &mut completions).unwrap();
        assert!(completions.is_empty());
    });
}

#[test]
fn a_wake_up_ends_the_current_wait() {
    on_each_kind(|mut reactor| {
        let waker = reactor.waker();
        let (told, news) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            for number in 0..1000 {
                told.send(number).unwrap();
                waker.wake();
            }
        });
        let mut seen = Vec::new();
        while seen.len() < 1000 {
            reactor.wait(None, &mut Vec::new()).unwrap();
            seen.extend(news.try_iter());
        }
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
        other.join().unwrap();
    });
}

#[test]
fn a_wake_up_before_the_wait_ends_it_once() {
    on_each_kind(|mut reactor| {
        let waker = reactor.waker();
        waker.wake();
        waker.clone().wake();
        reactor.wait(None, &mut Vec::new()).unwrap();
        let start = now_nanos();
        reactor.wait(Some(Duration::from_millis(10)), &mut Vec::new()).unwrap();
        assert!(now_nanos() - start >= 10_000_000, "woken twice by one wake-up");
        waker.wake();
        reactor.wait(None, &mut Vec::new()).unwrap();
    });
}

#[test]
fn a_waker_outlives_its_reactor() {
    on_each_kind(|mut reactor| {
        let waker = reactor.waker();
        reactor.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
        drop(reactor);
        waker.wake();
        waker.wake();
    });
}

#[test]
fn ping_pong_works_with_and_without_spinning() {
    on_each_kind(|mut reactor| {
        for is_spinning in [false, true] {
            reactor.set_spinning(is_spinning);
            let (socket, mut theirs) = add_pair(&mut reactor);
            let echo = std::thread::spawn(move || {
                let mut bytes = [0; 16];
                while theirs.read_exact(&mut bytes).is_ok() {
                    theirs.write_all(&bytes).unwrap();
                }
            });
            let mut buffer = Vec::with_capacity(16);
            for round in 0..2000_u128 {
                let bytes = round.to_ne_bytes();
                assert_eq!(reactor.send_now(socket, &[SendPart::Bytes(&bytes)]).unwrap(), 16);
                buffer.clear();
                reactor.recv(socket, None, buffer, Token(1));
                let completion = wait_for_one(&mut reactor);
                buffer = completion.buffer.unwrap();
                assert_eq!(buffer, bytes);
            }
            reactor.remove_socket(socket);
            echo.join().unwrap();
        }
        if reactor.kind() == ReactorKind::Epoll {
            assert_eq!(reactor.spin_stats().spins, 0);
        }
    });
}

#[test]
fn an_idle_reactor_uses_next_to_no_cpu_time() {
    on_each_kind(|mut reactor| {
        reactor.set_spinning(true);
        let before = thread_cpu_time();
        for _ in 0..20 {
            reactor.wait(Some(Duration::from_millis(5)), &mut Vec::new()).unwrap();
        }
        assert!(thread_cpu_time() - before < Duration::from_millis(20));
        assert_eq!(reactor.spin_stats().spins, 0);
    });
}

/// A place to be looked at, whose work appears after so many looks.
struct Counted {
    looks_left: u32,
    rests: u32,
    works_at_rest: bool,
}

impl Lookout for Counted {
    fn is_on(&self) -> bool {
        true
    }

    fn has_work(&mut self) -> bool {
        self.looks_left = self.looks_left.saturating_sub(1);
        self.looks_left == 0
    }

    fn rest(&mut self) -> bool {
        self.rests += 1;
        self.works_at_rest
    }
}

#[test]
fn whoever_brings_work_is_asked_to_tell_before_the_reactor_sleeps() {
    on_each_kind(|mut reactor| {
        reactor.set_spinning(false);
        let mut place = Counted { looks_left: u32::MAX, rests: 0, works_at_rest: true };
        reactor.wait_looking(None, &mut Vec::new(), &mut place).unwrap();
        assert_eq!(place.rests, 1, "there was work, so it did not sleep for ever");
        place.works_at_rest = false;
        let (start, patience) = (now_nanos(), Duration::from_millis(10));
        reactor.wait_looking(Some(patience), &mut Vec::new(), &mut place).unwrap();
        assert!(place.rests > 1 && now_nanos() - start >= 10_000_000);
        let rests = place.rests;
        reactor.wait_looking(Some(Duration::ZERO), &mut Vec::new(), &mut place).unwrap();
        assert_eq!(place.rests, rests, "without a sleep nobody has to tell");
    });
}

#[test]
fn work_that_appears_during_a_spin_ends_it() {
    let mut reactor = Reactor::new(8, None).unwrap();
    reactor.set_spinning(true);
    let mut place = Counted { looks_left: 0, rests: 0, works_at_rest: true };
    // Waits that are short make it spin, and spins that find something make it go on.
    for _ in 0..100 {
        place.looks_left = 2;
        reactor.wait_looking(None, &mut Vec::new(), &mut place).unwrap();
    }
    let rests = place.rests;
    place.looks_left = 3;
    reactor.wait_looking(None, &mut Vec::new(), &mut place).unwrap();
    if reactor.kind() == ReactorKind::Uring {
        assert_eq!((place.looks_left, place.rests), (0, rests));
    }
}

#[test]
fn a_shard_that_is_bound_to_one_cpu_spins_where_its_process_has_more() {
    if crate::thread::cpus() < 2 {
        return eprintln!("not tested: it takes two CPUs");
    }
    let shard = std::thread::spawn(|| {
        crate::thread::bind_shard(0, 2);
        let mut reactor = Reactor::new(8, None).unwrap();
        let mut place = Counted { looks_left: u32::MAX, rests: 0, works_at_rest: true };
        for _ in 0..100 {
            reactor.wait_looking(None, &mut Vec::new(), &mut place).unwrap();
        }
        (reactor.kind(), reactor.spin_stats().spins)
    });
    let (kind, spins) = shard.join().unwrap();
    assert_eq!(spins > 0, kind == ReactorKind::Uring);
}

#[test]
fn io_uring_is_taken_unless_there_is_a_reason_not_to() {
    let reactor = Reactor::new(8, None).unwrap();
    assert_eq!(reactor.kind() == ReactorKind::Epoll, reactor.fallback_reason().is_some());
}
