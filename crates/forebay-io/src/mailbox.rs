//! A bounded mailbox of a shard: many threads put commands in, the shard takes them out between waits.
//!
//! A sender wakes the shard's reactor after each command, so a shard that sleeps in `wait` sees
//! it. Sending never blocks: a full mailbox gives the command back. That is the sender's
//! backpressure.
//!
//! Answers to what the shard has asked for always find room: it bounds them by how much it asks for. They come before
//! commands that wait, and so does the end of the shard.

use std::sync::mpsc::{self, TrySendError};

use crate::reactor::Waker;

/// A mailbox for at most `waiting_max` commands, whose arrival wakes `waker`'s reactor.
pub fn channel<T>(waiting_max: usize, waker: Waker) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::sync_channel(waiting_max.max(1));
    let (answerer, answers) = mpsc::channel();
    (Sender { sender, answerer, waker }, Receiver { receiver, answers })
}

/// The senders' end. Cheap to clone.
#[derive(Debug)]
pub struct Sender<T> {
    sender: mpsc::SyncSender<T>,
    answerer: mpsc::Sender<T>,
    waker: Waker,
}

/// The shard's end.
#[derive(Debug)]
pub struct Receiver<T> {
    receiver: mpsc::Receiver<T>,
    answers: mpsc::Receiver<T>,
}

/// A command that was not taken, given back.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError<T> {
    /// As many commands wait as may.
    #[error("the mailbox is full: the shard is busy, try again")]
    Full(T),
    /// The shard has ended.
    #[error("the mailbox is closed: the shard has ended")]
    Closed(T),
}

impl<T> Sender<T> {
    /// Puts a command in and wakes the shard. Does not block.
    ///
    /// # Errors
    /// The command back, when the mailbox is full or the shard has ended.
    pub fn send(&self, command: T) -> Result<(), SendError<T>> {
        match self.sender.try_send(command) {
            Ok(()) => {
                self.waker.wake();
                Ok(())
            }
            Err(TrySendError::Full(command)) => Err(SendError::Full(command)),
            Err(TrySendError::Disconnected(command)) => Err(SendError::Closed(command)),
        }
    }

    /// True when both lead to the same mailbox.
    pub fn leads_where(&self, other: &Sender<T>) -> bool {
        self.waker.wakes_whom(&other.waker)
    }

    /// Puts in the answer to something that the shard has asked for, and wakes it. False: it has ended, and hears nothing.
    pub fn answer(&self, command: T) -> bool {
        let is_taken = self.answerer.send(command).is_ok();
        if is_taken {
            self.waker.wake();
        }
        is_taken
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender {
            sender: self.sender.clone(),
            answerer: self.answerer.clone(),
            waker: self.waker.clone(),
        }
    }
}

impl<T> Receiver<T> {
    /// Takes the next command, if one waits.
    pub fn receive(&self) -> Option<T> {
        self.answers.try_recv().or_else(|_| self.receiver.try_recv()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::{SendError, channel};
    use crate::reactor::Reactor;

    #[test]
    fn commands_wake_the_reactor_and_arrive_in_order() {
        let mut reactor = Reactor::new(8, None).unwrap();
        let (sender, receiver) = channel(4, reactor.waker());
        let other = std::thread::spawn(move || {
            for number in 0..1000 {
                let mut command = number;
                while let Err(SendError::Full(back)) = sender.send(command) {
                    command = back;
                    std::thread::yield_now();
                }
            }
        });
        let mut seen = Vec::new();
        while seen.len() < 1000 {
            reactor.wait(None, &mut Vec::new()).unwrap();
            seen.extend(std::iter::from_fn(|| receiver.receive()));
        }
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
        other.join().unwrap();
    }

    #[test]
    fn a_full_mailbox_gives_the_command_back() {
        let reactor = Reactor::new(8, None).unwrap();
        let (sender, receiver) = channel(2, reactor.waker());
        assert_eq!(sender.send(1), Ok(()));
        assert_eq!(sender.clone().send(2), Ok(()));
        assert_eq!(sender.send(3), Err(SendError::Full(3)));
        assert_eq!(receiver.receive(), Some(1));
        assert_eq!(sender.send(3), Ok(()));
    }

    #[test]
    fn an_answer_finds_room_in_a_full_mailbox_and_comes_first() {
        let reactor = Reactor::new(8, None).unwrap();
        let (sender, receiver) = channel(1, reactor.waker());
        assert_eq!(sender.send("command"), Ok(()));
        sender.answer("answer");
        sender.answer("another");
        assert_eq!(sender.send("too many"), Err(SendError::Full("too many")));
        let taken: Vec<_> = std::iter::from_fn(|| receiver.receive()).collect();
        assert_eq!(taken, ["answer", "another", "command"]);
    }

    #[test]
    fn a_mailbox_without_its_shard_gives_the_command_back() {
        let reactor = Reactor::new(8, None).unwrap();
        let (sender, receiver) = channel(2, reactor.waker());
        drop(receiver);
        assert_eq!(sender.send("stop"), Err(SendError::Closed("stop")));
    }
}
