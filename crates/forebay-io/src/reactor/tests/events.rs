use rustix::event::{EventfdFlags, eventfd};

use super::*;

const KICK: Token = Token(7);

/// An eventfd, as hypervisors make them, and the reactor's end of it.
fn add_event(reactor: &mut Reactor) -> (super::super::EventId, OwnedFd) {
    let ours = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let theirs = ours.try_clone().unwrap();
    (reactor.add_event(ours, KICK).unwrap(), theirs)
}

fn signal(event: &OwnedFd) {
    rustix::io::write(event, &1_u64.to_ne_bytes()).unwrap();
}

fn nothing_comes(reactor: &mut Reactor) {
    let mut completions = Vec::new();
    reactor.wait(Some(Duration::from_millis(5)), &mut completions).unwrap();
    assert!(completions.is_empty(), "{completions:?}");
}

#[test]
fn every_signal_is_seen_though_nobody_reads_the_event() {
    on_each_kind(|mut reactor| {
        let (_, event) = add_event(&mut reactor);
        nothing_comes(&mut reactor);
        for _ in 0..100 {
            signal(&event);
            let seen = wait_for_one(&mut reactor);
            assert_eq!((seen.token, seen.result.unwrap()), (KICK, 0));
            nothing_comes(&mut reactor);
        }
    });
}

#[test]
fn a_signal_from_before_is_seen() {
    on_each_kind(|mut reactor| {
        let ours = eventfd(3, EventfdFlags::CLOEXEC).unwrap();
        reactor.add_event(ours, KICK).unwrap();
        assert_eq!(wait_for_one(&mut reactor).token, KICK);
        nothing_comes(&mut reactor);
    });
}

#[test]
fn signals_of_another_thread_end_a_wait() {
    on_each_kind(|mut reactor| {
        let (_, event) = add_event(&mut reactor);
        let (told, news) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            for number in 0..1000 {
                told.send(number).unwrap();
                signal(&event);
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
fn a_removed_event_is_silent_and_let_go_of() {
    on_each_kind(|mut reactor| {
        let (id, event) = add_event(&mut reactor);
        let (other_id, other) = add_event(&mut reactor);
        signal(&event);
        reactor.remove_event(id);
        reactor.remove_event(id);
        signal(&event);
        nothing_comes(&mut reactor);
        assert_eq!(reactor.shared.events.keys().count(), 1);
        signal(&other);
        assert_eq!(wait_for_one(&mut reactor).token, KICK);
        reactor.remove_event(other_id);
        nothing_comes(&mut reactor);
        assert_eq!(reactor.shared.events.keys().count(), 0);
    });
}

#[test]
fn what_hangs_up_is_an_error_once() {
    on_each_kind_of(8, |mut reactor| {
        let (ours, theirs) = rustix::pipe::pipe().unwrap();
        let id = reactor.add_event(ours, KICK).unwrap();
        drop(theirs);
        assert_eq!(wait_for_one(&mut reactor).token, KICK);
        nothing_comes(&mut reactor);
        reactor.remove_event(id);
        nothing_comes(&mut reactor);
        assert_eq!(reactor.shared.events.keys().count(), 0);
    });
}

#[test]
fn events_are_no_reason_for_a_reactor_not_to_end() {
    on_each_kind(|mut reactor| {
        let (_, event) = add_event(&mut reactor);
        signal(&event);
        nothing_or_one(&mut reactor);
        drop(reactor);
        signal(&event);
    });
}

fn nothing_or_one(reactor: &mut Reactor) {
    reactor.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
}

#[test]
fn an_event_goes_to_another_reactor_and_no_signal_is_lost() {
    on_each_kind(|mut first| {
        let mut second = Reactor::new(64, Some(first.kind())).unwrap();
        let (id, event) = add_event(&mut first);
        nothing_comes(&mut first);
        signal(&event);
        let shared = first.share_event(id).unwrap();
        first.remove_event(id);
        assert!(first.share_event(id).is_err(), "it has it no more");
        second.add_event(shared, KICK).unwrap();
        assert_eq!(wait_for_one(&mut second).token, KICK);
        signal(&event);
        assert_eq!(wait_for_one(&mut second).token, KICK);
        nothing_comes(&mut first);
    });
}
