//! Questions that are never answered, or late.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

const SOON: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_secs(60);

fn about(path: &str) -> About {
    About::Flash(path.into())
}

/// A question that is answered once its sender is dropped.
fn hangs() -> (Sender<()>, impl FnOnce() -> u32 + Send + 'static) {
    let (end, ends): (Sender<()>, Receiver<()>) = channel();
    (end, move || {
        let _ = ends.recv();
        1
    })
}

#[tokio::test]
async fn what_hangs_is_asked_once_and_holds_up_no_other() {
    let questions = Questions::default();
    let (end, question) = hangs();
    assert_eq!(questions.ask(about("a"), SOON, question).await, Err(Silence::Late));
    for _ in 0..3 {
        let again = questions.ask(about("a"), SOON, || -> u32 { unreachable!("it is out") });
        assert_eq!(again.await, Err(Silence::Late));
        assert_eq!(questions.out().len(), 1);
    }
    assert_eq!(questions.ask(about("b"), LONG, || 2).await, Ok(2));
    let of = ["a", "b"].map(|path| (path, about(path)));
    let each = questions.ask_each(of, SOON * 10, |path| {
        let len = path.len();
        move || len
    });
    assert_eq!(each.await, [("a", Err(Silence::Late)), ("b", Ok(1))]);
    // Who waits for it meanwhile has an answer of its own.
    let waits = questions.clone();
    let waits = tokio::spawn(async move { waits.ask(about("a"), LONG, || 3).await });
    drop(end);
    assert_eq!(waits.await.unwrap(), Ok(3));
    assert!(questions.out().is_empty());
}

#[tokio::test]
async fn a_late_answer_goes_before_the_same_is_asked_again() {
    let questions = Questions::default();
    let (kept, is_dropped) = channel::<()>();
    let (end, question) = hangs();
    let late = move || {
        question();
        kept
    };
    assert!(questions.ask(about("a"), SOON, late).await.is_err());
    assert!(is_dropped.try_recv().is_err());
    drop(end);
    let again = questions.ask(about("a"), LONG, move || is_dropped.try_recv());
    assert_eq!(again.await, Ok(Err(std::sync::mpsc::TryRecvError::Disconnected)));
}

#[tokio::test]
async fn with_many_out_nobody_is_asked() {
    let questions = Questions::default();
    let others: Vec<_> = (0..OUT_MAX).map(|_| watch::channel(())).collect();
    for (n, (_, back)) in others.iter().enumerate() {
        questions.out().insert(about(&n.to_string()), back.clone());
    }
    let refused = questions.ask(about("a"), LONG, || -> u32 { unreachable!("too many are out") });
    assert_eq!(refused.await, Err(Silence::TooMany));
    drop(others);
    assert_eq!(questions.ask(about("a"), LONG, || 1).await, Ok(1));
    // One that panics gives no answer, and is not out any more.
    let panics =
        questions.ask(about("a"), LONG, || -> u32 { std::panic::resume_unwind(Box::new(())) });
    assert_eq!(panics.await, Err(Silence::Late));
    assert_eq!(questions.ask(about("a"), LONG, || 1).await, Ok(1));
}

#[tokio::test]
async fn a_question_to_whoever_has_a_pool_says_nothing_of_its_flash() {
    let (questions, path) = (Questions::default(), PathBuf::from("a"));
    for (about, owes) in [
        (About::Usage(path.clone()), false),
        (About::Pool(path.clone()), false),
        (About::Opening(path.clone()), true),
        (About::Closing(path.clone()), true),
    ] {
        let (_end, question) = hangs();
        assert_eq!(questions.ask(about.clone(), SOON, question).await, Err(Silence::Late));
        assert!(questions.is_out(&about));
        assert_eq!(questions.is_any_out(&path), owes, "{about:?}");
    }
}
