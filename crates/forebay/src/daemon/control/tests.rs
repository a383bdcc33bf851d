use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};

use super::*;

#[tokio::test]
async fn what_was_begun_is_done_although_its_client_left() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control");
    let (begun, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (done, mut is_done) = tokio::sync::mpsc::channel(1);
    let (has_begun, may_finish) = (begun.clone(), finish.clone());
    let work = async move || {
        has_begun.notify_one();
        may_finish.notified().await;
        done.send(()).await.unwrap();
    };
    let router = Router::new().route("/", post(work)).layer(middleware::from_fn(on_its_own));
    let (end, ends) = oneshot::channel::<()>();
    let served = axum::serve(UnixListener::bind(&socket).unwrap(), router)
        .with_graceful_shutdown(async move { drop(ends.await) });
    let served = tokio::spawn(served.into_future());
    let mut client = UnixStream::connect(&socket).await.unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    begun.notified().await;
    drop(client);
    // Its connection is over by then.
    drop(end);
    served.await.unwrap().unwrap();
    finish.notify_one();
    assert_eq!(is_done.recv().await, Some(()));
}
