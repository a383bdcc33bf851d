//! `forebay top`: every disk of this user's daemons, in a full screen that follows them.
//!
//! ```text
//!   keys, signals (screen.rs) ─┐
//!   a question per interval ───┼──► Top (model.rs) ──► view.rs
//!   (one for all disks, a task)┘    rates, order, filter, the disk that is looked at
//! ```
//! A daemon that hangs holds up the next figures, and never a key.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::client;
use super::screen::{Input, Screen, ended};
use crate::cli::TopArgs;
use crate::daemon::api::{AllStats, DaemonInfo};

mod model;
#[cfg(test)]
mod tests;
mod view;

use model::{Next, Top};

/// What all daemons answered at one time.
struct Answers {
    at: Instant,
    heard: Vec<client::Heard<AllStats>>,
}

/// Follows all disks, or prints them once.
pub(crate) fn top(args: TopArgs) -> Result<()> {
    client::block_on(async {
        let heard = client::daemons(args.control.as_deref()).await;
        let has_disks =
            |daemon: &DaemonInfo| !daemon.disks.is_empty() || !daemon.refused.is_empty();
        if !heard.iter().any(|(_, heard)| heard.as_ref().is_ok_and(has_disks)) {
            // It says where it looked.
            client::find(None, args.control.as_deref()).await?;
        }
        let mut top = Top::new(args.sort);
        top.take(answers(args.control.clone()).await);
        match args.once || !Screen::is_possible() {
            true => once(top, &args).await,
            false => follow(top, args).await,
        }
    })
}

async fn answers(control: Option<PathBuf>) -> Answers {
    let heard = client::ask_all(control.as_deref(), "/v1/stats").await;
    Answers { at: Instant::now(), heard }
}

/// Prints what the disks did within one interval.
async fn once(mut top: Top, args: &TopArgs) -> Result<()> {
    tokio::time::sleep(args.interval.0).await;
    top.take(answers(args.control.clone()).await);
    super::print(&view::text(&top))
}

async fn follow(mut top: Top, args: TopArgs) -> Result<()> {
    let mut screen = Screen::open()?;
    let mut ticks =
        tokio::time::interval_at(tokio::time::Instant::now() + args.interval.0, args.interval.0);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asking: Option<JoinHandle<Answers>> = None;
    loop {
        screen.draw(|frame| view::draw(frame, &mut top))?;
        tokio::select! {
            input = screen.input() => match input {
                Input::End => return Ok(()),
                Input::Resized => {}
                Input::Key(key) => {
                    if top.key(key) == Next::Quit {
                        return Ok(());
                    }
                }
            },
            _ = ticks.tick(), if asking.is_none() => {
                asking = Some(tokio::spawn(answers(args.control.clone())));
            }
            answers = ended(&mut asking) => {
                asking = None;
                top.take(answers?);
            }
        }
    }
}
