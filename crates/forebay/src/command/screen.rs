//! A full screen: keys, signals, and the terminal as it was before, however the command ends.
//!
//! A thread reads the terminal and ends with the process. A panic restores the terminal before it is told.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

use super::signals;

/// Keys that may wait.
const KEYS_MAX: usize = 64;

/// See the module.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    events: mpsc::Receiver<Event>,
    terminate: Signal,
    interrupt: Signal,
    hang_up: Option<Signal>,
}

/// What a user wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    Key(KeyCode),
    /// The terminal has another size.
    Resized,
    /// To end: Ctrl-C, a signal, or the terminal is gone.
    End,
}

impl Screen {
    /// True when somebody looks, and can type.
    pub(super) fn is_possible() -> bool {
        std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
    }

    /// Takes the terminal.
    ///
    /// # Errors
    /// It has no full screen.
    pub(super) fn open() -> Result<Screen> {
        let (terminate, interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let hang_up = signals::hang_up()?;
        let (sender, events) = mpsc::channel(KEYS_MAX);
        let terminal = ratatui::try_init().inspect_err(|_| drop(ratatui::try_restore()));
        let terminal = terminal.context("the terminal has no full screen")?;
        let screen = Screen { terminal, events, terminate, interrupt, hang_up };
        let read = move || {
            while let Ok(event) = event::read() {
                if sender.blocking_send(event).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("keys".to_owned()).spawn(read)?;
        Ok(screen)
    }

    /// Shows what `draw` draws.
    ///
    /// # Errors
    /// The terminal's.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        self.terminal.draw(draw)?;
        Ok(())
    }

    /// What the user wants next.
    pub(super) async fn input(&mut self) -> Input {
        loop {
            let event = tokio::select! {
                event = self.events.recv() => event,
                _ = self.terminate.recv() => None,
                _ = self.interrupt.recv() => None,
                _ = signals::next(&mut self.hang_up) => None,
            };
            match event {
                None => return Input::End,
                Some(Event::Resize(..)) => return Input::Resized,
                Some(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
                    return match key.code {
                        KeyCode::Char('c') if is_control => Input::End,
                        code => Input::Key(code),
                    };
                }
                Some(_) => {}
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = ratatui::try_restore();
    }
}

/// The end of a task, if there is one.
pub(super) async fn ended<T>(task: &mut Option<JoinHandle<T>>) -> Result<T, JoinError> {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}
