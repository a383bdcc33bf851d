//! What looks after the disks while clients are served: advice, history, shares of flash and RAM, loads of shards, and
//! the disks that are refused.
//!
//! No client waits for it. Where one of these panics, the others go on, and it begins again.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use forebay_host::events::{EventSender, Severity};
use tokio::task::JoinSet;

use super::control::ControlState;
use super::{advice, history, refused, shards, sharing};

/// Time until a part that panicked begins again.
const PAUSE: Duration = Duration::from_secs(60);

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What begins a part.
type Begin = Box<dyn Fn() -> Running + Send>;

/// Never ends.
pub(super) async fn look_after(control: Arc<ControlState>, events: EventSender) {
    let of = |follow: fn(Arc<ControlState>) -> Running| -> Begin {
        let control = control.clone();
        Box::new(move || follow(control.clone()))
    };
    let parts = vec![
        ("advice", of(|control| Box::pin(advice::follow(control)))),
        ("the history", of(|control| Box::pin(history::follow(control)))),
        ("sharing of RAM and flash", of(|control| Box::pin(sharing::follow(control)))),
        ("counting the load of shards", of(|control| Box::pin(shards::follow(control)))),
        ("opening refused disks", of(|control| Box::pin(refused::follow(control)))),
    ];
    keep_going(parts, PAUSE, &events).await;
}

/// Runs all parts; one that panicked is reported, and begins again after a pause.
async fn keep_going(parts: Vec<(&'static str, Begin)>, pause: Duration, events: &EventSender) {
    let mut running = JoinSet::new();
    let mut of_task = HashMap::new();
    for (name, begin) in parts {
        of_task.insert(running.spawn(begin()).id(), (name, begin));
    }
    while let Some(ended) = running.join_next_with_id().await {
        let Err(panicked) = ended else { continue };
        let Some((name, begin)) = of_task.remove(&panicked.id()) else { continue };
        let text = format!("a part of the daemon panicked, and begins again in a minute: {name}");
        events.report(None, Severity::Error, text);
        let part = begin();
        let task = running.spawn(async move {
            tokio::time::sleep(pause).await;
            part.await;
        });
        of_task.insert(task.id(), (name, begin));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use forebay_host::events::EventLog;
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn a_part_that_panics_is_reported_and_begins_again_beside_the_others() {
        let (log, events) = EventLog::start(None).unwrap();
        let (begun, third) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
        let (asks, answers) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (of_part, told) = (begun.clone(), third.clone());
        let panics: Begin = Box::new(move || {
            let (begun, third) = (of_part.clone(), told.clone());
            Box::pin(async move {
                assert_eq!(begun.fetch_add(1, Ordering::Relaxed), 2, "a panic, two times");
                third.notify_one();
                std::future::pending().await
            })
        });
        let (asked, answered) = (asks.clone(), answers.clone());
        let goes_on: Begin = Box::new(move || {
            let (asked, answered) = (asked.clone(), answered.clone());
            Box::pin(async move {
                asked.notified().await;
                answered.notify_one();
            })
        });
        let reported = events.clone();
        let all = tokio::spawn(async move {
            let parts = vec![("one", panics), ("the other", goes_on)];
            keep_going(parts, Duration::from_millis(1), &reported).await;
        });
        third.notified().await;
        asks.notify_one();
        answers.notified().await;
        log.settle(&events).await;
        let lines = log.lines(None);
        assert!(lines[0].text.ends_with("begins again in a minute: one"), "{lines:?}");
        assert_eq!((lines.len(), lines[0].count), (1, 2));
        all.abort();
    }
}
